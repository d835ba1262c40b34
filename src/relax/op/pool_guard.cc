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
 * \file src/relax/op/pool_guard.cc
 * \brief Layout guards of operators with a layout attribute: poolings and resizes.
 *
 * See layout_guards.h.
 *
 * - Poolings of two axes accept layouts that split a pooled axis, or an axis that moves in the
 *   result. ConvertLayout raises for poolings of one or three axes in any packed layout, and for
 *   all poolings if the model itself uses a packed layout.
 * - resize2d and resize3d have lowerings only for channels-first and channels-last, and drop every
 *   packed layout.
 */
#include <algorithm>
#include <string>
#include <vector>

#include "../ir/build.h"
#include "layout_guards.h"
#include "pool_attrs.h"

namespace tvm_fixes {
namespace {

/*! \brief Whether a layout splits only the channel axis of `names`. */
bool SplitsChannels(const String& names, const std::string& layout) {
  const std::vector<LayoutAxis> axes = AxesOf(layout);
  return std::all_of(axes.begin(), axes.end(), [&](const LayoutAxis& axis) {
    return axis.factor == 0 || names.at(axis.primal()) == 'C';
  });
}

ObjectRef Pool(const CallView& call, const VarLayouts& var_layouts) {
  const Object* attrs = call.attrs().get();
  const auto type = std::find_if(std::begin(pool_attrs), std::end(pool_attrs),
                                 [&](const auto& node) { return node.IsInstance(attrs); });
  auto layout = LayoutOf(call.args()[0], var_layouts);
  if (type == std::end(pool_attrs) || !layout) return ObjectRef(nullptr);
  const String& names = type->layout(attrs);
  const String& out_names = type->out_layout(attrs);
  if (IsPacked(names) || IsPacked(out_names) || names.size() != PrimalRank(*layout)) {
    return RestoreLayouts(call);
  }
  if (!IsPacked(*layout)) return ObjectRef(nullptr);
  if (names != out_names || !SplitsChannels(names, *layout)) return RestoreLayouts(call);
  const String applied(ApplyLayout(names, *layout));
  return FollowData(call, *layout, *layout,
                    WithFields(call.attrs(), {{"layout", applied}, {"out_layout", applied}}));
}

/*! \brief The attributes of a resize, and the plain layouts that have a lowering. */
struct Resize {
  const LayoutAttrsNode& type;
  const char* channels_first;
  const char* channels_last;
};

ObjectRef FollowResize(const CallView& call, const VarLayouts& var_layouts, const Resize& resize) {
  auto layout = LayoutOf(call.args()[0], var_layouts);
  if (!resize.type.IsInstance(call.attrs().get())) return ObjectRef(nullptr);
  const String& names = resize.type.layout(call.attrs().get());
  if (!layout || IsPacked(names) || names.size() != PrimalRank(*layout))
    return RestoreLayouts(call);
  const std::string applied = ApplyLayout(names, *layout);
  if (applied == resize.channels_first || applied == resize.channels_last) {
    return ObjectRef(nullptr);
  }
  const bool has_code = applied.rfind(resize.channels_first, 0) == 0 && applied.back() == 'c';
  if (!has_code) return RestoreLayouts(call);
  return FollowData(call, *layout, *layout,
                    WithFields(call.attrs(), {{"layout", String(applied)}}));
}

ObjectRef Resize2D(const CallView& call, const VarLayouts& var_layouts) {
  return FollowResize(call, var_layouts, {resize2d_attrs, "NCHW", "NHWC"});
}

ObjectRef Resize3D(const CallView& call, const VarLayouts& var_layouts) {
  return FollowResize(call, var_layouts, {resize3d_attrs, "NCDHW", "NDHWC"});
}

LayoutGuard pool_guards[] = {
    {"relax.nn.adaptive_avg_pool1d", Pool}, {"relax.nn.adaptive_avg_pool2d", Pool},
    {"relax.nn.adaptive_avg_pool3d", Pool}, {"relax.nn.avg_pool1d", Pool},
    {"relax.nn.avg_pool2d", Pool},          {"relax.nn.avg_pool3d", Pool},
    {"relax.nn.max_pool1d", Pool},          {"relax.nn.max_pool2d", Pool},
    {"relax.nn.max_pool3d", Pool},          {"relax.image.resize2d", Resize2D},
    {"relax.image.resize3d", Resize3D},
};

}  // namespace
}  // namespace tvm_fixes
