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
 * \file src/relay/ir/visitor.cc
 * \brief Walks over expressions.
 */
#include "visitor.h"

#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief Visit all nodes below the root that `seen` lacks, operands first. */
template <typename Visit>
void Walk(const Expr& root, std::unordered_set<const Object*>* seen, Visit visit) {
  std::vector<std::pair<Expr, bool>> stack = {{root, false}};
  std::vector<Expr> children;
  while (!stack.empty()) {
    auto [expr, expanded] = std::move(stack.back());
    stack.pop_back();
    if (!expr.defined()) continue;
    if (expanded) {
      visit(expr);
      continue;
    }
    if (!seen->insert(expr.get()).second) continue;
    stack.emplace_back(expr, true);
    children.clear();
    ForEachChild(expr, [&](const Expr& child) { children.push_back(child); });
    for (size_t i = children.size(); i-- > 0;) {
      if (seen->count(children[i].get()) == 0) stack.emplace_back(children[i], false);
    }
  }
}

}  // namespace

void PostOrder(const Expr& root, const std::function<void(const Expr&)>& visit) {
  std::unordered_set<const Object*> seen;
  Walk(root, &seen, visit);
}

void ForEachPatternVar(const Pattern& pattern, const std::function<void(const Var&)>& visit) {
  std::vector<Pattern> stack = {pattern};
  while (!stack.empty()) {
    Pattern current = stack.back();
    stack.pop_back();
    Array<Pattern> parts;
    if (const auto* var = current.as<PatternVarObj>()) visit(var->var);
    if (const auto* tuple = current.as<PatternTupleObj>()) parts = tuple->patterns;
    if (const auto* made = current.as<PatternConstructorObj>()) parts = made->patterns;
    for (size_t i = parts.size(); i-- > 0;) stack.push_back(parts[i]);
  }
}

std::vector<Var> FreeVars(const Expr& expr) {
  std::unordered_set<const Object*> bound;
  std::vector<Var> used;
  // A variable is bound in only one place, so scopes need no stack.
  PostOrder(expr, [&](const Expr& node) {
    if (auto var = node.as<Var>()) used.push_back(*var);
    if (const auto* let = node.as<LetObj>()) bound.insert(let->var.get());
    if (const auto* function = node.as<FunctionObj>()) {
      for (const Var& param : function->params) bound.insert(param.get());
    }
    if (const auto* match = node.as<MatchObj>()) {
      for (const Clause& clause : match->clauses) {
        ForEachPatternVar(clause->lhs, [&](const Var& var) { bound.insert(var.get()); });
      }
    }
  });
  std::vector<Var> free;
  for (const Var& var : used) {
    if (bound.count(var.get()) == 0) free.push_back(var);
  }
  return free;
}

namespace {

/*! \brief The name and place of each call of an operator in a module. */
Array<Array<Any>> OperatorUses(const IRModule& module) {
  Array<Array<Any>> uses;
  std::unordered_set<const Object*> seen;
  for (const auto& [name, function] : module->functions) {
    Walk(function, &seen, [&](const Expr& expr) {
      const auto* call = expr.as<CallObj>();
      const auto* op = call == nullptr ? nullptr : call->op.as<OpObj>();
      if (op != nullptr) uses.push_back({op->name, expr->span.line, expr->span.column});
    });
  }
  return uses;
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("tvm_fixes.relay.PostOrder",
           [](const Expr& root) {
             Array<Expr> nodes;
             PostOrder(root, [&](const Expr& expr) { nodes.push_back(expr); });
             return nodes;
           })
      .def("tvm_fixes.relay.FreeVars",
           [](const Expr& expr) {
             std::vector<Var> vars = FreeVars(expr);
             return Array<Var>(vars.begin(), vars.end());
           })
      .def("tvm_fixes.relay.OperatorUses", OperatorUses);
}

}  // namespace
}  // namespace tvm_fixes::relay
