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
 * \file src/relax/ir/dead_code.cc
 * \brief Removes bindings that a rewrite of a function made dead.
 */
#include "dead_code.h"

#include <tvm/ffi/error.h>

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../../ffi/registration.h"
#include "mutator.h"
#include "visitor.h"

namespace tvm_fixes {

namespace {

/*! \brief Counts the reads of each variable of a function, and records its value. */
class UseCounter : public Visitor {
 public:
  explicit UseCounter(const ObjectRef& function) { VisitExpr(function); }

  std::unordered_map<const Object*, int> num_uses;
  /*! \brief Values by variable, excluding runtime checks. */
  std::unordered_map<const Object*, ObjectRef> bound;
  /*!
   * \brief The variables in binding order, so that the result does not depend on pointer values.
   */
  std::vector<const Object*> vars;

 protected:
  void VisitVarUse(const VarView& var) override { ++num_uses[var.get()]; }

  void VisitVarDef(const VarView& var) override { CountInType(TypeOf(var.ref())); }

  void VisitBinding(const BindingView& binding) override {
    if (binding.is_match_cast()) CountInType(binding.cast_ty());
    if (!binding.is_match_cast() && VarView::Is(binding.var().get())) {
      bound.emplace(binding.var().get(), binding.value());
      vars.push_back(binding.var().get());
    }
    Visitor::VisitBinding(binding);
  }

  void VisitCall(const CallView& call) override {
    if (call.ty_args().defined()) {
      for (const ObjectRef& type : call.ty_args()) CountInType(type);
    }
    Visitor::VisitCall(call);
  }

 private:
  /*! \brief A type may refer to a shape variable. */
  void CountInType(const ObjectRef& type) {
    if (auto tensor = As<TensorTypeView>(type)) {
      if (auto var = As<VarView>(tensor->shape())) ++num_uses[var->get()];
    } else if (nodes.tuple_type.IsInstance(type.get())) {
      const Array<ObjectRef>& fields = nodes.tuple_type.fields(type.get());
      if (!fields.defined()) return;
      for (const ObjectRef& field : fields) CountInType(field);
    }
  }
};

/*!
 * \brief Whether a binding may be removed. A scalar is kept, since any expression may refer to it.
 */
bool IsRemovable(const ObjectRef& var, const ObjectRef& value) {
  static const GlobalFunction contains_impure_call("relax.analysis.contains_impure_call");
  const ObjectRef type = TypeOf(var);
  if (!IsTensorOrTuple(type) && !nodes.shape_type.IsInstance(type.get())) return false;
  // TVM's analysis throws on malformed expressions.
  try {
    return !contains_impure_call(value, nullptr).cast<bool>();
  } catch (const tvm::ffi::Error&) {
    return false;
  }
}

class Remover : public Mutator {
 public:
  Remover(const ObjectRef& mod, std::unordered_set<const Object*> dead)
      : Mutator(mod), dead_(std::move(dead)) {}

 protected:
  void RewriteBinding(const BindingView& binding) override {
    if (dead_.count(binding.var().get()) == 0) Mutator::RewriteBinding(binding);
  }

 private:
  std::unordered_set<const Object*> dead_;
};

}  // namespace

ObjectRef RemoveNewlyDead(const ObjectRef& rewritten, const ObjectRef& original,
                          const ObjectRef& mod) {
  if (rewritten.same_as(original)) return rewritten;
  const UseCounter before(original);
  UseCounter now(rewritten);
  std::unordered_set<const Object*> dead;
  // Definitions precede uses, so one backward walk finds everything that becomes dead.
  for (auto it = now.vars.rbegin(); it != now.vars.rend(); ++it) {
    const Object* var = *it;
    if (now.num_uses[var] != 0) continue;
    const bool was_dead = before.bound.count(var) != 0 && before.num_uses.count(var) == 0;
    const ObjectRef value = now.bound.at(var);
    if (was_dead || !IsRemovable(tvm::ffi::GetRef<ObjectRef>(var), value)) continue;
    dead.insert(var);
    for (const auto& [read, count] : UseCounter(value).num_uses) now.num_uses[read] -= count;
  }
  return dead.empty() ? rewritten : Remover(mod, std::move(dead)).Rewrite(rewritten);
}

}  // namespace tvm_fixes
