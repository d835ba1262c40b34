/*
 * Licensed to the Apache Software Foundation (ASF) under one or more contributor license
 * agreements.  See the NOTICE file distributed with this work for additional information
 * regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
 * Version 2.0 (the "License"); you may not use this file except in compliance with the
 * License.  You may obtain a copy of the License at
 *
 *   http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software distributed under the
 * License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
 * either express or implied.  See the License for the specific language governing permissions
 * and limitations under the License.
 */
/*!
 * \file src/relay/transform/infer_type.cc
 * \brief Infers the types of all expressions of a module.
 *
 * Each expression gets a type once its operands have theirs. An operator that needs an unknown
 * type, such as that of a parameter without annotation, is retried at the end.
 */
#include "infer_type.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>

#include <unordered_set>
#include <vector>

#include "../../ffi/registration.h"
#include "../ir/visitor.h"
#include "../op/registry.h"
#include "type_unifier.h"

namespace tvm_fixes::relay {
namespace {

constexpr size_t kMaxErrors = 20;

class Inferrer {
 public:
  explicit Inferrer(const IRModule& module) : module_(module) {}

  void Run() {
    for (const auto& [name, function] : module_->functions) {
      signatures_.emplace(std::string(name), Signature(function));
    }
    for (const auto& [name, function] : module_->functions) Visit(function);
    RetryPending();
    Finish();
  }

 private:
  /*! \brief A step of the walk: the phase of an expression. */
  enum class Phase { kEnter, kBind, kLeave };

  struct Step {
    Expr expr;
    Phase phase;
    /*! \brief The clause whose pattern is bound. */
    size_t clause = 0;
  };

  void Visit(const Function& root) {
    stack_.push_back({root, Phase::kEnter});
    while (!stack_.empty()) {
      Step step = std::move(stack_.back());
      stack_.pop_back();
      if (step.phase == Phase::kEnter && !visited_.insert(step.expr.get()).second) continue;
      try {
        if (step.phase == Phase::kEnter) {
          Enter(step.expr);
        } else if (step.phase == Phase::kBind) {
          Bind(step);
        } else {
          Leave(step.expr);
        }
      } catch (const tvm::ffi::Error& error) {
        Report(error.message());
        SetType(step.expr, types_.poison());
      }
    }
  }

  void Report(const std::string& message) {
    if (errors_.size() < kMaxErrors) errors_.push_back(message);
    ++error_count_;
  }

  void SetType(const Expr& expr, const Type& type) {
    expr->checked_type = type;
    typed_.push_back(expr);
  }

  Type TypeOf(const Expr& expr) {
    if (auto global = expr.as<GlobalVar>()) return SignatureOf(*global);
    if (auto constructor = expr.as<Constructor>()) return ConstructorType(*constructor);
    // A function that a let binding names may be used before its own type is set.
    return visited_.count(expr.get()) == 0 ? types_.poison() : expr->checked_type;
  }

  [[noreturn]] static void Fail(const Expr& expr, const std::string& message) {
    std::string place = expr->span.str();
    ThrowRelayError(place.empty() ? message : place + ": " + message);
  }

  Type Unify(const Type& expected, const Type& actual, const Expr& expr, const std::string& what) {
    std::optional<Type> type = types_.Unify(expected, actual);
    if (!type) {
      Fail(expr, what + ": expected " + TypeText(types_.Resolve(expected)) + ", found " +
                     TypeText(types_.Resolve(actual)));
    }
    return *type;
  }

  void BindVar(const Var& var) {
    visited_.insert(var.get());
    SetType(var, types_.Annotation(var->type_annotation));
  }

  FuncType Signature(const Function& function) {
    auto known = function_types_.find(function.get());
    if (known != function_types_.end()) return known->second;
    Array<Type> params;
    for (const Var& param : function->params) {
      BindVar(param);
      params.push_back(param->checked_type);
    }
    Type result = types_.Annotation(function->ret_type);
    FuncType type(function->type_params, params, result);
    function_types_.emplace(function.get(), type);
    return type;
  }

  Type SignatureOf(const GlobalVar& global) {
    auto found = signatures_.find(std::string(global->name));
    if (found == signatures_.end()) {
      Fail(global, "the function @" + std::string(global->name) + " is not defined");
    }
    return found->second;
  }

  TypeData Definition(const Constructor& constructor) {
    auto data = module_->type_definitions.Get(constructor->belong_to->name);
    if (!data) {
      Fail(constructor, "the type " + std::string(constructor->belong_to->name) +
                            " of the constructor " + std::string(constructor->name) +
                            " is not defined");
    }
    return *data;
  }

