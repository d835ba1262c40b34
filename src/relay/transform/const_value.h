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
 * \file src/relay/transform/const_value.h
 * \brief Small tensors, on whose elements passes compute.
 */
#ifndef TVM_FIXES_RELAY_TRANSFORM_CONST_VALUE_H_
#define TVM_FIXES_RELAY_TRANSFORM_CONST_VALUE_H_

#include <optional>
#include <vector>

#include "../ir/shape.h"
#include "../ir/tensor.h"

namespace tvm_fixes::relay {

/*! \brief The largest tensor that is computed at compile time. */
inline constexpr int64_t kMaxFoldedElements = 4096;

/*! \brief An element; the dtype determines the field that counts. */
struct Scalar {
  int64_t i = 0;
  double f = 0;
};

/*! \brief A tensor of integers, bools, or float16, float32 and float64. */
struct ConstValue {
  std::vector<int64_t> shape;
  DLDataType dtype;
  std::vector<Scalar> elements;

  bool is_float() const { return IsFloat(dtype); }
  int64_t ndim() const { return static_cast<int64_t>(shape.size()); }
  int64_t size() const { return static_cast<int64_t>(elements.size()); }
};

/*! \brief The number of elements, or std::nullopt above kMaxFoldedElements. */
std::optional<int64_t> SmallSize(const std::vector<int64_t>& shape);

/*! \brief Whether passes can compute on elements of a dtype. */
bool IsFoldable(DLDataType dtype);

/*! \brief The elements of a tensor; std::nullopt if it is large or has another dtype. */
std::optional<ConstValue> LoadValue(const Tensor& tensor);

Tensor StoreValue(const ConstValue& value);

/*! \brief Reduce an integer to the bits of a dtype, or round a float to it. */
int64_t WrapInt(int64_t value, DLDataType dtype);
double RoundFloat(double value, DLDataType dtype);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_TRANSFORM_CONST_VALUE_H_
