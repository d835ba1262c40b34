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
 * \file src/relay/transform/partial_evaluate.cc
 * \brief Runs the parts of a program whose structure is known at compile time.
 *
 * An abstract machine runs the program in A-normal form with its own stack. Calls of operators go
 * into the new program; tuples, data of known constructors and functions exist only in the machine
 * until the new program needs them. Both branches on an unknown value run. Inside such a branch, a
 * function that is already running is called, not run again, so that recursion ends.
 */
#include <tvm/ffi/reflection/registry.h>

#include <map>

#include "../../ffi/registration.h"
#include "dead_code.h"
#include "evaluate.h"
#include "infer_type.h"
#include "normal_form.h"
#include "partial_value.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The maximum number of calls that are run, and of bindings; further calls are kept. */
constexpr int kMaxCalls = 100000;
constexpr int kMaxBindings = 1000000;

using Kind = PartialValue::Kind;

class PartialEvaluator {
 public:
  explicit PartialEvaluator(const IRModule& module) : module_(module) {}

  Function Run(const Function& function) {
    Function root = ToANormalForm(function);
    PartialEnv* env = arena_.Env(nullptr);
    for (const Var& param : root->params) env->values[param.get()] = arena_.Dynamic(param);
    PartialScope* scope = arena_.Scope();
    PushBlock(root->body, env, scope);
    RunMachine();
    PartialValue* result = returned_;
    while (!WriteOperand(result, scope)) RunMachine();
    Expr body = Close(scope, result);
    Function made(root->params, body, function->ret_type, function->type_params, function->attrs);
    return WithSpan(made, function->span);
  }

 private:
  enum class FrameKind { kBlock, kIf, kMatch, kFunction };
  /*! \brief The outcome for one expression: it has a value, or a frame must run first. */
  enum class Outcome { kValue, kWait, kRetry };

  struct Frame {
    FrameKind kind;
    Expr cursor;
    PartialEnv* env;
    PartialScope* scope;
    /*! \brief The function whose call this is. */
    Function function;
    bool is_waiting = false;
    /*! \brief The branch or clause that runs, its scope and its value. */
    size_t part = 0;
    PartialScope* part_scope = nullptr;
    PartialValue* part_value = nullptr;
    std::vector<Expr> parts = {};
    std::vector<Pattern> patterns = {};
    PartialValue* closure = nullptr;
    Array<Var> params = {};
  };

  // Frames -----------------------------------------------------------------------------------

  void PushBlock(const Expr& body, PartialEnv* env, PartialScope* scope,
                 const Function& function = Function()) {
    Frame frame{FrameKind::kBlock, body, env, scope, function};
    if (function.defined()) active_[function.get()].push_back(boundaries_);
    stack_.push_back(std::move(frame));
  }

  void PushBoundary(FrameKind kind, const Expr& expr, PartialEnv* env, PartialScope* scope) {
    Frame frame{kind, expr, env, scope, Function()};
    stack_.push_back(std::move(frame));
    ++boundaries_;
  }

  void Pop() {
    Frame& frame = stack_.back();
    if (frame.function.defined()) active_[frame.function.get()].pop_back();
    if (frame.kind != FrameKind::kBlock) --boundaries_;
    stack_.pop_back();
  }

  void RunMachine() {
    while (!stack_.empty()) {
      if (stack_.back().kind == FrameKind::kBlock) {
        StepBlock(stack_.size() - 1);
      } else {
        StepBoundary(stack_.size() - 1);
      }
    }
  }

  void StepBlock(size_t at) {
    while (true) {
      Frame& frame = stack_[at];
      const auto* let = frame.cursor.as<LetObj>();
      Outcome outcome = Outcome::kValue;
      if (!frame.is_waiting) {
        Expr expr = let != nullptr ? let->value : frame.cursor;
        outcome = Eval(expr, frame.env, frame.scope);
      }
      // Eval may have moved the frames.
      Frame& current = stack_[at];
      current.is_waiting = outcome == Outcome::kWait;
      if (outcome != Outcome::kValue) return;
      if (let == nullptr) return Pop();
      current.env->values[let->var.get()] = returned_;
      current.cursor = let->body;
    }
  }

