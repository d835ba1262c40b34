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
 * \file src/relay/op/image.cc
 * \brief Resizing, sampling and dilation of images.
 */
#include <algorithm>
#include <string>
#include <vector>

#include "registry.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief Check that a layout has the batch, the channels and these axes, each once. */
void CheckLayout(InferContext& context, const char* attr, const std::string& axes) {
  std::string layout = context.Str(attr);
  bool fits = layout.size() == axes.size();
  for (char axis : axes) fits = fits && layout.find(axis) != std::string::npos;
  if (!fits) context.FailAttr(attr, "an order of the letters " + axes);
}

void CheckChoice(InferContext& context, const char* attr, const std::vector<std::string>& choices) {
  std::string value = context.Str(attr);
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  std::string expected;
  for (const std::string& choice : choices) {
    expected += (expected.empty() ? "" : ", ") + ('"' + choice + '"');
  }
  context.FailAttr(attr, "one of " + expected);
}

/*! \brief The shape with the extents of some axes replaced. */
Shape WithExtents(const TensorType& data, const std::string& layout, const std::string& axes,
                  const Shape& extents) {
  std::vector<Dim> shape(data->shape.begin(), data->shape.end());
  for (size_t i = 0; i < axes.size(); ++i) shape[layout.find(axes[i])] = extents[i];
  return Shape(shape.begin(), shape.end());
}

TypeRelation ResizeRelation(std::string axes) {
  return [axes](InferContext& context) -> Type {
    TensorType data = context.Tensor(0, static_cast<int>(axes.size()) + 2);
    CheckLayout(context, "layout", "NC" + axes);
    CheckChoice(context, "method", {"nearest_neighbor", "linear", "cubic"});
    CheckChoice(context, "coordinate_transformation_mode",
                {"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel",
                 "tf_half_pixel_for_nn", "tf_crop_and_resize"});
    CheckChoice(context, "rounding_method",
                {"", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
    Shape size = context.Dims("size");
    if (size.size() != axes.size()) {
      context.FailAttr("size", std::to_string(axes.size()) + " dimensions");
    }
    return TensorType(WithExtents(data, context.Str("layout"), axes, size),
                      context.DType("out_dtype", data->dtype));
  };
}

std::vector<AttrField> ResizeAttrs(const char* layout) {
  return {OptionalAttr("size", AttrKind::kIntArray),
          OptionalAttr("roi", AttrKind::kFloatArray),
          StringAttr("layout", layout),
          StringAttr("method", "linear"),
          StringAttr("coordinate_transformation_mode", "half_pixel"),
          StringAttr("rounding_method", "round"),
          FloatAttr("cubic_alpha", -0.5),
          IntAttr("cubic_exclude", 0),
          FloatAttr("extrapolation_value", 0.0),
          DTypeAttr("out_dtype")};
}

Type CropAndResizeRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 4);
  TensorType boxes = context.Tensor(1, 2);
  TensorType indices = context.Tensor(2, 1);
  if (!MayBeEqual(boxes->shape[1], int64_t{4})) context.FailInput(1, "a tensor of (boxes, 4)");
  if (!MayBeEqual(boxes->shape[0], indices->shape[0])) {
    context.FailInput(2, "a vector with an index for each box");
  }
  CheckChoice(context, "layout", {"NCHW", "NHWC"});
  CheckChoice(context, "method", {"bilinear", "nearest_neighbor"});
  std::vector<int64_t> size = context.Ints("crop_size", 2);
  Shape extents{boxes->shape[0], size[0], size[1]};
  return TensorType(WithExtents(data, context.Str("layout"), "NHW", extents),
                    context.DType("out_dtype", data->dtype));
}

Type Dilation2DRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 4);
  TensorType weight = context.Tensor(1, 3);
  CheckChoice(context, "data_layout", {"NCHW", "NHWC"});
  std::string layout = context.Str("data_layout");
  CheckChoice(context, "kernel_layout", {layout == "NCHW" ? "IHW" : "HWI"});
  std::string kernel = context.Str("kernel_layout");
  if (!MayBeEqual(data->shape[layout.find('C')], weight->shape[kernel.find('I')])) {
    context.FailInput(1, "a weight with as many channels as the input has");
  }
  std::vector<int64_t> padding = context.Ints("padding");
  if (padding.size() == 1) padding.assign(4, padding[0]);
  if (padding.size() == 2) padding = {padding[0], padding[1], padding[0], padding[1]};
  if (padding.size() != 4) context.FailAttr("padding", "1, 2 or 4 ints");
  std::vector<int64_t> strides = context.Ints("strides", 2);
  std::vector<int64_t> dilations = context.Ints("dilations", 2);
  if (std::min(strides[0], strides[1]) < 1) context.FailAttr("strides", "ints above 0");
  if (std::min(dilations[0], dilations[1]) < 1) context.FailAttr("dilations", "ints above 0");
  std::vector<Dim> extents;
  for (int i = 0; i < 2; ++i) {
    std::optional<int64_t> in = StaticDim(data->shape[layout.find("HW"[i])]);
    std::optional<int64_t> size = StaticDim(weight->shape[kernel.find("HW"[i])]);
    if (!in || !size) {
      extents.push_back(AnyDim());
      continue;
    }
    int64_t room = *in + padding[i] + padding[i + 2] - ((*size - 1) * dilations[i] + 1);
    if (room < 0) context.Fail("the window is larger than the padded input");
    extents.push_back(room / strides[i] + 1);
  }
  return TensorType(WithExtents(data, layout, "HW", Shape{extents[0], extents[1]}),
                    context.DType("out_dtype", data->dtype));
}

