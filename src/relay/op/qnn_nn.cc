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
 * \file src/relay/op/qnn_nn.cc
 * \brief The convolutions, matrix products and pooling of the QNN dialect.
 */
#include <algorithm>
#include <string>

#include "qnn.h"
#include "registry.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The place of each letter of `order` in a layout, which must have exactly these. */
std::vector<size_t> LayoutPlaces(InferContext& context, const char* attr, const std::string& layout,
                                 const std::string& order) {
  std::vector<size_t> places;
  for (char letter : order) {
    size_t place = layout.find(letter);
    if (place == std::string::npos || layout.size() != order.size()) {
      context.FailAttr(attr, "an order of the letters " + order);
    }
    places.push_back(place);
  }
  return places;
}

Shape Ordered(const Shape& shape, const std::vector<size_t>& places) {
  std::vector<Dim> dims;
  for (size_t place : places) dims.push_back(shape[place]);
  return Shape(dims.begin(), dims.end());
}

/*! \brief The reverse of Ordered. */
Shape Placed(const std::vector<Dim>& dims, const std::vector<size_t>& places) {
  std::vector<Dim> shape(dims.size());
  for (size_t i = 0; i < places.size(); ++i) shape[places[i]] = dims[i];
  return Shape(shape.begin(), shape.end());
}

/*! \brief Padding as top, left, bottom, right. */
std::vector<int64_t> Padding4(InferContext& context) {
  std::vector<int64_t> padding = context.Ints("padding");
  if (padding.size() == 1) padding.assign(4, padding[0]);
  if (padding.size() == 2) padding = {padding[0], padding[1], padding[0], padding[1]};
  bool negative = std::any_of(padding.begin(), padding.end(), [](int64_t p) { return p < 0; });
  if (padding.size() != 4 || negative) context.FailAttr("padding", "1, 2 or 4 ints from 0");
  return padding;
}

std::vector<int64_t> Positive(InferContext& context, const char* attr) {
  std::vector<int64_t> values = context.Ints(attr, 2);
  if (std::min(values[0], values[1]) < 1) context.FailAttr(attr, "2 ints above 0");
  return values;
}

