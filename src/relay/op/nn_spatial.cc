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
 * \file src/relay/op/nn_spatial.cc
 * \brief Padding, upsampling, space to depth and batch and back, and layout_transform.
 */
#include <cmath>

#include "nn_util.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief One pair of ints for each of `count` axes. */
std::vector<std::pair<int64_t, int64_t>> Pairs(const InferContext& context, const char* attr,
                                               size_t count) {
  std::string expected = std::to_string(count) + " pairs of ints";
  auto rows = context.Attr(attr).try_cast<Array<Any>>();
  if (!rows || rows->size() != count) context.FailAttr(attr, expected);
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const Any& row : *rows) {
    auto pair = row.try_cast<Array<Any>>();
    if (!pair || pair->size() != 2) context.FailAttr(attr, expected);
    std::optional<int64_t> before = StaticDim((*pair)[0]);
    std::optional<int64_t> after = StaticDim((*pair)[1]);
    if (!before || !after) context.FailAttr(attr, expected);
    pairs.emplace_back(*before, *after);
  }
  return pairs;
}

Dim Grow(const InferContext& context, const Dim& dim, std::pair<int64_t, int64_t> pair) {
  Dim length = AddDim(AddDim(dim, pair.first), pair.second);
  std::optional<int64_t> extent = StaticDim(length);
  if (extent && *extent < 0) context.Fail("a dimension of the result is negative");
  return length;
}

Type PadRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  std::string mode = context.Str("pad_mode");
  if (mode != "constant" && mode != "edge" && mode != "reflect") {
    context.FailAttr("pad_mode", "\"constant\", \"edge\" or \"reflect\"");
  }
  if (context.num_inputs() > 1) context.Tensor(1, 0);
  Shape shape = data->shape;
  auto pairs = Pairs(context, "pad_width", shape.size());
  for (size_t i = 0; i < pairs.size(); ++i) shape.Set(i, Grow(context, shape[i], pairs[i]));
  return TensorType(shape, data->dtype);
}

Type MirrorPadRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  std::string mode = context.Str("mode");
  if (mode != "SYMMETRIC" && mode != "REFLECT") {
    context.FailAttr("mode", "\"SYMMETRIC\" or \"REFLECT\"");
  }
  Shape shape = data->shape;
  auto pairs = Pairs(context, "pad_width", shape.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    auto [before, after] = pairs[i];
    std::optional<int64_t> extent = StaticDim(shape[i]);
    int64_t limit = extent ? *extent - (mode == "REFLECT" ? 1 : 0) : INT64_MAX;
    bool fits = before >= 0 && after >= 0 && before <= limit && after <= limit;
    if (!fits) context.FailAttr("pad_width", "ints of at least 0 and within the data");
    shape.Set(i, Grow(context, shape[i], pairs[i]));
  }
  return TensorType(shape, data->dtype);
}

Dim Scale(const InferContext& context, const Dim& dim, const char* attr) {
  double scale = context.Float(attr);
  if (!(scale > 0) || !(scale < 1e9)) context.FailAttr(attr, "positive number");
  std::optional<int64_t> extent = StaticDim(dim);
  if (!extent) return AnyDim();
  // TVM multiplies and rounds in float32.
  double length = std::nearbyint(static_cast<float>(*extent) * static_cast<float>(scale));
  if (length > 1e18) context.FailAttr(attr, "a scale with a result below 10^18");
  return static_cast<int64_t>(length);
}

void CheckMethod(const InferContext& context, std::initializer_list<const char*> methods) {
  std::string names;
  for (const char* method : methods) {
    if (context.Str("method") == method) return;
    names += (names.empty() ? "\"" : ", \"") + std::string(method) + "\"";
  }
  context.FailAttr("method", "one of " + names);
}

Type UpSamplingRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  Layout layout(context, "layout", "NCHW");
  layout.CheckNotPacked(context, "NHW");
  CheckMethod(context, {"nearest_neighbor", "bilinear", "bicubic"});
  Shape shape = layout.ToCanonical(context, 0, data->shape);
  shape.Set(2, Scale(context, shape[2], "scale_h"));
  shape.Set(3, Scale(context, shape[3], "scale_w"));
  return TensorType(layout.FromCanonical(context, shape), data->dtype);
}

