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
 * \file src/relay/op/transform_slice.cc
 * \brief Operators that slice a tensor, or broadcast it and sum over what was broadcast.
 */
#include <limits>

#include "registry.h"

namespace tvm_fixes::relay {
namespace {

constexpr int64_t kMaxIndex = std::numeric_limits<int64_t>::max();

/*! \brief One axis of a slice. */
struct AxisSlice {
  int64_t begin;
  int64_t end;
  int64_t stride;
};

/*! \brief An index that may count from the end, moved into the axis. */
int64_t ClampIndex(int64_t index, int64_t extent, int64_t stride) {
  if (index < 0) index += extent;
  int64_t low = stride < 0 ? -1 : 0;
  int64_t high = stride < 0 ? extent - 1 : extent;
  return std::min(std::max(index, low), high);
}

Dim SlicedDim(const InferContext& context, const Dim& dim, const AxisSlice& slice) {
  std::optional<int64_t> extent = StaticDim(dim);
  if (!extent) return AnyDim();
  int64_t begin = ClampIndex(slice.begin, *extent, slice.stride);
  int64_t end = ClampIndex(slice.end, *extent, slice.stride);
  int64_t step = slice.stride < 0 ? -slice.stride : slice.stride;
  int64_t length = slice.stride < 0 ? begin - end : end - begin;
  if (length < 0) {
    context.Fail("the slice from " + std::to_string(slice.begin) + " to " +
                 std::to_string(slice.end) + " of an axis with extent " + std::to_string(*extent) +
                 " ends before it begins");
  }
  return length / step + (length % step != 0);
}

/*! \brief begin and end of an axis; a missing begin or end is that of the whole axis. */
AxisSlice MakeSlice(const std::vector<int64_t>& begin, const std::vector<int64_t>& end,
                    int64_t stride, bool is_size, size_t i) {
  AxisSlice slice{stride > 0 ? 0 : kMaxIndex, stride > 0 ? kMaxIndex : 0, is_size ? 1 : stride};
  if (i < begin.size()) slice.begin = begin[i];
  if (i >= end.size()) return slice;
  slice.end = end[i];
  if (is_size && (end[i] < 0 || __builtin_add_overflow(slice.begin, end[i], &slice.end))) {
    slice.end = kMaxIndex;
  }
  return slice;
}

Type StridedSliceRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  std::vector<int64_t> begin = context.Ints("begin");
  std::vector<int64_t> end = context.Ints("end");
  std::vector<int64_t> strides = context.Ints("strides");
  std::string mode = context.Str("slice_mode");
  if (mode != "end" && mode != "size") context.FailAttr("slice_mode", "\"end\" or \"size\"");
  std::vector<int64_t> axes;
  if (context.Has("axes")) {
    for (int64_t axis : context.Ints("axes")) {
      axes.push_back(context.CheckAxis("axes", axis, data->ndim()));
    }
    if (begin.size() != axes.size()) context.FailAttr("begin", "as many as axes");
    if (end.size() != axes.size()) context.FailAttr("end", "as many as axes");
    // One stride may stand for all, as the Python interface of TVM allows.
    if (strides.size() != axes.size() && strides.size() > 1) {
      context.FailAttr("strides", "as many as axes");
    }
    if (strides.size() == 1) strides.assign(axes.size(), strides[0]);
  } else {
    for (int64_t i = 0; i < data->ndim(); ++i) axes.push_back(i);
    for (const char* attr : {"begin", "end", "strides"}) {
      if (context.Ints(attr).size() > axes.size()) {
        context.FailAttr(attr, "at most " + std::to_string(axes.size()) + " ints");
      }
    }
  }
  std::vector<Dim> dims(data->shape.begin(), data->shape.end());
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t stride = i < strides.size() ? strides[i] : 1;
    if (stride == 0 || stride < -kMaxIndex) context.FailAttr("strides", "strides other than 0");
    AxisSlice slice = MakeSlice(begin, end, stride, mode == "size", i);
    dims[axes[i]] = SlicedDim(context, data->shape[axes[i]], slice);
  }
  return TensorType(Shape(dims.begin(), dims.end()), data->dtype);
}

