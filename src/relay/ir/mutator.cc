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
 * \file src/relay/ir/mutator.cc
 * \brief Rewrites of expressions.
 */
#include "visitor.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief Apply a function to each element; the same array if none changes. */
template <typename T, typename F>
Array<T> MapArray(const Array<T>& array, F transform, bool* changed) {
  Array<T> result;
  bool differs = false;
  for (const T& element : array) {
    T mapped = transform(element);
    differs = differs || !mapped.same_as(element);
    result.push_back(std::move(mapped));
  }
  *changed = *changed || differs;
  return differs ? result : array;
}

}  // namespace

Expr ExprMutator::Rewrite(const Expr&, const Expr& rebuilt) { return rebuilt; }

Var ExprMutator::MutateVar(const Var& var) { return var; }

bool ExprMutator::Skip(const Expr&) { return false; }

Expr ExprMutator::Find(const Expr& expr) const {
  auto found = memo_.find(expr.get());
  return found == memo_.end() ? expr : found->second;
}

Var ExprMutator::Replacement(const Var& var) {
  auto found = memo_.find(var.get());
  if (found != memo_.end()) {
    // A variable that was used before it was bound may have become another expression.
    auto replacement = found->second.as<Var>();
    return replacement ? *replacement : var;
  }
  Var replacement = MutateVar(var);
  originals_.push_back(var);
  memo_.emplace(var.get(), replacement);
  return replacement;
}

Function ExprMutator::MutateFunction(const Function& function) {
  auto result = Mutate(function).as<Function>();
  if (!result) ThrowRelayError("a rewrite has replaced a function of the module by a value");
  return *result;
}

Expr ExprMutator::Mutate(const Expr& root) {
  std::vector<std::pair<Expr, bool>> stack = {{root, false}};
  std::vector<Expr> children;
  while (!stack.empty()) {
    auto [expr, expanded] = std::move(stack.back());
    stack.pop_back();
    if (memo_.count(expr.get()) != 0) continue;
    bool is_leaf = expr.as<VarObj>() != nullptr;
    if (!expanded && !is_leaf && !Skip(expr)) {
      stack.emplace_back(expr, true);
      children.clear();
      ForEachChild(expr, [&](const Expr& child) { children.push_back(child); });
      for (size_t i = children.size(); i-- > 0;) {
        if (memo_.count(children[i].get()) == 0) stack.emplace_back(children[i], false);
      }
      continue;
    }
    Expr result = expr;
    if (is_leaf) {
      result = Rewrite(expr, Replacement(*expr.as<Var>()));
    } else if (expanded) {
      result = Rewrite(expr, Rebuild(expr));
    }
    originals_.push_back(expr);
    memo_[expr.get()] = std::move(result);
  }
  return Find(root);
}

Pattern ExprMutator::MutatePattern(const Pattern& pattern) {
  if (const auto* var = pattern.as<PatternVarObj>()) {
    Var replacement = Replacement(var->var);
    if (replacement.same_as(var->var)) return pattern;
    return Pattern(make_object<PatternVarObj>(std::move(replacement)));
  }
  bool changed = false;
  auto mutate = [this](const Pattern& part) { return MutatePattern(part); };
  if (const auto* tuple = pattern.as<PatternTupleObj>()) {
    Array<Pattern> parts = MapArray(tuple->patterns, mutate, &changed);
    return changed ? Pattern(make_object<PatternTupleObj>(std::move(parts))) : pattern;
  }
  if (const auto* made = pattern.as<PatternConstructorObj>()) {
    Array<Pattern> parts = MapArray(made->patterns, mutate, &changed);
    if (!changed) return pattern;
    return Pattern(make_object<PatternConstructorObj>(made->constructor, std::move(parts)));
  }
  return pattern;
}