Type UpSampling3DRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  Layout layout(context, "layout", "NCDHW");
  layout.CheckNotPacked(context, "NDHW");
  CheckMethod(context, {"nearest_neighbor", "trilinear"});
  Shape shape = layout.ToCanonical(context, 0, data->shape);
  shape.Set(2, Scale(context, shape[2], "scale_d"));
  shape.Set(3, Scale(context, shape[3], "scale_h"));
  shape.Set(4, Scale(context, shape[4], "scale_w"));
  return TensorType(layout.FromCanonical(context, shape), data->dtype);
}

/*! \brief dim / divisor, which must divide it. */
Dim DivideDim(const InferContext& context, const Dim& dim, int64_t divisor, const char* what) {
  std::optional<int64_t> extent = StaticDim(dim);
  if (!extent) return divisor == 1 ? dim : AnyDim();
  if (*extent % divisor != 0) {
    context.Fail(std::string(what) + " = " + std::to_string(divisor) + " does not divide " +
                 std::to_string(*extent));
  }
  return *extent / divisor;
}

int64_t BlockSize(const InferContext& context) {
  int64_t block = context.Int("block_size");
  if (block < 1 || block > (int64_t{1} << 30)) context.FailAttr("block_size", "positive int");
  return block;
}

Type DepthToSpaceRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 4);
  Layout layout(context, "layout", "NCHW");
  std::string mode = context.Str("mode");
  if (mode != "DCR" && mode != "CDR" && mode != "CRD") {
    context.FailAttr("mode", "\"DCR\" or \"CRD\"");
  }
  int64_t block = BlockSize(context);
  Shape shape = layout.ToCanonical(context, 0, data->shape);
  shape.Set(1, DivideDim(context, shape[1], block * block, "block_size * block_size"));
  shape.Set(2, MultiplyDim(shape[2], block));
  shape.Set(3, MultiplyDim(shape[3], block));
  return TensorType(layout.FromCanonical(context, shape), data->dtype);
}

Type SpaceToDepthRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 4);
  Layout layout(context, "layout", "NCHW");
  int64_t block = BlockSize(context);
  Shape shape = layout.ToCanonical(context, 0, data->shape);
  shape.Set(1, MultiplyDim(shape[1], block * block));
  shape.Set(2, DivideDim(context, shape[2], block, "block_size"));
  shape.Set(3, DivideDim(context, shape[3], block, "block_size"));
  return TensorType(layout.FromCanonical(context, shape), data->dtype);
}

std::vector<int64_t> BlockShape(const InferContext& context, const TensorType& data) {
  std::vector<int64_t> blocks = context.Ints("block_shape");
  if (static_cast<int64_t>(blocks.size()) >= data->ndim()) {
    context.FailAttr("block_shape", "fewer ints than the input has dimensions");
  }
  return PositiveInts(context, "block_shape", blocks.size());
}

Type SpaceToBatchRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  std::vector<int64_t> blocks = BlockShape(context, data);
  auto pairs = Pairs(context, "paddings", blocks.size());
  Shape shape = data->shape;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (pairs[i].first < 0 || pairs[i].second < 0) {
      context.FailAttr("paddings", "ints of at least 0");
    }
    Dim padded = Grow(context, shape[i + 1], pairs[i]);
    shape.Set(i + 1, DivideDim(context, padded, blocks[i], "block_shape"));
    shape.Set(0, MultiplyDim(shape[0], blocks[i]));
  }
  return TensorType(shape, data->dtype);
}

Type BatchToSpaceRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  std::vector<int64_t> blocks = BlockShape(context, data);
  auto pairs = Pairs(context, "crops", blocks.size());
  Shape shape = data->shape;
  for (size_t i = 0; i < blocks.size(); ++i) {
    auto [begin, end] = pairs[i];
    if (begin < 0 || end < 0) context.FailAttr("crops", "ints of at least 0");
    shape.Set(0, DivideDim(context, shape[0], blocks[i], "block_shape"));
    shape.Set(i + 1, Grow(context, MultiplyDim(shape[i + 1], blocks[i]), {-begin, -end}));
  }
  return TensorType(shape, data->dtype);
}

Type DilateRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  std::vector<int64_t> strides =
      PositiveInts(context, "strides", static_cast<size_t>(data->ndim()));
  Shape shape = data->shape;
  for (size_t i = 0; i < strides.size(); ++i) {
    std::optional<int64_t> extent = StaticDim(shape[i]);
    if (extent && *extent == 0) context.FailInput(0, "no dimension of 0");
    if (strides[i] == 1) continue;
    shape.Set(i, extent ? AddDim(MultiplyDim(*extent - 1, strides[i]), 1) : AnyDim());
  }
  return TensorType(shape, data->dtype);
}