  /*! \brief Run the branches of an If, the clauses of a Match, or the body of a function. */
  void StepBoundary(size_t at) {
    Frame& frame = stack_[at];
    if (frame.part_scope != nullptr) {
      if (frame.part_value == nullptr) frame.part_value = returned_;
      if (!WriteOperand(frame.part_value, frame.part_scope)) return;
      Frame& current = stack_[at];
      Expr result = Close(current.part_scope, current.part_value);
      current.part_scope = nullptr;
      current.part_value = nullptr;
      current.parts.push_back(result);
      ++current.part;
    }
    Frame& current = stack_[at];
    Expr next = NextPart(&current);
    if (!next.defined()) return FinishBoundary();
    PartialScope* scope = arena_.Scope();
    current.part_scope = scope;
    PushBlock(next, current.env, scope);
  }

  Expr NextPart(Frame* frame) {
    if (const auto* branch = frame->cursor.as<IfObj>()) {
      if (frame->part > 1) return Expr();
      return frame->part == 0 ? branch->true_branch : branch->false_branch;
    }
    if (const auto* match = frame->cursor.as<MatchObj>()) {
      if (frame->part == match->clauses.size()) return Expr();
      const Clause& clause = match->clauses[frame->part];
      frame->patterns.push_back(CopyPattern(clause->lhs, frame->env, &arena_));
      return clause->rhs;
    }
    return frame->part == 0 ? frame->cursor.as<FunctionObj>()->body : Expr();
  }

  void FinishBoundary() {
    Frame frame = stack_.back();
    Pop();
    if (const auto* branch = frame.cursor.as<IfObj>()) {
      Expr cond = Operand(Lookup(branch->cond, frame.env));
      returned_ = Emit(If(cond, frame.parts[0], frame.parts[1]), frame.cursor, frame.scope);
      return;
    }
    if (const auto* match = frame.cursor.as<MatchObj>()) {
      Array<Clause> clauses;
      for (size_t i = 0; i < frame.parts.size(); ++i) {
        clauses.push_back(Clause(frame.patterns[i], frame.parts[i]));
      }
      Expr data = Operand(Lookup(match->data, frame.env));
      returned_ = Emit(Match(data, clauses, match->complete), frame.cursor, frame.scope);
      return;
    }
    const auto* old = frame.cursor.as<FunctionObj>();
    Type result = IsClosedType(old->ret_type) ? old->ret_type : Type(IncompleteType());
    Function made(frame.params, frame.parts[0], result, {}, old->attrs);
    frame.scope->bindings.emplace_back(frame.closure->expr.as<Var>().value(),
                                       WithSpan(made, frame.cursor->span));
    ++bindings_;
  }

  // Values -----------------------------------------------------------------------------------

  PartialValue* Lookup(const Expr& expr, PartialEnv* env) {
    if (expr.as<VarObj>()) {
      for (PartialEnv* at = env; at != nullptr; at = at->parent) {
        auto found = at->values.find(expr.get());
        if (found != at->values.end()) return found->second;
      }
      return arena_.Dynamic(expr);
    }
    if (auto global = expr.as<GlobalVar>()) {
      auto function = module_->functions.Get((*global)->name);
      if (!function) return arena_.Dynamic(expr);
      auto [entry, is_new] = globals_.emplace((*global)->name, nullptr);
      if (is_new) {
        entry->second = arena_.Closure(ToANormalForm(*function), nullptr);
        entry->second->expr = expr;
      }
      return entry->second;
    }
    auto constructor = expr.as<Constructor>();
    if (constructor && (*constructor)->inputs.empty()) {
      PartialValue* value = arena_.Data(*constructor, {});
      value->expr = expr;
      return value;
    }
    return arena_.Dynamic(expr);
  }

  std::vector<PartialValue*> LookupAll(const Array<Expr>& exprs, PartialEnv* env) {
    std::vector<PartialValue*> values;
    for (const Expr& expr : exprs) values.push_back(Lookup(expr, env));
    return values;
  }

