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
 * \brief Layout guard of strided_slice.
 *
 * See layout_guards.h.
 *
 * - Along non-literal axes, ConvertLayout raises in any layout.
 * - In a packed layout, TVM restores the original one. A slice of whole blocks stays packed.
 */
#include <algorithm>
#include <vector>

#include "../ir/build.h"
#include "layout_guards.h"

namespace tvm_fixes {
namespace {

/*! \brief The elements of a tuple, or an empty array if it is not a literal tuple. */
Array<ObjectRef> FieldsOf(const ObjectRef& tuple) {
  auto fields = As<TupleView>(tuple);
  return fields ? fields->fields() : Array<ObjectRef>();
}

/*!
 * \brief A limit of a slice with step 1, in blocks of `block` elements.
 * \return std::nullopt if it is unknown, or within a block.
 */
std::optional<int64_t> LimitInBlocks(const ObjectRef& limit, int64_t extent, int64_t block) {
  auto value = AsInt(limit);
  if (!value) return std::nullopt;
  const int64_t place = std::clamp<int64_t>(*value < 0 ? *value + extent : *value, 0, extent);
  if (place % block != 0) return std::nullopt;
  return place / block;
}

/*! \brief The slice with axes and limits of a packed layout. */
ObjectRef SliceOfBlocks(const CallView& call, const std::string& layout) {
  const Array<ObjectRef>& args = call.args();
  const Array<ObjectRef> axes = FieldsOf(args[1]);
  const Array<ObjectRef> begins = FieldsOf(args[2]);
  const Array<ObjectRef> ends = FieldsOf(args[3]);
  const Array<ObjectRef> strides = args.size() > 4 ? FieldsOf(args[4]) : Array<ObjectRef>();
  auto shape = ShapeOf(args[0]);
  const bool is_known = shape && begins.size() == axes.size() && ends.size() == axes.size() &&
                        (args.size() == 4 || strides.size() == axes.size());
  if (!is_known) return RestoreLayouts(call);
  Array<ObjectRef> new_axes, new_begins, new_ends;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = NormalizeAxis(*AsInt(axes[i]), shape->size());
    auto place = PlaceOf(axis, layout);
    if (!place) return RestoreLayouts(call);
    new_axes.push_back(MakeIntImm("int64", place->position));
    if (PositionOf(axis, layout)) {
      new_begins.push_back(begins[i]);
      new_ends.push_back(ends[i]);
      continue;
    }
    auto extent = AsInt((*shape)[axis]);
    if (!extent || (args.size() > 4 && !IsOne(strides[i]))) return RestoreLayouts(call);
    auto begin = LimitInBlocks(begins[i], *extent, place->elements);
    auto end = LimitInBlocks(ends[i], *extent, place->elements);
    if (!begin || !end || *begin >= *end) return RestoreLayouts(call);
    new_begins.push_back(MakeIntImm("int64", *begin));
    new_ends.push_back(MakeIntImm("int64", *end));
  }
  return FollowData(call, layout, layout, call.attrs(),
                    {{MakeIntImm("int64", 1), MakeTuple(new_axes)},
                     {MakeIntImm("int64", 2), MakeTuple(new_begins)},
                     {MakeIntImm("int64", 3), MakeTuple(new_ends)}});
}

ObjectRef StridedSlice(const CallView& call, const VarLayouts& var_layouts) {
  auto axes = As<TupleView>(call.args()[1]);
  const bool is_literal = axes && std::all_of(axes->fields().begin(), axes->fields().end(),
                                              [](const ObjectRef& axis) { return AsInt(axis); });
  if (!is_literal) return RestoreLayouts(call);
  auto layout = LayoutOf(call.args()[0], var_layouts);
  if (!layout || !IsPacked(*layout) || call.args().size() < 4) return ObjectRef(nullptr);
  return SliceOfBlocks(call, *layout);
}

LayoutGuard slice_guards[] = {{"relax.strided_slice", StridedSlice}};

}  // namespace
}  // namespace tvm_fixes
