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
 * \file src/relay/op/transform_dyn.cc
 * \brief The operators dyn.*, whose inputs determine the shape of the result.
 */
#include "registry.h"

namespace tvm_fixes::relay {
namespace {

constexpr int64_t kMaxRank = 1024;

/*! \brief The static length of an input that is a vector of integers. */
int64_t VectorLength(const InferContext& context, int input) {
  TensorType type = context.Tensor(input, 1);
  if (!IsInteger(type->dtype)) context.FailInput(input, "integers");
  std::optional<int64_t> length = StaticDim(type->shape[0]);
  if (!length || *length < 0 || *length > kMaxRank) context.FailInput(input, "a known length");
  return *length;
}

Shape UnknownShape(int64_t rank) {
  Shape shape;
  for (int64_t i = 0; i < rank; ++i) shape.push_back(AnyDim());
  return shape;
}

/*! \brief The data's dtype, and the rank that is the length of input 1. */
Type RankRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  return TensorType(UnknownShape(VectorLength(context, 1)), data->dtype);
}

Type DynTileRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  int64_t rank = std::max<int64_t>(data->ndim(), VectorLength(context, 1));
  return TensorType(UnknownShape(rank), data->dtype);
}

/*! \brief zeros and ones. */
Type InitRelation(InferContext& context) {
  return TensorType(UnknownShape(VectorLength(context, 0)), context.DType("dtype"));
}

Type DynFullRelation(InferContext& context) {
  TensorType value = context.Tensor(0, 0);
  int64_t rank = VectorLength(context, 1);
  return TensorType(UnknownShape(rank), context.DType("dtype", value->dtype));
}

Type DynOneHotRelation(InferContext& context) {
  TensorType indices = context.Tensor(0);
  context.Tensor(1, 0);
  context.Tensor(2, 0);
  TensorType depth = context.Tensor(3);
  if (depth->ndim() > 1 || !IsInteger(depth->dtype)) context.FailInput(3, "an integer scalar");
  int64_t axis = context.Int("axis");
  if (axis == -1) axis = indices->ndim();
  if (axis < 0 || axis > indices->ndim()) {
    context.FailAttr("axis", "-1 or an axis in [0, " + std::to_string(indices->ndim()) + "]");
  }
  Shape shape;
  for (int64_t i = 0; i < axis; ++i) shape.push_back(indices->shape[i]);
  shape.push_back(AnyDim());
  for (int64_t i = axis; i < indices->ndim(); ++i) shape.push_back(indices->shape[i]);
  return TensorType(shape, context.DType("dtype"));
}

Type DynStridedSliceRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  int64_t count = VectorLength(context, 1);
  if (count > data->ndim()) context.FailInput(1, "at most as many indices as dimensions");
  for (int i = 2; i < 4; ++i) {
    if (VectorLength(context, i) != count) {
      context.FailInput(i, std::to_string(count) + " integers");
    }
  }
  Shape shape = UnknownShape(count);
  for (int64_t i = count; i < data->ndim(); ++i) shape.push_back(data->shape[i]);
  return TensorType(shape, data->dtype);
}

Type DynSparseToDenseRelation(InferContext& context) {
  TensorType indices = context.Tensor(0);
  TensorType values = context.Tensor(1);
  context.Tensor(2, 0);
  if (!IsInteger(indices->dtype)) context.FailInput(0, "integers");
  if (indices->ndim() > 2) context.FailInput(0, "a tensor with at most 2 dimensions");
  if (values->ndim() > 1) context.FailInput(1, "a tensor with at most 1 dimension");
  return TensorType(UnknownShape(VectorLength(context, 3)), values->dtype);
}

Type DynExpandDimsRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  context.Tensor(1, 0);
  int64_t count = context.Int("num_newaxis");
  if (count < 0 || count > kMaxRank) context.FailAttr("num_newaxis", "a number in [0, 1024]");
  return TensorType(UnknownShape(data->ndim() + count), data->dtype);
}

Type DynSqueezeRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  int64_t count = VectorLength(context, 1);
  if (count > data->ndim()) context.FailInput(1, "at most as many axes as dimensions");
  return TensorType(UnknownShape(data->ndim() - count), data->dtype);
}

