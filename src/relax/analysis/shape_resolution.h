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
 * \brief Shapes, reshapes, slices and squeezes of one call, from values that are known at compile
 *        time.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_SHAPE_RESOLUTION_H_
#define TVM_FIXES_RELAX_ANALYSIS_SHAPE_RESOLUTION_H_

#include <optional>

#include "shape_values.h"

namespace tvm_fixes {

/*! \brief The extents that the type of a tensor or of a shape names; nothing if it names none. */
std::optional<Array<ObjectRef>> DimsOfType(const ObjectRef& type);

/*! \brief The extents that a `shape_of` or a `tensor_to_shape` gives, where all are known. */
std::optional<Array<ObjectRef>> ResolveShape(const ShapeValues& values, const CallView& call);

/*! \brief A reshape to a known shape with one extent of -1, with that extent computed. */
std::optional<ObjectRef> ResolveReshape(const ShapeValues& values, const CallView& call);

/*!
 * \brief A slice whose bounds are known, with bounds that lie within its operand.
 *
 * A `dynamic_strided_slice` becomes a `strided_slice`. A `strided_slice` keeps its bounds where
 * they are right; `assume_inbound` is a promise, and is believed unless it is proved to be false.
 */
std::optional<ObjectRef> ResolveSlice(const ShapeValues& values, const CallView& call);

/*!
 * \brief The shape that `data` must have for a squeeze to be right: 1 along the axes that it
 *        names, and as it is along the others.
 * \return Nothing where there is nothing to check.
 */
std::optional<Array<ObjectRef>> ShapeOfSqueezed(const Scalars& scalars, const ObjectRef& data,
                                                const ObjectRef& attrs);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_SHAPE_RESOLUTION_H_
