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
 * \file src/relax/analysis/shape_values_operands.h
 * \brief Helpers shared by the operator evaluators.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_SHAPE_VALUES_OPERANDS_H_
#define TVM_FIXES_RELAX_ANALYSIS_SHAPE_VALUES_OPERANDS_H_

#include <optional>
#include <vector>

#include "../op/axis_attrs.h"
#include "shape_values.h"

namespace tvm_fixes {

/*! \brief The value of argument `index`, or std::nullopt if there is none. */
inline std::optional<ShapeValue> Operand(const ShapeValues& values, const CallView& call,
                                         size_t index) {
  if (index >= call.args().size()) return std::nullopt;
  return values.ValueOf(call.args()[index]);
}

/*! \brief The element of a single-element tensor; null for any other. */
inline ObjectRef OnlyElement(const ShapeValue& value) {
  return value.elements.size() == 1 ? value.elements[0] : ObjectRef(nullptr);
}

/*! \brief A non-negative axis index, or std::nullopt if the axis does not exist. */
inline std::optional<size_t> AxisOf(int64_t axis, size_t ndim) {
  axis = NormalizeAxis(axis, ndim);
  if (axis < 0 || axis >= static_cast<int64_t>(ndim)) return std::nullopt;
  return static_cast<size_t>(axis);
}

/*! \brief The axis of a call. If the attribute is missing, the operand is flattened. */
inline std::optional<size_t> AxisOrFlatten(const OptionalAxisAttrsNode& layout,
                                           const CallView& call, ShapeValue* value) {
  const Object* attrs = call.attrs().get();
  if (!layout.IsInstance(attrs)) return std::nullopt;
  if (layout.axis(attrs) == nullptr) {
    value->shape = {static_cast<int64_t>(value->elements.size())};
    return 0;
  }
  const auto axis = layout.axis(attrs).try_cast<int64_t>();
  return axis ? AxisOf(*axis, value->shape.size()) : std::nullopt;
}

/*! \brief The index of an element along each axis, from its row-major position. */
inline std::vector<int64_t> Unravel(int64_t place, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = place % shape[axis];
    place /= shape[axis];
  }
  return index;
}

inline int64_t Ravel(const std::vector<int64_t>& index, const std::vector<int64_t>& shape) {
  int64_t place = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) place = place * shape[axis] + index[axis];
  return place;
}

/*!
 * \brief Gather the elements of `value` into a tensor of `shape`.
 * \param source_of Maps an index of the result to an index of `value`.
 */
template <typename SourceOf>
ShapeValue Rearrange(const ShapeValue& value, std::vector<int64_t> shape, SourceOf source_of) {
  ShapeValue result{std::move(shape), {}};
  const int64_t num_elements = NumElements(result.shape);
  for (int64_t place = 0; place < num_elements; ++place) {
    const std::vector<int64_t> source = source_of(Unravel(place, result.shape));
    result.elements.push_back(value.elements[Ravel(source, value.shape)]);
  }
  return result;
}

/*! \brief Broadcast `value` to a compatible shape. */
inline ShapeValue BroadcastTo(const ShapeValue& value, const std::vector<int64_t>& shape) {
  if (value.shape == shape) return value;
  const size_t missing = shape.size() - value.shape.size();
  return Rearrange(value, shape, [&](const std::vector<int64_t>& index) {
    std::vector<int64_t> source(index.begin() + static_cast<int64_t>(missing), index.end());
    for (size_t axis = 0; axis < source.size(); ++axis) {
      if (value.shape[axis] == 1) source[axis] = 0;
    }
    return source;
  });
}

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_SHAPE_VALUES_OPERANDS_H_
