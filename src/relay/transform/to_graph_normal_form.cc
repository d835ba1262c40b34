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
 * \file src/relay/transform/to_graph_normal_form.cc
 * \brief Replaces variables by the values that lets bind to them.
 */
#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"
#include "dead_code.h"
#include "normal_form.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief Finds the let variables that must keep their bindings. */
class KeptVars {
 public:
  KeptVars(const Function& root, const EffectAnalysis& effects) {
    stack_.push_back({root, nullptr});
    while (!stack_.empty()) {
      auto [expr, function] = std::move(stack_.back());
      stack_.pop_back();
      if (!Enter(expr, function)) continue;
      if (const auto* let = expr.as<LetObj>()) {
        owner_[let->var.get()] = function;
        if (effects.IsOrdered(let->value)) kept_.insert(let->var.get());
        if (!IsAtomic(let->value)) compound_.insert(let->var.get());
      }
      const Object* inner = expr.as<FunctionObj>() ? expr.get() : function;
      ForEachChild(expr, [&](const Expr& child) { stack_.emplace_back(child, inner); });
    }
    // A use outside the function that binds the variable: a recursive function, or a value that
    // each call would compute again.
    for (const auto& [var, functions] : users_) {
      if (compound_.count(var) == 0) continue;
      for (const Object* function : functions) {
        if (function != owner_.at(var)) kept_.insert(var);
      }
    }
  }

  bool Contains(const Var& var) const { return kept_.count(var.get()) != 0; }

 private:
  /*! \brief Whether to look inside; a node that functions share is part of each, if it is a use. */
  bool Enter(const Expr& expr, const Object* function) {
    if (expr.as<VarObj>()) {
      users_[expr.get()].insert(function);
      return false;
    }
    return visited_.insert(expr.get()).second;
  }

  std::vector<std::pair<Expr, const Object*>> stack_;
  std::unordered_set<const Object*> visited_;
  std::unordered_set<const Object*> kept_;
  std::unordered_set<const Object*> compound_;
  std::unordered_map<const Object*, const Object*> owner_;
  std::unordered_map<const Object*, std::unordered_set<const Object*>> users_;
};

class Inliner : public ExprMutator {
 public:
  Inliner(const Function& root, const KeptVars& kept) : kept_(kept) {
    PostOrder(root, [this](const Expr& expr) {
      const auto* let = expr.as<LetObj>();
      if (let != nullptr && !kept_.Contains(let->var)) {
        bound_to_[let->value.get()].push_back(let->var);
      }
    });
  }

 protected:
  Expr Rewrite(const Expr& original, const Expr& rebuilt) override {
    Expr result = rebuilt;
    auto value = values_.find(original.get());
    if (value != values_.end()) result = value->second;
    const auto* let = rebuilt.as<LetObj>();
    if (let != nullptr && !kept_.Contains(let->var)) result = let->body;
    if (!IsAtomic(result) && !result->checked_type.defined()) {
      result->checked_type = original->checked_type;
    }
    auto bound = bound_to_.find(original.get());
    if (bound == bound_to_.end()) return result;
    // The value is rewritten before the body, and so before the uses of its variables.
    for (const Var& var : bound->second) values_[var.get()] = result;
    return result;
  }

 private:
  const KeptVars& kept_;
  std::unordered_map<const Object*, std::vector<Var>> bound_to_;
  std::unordered_map<const Object*, Expr> values_;
};

}  // namespace

IRModule ToGraphNormalForm(const IRModule& module) {
  EffectAnalysis effects(module);
  return MapFunctions(module, [&](const Function& function) {
    effects.Visit(function);
    KeptVars kept(function, effects);
    return Inliner(function, kept).MutateFunction(function);
  });
}

namespace {

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.relay.transform.ToGraphNormalForm",
                                        ToGraphNormalForm);
}

}  // namespace
}  // namespace tvm_fixes::relay