/*! \brief Windows over the last axes: where each begins, then the places in it. */
Type SlidingWindowRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  int64_t axis = context.Int("axis");
  if (axis < 0 || axis >= data->ndim()) {
    context.FailAttr("axis", "an axis from 0 to " + std::to_string(data->ndim() - 1));
  }
  auto count = static_cast<size_t>(data->ndim() - axis);
  std::vector<int64_t> window = context.Ints("window_shape");
  std::vector<int64_t> strides = context.Ints("strides");
  for (const char* attr : {"window_shape", "strides"}) {
    std::vector<int64_t> values = context.Ints(attr);
    bool fits = values.size() == count;
    for (int64_t value : values) fits = fits && value > 0;
    if (!fits) context.FailAttr(attr, std::to_string(count) + " ints above 0");
  }
  std::vector<Dim> dims(data->shape.begin(), data->shape.begin() + axis);
  for (size_t i = 0; i < count; ++i) {
    std::optional<int64_t> extent = StaticDim(data->shape[axis + i]);
    if (!extent) {
      dims.push_back(AnyDim());
      continue;
    }
    if (*extent < window[i]) {
      context.FailInput(0, "an extent of at least " + std::to_string(window[i]) + " on axis " +
                               std::to_string(axis + i));
    }
    dims.push_back((*extent - window[i]) / strides[i] + 1);
  }
  for (int64_t extent : window) dims.push_back(extent);
  return TensorType(Shape(dims.begin(), dims.end()), data->dtype);
}

Type StridedSetRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  context.Tensor(1, data->ndim());
  context.CheckSameDType(0, 1);
  for (int i = 2; i < 5; ++i) {
    TensorType indices = context.Tensor(i, 1);
    if (!IsInteger(indices->dtype)) context.FailInput(i, "integers");
  }
  return data;
}

void SliceAxisLike(const InferContext& context, const TensorType& target, int64_t axis,
                   std::vector<Dim>* dims) {
  std::optional<int64_t> extent = StaticDim((*dims)[axis]);
  std::optional<int64_t> wanted = StaticDim(target->shape[axis]);
  if (extent && wanted && *wanted > *extent) {
    context.FailInput(
        1, "at most extent " + std::to_string(*extent) + " on axis " + std::to_string(axis));
  }
  (*dims)[axis] = target->shape[axis];
}

Type SliceLikeRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType target = context.Tensor(1);
  std::vector<Dim> dims(data->shape.begin(), data->shape.end());
  if (!context.Has("axes")) {
    for (int64_t i = 0; i < std::min(data->ndim(), target->ndim()); ++i) {
      SliceAxisLike(context, target, i, &dims);
    }
    return TensorType(Shape(dims.begin(), dims.end()), data->dtype);
  }
  std::vector<int64_t> axes = context.Ints("axes");
  if (axes.empty()) context.FailAttr("axes", "at least one axis");
  for (int64_t given : axes) {
    int64_t axis = context.CheckAxis("axes", given, data->ndim());
    if (axis >= target->ndim()) context.FailAttr("axes", "axes that both inputs have");
    SliceAxisLike(context, target, axis, &dims);
  }
  return TensorType(Shape(dims.begin(), dims.end()), data->dtype);
}

/*! \brief Fail unless `from` can be broadcast to `to`. */
void CheckBroadcasts(const InferContext& context, const Shape& from, const Shape& to) {
  bool fits = from.size() <= to.size();
  for (size_t i = 0; fits && i < from.size(); ++i) {
    const Dim& dim = from[i];
    fits = StaticDim(dim) == 1 || MayBeEqual(dim, to[to.size() - from.size() + i]);
  }
  if (!fits) {
    context.Fail("shape " + ShapeText(from) + " cannot be broadcast to " + ShapeText(to));
  }
}

