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
 * \file src/relay/op/transform_combine.cc
 * \brief Operators that join, split, repeat or reverse tensors.
 */
#include "registry.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The tensors of the only input, of which there is at least one, of one dtype. */
std::vector<TensorType> TensorsOfOneDType(const InferContext& context) {
  std::vector<TensorType> tensors = context.TensorTuple(0);
  if (tensors.empty()) context.FailInput(0, "at least one tensor");
  for (const TensorType& tensor : tensors) {
    if (!SameDType(tensor->dtype, tensors[0]->dtype)) context.FailInput(0, "tensors of one dtype");
  }
  return tensors;
}

/*! \brief The common shape of tensors, except for one axis, which is that of the first. */
std::vector<Dim> CommonShape(const InferContext& context, const std::vector<TensorType>& tensors,
                             int64_t except) {
  std::vector<Dim> dims(tensors[0]->shape.begin(), tensors[0]->shape.end());
  for (const TensorType& tensor : tensors) {
    for (int64_t i = 0; i < static_cast<int64_t>(dims.size()); ++i) {
      if (i == except) continue;
      if (!MayBeEqual(dims[i], tensor->shape[i])) {
        context.FailInput(0, "tensors whose axis " + std::to_string(i) + " has one extent");
      }
      dims[i] = MoreStatic(dims[i], tensor->shape[i]);
    }
  }
  return dims;
}

void CheckSameRank(const InferContext& context, const std::vector<TensorType>& tensors) {
  for (const TensorType& tensor : tensors) {
    if (tensor->ndim() != tensors[0]->ndim()) {
      context.FailInput(0, "tensors with the same number of dimensions");
    }
  }
}

Type ConcatenateRelation(InferContext& context) {
  std::vector<TensorType> tensors = TensorsOfOneDType(context);
  CheckSameRank(context, tensors);
  int64_t axis = context.Axis("axis", tensors[0]->ndim());
  std::vector<Dim> dims = CommonShape(context, tensors, axis);
  Dim total = int64_t{0};
  for (const TensorType& tensor : tensors) total = AddDim(total, tensor->shape[axis]);
  dims[axis] = total;
  return TensorType(Shape(dims.begin(), dims.end()), tensors[0]->dtype);
}

Type StackRelation(InferContext& context) {
  std::vector<TensorType> tensors = TensorsOfOneDType(context);
  CheckSameRank(context, tensors);
  int64_t axis = context.Axis("axis", tensors[0]->ndim() + 1);
  std::vector<Dim> dims = CommonShape(context, tensors, -1);
  dims.insert(dims.begin() + axis, Dim(static_cast<int64_t>(tensors.size())));
  return TensorType(Shape(dims.begin(), dims.end()), tensors[0]->dtype);
}

TensorType WithDim(const TensorType& type, int64_t axis, Dim dim) {
  Shape shape = type->shape;
  shape.Set(axis, std::move(dim));
  return TensorType(shape, type->dtype);
}

Type SplitSections(InferContext& context, const TensorType& data, int64_t axis, int64_t count) {
  if (count < 1 || count > 65536) {
    context.FailAttr("indices_or_sections", "a number of sections in [1, 65536]");
  }
  std::optional<int64_t> extent = StaticDim(data->shape[axis]);
  if (extent && *extent % count != 0) {
    context.FailAttr("indices_or_sections", "a divisor of " + std::to_string(*extent));
  }
  TensorType section = WithDim(data, axis, extent ? Dim(*extent / count) : AnyDim());
  Array<Type> fields;
  for (int64_t i = 0; i < count; ++i) fields.push_back(section);
  return TupleType(fields);
}

Type SplitRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  int64_t axis = context.Axis("axis", data->ndim());
  Any sections = context.Attr("indices_or_sections");
  if (std::optional<int64_t> count = StaticDim(sections)) {
    return SplitSections(context, data, axis, *count);
  }
  std::optional<int64_t> extent = StaticDim(data->shape[axis]);
  Array<Type> fields;
  int64_t begin = 0;
  for (int64_t index : context.Ints("indices_or_sections")) {
    if (index <= begin || (extent && index >= *extent)) {
      context.FailAttr("indices_or_sections", "ascending positions inside the axis");
    }
    fields.push_back(WithDim(data, axis, index - begin));
    begin = index;
  }
  fields.push_back(WithDim(data, axis, extent ? Dim(*extent - begin) : AnyDim()));
  return TupleType(fields);
}

