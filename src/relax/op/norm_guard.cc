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
 * \file src/relax/op/norm_guard.cc
 * \brief Layout guards of the norms.
 *
 * See layout_guards.h.
 *
 * - layer_norm over reordered axes, such as LayerNorm((C, H, W)) in NHWC, reads scale and offset in
 *   their original order: wrong numbers and out-of-bounds reads.
 * - rms_norm over axes that are no longer the last has no lowering: the build fails.
 * - All of them mistake the outer part of a split axis for the axis: ConvertLayout raises, or the
 *   numbers are wrong.
 */
#include <algorithm>
#include <vector>

#include "layout_guards.h"
#include "norm_attrs.h"

namespace tvm_fixes {
namespace {

/*! \brief The positions of axes in `layout`, or std::nullopt if it splits one of them. */
std::optional<std::vector<int64_t>> PositionsOf(const Array<int64_t>& axes,
                                                const std::string& layout) {
  std::vector<int64_t> positions;
  for (int64_t axis : axes) {
    auto position = PositionOf(axis, layout);
    if (!position) return std::nullopt;
    positions.push_back(*position);
  }
  return positions;
}

/*! \brief Whether `layout` has the axes in ascending order, in which scale and offset are read. */
bool AreAscending(const Array<int64_t>& axes, const std::string& layout) {
  auto positions = PositionsOf(axes, layout);
  return positions && std::is_sorted(positions->begin(), positions->end());
}

/*! \brief Whether a layout keeps the original order of some axes. */
bool KeepsOrder(const Array<int64_t>& axes, const std::string& layout) {
  return AreAscending(axes, InitialLayout(PrimalRank(layout))) && AreAscending(axes, layout);
}

ObjectRef LayerNorm(const CallView& call, const std::string& layout) {
  const auto& type = layer_norm_attrs;
  const Object* attrs = call.attrs().get();
  if (!type.IsInstance(attrs)) return ObjectRef(nullptr);
  return KeepsOrder(type.axes(attrs), layout) ? ObjectRef(nullptr) : RestoreLayouts(call);
}

ObjectRef RMSNorm(const CallView& call, const std::string& layout) {
  const auto& type = rms_norm_attrs;
  const Object* attrs = call.attrs().get();
  if (!type.IsInstance(attrs)) return ObjectRef(nullptr);
  if (!KeepsOrder(type.axes(attrs), layout)) return RestoreLayouts(call);
  const std::vector<int64_t> positions = *PositionsOf(type.axes(attrs), layout);
  const size_t others = AxesOf(layout).size() - positions.size();
  const bool are_last = positions.empty() || positions.front() == static_cast<int64_t>(others);
  return are_last ? ObjectRef(nullptr) : RestoreLayouts(call);
}

template <auto& type>
ObjectRef ChannelNorm(const CallView& call, const std::string& layout) {
  const bool follows = !IsPacked(layout) || !type.IsInstance(call.attrs().get());
  return follows ? ObjectRef(nullptr) : RestoreLayouts(call);
}

LayoutGuard norm_guards[] = {
    {"relax.nn.layer_norm", LayerNorm},
    {"relax.nn.rms_norm", RMSNorm},
    {"relax.nn.group_norm", ChannelNorm<group_norm_attrs>},
    {"relax.nn.instance_norm", ChannelNorm<instance_norm_attrs>},
};

}  // namespace
}  // namespace tvm_fixes
