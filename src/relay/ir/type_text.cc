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
#include "type_text.h"

#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"
#include "shape.h"

namespace tvm_fixes::relay {
namespace {

constexpr int kMaxTextDepth = 500;

/*! \brief Appends types to a text, up to a limit. */
class TypeWriter {
 public:
  explicit TypeWriter(size_t limit) : limit_(limit) {}

  std::string Write(const Type& type) {
    Add(type);
    return std::move(text_);
  }

 private:
  template <typename List>
  void AddAll(const List& types) {
    for (size_t i = 0; i < types.size() && text_.size() < limit_; ++i) {
      if (i > 0) text_ += ", ";
      Add(types[i]);
    }
  }

  void Add(const Type& type) {
    if (depth_ > kMaxTextDepth || text_.size() >= limit_) {
      text_ += "...";
      return;
    }
    ++depth_;
    AddNode(type);
    --depth_;
  }

  void AddNode(const Type& type) {
    if (IsMissing(type)) {
      text_ += "_";
    } else if (const auto* tensor = type.as<TensorTypeObj>()) {
      AddTensor(*tensor);
    } else if (const auto* tuple = type.as<TupleTypeObj>()) {
      text_ += "(";
      AddAll(tuple->fields);
      text_ += tuple->fields.size() == 1 ? ",)" : ")";
    } else if (const auto* function = type.as<FuncTypeObj>()) {
      text_ += "fn ";
      text_ += TypeParamsText(function->type_params);
      text_ += "(";
      AddAll(function->arg_types);
      text_ += ") -> ";
      Add(function->ret_type);
    } else if (const auto* var = type.as<TypeVarObj>()) {
      text_ += var->name;
    } else if (const auto* global = type.as<GlobalTypeVarObj>()) {
      text_ += global->name;
    } else if (const auto* call = type.as<TypeCallObj>()) {
      Add(call->func);
      text_ += "[";
      AddAll(call->args);
      text_ += "]";
    } else if (const auto* ref = type.as<RefTypeObj>()) {
      text_ += "ref(";
      Add(ref->value);
      text_ += ")";
    } else {
      text_ += type->GetTypeKey();
    }
  }

  void AddTensor(const TensorTypeObj& tensor) {
    if (tensor.shape.empty()) {
      text_ += DTypeText(tensor.dtype);
    } else {
      text_ += "Tensor[" + ShapeText(tensor.shape) + ", " + DTypeText(tensor.dtype) + "]";
    }
  }

  size_t limit_;
  int depth_ = 0;
  std::string text_;
};

}  // namespace

std::string TypeParamsText(const Array<ObjectRef>& params) {
  if (params.empty()) return "";
  std::string text;
  for (const ObjectRef& param : params) {
    text += text.empty() ? "[" : ", ";
    const auto* var = param.as<TypeVarObj>();
    text += var != nullptr ? std::string(var->name) : DimText(param) + ": Shape";
  }
  return text + "]";
}

std::string TypeText(const Type& type, size_t limit) { return TypeWriter(limit).Write(type); }

namespace {

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.relay.TypeText", [](const Type& type) {
    return String(TypeText(type, SIZE_MAX));
  });
}

}  // namespace

}  // namespace tvm_fixes::relay