  FuncType ConstructorType(const Constructor& constructor) {
    TypeData data = Definition(constructor);
    Array<ObjectRef> params;
    Array<Type> args;
    for (const TypeVar& var : data->type_vars) {
      params.push_back(var);
      args.push_back(var);
    }
    return FuncType(params, constructor->inputs, TypeCall(data->header, args));
  }

  void Push(const Expr& expr, Phase phase = Phase::kEnter, size_t clause = 0) {
    stack_.push_back({expr, phase, clause});
  }

  void Enter(const Expr& expr) {
    if (const auto* constant = expr.as<ConstantObj>()) {
      std::vector<int64_t> shape(constant->data.shape().begin(), constant->data.shape().end());
      return SetType(expr, TensorType(MakeShape(shape), constant->data.dtype()));
    }
    if (const auto* var = expr.as<VarObj>()) {
      // A bound variable has been visited where it is bound.
      Fail(expr, "the variable %" + std::string(var->name) + " is not bound");
    }
    if (expr.as<GlobalVarObj>() != nullptr || expr.as<ConstructorObj>() != nullptr) {
      return SetType(expr, TypeOf(expr));
    }
    if (expr.as<OpObj>() != nullptr) return;
    ForEachChild(expr, [&](const Expr& child) {
      const auto* op = child.as<OpObj>();
      const auto* call = expr.as<CallObj>();
      if (op == nullptr || (call != nullptr && call->op.same_as(child))) return;
      Fail(expr, "the operator " + std::string(op->name) + " is a value here: expected a call");
    });
    Push(expr, Phase::kLeave);
    if (const auto* let = expr.as<LetObj>()) {
      BindLet(*let);
      Push(let->body);
      Push(expr, Phase::kBind);
      return Push(let->value);
    }
    if (const auto* match = expr.as<MatchObj>()) {
      for (size_t i = match->clauses.size(); i-- > 0;) {
        Push(match->clauses[i]->rhs);
        Push(expr, Phase::kBind, i);
      }
      return Push(match->data);
    }
    if (auto function = expr.as<Function>()) Signature(*function);
    std::vector<Expr> children;
    ForEachChild(expr, [&](const Expr& child) { children.push_back(child); });
    for (size_t i = children.size(); i-- > 0;) Push(children[i]);
  }

  /*! \brief A function may call itself through the variable, with its declared type. */
  void BindLet(const LetObj& let) {
    BindVar(let.var);
    auto function = let.value.as<Function>();
    if (!function || !IsMissing(let.var->type_annotation)) return;
    let.var->checked_type = Signature(*function);
  }

  void Bind(const Step& step) {
    if (const auto* let = step.expr.as<LetObj>()) {
      Type value = TypeOf(let->value);
      if (!let->var->checked_type.same_as(value)) {
        Unify(let->var->checked_type, value, let->value,
              "the value of %" + std::string(let->var->name));
      }
      return;
    }
    const auto* match = step.expr.as<MatchObj>();
    const Pattern& pattern = match->clauses[step.clause]->lhs;
    ForEachPatternVar(pattern, [this](const Var& var) { BindVar(var); });
    BindPattern(pattern, TypeOf(match->data), step.expr);
  }

  void BindPattern(const Pattern& root, const Type& root_type, const Expr& match) {
    std::vector<std::pair<Pattern, Type>> stack = {{root, root_type}};
    while (!stack.empty()) {
      auto [pattern, type] = std::move(stack.back());
      stack.pop_back();
      if (const auto* var = pattern.as<PatternVarObj>()) {
        Unify(var->var->checked_type, type, var->var,
              "the value of %" + std::string(var->var->name));
      } else if (const auto* tuple = pattern.as<PatternTupleObj>()) {
        Array<Type> fields;
        for (size_t i = 0; i < tuple->patterns.size(); ++i) fields.push_back(types_.NewHole());
        Unify(TupleType(fields), type, match, "a pattern");
        for (size_t i = 0; i < fields.size(); ++i) stack.push_back({tuple->patterns[i], fields[i]});
      } else if (const auto* made = pattern.as<PatternConstructorObj>()) {
        FuncType function = types_.Instantiate(ConstructorType(made->constructor), {});
        if (made->patterns.size() != function->arg_types.size()) {
          Fail(match, "a pattern of " + std::string(made->constructor->name) + ": expected " +
                          std::to_string(function->arg_types.size()) + " fields, found " +
                          std::to_string(made->patterns.size()));
        }
        Unify(function->ret_type, type, match,
              "a pattern of " + std::string(made->constructor->name));
        for (size_t i = 0; i < made->patterns.size(); ++i) {
          stack.push_back({made->patterns[i], function->arg_types[i]});
        }
      }
    }
  }