  /*! \brief Bind a new variable to a value of the new program. */
  PartialValue* Emit(Expr value, const Expr& original, PartialScope* scope) {
    value->span = original->span;
    if (const auto* call = value.as<CallObj>()) {
      Array<Type> types;
      for (const Expr& arg : call->args) types.push_back(KnownType(arg));
      value->checked_type = RelationType(call, types);
    }
    if (IsMissing(value->checked_type) && IsClosedType(original->checked_type)) {
      value->checked_type = original->checked_type;
    }
    return arena_.Dynamic(BindNew(value, scope));
  }

  Var BindNew(const Expr& value, PartialScope* scope) {
    Var var("p" + std::to_string(bindings_++), IncompleteType());
    var->checked_type = value->checked_type;
    scope->bindings.emplace_back(var, value);
    return WithSpan(var, value->span);
  }

  /*! \brief A value as an operand; a tuple is written in place. */
  Expr Operand(PartialValue* value) {
    if (value->kind != Kind::kTuple) return value->expr;
    Array<Expr> fields;
    for (PartialValue* field : value->fields) fields.push_back(field->expr);
    return Tuple(fields);
  }

  /*! \brief The chain of a scope. A call that is the result needs no name: it is a tail call. */
  Expr Close(PartialScope* scope, PartialValue* result) {
    scope->is_open = false;
    auto& bindings = scope->bindings;
    Expr tail = Operand(result);
    if (!bindings.empty() && tail.same_as(bindings.back().first) &&
        bindings.back().second.as<FunctionObj>() == nullptr) {
      tail = bindings.back().second;
      bindings.pop_back();
    }
    return MakeLets(bindings, tail);
  }

  Array<Expr> Operands(const std::vector<PartialValue*>& values) {
    Array<Expr> operands;
    for (PartialValue* value : values) operands.push_back(Operand(value));
    return operands;
  }

  /*!
   * \brief Make values part of the new program.
   * \return False if the body of a function must run first; then call this again.
   */
  bool Write(const std::vector<PartialValue*>& values, PartialScope* scope) {
    std::vector<std::pair<PartialValue*, bool>> stack;
    for (size_t i = values.size(); i-- > 0;) stack.emplace_back(values[i], false);
    while (!stack.empty()) {
      auto [value, is_expanded] = stack.back();
      stack.pop_back();
      if (value->is_written()) continue;
      if (value->kind == Kind::kClosure) {
        StartFunction(value, scope);
        return false;
      }
      if (!is_expanded) {
        stack.emplace_back(value, true);
        for (size_t i = value->fields.size(); i-- > 0;) {
          stack.emplace_back(value->fields[i], false);
        }
        continue;
      }
      Array<Expr> fields;
      for (PartialValue* field : value->fields) fields.push_back(field->expr);
      Expr made = value->kind == Kind::kTuple ? Expr(Tuple(fields))
                                              : Expr(Call(value->constructor, fields));
      value->expr = BindNew(made, scope);
      value->scope = scope;
    }
    return true;
  }

  /*! \brief Write the values that Operand needs: the fields of a tuple. */
  bool WriteOperand(PartialValue* value, PartialScope* scope) {
    if (value->kind == Kind::kTuple) return Write(value->fields, scope);
    return Write({value}, scope);
  }

  void StartFunction(PartialValue* closure, PartialScope* scope) {
    PartialEnv* env = arena_.Env(closure->env);
    closure->expr = Var("f" + std::to_string(bindings_++), IncompleteType());
    closure->scope = scope;
    Array<Var> params;
    for (const Var& old : closure->function->params) {
      bool is_closed = IsClosedType(old->type_annotation);
      Var param(old->name, is_closed ? old->type_annotation : Type(IncompleteType()));
      if (is_closed) param->checked_type = old->type_annotation;
      params.push_back(WithSpan(param, old->span));
      env->values[old.get()] = arena_.Dynamic(params.back());
    }
    active_[closure->function.get()].push_back(boundaries_);
    PushBoundary(FrameKind::kFunction, closure->function, env, scope);
    stack_.back().function = closure->function;
    stack_.back().closure = closure;
    stack_.back().params = params;
  }

