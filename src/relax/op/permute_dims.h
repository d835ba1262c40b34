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
 * \file src/relax/op/permute_dims.h
 * \brief The axis permutation of a relax.permute_dims.
 */
#ifndef TVM_FIXES_RELAX_OP_PERMUTE_DIMS_H_
#define TVM_FIXES_RELAX_OP_PERMUTE_DIMS_H_

#include <optional>
#include <vector>

#include "../ir/views.h"

namespace tvm_fixes {

/*!
 * \brief For each axis of the result, the corresponding axis of the argument.
 * \return std::nullopt if the call is not a permute_dims of a tensor of known rank.
 */
std::optional<std::vector<int64_t>> PermutedAxes(const CallView& call);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_PERMUTE_DIMS_H_