Type DynTopkRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType k = context.Tensor(1);
  if (k->ndim() > 1 || (k->ndim() == 1 && StaticDim(k->shape[0]) != 1)) {
    context.FailInput(1, "a scalar, or one element");
  }
  int64_t axis = context.Axis("axis", data->ndim());
  Shape shape = data->shape;
  shape.Set(axis, AnyDim());
  TensorType values(shape, data->dtype);
  TensorType indices(shape, context.DType("dtype", kInt32));
  std::string result = context.Str("ret_type");
  if (result == "both") return TupleType(Array<Type>{values, indices});
  if (result == "values") return values;
  if (result == "indices") return indices;
  context.FailAttr("ret_type", "\"both\", \"values\" or \"indices\"");
}

/*! \brief The data's type, with `?` on the axes that a layout names by these letters. */
Type ResizedType(const InferContext& context, const char* letters, DLDataType dtype) {
  TensorType data = context.Tensor(0);
  std::string layout;
  for (char letter : context.Str("layout")) {
    // A factor, such as the 4 of NCHW4c, belongs to the axis after it.
    if (letter < '0' || letter > '9') layout += letter;
  }
  if (layout.size() != static_cast<size_t>(data->ndim())) {
    context.FailAttr("layout", "a layout of " + std::to_string(data->ndim()) + " axes");
  }
  Shape shape = data->shape;
  for (const char* letter = letters; *letter != 0; ++letter) {
    size_t axis = layout.find(*letter);
    if (axis == std::string::npos) context.FailAttr("layout", "a layout that can be resized");
    shape.Set(axis, AnyDim());
  }
  return TensorType(shape, dtype);
}

Type Resize2DRelation(InferContext& context) {
  context.Tensor(1, 1);
  context.Tensor(2, 1);
  return ResizedType(context, "HW", context.DType("out_dtype", context.Tensor(0)->dtype));
}

Type UpsamplingRelation(InferContext& context) {
  for (int i = 1; i < context.num_inputs(); ++i) context.Tensor(i, 0);
  return ResizedType(context, context.num_inputs() == 4 ? "DHW" : "HW", context.Tensor(0)->dtype);
}

Type DynPadRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType widths = context.Tensor(1, 2);
  context.Tensor(2, 0);
  if (!MayBeEqual(widths->shape[0], int64_t{data->ndim()}) ||
      !MayBeEqual(widths->shape[1], int64_t{2})) {
    context.FailInput(1, "shape (" + std::to_string(data->ndim()) + ", 2)");
  }
  return TensorType(UnknownShape(data->ndim()), data->dtype);
}

const std::vector<AttrField> kInitAttrs = {OptionalAttr("shape", AttrKind::kIntArray),
                                           DTypeAttr("dtype")};

RELAY_OP("dyn.reshape")
    .Inputs({"data", "newshape"})
    .Attrs("relay.attrs.ReshapeAttrs",
           {OptionalAttr("newshape", AttrKind::kIntArray), BoolAttr("allowzero", false)})
    .Relation(RankRelation);

RELAY_OP("dyn.tile")
    .Inputs({"data", "reps"})
    .Attrs("relay.attrs.TileAttrs", {OptionalAttr("reps", AttrKind::kIntArray)})
    .Relation(DynTileRelation);

RELAY_OP("dyn.broadcast_to")
    .Inputs({"data", "shape"})
    .Attrs("relay.attrs.InitOpAttrs", kInitAttrs)
    .Relation(RankRelation);

RELAY_OP("dyn.zeros")
    .Inputs({"shape"})
    .Attrs("relay.attrs.InitOpAttrs", kInitAttrs)
    .Relation(InitRelation);

RELAY_OP("dyn.ones")
    .Inputs({"shape"})
    .Attrs("relay.attrs.InitOpAttrs", kInitAttrs)
    .Relation(InitRelation);

RELAY_OP("dyn.full")
    .Inputs({"fill_value", "shape"})
    .Attrs("relay.attrs.InitOpAttrs", kInitAttrs)
    .Relation(DynFullRelation);