Type AffineGridRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 3);
  if (!MayBeEqual(data->shape[1], int64_t{2}) || !MayBeEqual(data->shape[2], int64_t{3})) {
    context.FailInput(0, "a tensor of (batch, 2, 3)");
  }
  std::vector<int64_t> shape = context.Ints("target_shape", 2);
  if (std::min(shape[0], shape[1]) < 2) context.FailAttr("target_shape", "2 ints above 1");
  return TensorType(Shape{data->shape[0], int64_t{2}, shape[0], shape[1]}, data->dtype);
}

Type GridSampleRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  int ndim = data->ndim();
  if (ndim != 4 && ndim != 5) context.FailInput(0, "a tensor with 4 or 5 dimensions");
  TensorType grid = context.Tensor(1, ndim);
  CheckChoice(context, "layout", {ndim == 4 ? "NCHW" : "NCDHW"});
  CheckChoice(context, "method", {"bilinear", "nearest", "bicubic"});
  CheckChoice(context, "padding_mode", {"zeros", "border", "reflection"});
  if (ndim == 5 && context.Str("method") == "bicubic") {
    context.FailAttr("method", "bilinear or nearest for 5 dimensions");
  }
  if (!MayBeEqual(grid->shape[1], static_cast<int64_t>(ndim - 2))) {
    context.FailInput(1, "a grid with " + std::to_string(ndim - 2) + " coordinates on axis 1");
  }
  std::vector<Dim> shape(grid->shape.begin(), grid->shape.end());
  shape[0] = data->shape[0];
  shape[1] = data->shape[1];
  return TensorType(Shape(shape.begin(), shape.end()), data->dtype);
}

RELAY_OP("image.resize1d")
    .Inputs({"data"})
    .Attrs("relay.attrs.Resize1DAttrs", ResizeAttrs("NCW"))
    .Relation(ResizeRelation("W"));

RELAY_OP("image.resize2d")
    .Inputs({"data"})
    .Attrs("relay.attrs.Resize2DAttrs", ResizeAttrs("NCHW"))
    .Relation(ResizeRelation("HW"));

RELAY_OP("image.resize3d")
    .Inputs({"data"})
    .Attrs("relay.attrs.Resize3DAttrs", ResizeAttrs("NCDHW"))
    .Relation(ResizeRelation("DHW"));

RELAY_OP("image.crop_and_resize")
    .Inputs({"data", "boxes", "box_indices"})
    .Attrs("relay.attrs.CropAndResizeAttrs",
           {OptionalAttr("crop_size", AttrKind::kIntArray), StringAttr("layout", "NCHW"),
            StringAttr("method", "bilinear"), FloatAttr("extrapolation_value", 0.0),
            DTypeAttr("out_dtype")})
    .Relation(CropAndResizeRelation);

RELAY_OP("image.dilation2d")
    .Inputs({"data", "weight"})
    .Attrs("relay.attrs.Dilation2DAttrs",
           {IntArrayAttr("strides", {1, 1}), IntArrayAttr("padding", {0, 0}),
            IntArrayAttr("dilations", {1, 1}), StringAttr("data_layout", "NCHW"),
            StringAttr("kernel_layout", "IHW"), DTypeAttr("out_dtype")})
    .Relation(Dilation2DRelation);

RELAY_OP("image.affine_grid")
    .Inputs({"data"})
    .Attrs("relay.attrs.AffineGridAttrs", {RequiredAttr("target_shape", AttrKind::kIntArray)})
    .Relation(AffineGridRelation);

RELAY_OP("image.grid_sample")
    .Inputs({"data", "grid"})
    .Attrs("relay.attrs.GridSampleAttrs",
           {StringAttr("method", "bilinear"), StringAttr("layout", "NCHW"),
            StringAttr("padding_mode", "zeros"), BoolAttr("align_corners", true)})
    .Relation(GridSampleRelation);

}  // namespace
}  // namespace tvm_fixes::relay
