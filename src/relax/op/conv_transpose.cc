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
 * \file src/relax/op/conv_transpose.cc
 * \brief Type and layouts of relax.nn.conv2d_transpose.
 *
 * Upstream: #18629 and #17968 (layouts), #19842 (dilation). TVM: seen in 0.27.
 *
 * Layouts. Trigger: ConvertLayout to a packed layout, or of a model in which a packed value
 * reaches a transposed convolution that is not listed. Symptom: "Layouts must have the same
 * size". Mechanism: TVM compares the primal rank of the layout asked for with the rank of the
 * present one, so that 4 equals 4 although the packed layout has five axes, and then permutes
 * four axes like five. Here, what is no reordering of the four axes leaves the call in a plain
 * layout.
 *
 * Type. Trigger: stride <= output_padding < dilation, which PyTorch and ONNX allow. Symptom: a
 * ValueError. Mechanism: the rule asks for output_padding < stride, where the bound that keeps an
 * output element within reach of an input element is the larger of stride and dilation.
 *
 * Removal: delete this file once its probes pass on the oldest TVM that is supported.
 */
#include <algorithm>
#include <string>

#include "../ir/build.h"
#include "infer_layout.h"
#include "op_attr.h"

namespace tvm_fixes {
namespace {

constexpr const char* kOp = "relax.nn.conv2d_transpose";
constexpr const char* kInferLayoutFix = "conv2d-transpose-infer-layout";
constexpr const char* kOutputPaddingFix = "conv2d-transpose-output-padding";

StockOpAttr stock_infer_layout(kOp, "FRelaxInferLayout");
StockOpAttr stock_infer_type(kOp, "FInferType");

std::string Text(const Array<int64_t>& values) {
  std::string text;
  for (int64_t value : values) text += (text.empty() ? "[" : ", ") + std::to_string(value);
  return text + "]";
}

/*! \brief Layouts of data, kernel and result: by names of axes (NCHW), or relative (ABCD). */
struct Layouts {
  std::string data;
  std::string kernel;
  std::string out;
};

/*! \brief The layouts that the user asks for. \throws ValueError if they are not two or three. */
std::optional<Layouts> Desired(const DesiredLayouts& desired_layouts) {
  auto it = desired_layouts.find(kOp);
  if (it == desired_layouts.end()) return std::nullopt;
  const Array<String> layouts = (*it).second;
  if (layouts.size() != 2 && layouts.size() != 3) {
    TVM_FFI_THROW(ValueError) << kOp << ": expected two or three desired layouts (data, kernel "
                              << "and perhaps out), got " << layouts.size();
  }
  return Layouts{layouts[0], layouts[1], layouts.size() == 3 ? layouts[2] : layouts[0]};
}

/*! \brief Follow the user where all three layouts are reorderings of the present axes. */
std::optional<Layouts> FollowDesired(const Layouts& present, const Layouts& desired) {
  auto data = RelativeLayout(present.data, desired.data);
  auto kernel = RelativeLayout(present.kernel, desired.kernel);
  auto out = RelativeLayout(present.out, desired.out);
  if (!data || !kernel || !out) return std::nullopt;
  return Layouts{*data, *kernel, *out};
}

/*! \brief Take data and kernel as they come, unless their axes are split. */
Layouts FollowInputs(const Layouts& present, const CallView& call, const VarLayouts& var_layouts) {
  auto follow = [&](const ObjectRef& arg, size_t ndim) {
    auto layout = LayoutOf(arg, var_layouts);
    return layout && IsPermutation(*layout, ndim) ? *layout : InitialLayout(ndim);
  };
  const size_t ndim = present.data.size();
  const std::string data = follow(call.args()[0], ndim);
  const bool out_can_follow = present.out.size() == ndim;
  return {data, follow(call.args()[1], present.kernel.size()),
          out_can_follow ? data : InitialLayout(present.out.size())};
}

/*! \brief Whether the axes are named by capital letters alone, so that none is split. */
bool IsPlain(const std::string& names) {
  return std::all_of(names.begin(), names.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

ObjectRef InferLayout(const ObjectRef& call_ref, const DesiredLayouts& desired_layouts,
                      const VarLayouts& var_layouts) {
  auto call = As<CallView>(call_ref);
  const NodeLayout& attrs_type = nodes.conv2d_transpose_attrs;
  const bool usable =
      call && attrs_type.IsInstance(call->attrs().get()) && call->args().size() == 2;
  if (!usable || !IsEnabled(kInferLayoutFix)) {
    return stock_infer_layout(call_ref, desired_layouts, var_layouts);
  }
  NoteUse(kInferLayoutFix);
  const Object* attrs = call->attrs().get();
  const Layouts present{nodes.conv2d_transpose_attrs.data_layout(attrs),
                        nodes.conv2d_transpose_attrs.kernel_layout(attrs),
                        nodes.conv2d_transpose_attrs.out_layout(attrs)};
  if (!IsPlain(present.data) || !IsPlain(present.kernel) || !IsPlain(present.out)) {
    return MakeInferLayoutOutput(
        {InitialLayoutOf(call->args()[0]), InitialLayoutOf(call->args()[1])},
        {InitialLayoutOf(call_ref)}, call->attrs());
  }
  std::optional<Layouts> decision;
  if (auto desired = Desired(desired_layouts)) decision = FollowDesired(present, *desired);
  if (!decision) decision = FollowInputs(present, *call, var_layouts);
  const ObjectRef new_attrs = WithFields(
      call->attrs(), {{"data_layout", String(ApplyLayout(present.data, decision->data))},
                      {"kernel_layout", String(ApplyLayout(present.kernel, decision->kernel))},
                      {"out_layout", String(ApplyLayout(present.out, decision->out))}});
  return MakeInferLayoutOutput({decision->data, decision->kernel}, {decision->out}, new_attrs);
}

/*!
 * \brief TVM's rule, with output_padding moved into padding where TVM would refuse it.
 *
 * The extent of the result is (in - 1) * stride - padding + dilation * (kernel - 1) +
 * output_padding + 1: less padding at the end gives what more output_padding does.
 */
ObjectRef InferType(const ObjectRef& call_ref, const ObjectRef& builder) {
  auto stock = [&](const ObjectRef& call) { return stock_infer_type(call, builder); };
  auto call = As<CallView>(call_ref);
  const auto& fields = nodes.conv2d_transpose_attrs;
  if (!call || !fields.IsInstance(call->attrs().get())) return stock(call_ref);
  const Object* attrs = call->attrs().get();
  const Array<int64_t>& output_padding = fields.output_padding(attrs);
  const Array<int64_t>& strides = fields.strides(attrs);
  const Array<int64_t>& dilation = fields.dilation(attrs);
  Array<int64_t> padding = fields.padding(attrs);
  if (output_padding.size() != 2 || strides.size() != 2 || dilation.size() != 2 ||
      padding.size() != 4) {
    return stock(call_ref);
  }
  const bool stock_accepts = output_padding[0] < strides[0] && output_padding[1] < strides[1];
  if (stock_accepts || !IsEnabled(kOutputPaddingFix)) return stock(call_ref);
  for (int axis = 0; axis < 2; ++axis) {
    if (output_padding[axis] >= std::max(strides[axis], dilation[axis])) {
      TVM_FFI_THROW(ValueError) << kOp << ": output_padding " << Text(output_padding)
                                << " must be less than the larger of strides " << Text(strides)
                                << " and dilation " << Text(dilation) << " in each dimension";
    }
    padding.Set(axis + 2, padding[axis + 2] - output_padding[axis]);
  }
  NoteUse(kOutputPaddingFix);
  const ObjectRef moved =
      WithFields(call->attrs(), {{"padding", padding}, {"output_padding", Array<int64_t>{0, 0}}});
  return stock(
      MakeCall(call->op(), call->args(), moved, call->ty_args(), nodes.expr.span(call_ref.get())));
}

TVM_FIXES_INIT_BLOCK() {
  OverrideOpAttr(kOp, "FRelaxInferLayout", Function::FromTyped(InferLayout));
  OverrideOpAttr(kOp, "FInferType", Function::FromTyped(InferType));
}

}  // namespace
}  // namespace tvm_fixes
