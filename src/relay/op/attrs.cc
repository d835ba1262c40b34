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
 * \file src/relay/op/attrs.cc
 * \brief Checks the attributes of a call against the declaration, and adds the defaults.
 */
#include "registry.h"

namespace tvm_fixes::relay {
namespace {

using tvm::ffi::TypeIndex;

std::optional<Any> ToInt(const Any& value) {
  switch (value.type_index()) {
    case TypeIndex::kTVMFFIInt:
      return value;
    case TypeIndex::kTVMFFIBool:
      return static_cast<int64_t>(value.cast<bool>());
  }
  return std::nullopt;
}

std::optional<Any> ToDim(const Any& value) {
  if (value.as<AnyDimObj>() || value.as<ShapeVarObj>()) return value;
  return ToInt(value);
}

std::optional<Any> ToFloat(const Any& value) {
  if (value.type_index() == TypeIndex::kTVMFFIFloat) return value;
  std::optional<Any> integer = ToInt(value);
  if (!integer) return std::nullopt;
  return static_cast<double>(integer->cast<int64_t>());
}

std::optional<Any> ToBool(const Any& value) {
  if (value.type_index() == TypeIndex::kTVMFFIBool) return value;
  if (value.type_index() != TypeIndex::kTVMFFIInt) return std::nullopt;
  return value.cast<int64_t>() != 0;
}

std::optional<Any> ToString(const Any& value) {
  return value.as<String>() ? std::optional<Any>(value) : std::nullopt;
}

std::optional<Any> ToDTypeName(const Any& value) {
  if (value.type_index() == TypeIndex::kTVMFFIDataType) {
    return String(DTypeText(value.cast<DLDataType>()));
  }
  auto text = value.as<String>();
  if (!text) return std::nullopt;
  if (text->empty()) return Any(nullptr);
  std::optional<DLDataType> dtype = ParseDType(*text);
  if (!dtype) return std::nullopt;
  return String(DTypeText(*dtype));
}

template <typename Convert>
std::optional<Any> ToArray(const Any& value, Convert convert) {
  auto elements = value.as<Array<Any>>();
  if (!elements) {
    std::optional<Any> single = convert(value);
    if (!single) return std::nullopt;
    return Array<Any>{*single};
  }
  Array<Any> result;
  for (const Any& element : *elements) {
    std::optional<Any> converted = convert(element);
    if (!converted) return std::nullopt;
    result.push_back(*converted);
  }
  return result;
}

std::optional<Any> ToNested(const Any& value) {
  if (!value.as<Array<Any>>()) return ToInt(value);
  return ToArray(value, ToNested);
}

/*! \brief The value converted to a kind, or std::nullopt if it does not have that kind. */
std::optional<Any> Convert(const Any& value, AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt:
      return ToInt(value);
    case AttrKind::kFloat:
      return ToFloat(value);
    case AttrKind::kBool:
      return ToBool(value);
    case AttrKind::kString:
      return ToString(value);
    case AttrKind::kDType:
      return ToDTypeName(value);
    case AttrKind::kIntArray:
      return ToArray(value, ToDim);
    case AttrKind::kFloatArray:
      return ToArray(value, ToFloat);
    case AttrKind::kNestedIntArray:
      return ToNested(value);
    case AttrKind::kStringArray:
      return ToArray(value, ToString);
    case AttrKind::kAny:
      break;
  }
  return value;
}

}  // namespace

std::string AttrValueText(const Any& value) {
  switch (value.type_index()) {
    case TypeIndex::kTVMFFINone:
      return "None";
    case TypeIndex::kTVMFFIBool:
      return value.cast<bool>() ? "True" : "False";
    case TypeIndex::kTVMFFIInt:
      return std::to_string(value.cast<int64_t>());
    case TypeIndex::kTVMFFIFloat:
      return std::to_string(value.cast<double>());
  }
  if (auto text = value.as<String>()) return "\"" + std::string(*text) + "\"";
  if (auto elements = value.as<Array<Any>>()) {
    std::string text = "[";
    for (size_t i = 0; i < elements->size() && text.size() < 80; ++i) {
      text += (i == 0 ? "" : ", ") + AttrValueText((*elements)[i]);
    }
    return text + (text.size() < 80 ? "]" : ", ...]");
  }
  if (value.as<AnyDimObj>()) return "?";
  return value.GetTypeKey();
}

Attrs CompleteAttrs(const CallObj* call) {
  const auto* op = call->op.as<OpObj>();
  if (op == nullptr || op->decl == nullptr) return call->attrs;
  const OpDecl& decl = *op->decl;
  Attrs result;
  for (const auto& [name, value] : call->attrs) {
    const AttrField* field = decl.FindAttr(name);
    if (field == nullptr) {
      ThrowRelayError(CallText(call) + ": unknown attribute '" + std::string(name) + "'");
    }
    if (value == nullptr) continue;
    std::optional<Any> converted = Convert(value, field->kind);
    if (!converted) {
      ThrowRelayError(CallText(call) + ": attribute '" + field->name + "': expected " +
                      AttrKindText(field->kind) + ", found " + AttrValueText(value));
    }
    result.Set(name, *converted);
  }
  for (const AttrField& field : decl.attr_fields) {
    if (result.count(field.name) != 0) continue;
    if (field.required) {
      ThrowRelayError(CallText(call) + ": attribute '" + field.name + "' is missing: expected " +
                      AttrKindText(field.kind));
    }
    result.Set(field.name, field.default_value);
  }
  return result;
}

}  // namespace tvm_fixes::relay