  void Leave(const Expr& expr) {
    if (const auto* let = expr.as<LetObj>()) {
      SetType(expr, TypeOf(let->body));
    } else if (const auto* function = expr.as<FunctionObj>()) {
      FuncType type = function_types_.at(expr.get());
      // The error names the place of the returned expression.
      Unify(type->ret_type, TypeOf(function->body), function->body, "the result of the function");
      SetType(expr, type);
    } else if (const auto* tuple = expr.as<TupleObj>()) {
      Array<Type> fields;
      for (const Expr& field : tuple->fields) fields.push_back(TypeOf(field));
      SetType(expr, TupleType(fields));
    } else if (const auto* branch = expr.as<IfObj>()) {
      Unify(TensorType(Shape(), kBool), TypeOf(branch->cond), branch->cond, "the condition of If");
      SetType(expr, Unify(TypeOf(branch->true_branch), TypeOf(branch->false_branch), expr,
                          "the branches of If differ in type"));
    } else if (const auto* match = expr.as<MatchObj>()) {
      Type result = types_.NewHole();
      for (const Clause& clause : match->clauses) {
        result = Unify(result, TypeOf(clause->rhs), clause->rhs, "the clauses differ in type");
      }
      SetType(expr, result);
    } else if (const auto* create = expr.as<RefCreateObj>()) {
      SetType(expr, RefType(TypeOf(create->value)));
    } else if (const auto* read = expr.as<RefReadObj>()) {
      Type value = types_.NewHole();
      Unify(RefType(value), TypeOf(read->ref), expr, "the operand of ref_read");
      SetType(expr, value);
    } else if (const auto* write = expr.as<RefWriteObj>()) {
      Unify(RefType(TypeOf(write->value)), TypeOf(write->ref), expr, "the operand of ref_write");
      SetType(expr, TupleType(Array<Type>()));
    } else {
      LeaveDeferrable(expr);
    }
  }

  /*! \brief Infer the type now, or at the end if the type of an operand is unknown. */
  void LeaveDeferrable(const Expr& expr) {
    Type type = TryInfer(expr);
    if (type.defined()) return SetType(expr, type);
    SetType(expr, types_.NewHole());
    pending_.push_back(expr);
  }

  /*! \brief The type, or null if the type of an operand is still unknown. */
  Type TryInfer(const Expr& expr) {
    const auto* item = expr.as<TupleGetItemObj>();
    if (item != nullptr) return TryItem(*item, expr);
    auto call = expr.as<Call>().value();
    if (call->op.as<OpObj>() != nullptr) return TryOperator(call);
    return CallFunction(call);
  }

  Type TryItem(const TupleGetItemObj& item, const Expr& expr) {
    Type head = types_.Head(TypeOf(item.tuple));
    if (head.same_as(types_.poison())) return head;
    if (IsMissing(head)) return Type();
    const auto* tuple = head.as<TupleTypeObj>();
    if (tuple == nullptr) {
      Fail(expr, "field " + std::to_string(item.index) + ": expected a tuple, found " +
                     TypeText(types_.Resolve(head)));
    }
    if (item.index < 0 || static_cast<size_t>(item.index) >= tuple->fields.size()) {
      Fail(expr, "field " + std::to_string(item.index) + " of a tuple with " +
                     std::to_string(tuple->fields.size()) + " fields");
    }
    return tuple->fields[item.index];
  }

  Type CallFunction(const Call& call) {
    Type callee = types_.Head(TypeOf(call->op));
    Array<Type> args;
    for (const Expr& arg : call->args) args.push_back(TypeOf(arg));
    if (IsMissing(callee)) {
      Type result = types_.NewHole();
      Unify(callee, FuncType({}, args, result), call, "the called function");
      return result;
    }
    auto function = callee.as<FuncType>();
    if (!function) {
      Fail(call, "expected a function to call, found " + TypeText(types_.Resolve(callee)));
    }
    if (args.size() != (*function)->arg_types.size()) {
      ThrowRelayError(CallText(call.get()) + ": expected " +
                      std::to_string((*function)->arg_types.size()) + " arguments, found " +
                      std::to_string(args.size()));
    }
    FuncType type = types_.Instantiate(*function, call->type_args);
    for (size_t i = 0; i < args.size(); ++i) {
      Unify(type->arg_types[i], args[i], call, "argument " + std::to_string(i));
    }
    return type->ret_type;
  }

