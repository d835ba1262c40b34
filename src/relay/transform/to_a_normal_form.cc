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
 * \file src/relay/transform/to_a_normal_form.cc
 * \brief Binds each intermediate value to a variable.
 *
 * A scope is a place that has its own chain of lets: the body of a function, a branch, a clause. A
 * value that several scopes use belongs to the innermost scope that encloses them all.
 */
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>

#include "../../ffi/registration.h"
#include "normal_form.h"

namespace tvm_fixes::relay {

Expr MakeLets(const std::vector<std::pair<Var, Expr>>& bindings, Expr result) {
  for (size_t i = bindings.size(); i-- > 0;) {
    const auto& [var, value] = bindings[i];
    Expr let = WithSpan(Let(var, value, result), value->span);
    let->checked_type = result->checked_type;
    result = std::move(let);
  }
  return result;
}

bool IsAtomic(const Expr& expr) {
  return expr.as<VarObj>() || expr.as<ConstantObj>() || expr.as<GlobalVarObj>() ||
         expr.as<OpObj>() || expr.as<ConstructorObj>();
}

namespace {

/*! \brief A function that represents one fused operator: its body stays unchanged. */
bool IsOpaque(const Expr& expr) {
  const auto* function = expr.as<FunctionObj>();
  return function != nullptr && function->attrs.count("Primitive") != 0;
}

struct ScopeNode {
  int parent;
  int depth;
  std::vector<std::pair<Var, Expr>> bindings;
};

class Normalizer {
 public:
  Function Run(const Function& root) {
    scopes_.push_back({-1, 0, {}});
    FindScopes(root);
    stack_.push_back({root->body, Phase::kEnter});
    Walk();
    Expr body = Finish(root->body, 0);
    if (body.same_as(root->body)) return root;
    Function result(root->params, body, root->ret_type, root->type_params, root->attrs);
    result->checked_type = root->checked_type;
    return WithSpan(result, root->span);
  }

 private:
  enum class Phase { kEnter, kBind, kLeave };
  struct Step {
    Expr expr;
    Phase phase;
  };

  /*! \brief Whether the child of a node at this position has its own scope. */
  static bool OpensScope(const Expr& expr, int position) {
    if (expr.as<FunctionObj>()) return true;
    return (expr.as<IfObj>() || expr.as<MatchObj>()) && position > 0;
  }

  int NewScope(int parent) {
    scopes_.push_back({parent, scopes_[parent].depth + 1, {}});
    return static_cast<int>(scopes_.size()) - 1;
  }

  int CommonScope(int a, int b) const {
    while (a != b) {
      if (scopes_[a].depth < scopes_[b].depth) std::swap(a, b);
      a = scopes_[a].parent;
    }
    return a;
  }

  std::vector<Expr> ChildrenOf(const Expr& expr) const {
    std::vector<Expr> children;
    if (IsOpaque(expr)) return children;
    ForEachChild(expr, [&](const Expr& child) { children.push_back(child); });
    return children;
  }

  /*! \brief Set the scope of each node; a node comes after all its users. */
  void FindScopes(const Function& root) {
    std::vector<Expr> order;
    PostOrder(root->body, [&](const Expr& expr) { order.push_back(expr); });
    scope_of_[root->body.get()] = 0;
    for (size_t i = order.size(); i-- > 0;) {
      // Nodes inside a fused function have no scope.
      auto found = scope_of_.find(order[i].get());
      if (found == scope_of_.end()) continue;
      int scope = found->second;
      int position = 0;
      std::vector<int> opened;
      for (const Expr& child : ChildrenOf(order[i])) {
        int child_scope = scope;
        if (OpensScope(order[i], position++)) {
          child_scope = NewScope(scope);
          opened.push_back(child_scope);
        }
        if (IsAtomic(child)) continue;
        auto [entry, is_new] = scope_of_.emplace(child.get(), child_scope);
        if (!is_new) entry->second = CommonScope(entry->second, child_scope);
      }
      if (!opened.empty()) inner_scopes_[order[i].get()] = std::move(opened);
    }
  }

  void Walk() {
    while (!stack_.empty()) {
      Step step = std::move(stack_.back());
      stack_.pop_back();
      if (step.phase == Phase::kEnter) {
        Enter(step.expr);
      } else if (step.phase == Phase::kBind) {
        BindLet(step.expr);
      } else {
        Leave(step.expr);
      }
    }
  }

  void Enter(const Expr& expr) {
    if (IsAtomic(expr) || !visited_.insert(expr.get()).second) return;
    stack_.push_back({expr, Phase::kLeave});
    if (const auto* let = expr.as<LetObj>()) {
      PassName(let->value, let->var, expr);
      stack_.push_back({let->body, Phase::kEnter});
      stack_.push_back({expr, Phase::kBind});
      stack_.push_back({let->value, Phase::kEnter});
      return;
    }
    std::vector<Expr> children = ChildrenOf(expr);
    for (size_t i = children.size(); i-- > 0;) stack_.push_back({children[i], Phase::kEnter});
  }

  /*! \brief Give the next value the name of the let variable. */
  void PassName(const Expr& value, const Var& name, const Expr& let) {
    if (IsAtomic(value) || visited_.count(value.get()) != 0) return;
    if (scope_of_.at(value.get()) == scope_of_.at(let.get())) names_[value.get()] = name;
  }

