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
 * \file src/relay/ir/type_text.cc
 * \brief Types as text, as the parser reads them.
 */
#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"
#include "../op/infer_context.h"

namespace tvm_fixes::relay {
namespace {

constexpr int kMaxDepth = 200;

std::string Text(const Type& type, int depth);

template <typename List>
std::string Join(const List& types, int depth) {
  std::string text;
  for (size_t i = 0; i < types.size(); ++i) {
    text += (i == 0 ? "" : ", ") + Text(types[i], depth);
  }
  return text;
}

std::string Text(const Type& type, int depth) {
  if (depth > kMaxDepth) return "...";
  if (IsMissing(type)) return "_";
  if (const auto* tensor = type.as<TensorTypeObj>()) {
    if (tensor->shape.empty()) return DTypeText(tensor->dtype);
    return "Tensor[" + ShapeText(tensor->shape) + ", " + DTypeText(tensor->dtype) + "]";
  }
  if (const auto* tuple = type.as<TupleTypeObj>()) {
    return "(" + Join(tuple->fields, depth + 1) + (tuple->fields.size() == 1 ? ",)" : ")");
  }
  if (const auto* function = type.as<FuncTypeObj>()) {
    std::string text = "fn ";
    for (size_t i = 0; i < function->type_params.size(); ++i) {
      const ObjectRef& param = function->type_params[i];
      const auto* var = param.as<TypeVarObj>();
      text += i == 0 ? "[" : ", ";
      text += var != nullptr ? std::string(var->name) : DimText(param);
    }
    if (!function->type_params.empty()) text += "]";
    return text + "(" + Join(function->arg_types, depth + 1) + ") -> " +
           Text(function->ret_type, depth + 1);
  }
  if (const auto* var = type.as<TypeVarObj>()) return var->name;
  if (const auto* global = type.as<GlobalTypeVarObj>()) return global->name;
  if (const auto* call = type.as<TypeCallObj>()) {
    return Text(call->func, depth + 1) + "[" + Join(call->args, depth + 1) + "]";
  }
  if (const auto* ref = type.as<RefTypeObj>()) {
    return "ref(" + Text(ref->value, depth + 1) + ")";
  }
  return type->GetTypeKey();
}

}  // namespace

std::string TypeText(const Type& type) { return Text(type, 0); }

namespace {

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.relay.TypeText",
                                        [](const Type& type) { return String(TypeText(type)); });
}

}  // namespace

}  // namespace tvm_fixes::relay
