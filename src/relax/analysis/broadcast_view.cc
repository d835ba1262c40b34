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
 * \file src/relax/analysis/broadcast_view.cc
 * \brief A tensor as broadcasts, repetitions, permutes and reshapes of a smaller one.
 */
#include "broadcast_view.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "../op/manipulate_attrs.h"
#include "../op/permute_dims.h"
#include "rearrangement.h"

namespace tvm_fixes {

namespace {

using Axes = std::optional<std::vector<AxisParts>>;

bool IsReshapeOrFlatten(const CallView& call) {
  return call.IsOp("relax.reshape") || call.IsOp("relax.expand_dims") ||
         call.IsOp("relax.squeeze") || call.IsOp("relax.flatten");
}

Axes Broadcast(const Scalars& scalars, const BroadcastView& operand, const Array<ObjectRef>& from,
               const Array<ObjectRef>& to) {
  if (to.size() < from.size()) return std::nullopt;
  std::vector<AxisParts> axes(to.size());
  const size_t added = to.size() - from.size();
  for (size_t axis = 0; axis < to.size(); ++axis) {
    const bool is_added = axis < added;
    if (!is_added && scalars.ProvesEqual(from[axis - added], to[axis])) {
      axes[axis] = operand.axes[axis - added];
    } else if (is_added || scalars.ProvesEqual(from[axis - added], Scalars::Int(1))) {
      if (!IsOne(to[axis])) axes[axis] = {{to[axis], true}};
    } else {
      return std::nullopt;
    }
  }
  return axes;
}

/*! \brief The axes after a tile. The shapes determine the non-negative repeat counts. */
Axes Tile(const BroadcastView& operand, const Array<ObjectRef>& from, const Array<ObjectRef>& to) {
  if (to.size() < from.size()) return std::nullopt;
  std::vector<AxisParts> axes(to.size());
  const size_t added = to.size() - from.size();
  for (size_t axis = 0; axis < to.size(); ++axis) {
    const auto extent = axis < added ? std::optional<int64_t>(1) : AsInt(from[axis - added]);
    const auto tiled = AsInt(to[axis]);
    if (axis >= added) axes[axis] = operand.axes[axis - added];
    if (axis >= added && from[axis - added].same_as(to[axis])) continue;
    if (!extent || !tiled || *extent == 0 || *tiled % *extent != 0) return std::nullopt;
    const int64_t times = *tiled / *extent;
    if (times != 1) axes[axis].insert(axes[axis].begin(), {Scalars::Int(times), true});
  }
  return axes;
}

Axes Repeat(const BroadcastView& operand, const CallView& call) {
  const Object* attrs = call.attrs().get();
  if (!repeat_attrs.IsInstance(attrs)) return std::nullopt;
  const auto given = repeat_attrs.axis(attrs).try_cast<int64_t>();
  const int64_t times = repeat_attrs.repeats(attrs);
  if (!given) return std::nullopt;
  const int64_t axis = NormalizeAxis(*given, operand.axes.size());
  if (axis < 0 || axis >= static_cast<int64_t>(operand.axes.size())) return std::nullopt;
  std::vector<AxisParts> axes = operand.axes;
  if (times != 1) axes[axis].push_back({Scalars::Int(times), true});
  return axes;
}

Axes Reshape(const BroadcastView& operand, const Array<ObjectRef>& to) {
  AxisParts parts;
  Array<ObjectRef> extents;
  for (const AxisParts& axis : operand.axes) {
    for (const AxisPart& part : axis) {
      parts.push_back(part);
      extents.push_back(part.extent);
    }
  }
  auto factors = CommonFactors(extents, to);
  if (!factors) return std::nullopt;
  std::vector<AxisParts> axes(to.size());
  for (const CommonFactor& factor : *factors) {
    axes[factor.out].push_back({factor.extent, parts[factor.in].is_repeated});
  }
  return axes;
}

std::optional<BroadcastStep> Permute(const BroadcastView& operand,
                                     const std::vector<int64_t>& permuted) {
  BroadcastStep step;
  // For each axis, the positions of its varying parts among all varying parts.
  std::vector<std::vector<int64_t>> places(operand.axes.size());
  int64_t num_varying = 0;
  for (size_t axis = 0; axis < operand.axes.size(); ++axis) {
    for (const AxisPart& part : operand.axes[axis]) {
      if (!part.is_repeated) places[axis].push_back(num_varying++);
    }
  }
  AxisPermutation order{operand.SourceShape(), {}};
  for (int64_t axis : permuted) {
    step.view.axes.push_back(operand.axes[axis]);
    order.axes.insert(order.axes.end(), places[axis].begin(), places[axis].end());
  }
  if (!std::is_sorted(order.axes.begin(), order.axes.end())) step.permutation = std::move(order);
  return step;
}

}  // namespace

bool IsRepeated(const AxisParts& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const AxisPart& part) { return part.is_repeated; });
}

bool BroadcastView::IsRepeated() const {
  return std::any_of(axes.begin(), axes.end(),
                     [](const AxisParts& parts) { return tvm_fixes::IsRepeated(parts); });
}

Array<ObjectRef> BroadcastView::SourceShape() const {
  Array<ObjectRef> shape;
  for (const AxisParts& parts : axes) {
    for (const AxisPart& part : parts) {
      if (!part.is_repeated) shape.push_back(part.extent);
    }
  }
  return shape;
}

BroadcastView ViewOfShape(const Array<ObjectRef>& shape) {
  BroadcastView view;
  for (const ObjectRef& dim : shape) {
    view.axes.push_back(IsOne(dim) ? AxisParts{} : AxisParts{{dim, false}});
  }
  return view;
}

AxisParts MergeParts(const Scalars& scalars, const AxisParts& parts, const ObjectRef& whole) {
  AxisParts merged;
  for (const AxisPart& part : parts) {
    if (!merged.empty() && merged.back().is_repeated == part.is_repeated) {
      merged.back().extent = scalars.Multiply(merged.back().extent, part.extent);
    } else {
      merged.push_back(part);
    }
  }
  if (merged.size() == 1) merged[0].extent = whole;
  return merged;
}

bool IsBroadcastStep(const CallView& call) {
  return !call.args().empty() &&
         (call.IsOp("relax.broadcast_to") || call.IsOp("relax.tile") || call.IsOp("relax.repeat") ||
          call.IsOp("relax.permute_dims") || IsReshapeOrFlatten(call));
}

std::optional<BroadcastStep> FollowStep(const Scalars& scalars, const BroadcastView& operand,
                                        const CallView& call) {
  const auto from = ShapeOf(call.args()[0]);
  const auto to = ShapeOf(call.ref());
  if (!from || !to || from->size() != operand.axes.size()) return std::nullopt;
  if (call.IsOp("relax.permute_dims")) {
    auto permuted = PermutedAxes(call);
    return permuted ? Permute(operand, *permuted) : std::nullopt;
  }
  Axes axes;
  if (call.IsOp("relax.broadcast_to")) axes = Broadcast(scalars, operand, *from, *to);
  if (call.IsOp("relax.tile")) axes = Tile(operand, *from, *to);
  if (call.IsOp("relax.repeat")) axes = Repeat(operand, call);
  if (IsReshapeOrFlatten(call)) axes = Reshape(operand, *to);
  if (!axes) return std::nullopt;
  return BroadcastStep{{*std::move(axes)}, std::nullopt};
}

}  // namespace tvm_fixes
