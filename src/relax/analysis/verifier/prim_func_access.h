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
 * \file src/relax/analysis/verifier/prim_func_access.h
 * \brief Bounds of a single buffer access.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_VERIFIER_PRIM_FUNC_ACCESS_H_
#define TVM_FIXES_RELAX_ANALYSIS_VERIFIER_PRIM_FUNC_ACCESS_H_

#include <cstddef>
#include <vector>

#include "dims.h"
#include "tir_bounds.h"

namespace tvm_fixes {
namespace verifier {

/*! \brief Stands for all axes together, with elements counted in row-major order. */
constexpr size_t kAllDims = SIZE_MAX;

/*! \brief The range of one index of a buffer access. */
struct IndexReach {
  /*! \brief The position among the indices of the access. */
  size_t index;
  /*! \brief The axis of the buffer, or kAllDims. */
  size_t dim;
  /*! \brief The index as written, kUnknownDim for a vector. */
  DimId value;
  /*! \brief The smallest and largest value, both attained. */
  DimRange range;
  /*! \brief The extent of the axis, or of all axes. Valid values begin at 0. */
  DimId extent;
};

/*! \brief The ranges of an access's indices, except unknown ones. */
std::vector<IndexReach> ReachesOfAccess(DimTable* dims, LoopNest* nest, const Object* buffer,
                                        const Array<ObjectRef>& indices);

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_PRIM_FUNC_ACCESS_H_
