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
 * \brief Type inference of relax.nn.conv1d_transpose, conv2d_transpose and conv3d_transpose.
 *
 * Trigger: stride <= output_padding < dilation, which PyTorch and ONNX allow. Mechanism: the rules
 * require output_padding < stride, but the right bound is the larger of stride and dilation.
 */
#include <algorithm>
#include <functional>
#include <string>

#include "../ir/build.h"
#include "conv_attrs.h"
#include "op_attr.h"

namespace tvm_fixes {
namespace {

constexpr const char* kOutputPaddingFix = "conv-transpose-output-padding";

/*! \brief TVM's rules, by the number of spatial axes, minus one. */
StockOpAttr stock_conv_transpose_rules[] = {{"relax.nn.conv1d_transpose", kInferType},
                                            {"relax.nn.conv2d_transpose", kInferType},
                                            {"relax.nn.conv3d_transpose", kInferType}};

std::string Text(const Array<int64_t>& values) {
  std::string text;
  for (int64_t value : values) text += (text.empty() ? "[" : ", ") + std::to_string(value);
  return text + "]";
}

/*!
 * \brief TVM's rule, with output_padding moved into padding where TVM would reject it.
 *
 * The extent of the result is (in - 1) * stride - padding + dilation * (kernel - 1) +
 * output_padding + 1: reducing the padding at the end is the same as increasing output_padding.
 */
ObjectRef InferType(size_t spatial_axes, const ObjectRef& call_ref, const ObjectRef& builder) {
  const StockOpAttr& rule = stock_conv_transpose_rules[spatial_axes - 1];
  auto stock = [&](const ObjectRef& call) { return rule(call, builder); };
  auto call = As<CallView>(call_ref);
  const ConvTransposeAttrsNode& fields = conv_transpose_attrs[spatial_axes - 1];
  if (!call || !fields.IsInstance(call->attrs().get())) return stock(call_ref);
  const Object* attrs = call->attrs().get();
  const Array<int64_t>& output_padding = fields.output_padding(attrs);
  const Array<int64_t>& strides = fields.strides(attrs);
  const Array<int64_t>& dilation = fields.dilation(attrs);
  Array<int64_t> padding = fields.padding(attrs);
  if (output_padding.size() != spatial_axes || strides.size() != spatial_axes ||
      dilation.size() != spatial_axes || padding.size() != 2 * spatial_axes) {
    return stock(call_ref);
  }
  const bool stock_accepts =
      std::equal(output_padding.begin(), output_padding.end(), strides.begin(), std::less<>());
  if (stock_accepts || !IsEnabled(kOutputPaddingFix)) return stock(call_ref);
  Array<int64_t> moved_output_padding;
  for (size_t axis = 0; axis < spatial_axes; ++axis) {
    if (output_padding[axis] >= std::max(strides[axis], dilation[axis])) {
      TVM_FFI_THROW(ValueError) << rule.op_name() << ": output_padding " << Text(output_padding)
                                << " must be less than the larger of strides " << Text(strides)
                                << " and dilation " << Text(dilation) << " in each dimension";
    }
    const size_t end = axis + spatial_axes;
    padding.Set(end, padding[end] - output_padding[axis]);
    moved_output_padding.push_back(0);
  }
  NoteUse(kOutputPaddingFix, call_ref);
  const ObjectRef moved =
      WithFields(call->attrs(), {{"padding", padding}, {"output_padding", moved_output_padding}});
  return stock(
      MakeCall(call->op(), call->args(), moved, call->ty_args(), nodes.expr.span(call_ref.get())));
}

TVM_FIXES_INIT_BLOCK() {
  for (size_t spatial_axes = 1; spatial_axes <= 3; ++spatial_axes) {
    auto infer_type = [spatial_axes](const ObjectRef& call, const ObjectRef& builder) {
      return InferType(spatial_axes, call, builder);
    };
    OverrideOpAttr(stock_conv_transpose_rules[spatial_axes - 1].op_name(), kInferType,
                   Function::FromTyped(infer_type));
  }
}

}  // namespace
}  // namespace tvm_fixes