/*! \brief The extent of a sliding window's result; `?` stays `?`. */
Dim WindowExtent(InferContext& context, const Dim& extent, const Dim& kernel, int64_t padding,
                 int64_t dilation, int64_t stride, bool ceil_mode = false) {
  std::optional<int64_t> in = StaticDim(extent), size = StaticDim(kernel);
  if (!in || !size) return AnyDim();
  int64_t room = *in + padding - ((*size - 1) * dilation + 1);
  if (room < 0) context.Fail("the window is larger than the padded input");
  return (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
}

Dim DivideDim(InferContext& context, const Dim& dim, int64_t divisor) {
  std::optional<int64_t> extent = StaticDim(dim);
  if (!extent) return AnyDim();
  if (*extent % divisor != 0) context.FailAttr("groups", "a divisor of the number of channels");
  return *extent / divisor;
}

std::string OutLayout(InferContext& context) {
  std::string layout = context.Str("out_layout");
  return layout.empty() ? context.Str("data_layout") : layout;
}

int64_t Groups(InferContext& context) {
  int64_t groups = context.Int("groups");
  if (groups < 1) context.FailAttr("groups", "an int above 0");
  return groups;
}

/*! \brief Check an attribute that repeats what the shapes say. */
void CheckRepeated(InferContext& context, const char* attr, int64_t value, const Dim& dim) {
  if (!MayBeEqual(value, dim)) context.FailAttr(attr, DimText(dim) + ", as the weight has");
}

void CheckKernel(InferContext& context, const Dim& channels, const Dim& height, const Dim& width) {
  if (context.Has("channels")) {
    CheckRepeated(context, "channels", context.Int("channels"), channels);
  }
  if (!context.Has("kernel_size")) return;
  std::vector<int64_t> size = context.Ints("kernel_size");
  if (size.empty()) return;
  if (size.size() == 1) size.push_back(size[0]);
  CheckRepeated(context, "kernel_size", size[0], height);
  CheckRepeated(context, "kernel_size", size[1], width);
}

Type QuantizedConv2DRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 4);
  TensorType weight = context.Tensor(1, 4);
  CheckInputDType(context, 0, {"int8", "uint8", "int16"});
  CheckInputDType(context, 1, {"int8", "uint8", "int16"});
  CheckScalarParameter(context, 2, kInt32);
  CheckScalarParameter(context, 4, kFloat32);
  auto places = LayoutPlaces(context, "data_layout", context.Str("data_layout"), "NCHW");
  Shape nchw = Ordered(data->shape, places);
  Shape oihw = Ordered(
      weight->shape, LayoutPlaces(context, "kernel_layout", context.Str("kernel_layout"), "OIHW"));
  int64_t groups = Groups(context);
  Dim channels = oihw[0];
  Dim per_group = DivideDim(context, nchw[1], groups);
  // The weight of a depthwise convolution has the axes channel and multiplier.
  if (groups > 1 && StaticDim(nchw[1]) == groups && StaticDim(oihw[0]) == groups) {
    channels = MultiplyDim(oihw[0], oihw[1]);
  } else if (!MayBeEqual(per_group, oihw[1])) {
    context.FailInput(1, "a weight for " + DimText(per_group) + " input channels per group");
  }
  DivideDim(context, channels, groups);
  CheckKernel(context, channels, oihw[2], oihw[3]);
  CheckParameter(context, 3, kInt32, channels);
  CheckParameter(context, 5, kFloat32, channels);
  std::vector<int64_t> padding = Padding4(context);
  std::vector<int64_t> strides = Positive(context, "strides");
  std::vector<int64_t> dilation = Positive(context, "dilation");
  std::vector<Dim> dims{nchw[0], channels};
  for (int i = 0; i < 2; ++i) {
    dims.push_back(WindowExtent(context, nchw[2 + i], oihw[2 + i], padding[i] + padding[i + 2],
                                dilation[i], strides[i]));
  }
  DLDataType dtype = CheckedDType(context, "out_dtype", {"int16", "int32", "int64"});
  auto out_places = LayoutPlaces(context, "out_layout", OutLayout(context), "NCHW");
  return TensorType(Placed(dims, out_places), dtype);
}

Type QuantizedConv2DTransposeRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 4);
  TensorType weight = context.Tensor(1, 4);
  CheckInputDType(context, 0, {"int8", "uint8", "int16", "uint16"});
  CheckInputDType(context, 1, {"int8", "uint8"});
  CheckParameter(context, 2, kInt32, int64_t{1});
  CheckParameter(context, 4, kFloat32, int64_t{1});
  Shape nchw = Ordered(data->shape,
                       LayoutPlaces(context, "data_layout", context.Str("data_layout"), "NCHW"));
  Shape iohw = Ordered(
      weight->shape, LayoutPlaces(context, "kernel_layout", context.Str("kernel_layout"), "IOHW"));
  int64_t groups = Groups(context);
  DivideDim(context, nchw[1], groups);
  if (!MayBeEqual(nchw[1], iohw[0])) {
    context.FailInput(1, "a weight for " + DimText(nchw[1]) + " input channels");
  }
  Dim channels = MultiplyDim(iohw[1], groups);
  CheckKernel(context, channels, iohw[2], iohw[3]);
  CheckParameter(context, 3, kInt32, weight->shape[1]);
  CheckParameter(context, 5, kFloat32, channels);
  std::vector<int64_t> padding = Padding4(context);
  std::vector<int64_t> strides = Positive(context, "strides");
  std::vector<int64_t> dilation = Positive(context, "dilation");
  std::vector<int64_t> extra = context.Ints("output_padding", 2);
  std::vector<Dim> dims{nchw[0], channels};
  for (int i = 0; i < 2; ++i) {
    std::optional<int64_t> in = StaticDim(nchw[2 + i]), size = StaticDim(iohw[2 + i]);
    if (!in || !size) {
      dims.push_back(AnyDim());
      continue;
    }
    int64_t extent = strides[i] * (*in - 1) + (*size - 1) * dilation[i] + 1 - padding[i] -
                     padding[i + 2] + extra[i];
    if (extent < 0) context.FailAttr("padding", "at most the extent of the result");
    dims.push_back(extent);
  }
  DLDataType dtype = CheckedDType(context, "out_dtype", {"int16", "int32", "int64"});
  auto out_places = LayoutPlaces(context, "out_layout", OutLayout(context), "NCHW");
  return TensorType(Placed(dims, out_places), dtype);
}

