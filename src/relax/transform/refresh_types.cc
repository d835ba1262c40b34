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
 * \file src/relax/transform/refresh_types.cc
 * \brief Updates the types of GlobalVars to those of their functions.
 *
 * TVM: seen in 0.27. Trigger: `mod[var] = function`, an import from PyTorch, LiftTransformParams,
 * BundleModelParams, lowering to TIR. Symptom: call_tir is checked against the previous function.
 * Mechanism: the type of a GlobalVar is set once, and a replaced function keeps its GlobalVar.
 *
 * A GlobalVar may be shared with other modules, and TVM does not allow changing its type. So a new
 * GlobalVar replaces it, as key and in all uses.
 *
 * Removal: delete this file when a module keeps the types of its GlobalVars up to date.
 */
#include "refresh_types.h"

#include <tvm/ffi/container/tuple.h>
#include <tvm/ffi/extra/structural_visit.h>
#include <tvm/ffi/reflection/registry.h>

#include <unordered_map>
#include <utility>
#include <vector>

#include "../../ffi/registration.h"
#include "../ir/build.h"

namespace tvm_fixes {
namespace {

using Replacements = std::unordered_map<const Object*, ObjectRef>;

/*! \brief Whether a type is null or the placeholder for a missing type. */
bool IsMissing(const ObjectRef& type) {
  return !type.defined() || type->type_index() == nodes.type.type_info()->type_index;
}

/*! \brief The type of a module's function, null if a part of it is missing. */
ObjectRef SignatureOf(const ObjectRef& function) {
  static const GlobalFunction func_type("relax.FuncType");
  auto relax_function = As<FunctionView>(function);
  // The constructor of PrimFunc computes its type from the parameters.
  if (!relax_function) return IsMissing(TypeOf(function)) ? ObjectRef(nullptr) : TypeOf(function);
  if (!relax_function->params().defined() || IsMissing(relax_function->ret_ty())) {
    return ObjectRef(nullptr);
  }
  std::vector<ObjectRef> params;
  for (const ObjectRef& param : relax_function->params()) {
    if (IsMissing(TypeOf(param))) return ObjectRef(nullptr);
    params.push_back(TypeOf(param));
  }
  return func_type(Array<ObjectRef>(params.begin(), params.end()), relax_function->ret_ty(),
                   relax_function->is_pure(), nullptr)
      .cast<ObjectRef>();
}

/*! \brief A new GlobalVar of the right type for each stale one. */
Replacements ReplaceStale(const Map<ObjectRef, ObjectRef>& functions) {
  static const GlobalFunction make_global_var("ir.GlobalVar");
  Replacements replacements;
  for (const auto& [global_var, function] : functions) {
    const ObjectRef signature = SignatureOf(function);
    if (!signature.defined() || StructuralEqual(TypeOf(global_var), signature)) continue;
    const ObjectRef fresh =
        make_global_var(nodes.global_var.name_hint(global_var.get())).cast<ObjectRef>();
    SetType(fresh, signature);
    replacements.emplace(global_var.get(), fresh);
  }
  return replacements;
}

/*!
 * \brief Replace GlobalVars in a Relax or TIR function. Returns the function itself if unchanged.
 */
ObjectRef ReplaceUses(const ObjectRef& function, const Replacements& replacements) {
  static const GlobalFunction structural_map("ffi.StructuralMap");
  using Entry = tvm::ffi::Tuple<int32_t, Function>;
  const auto replace = Function::FromTyped([&replacements](ObjectRef global_var) {
    auto found = replacements.find(global_var.get());
    return found == replacements.end() ? global_var : found->second;
  });
  const Array<Entry> callbacks = {Entry(nodes.global_var.type_info()->type_index, replace)};
  return structural_map(function, callbacks, Array<Entry>(),
                        static_cast<int32_t>(tvm::ffi::WalkOrder::kPostOrder))
      .cast<ObjectRef>();
}

}  // namespace

ObjectRef RefreshTypes(const ObjectRef& mod) {
  const Map<ObjectRef, ObjectRef>& functions = nodes.module.functions(mod.get());
  const Replacements replacements = ReplaceStale(functions);
  if (replacements.empty()) return mod;
  Map<ObjectRef, ObjectRef> fresh;
  Map<String, ObjectRef> by_name;
  for (const auto& [global_var, function] : functions) {
    auto found = replacements.find(global_var.get());
    const ObjectRef key = found == replacements.end() ? global_var : found->second;
    fresh.Set(key, ReplaceUses(function, replacements));
    by_name.Set(nodes.global_var.name_hint(key.get()), key);
  }
  return WithFields(mod, {{"functions", fresh}, {"global_var_map_", by_name}});
}

namespace {

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.transform.RefreshTypes", []() {
    return MakeModulePass(RefreshTypes, "RefreshTypes");
  });
}

}  // namespace
}  // namespace tvm_fixes
