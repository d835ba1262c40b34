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
 * \file src/relax/op/join_guard.cc
 * \brief Layout guards of concat, stack and split.
 *
 * See layout_guards.h.
 *
 * - stack gives the new axis an invalid letter: ConvertLayout raises.
 * - concat and split resolve a negative axis against the rank of the packed layout, and split
 *   applies positions along a split axis to its blocks: ConvertLayout raises.
 * - split into one section does not return a tuple: ConvertLayout raises in any layout.
 * - concat requests conversions between packed layouts, which are impossible.
 */
#include <algorithm>
#include <string>
#include <vector>

#include "../ir/build.h"
#include "axis_attrs.h"
#include "layout_guards.h"
#include "manipulate_attrs.h"

namespace tvm_fixes {
namespace {

const ObjectRef kStock(nullptr);

/*! \brief One of the tensors of a tuple. */
struct Part {
  ObjectRef type;
  std::string layout;
};

/*! \brief The tensors that a call joins, or std::nullopt if they are not all known. */
std::optional<std::vector<Part>> PartsOf(const CallView& call, const VarLayouts& var_layouts) {
  const ObjectRef type = TypeOf(call.args()[0]);
  if (!nodes.tuple_type.IsInstance(type.get())) return std::nullopt;
  const Array<ObjectRef>& types = nodes.tuple_type.fields(type.get());
  std::vector<Part> parts;
  for (size_t i = 0; i < types.size(); ++i) {
    auto layout = LayoutOfField(call.args()[0], i, var_layouts);
    if (!layout) return std::nullopt;
    parts.push_back({types[i], *layout});
  }
  return parts;
}

/*! \brief The first layout of a part to which all parts can be converted. */
std::optional<std::string> CommonLayout(const std::vector<Part>& parts) {
  for (const Part& candidate : parts) {
    const auto is_convertible = [&](const Part& part) {
      return IsConvertible(part.type, part.layout, candidate.layout);
    };
    if (std::all_of(parts.begin(), parts.end(), is_convertible)) return candidate.layout;
  }
  return std::nullopt;
}

/*! \brief The axis of concat or split, 0 by default. */
std::optional<int64_t> AxisOf(const OptionalAxisAttrsNode& type, const CallView& call) {
  if (!type.IsInstance(call.attrs().get())) return std::nullopt;
  const Any& axis = type.axis(call.attrs().get());
  return axis == nullptr ? 0 : axis.try_cast<int64_t>();
}

ObjectRef Concat(const CallView& call, const VarLayouts& var_layouts) {
  auto parts = PartsOf(call, var_layouts);
  auto axis = AxisOf(concat_attrs, call);
  if (!parts || !axis) return kStock;
  const auto is_packed = [](const Part& part) { return IsPacked(part.layout); };
  if (std::none_of(parts->begin(), parts->end(), is_packed)) return kStock;
  std::stable_partition(parts->begin(), parts->end(), is_packed);
  auto layout = CommonLayout(*parts);
  auto place = layout ? PlaceOf(*axis, *layout) : std::nullopt;
  if (!place) return RestoreLayouts(call);
  return FollowData(call, *layout, *layout, WithFields(call.attrs(), {{"axis", place->position}}));
}

ObjectRef Stack(const CallView& call, const VarLayouts& var_layouts) {
  auto parts = PartsOf(call, var_layouts);
  auto axis = AxisOf(stack_attrs, call);
  auto result = InitialLayoutOf(call.ref());
  if (!axis) return kStock;
  if (!parts || !result) return RestoreLayouts(call);
  auto layout = CommonLayout(*parts);
  if (!layout || *layout == InitialLayout(PrimalRank(*layout))) return RestoreLayouts(call);
  const auto rank = static_cast<int64_t>(result->size());
  const int64_t new_axis = NormalizeAxis(*axis, rank);
  if (new_axis < 0 || new_axis >= rank) return RestoreLayouts(call);
  std::vector<std::string> axes;
  for (int64_t i = 0; i < rank; ++i) {
    if (i != new_axis) axes.emplace_back(1, (*result)[i]);
  }
  auto renamed = RenameAxes(*layout, axes);
  if (!renamed) return RestoreLayouts(call);
  return FollowData(call, *layout, (*result)[new_axis] + *renamed,
                    WithFields(call.attrs(), {{"axis", int64_t{0}}}));
}

ObjectRef Split(const CallView& call, const VarLayouts& var_layouts) {
  const auto& type = split_attrs;
  const ObjectRef results = TypeOf(call.ref());
  // With one section the result is a tensor, for which TVM's rule raises in any layout.
  auto known = LayoutOf(call.args()[0], var_layouts);
  if (!known || !nodes.tuple_type.IsInstance(results.get())) return RestoreLayouts(call);
  const std::string& layout = *known;
  if (!IsPacked(layout) || !type.IsInstance(call.attrs().get())) return kStock;
  auto place = PlaceOf(type.axis(call.attrs().get()), layout);
  if (!place) return RestoreLayouts(call);
  for (const ObjectRef& result : nodes.tuple_type.fields(results.get())) {
    auto shape = ShapeOfType(result);
    if (!shape || !ShapeInLayout(*shape, layout)) return RestoreLayouts(call);
  }
  Any sections = type.indices_or_sections(call.attrs().get());
  if (auto indices = sections.try_cast<Array<ObjectRef>>()) {
    Array<ObjectRef> moved;
    for (const ObjectRef& index : *indices) {
      auto at = AsInt(index);
      if (!at || *at % place->elements != 0) return RestoreLayouts(call);
      moved.push_back(MakeIntImm("int64", *at / place->elements));
    }
    sections = moved;
  }
  return FollowData(
      call, layout, layout,
      WithFields(call.attrs(), {{"indices_or_sections", sections}, {"axis", place->position}}));
}

LayoutGuard join_guards[] = {
    {"relax.concat", Concat},
    {"relax.stack", Stack},
    {"relax.split", Split},
};

}  // namespace
}  // namespace tvm_fixes