Type QuantizedDenseRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType weight = context.Tensor(1, 2);
  if (data->ndim() == 0) context.FailInput(0, "a tensor of rank at least 1");
  CheckInputDType(context, 0, {"int8", "uint8", "int16", "uint16"});
  CheckInputDType(context, 1, {"int8", "uint8"});
  CheckScalarParameter(context, 2, kInt32);
  CheckScalarParameter(context, 4, kFloat32);
  Dim units = weight->shape[0];
  if (context.Has("units")) CheckRepeated(context, "units", context.Int("units"), units);
  CheckParameter(context, 3, kInt32, units);
  CheckParameter(context, 5, kFloat32, units);
  std::vector<Dim> shape(data->shape.begin(), data->shape.end());
  if (!MayBeEqual(shape.back(), weight->shape[1])) {
    context.FailInput(1, "a weight of (units, " + DimText(shape.back()) + ")");
  }
  shape.back() = units;
  return TensorType(Shape(shape.begin(), shape.end()),
                    CheckedDType(context, "out_dtype", {"int32", "int64"}));
}

Type QuantizedBatchMatmulRelation(InferContext& context) {
  TensorType x = context.Tensor(0, 3);
  TensorType y = context.Tensor(1, 3);
  for (int i = 0; i < 2; ++i) {
    CheckInputDType(context, i, {"int8", "uint8"});
    CheckScalarParameter(context, 2 + i, kInt32);
    CheckScalarParameter(context, 4 + i, kFloat32);
  }
  if (context.Bool("transpose_a")) context.FailAttr("transpose_a", "False");
  if (!context.Bool("transpose_b")) context.FailAttr("transpose_b", "True");
  if (!MayBeEqual(x->shape[2], y->shape[2])) {
    context.FailInput(1, "a tensor of (batch, columns, " + DimText(x->shape[2]) + ")");
  }
  Shape batch = context.Broadcast(Shape{x->shape[0]}, Shape{y->shape[0]});
  return TensorType(Shape{batch[0], x->shape[1], y->shape[1]},
                    CheckedDType(context, "out_dtype", {"int32"}));
}

Type QuantizedAvgPool2DRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 4);
  CheckInputDType(context, 0, {"int8", "uint8"});
  CheckScalarParameters(context, 1, 4);
  auto places = LayoutPlaces(context, "layout", context.Str("layout"), "NCHW");
  Shape nchw = Ordered(data->shape, places);
  std::vector<int64_t> padding = Padding4(context);
  std::vector<int64_t> strides = Positive(context, "strides");
  std::vector<int64_t> dilation = Positive(context, "dilation");
  std::vector<int64_t> size = Positive(context, "pool_size");
  std::string out_layout = context.Str("out_layout");
  if (!out_layout.empty() && out_layout != context.Str("layout")) {
    context.FailAttr("out_layout", "the layout of the input");
  }
  std::vector<Dim> dims{nchw[0], nchw[1]};
  for (int i = 0; i < 2; ++i) {
    dims.push_back(WindowExtent(context, nchw[2 + i], size[i], padding[i] + padding[i + 2],
                                dilation[i], strides[i], context.Bool("ceil_mode")));
  }
  return TensorType(Placed(dims, places), data->dtype);
}

