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
 * \file src/relay/op/transform_index.cc
 * \brief Operators that read or write elements at positions in a tensor of indices.
 */
#include <algorithm>

#include "registry.h"

namespace tvm_fixes::relay {
namespace {

TensorType IndexTensor(const InferContext& context, int input) {
  TensorType indices = context.Tensor(input);
  if (!IsInteger(indices->dtype)) context.FailInput(input, "integers");
  return indices;
}

void Append(Shape* shape, const Shape& other, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) shape->push_back(other[i]);
}

Type TakeRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType indices = IndexTensor(context, 1);
  std::string mode = context.Str("mode");
  if (mode != "clip" && mode != "wrap" && mode != "fast") {
    context.FailAttr("mode", "\"clip\", \"wrap\" or \"fast\"");
  }
  int64_t batch_dims = context.Int("batch_dims");
  if (!context.Has("axis")) {
    if (batch_dims != 0) context.FailAttr("batch_dims", "0, as axis is None");
    return TensorType(indices->shape, data->dtype);
  }
  int64_t axis = context.Axis("axis", data->ndim());
  if (batch_dims < 0 || batch_dims > std::min<int64_t>(axis, indices->ndim())) {
    context.FailAttr("batch_dims", "at most axis, and at most the dimensions of indices");
  }
  for (int64_t i = 0; i < batch_dims; ++i) {
    if (!MayBeEqual(data->shape[i], indices->shape[i])) {
      context.FailInput(1, "the batch extents of shape " + ShapeText(data->shape));
    }
  }
  Shape shape;
  Append(&shape, data->shape, 0, axis);
  Append(&shape, indices->shape, batch_dims, indices->ndim());
  Append(&shape, data->shape, axis + 1, data->ndim());
  return TensorType(shape, data->dtype);
}

Type GatherRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType indices = context.Tensor(1, data->ndim());
  IndexTensor(context, 1);
  int64_t axis = context.Axis("axis", data->ndim());
  for (int64_t i = 0; i < data->ndim(); ++i) {
    bool fits = i == axis ? StaticDim(indices->shape[i]).value_or(1) >= 1
                          : MayBeEqual(indices->shape[i], data->shape[i]);
    if (!fits) {
      context.FailInput(
          1, "the extents of " + ShapeText(data->shape) + " but for axis " + std::to_string(axis));
    }
  }
  return TensorType(indices->shape, data->dtype);
}

/*! \brief The first extent of indices (M, ...): how many axes they address. */
int64_t AddressedAxes(const InferContext& context, const TensorType& indices, int64_t limit) {
  if (indices->ndim() == 0) context.FailInput(1, "a tensor with at least one dimension");
  std::optional<int64_t> count = StaticDim(indices->shape[0]);
  if (!count || *count > limit) {
    context.FailInput(1, "a first extent of at most " + std::to_string(limit));
  }
  return *count;
}

Type GatherNDRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType indices = IndexTensor(context, 1);
  int64_t batch_dims = context.Int("batch_dims");
  if (batch_dims < 0 || batch_dims > std::min(data->ndim(), indices->ndim() - 1)) {
    context.FailAttr("batch_dims", "a number of dimensions that both inputs have");
  }
  int64_t count = AddressedAxes(context, indices, data->ndim() - batch_dims);
  for (int64_t i = 0; i < batch_dims; ++i) {
    if (!MayBeEqual(data->shape[i], indices->shape[i + 1])) {
      context.FailInput(1, "the batch extents of shape " + ShapeText(data->shape));
    }
  }
  Shape shape;
  Append(&shape, indices->shape, 1, indices->ndim());
  Append(&shape, data->shape, count + batch_dims, data->ndim());
  return TensorType(shape, data->dtype);
}

Type ScatterElementsRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType indices = context.Tensor(1, data->ndim());
  IndexTensor(context, 1);
  TensorType updates = context.Tensor(2, data->ndim());
  context.CheckSameDType(0, 2);
  context.Axis("axis", data->ndim());
  for (int i = 0; i < data->ndim(); ++i) {
    if (!MayBeEqual(indices->shape[i], updates->shape[i])) {
      context.FailInput(2, "the shape " + ShapeText(indices->shape) + " of the indices");
    }
  }
  return data;
}

Type ScatterReduceRelation(InferContext& context) {
  std::string reduction = context.Str("reduction");
  for (const char* known : {"update", "add", "mul", "mean", "min", "max"}) {
    if (reduction == known) return ScatterElementsRelation(context);
  }
  context.FailAttr("reduction", "\"update\", \"add\", \"mul\", \"mean\", \"min\" or \"max\"");
}