  Type TryOperator(const Call& call) {
    const auto* op = call->op.as<OpObj>();
    const OpDecl* decl = op->decl;
    if (decl == nullptr) Fail(call, "unknown operator " + std::string(op->name));
    if (decl->effect == OpEffect::kRejected) {
      ThrowRelayError(CallText(call.get()) + ": " + decl->rejection);
    }
    CheckCount(call, *decl);
    Array<Type> inputs;
    bool is_known = true;
    for (const Expr& arg : call->args) {
      Type type = types_.Resolve(TypeOf(arg));
      if (types_.HasHoles(type)) {
        if (types_.IsPoisoned(type)) return types_.poison();
        is_known = false;
      }
      inputs.push_back(type);
    }
    if (!is_known && !decl->infers_inputs) return Type();
    if (!decl->relation) {
      if (decl->effect == OpEffect::kAnnotation && !inputs.empty()) return inputs[0];
      Fail(call, "the type of operator " + decl->name + " cannot be inferred");
    }
    InferContext context(call.get(), inputs);
    Type type;
    try {
      type = decl->relation(context);
    } catch (const tvm::ffi::Error& error) {
      // What computes extents does not know the call.
      std::string place = CallText(call.get());
      std::string message = error.message();
      ThrowRelayError(message.rfind(place, 0) == 0 ? message : place + ": " + message);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!context.input_types()[i].same_as(inputs[i])) {
        Unify(inputs[i], context.input_types()[i], call, "input " + std::to_string(i));
      }
    }
    return type;
  }

  static void CheckCount(const Call& call, const OpDecl& decl) {
    int count = static_cast<int>(call->args.size());
    bool too_many = decl.max_inputs >= 0 && count > decl.max_inputs;
    if (count >= decl.min_inputs && !too_many) return;
    std::string expected = std::to_string(decl.min_inputs);
    if (decl.max_inputs < 0) {
      expected = "at least " + expected;
    } else if (decl.max_inputs != decl.min_inputs) {
      expected += " to " + std::to_string(decl.max_inputs);
    }
    ThrowRelayError(CallText(call.get()) + ": expected " + expected + " inputs, found " +
                    std::to_string(count));
  }

  void RetryPending() {
    bool progress = true;
    while (progress && !pending_.empty()) {
      progress = false;
      std::vector<Expr> waiting;
      waiting.swap(pending_);
      for (const Expr& expr : waiting) {
        Type hole = expr->checked_type;
        try {
          Type type = TryInfer(expr);
          if (!type.defined()) {
            pending_.push_back(expr);
            continue;
          }
          Unify(hole, type, expr, "the type that is expected here");
        } catch (const tvm::ffi::Error& error) {
          Report(error.message());
          types_.Unify(hole, types_.poison());
        }
        progress = true;
      }
    }
  }

  /*! \brief Fill in the types, or clear them if there is an error. */
  void Finish() {
    if (errors_.empty()) {
      for (const Expr& expr : typed_) {
        expr->checked_type = types_.Resolve(expr->checked_type);
        if (types_.HasHoles(expr->checked_type)) ReportUnknown(expr);
      }
      if (unknown_.defined() && errors_.empty()) {
        Report(unknown_->span.str() + ": the type of an expression cannot be inferred");
      }
    }
    if (errors_.empty()) return;
    for (const Expr& expr : typed_) expr->checked_type = Type();
    std::string text;
    for (const std::string& error : errors_) text += (text.empty() ? "" : "\n") + error;
    if (error_count_ > errors_.size()) {
      text += "\nand " + std::to_string(error_count_ - errors_.size()) + " further errors";
    }
    ThrowRelayError(text);
  }

  /*! \brief Report variables and calls; the types of enclosing expressions depend on theirs. */
  void ReportUnknown(const Expr& expr) {
    unknown_ = expr;
    std::string place = expr->span.defined() ? expr->span.str() + ": " : "";
    if (const auto* var = expr.as<VarObj>()) {
      Report(place + "the type of %" + std::string(var->name) +
             " cannot be inferred: annotate the variable");
    } else if (const auto* call = expr.as<CallObj>()) {
      Report("the type of " + CallText(call) + " cannot be inferred");
    }
  }

  const IRModule& module_;
  TypeUnifier types_;
  std::unordered_map<std::string, FuncType> signatures_;
  std::unordered_map<const Object*, FuncType> function_types_;
  std::unordered_set<const Object*> visited_;
  std::vector<Expr> typed_;
  std::vector<Step> stack_;
  std::vector<Expr> pending_;
  std::vector<std::string> errors_;
  size_t error_count_ = 0;
  /*! \brief An expression whose type is not known. */
  Expr unknown_;
};

}  // namespace

IRModule InferType(const IRModule& module) {
  Inferrer(module).Run();
  return module;
}

namespace {

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.relay.transform.InferType", InferType);
}

}  // namespace
}  // namespace tvm_fixes::relay
