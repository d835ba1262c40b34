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
 * \file src/relay/op/vision.cc
 * \brief Object detection: anchors, regions of interest, suppression of boxes.
 */
#include <algorithm>
#include <string>
#include <vector>

#include "registry.h"

namespace tvm_fixes::relay {
namespace {

AttrField FloatArrayAttr(std::string name, std::initializer_list<double> value) {
  return {std::move(name), AttrKind::kFloatArray, Array<Any>(value.begin(), value.end())};
}

/*! \brief The number of elements of an attribute that is an array. */
int64_t Length(InferContext& context, const char* attr) {
  if (!context.Has(attr)) context.FailAttr(attr, "array of floats");
  int64_t length = static_cast<int64_t>(context.Attr(attr).cast<Array<Any>>().size());
  if (length == 0) context.FailAttr(attr, "at least one float");
  return length;
}

Type MultiboxPriorRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 4);
  for (const char* attr : {"steps", "offsets"}) {
    if (Length(context, attr) != 2) context.FailAttr(attr, "2 floats");
  }
  int64_t per_pixel = Length(context, "sizes") + Length(context, "ratios") - 1;
  Dim pixels = MultiplyDim(data->shape[2], data->shape[3]);
  return TensorType(Shape{int64_t{1}, MultiplyDim(pixels, per_pixel), int64_t{4}}, data->dtype);
}

/*! \brief roi_align and roi_pool. */
Type RegionRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 4);
  TensorType rois = context.Tensor(1, 2);
  if (!MayBeEqual(rois->shape[1], int64_t{5})) context.FailInput(1, "a tensor of (regions, 5)");
  std::vector<int64_t> size = context.Ints("pooled_size", 2);
  if (std::min(size[0], size[1]) < 1) context.FailAttr("pooled_size", "2 ints above 0");
  std::string layout = context.Str("layout");
  if (layout == "NCHW") {
    return TensorType(Shape{rois->shape[0], data->shape[1], size[0], size[1]}, data->dtype);
  }
  if (layout != "NHWC") context.FailAttr("layout", "NCHW or NHWC");
  return TensorType(Shape{rois->shape[0], size[0], size[1], data->shape[3]}, data->dtype);
}

Type YoloReorgRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 4);
  int64_t stride = context.Int("stride");
  if (stride < 1) context.FailAttr("stride", "an int above 0");
  std::vector<Dim> shape(data->shape.begin(), data->shape.end());
  shape[1] = MultiplyDim(MultiplyDim(shape[1], stride), stride);
  for (int i = 2; i < 4; ++i) {
    if (std::optional<int64_t> extent = StaticDim(shape[i])) {
      shape[i] = *extent / stride;
    } else {
      shape[i] = AnyDim();
    }
  }
  return TensorType(Shape(shape.begin(), shape.end()), data->dtype);
}

/*! \brief Fail unless an extent of an input may be the expected one. */
void CheckExtent(InferContext& context, int input, int axis, const Dim& expected) {
  Dim extent = context.Tensor(input)->shape[axis];
  if (MayBeEqual(extent, expected)) return;
  context.FailInput(input, "extent " + DimText(expected) + " along axis " + std::to_string(axis));
}

Type MultiboxTransformLocRelation(InferContext& context) {
  TensorType scores = context.Tensor(0, 3);
  context.Tensor(1, 2);
  TensorType anchor = context.Tensor(2, 3);
  context.CheckSameDType(0, 1);
  CheckExtent(context, 1, 0, scores->shape[0]);
  CheckExtent(context, 1, 1, MultiplyDim(scores->shape[2], int64_t{4}));
  CheckExtent(context, 2, 1, scores->shape[2]);
  CheckExtent(context, 2, 2, int64_t{4});
  if (Length(context, "variances") != 4) context.FailAttr("variances", "4 floats");
  Array<Type> fields{
      TensorType(Shape{scores->shape[0], anchor->shape[1], int64_t{6}}, scores->dtype),
      TensorType(Shape{scores->shape[0]}, kInt32)};
  return TupleType(fields);
}

Type GetValidCountsRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 3);
  if (!context.Has("score_threshold")) context.Tensor(1, 0);
  Array<Type> fields{TensorType(Shape{data->shape[0]}, kInt32), data,
                     TensorType(Shape{data->shape[0], data->shape[1]}, kInt32)};
  return TupleType(fields);
}

