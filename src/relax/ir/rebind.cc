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
 * \file src/relax/ir/rebind.cc
 * \brief Rebinds variables of a function, for passes written in Python.
 */
#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"
#include "build.h"
#include "dead_code.h"
#include "mutator.h"

namespace tvm_fixes {
namespace {

class Rebinder : public Mutator {
 public:
  Rebinder(const ObjectRef& mod, const Map<ObjectRef, ObjectRef>& values)
      : Mutator(mod), values_(values) {}

  /*! \brief Rewrite the function, and drop the parameters that are bound to a value. */
  ObjectRef Run(const ObjectRef& function) {
    const Array<ObjectRef>& params = FunctionView(function.get()).params();
    Array<ObjectRef> kept;
    for (const ObjectRef& param : params) {
      auto value = values_.find(param);
      if (value == values_.end()) {
        kept.push_back(param);
      } else {
        Replace(param, (*value).second);
      }
    }
    const ObjectRef rewritten = Rewrite(function);
    if (kept.size() == params.size()) return rewritten;
    const FunctionView view(rewritten.get());
    return MakeFunction(view, kept, view.body(), view.ret_ty());
  }

 protected:
  void RewriteBinding(const BindingView& binding) override {
    auto value = values_.find(binding.var());
    if (binding.is_match_cast() || value == values_.end()) return Mutator::RewriteBinding(binding);
    auto sequence = As<SeqExprView>((*value).second);
    if (!sequence) return EmitVarBinding(binding, RewriteExpr((*value).second));
    for (const ObjectRef& block : sequence->blocks()) {
      for (const ObjectRef& inner : BlockView(block.get()).bindings()) {
        Mutator::RewriteBinding(BindingView(inner.get()));
      }
    }
    EmitVarBinding(binding, RewriteExpr(sequence->body()));
  }

 private:
  const Map<ObjectRef, ObjectRef>& values_;
};

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def(
      "tvm_fixes.relax.Rebind",
      [](const ObjectRef& function, const Map<ObjectRef, ObjectRef>& values, const ObjectRef& mod) {
        return RemoveNewlyDead(Rebinder(mod, values).Run(function), function, mod);
      });
}

}  // namespace
}  // namespace tvm_fixes
