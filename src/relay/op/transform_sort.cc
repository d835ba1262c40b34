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
 * \file src/relay/op/transform_sort.cc
 * \brief Sorting and searching, sparse tensors, Fourier transforms.
 */
#include "registry.h"

namespace tvm_fixes::relay {
namespace {

Type ArgsortRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  context.Axis("axis", data->ndim());
  return TensorType(data->shape, context.DType("dtype", kInt32));
}

Type TopkRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  int64_t axis = context.Axis("axis", data->ndim());
  int64_t k = context.Int("k");
  std::optional<int64_t> extent = StaticDim(data->shape[axis]);
  if (extent && k > *extent) context.FailAttr("k", "at most " + std::to_string(*extent));
  Shape shape = data->shape;
  if (k >= 1) shape.Set(axis, k);
  TensorType values(shape, data->dtype);
  TensorType indices(shape, context.DType("dtype", kInt32));
  std::string result = context.Str("ret_type");
  if (result == "both") return TupleType(Array<Type>{values, indices});
  if (result == "values") return values;
  if (result == "indices") return indices;
  context.FailAttr("ret_type", "\"both\", \"values\" or \"indices\"");
}

Type SearchsortedRelation(InferContext& context) {
  TensorType sequence = context.Tensor(0);
  TensorType values = context.Tensor(1);
  if (sequence->ndim() == 0) context.FailInput(0, "a tensor with at least 1 dimension");
  if (values->ndim() == 0) context.FailInput(1, "a tensor with at least 1 dimension");
  if (sequence->ndim() > 1) {
    context.Tensor(1, sequence->ndim());
    for (int i = 0; i + 1 < values->ndim(); ++i) {
      if (!MayBeEqual(sequence->shape[i], values->shape[i])) {
        context.FailInput(1, "the outer extents of shape " + ShapeText(sequence->shape));
      }
    }
  }
  return TensorType(values->shape, context.DType("dtype", kInt32));
}

Type UniqueRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 1);
  TensorType indices(data->shape, kInt32);
  Array<Type> fields{data, indices, indices, TensorType(Shape{int64_t{1}}, kInt32)};
  if (context.Bool("return_counts")) fields.push_back(indices);
  return TupleType(fields);
}

Type SparseReshapeRelation(InferContext& context) {
  TensorType indices = context.Tensor(0, 2);
  context.Tensor(1, 1);
  TensorType new_shape = context.Tensor(2, 1);
  for (int i = 0; i < 3; ++i) {
    if (!IsInteger(context.Tensor(i)->dtype)) context.FailInput(i, "integers");
  }
  Array<Type> fields{TensorType(Shape{indices->shape[0], new_shape->shape[0]}, indices->dtype),
                     new_shape};
  return TupleType(fields);
}

Type DftRelation(InferContext& context) {
  TensorType real = context.Tensor(0);
  TensorType imaginary = context.Tensor(1, real->ndim());
  context.CheckSameDType(0, 1);
  if (real->ndim() == 0) context.FailInput(0, "a tensor with at least 1 dimension");
  for (int i = 0; i < real->ndim(); ++i) {
    if (!MayBeEqual(real->shape[i], imaginary->shape[i])) {
      context.FailInput(1, "shape " + ShapeText(real->shape));
    }
  }
  return TupleType(Array<Type>{real, imaginary});
}

Type StftRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  if (data->ndim() != 1 && data->ndim() != 2) context.FailInput(0, "1 or 2 dimensions");
  context.Tensor(1, 1);
  int64_t n_fft = context.Int("n_fft");
  int64_t hop = context.Int("hop_length");
  if (n_fft < 1) context.FailAttr("n_fft", "a positive number");
  if (hop < 1) context.FailAttr("hop_length", "a positive number");
  int64_t window = context.Int("win_length");
  if (window < 1 || window > n_fft) context.FailAttr("win_length", "a number in [1, n_fft]");
  if (!MayBeEqual(context.Tensor(1)->shape[0], window)) {
    context.FailInput(1, std::to_string(window) + " elements");
  }
  std::optional<int64_t> length = StaticDim(data->shape[data->ndim() - 1]);
  if (length && *length < n_fft) context.FailInput(0, "at least n_fft samples");
  Shape shape;
  if (data->ndim() == 2) shape.push_back(data->shape[0]);
  shape.push_back(context.Bool("onesided") ? n_fft / 2 + 1 : n_fft);
  shape.push_back(length ? Dim((*length - n_fft) / hop + 1) : AnyDim());
  shape.push_back(int64_t{2});
  return TensorType(shape, data->dtype);
}

RELAY_OP("sort")
    .Inputs({"data"})
    .Attrs("relay.attrs.ArgsortAttrs",
           {IntAttr("axis", -1), BoolAttr("is_ascend", true), DTypeAttr("dtype")})
    .Relation(AxisRelation);

RELAY_OP("argsort")
    .Inputs({"data"})
    .Attrs("relay.attrs.ArgsortAttrs",
           {IntAttr("axis", -1), BoolAttr("is_ascend", true), DTypeAttr("dtype")})
    .Relation(ArgsortRelation);

RELAY_OP("topk")
    .Inputs({"data"})
    .Attrs("relay.attrs.TopkAttrs",
           {RequiredAttr("k", AttrKind::kInt), IntAttr("axis", -1), StringAttr("ret_type", "both"),
            BoolAttr("is_ascend", false), DTypeAttr("dtype")})
    .Relation(TopkRelation);

RELAY_OP("searchsorted")
    .Inputs({"sorted_sequence", "values"})
    .Attrs("relay.attrs.SearchSortedAttrs", {BoolAttr("right", false), DTypeAttr("dtype", "int32")})
    .Relation(SearchsortedRelation);

RELAY_OP("unique")
    .Inputs({"data"})
    .Attrs("relay.attrs.UniqueAttrs",
           {RequiredAttr("sorted", AttrKind::kBool), BoolAttr("return_counts", false)})
    .Relation(UniqueRelation);

RELAY_OP("sparse_reshape")
    .Inputs({"sparse_indices", "prev_shape", "new_shape"})
    .Relation(SparseReshapeRelation);

RELAY_OP("sparse_fill_empty_rows")
    .Inputs({"sparse_indices", "sparse_values", "dense_shape", "default_value"})
    .Rejected("the extents of its results depend on the values of its inputs");

RELAY_OP("dft")
    .Inputs({"re_data", "im_data"})
    .Attrs("relay.attrs.DFTAttrs", {BoolAttr("inverse", false)})
    .Relation(DftRelation);

RELAY_OP("stft")
    .Inputs({"data", "window"})
    .Attrs("relay.attrs.StftAttrs",
           {IntAttr("n_fft", -1), IntAttr("hop_length", -1), IntAttr("win_length", -1),
            BoolAttr("normalized", false), BoolAttr("onesided", true)})
    .Relation(StftRelation);

}  // namespace
}  // namespace tvm_fixes::relay