/*! \brief TVM 0.6 has two inputs, and returns where the boxes stood without their number. */
Type NonMaxSuppressionRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 3);
  context.Tensor(1, 1);
  CheckExtent(context, 1, 0, data->shape[0]);
  if (context.num_inputs() == 2) {
    if (!context.Bool("return_indices")) return data;
    return TensorType(Shape{data->shape[0], data->shape[1]}, kInt32);
  }
  for (const char* attr : {"max_output_size", "iou_threshold"}) {
    if (context.Has(attr))
      context.Fail("expected 2 inputs, or no attribute '" + std::string(attr) + "'");
  }
  context.Tensor(3, 0);
  context.Tensor(4, 0);
  if (!context.Bool("return_indices")) return data;
  context.Tensor(2, 2);
  for (int axis = 0; axis < 2; ++axis) CheckExtent(context, 2, axis, data->shape[axis]);
  Array<Type> fields{TensorType(Shape{data->shape[0], data->shape[1]}, kInt32),
                     TensorType(Shape{data->shape[0], int64_t{1}}, kInt32)};
  return TupleType(fields);
}

Type AllClassNonMaxSuppressionRelation(InferContext& context) {
  TensorType boxes = context.Tensor(0, 3);
  TensorType scores = context.Tensor(1, 3);
  CheckExtent(context, 0, 2, int64_t{4});
  CheckExtent(context, 1, 0, boxes->shape[0]);
  CheckExtent(context, 1, 2, boxes->shape[1]);
  for (int i = 2; i < 5; ++i) context.Tensor(i, 0);
  Dim batch = boxes->shape[0];
  Dim per_image = MultiplyDim(scores->shape[1], boxes->shape[1]);
  std::string format = context.Str("output_format");
  if (format == "onnx") {
    Array<Type> fields{TensorType(Shape{MultiplyDim(batch, per_image), int64_t{3}}, kInt64),
                       TensorType(Shape{int64_t{1}}, kInt64)};
    return TupleType(fields);
  }
  if (format != "tensorflow") context.FailAttr("output_format", "\"onnx\" or \"tensorflow\"");
  Array<Type> fields{TensorType(Shape{batch, per_image, int64_t{2}}, kInt64),
                     TensorType(Shape{batch, per_image}, kFloat32),
                     TensorType(Shape{batch}, kInt64)};
  return TupleType(fields);
}

Type RegularNonMaxSuppressionRelation(InferContext& context) {
  TensorType boxes = context.Tensor(0, 3);
  TensorType scores = context.Tensor(1, 3);
  CheckExtent(context, 0, 2, int64_t{4});
  CheckExtent(context, 1, 0, boxes->shape[0]);
  CheckExtent(context, 1, 1, boxes->shape[1]);
  int64_t count = context.Int("max_detections");
  if (count < 1) context.FailAttr("max_detections", "an int above 0");
  int64_t classes = context.Int("num_classes");
  std::optional<int64_t> scored = StaticDim(scores->shape[2]);
  if (classes < 1 || (scored && classes > *scored)) {
    context.FailAttr("num_classes", "an int from 1 to the number of classes in scores");
  }
  Dim batch = boxes->shape[0];
  TensorType list(Shape{batch, count}, kFloat32);
  Array<Type> fields{TensorType(Shape{batch, count, int64_t{4}}, kFloat32), list, list,
                     TensorType(Shape{batch}, kInt32)};
  return TupleType(fields);
}

Type ProposalRelation(InferContext& context) {
  TensorType scores = context.Tensor(0, 4);
  context.Tensor(1, 4);
  context.Tensor(2, 2);
  context.CheckSameDType(0, 1);
  int64_t anchors = Length(context, "scales") * Length(context, "ratios");
  CheckExtent(context, 0, 1, 2 * anchors);
  CheckExtent(context, 1, 1, 4 * anchors);
  for (int axis : {0, 2, 3}) CheckExtent(context, 1, axis, scores->shape[axis]);
  CheckExtent(context, 2, 0, scores->shape[0]);
  CheckExtent(context, 2, 1, int64_t{3});
  if (context.Int("feature_stride") < 1) context.FailAttr("feature_stride", "an int above 0");
  int64_t count = context.Int("rpn_post_nms_top_n");
  if (count < 1) context.FailAttr("rpn_post_nms_top_n", "an int above 0");
  return TensorType(Shape{MultiplyDim(scores->shape[0], count), int64_t{5}}, scores->dtype);
}

