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
 * \brief Layouts of relax.reshape.
 *
 * TVM: seen in 0.27. Trigger: ConvertLayout over a reshape that merges or splits
 * neighbouring axes, as the attention block of an image model does. Symptom: the value is
 * transposed back before the reshape and again after it. Mechanism: the operator has no
 * FRelaxInferLayout, so that ConvertLayout restores the original order of its argument.
 *
 *     x: layout ACDB (NHWC), R.reshape(x, [n, c, h * w])  =>  R.reshape(x, [n, h * w, c]), ACB
 *
 * Removal: delete this file once its probe passes on the oldest TVM that is supported.
 */
#include <algorithm>
#include <string>
#include <vector>

#include "../ir/build.h"
#include "infer_layout.h"
#include "op_attr.h"

namespace tvm_fixes {
namespace {

constexpr const char* kOp = "relax.reshape";
constexpr const char* kFixId = "reshape-infer-layout";

/*! \brief Neighbouring axes of the argument that become neighbouring axes of the result. */
struct AxisGroup {
  std::vector<size_t> in;
  std::vector<size_t> out;
};

/*!
 * \brief Split a reshape into the least groups of axes that keep their elements to themselves.
 *
 * An axis of extent 1 of the argument that the result lacks belongs to no group.
 * \return Nothing if a symbolic extent is merged or split.
 */
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
      auto in_extent = AsInt(in[i++]);
      auto out_extent = AsInt(out[j++]);
      while (in_extent != out_extent) {
        if (!in_extent || !out_extent) return std::nullopt;
        const bool take_in = *in_extent < *out_extent;
        if (take_in ? i == in.size() : j == out.size()) return std::nullopt;
        auto next = AsInt(take_in ? in[i] : out[j]);
        if (!next) return std::nullopt;
        (take_in ? *in_extent : *out_extent) *= *next;
        take_in ? group.in.push_back(i++) : group.out.push_back(j++);
      }
      if (!in_extent) return std::nullopt;
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

/*!
 * \brief The layout of the result, if the argument's keeps each group together and in order.
 *
 * An axis of the result that no axis of the argument makes, of extent 1, follows the group
 * before it.
 */
std::optional<std::string> FollowGroups(const std::string& layout,
                                        const std::vector<AxisGroup>& groups) {
  std::string followed;
  size_t leading = 0;
  for (; leading < groups.size() && groups[leading].in.empty(); ++leading) {
    for (size_t axis : groups[leading].out) followed.push_back(static_cast<char>('A' + axis));
  }
  for (size_t position = 0; position < layout.size();) {
    const size_t axis = layout[position] - 'A';
    auto holds_axis = [&](const AxisGroup& group) {
      return std::find(group.in.begin(), group.in.end(), axis) != group.in.end();
    };
    auto group = std::find_if(groups.begin(), groups.end(), holds_axis);
    if (group == groups.end()) {
      ++position;
      continue;
    }
    for (size_t member : group->in) {
      if (position == layout.size() || layout[position++] != static_cast<char>('A' + member)) {
        return std::nullopt;
      }
    }
    do {
      for (size_t out : group->out) followed.push_back(static_cast<char>('A' + out));
    } while (++group != groups.end() && group->in.empty());
  }
  return followed;
}

ObjectRef InferLayout(const ObjectRef& call_ref, const DesiredLayouts& /*desired_layouts*/,
                      const VarLayouts& var_layouts) {
  const CallView call(call_ref.get());
  const ObjectRef& data = call.args()[0];
  const auto in_initial = InitialLayoutOf(data);
  const auto keep = [&] {
    return MakeInferLayoutOutput({in_initial}, {InitialLayoutOf(call_ref)}, call.attrs());
  };
  auto layout = LayoutOf(data, var_layouts);
  auto in_shape = ShapeOf(data);
  auto out_shape = ShapeOf(call_ref);
  if (!layout || !in_shape || !out_shape || layout == in_initial || !IsEnabled(kFixId)) {
    return keep();
  }
  if (!IsPermutation(*layout, in_shape->size())) return keep();
  auto groups = GroupAxes(*in_shape, *out_shape);
  auto out_layout = groups ? FollowGroups(*layout, *groups) : std::nullopt;
  if (!out_layout) return keep();

  Array<ObjectRef> new_shape;
  for (char axis : *out_layout) new_shape.push_back((*out_shape)[axis - 'A']);
  NoteUse(kFixId);
  return MakeInferLayoutOutput({*layout}, {*out_layout}, call.attrs(),
                               {{MakeIntImm("int64", 1), MakeShapeExpr(new_shape)}});
}

TVM_FIXES_INIT_BLOCK() {
  OverrideOpAttr(kOp, "FRelaxInferLayout", Function::FromTyped(InferLayout));
}

}  // namespace
}  // namespace tvm_fixes
