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
 * \file src/relay/transform/dead_code.cc
 * \brief Removes code that no result depends on.
 */
#include "dead_code.h"

#include <tvm/ffi/reflection/registry.h>

#include <unordered_map>
#include <vector>

#include "../../ffi/registration.h"

namespace tvm_fixes::relay {

EffectAnalysis::EffectAnalysis(const IRModule& module) {
  for (const auto& [name, function] : module->functions) {
    PostOrder(function, [this](const Expr& expr) {
      has_writes_ = has_writes_ || expr.as<RefWriteObj>() != nullptr;
      has_references_ = has_references_ || expr.as<RefCreateObj>() != nullptr ||
                        expr.as<RefReadObj>() != nullptr || has_writes_;
    });
  }
}

void EffectAnalysis::Visit(const Function& function) {
  if (!has_references_) return;
  PostOrder(function, [this](const Expr& expr) {
    // Creating a closure runs nothing.
    if (expr.as<FunctionObj>()) return;
    const auto* call = expr.as<CallObj>();
    bool runs_function = call != nullptr && call->op.as<OpObj>() == nullptr &&
                         call->op.as<ConstructorObj>() == nullptr;
    bool writes = expr.as<RefWriteObj>() != nullptr || (runs_function && has_writes_);
    bool ordered = writes || runs_function || expr.as<RefCreateObj>() || expr.as<RefReadObj>();
    ForEachChild(expr, [&](const Expr& child) {
      writes = writes || MayWrite(child);
      ordered = ordered || IsOrdered(child);
    });
    if (writes) writes_.insert(expr.get());
    if (ordered) ordered_.insert(expr.get());
  });
}

namespace {

/*! \brief Finds the variables that the result or an effect depends on. */
class Liveness {
 public:
  Liveness(const Function& root, const EffectAnalysis& effects, bool only_constants)
      : effects_(effects), only_constants_(only_constants) {
    stack_.push_back(root);
    while (!stack_.empty()) {
      Expr expr = std::move(stack_.back());
      stack_.pop_back();
      if (visited_.insert(expr.get()).second) Visit(expr);
    }
  }

  bool IsDead(const Var& var) const { return values_.count(var.get()) != 0; }

 private:
  void Visit(const Expr& expr) {
    if (const auto* let = expr.as<LetObj>()) {
      bool may_go = only_constants_ ? let->value.as<ConstantObj>() != nullptr
                                    : !effects_.MayWrite(let->value);
      if (may_go && visited_.count(let->var.get()) == 0) {
        values_.emplace(let->var.get(), let->value);
      } else {
        stack_.push_back(let->value);
      }
      stack_.push_back(let->body);
      return;
    }
    if (expr.as<VarObj>()) {
      auto found = values_.find(expr.get());
      if (found == values_.end()) return;
      stack_.push_back(found->second);
      values_.erase(found);
      return;
    }
    ForEachChild(expr, [this](const Expr& child) { stack_.push_back(child); });
  }

  const EffectAnalysis& effects_;
  bool only_constants_;
  std::vector<Expr> stack_;
  std::unordered_set<const Object*> visited_;
  /*! \brief The values of variables that are not used so far. */
  std::unordered_map<const Object*, Expr> values_;
};

class Remover : public ExprMutator {
 public:
  explicit Remover(const Liveness& liveness) : liveness_(liveness) {}

 protected:
  Expr Rewrite(const Expr& original, const Expr& rebuilt) override {
    const auto* let = rebuilt.as<LetObj>();
    if (let != nullptr && liveness_.IsDead(let->var)) return let->body;
    if (!rebuilt.same_as(original)) rebuilt->checked_type = original->checked_type;
    return rebuilt;
  }

 private:
  const Liveness& liveness_;
};

IRModule Remove(const IRModule& module, bool only_constants) {
  EffectAnalysis effects(module);
  return MapFunctions(module, [&](const Function& function) {
    effects.Visit(function);
    return Remover(Liveness(function, effects, only_constants)).MutateFunction(function);
  });
}

/*!
 * \brief Remove the functions that no entry function reaches.
 *
 * Before, the module may hold functions that nothing calls. After, it holds the entry functions and
 * their callees.
 */
IRModule RemoveUnusedFunctions(const IRModule& module, const Array<String>& entries) {
  std::unordered_set<std::string> used;
  std::vector<std::string> stack(entries.begin(), entries.end());
  while (!stack.empty()) {
    std::string name = std::move(stack.back());
    stack.pop_back();
    auto function = module->functions.Get(name);
    if (!function || !used.insert(name).second) continue;
    PostOrder(*function, [&](const Expr& expr) {
      if (const auto* global = expr.as<GlobalVarObj>()) stack.push_back(global->name);
    });
  }
  if (used.size() == module->functions.size()) return module;
  Map<String, Function> functions;
  for (const auto& [name, function] : module->functions) {
    if (used.count(name) != 0) functions.Set(name, function);
  }
  return IRModule(std::move(functions), module->type_definitions, module->attrs);
}

}  // namespace

IRModule DeadCodeElimination(const IRModule& module) { return Remove(module, false); }

IRModule RemoveUnusedConstants(const IRModule& module) { return Remove(module, true); }

namespace {

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("tvm_fixes.relay.transform.DeadCodeElimination", DeadCodeElimination)
      .def("tvm_fixes.relay.transform.RemoveUnusedFunctions", RemoveUnusedFunctions);
}

}  // namespace
}  // namespace tvm_fixes::relay
