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
 * \file src/relay/transform/fold_constant.cc
 * \brief Computes values that are known at compile time.
 */
#include "fold_constant.h"

#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"
#include "dead_code.h"

namespace tvm_fixes::relay {
namespace {

bool IsAtom(const Expr& expr) { return expr.as<VarObj>() || expr.as<ConstantObj>(); }

bool IsAtomTuple(const Expr& expr) {
  const auto* tuple = expr.as<TupleObj>();
  if (tuple == nullptr) return false;
  for (const Expr& field : tuple->fields) {
    if (!IsAtom(field)) return false;
  }
  return true;
}

/*! \brief Whether values of both types may be the results of two branches. */
bool MayBeSame(const Type& first, const Type& second) {
  std::vector<std::pair<Type, Type>> stack = {{first, second}};
  while (!stack.empty()) {
    auto [a, b] = std::move(stack.back());
    stack.pop_back();
    if (IsMissing(a) || IsMissing(b)) continue;
    const auto* a_tuple = a.as<TupleTypeObj>();
    const auto* b_tuple = b.as<TupleTypeObj>();
    if (a_tuple != nullptr && b_tuple != nullptr) {
      if (a_tuple->fields.size() != b_tuple->fields.size()) return false;
      for (size_t i = 0; i < a_tuple->fields.size(); ++i) {
        stack.emplace_back(a_tuple->fields[i], b_tuple->fields[i]);
      }
    }
    const auto* a_tensor = a.as<TensorTypeObj>();
    const auto* b_tensor = b.as<TensorTypeObj>();
    if (a_tensor == nullptr || b_tensor == nullptr) continue;
    if (a_tensor->ndim() != b_tensor->ndim()) return false;
    for (int64_t i = 0; i < a_tensor->ndim(); ++i) {
      if (!MayBeEqual(a_tensor->shape[i], b_tensor->shape[i])) return false;
    }
  }
  return true;
}

}  // namespace

Folder::Folder(const Expr& root) {
  PostOrder(root, [this](const Expr& expr) {
    if (const auto* let = expr.as<LetObj>()) bound_to_[let->value.get()].push_back(let->var);
  });
}

Type Folder::TypeOf(const Expr& expr) const {
  auto found = types_.find(expr.get());
  return found == types_.end() ? KnownType(expr) : found->second;
}

Expr Folder::RewriteOperator(const Call&, const Array<Type>&) { return Expr(); }

Expr Folder::Rewrite(const Expr& original, const Expr& rebuilt) {
  Expr result = Simplify(original, rebuilt);
  if (!result.same_as(original)) UpdateType(original, result);
  auto bound = bound_to_.find(original.get());
  if (bound == bound_to_.end()) return result;
  for (const Var& var : bound->second) {
    if (result.as<ConstantObj>() || IsAtomTuple(result)) known_[var.get()] = result;
    Type type = TypeOf(result);
    if (!IsMissing(type)) types_[var.get()] = type;
  }
  return result;
}

Expr Folder::Simplify(const Expr& original, const Expr& rebuilt) {
  if (rebuilt.as<VarObj>()) {
    auto found = known_.find(rebuilt.get());
    return found != known_.end() && found->second.as<ConstantObj>() ? found->second : rebuilt;
  }
  if (auto call = rebuilt.as<Call>()) return SimplifyCall(*call);
  if (auto item = rebuilt.as<TupleGetItem>()) return SimplifyItem(*item);
  if (auto branch = rebuilt.as<If>()) return SimplifyIf(original, *branch);
  if (auto match = rebuilt.as<Match>()) return SimplifyMatch(original, *match);
  return rebuilt;
}

Expr Folder::SimplifyCall(const Call& call) {
  if (call->op.as<OpObj>() == nullptr) return call;
  Array<Type> types;
  for (const Expr& arg : call->args) types.push_back(TypeOf(arg));
  Expr folded = folder_.Fold(call, types);
  if (folded.defined()) return folded;
  Expr replaced = RewriteOperator(call, types);
  return replaced.defined() ? replaced : Expr(call);
}

Expr Folder::SimplifyItem(const TupleGetItem& item) {
  Expr tuple = item->tuple;
  auto found = known_.find(tuple.get());
  if (found != known_.end()) tuple = found->second;
  const auto* fields = tuple.as<TupleObj>();
  bool is_inside = fields != nullptr && item->index >= 0 &&
                   item->index < static_cast<int64_t>(fields->fields.size());
  return is_inside ? fields->fields[item->index] : Expr(item);
}

Expr Folder::SimplifyIf(const Expr& original, const If& branch) {
  std::optional<bool> known = ConstantFolder::KnownCondition(branch->cond);
  if (known) return *known ? branch->true_branch : branch->false_branch;
  if (branch.same_as(original)) return branch;
  if (MayBeSame(TypeOf(branch->true_branch), TypeOf(branch->false_branch))) return branch;
  // Both branches had a common type with `?`, but their static shapes differ.
  const auto* old = original.as<IfObj>();
  if (branch->cond.same_as(old->cond)) return original;
  return WithSpan(If(branch->cond, old->true_branch, old->false_branch), original->span);
}

Expr Folder::SimplifyMatch(const Expr& original, const Match& match) {
  if (match.same_as(original)) return match;
  for (const Clause& clause : match->clauses) {
    if (MayBeSame(TypeOf(match->clauses[0]->rhs), TypeOf(clause->rhs))) continue;
    const auto* old = original.as<MatchObj>();
    if (match->data.same_as(old->data)) return original;
    return WithSpan(Match(match->data, old->clauses, old->complete), original->span);
  }
  return match;
}

void Folder::UpdateType(const Expr& original, const Expr& result) {
  // Variables have their own type, and an operator is shared by all programs.
  if (result.as<VarObj>() || result.as<OpObj>() || !IsMissing(result->checked_type)) return;
  Type type;
  if (const auto* call = result.as<CallObj>()) {
    Array<Type> types;
    for (const Expr& arg : call->args) types.push_back(TypeOf(arg));
    type = RelationType(call, types);
  } else if (const auto* let = result.as<LetObj>()) {
    type = TypeOf(let->body);
  } else if (const auto* item = result.as<TupleGetItemObj>()) {
    const auto* tuple = TypeOf(item->tuple).as<TupleTypeObj>();
    bool is_inside = tuple != nullptr && item->index >= 0 &&
                     item->index < static_cast<int64_t>(tuple->fields.size());
    if (is_inside) type = tuple->fields[item->index];
  } else if (const auto* tuple = result.as<TupleObj>()) {
    Array<Type> fields;
    for (const Expr& field : tuple->fields) fields.push_back(TypeOf(field));
    bool is_known = true;
    for (const Type& field : fields) is_known = is_known && !IsMissing(field);
    if (is_known) type = TupleType(fields);
  }
  if (IsMissing(type)) type = original->checked_type;
  result->checked_type = type;
}

IRModule FoldConstant(const IRModule& module) {
  IRModule folded = MapFunctions(
      module, [](const Function& function) { return Folder(function).MutateFunction(function); });
  return folded.same_as(module) ? module : RemoveUnusedConstants(folded);
}

namespace {

class IfSimplifier : public ExprMutator {
 protected:
  Expr Rewrite(const Expr&, const Expr& rebuilt) override {
    const auto* branch = rebuilt.as<IfObj>();
    if (branch == nullptr) return rebuilt;
    std::optional<bool> known = ConstantFolder::KnownCondition(branch->cond);
    if (!known) return rebuilt;
    return *known ? branch->true_branch : branch->false_branch;
  }
};

/*!
 * \brief Replace an If whose condition is a constant by the branch that it takes.
 *
 * Before, `if (True) { x } else { y }` holds both branches. After, it is `x`.
 */
IRModule SimplifyIf(const IRModule& module) {
  return MapFunctions(
      module, [](const Function& function) { return IfSimplifier().MutateFunction(function); });
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("tvm_fixes.relay.transform.FoldConstant", FoldConstant)
      .def("tvm_fixes.relay.transform.SimplifyIf", SimplifyIf);
}

}  // namespace
}  // namespace tvm_fixes::relay