RELAY_OP("dyn.one_hot")
    .Inputs({"indices", "on_value", "off_value", "depth"})
    .Attrs("relay.attrs.OneHotAttrs",
           {IntAttr("depth", 1), IntAttr("axis", -1), DTypeAttr("dtype")})
    .Relation(DynOneHotRelation);

RELAY_OP("dyn.strided_slice")
    .Inputs({"data", "begin", "end", "strides"})
    .Attrs("relay.attrs.StridedSliceAttrs",
           {OptionalAttr("begin", AttrKind::kIntArray), OptionalAttr("end", AttrKind::kIntArray),
            OptionalAttr("strides", AttrKind::kIntArray), StringAttr("slice_mode", "end"),
            OptionalAttr("axes", AttrKind::kIntArray)})
    .Relation(DynStridedSliceRelation);

RELAY_OP("dyn.sparse_to_dense")
    .Inputs({"sparse_indices", "sparse_values", "default_value", "output_shape"})
    .Attrs("relay.attrs.SparseToDenseAttrs", {OptionalAttr("output_shape", AttrKind::kIntArray)})
    .Relation(DynSparseToDenseRelation);

RELAY_OP("dyn.expand_dims")
    .Inputs({"data", "axis"})
    .Attrs("relay.attrs.DynExpandDimsAttrs", {IntAttr("num_newaxis", 1)})
    .Relation(DynExpandDimsRelation);

RELAY_OP("dyn.squeeze")
    .Inputs({"data", "axes"})
    .Attrs("relay.attrs.SqueezeAttrs", {OptionalAttr("axis", AttrKind::kIntArray)})
    .Relation(DynSqueezeRelation);

RELAY_OP("dyn.topk")
    .Inputs({"data", "k"})
    .Attrs("relay.attrs.TopkAttrs",
           {OptionalAttr("k", AttrKind::kInt), IntAttr("axis", -1), StringAttr("ret_type", "both"),
            BoolAttr("is_ascend", false), DTypeAttr("dtype")})
    .Relation(DynTopkRelation);

RELAY_OP("dyn.image.resize2d")
    .Inputs({"data", "size", "roi"})
    .Attrs("relay.attrs.Resize2DAttrs",
           {OptionalAttr("size", AttrKind::kIntArray), OptionalAttr("roi", AttrKind::kFloatArray),
            StringAttr("layout", "NCHW"), StringAttr("method", "linear"),
            StringAttr("coordinate_transformation_mode", "half_pixel"),
            StringAttr("rounding_method", "round"), FloatAttr("cubic_alpha", -0.5),
            IntAttr("cubic_exclude", 0), FloatAttr("extrapolation_value", 0.0),
            DTypeAttr("out_dtype")})
    .Relation(Resize2DRelation);

RELAY_OP("dyn.nn.pad")
    .Inputs({"data", "pad_width", "pad_val"})
    .Attrs("relay.attrs.PadAttrs", {OptionalAttr("pad_width", AttrKind::kNestedIntArray),
                                    StringAttr("pad_mode", "constant")})
    .Relation(DynPadRelation);

RELAY_OP("dyn.nn.upsampling")
    .Inputs({"data", "scale_h", "scale_w"})
    .Attrs("relay.attrs.UpSamplingAttrs",
           {OptionalAttr("scale_h", AttrKind::kFloat), OptionalAttr("scale_w", AttrKind::kFloat),
            StringAttr("layout", "NCHW"), StringAttr("method", "nearest_neighbor"),
            BoolAttr("align_corners", false)})
    .Relation(UpsamplingRelation);

RELAY_OP("dyn.nn.upsampling3d")
    .Inputs({"data", "scale_d", "scale_h", "scale_w"})
    .Attrs("relay.attrs.UpSampling3DAttrs",
           {OptionalAttr("scale_d", AttrKind::kFloat), OptionalAttr("scale_h", AttrKind::kFloat),
            OptionalAttr("scale_w", AttrKind::kFloat), StringAttr("layout", "NCDHW"),
            StringAttr("method", "nearest_neighbor"),
            StringAttr("coordinate_transformation_mode", "half_pixel")})
    .Relation(UpsamplingRelation);

}  // namespace
}  // namespace tvm_fixes::relay
