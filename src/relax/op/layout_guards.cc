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
 * \file src/relax/op/layout_guards.cc
 * \brief Operators that follow layouts in which they then go wrong.
 *
 * TVM: seen in 0.27. Trigger: ConvertLayout of a model in which a converted value reaches one of
 * the operators below. Mechanism: their rules follow whatever layout the data has, and
 *
 * - layer_norm of axes of which the order changes, such as LayerNorm((C, H, W)) in NHWC, reads
 *   scale and offset in their original order: wrong numbers, and reads out of bounds;
 * - repeat without an axis flattens the elements in the order of the layout: wrong numbers;
 * - rms_norm of axes that are then not the last, resize2d and resize3d in another layout than
 *   channels-first or -last, and transposed convolutions that nobody asked to convert have no
 *   lowering: the build fails.
 *
 * Here these keep the original layout.
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

constexpr const char* kFixId = "layout-guards";

/*! \brief Whether an operator is right in a layout of its data. */
using Accepts = bool (*)(const CallView& call, const std::string& layout);

/*! \brief Where `layout` has the given axes of the original layout. */
std::vector<size_t> PositionsOf(const Array<int64_t>& axes, const std::string& layout) {
  std::vector<size_t> positions;
  const auto ndim = static_cast<int64_t>(layout.size());
  for (int64_t axis : axes) {
    positions.push_back(layout.find(static_cast<char>('A' + (axis < 0 ? axis + ndim : axis))));
  }
  return positions;
}

bool LayerNormAccepts(const CallView& call, const std::string& layout) {
  const NodeLayout& type = nodes.layer_norm_attrs;
  if (!type.IsInstance(call.attrs().get())) return false;
  const auto positions = PositionsOf(nodes.layer_norm_attrs.axes(call.attrs().get()), layout);
  return std::is_sorted(positions.begin(), positions.end());
}

bool RMSNormAccepts(const CallView& call, const std::string& layout) {
  const NodeLayout& type = nodes.rms_norm_attrs;
  if (!type.IsInstance(call.attrs().get())) return false;
  const auto positions = PositionsOf(nodes.rms_norm_attrs.axes(call.attrs().get()), layout);
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] != layout.size() - positions.size() + i) return false;
  }
  return true;
}

bool RepeatAccepts(const CallView& call, const std::string& /*layout*/) {
  return nodes.repeat_attrs.IsInstance(call.attrs().get()) &&
         nodes.repeat_attrs.axis(call.attrs().get()) != nullptr;
}

/*! \brief Whether `names`, put in `layout`, is one of the layouts that an operator has code for. */
bool IsOneOf(const String& names, const std::string& layout,
             const std::vector<std::string>& lowered) {
  if (names.size() != layout.size()) return false;
  return std::count(lowered.begin(), lowered.end(), ApplyLayout(names, layout)) != 0;
}

bool Resize2DAccepts(const CallView& call, const std::string& layout) {
  const auto& type = nodes.resize2d_attrs;
  return type.IsInstance(call.attrs().get()) &&
         IsOneOf(type.layout(call.attrs().get()), layout, {"NCHW", "NHWC"});
}

bool Resize3DAccepts(const CallView& call, const std::string& layout) {
  const auto& type = nodes.resize3d_attrs;
  return type.IsInstance(call.attrs().get()) &&
         IsOneOf(type.layout(call.attrs().get()), layout, {"NCDHW", "NDHWC"});
}

bool AcceptsNone(const CallView& /*call*/, const std::string& /*layout*/) { return false; }

/*! \brief TVM's rule where the operator is right, and the original layout elsewhere. */
ObjectRef InferLayout(const StockOpAttr& stock, Accepts accepts, const ObjectRef& call_ref,
                      const DesiredLayouts& desired_layouts, const VarLayouts& var_layouts) {
  auto call = As<CallView>(call_ref);
  const bool listed = desired_layouts.count(stock.op_name()) != 0;
  if (!call || call->args().empty() || listed || !IsEnabled(kFixId)) {
    return stock(call_ref, desired_layouts, var_layouts);
  }
  const ObjectRef& data = call->args()[0];
  auto layout = LayoutOf(data, var_layouts);
  const bool plain = layout && IsPermutation(*layout, layout->size());
  if (layout == InitialLayoutOf(data) || (plain && accepts(*call, *layout))) {
    return stock(call_ref, desired_layouts, var_layouts);
  }
  NoteUse(kFixId);
  std::vector<std::optional<std::string>> inputs;
  for (const ObjectRef& arg : call->args()) {
    if (As<TensorTypeView>(TypeOf(arg))) inputs.push_back(InitialLayoutOf(arg));
  }
  return MakeInferLayoutOutput(inputs, {InitialLayoutOf(call_ref)}, call->attrs());
}

struct Guard {
  StockOpAttr stock;
  Accepts accepts;
};

Guard guards[] = {
    {{"relax.nn.layer_norm", "FRelaxInferLayout"}, LayerNormAccepts},
    {{"relax.nn.rms_norm", "FRelaxInferLayout"}, RMSNormAccepts},
    {{"relax.repeat", "FRelaxInferLayout"}, RepeatAccepts},
    {{"relax.image.resize2d", "FRelaxInferLayout"}, Resize2DAccepts},
    {{"relax.image.resize3d", "FRelaxInferLayout"}, Resize3DAccepts},
    {{"relax.nn.conv1d_transpose", "FRelaxInferLayout"}, AcceptsNone},
    {{"relax.nn.conv3d_transpose", "FRelaxInferLayout"}, AcceptsNone},
};

TVM_FIXES_INIT_BLOCK() {
  for (const Guard& guard : guards) {
    auto infer_layout = [&guard](const ObjectRef& call, const DesiredLayouts& desired_layouts,
                                 const VarLayouts& var_layouts) {
      return InferLayout(guard.stock, guard.accepts, call, desired_layouts, var_layouts);
    };
    OverrideOpAttr(guard.stock.op_name(), guard.stock.key(), Function::FromTyped(infer_layout));
  }
}

}  // namespace
}  // namespace tvm_fixes
