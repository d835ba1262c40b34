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
 * \file src/relax/analysis/shape_values_reductions.cc
 * \brief Compile-time values of reductions, scans and nonzero.
 */
#include <utility>

#include "../op/statistical_attrs.h"
#include "shape_values.h"
#include "shape_values_operands.h"

namespace tvm_fixes {

namespace {

using Value = std::optional<ShapeValue>;
using Index = std::vector<int64_t>;

enum class Reduction : uint8_t { kSum, kProduct, kMinimum, kMaximum };

ObjectRef Reduce(const Scalars& scalars, Reduction reduction, const ObjectRef& lhs,
                 const ObjectRef& rhs) {
  switch (reduction) {
    case Reduction::kSum:
      return scalars.Add(lhs, rhs);
    case Reduction::kProduct:
      return scalars.Multiply(lhs, rhs);
    case Reduction::kMinimum:
      return scalars.Minimum(lhs, rhs);
    default:
      return scalars.Maximum(lhs, rhs);
  }
}

/*! \brief Whether elements are integers, and may be combined in any order without rounding. */
bool IsOfInts(const CallView& call) {
  return KindOfDType(DTypeOf(TypeOf(call.ref()))) == ScalarKind::kInt;
}

template <Reduction reduction>
Value EvaluateReduction(const ShapeValues& values, const CallView& call) {
  auto value = Operand(values, call, 0);
  const Object* attrs = call.attrs().get();
  if (!value || !statistical_attrs.IsInstance(attrs) || !IsOfInts(call)) return std::nullopt;
  std::vector<bool> is_reduced(value->shape.size(), true);
  if (const Array<int64_t>& axes = statistical_attrs.axis(attrs); axes.defined()) {
    is_reduced.assign(value->shape.size(), false);
    for (int64_t given : axes) {
      auto axis = AxisOf(given, value->shape.size());
      if (!axis) return std::nullopt;
      is_reduced[*axis] = true;
    }
  }
  Index kept_shape = value->shape;
  for (size_t i = 0; i < kept_shape.size(); ++i) {
    if (is_reduced[i]) kept_shape[i] = 1;
  }
  if (value->elements.empty()) return std::nullopt;
  ShapeValue result{kept_shape, std::vector<ObjectRef>(NumElements(kept_shape))};
  std::vector<bool> has_begun(result.elements.size(), false);
  for (size_t place = 0; place < value->elements.size(); ++place) {
    Index index = Unravel(static_cast<int64_t>(place), value->shape);
    for (size_t i = 0; i < index.size(); ++i) {
      if (is_reduced[i]) index[i] = 0;
    }
    const int64_t target = Ravel(index, kept_shape);
    const ObjectRef& element = value->elements[place];
    result.elements[target] =
        has_begun[target] ? Reduce(values.scalars(), reduction, result.elements[target], element)
                          : element;
    has_begun[target] = true;
  }
  if (!statistical_attrs.keepdims(attrs)) {
    Index shape;
    for (size_t i = 0; i < kept_shape.size(); ++i) {
      if (!is_reduced[i]) shape.push_back(kept_shape[i]);
    }
    result.shape = std::move(shape);
  }
  return result;
}

template <Reduction reduction>
Value EvaluateScan(const ShapeValues& values, const CallView& call) {
  auto value = Operand(values, call, 0);
  if (!value || !IsOfInts(call)) return std::nullopt;
  const auto axis = AxisOrFlatten(scanop_attrs, call, &*value);
  if (!axis) return std::nullopt;
  const bool is_exclusive = scanop_attrs.exclusive(call.attrs().get());
  const ObjectRef neutral = Scalars::Int(reduction == Reduction::kSum ? 0 : 1);
  ShapeValue result = *value;
  for (size_t place = 0; place < value->elements.size(); ++place) {
    Index previous = Unravel(static_cast<int64_t>(place), value->shape);
    const bool is_first = previous[*axis]-- == 0;
    const int64_t before = is_first ? 0 : Ravel(previous, value->shape);
    const ObjectRef sum = is_first ? neutral : result.elements[before];
    const ObjectRef addend =
        is_exclusive && !is_first ? value->elements[before] : value->elements[place];
    result.elements[place] =
        is_exclusive && is_first ? neutral : Reduce(values.scalars(), reduction, sum, addend);
  }
  return result;
}

/*! \brief The indices of the nonzero elements: one row per axis, one column per element. */
Value EvaluateNonzero(const ShapeValues& values, const CallView& call) {
  auto value = Operand(values, call, 0);
  auto elements = value ? value->AsInts() : std::nullopt;
  if (!elements) return std::nullopt;
  std::vector<Index> found;
  for (size_t place = 0; place < elements->size(); ++place) {
    if ((*elements)[place] == 0) continue;
    found.push_back(Unravel(static_cast<int64_t>(place), value->shape));
  }
  const size_t ndim = value->shape.size();
  ShapeValue result{{static_cast<int64_t>(ndim), static_cast<int64_t>(found.size())}, {}};
  for (size_t axis = 0; axis < ndim; ++axis) {
    for (const Index& index : found) result.elements.push_back(Scalars::Int(index[axis]));
  }
  return result;
}

}  // namespace

const std::unordered_map<std::string, ShapeEvaluator>& ReductionEvaluators() {
  static const auto* evaluators = new std::unordered_map<std::string, ShapeEvaluator>{
      {"relax.sum", EvaluateReduction<Reduction::kSum>},
      {"relax.prod", EvaluateReduction<Reduction::kProduct>},
      {"relax.min", EvaluateReduction<Reduction::kMinimum>},
      {"relax.max", EvaluateReduction<Reduction::kMaximum>},
      {"relax.cumsum", EvaluateScan<Reduction::kSum>},
      {"relax.cumprod", EvaluateScan<Reduction::kProduct>},
      {"relax.nonzero", EvaluateNonzero},
  };
  return *evaluators;
}

}  // namespace tvm_fixes