  // Expressions ------------------------------------------------------------------------------

  Outcome Return(PartialValue* value) {
    returned_ = value;
    return Outcome::kValue;
  }

  Outcome Eval(const Expr& expr, PartialEnv* env, PartialScope* scope) {
    if (const auto* call = expr.as<CallObj>()) return EvalCall(*call, expr, env, scope);
    if (const auto* tuple = expr.as<TupleObj>()) {
      return Return(arena_.Tuple(LookupAll(tuple->fields, env)));
    }
    if (auto function = expr.as<Function>()) return Return(arena_.Closure(*function, env));
    if (const auto* branch = expr.as<IfObj>()) return EvalIf(*branch, expr, env, scope);
    if (const auto* match = expr.as<MatchObj>()) return EvalMatch(*match, expr, env, scope);
    if (IsAtomic(expr)) return Return(Lookup(expr, env));
    return EvalOther(expr, env, scope);
  }

  Outcome EvalOther(const Expr& expr, PartialEnv* env, PartialScope* scope) {
    std::vector<PartialValue*> operands;
    ForEachChild(expr, [&](const Expr& child) { operands.push_back(Lookup(child, env)); });
    const auto* item = expr.as<TupleGetItemObj>();
    if (item != nullptr && operands[0]->kind == Kind::kTuple && item->index >= 0 &&
        item->index < static_cast<int64_t>(operands[0]->fields.size())) {
      return Return(operands[0]->fields[item->index]);
    }
    if (!Write(operands, scope)) return Outcome::kRetry;
    Expr made = expr;
    if (item != nullptr) made = TupleGetItem(operands[0]->expr, item->index);
    if (expr.as<RefCreateObj>()) made = RefCreate(operands[0]->expr);
    if (expr.as<RefReadObj>()) made = RefRead(operands[0]->expr);
    if (expr.as<RefWriteObj>()) made = RefWrite(operands[0]->expr, operands[1]->expr);
    return Return(Emit(made, expr, scope));
  }

  Outcome EvalIf(const IfObj& branch, const Expr& expr, PartialEnv* env, PartialScope* scope) {
    PartialValue* cond = Lookup(branch.cond, env);
    std::optional<bool> known;
    if (cond->expr.defined()) known = ConstantFolder::KnownCondition(cond->expr);
    if (known) {
      PushBlock(*known ? branch.true_branch : branch.false_branch, env, scope);
    } else {
      PushBoundary(FrameKind::kIf, expr, env, scope);
    }
    return Outcome::kWait;
  }

  Outcome EvalMatch(const MatchObj& match, const Expr& expr, PartialEnv* env, PartialScope* scope) {
    PartialValue* data = Lookup(match.data, env);
    for (const Clause& clause : match.clauses) {
      MatchResult result = MatchPattern(clause->lhs, data, env);
      if (result == MatchResult::kUnknown) break;
      if (result == MatchResult::kNo) continue;
      PushBlock(clause->rhs, env, scope);
      return Outcome::kWait;
    }
    if (!WriteOperand(data, scope)) return Outcome::kRetry;
    PushBoundary(FrameKind::kMatch, expr, env, scope);
    return Outcome::kWait;
  }

