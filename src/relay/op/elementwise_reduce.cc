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
 * \file src/relay/op/elementwise_reduce.cc
 * \brief Reductions and scans.
 */
#include "registry.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief For each dimension of a tensor, whether a reduction removes it. */
std::vector<bool> ReducedDims(const InferContext& context, int ndim) {
  bool exclude = context.Bool("exclude");
  std::vector<int64_t> axes;
  if (context.Has("axis")) {
    axes = context.Ints("axis");
  } else if (exclude) {
    context.FailAttr("axis", "array of ints, as 'exclude' is set");
  }
  if (axes.empty()) return std::vector<bool>(ndim, true);
  std::vector<bool> reduced(ndim, exclude);
  for (int64_t axis : axes) {
    axis = context.CheckAxis("axis", axis, ndim);
    if (reduced[axis] != exclude) context.FailAttr("axis", "no axis twice");
    reduced[axis] = !exclude;
  }
  return reduced;
}

Shape ReducedShape(const InferContext& context, const Shape& shape) {
  std::vector<bool> reduced = ReducedDims(context, static_cast<int>(shape.size()));
  bool keepdims = context.Bool("keepdims");
  Shape result;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!reduced[i]) {
      result.push_back(shape[i]);
    } else if (keepdims) {
      result.push_back(Dim(int64_t{1}));
    }
  }
  return result;
}

Type ReduceRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  return TensorType(ReducedShape(context, data->shape), data->dtype);
}

/*! \brief The indices have the dtype of Relay's extents, int32. */
Type ArgReduceRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  if (data->ndim() == 0) context.FailInput(0, "a tensor of rank at least 1");
  return TensorType(ReducedShape(context, data->shape), kInt32);
}

Type VarianceRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  if (data->ndim() == 0) context.FailInput(0, "a tensor of rank at least 1");
  TensorType mean = context.Tensor(1, data->ndim());
  context.CheckSameDType(0, 1);
  Shape both = context.Broadcast(data->shape, mean->shape);
  for (size_t i = 0; i < both.size(); ++i) {
    if (!MayBeEqual(both[i], data->shape[i])) {
      context.FailInput(1, "a tensor that broadcasts to " + ShapeText(data->shape));
    }
  }
  return TensorType(ReducedShape(context, data->shape), data->dtype);
}

Type ScanRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  DLDataType dtype = context.DType("dtype", data->dtype);
  if (data->ndim() == 0) context.FailInput(0, "a tensor of rank at least 1");
  if (!context.Has("axis")) return TensorType({NumElements(data->shape)}, dtype);
  context.Axis("axis", data->ndim());
  return TensorType(data->shape, dtype);
}

std::vector<AttrField> ReduceAttrs() {
  return {OptionalAttr("axis", AttrKind::kIntArray), BoolAttr("keepdims", false),
          BoolAttr("exclude", false)};
}

void DeclareReductions() {
  for (const char* name : {"all", "any", "max", "mean", "min", "prod", "sum"}) {
    DeclareOp(name)
        .Inputs({"data"})
        .Attrs("relay.attrs.ReduceAttrs", ReduceAttrs())
        .Relation(ReduceRelation);
  }
  for (const char* name : {"argmax", "argmin"}) {
    DeclareOp(name)
        .Inputs({"data"})
        .Attrs("relay.attrs.ArgReduceAttrs",
               {OptionalAttr("axis", AttrKind::kIntArray), BoolAttr("keepdims", false),
                BoolAttr("select_last_index", false), BoolAttr("exclude", false)})
        .Relation(ArgReduceRelation);
  }
  for (const char* name : {"cumprod", "cumsum"}) {
    DeclareOp(name)
        .Inputs({"data"})
        .Attrs("relay.attrs.ScanopAttrs", {OptionalAttr("axis", AttrKind::kInt), DTypeAttr("dtype"),
                                           BoolAttr("exclusive", false)})
        .Relation(ScanRelation);
  }
}

[[maybe_unused]] const bool declared_reductions = (DeclareReductions(), true);

RELAY_OP("variance")
    .Inputs({"data", "mean"})
    .Attrs("relay.attrs.VarianceAttrs",
           {OptionalAttr("axis", AttrKind::kIntArray), BoolAttr("keepdims", false),
            BoolAttr("exclude", false), BoolAttr("unbiased", false)})
    .Relation(VarianceRelation);

}  // namespace
}  // namespace tvm_fixes::relay
