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
 * \file src/relax/op/reduction_guard.cc
 * \brief Layout guards of the reductions.
 *
 * See layout_guards.h.
 *
 * - A reduction with keepdims leaves extent 1, and so blocks of 1, in a split axis. TVM's rule
 *   reports unchanged blocks, and the next operator raises or does not build.
 * - TVM's rule spells out the axes of a full reduction, for which type inference loses the rank if
 *   the shape is unknown: ConvertLayout raises in any layout.
 */
#include <algorithm>

#include "../ir/build.h"
#include "broadcast.h"
#include "layout_guards.h"
#include "statistical_attrs.h"

namespace tvm_fixes {
namespace {

/*! \brief The positions in `layout` of all parts of the reduced axes. */
Array<int64_t> PartsOf(const Array<int64_t>& axes, const std::string& layout) {
  const std::vector<LayoutAxis> parts = AxesOf(layout);
  const size_t ndim = PrimalRank(layout);
  Array<int64_t> positions;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto is_part = [&](int64_t axis) {
      return NormalizeAxis(axis, ndim) == static_cast<int64_t>(parts[i].primal());
    };
    if (std::any_of(axes.begin(), axes.end(), is_part)) positions.push_back(i);
  }
  return positions;
}

ObjectRef Reduction(const CallView& call, const VarLayouts& var_layouts) {
  const auto& type = statistical_attrs;
  const Object* attrs = call.attrs().get();
  auto layout = LayoutOf(call.args()[0], var_layouts);
  if (!layout || !type.IsInstance(attrs)) return ObjectRef(nullptr);
  const Array<int64_t>& axes = type.axis(attrs);
  if (!type.keepdims(attrs)) {
    return axes.defined() ? ObjectRef(nullptr) : FollowData(call, *layout, "", call.attrs());
  }
  const std::string out = WithUnitBlocks(*layout, call.ref());
  if (!axes.defined()) return FollowData(call, *layout, out, call.attrs());
  if (out == *layout) return ObjectRef(nullptr);
  return FollowData(call, *layout, out,
                    WithFields(call.attrs(), {{"axis", PartsOf(axes, *layout)}}));
}

LayoutGuard reduction_guards[] = {
    {"relax.max", Reduction},      {"relax.mean", Reduction}, {"relax.min", Reduction},
    {"relax.prod", Reduction},     {"relax.std", Reduction},  {"relax.sum", Reduction},
    {"relax.variance", Reduction},
};

}  // namespace
}  // namespace tvm_fixes
