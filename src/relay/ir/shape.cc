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
 * \file src/relay/ir/shape.cc
 * \brief Dimensions, dtypes and broadcasting.
 */
#include "shape.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>

#include "../../ffi/registration.h"

namespace tvm_fixes::relay {

Dim AnyDim() { return ObjectRef(make_object<AnyDimObj>()); }

bool IsAnyDim(const Dim& dim) { return dim.as<AnyDimObj>() != nullptr; }

std::optional<int64_t> StaticDim(const Dim& dim) {
  if (dim.type_index() == tvm::ffi::TypeIndex::kTVMFFIInt) return dim.cast<int64_t>();
  return std::nullopt;
}

std::optional<std::vector<int64_t>> StaticShape(const Shape& shape) {
  std::vector<int64_t> dims;
  for (const Dim& dim : shape) {
    std::optional<int64_t> extent = StaticDim(dim);
    if (!extent) return std::nullopt;
    dims.push_back(*extent);
  }
  return dims;
}

Shape MakeShape(const std::vector<int64_t>& dims) {
  Shape shape;
  for (int64_t dim : dims) shape.push_back(dim);
  return shape;
}

bool SameDim(const Dim& a, const Dim& b) {
  if (std::optional<int64_t> extent = StaticDim(a)) return StaticDim(b) == extent;
  const auto* var = a.as<ShapeVarObj>();
  return var != nullptr && b.as<ShapeVarObj>() == var;
}

bool MayBeEqual(const Dim& a, const Dim& b) {
  std::optional<int64_t> left = StaticDim(a);
  std::optional<int64_t> right = StaticDim(b);
  return !left || !right || *left == *right;
}

Dim MoreStatic(const Dim& a, const Dim& b) {
  if (StaticDim(a)) return a;
  if (StaticDim(b)) return b;
  return IsAnyDim(a) ? b : a;
}

std::optional<Dim> BroadcastDim(const Dim& a, const Dim& b) {
  std::optional<int64_t> left = StaticDim(a);
  std::optional<int64_t> right = StaticDim(b);
  if (left == 1) return b;
  if (right == 1) return a;
  if (left && right) return *left == *right ? std::optional<Dim>(a) : std::nullopt;
  if (left) return a;
  if (right) return b;
  // Either of the two may turn out to be 1.
  return SameDim(a, b) ? a : AnyDim();
}

std::optional<Shape> BroadcastShape(const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  size_t extra = longer.size() - shorter.size();
  Shape result;
  for (size_t i = 0; i < longer.size(); ++i) {
    if (i < extra) {
      result.push_back(longer[i]);
      continue;
    }
    std::optional<Dim> dim = BroadcastDim(longer[i], shorter[i - extra]);
    if (!dim) return std::nullopt;
    result.push_back(*dim);
  }
  return result;
}

Dim AddDim(const Dim& a, const Dim& b) {
  std::optional<int64_t> left = StaticDim(a);
  std::optional<int64_t> right = StaticDim(b);
  if (left == 0) return b;
  if (right == 0) return a;
  int64_t sum = 0;
  if (!left || !right) return AnyDim();
  if (__builtin_add_overflow(*left, *right, &sum)) ThrowRelayError("a dimension exceeds int64");
  return sum;
}

Dim MultiplyDim(const Dim& a, const Dim& b) {
  std::optional<int64_t> left = StaticDim(a);
  std::optional<int64_t> right = StaticDim(b);
  if (left == 1 || right == 0) return b;
  if (right == 1 || left == 0) return a;
  int64_t product = 0;
  if (!left || !right) return AnyDim();
  if (__builtin_mul_overflow(*left, *right, &product)) {
    ThrowRelayError("the number of elements exceeds int64");
  }
  return product;
}

Dim NumElements(const Shape& shape) {
  Dim product = int64_t{1};
  for (const Dim& dim : shape) product = MultiplyDim(product, dim);
  return product;
}

std::string DimText(const Dim& dim) {
  if (std::optional<int64_t> extent = StaticDim(dim)) return std::to_string(*extent);
  if (const auto* var = dim.as<ShapeVarObj>()) return var->name;
  return "?";
}

std::string ShapeText(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + DimText(shape[i]);
  if (shape.size() == 1) text += ",";
  return text + ")";
}

std::string DTypeText(DLDataType dtype) { return tvm::ffi::DLDataTypeToString(dtype); }

std::optional<DLDataType> ParseDType(const std::string& text) {
  if (text == "bool" || text == "uint1") return kBool;
  bool known = false;
  for (const char* prefix : {"int", "uint", "float", "bfloat", "bool"}) {
    known = known || text.rfind(prefix, 0) == 0;
  }
  DLDataType dtype;
  TVMFFIByteArray bytes{text.data(), text.size()};
  if (!known || TVMFFIDataTypeFromString(&bytes, &dtype) != 0) return std::nullopt;
  if (dtype.code == kDLUInt && dtype.bits == 1) return DLDataType{kDLBool, 8, dtype.lanes};
  return dtype;
}

bool SameDType(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

bool IsFloat(DLDataType dtype) {
  return dtype.code != kDLInt && dtype.code != kDLUInt && dtype.code != kDLBool;
}

bool IsInteger(DLDataType dtype) { return dtype.code == kDLInt || dtype.code == kDLUInt; }

bool IsBool(DLDataType dtype) { return dtype.code == kDLBool; }

}  // namespace tvm_fixes::relay
