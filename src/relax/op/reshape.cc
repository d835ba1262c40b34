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
 * \file src/relax/op/reshape.cc
 * \brief Layout rule of relax.reshape.
 *
 * Trigger: ConvertLayout of a reshape that merges or splits adjacent axes, such as in an attention
 * block of an image model. Mechanism: the operator has no FRelaxInferLayout, so ConvertLayout
 * restores the original layout of its argument.
 *
 *     x: layout ACDB (NHWC), R.reshape(x, [n, c, h * w])  =>  R.reshape(x, [n, h * w, c]), ACB
 */
#include "reshape.h"

#include <algorithm>
#include <string>
#include <vector>

#include "../../ffi/registration.h"
#include "../ir/build.h"
#include "follow_layout.h"

namespace tvm_fixes {
namespace {

/*! \brief The number of axes, starting at `first`, with the product `whole`; 0 if unknown. */
size_t CountFactors(const ObjectRef& whole, const Array<ObjectRef>& shape, size_t first) {
  static const GlobalFunction multiply("prim._OpMul");
  static const GlobalFunction analyzer("sym.Analyzer");
  static const GlobalFunction can_prove_equal("sym.AnalyzerCanProveEqual");
  const Any known = analyzer();
  ObjectRef product = shape[first];
  for (size_t i = first + 1; i < shape.size(); ++i) {
    product = multiply(product, shape[i], nullptr).cast<ObjectRef>();
    if (can_prove_equal(known, product, whole).cast<bool>()) return i + 1 - first;
  }
  return 0;
}

}  // namespace

std::optional<std::vector<AxisGroup>> GroupAxes(const Array<ObjectRef>& in,
                                                const Array<ObjectRef>& out) {
  std::vector<AxisGroup> groups;
  size_t i = 0;
  size_t j = 0;
  while (i < in.size() || j < out.size()) {
    if (i < in.size() && j < out.size() && StructuralEqual(in[i], out[j])) {
      groups.push_back({{i++}, {j++}});
    } else if (i < in.size() && IsOne(in[i])) {
      ++i;
    } else if (j < out.size() && IsOne(out[j])) {
      groups.push_back({{}, {j++}});
    } else {
      if (i == in.size() || j == out.size()) return std::nullopt;
      AxisGroup group{{i}, {j}};
      if (!AsInt(in[i]) || !AsInt(out[j])) {
        const size_t merged = CountFactors(out[j], in, i);
        const size_t split = merged > 0 ? 0 : CountFactors(in[i], out, j);
        if (merged + split == 0) return std::nullopt;
        for (size_t k = 1; k < merged; ++k) group.in.push_back(i + k);
        for (size_t k = 1; k < split; ++k) group.out.push_back(j + k);
        i = group.in.back() + 1;
        j = group.out.back() + 1;
        groups.push_back(std::move(group));
        continue;
      }
      auto in_extent = AsInt(in[i++]);
      auto out_extent = AsInt(out[j++]);
      while (*in_extent != *out_extent) {
        const bool take_in = *in_extent < *out_extent;
        if (take_in ? i == in.size() : j == out.size()) return std::nullopt;
        auto next = AsInt(take_in ? in[i] : out[j]);
        if (!next) return std::nullopt;
        (take_in ? *in_extent : *out_extent) *= *next;
        take_in ? group.in.push_back(i++) : group.out.push_back(j++);
      }
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

std::vector<AxisGroup>::const_iterator FindGroup(const std::vector<AxisGroup>& groups,
                                                 std::vector<size_t> AxisGroup::* axes,
                                                 size_t axis) {
  return std::find_if(groups.begin(), groups.end(), [&](const AxisGroup& group) {
    return std::count((group.*axes).begin(), (group.*axes).end(), axis) != 0;
  });
}

namespace {

/*!
 * \brief The layout of the result if the argument's layout keeps each group together and in order.
 *
 * A split axis must form its own group and remain a single axis. A new axis of extent 1 follows the
 * preceding group.
 */
std::optional<std::string> FollowGroups(const std::string& layout, size_t ndim,
                                        const std::vector<AxisGroup>& groups) {
  std::string leading;
  std::vector<std::string> becomes(ndim);
  std::string* last = &leading;
  for (const AxisGroup& group : groups) {
    for (size_t i = 1; i < group.in.size(); ++i) {
      auto previous = PositionOf(group.in[i - 1], layout);
      auto position = PositionOf(group.in[i], layout);
      if (!previous || !position || *position != *previous + 1) return std::nullopt;
    }
    // The whole group takes the place of its first axis.
    if (!group.in.empty()) last = &becomes[group.in[0]];
    for (size_t out : group.out) last->push_back(static_cast<char>('A' + out));
  }
  auto renamed = RenameAxes(layout, becomes);
  return renamed ? std::optional(leading + *renamed) : std::nullopt;
}

/*!
 * \brief The layout nearest to `layout` that keeps each group together and in order.
 *
 * A group takes the position of its first axis. If the argument must be permuted anyway, this keeps
 * the result as close as possible to the layout its users want.
 */
std::string GatherGroups(const std::string& layout, const std::vector<AxisGroup>& groups) {
  std::string gathered;
  for (char axis : layout) {
    if (gathered.find(axis) != std::string::npos) continue;
    auto group = FindGroup(groups, &AxisGroup::in, axis - 'A');
    if (group == groups.end()) {
      gathered.push_back(axis);
      continue;
    }
    for (size_t member : group->in) gathered.push_back(static_cast<char>('A' + member));
  }
  return gathered;
}

ObjectRef FollowReshape(const CallView& call, const std::string& present) {
  auto in_shape = ShapeOf(call.args()[0]);
  auto out_shape = ShapeOf(call.ref());
  auto groups = in_shape && out_shape ? GroupAxes(*in_shape, *out_shape) : std::nullopt;
  if (!groups) return ObjectRef(nullptr);
  const std::string layout = IsPacked(present) ? present : GatherGroups(present, *groups);
  auto out_layout = FollowGroups(layout, in_shape->size(), *groups);
  auto new_shape = out_layout ? ShapeInLayout(*out_shape, *out_layout) : std::nullopt;
  if (!new_shape) return ObjectRef(nullptr);
  return FollowData(call, layout, *out_layout, call.attrs(),
                    {{MakeIntImm("int64", 1), MakeShapeExpr(*new_shape)}});
}

TVM_FIXES_INIT_BLOCK() {
  RegisterLayoutRule("relax.reshape", FollowReshape, "reshape-infer-layout");
}

}  // namespace
}  // namespace tvm_fixes