Expr ExprMutator::Rebuild(const Expr& expr) {
  bool changed = false;
  auto find = [&](const Expr& child) {
    Expr result = Find(child);
    changed = changed || !result.same_as(child);
    return result;
  };
  auto done = [&](auto make) { return changed ? Expr(WithSpan(make(), expr->span)) : expr; };
  if (const auto* call = expr.as<CallObj>()) {
    Expr op = find(call->op);
    Array<Expr> args = MapArray(call->args, find, &changed);
    return done([&] { return Call(op, args, call->attrs, call->type_args); });
  }
  if (const auto* tuple = expr.as<TupleObj>()) {
    Array<Expr> fields = MapArray(tuple->fields, find, &changed);
    return done([&] { return Tuple(fields); });
  }
  if (const auto* item = expr.as<TupleGetItemObj>()) {
    Expr tuple = find(item->tuple);
    return done([&] { return TupleGetItem(tuple, item->index); });
  }
  if (const auto* branch = expr.as<IfObj>()) {
    Expr cond = find(branch->cond);
    Expr yes = find(branch->true_branch);
    Expr no = find(branch->false_branch);
    return done([&] { return If(cond, yes, no); });
  }
  if (const auto* create = expr.as<RefCreateObj>()) {
    Expr value = find(create->value);
    return done([&] { return RefCreate(value); });
  }
  if (const auto* read = expr.as<RefReadObj>()) {
    Expr ref = find(read->ref);
    return done([&] { return RefRead(ref); });
  }
  if (const auto* write = expr.as<RefWriteObj>()) {
    Expr ref = find(write->ref);
    Expr value = find(write->value);
    return done([&] { return RefWrite(ref, value); });
  }
  return RebuildBinder(expr);
}

Expr ExprMutator::RebuildBinder(const Expr& expr) {
  bool changed = false;
  auto find = [&](const Expr& child) {
    Expr result = Find(child);
    changed = changed || !result.same_as(child);
    return result;
  };
  auto replace = [&](const Var& var) {
    Var result = Replacement(var);
    changed = changed || !result.same_as(var);
    return result;
  };
  auto done = [&](auto make) { return changed ? Expr(WithSpan(make(), expr->span)) : expr; };
  if (const auto* let = expr.as<LetObj>()) {
    Var var = replace(let->var);
    Expr value = find(let->value);
    Expr body = find(let->body);
    return done([&] { return Let(var, value, body); });
  }
  if (const auto* function = expr.as<FunctionObj>()) {
    Array<Var> params = MapArray(function->params, replace, &changed);
    Expr body = find(function->body);
    return done([&] {
      return Function(params, body, function->ret_type, function->type_params, function->attrs);
    });
  }
  if (const auto* match = expr.as<MatchObj>()) {
    Expr data = find(match->data);
    auto mutate = [&](const Clause& clause) {
      Pattern lhs = MutatePattern(clause->lhs);
      Expr rhs = Find(clause->rhs);
      bool same = lhs.same_as(clause->lhs) && rhs.same_as(clause->rhs);
      return same ? clause : Clause(lhs, rhs);
    };
    Array<Clause> clauses = MapArray(match->clauses, mutate, &changed);
    return done([&] { return Match(data, clauses, match->complete); });
  }
  return expr;
}

namespace {

class Substituter : public ExprMutator {
 public:
  explicit Substituter(const std::unordered_map<const Object*, Expr>& replacements)
      : replacements_(replacements) {}

 protected:
  Expr Rewrite(const Expr& original, const Expr& rebuilt) override {
    auto found = replacements_.find(original.get());
    return found == replacements_.end() ? rebuilt : found->second;
  }

 private:
  const std::unordered_map<const Object*, Expr>& replacements_;
};

class Copier : public ExprMutator {
 public:
  explicit Copier(const Expr& expr) {
    for (const Var& var : FreeVars(expr)) free_.insert(var.get());
  }

 protected:
  Var MutateVar(const Var& var) override {
    if (free_.count(var.get()) != 0) return var;
    Var copy(var->name, var->type_annotation);
    copy->checked_type = var->checked_type;
    return WithSpan(copy, var->span);
  }

  Expr Rewrite(const Expr& original, const Expr& rebuilt) override {
    rebuilt->checked_type = original->checked_type;
    return rebuilt;
  }

 private:
  std::unordered_set<const Object*> free_;
};

}  // namespace

Expr Substitute(const Expr& expr, const std::unordered_map<const Object*, Expr>& replacements) {
  return Substituter(replacements).Mutate(expr);
}

Expr CopyWithNewVars(const Expr& expr) { return Copier(expr).Mutate(expr); }

}  // namespace tvm_fixes::relay