  void BindLet(const Expr& expr) {
    const auto* let = expr.as<LetObj>();
    Expr value = Atom(let->value);
    if (!value.same_as(let->var)) Bind(scope_of_.at(expr.get()), let->var, value);
    auto name = names_.find(expr.get());
    if (name != names_.end()) PassName(let->body, name->second, expr);
  }

  void Bind(int scope, const Var& var, const Expr& value) {
    scopes_[scope].bindings.emplace_back(var, value);
  }

  void Leave(const Expr& expr) {
    if (const auto* let = expr.as<LetObj>()) {
      atoms_[expr.get()] = Atom(let->body);
      return;
    }
    Expr value = Rebuild(expr);
    auto name = names_.find(expr.get());
    Var var = name != names_.end() ? name->second : FreshVar(expr);
    atoms_[expr.get()] = var;
    Bind(scope_of_.at(expr.get()), var, value);
  }

  Var FreshVar(const Expr& expr) {
    Var var("t" + std::to_string(counter_++), IncompleteType());
    var->checked_type = expr->checked_type;
    return WithSpan(var, expr->span);
  }

  Expr Atom(const Expr& expr) const {
    auto found = atoms_.find(expr.get());
    return found == atoms_.end() ? expr : found->second;
  }

  Array<Expr> Atoms(const Array<Expr>& exprs) const {
    Array<Expr> atoms;
    for (const Expr& expr : exprs) atoms.push_back(Atom(expr));
    return atoms;
  }

  /*! \brief The chain of a scope; the last value needs no name if it is the result. */
  Expr Finish(const Expr& root, int scope) {
    std::vector<std::pair<Var, Expr>> bindings = std::move(scopes_[scope].bindings);
    Expr result = Atom(root);
    if (!bindings.empty() && result.same_as(bindings.back().first) && IsFresh(bindings.back())) {
      result = bindings.back().second;
      bindings.pop_back();
    }
    return MakeLets(bindings, result);
  }

  /*! \brief Whether only the result uses a binding: a recursive function needs its name. */
  bool IsFresh(const std::pair<Var, Expr>& binding) const {
    if (binding.second.as<FunctionObj>() == nullptr) return true;
    return made_.count(binding.second.get()) != 0;
  }

  Expr Rebuild(const Expr& expr) {
    Expr result = RebuildInner(expr);
    if (result.same_as(expr)) return result;
    result->checked_type = expr->checked_type;
    // A function with a fresh name cannot call itself by that name.
    if (result.as<FunctionObj>() && names_.count(expr.get()) == 0) made_.insert(result.get());
    return WithSpan(result, expr->span);
  }

  Expr RebuildInner(const Expr& expr) {
    if (IsOpaque(expr)) return expr;
    auto inner = [&](const Expr& child, size_t index) {
      return Finish(child, inner_scopes_.at(expr.get())[index]);
    };
    if (const auto* call = expr.as<CallObj>()) {
      return Call(Atom(call->op), Atoms(call->args), call->attrs, call->type_args);
    }
    if (const auto* tuple = expr.as<TupleObj>()) return Tuple(Atoms(tuple->fields));
    if (const auto* item = expr.as<TupleGetItemObj>()) {
      return TupleGetItem(Atom(item->tuple), item->index);
    }
    if (const auto* function = expr.as<FunctionObj>()) {
      return Function(function->params, inner(function->body, 0), function->ret_type,
                      function->type_params, function->attrs);
    }
    if (const auto* branch = expr.as<IfObj>()) {
      Expr yes = inner(branch->true_branch, 0);
      return If(Atom(branch->cond), yes, inner(branch->false_branch, 1));
    }
    if (const auto* match = expr.as<MatchObj>()) {
      Array<Clause> clauses;
      for (size_t i = 0; i < match->clauses.size(); ++i) {
        clauses.push_back(Clause(match->clauses[i]->lhs, inner(match->clauses[i]->rhs, i)));
      }
      return Match(Atom(match->data), clauses, match->complete);
    }
    if (const auto* create = expr.as<RefCreateObj>()) return RefCreate(Atom(create->value));
    if (const auto* read = expr.as<RefReadObj>()) return RefRead(Atom(read->ref));
    if (const auto* write = expr.as<RefWriteObj>()) {
      return RefWrite(Atom(write->ref), Atom(write->value));
    }
    return expr;
  }

  std::vector<ScopeNode> scopes_;
  std::unordered_map<const Object*, int> scope_of_;
  std::unordered_map<const Object*, std::vector<int>> inner_scopes_;
  std::unordered_map<const Object*, Expr> atoms_;
  std::unordered_map<const Object*, Var> names_;
  std::unordered_set<const Object*> visited_;
  std::unordered_set<const Object*> made_;
  std::vector<Step> stack_;
  int counter_ = 0;
};

}  // namespace

Function ToANormalForm(const Function& function) {
  if (IsOpaque(function)) return function;
  return Normalizer().Run(function);
}

IRModule ToANormalForm(const IRModule& module) {
  return MapFunctions(module, [](const Function& function) { return ToANormalForm(function); });
}

namespace {

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def(
      "tvm_fixes.relay.transform.ToANormalForm",
      [](const IRModule& module) { return ToANormalForm(module); });
}

}  // namespace
}  // namespace tvm_fixes::relay