Type ScatterNDRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType indices = IndexTensor(context, 1);
  TensorType updates = context.Tensor(2);
  context.CheckSameDType(0, 2);
  std::string mode = context.Str("mode");
  bool known = false;
  for (const char* name : {"update", "add", "mul", "min", "max"}) known |= mode == name;
  if (!known) context.FailAttr("mode", "\"update\", \"add\", \"mul\", \"min\" or \"max\"");
  int64_t count = AddressedAxes(context, indices, data->ndim());
  Shape expected;
  Append(&expected, indices->shape, 1, indices->ndim());
  Append(&expected, data->shape, count, data->ndim());
  bool fits = expected.size() == updates->shape.size();
  for (size_t i = 0; fits && i < expected.size(); ++i) {
    fits = MayBeEqual(expected[i], updates->shape[i]);
  }
  if (!fits) context.FailInput(2, "shape " + ShapeText(expected));
  return data;
}

Type SequenceMaskRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  int64_t axis = context.Int("axis");
  if (axis != 0 && axis != 1) context.FailAttr("axis", "0 or 1");
  if (data->ndim() < 2) context.FailInput(0, "a tensor with at least 2 dimensions");
  TensorType lengths = context.Tensor(1, 1);
  if (!MayBeEqual(lengths->shape[0], data->shape[1 - axis])) {
    context.FailInput(1, DimText(data->shape[1 - axis]) + " lengths");
  }
  return data;
}

Type OneHotRelation(InferContext& context) {
  TensorType indices = context.Tensor(0);
  context.Tensor(1, 0);
  context.Tensor(2, 0);
  int64_t depth = context.Int("depth");
  if (depth < 1) context.FailAttr("depth", "a positive number");
  int64_t axis = context.Int("axis");
  if (axis == -1) axis = indices->ndim();
  if (axis < 0 || axis > indices->ndim()) {
    context.FailAttr("axis", "-1 or an axis in [0, " + std::to_string(indices->ndim()) + "]");
  }
  Shape shape;
  Append(&shape, indices->shape, 0, axis);
  shape.push_back(depth);
  Append(&shape, indices->shape, axis, indices->ndim());
  return TensorType(shape, context.DType("dtype"));
}

Type SparseToDenseRelation(InferContext& context) {
  TensorType indices = IndexTensor(context, 0);
  TensorType values = context.Tensor(1);
  context.Tensor(2, 0);
  context.CheckSameDType(1, 2);
  if (indices->ndim() > 2) context.FailInput(0, "a tensor with at most 2 dimensions");
  if (values->ndim() > 1) context.FailInput(1, "a tensor with at most 1 dimension");
  return TensorType(context.Dims("output_shape"), values->dtype);
}

Type MatrixSetDiagRelation(InferContext& context) {
  TensorType input = context.Tensor(0);
  TensorType diagonal = context.Tensor(1);
  context.CheckSameDType(0, 1);
  int64_t low = context.Int("k1");
  int64_t high = context.Int("k2");
  int64_t ndim = input->ndim();
  if (ndim < 2) context.FailInput(0, "a tensor with at least 2 dimensions");
  constexpr int64_t kLimit = int64_t{1} << 31;
  if (low < -kLimit || low > kLimit) context.FailAttr("k1", "a diagonal of the matrix");
  if (high < -kLimit || high > kLimit) context.FailAttr("k2", "a diagonal of the matrix");
  if (high < low) context.FailAttr("k2", "a number that is at least k1");
  std::optional<int64_t> rows = StaticDim(input->shape[ndim - 2]);
  std::optional<int64_t> columns = StaticDim(input->shape[ndim - 1]);
  if (rows && *rows <= -low) context.FailAttr("k1", "a diagonal of the matrix");
  if (columns && *columns <= high) context.FailAttr("k2", "a diagonal of the matrix");
  Shape expected;
  Append(&expected, input->shape, 0, ndim - 2);
  if (low != high) expected.push_back(high - low + 1);
  expected.push_back(rows && columns ? Dim(std::min(*rows + std::min<int64_t>(high, 0),
                                                    *columns - std::max<int64_t>(low, 0)))
                                     : AnyDim());
  bool fits = expected.size() == diagonal->shape.size();
  for (size_t i = 0; fits && i < expected.size(); ++i) {
    fits = MayBeEqual(expected[i], diagonal->shape[i]);
  }
  if (!fits) context.FailInput(1, "shape " + ShapeText(expected));
  return input;
}

Type AdvIndexRelation(InferContext& context) {
  std::vector<TensorType> tensors = context.TensorTuple(0);
  if (tensors.size() < 2) context.FailInput(0, "a tensor and at least one tensor of indices");
  TensorType data = tensors[0];
  int64_t count = static_cast<int64_t>(tensors.size()) - 1;
  if (count > data->ndim()) context.FailInput(0, "at most as many indices as dimensions");
  Shape shape = tensors[1]->shape;
  for (int64_t i = 1; i <= count; ++i) {
    if (!IsInteger(tensors[i]->dtype)) context.FailInput(0, "indices that are integers");
    shape = context.Broadcast(shape, tensors[i]->shape);
  }
  Append(&shape, data->shape, count, data->ndim());
  return TensorType(shape, data->dtype);
}

