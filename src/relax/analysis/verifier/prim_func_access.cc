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
 * \file src/relax/analysis/verifier/prim_func_access.cc
 * \brief Bounds of a single buffer access.
 */
#include "prim_func_access.h"

#include <algorithm>
#include <optional>

#include "../../../ffi/tir_nodes.h"
#include "../../ir/views.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief The range of a vector access that begins at `first`. */
std::optional<DimRange> RangeOfLanes(DimTable* dims, const LoopNest& nest, DimId first,
                                     DimId stride, int64_t lanes) {
  auto range = nest.Taken(first);
  const DimId span = dims->Multiply(stride, dims->FromInt(lanes - 1));
  const auto distance = dims->AsInt(span);
  if (!range || !distance) return std::nullopt;
  DimId& end = *distance < 0 ? range->least : range->greatest;
  end = dims->Add(end, span);
  return range;
}

/*! \brief The reach of a vector access, with elements counted over all dims of the buffer. */
std::optional<IndexReach> ReachOfVector(DimTable* dims, LoopNest* nest, const Object* buffer_type,
                                        const Array<ObjectRef>& indices, size_t axis) {
  const auto& ramp = tir_nodes.ramp;
  const Object* node = indices[axis].get();
  const auto lanes = AsInt(ramp.lanes(node));
  const auto& strides = tir_nodes.buffer_type.strides(buffer_type);
  // If rows are not contiguous, the gaps between them are unknown.
  const bool has_gaps = indices.size() > 1 && strides.defined() && !strides.empty();
  if (!lanes || *lanes < 1 || has_gaps) return std::nullopt;
  // A vector may continue into the next row, so count its elements from the start of the buffer.
  DimId first = dims->FromInt(0);
  DimId stride = dims->FromInt(0);
  DimId extent = dims->FromInt(1);
  const Array<ObjectRef>& shape = tir_nodes.buffer_type.shape(buffer_type);
  for (size_t i = 0; i < indices.size(); ++i) {
    const bool is_ramp = i == axis;
    const auto value = nest->Value(is_ramp ? ramp.base(node) : indices[i]);
    const auto size = nest->Value(shape[i]);
    if (!value || !size) return std::nullopt;
    first = dims->Add(dims->Multiply(first, *size), *value);
    stride = dims->Multiply(stride, *size);
    if (is_ramp) stride = dims->Intern(ramp.stride(node));
    extent = dims->Multiply(extent, *size);
  }
  const auto range = RangeOfLanes(dims, *nest, first, stride, *lanes);
  if (!range) return std::nullopt;
  return IndexReach{axis, indices.size() > 1 ? kAllDims : 0, kUnknownDim, *range, extent};
}

/*! \brief The lower and upper bound of a value, where known. */
struct Bounds {
  std::optional<int64_t> least;
  std::optional<int64_t> greatest;
};

/*! \brief Deeper expressions and larger numbers are ignored. */
constexpr int kMaxLevels = 50;
constexpr int64_t kMaxNumber = int64_t{1} << 60;

/*! \brief The bounds of a value for all data, from minima, maxima and sums with literals. */
Bounds BoundsOf(const ObjectRef& expr, int levels = 0) {
  if (const auto number = AsInt(expr)) {
    if (*number > kMaxNumber || *number < -kMaxNumber) return {};
    return {number, number};
  }
  const TirNodes& tir = tir_nodes;
  for (const BinaryOpNode* op : {&tir.min, &tir.max, &tir.add, &tir.sub}) {
    if (!op->IsInstance(expr.get()) || levels == kMaxLevels) continue;
    const Bounds a = BoundsOf(op->a(expr.get()), levels + 1);
    const Bounds b = BoundsOf(op->b(expr.get()), levels + 1);
    auto both = [](const auto& x, const auto& y, auto join) {
      return x && y ? std::optional<int64_t>(join(*x, *y)) : std::nullopt;
    };
    auto lesser = [](int64_t x, int64_t y) { return std::min(x, y); };
    auto greater = [](int64_t x, int64_t y) { return std::max(x, y); };
    if (op == &tir.min) {
      const auto greatest = both(a.greatest, b.greatest, lesser);
      return {both(a.least, b.least, lesser), greatest     ? greatest
                                              : a.greatest ? a.greatest
                                                           : b.greatest};
    }
    if (op == &tir.max) {
      const auto least = both(a.least, b.least, greater);
      return {least ? least : a.least ? a.least : b.least, both(a.greatest, b.greatest, greater)};
    }
    auto sum = [](int64_t x, int64_t y) { return x + y; };
    auto difference = [](int64_t x, int64_t y) { return x - y; };
    if (op == &tir.add) return {both(a.least, b.least, sum), both(a.greatest, b.greatest, sum)};
    return {both(a.least, b.greatest, difference), both(a.greatest, b.least, difference)};
  }
  return {};
}

/*! \brief The range of a data-dependent index that is always out of bounds, or std::nullopt. */
std::optional<DimRange> Outside(DimTable* dims, const ObjectRef& index, DimId extent) {
  const auto [least, greatest] = BoundsOf(index);
  const auto size = dims->AsInt(extent);
  if (greatest && *greatest < 0)
    return DimRange{dims->FromInt(*greatest), dims->FromInt(*greatest)};
  if (least && size && *least >= *size)
    return DimRange{dims->FromInt(*least), dims->FromInt(*least)};
  return std::nullopt;
}

}  // namespace

std::vector<IndexReach> ReachesOfAccess(DimTable* dims, LoopNest* nest, const Object* buffer,
                                        const Array<ObjectRef>& indices) {
  if (!As<VarView>(buffer)) return {};
  const Object* type = nodes.expr.ty(buffer).get();
  if (!tir_nodes.buffer_type.IsInstance(type)) return {};
  const Array<ObjectRef>& shape = tir_nodes.buffer_type.shape(type);
  if (!shape.defined() || shape.size() != indices.size()) return {};
  std::vector<IndexReach> reaches;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (tir_nodes.ramp.IsInstance(indices[i].get())) {
      const auto vector = ReachOfVector(dims, nest, type, indices, i);
      if (vector) reaches.push_back(*vector);
      continue;
    }
    const auto value = nest->Value(indices[i]);
    const auto extent = nest->Value(shape[i]);
    auto range = value && extent ? nest->Taken(*value) : std::nullopt;
    if (!value && extent) range = Outside(dims, indices[i], *extent);
    if (range) reaches.push_back({i, i, dims->Intern(indices[i]), *range, *extent});
  }
  return reaches;
}

}  // namespace verifier
}  // namespace tvm_fixes