  Outcome EvalCall(const CallObj& call, const Expr& expr, PartialEnv* env, PartialScope* scope) {
    PartialValue* callee =
        call.op.as<ConstructorObj>() ? arena_.Dynamic(call.op) : Lookup(call.op, env);
    std::vector<PartialValue*> args = LookupAll(call.args, env);
    if (callee->kind == Kind::kDynamic && callee->expr.as<ConstructorObj>()) {
      return Return(arena_.Data(callee->expr.as<Constructor>().value(), args));
    }
    if (callee->kind == Kind::kClosure && MayRun(*callee, args)) {
      ++calls_;
      PartialEnv* inner = arena_.Env(callee->env);
      for (size_t i = 0; i < args.size(); ++i) {
        inner->values[callee->function->params[i].get()] = args[i];
      }
      PushBlock(callee->function->body, inner, scope, callee->function);
      return Outcome::kWait;
    }
    if (!Write({callee}, scope)) return Outcome::kRetry;
    for (PartialValue* arg : args) {
      if (!WriteOperand(arg, scope)) return Outcome::kRetry;
    }
    Call made(callee->expr, Operands(args), call.attrs);
    made->span = call.span;
    if (callee->expr.as<OpObj>()) {
      Array<Type> types;
      for (const Expr& arg : made->args) types.push_back(KnownType(arg));
      Expr folded = folder_.Fold(made, types);
      if (folded.defined()) return Return(arena_.Dynamic(folded));
    }
    return Return(Emit(made, expr, scope));
  }

  /*! \brief Whether a call is run; else it becomes a call of the new program. */
  bool MayRun(const PartialValue& callee, const std::vector<PartialValue*>& args) {
    const Function& function = callee.function;
    if (calls_ >= kMaxCalls || bindings_ >= kMaxBindings) return false;
    if (args.size() != function->params.size()) return false;
    for (const char* mark : {"Primitive", "Compiler", "Extern"}) {
      if (function->attrs.count(mark) != 0) return false;
    }
    // It is already running, with a branch in between that may not be taken.
    auto active = active_.find(function.get());
    bool is_running = active != active_.end() && !active->second.empty();
    if (is_running && active->second.front() < boundaries_) return false;
    if (callee.env != nullptr || !CallsItself(callee)) return true;
    for (PartialValue* arg : args) {
      if (arg->kind != Kind::kDynamic || arg->expr.as<ConstantObj>()) return true;
    }
    return false;
  }

  /*! \brief Whether the body of a function of the module names it. */
  bool CallsItself(const PartialValue& global) {
    auto [entry, is_new] = recursive_.emplace(global.function.get(), false);
    if (!is_new) return entry->second;
    const auto* name = global.expr.as<GlobalVarObj>();
    bool found = false;
    PostOrder(global.function, [&](const Expr& expr) {
      const auto* used = expr.as<GlobalVarObj>();
      found = found || (used != nullptr && name != nullptr && used->name == name->name);
    });
    recursive_[global.function.get()] = found;
    return found;
  }

  const IRModule& module_;
  PartialArena arena_;
  ConstantFolder folder_;
  std::vector<Frame> stack_;
  PartialValue* returned_ = nullptr;
  std::map<std::string, PartialValue*> globals_;
  std::unordered_map<const Object*, bool> recursive_;
  /*! \brief For each running function, the number of boundaries around each of its calls. */
  std::unordered_map<const Object*, std::vector<int>> active_;
  int boundaries_ = 0;
  int calls_ = 0;
  int bindings_ = 0;
};

/*!
 * \brief Run code that is known at compile time: functions, matches on known constructors, lists.
 *
 * Before, `@map(%f, Cons(%a, Cons(%b, Nil)))` is a recursive call. After, there are only the calls
 * of `%f` on `%a` and `%b`. The functions that no other function uses are changed.
 */
IRModule PartialEvaluate(const IRModule& untyped) {
  IRModule module = InferType(untyped);
  std::unordered_set<std::string> used;
  for (const auto& [name, function] : module->functions) {
    PostOrder(function, [&](const Expr& expr) {
      if (const auto* global = expr.as<GlobalVarObj>()) used.insert(global->name);
    });
  }
  Map<String, Function> functions;
  for (const auto& [name, function] : module->functions) {
    bool is_entry = name == "main" || (used.count(name) == 0 && function->type_params.empty());
    functions.Set(name, is_entry ? PartialEvaluator(module).Run(function) : function);
  }
  return DeadCodeElimination(
      IRModule(std::move(functions), module->type_definitions, module->attrs));
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.relay.transform.PartialEvaluate",
                                        PartialEvaluate);
}

}  // namespace
}  // namespace tvm_fixes::relay
