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
 * \file src/relax/analysis/shape_resolution.h
 * \brief Resolves the shape of a single reshape, slice or squeeze from compile-time values.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_SHAPE_RESOLUTION_H_
#define TVM_FIXES_RELAX_ANALYSIS_SHAPE_RESOLUTION_H_

#include <optional>

#include "shape_values.h"

namespace tvm_fixes {

/*! \brief The extents in a tensor or shape type, or std::nullopt if it has none. */
std::optional<Array<ObjectRef>> DimsOfType(const ObjectRef& type);

/*! \brief The result of a `shape_of` or `tensor_to_shape`, if all extents are known. */
std::optional<Array<ObjectRef>> ResolveShape(const ShapeValues& values, const CallView& call);

/*! \brief A reshape to a known shape, with an extent of -1 replaced by its value. */
std::optional<ObjectRef> ResolveReshape(const ShapeValues& values, const CallView& call);

/*!
 * \brief A slice with known bounds, rewritten so that the bounds lie within the operand.
 *
 * A `dynamic_strided_slice` becomes a `strided_slice`. A `strided_slice` keeps bounds that are
 * already correct. `assume_inbound` is trusted unless proven false.
 */
std::optional<ObjectRef> ResolveSlice(const ShapeValues& values, const CallView& call);

/*!
 * \brief The shape that `data` must have for a valid squeeze: 1 along the squeezed axes, unchanged
 *        along the others.
 * \return std::nullopt where there is nothing to check.
 */
std::optional<Array<ObjectRef>> ShapeOfSqueezed(const Scalars& scalars, const ObjectRef& data,
                                                const ObjectRef& attrs);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_SHAPE_RESOLUTION_H_