/*! \brief An attribute that is a static shape. */
Shape ShapeAttr(const InferContext& context, const char* attr) {
  Shape shape = context.Dims(attr);
  for (const Dim& dim : shape) {
    std::optional<int64_t> extent = StaticDim(dim);
    if (extent && *extent < 0) context.FailAttr(attr, "extents");
  }
  return shape;
}

Type BroadcastToRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  Shape shape = ShapeAttr(context, "shape");
  CheckBroadcasts(context, data->shape, shape);
  return TensorType(shape, data->dtype);
}

Type BroadcastToLikeRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType like = context.Tensor(1);
  CheckBroadcasts(context, data->shape, like->shape);
  return TensorType(like->shape, data->dtype);
}

Type CollapseSumLikeRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType like = context.Tensor(1);
  CheckBroadcasts(context, like->shape, data->shape);
  return TensorType(like->shape, data->dtype);
}

Type CollapseSumToRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType target = context.Tensor(1, 1);
  if (!IsInteger(target->dtype)) context.FailInput(1, "integers");
  Shape shape;
  if (context.Has("shape")) {
    shape = ShapeAttr(context, "shape");
  } else if (std::optional<std::vector<int64_t>> dims = context.ConstantInts(1)) {
    shape = MakeShape(*dims);
  } else {
    std::optional<int64_t> rank = StaticDim(target->shape[0]);
    if (!rank || *rank > data->ndim()) context.FailInput(1, "the shape of a smaller tensor");
    for (int64_t i = 0; i < *rank; ++i) shape.push_back(AnyDim());
  }
  CheckBroadcasts(context, shape, data->shape);
  return TensorType(shape, data->dtype);
}

RELAY_OP("strided_slice")
    .Inputs({"data"})
    .Attrs("relay.attrs.StridedSliceAttrs",
           {RequiredAttr("begin", AttrKind::kIntArray), RequiredAttr("end", AttrKind::kIntArray),
            IntArrayAttr("strides", {}), StringAttr("slice_mode", "end"),
            OptionalAttr("axes", AttrKind::kIntArray)})
    .Relation(StridedSliceRelation);

RELAY_OP("sliding_window")
    .Inputs({"data"})
    .Attrs("relay.attrs.SlidingWindowAttrs",
           {RequiredAttr("axis", AttrKind::kInt), RequiredAttr("window_shape", AttrKind::kIntArray),
            RequiredAttr("strides", AttrKind::kIntArray)})
    .Relation(SlidingWindowRelation);

RELAY_OP("strided_set")
    .Inputs({"data", "v", "begin", "end", "strides"})
    .Relation(StridedSetRelation);

RELAY_OP("slice_like")
    .Inputs({"data", "shape_like"})
    .Attrs("relay.attrs.SliceLikeAttrs", {OptionalAttr("axes", AttrKind::kIntArray)})
    .Relation(SliceLikeRelation);

RELAY_OP("broadcast_to")
    .Inputs({"data"})
    .Attrs("relay.attrs.InitOpAttrs",
           {RequiredAttr("shape", AttrKind::kIntArray), DTypeAttr("dtype")})
    .Relation(BroadcastToRelation);

RELAY_OP("broadcast_to_like").Inputs({"data", "broadcast_type"}).Relation(BroadcastToLikeRelation);

RELAY_OP("collapse_sum_like").Inputs({"data", "collapse_type"}).Relation(CollapseSumLikeRelation);

RELAY_OP("collapse_sum_to")
    .Inputs({"data", "shape"})
    .Attrs("relay.attrs.InitOpAttrs",
           {OptionalAttr("shape", AttrKind::kIntArray), DTypeAttr("dtype")})
    .Relation(CollapseSumToRelation);

}  // namespace
}  // namespace tvm_fixes::relay
