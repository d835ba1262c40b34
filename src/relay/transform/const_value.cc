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
 * \file src/relay/transform/const_value.cc
 * \brief Small tensors, on whose elements passes compute.
 */
#include "const_value.h"

#include <cstring>

namespace tvm_fixes::relay {

std::optional<int64_t> SmallSize(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (int64_t dim : shape) {
    if (dim < 0 || dim > kMaxFoldedElements) return std::nullopt;
    size *= dim;
    if (size > kMaxFoldedElements) return std::nullopt;
  }
  return size;
}

bool IsFoldable(DLDataType dtype) {
  if (dtype.lanes != 1) return false;
  if (IsBool(dtype)) return dtype.bits == 8;
  int bits = dtype.bits;
  if (IsInteger(dtype)) return bits == 8 || bits == 16 || bits == 32 || bits == 64;
  return dtype.code == kDLFloat && (bits == 16 || bits == 32 || bits == 64);
}

std::optional<ConstValue> LoadValue(const Tensor& tensor) {
  ConstValue value;
  value.dtype = tensor.dtype();
  value.shape.assign(tensor.shape().begin(), tensor.shape().end());
  std::optional<int64_t> size = SmallSize(value.shape);
  if (!size || !IsFoldable(value.dtype)) return std::nullopt;
  value.elements.resize(*size);
  if (!value.is_float()) {
    std::vector<int64_t> ints = IntsOf(tensor);
    for (int64_t i = 0; i < *size; ++i) value.elements[i].i = ints[i];
    return value;
  }
  const auto* bytes = static_cast<const char*>(tensor.data_ptr());
  for (int64_t i = 0; i < *size; ++i) {
    if (value.dtype.bits == 16) {
      uint16_t half;
      std::memcpy(&half, bytes + 2 * i, sizeof(half));
      value.elements[i].f = FloatFromHalf(half);
    } else if (value.dtype.bits == 32) {
      float single;
      std::memcpy(&single, bytes + 4 * i, sizeof(single));
      value.elements[i].f = single;
    } else {
      std::memcpy(&value.elements[i].f, bytes + 8 * i, sizeof(double));
    }
  }
  return value;
}

Tensor StoreValue(const ConstValue& value) {
  Tensor tensor = EmptyTensor(value.shape, value.dtype);
  auto* bytes = static_cast<char*>(tensor.data_ptr());
  size_t width = value.dtype.bits / 8;
  for (const Scalar& element : value.elements) {
    if (!value.is_float()) {
      int64_t number = IsBool(value.dtype) ? element.i != 0 : element.i;
      std::memcpy(bytes, &number, width);
    } else if (width == 2) {
      uint16_t half = HalfFromFloat(static_cast<float>(element.f));
      std::memcpy(bytes, &half, width);
    } else if (width == 4) {
      auto single = static_cast<float>(element.f);
      std::memcpy(bytes, &single, width);
    } else {
      std::memcpy(bytes, &element.f, width);
    }
    bytes += width;
  }
  return tensor;
}

int64_t WrapInt(int64_t value, DLDataType dtype) {
  if (IsBool(dtype)) return value != 0;
  if (dtype.bits >= 64) return value;
  uint64_t mask = (uint64_t{1} << dtype.bits) - 1;
  uint64_t low = static_cast<uint64_t>(value) & mask;
  bool is_negative = dtype.code == kDLInt && ((low >> (dtype.bits - 1)) & 1) != 0;
  return static_cast<int64_t>(is_negative ? low | ~mask : low);
}

double RoundFloat(double value, DLDataType dtype) {
  if (dtype.bits == 64) return value;
  auto single = static_cast<float>(value);
  return dtype.bits == 16 ? FloatFromHalf(HalfFromFloat(single)) : single;
}

}  // namespace tvm_fixes::relay
