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
 * \file src/relax/analysis/axis_permutation.h
 * \brief Converts permute_dims and layout_transform to axis permutations.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_AXIS_PERMUTATION_H_
#define TVM_FIXES_RELAX_ANALYSIS_AXIS_PERMUTATION_H_

#include <optional>
#include <vector>

#include "../ir/views.h"

namespace tvm_fixes {

/*! \brief A reshape of a tensor, followed by a permutation of its axes. */
struct AxisPermutation {
  Array<ObjectRef> shape;
  /*! \brief For each axis of the result, the corresponding axis of `shape`. */
  std::vector<int64_t> axes;
};

/*!
 * \brief A permute_dims or a layout_transform as a permutation of axes.
 * \return std::nullopt for any other call, for a shape that is not known dim by dim, and for a
 *         layout_transform that pads or does more than split, merge and permute axes.
 */
std::optional<AxisPermutation> AsAxisPermutation(const CallView& call);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_AXIS_PERMUTATION_H_
