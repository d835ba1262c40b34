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
 * \file src/relay/ir/tensor.cc
 * \brief Tensors on the CPU.
 */
#include "tensor.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace tvm_fixes::relay {
namespace {

struct Allocator {
  void AllocData(DLTensor* tensor) {
    size_t size = tvm::ffi::GetDataSize(*tensor);
    // TVM's kernels expect vectors to be aligned.
    tensor->data = std::aligned_alloc(64, (std::max<size_t>(size, 1) + 63) / 64 * 64);
    if (tensor->data == nullptr) throw std::bad_alloc();
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

/*! \brief Store the low bytes of an integer; they come first. */
void Store(int64_t value, size_t size, void* target) { std::memcpy(target, &value, size); }

template <typename T>
std::vector<int64_t> Widen(const Tensor& tensor) {
  const auto* values = static_cast<const T*>(tensor.data_ptr());
  return std::vector<int64_t>(values, values + tensor.numel());
}

}  // namespace

Tensor EmptyTensor(const std::vector<int64_t>& shape, DLDataType dtype) {
  return Tensor::FromNDAlloc(Allocator(), tvm::ffi::ShapeView(shape.data(), shape.size()), dtype,
                             DLDevice{kDLCPU, 0});
}

Tensor IntScalar(int64_t value, DLDataType dtype) {
  Tensor tensor = EmptyTensor({}, dtype);
  Store(value, dtype.bits / 8, tensor.data_ptr());
  return tensor;
}

Tensor IntVector(const std::vector<int64_t>& values, DLDataType dtype) {
  Tensor tensor = EmptyTensor({static_cast<int64_t>(values.size())}, dtype);
  size_t size = dtype.bits / 8;
  auto* target = static_cast<char*>(tensor.data_ptr());
  for (size_t i = 0; i < values.size(); ++i) Store(values[i], size, target + i * size);
  return tensor;
}

std::vector<int64_t> IntsOf(const Tensor& tensor) {
  bool is_signed = tensor.dtype().code == kDLInt;
  switch (tensor.dtype().bits) {
    case 8:
      return is_signed ? Widen<int8_t>(tensor) : Widen<uint8_t>(tensor);
    case 16:
      return is_signed ? Widen<int16_t>(tensor) : Widen<uint16_t>(tensor);
    case 32:
      return is_signed ? Widen<int32_t>(tensor) : Widen<uint32_t>(tensor);
    default:
      return is_signed ? Widen<int64_t>(tensor) : Widen<uint64_t>(tensor);
  }
}

uint16_t HalfFromFloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return sign | 0x7E00;
  if (magnitude >= 0x47800000) return sign | 0x7C00;
  if (magnitude < 0x38800000) {
    // Subnormal: a multiple of 2^-24; the addition rounds to the nearest even one.
    float scaled;
    std::memcpy(&scaled, &magnitude, sizeof(scaled));
    return static_cast<uint16_t>(sign |
                                 static_cast<uint16_t>(std::nearbyint(scaled * 16777216.0f)));
  }
  uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

float FloatFromHalf(uint16_t bits) {
  int exponent = (bits >> 10) & 0x1F;
  int fraction = bits & 0x3FF;
  float magnitude;
  if (exponent == 31) {
    magnitude = fraction == 0 ? std::numeric_limits<float>::infinity()
                              : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace tvm_fixes::relay
