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
 * \file src/relay/transform/lift_recursion.cc
 * \brief Turns recursive local functions into functions of the module.
 */
#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"
#include "infer_type.h"
#include "recursion.h"

namespace tvm_fixes::relay {

bool IsFirstOrder(const Type& type) {
  std::vector<Type> stack = {type};
  while (!stack.empty()) {
    Type current = std::move(stack.back());
    stack.pop_back();
    if (const auto* tuple = current.as<TupleTypeObj>()) {
      for (const Type& field : tuple->fields) stack.push_back(field);
    } else if (current.as<TensorTypeObj>() == nullptr) {
      return false;
    }
  }
  return true;
}

bool IsFirstOrder(const Expr& expr) {
  return expr->checked_type.defined() && IsFirstOrder(expr->checked_type);
}

Var NewVar(const std::string& name, const Expr& like) {
  Var var(name, like->checked_type);
  var->checked_type = like->checked_type;
  return var;
}

std::string UnusedName(const Map<String, Function>& functions, const std::string& wanted) {
  std::string name = wanted;
  for (int i = 1; functions.count(name) != 0; ++i) name = wanted + "_" + std::to_string(i);
  return name;
}

namespace {

bool Mentions(const Expr& root, const Var& var) {
  std::vector<Var> free = FreeVars(root);
  return std::any_of(free.begin(), free.end(), [&](const Var& v) { return v.same_as(var); });
}

/*! \brief Lifts the recursive functions that lets bind, the innermost first. */
class Lifter : public ExprMutator {
 public:
  Lifter(const Function& root, Map<String, Function>* functions) : functions_(functions) {
    PostOrder(root, [this](const Expr& expr) {
      if (const auto* let = expr.as<LetObj>()) values_.emplace(let->var.get(), let->value);
    });
  }

 protected:
  Expr Rewrite(const Expr& original, const Expr& rebuilt) override {
    if (!rebuilt.same_as(original)) rebuilt->checked_type = original->checked_type;
    const auto* let = rebuilt.as<LetObj>();
    if (let == nullptr) return rebuilt;
    values_[let->var.get()] = let->value;
    auto function = let->value.as<Function>();
    if (!function || !Mentions(*function, let->var)) return rebuilt;
    std::optional<Expr> lifted = Lift(let->var, *function);
    if (!lifted) return rebuilt;
    Expr body = Substitute(let->body, {{let->var.get(), *lifted}});
    body->checked_type = let->body->checked_type;
    return body;
  }

 private:
  /*! \brief The function, with the local functions that it captures inserted. */
  Function Close(const Var& self, Function function) const {
    bool changed = true;
    while (changed) {
      std::unordered_map<const Object*, Expr> found;
      for (const Var& var : FreeVars(function)) {
        auto value = values_.find(var.get());
        if (var.same_as(self) || value == values_.end()) continue;
        if (value->second.as<FunctionObj>() == nullptr || Mentions(value->second, var)) continue;
        found.emplace(var.get(), CopyWithNewVars(value->second));
      }
      changed = !found.empty();
      if (!changed) break;
      Expr body = Substitute(function->body, found);
      body->checked_type = function->body->checked_type;
      function = Function(function->params, body, function->ret_type, function->type_params,
                          function->attrs);
    }
    return function;
  }

  /*! \brief Move a function to the module, if possible; return its replacement. */
  std::optional<Expr> Lift(const Var& self, Function function) {
    if (!function->type_params.empty() || !IsFirstOrder(function->body)) return std::nullopt;
    function = Close(self, function);
    std::vector<Var> captured;
    std::unordered_set<const Object*> seen = {self.get()};
    for (const Var& var : FreeVars(function)) {
      if (!seen.insert(var.get()).second) continue;
      if (!IsFirstOrder(var)) return std::nullopt;
      captured.push_back(var);
    }
    for (const Var& param : function->params) {
      if (!IsFirstOrder(param)) return std::nullopt;
    }
    GlobalVar global(UnusedName(*functions_, self->name.empty() ? "loop" : self->name));
    // Both copies of the parameters: of the function itself, and of the closure that calls it.
    std::vector<Var> params(function->params.begin(), function->params.end());
    std::unordered_map<const Object*, Expr> replacements;
    std::vector<Var> inner;
    for (const Var& var : captured) {
      inner.push_back(NewVar(var->name, var));
      replacements.emplace(var.get(), inner.back());
    }
    replacements.emplace(self.get(), MakeClosure(global, params, inner));
    Expr body = Substitute(function->body, replacements);
    body->checked_type = function->body->checked_type;
    std::vector<Var> all;
    for (const Var& param : params) all.push_back(param);
    for (const Var& var : inner) all.push_back(var);
    functions_->Set(global->name, Function(Array<Var>(all.begin(), all.end()), body,
                                           body->checked_type, EmptyArray(), function->attrs));
    return MakeClosure(global, params, captured);
  }

  /*! \brief A function of the parameters that passes the captured values too. */
  static Expr MakeClosure(const GlobalVar& global, const std::vector<Var>& params,
                          const std::vector<Var>& captured) {
    if (captured.empty()) return global;
    Array<Var> own;
    Array<Expr> args;
    for (const Var& param : params) {
      own.push_back(NewVar(param->name, param));
      args.push_back(own.back());
    }
    for (const Var& var : captured) args.push_back(var);
    return Function(own, Call(global, args));
  }

  Map<String, Function>* functions_;
  /*! \brief The values that lets bind to variables. */
  std::unordered_map<const Object*, Expr> values_;
};

/*! \brief Replaces calls of a literal function, which Lifter creates, by its body. */
class CallReducer : public ExprMutator {
 protected:
  Expr Rewrite(const Expr& original, const Expr& rebuilt) override {
    if (!rebuilt.same_as(original)) rebuilt->checked_type = original->checked_type;
    const auto* call = rebuilt.as<CallObj>();
    const auto* function = call == nullptr ? nullptr : call->op.as<FunctionObj>();
    const auto* inner = function == nullptr ? nullptr : function->body.as<CallObj>();
    if (inner == nullptr || inner->op.as<GlobalVarObj>() == nullptr) return rebuilt;
    std::unordered_map<const Object*, Expr> values;
    for (size_t i = 0; i < function->params.size(); ++i) {
      values.emplace(function->params[i].get(), call->args[i]);
    }
    Array<Expr> args;
    for (const Expr& arg : inner->args) {
      auto value = values.find(arg.get());
      if (arg.as<VarObj>() == nullptr) return rebuilt;
      args.push_back(value == values.end() ? arg : value->second);
    }
    Expr result = WithSpan(Call(inner->op, args), call->span);
    result->checked_type = original->checked_type;
    return result;
  }
};

IRModule LiftRecursion(IRModule module) {
  // A function that captures another one can move once the other has moved.
  while (true) {
    Map<String, Function> functions = module->functions;
    for (const auto& [name, function] : module->functions) {
      functions.Set(name, Lifter(function, &functions).MutateFunction(function));
    }
    if (functions.size() == module->functions.size()) return module;
    IRModule lifted(functions, module->type_definitions, module->attrs);
    module = InferType(MapFunctions(
        lifted, [](const Function& function) { return CallReducer().MutateFunction(function); }));
  }
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.relay.transform.LiftRecursion", LiftRecursion);
}

}  // namespace
}  // namespace tvm_fixes::relay
