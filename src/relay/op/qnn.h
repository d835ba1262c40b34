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
 * \file src/relay/op/qnn.h
 * \brief Checks of scales and zero points, shared by the operators of the QNN dialect.
 */
#ifndef TVM_FIXES_RELAY_OP_QNN_H_
#define TVM_FIXES_RELAY_OP_QNN_H_

#include <vector>

#include "infer_context.h"

namespace tvm_fixes::relay {

/*! \brief Check that a tensor has one of these dtypes. */
void CheckInputDType(InferContext& context, int index, const std::vector<const char*>& names);

/*! \brief Check a scale or zero point: a scalar, or a vector of length 1 or `extent`. */
void CheckParameter(InferContext& context, int index, DLDataType dtype, const Dim& extent);

void CheckScalarParameter(InferContext& context, int index, DLDataType dtype);

/*! \brief Check that inputs `first` to `last` are scalars, alternately a scale and a zero point. */
void CheckScalarParameters(InferContext& context, int first, int last);

/*! \brief An attribute that must be one of these dtypes. */
DLDataType CheckedDType(InferContext& context, const char* attr,
                        const std::vector<const char*>& names);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_OP_QNN_H_