RELAY_OP("vision.multibox_prior")
    .Inputs({"data"})
    .Attrs("relay.attrs.MultiBoxPriorAttrs",
           {FloatArrayAttr("sizes", {1.0}), FloatArrayAttr("ratios", {1.0}),
            FloatArrayAttr("steps", {-1.0, -1.0}), FloatArrayAttr("offsets", {0.5, 0.5}),
            BoolAttr("clip", false)})
    .Relation(MultiboxPriorRelation);

RELAY_OP("vision.roi_align")
    .Inputs({"data", "rois"})
    .Attrs("relay.attrs.ROIAlignAttrs",
           {RequiredAttr("pooled_size", AttrKind::kIntArray),
            RequiredAttr("spatial_scale", AttrKind::kFloat), IntAttr("sample_ratio", -1),
            StringAttr("layout", "NCHW"), StringAttr("mode", "avg")})
    .Relation(RegionRelation);

RELAY_OP("vision.roi_pool")
    .Inputs({"data", "rois"})
    .Attrs("relay.attrs.ROIPoolAttrs",
           {RequiredAttr("pooled_size", AttrKind::kIntArray),
            RequiredAttr("spatial_scale", AttrKind::kFloat), StringAttr("layout", "NCHW")})
    .Relation(RegionRelation);

RELAY_OP("vision.yolo_reorg")
    .Inputs({"data"})
    .Attrs("relay.attrs.YoloReorgAttrs", {IntAttr("stride", 1)})
    .Relation(YoloReorgRelation);

RELAY_OP("vision.multibox_transform_loc")
    .Inputs({"cls_prob", "loc_pred", "anchor"})
    .Attrs("relay.attrs.MultiBoxTransformLocAttrs",
           {BoolAttr("clip", true), FloatAttr("threshold", 0.01),
            FloatArrayAttr("variances", {0.1, 0.1, 0.2, 0.2}), BoolAttr("keep_background", false)})
    .Relation(MultiboxTransformLocRelation);

RELAY_OP("vision.get_valid_counts")
    .Inputs({"data", "score_threshold"})
    .Attrs("relay.attrs.GetValidCountsAttrs", {OptionalAttr("score_threshold", AttrKind::kFloat),
                                               IntAttr("id_index", 0), IntAttr("score_index", 1)})
    .Relation(GetValidCountsRelation);

RELAY_OP("vision.non_max_suppression")
    .Inputs({"data", "valid_count", "indices", "max_output_size", "iou_threshold"})
    .MinInputs(2)
    .Attrs("relay.attrs.NonMaximumSuppressionAttrs",
           {OptionalAttr("max_output_size", AttrKind::kInt),
            OptionalAttr("iou_threshold", AttrKind::kFloat), BoolAttr("force_suppress", false),
            IntAttr("top_k", -1), IntAttr("coord_start", 2), IntAttr("score_index", 1),
            IntAttr("id_index", 0), BoolAttr("return_indices", true),
            BoolAttr("invalid_to_bottom", false)})
    .Relation(NonMaxSuppressionRelation);

RELAY_OP("vision.all_class_non_max_suppression")
    .Inputs({"boxes", "scores", "max_output_boxes_per_class", "iou_threshold", "score_threshold"})
    .Attrs("relay.attrs.AllClassNonMaximumSuppressionAttrs", {StringAttr("output_format", "onnx")})
    .Relation(AllClassNonMaxSuppressionRelation);

RELAY_OP("vision.regular_non_max_suppression")
    .Inputs({"boxes", "scores"})
    .Attrs("relay.attrs.RegularNonMaximumSuppressionAttrs",
           {RequiredAttr("max_detections_per_class", AttrKind::kInt),
            RequiredAttr("max_detections", AttrKind::kInt),
            RequiredAttr("num_classes", AttrKind::kInt),
            RequiredAttr("iou_threshold", AttrKind::kFloat),
            RequiredAttr("score_threshold", AttrKind::kFloat)})
    .Relation(RegularNonMaxSuppressionRelation);

RELAY_OP("vision.proposal")
    .Inputs({"cls_prob", "bbox_pred", "im_info"})
    .Attrs("relay.attrs.ProposalAttrs",
           {FloatArrayAttr("scales", {4.0, 8.0, 16.0, 32.0}),
            FloatArrayAttr("ratios", {0.5, 1.0, 2.0}), IntAttr("feature_stride", 16),
            FloatAttr("threshold", 0.7), IntAttr("rpn_pre_nms_top_n", 6000),
            IntAttr("rpn_post_nms_top_n", 300), IntAttr("rpn_min_size", 16),
            BoolAttr("iou_loss", false)})
    .Relation(ProposalRelation);

}  // namespace
}  // namespace tvm_fixes::relay