/*! \brief The axes of a layout in upper case, each once. */
std::string Axes(const std::string& layout) {
  std::string axes;
  for (char c : layout) {
    if (c >= 'A' && c <= 'Z' && axes.find(c) == std::string::npos) axes += c;
  }
  return axes;
}

Type LayoutTransformRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  std::string axes = Axes(context.Str("src_layout"));
  Layout source(context, "src_layout", axes);
  Layout target(context, "dst_layout", axes);
  Shape shape = source.ToCanonical(context, 0, data->shape);
  return TensorType(target.FromCanonical(context, shape), data->dtype);
}

RELAY_OP("nn.pad")
    .Inputs({"data", "pad_value"})
    .MinInputs(1)
    .Attrs("relay.attrs.PadAttrs",
           {FloatAttr("pad_value", 0.0), RequiredAttr("pad_width", AttrKind::kNestedIntArray),
            StringAttr("pad_mode", "constant")})
    .Relation(PadRelation);

RELAY_OP("nn.mirror_pad")
    .Inputs({"data"})
    .Attrs("relay.attrs.MirrorPadAttrs",
           {StringAttr("mode", "SYMMETRIC"), RequiredAttr("pad_width", AttrKind::kNestedIntArray)})
    .Relation(MirrorPadRelation);

RELAY_OP("nn.upsampling")
    .Inputs({"data"})
    .Attrs("relay.attrs.UpSamplingAttrs",
           {RequiredAttr("scale_h", AttrKind::kFloat), RequiredAttr("scale_w", AttrKind::kFloat),
            StringAttr("layout", "NCHW"), StringAttr("method", "nearest_neighbor"),
            BoolAttr("align_corners", false)})
    .Relation(UpSamplingRelation);

RELAY_OP("nn.upsampling3d")
    .Inputs({"data"})
    .Attrs("relay.attrs.UpSampling3DAttrs",
           {RequiredAttr("scale_d", AttrKind::kFloat), RequiredAttr("scale_h", AttrKind::kFloat),
            RequiredAttr("scale_w", AttrKind::kFloat), StringAttr("layout", "NCDHW"),
            StringAttr("method", "nearest_neighbor"),
            StringAttr("coordinate_transformation_mode", "half_pixel")})
    .Relation(UpSampling3DRelation);

RELAY_OP("nn.depth_to_space")
    .Inputs({"data"})
    .Attrs("relay.attrs.SubPixelAttrs",
           {IntAttr("block_size", 1), StringAttr("layout", "NCHW"), StringAttr("mode", "DCR")})
    .Relation(DepthToSpaceRelation);

RELAY_OP("nn.space_to_depth")
    .Inputs({"data"})
    .Attrs("relay.attrs.SubPixelAttrs",
           {IntAttr("block_size", 1), StringAttr("layout", "NCHW"), StringAttr("mode", "DCR")})
    .Relation(SpaceToDepthRelation);

RELAY_OP("nn.space_to_batch_nd")
    .Inputs({"data"})
    .Attrs("relay.attrs.SpaceToBatchNDAttrs",
           {IntArrayAttr("block_shape", {1, 1}),
            RequiredAttr("paddings", AttrKind::kNestedIntArray), FloatAttr("pad_value", 0.0)})
    .Relation(SpaceToBatchRelation);

RELAY_OP("nn.batch_to_space_nd")
    .Inputs({"data"})
    .Attrs("relay.attrs.BatchToSpaceNDAttrs",
           {IntArrayAttr("block_shape", {1, 1}), RequiredAttr("crops", AttrKind::kNestedIntArray)})
    .Relation(BatchToSpaceRelation);

RELAY_OP("nn.dilate")
    .Inputs({"x"})
    .Attrs("relay.attrs.DilateAttrs",
           {IntArrayAttr("strides", {1, 1}), FloatAttr("dilation_value", 0.0)})
    .Relation(DilateRelation);

RELAY_OP("layout_transform")
    .Inputs({"data"})
    .Attrs("relay.attrs.LayoutTransformAttrs", {RequiredAttr("src_layout", AttrKind::kString),
                                                RequiredAttr("dst_layout", AttrKind::kString)})
    .Relation(LayoutTransformRelation);

}  // namespace
}  // namespace tvm_fixes::relay