/*! \brief The inputs of the operators that have a weight. */
std::vector<std::string> WeightedInputs(const char* lhs, const char* rhs) {
  std::string a = lhs, b = rhs;
  return {a == "data" ? "data" : a,
          b,
          (a == "data" ? "input" : a) + "_zero_point",
          b + "_zero_point",
          (a == "data" ? "input" : a) + "_scale",
          b + "_scale"};
}

RELAY_OP("qnn.conv2d")
    .Inputs(WeightedInputs("data", "weight"))
    .Attrs("relay.attrs.Conv2DAttrs",
           {IntArrayAttr("strides", {1, 1}), IntArrayAttr("padding", {0, 0}),
            IntArrayAttr("dilation", {1, 1}), IntAttr("groups", 1),
            OptionalAttr("channels", AttrKind::kInt),
            OptionalAttr("kernel_size", AttrKind::kIntArray), StringAttr("data_layout", "NCHW"),
            StringAttr("kernel_layout", "OIHW"), StringAttr("out_layout", ""),
            StringAttr("auto_scheduler_rewritten_layout", ""),
            OptionalAttr("meta_schedule_original_shape", AttrKind::kIntArray),
            DTypeAttr("out_dtype")})
    .Relation(QuantizedConv2DRelation);

RELAY_OP("qnn.conv2d_transpose")
    .Inputs(WeightedInputs("data", "weight"))
    .Attrs("relay.attrs.Conv2DTransposeAttrs",
           {OptionalAttr("channels", AttrKind::kInt),
            OptionalAttr("kernel_size", AttrKind::kIntArray), IntArrayAttr("strides", {1, 1}),
            IntArrayAttr("output_padding", {0, 0}), IntArrayAttr("padding", {0, 0}),
            IntArrayAttr("dilation", {1, 1}), IntAttr("groups", 1),
            StringAttr("data_layout", "NCHW"), StringAttr("kernel_layout", "IOHW"),
            StringAttr("out_layout", ""), DTypeAttr("out_dtype")})
    .Relation(QuantizedConv2DTransposeRelation);

RELAY_OP("qnn.dense")
    .Inputs(WeightedInputs("data", "weight"))
    .Attrs("relay.attrs.DenseAttrs",
           {OptionalAttr("units", AttrKind::kInt),
            StringAttr("auto_scheduler_rewritten_layout", ""),
            OptionalAttr("meta_schedule_original_shape", AttrKind::kIntArray),
            DTypeAttr("out_dtype")})
    .Relation(QuantizedDenseRelation);

RELAY_OP("qnn.batch_matmul")
    .Inputs(WeightedInputs("x", "y"))
    .Attrs("relay.attrs.BatchMatmulAttrs",
           {DTypeAttr("out_dtype"), BoolAttr("transpose_a", false), BoolAttr("transpose_b", false),
            StringAttr("auto_scheduler_rewritten_layout", ""),
            OptionalAttr("meta_schedule_original_shape", AttrKind::kIntArray)})
    .Relation(QuantizedBatchMatmulRelation);

RELAY_OP("qnn.avg_pool2d")
    .Inputs({"data", "input_scale", "input_zero_point", "output_scale", "output_zero_point"})
    .Attrs("relay.attrs.AvgPool2DAttrs",
           {RequiredAttr("pool_size", AttrKind::kIntArray), IntArrayAttr("strides", {1, 1}),
            IntArrayAttr("dilation", {1, 1}), IntArrayAttr("padding", {0, 0}),
            StringAttr("layout", "NCHW"), StringAttr("out_layout", ""),
            BoolAttr("ceil_mode", false), BoolAttr("count_include_pad", false)})
    .Relation(QuantizedAvgPool2DRelation);

RELAY_OP("qnn.contrib_dense_pack")
    .Inputs(WeightedInputs("data", "weight"))
    .Attrs("relay.attrs.DensePackAttrs",
           {OptionalAttr("units", AttrKind::kInt), DTypeAttr("out_dtype"),
            StringAttr("weight_layout", "NC")})
    .Rejected("its weight is packed for Hexagon, and Relay lowers it for no other target");

}  // namespace
}  // namespace tvm_fixes::relay