Type UnravelIndexRelation(InferContext& context) {
  TensorType indices = IndexTensor(context, 0);
  if (indices->ndim() > 1) context.FailInput(0, "a tensor with at most 1 dimension");
  IndexTensor(context, 1);
  Shape shape{context.Tensor(1, 1)->shape[0]};
  Append(&shape, indices->shape, 0, indices->ndim());
  return TensorType(shape, indices->dtype);
}

Type ArgwhereRelation(InferContext& context) {
  int64_t ndim = context.Tensor(0)->ndim();
  return TensorType(Shape{AnyDim(), ndim}, kInt32);
}

Type TriluRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  if (data->ndim() < 2) context.FailInput(0, "a tensor with at least 2 dimensions");
  context.Tensor(1, 0);
  IndexTensor(context, 1);
  return data;
}

Type InvertPermutationRelation(InferContext& context) {
  IndexTensor(context, 0);
  return context.Tensor(0, 1);
}

RELAY_OP("take")
    .Inputs({"data", "indices"})
    .Attrs("relay.attrs.TakeAttrs", {IntAttr("batch_dims", 0), OptionalAttr("axis", AttrKind::kInt),
                                     StringAttr("mode", "clip")})
    .Relation(TakeRelation);

RELAY_OP("gather")
    .Inputs({"data", "indices"})
    .Attrs("relay.attrs.GatherAttrs", {RequiredAttr("axis", AttrKind::kInt)})
    .Relation(GatherRelation);

RELAY_OP("gather_nd")
    .Inputs({"data", "indices"})
    .Attrs("relay.attrs.GatherNDAttrs",
           {IntAttr("batch_dims", 0), OptionalAttr("index_rank", AttrKind::kInt)})
    .Relation(GatherNDRelation);

RELAY_OP("scatter_elements")
    .Inputs({"data", "indices", "updates"})
    .Attrs("relay.attrs.ScatterElementsAttrs",
           {IntAttr("axis", 0), StringAttr("reduction", "update")})
    .Relation(ScatterReduceRelation);

// scatter and scatter_add are the forms of TVM 0.7 to 0.11.
RELAY_OP("scatter")
    .Inputs({"data", "indices", "updates"})
    .Attrs("relay.attrs.ScatterAttrs", {IntAttr("axis", 0)})
    .Relation(ScatterElementsRelation);

RELAY_OP("scatter_add")
    .Inputs({"data", "indices", "updates"})
    .Attrs("relay.attrs.ScatterAddAttrs", {IntAttr("axis", 0)})
    .Relation(ScatterElementsRelation);

RELAY_OP("scatter_nd")
    .Inputs({"data", "indices", "updates"})
    .Attrs("relay.attrs.ScatterNDAttrs", {StringAttr("mode", "update")})
    .Relation(ScatterNDRelation);

RELAY_OP("sequence_mask")
    .Inputs({"data", "valid_length"})
    .Attrs("relay.attrs.SequenceMaskAttrs", {FloatAttr("mask_value", 0), IntAttr("axis", 0)})
    .Relation(SequenceMaskRelation);

RELAY_OP("one_hot")
    .Inputs({"indices", "on_value", "off_value"})
    .Attrs("relay.attrs.OneHotAttrs",
           {IntAttr("depth", 1), IntAttr("axis", -1), DTypeAttr("dtype")})
    .Relation(OneHotRelation);

RELAY_OP("sparse_to_dense")
    .Inputs({"sparse_indices", "sparse_values", "default_value"})
    .Attrs("relay.attrs.SparseToDenseAttrs", {RequiredAttr("output_shape", AttrKind::kIntArray)})
    .Relation(SparseToDenseRelation);

RELAY_OP("matrix_set_diag")
    .Inputs({"input", "diagonal"})
    .Attrs("relay.attrs.MatrixSetDiagAttrs",
           {IntAttr("k1", 0), IntAttr("k2", 0), BoolAttr("super_diag_right_align", true),
            BoolAttr("sub_diag_right_align", false)})
    .Relation(MatrixSetDiagRelation);

RELAY_OP("adv_index").Inputs({"inputs"}).Relation(AdvIndexRelation);

RELAY_OP("unravel_index").Inputs({"data", "shape"}).Relation(UnravelIndexRelation);

RELAY_OP("argwhere")
    .Inputs({"condition"})
    .Attrs("relay.attrs.ArgWhereAttrs", {})
    .Relation(ArgwhereRelation);

RELAY_OP("trilu")
    .Inputs({"data", "k"})
    .Attrs("relay.attrs.TriluAttrs", {BoolAttr("upper", true)})
    .Relation(TriluRelation);

RELAY_OP("invert_permutation").Inputs({"data"}).Relation(InvertPermutationRelation);

}  // namespace
}  // namespace tvm_fixes::relay
