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
 * \file src/relax/op/squeeze.cc
 * \brief Layout rule of relax.squeeze.
 *
 * Trigger: ConvertLayout of a squeeze with a negative axis, common in PyTorch's pooling and
 * attention. Mechanism: the rule indexes a string with the negative axis.
 */
#include <algorithm>
#include <string>
#include <vector>

#include "../ir/build.h"
#include "infer_layout.h"
#include "manipulate_attrs.h"
#include "op_attr.h"

namespace tvm_fixes {
namespace {

constexpr const char* kSqueeze = "relax.squeeze";
constexpr const char* kSqueezeFix = "squeeze-infer-layout";

StockOpAttr stock_squeeze_layout(kSqueeze, kInferLayout);

/*! \brief Which axes of the argument are removed, or std::nullopt if that is unknown. */
std::optional<std::vector<bool>> RemovedAxes(const CallView& call) {
  auto shape = ShapeOf(call.args()[0]);
  if (!shape) return std::nullopt;
  const auto ndim = static_cast<int64_t>(shape->size());
  std::vector<bool> removed(ndim, false);
  const Array<int64_t>& axes = squeeze_attrs.axis(call.attrs().get());
  if (!axes.defined()) {
    for (int64_t axis = 0; axis < ndim; ++axis) {
      if (!AsInt((*shape)[axis])) return std::nullopt;
      removed[axis] = IsOne((*shape)[axis]);
    }
    return removed;
  }
  for (int64_t axis : axes) {
    const int64_t from_start = NormalizeAxis(axis, ndim);
    if (from_start < 0 || from_start >= ndim) return std::nullopt;
    // As in PyTorch, a literal extent other than 1 is kept.
    removed[from_start] = !AsInt((*shape)[from_start]) || IsOne((*shape)[from_start]);
  }
  return removed;
}

ObjectRef InferSqueezeLayout(const ObjectRef& call_ref, const DesiredLayouts& desired_layouts,
                             const VarLayouts& var_layouts) {
  auto call = As<CallView>(call_ref);
  const bool usable =
      call && call->args().size() == 1 && squeeze_attrs.IsInstance(call->attrs().get());
  if (!usable || !IsEnabled(kSqueezeFix)) {
    return stock_squeeze_layout(call_ref, desired_layouts, var_layouts);
  }
  auto removed = RemovedAxes(*call);
  if (!ChoosesLayouts(kSqueezeFix)) {
    const Array<int64_t>& axes = squeeze_attrs.axis(call->attrs().get());
    const auto is_negative = [](int64_t axis) { return axis < 0; };
    // TVM's rule corrupts memory.
    if (axes.defined() && std::any_of(axes.begin(), axes.end(), is_negative)) {
      return RestoreLayouts(*call);
    }
    return stock_squeeze_layout(call_ref, desired_layouts, var_layouts);
  }
  auto layout = LayoutOf(call->args()[0], var_layouts);
  if (!removed || !layout) return RestoreLayouts(*call);
  Array<int64_t> new_axes;
  std::vector<std::string> becomes(removed->size());
  char next = 'A';
  for (size_t axis = 0; axis < removed->size(); ++axis) {
    if (!(*removed)[axis]) becomes[axis] = next++;
  }
  const std::vector<LayoutAxis> axes = AxesOf(*layout);
  for (size_t position = 0; position < axes.size(); ++position) {
    if ((*removed)[axes[position].primal()]) new_axes.push_back(static_cast<int64_t>(position));
  }
  auto out_layout = RenameAxes(*layout, becomes);
  if (!out_layout) return RestoreLayouts(*call);
  NoteUse(kSqueezeFix, call_ref);
  return FollowData(*call, *layout, *out_layout, WithFields(call->attrs(), {{"axis", new_axes}}));
}

TVM_FIXES_INIT_BLOCK() {
  OverrideOpAttr(kSqueeze, kInferLayout, Function::FromTyped(InferSqueezeLayout));
}

}  // namespace
}  // namespace tvm_fixes