Type RepeatRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  int64_t repeats = context.Int("repeats");
  if (repeats < 1) context.FailAttr("repeats", "a positive number");
  int64_t axis = context.Axis("axis", data->ndim());
  return WithDim(data, axis, MultiplyDim(data->shape[axis], repeats));
}

Type TileRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  std::vector<int64_t> reps = context.Ints("reps");
  int64_t ndim = data->ndim();
  int64_t count = static_cast<int64_t>(reps.size());
  int64_t rank = std::max(ndim, count);
  Shape shape;
  for (int64_t i = 0; i < rank; ++i) {
    int64_t times = i < rank - count ? 1 : reps[i - (rank - count)];
    if (times < 1) context.FailAttr("reps", "positive numbers");
    Dim dim = i < rank - ndim ? Dim(int64_t{1}) : data->shape[i - (rank - ndim)];
    shape.push_back(MultiplyDim(dim, times));
  }
  return TensorType(shape, data->dtype);
}

Type ReverseSequenceRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType lengths = context.Tensor(1, 1);
  if (!IsInteger(lengths->dtype)) context.FailInput(1, "integers");
  int64_t batch = context.Axis("batch_axis", data->ndim());
  context.Axis("seq_axis", data->ndim());
  if (!MayBeEqual(lengths->shape[0], data->shape[batch])) {
    context.FailInput(1, DimText(data->shape[batch]) + " lengths");
  }
  return data;
}

Type MeshgridRelation(InferContext& context) {
  std::vector<TensorType> tensors = TensorsOfOneDType(context);
  std::string indexing = context.Str("indexing");
  if (indexing != "ij" && indexing != "xy") context.FailAttr("indexing", "\"ij\" or \"xy\"");
  Shape shape;
  for (const TensorType& tensor : tensors) {
    if (tensor->ndim() > 1) context.FailInput(0, "tensors with at most one dimension");
    shape.push_back(tensor->ndim() == 0 ? Dim(int64_t{1}) : tensor->shape[0]);
  }
  if (indexing == "xy" && shape.size() >= 2) {
    Dim first = shape[0];
    shape.Set(0, shape[1]);
    shape.Set(1, first);
  }
  Array<Type> fields;
  for (size_t i = 0; i < tensors.size(); ++i) {
    fields.push_back(TensorType(shape, tensors[0]->dtype));
  }
  return TupleType(fields);
}

RELAY_OP("concatenate")
    .Inputs({"data"})
    .Attrs("relay.attrs.ConcatenateAttrs", {IntAttr("axis", 0)})
    .Relation(ConcatenateRelation);

RELAY_OP("stack")
    .Inputs({"data"})
    .Attrs("relay.attrs.StackAttrs", {IntAttr("axis", 0)})
    .Relation(StackRelation);

RELAY_OP("split")
    .Inputs({"data"})
    .Attrs("relay.attrs.SplitAttrs",
           {RequiredAttr("indices_or_sections", AttrKind::kNestedIntArray), IntAttr("axis", 0)})
    .Relation(SplitRelation);

RELAY_OP("repeat")
    .Inputs({"data"})
    .Attrs("relay.attrs.RepeatAttrs",
           {RequiredAttr("repeats", AttrKind::kInt), RequiredAttr("axis", AttrKind::kInt)})
    .Relation(RepeatRelation);

RELAY_OP("tile")
    .Inputs({"data"})
    .Attrs("relay.attrs.TileAttrs", {RequiredAttr("reps", AttrKind::kIntArray)})
    .Relation(TileRelation);

RELAY_OP("reverse")
    .Inputs({"data"})
    .Attrs("relay.attrs.ReverseAttrs", {RequiredAttr("axis", AttrKind::kInt)})
    .Relation(AxisRelation);

RELAY_OP("reverse_sequence")
    .Inputs({"data", "seq_lengths"})
    .Attrs("relay.attrs.ReverseSequenceAttrs", {IntAttr("seq_axis", 1), IntAttr("batch_axis", 0)})
    .Relation(ReverseSequenceRelation);

RELAY_OP("meshgrid")
    .Inputs({"data"})
    .Attrs("relay.attrs.MeshgridAttrs", {StringAttr("indexing", "ij")})
    .Relation(MeshgridRelation);

}  // namespace
}  // namespace tvm_fixes::relay
