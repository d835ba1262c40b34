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
 * \file src/relay/ir/tensor.h
 * \brief Tensors on the CPU.
 */
#ifndef TVM_FIXES_RELAY_IR_TENSOR_H_
#define TVM_FIXES_RELAY_IR_TENSOR_H_

#include <vector>

#include "object.h"

namespace tvm_fixes::relay {

/*! \brief An uninitialized tensor on the CPU. */
Tensor EmptyTensor(const std::vector<int64_t>& shape, DLDataType dtype);

/*! \brief An integer tensor of rank 0 or 1. */
Tensor IntScalar(int64_t value, DLDataType dtype);
Tensor IntVector(const std::vector<int64_t>& values, DLDataType dtype);

/*! \brief The elements of a tensor of integers or bools. */
std::vector<int64_t> IntsOf(const Tensor& tensor);

/*! \brief Conversions of float16, rounding to the nearest even value. */
uint16_t HalfFromFloat(float value);
float FloatFromHalf(uint16_t bits);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_IR_TENSOR_H_
