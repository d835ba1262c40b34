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
 * \file src/relay/op/nn_conv.cc
 * \brief Convolutions.
 */
#include "nn_util.h"

namespace tvm_fixes::relay {
namespace {

int64_t Groups(const InferContext& context) {
  int64_t groups = context.Int("groups");
  if (groups < 1) context.FailAttr("groups", "positive int");
  return groups;
}

/*! \brief A dimension divided by the groups, which must divide it. */
Dim PerGroup(const InferContext& context, const Dim& dim, int64_t groups, const char* what) {
  std::optional<int64_t> extent = StaticDim(dim);
  if (!extent) return groups == 1 ? dim : AnyDim();
  if (*extent % groups != 0) {
    context.Fail("groups = " + std::to_string(groups) + " does not divide the " +
                 std::to_string(*extent) + " " + what);
  }
  return *extent / groups;
}

bool IsDepthwise(const Shape& data, const Shape& weight, int64_t groups) {
  return groups > 1 && StaticDim(data[1]) == groups && StaticDim(weight[0]) == groups;
}

/*! \brief The shape of the weights by the attributes, as O I and the spatial axes. */
Shape ExpectedWeight(const InferContext& context, const Shape& data, int64_t groups,
                     bool is_depthwise, bool is_grouped, size_t num_axes) {
  Dim channels = context.Attr("channels");
  Dim inputs = PerGroup(context, data[1], groups, "input channels");
  Shape shape;
  if (is_grouped) {
    shape = {int64_t{groups}, PerGroup(context, channels, groups, "channels"), inputs};
  } else if (is_depthwise) {
    shape = {data[1], PerGroup(context, channels, groups, "channels")};
  } else {
    PerGroup(context, channels, groups, "channels");
    shape = {channels, inputs};
  }
  for (int64_t extent : PositiveInts(context, "kernel_size", num_axes)) shape.push_back(extent);
  return shape;
}

/*! \brief Check weights against the attributes that are given; O I and the spatial axes. */
void CheckWeight(const InferContext& context, const Shape& data, const Shape& weight,
                 int64_t groups, size_t num_axes) {
  if (context.Has("kernel_size")) {
    std::vector<int64_t> kernel = PositiveInts(context, "kernel_size", num_axes);
    for (size_t i = 0; i < num_axes; ++i) {
      if (!MayBeEqual(weight[2 + i], kernel[i])) context.FailAttr("kernel_size", "that of input 1");
    }
  }
  if (context.Has("channels") && !MayBeEqual(weight[0], context.Attr("channels"))) {
    context.FailAttr("channels", "the " + DimText(weight[0]) + " of input 1");
  }
  if (!MayBeEqual(weight[1], PerGroup(context, data[1], groups, "input channels"))) {
    context.FailInput(1, "weights for " + DimText(data[1]) + " input channels in " +
                             std::to_string(groups) + " groups");
  }
}

Type ConvRelation(InferContext& context, size_t num_axes, int weight_input) {
  if (!context.IsKnown(0)) return Type();
  TensorType data = context.Tensor(0);
  int64_t groups = Groups(context);
  std::string spatial = SpatialAxes(num_axes);
  Layout data_layout(context, "data_layout", "NC" + spatial);
  std::string kernel_text = context.Str("kernel_layout");
  bool is_grouped = groups > 1 && kernel_text.find('G') != std::string::npos;
  Layout kernel_layout(context, "kernel_layout", (is_grouped ? "GOI" : "OI") + spatial);
  Layout out_layout = OutLayout(context, "NC" + spatial);
  Windows windows(context, num_axes);
  Shape shape = data_layout.ToCanonical(context, 0, data->shape);

  Shape weight;
  if (context.IsKnown(weight_input)) {
    weight = kernel_layout.ToCanonical(context, weight_input, context.Tensor(weight_input)->shape);
  }
  Dim channels;
  size_t first = is_grouped ? 3 : 2;
  if (context.Has("kernel_size") && context.Has("channels")) {
    bool is_depthwise =
        num_axes == 2 && !is_grouped && !weight.empty() && IsDepthwise(shape, weight, groups);
    Shape expected = ExpectedWeight(context, shape, groups, is_depthwise, is_grouped, num_axes);
    ExpectInput(context, weight_input, kernel_layout.FromCanonical(context, expected), data->dtype,
                false);
    weight = expected;
    channels = context.Attr("channels");
  } else {
    if (weight.empty()) return Type();
    if (is_grouped) context.FailAttr("channels", "a value, as kernel_layout has axis G");
    CheckWeight(context, shape, weight, groups, num_axes);
    channels = weight[0];
    PerGroup(context, channels, groups, "channels");
  }
  Shape result = {shape[0], channels};
  for (size_t i = 0; i < num_axes; ++i) {
    result.push_back(WindowCount(context, shape[2 + i], weight[first + i], windows.dilation[i],
                                 windows.padding[i], windows.strides[i]));
  }
  return TensorType(out_layout.FromCanonical(context, result),
                    context.DType("out_dtype", data->dtype));
}

Type Conv1DRelation(InferContext& context) { return ConvRelation(context, 1, 1); }

Type Conv2DRelation(InferContext& context) {
  CheckNotRewritten(context);
  return ConvRelation(context, 2, 1);
}

Type Conv3DRelation(InferContext& context) {
  CheckNotRewritten(context);
  return ConvRelation(context, 3, 1);
}

Type DeformableConv2DRelation(InferContext& context) {
  Type type = ConvRelation(context, 2, 2);
  const auto* result = type.as<TensorTypeObj>();
  if (result == nullptr) return type;
  TensorType data = context.Tensor(0);
  Shape out = OutLayout(context, "NCHW").ToCanonical(context, 0, result->shape);
  Shape weight =
      Layout(context, "kernel_layout", "OIHW").ToCanonical(context, 2, context.Tensor(2)->shape);
  int64_t groups = context.Int("deformable_groups");
  if (groups < 1) context.FailAttr("deformable_groups", "positive int");
  Dim offsets = MultiplyDim(MultiplyDim(weight[2], weight[3]), 2);
  Shape offset = {out[0], MultiplyDim(offsets, groups), out[2], out[3]};
  ExpectInput(context, 1, Layout(context, "data_layout", "NCHW").FromCanonical(context, offset),
              data->dtype);
  return type;
}

/*! \brief channels, which may be given or follow from the weights. */
Type ConvTransposeRelation(InferContext& context, size_t num_axes) {
  if (!context.IsKnown(0)) return Type();
  TensorType data = context.Tensor(0);
  int64_t groups = Groups(context);
  std::string spatial = SpatialAxes(num_axes);
  Layout data_layout(context, "data_layout", "NC" + spatial);
  Layout kernel_layout(context, "kernel_layout", "IO" + spatial);
  Layout out_layout = OutLayout(context, "NC" + spatial);
  Windows windows(context, num_axes);
  std::vector<int64_t> extra = context.Ints("output_padding", num_axes);
  Shape shape = data_layout.ToCanonical(context, 0, data->shape);
  PerGroup(context, shape[1], groups, "input channels");

  Shape weight;
  if (context.Has("kernel_size") && context.Has("channels")) {
    weight = {shape[1], PerGroup(context, context.Attr("channels"), groups, "channels")};
    for (int64_t extent : PositiveInts(context, "kernel_size", num_axes)) weight.push_back(extent);
    ExpectInput(context, 1, kernel_layout.FromCanonical(context, weight), data->dtype, false);
  } else {
    if (!context.IsKnown(1)) return Type();
    weight = kernel_layout.ToCanonical(context, 1, context.Tensor(1)->shape);
    Shape as_conv = weight;
    as_conv.Set(0, MultiplyDim(weight[1], groups));
    as_conv.Set(1, PerGroup(context, weight[0], groups, "input channels"));
    CheckWeight(context, shape, as_conv, groups, num_axes);
  }
  Shape result = {shape[0], MultiplyDim(weight[1], groups)};
  for (size_t i = 0; i < num_axes; ++i) {
    if (extra[i] < 0 || extra[i] >= windows.strides[i]) {
      context.FailAttr("output_padding", "ints of at least 0 and below the strides");
    }
    std::optional<int64_t> extent = StaticDim(shape[2 + i]);
    std::optional<int64_t> kernel = StaticDim(weight[2 + i]);
    if (!extent || !kernel) {
      result.push_back(AnyDim());
      continue;
    }
    Dim length = AddDim(MultiplyDim(*extent - 1, windows.strides[i]),
                        MultiplyDim(*kernel - 1, windows.dilation[i]));
    length = AddDim(length, 1 + extra[i] - windows.padding[i]);
    if (*StaticDim(length) < 0) context.Fail("a dimension of the result is negative");
    result.push_back(length);
  }
  return TensorType(out_layout.FromCanonical(context, result),
                    context.DType("out_dtype", data->dtype));
}

std::vector<AttrField> ConvAttrs(size_t num_axes, std::initializer_list<int64_t> ones,
                                 std::initializer_list<int64_t> padding) {
  std::string spatial = SpatialAxes(num_axes);
  std::vector<AttrField> fields = {
      IntArrayAttr("strides", ones),
      IntArrayAttr("padding", padding),
      IntArrayAttr("dilation", ones),
      IntAttr("groups", 1),
      OptionalAttr("channels", AttrKind::kInt),
      OptionalAttr("kernel_size", AttrKind::kIntArray),
      StringAttr("data_layout", ("NC" + spatial).c_str()),
      StringAttr("kernel_layout", ("OI" + spatial).c_str()),
      StringAttr("out_layout", ""),
      DTypeAttr("out_dtype"),
  };
  if (num_axes > 1) {
    fields.push_back(StringAttr("auto_scheduler_rewritten_layout", ""));
    fields.push_back(OptionalAttr("meta_schedule_original_shape", AttrKind::kIntArray));
  }
  return fields;
}

std::vector<AttrField> ConvTransposeAttrs(size_t num_axes, std::initializer_list<int64_t> ones,
                                          std::initializer_list<int64_t> zeros) {
  std::string spatial = SpatialAxes(num_axes);
  return {
      OptionalAttr("channels", AttrKind::kInt),
      OptionalAttr("kernel_size", AttrKind::kIntArray),
      IntArrayAttr("strides", ones),
      IntArrayAttr("output_padding", zeros),
      IntArrayAttr("padding", zeros),
      IntArrayAttr("dilation", ones),
      IntAttr("groups", 1),
      StringAttr("data_layout", ("NC" + spatial).c_str()),
      StringAttr("kernel_layout", ("IO" + spatial).c_str()),
      StringAttr("out_layout", ""),
      DTypeAttr("out_dtype"),
  };
}

Type Conv1DTransposeRelation(InferContext& context) { return ConvTransposeRelation(context, 1); }
Type Conv2DTransposeRelation(InferContext& context) { return ConvTransposeRelation(context, 2); }
Type Conv3DTransposeRelation(InferContext& context) { return ConvTransposeRelation(context, 3); }

RELAY_OP("nn.conv1d")
    .Inputs({"data", "weight"})
    .Attrs("relay.attrs.Conv1DAttrs", ConvAttrs(1, {1}, {0, 0}))
    .InfersInputs()
    .Relation(Conv1DRelation);

RELAY_OP("nn.conv2d")
    .Inputs({"data", "weight"})
    .Attrs("relay.attrs.Conv2DAttrs", ConvAttrs(2, {1, 1}, {0, 0}))
    .InfersInputs()
    .Relation(Conv2DRelation);

RELAY_OP("nn.contrib_conv2d_NCHWc")
    .Inputs({"data", "weight"})
    .Attrs("relay.attrs.Conv2DAttrs", ConvAttrs(2, {1, 1}, {0, 0}))
    .InfersInputs()
    .Relation(Conv2DRelation);

RELAY_OP("nn.contrib_depthwise_conv2d_NCHWc")
    .Inputs({"data", "weight"})
    .Attrs("relay.attrs.Conv2DAttrs", ConvAttrs(2, {1, 1}, {0, 0}))
    .InfersInputs()
    .Relation(Conv2DRelation);

RELAY_OP("nn.conv3d")
    .Inputs({"data", "weight"})
    .Attrs("relay.attrs.Conv3DAttrs", ConvAttrs(3, {1, 1, 1}, {0, 0, 0}))
    .InfersInputs()
    .Relation(Conv3DRelation);

RELAY_OP("nn.conv1d_transpose")
    .Inputs({"data", "weight"})
    .Attrs("relay.attrs.Conv1DTransposeAttrs", ConvTransposeAttrs(1, {1}, {0}))
    .InfersInputs()
    .Relation(Conv1DTransposeRelation);

RELAY_OP("nn.conv2d_transpose")
    .Inputs({"data", "weight"})
    .Attrs("relay.attrs.Conv2DTransposeAttrs", ConvTransposeAttrs(2, {1, 1}, {0, 0}))
    .InfersInputs()
    .Relation(Conv2DTransposeRelation);

RELAY_OP("nn.conv3d_transpose")
    .Inputs({"data", "weight"})
    .Attrs("relay.attrs.Conv3DTransposeAttrs", ConvTransposeAttrs(3, {1, 1, 1}, {0, 0, 0}))
    .InfersInputs()
    .Relation(Conv3DTransposeRelation);

RELAY_OP("nn.deformable_conv2d")
    .Inputs({"data", "offset", "weight"})
    .Attrs("relay.attrs.DeformableConv2DAttrs",
           {IntArrayAttr("strides", {1, 1}), IntArrayAttr("padding", {0, 0}),
            IntArrayAttr("dilation", {1, 1}), IntAttr("deformable_groups", 1), IntAttr("groups", 1),
            OptionalAttr("channels", AttrKind::kInt),
            OptionalAttr("kernel_size", AttrKind::kIntArray), StringAttr("data_layout", "NCHW"),
            StringAttr("kernel_layout", "OIHW"), StringAttr("out_layout", ""),
            DTypeAttr("out_dtype")})
    .InfersInputs()
    .Relation(DeformableConv2DRelation);

}  // namespace
}  // namespace tvm_fixes::relay
