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
 * \file src/relay/op/elementwise_create.cc
 * \brief Tensors filled with values, casts, selection, shapes.
 */
#include <cmath>

#include "../ir/tensor.h"
#include "registry.h"

namespace tvm_fixes::relay {
namespace {

Type CastRelation(InferContext& context) {
  return TensorType(context.Tensor(0)->shape, context.DType("dtype"));
}

Type CastLikeRelation(InferContext& context) {
  return TensorType(context.Tensor(0)->shape, context.Tensor(1)->dtype);
}

Shape CheckedShape(const InferContext& context) {
  Shape shape = context.Dims("shape");
  for (const Dim& dim : shape) {
    if (StaticDim(dim).value_or(-1) < 0) context.FailAttr("shape", "non-negative ints");
  }
  return shape;
}

Type FillRelation(InferContext& context) {
  return TensorType(CheckedShape(context), context.DType("dtype"));
}

Type FullRelation(InferContext& context) {
  TensorType fill = context.Tensor(0, 0);
  return TensorType(CheckedShape(context), context.DType("dtype", fill->dtype));
}

Type FullLikeRelation(InferContext& context) {
  context.Tensor(1, 0);
  return context.Tensor(0);
}

Type WhereRelation(InferContext& context) {
  TensorType lhs = context.Tensor(1);
  TensorType rhs = context.Tensor(2);
  context.CheckSameDType(1, 2);
  Shape branches = context.Broadcast(lhs->shape, rhs->shape);
  return TensorType(context.Broadcast(context.Tensor(0)->shape, branches), lhs->dtype);
}

/*! \brief The value of an input that is a constant number, else std::nullopt. */
std::optional<double> ConstantScalar(const InferContext& context, int index) {
  const ConstantObj* constant = context.ConstantInput(index);
  if (constant == nullptr || constant->data.ndim() != 0) return std::nullopt;
  DLDataType dtype = constant->data.dtype();
  const void* data = constant->data.data_ptr();
  if (IsInteger(dtype)) return static_cast<double>(IntsOf(constant->data)[0]);
  if (!IsFloat(dtype)) return std::nullopt;
  if (dtype.bits == 64) return *static_cast<const double*>(data);
  if (dtype.bits == 32) return *static_cast<const float*>(data);
  if (SameDType(dtype, DLDataType{kDLFloat, 16, 1})) {
    return FloatFromHalf(*static_cast<const uint16_t*>(data));
  }
  return std::nullopt;
}

Type ArangeRelation(InferContext& context) {
  DLDataType dtype = context.DType("dtype");
  for (int i = 0; i < 3; ++i) {
    if (!SameDType(context.Tensor(i, 0)->dtype, dtype)) {
      context.FailInput(i, "a scalar of dtype " + DTypeText(dtype));
    }
  }
  std::optional<double> start = ConstantScalar(context, 0);
  std::optional<double> stop = ConstantScalar(context, 1);
  std::optional<double> step = ConstantScalar(context, 2);
  if (!start || !stop || !step) return TensorType({AnyDim()}, dtype);
  double count = std::ceil((*stop - *start) / *step);
  if (!(count > 0 && count <= 2147483647.0)) {
    context.Fail("an interval from " + std::to_string(*start) + " to " + std::to_string(*stop) +
                 " with step " + std::to_string(*step) + " has no valid number of elements");
  }
  return TensorType(MakeShape({static_cast<int64_t>(count)}), dtype);
}

Type ShapeOfRelation(InferContext& context) {
  int ndim = context.Tensor(0)->ndim();
  return TensorType(ndim == 0 ? Shape() : MakeShape({ndim}), context.DType("dtype"));
}

Type NdarraySizeRelation(InferContext& context) {
  context.Tensor(0);
  return TensorType(Shape(), context.DType("dtype"));
}

RELAY_OP("cast")
    .Inputs({"data"})
    .Attrs("relay.attrs.CastAttrs", {RequiredAttr("dtype", AttrKind::kDType)})
    .Relation(CastRelation);

RELAY_OP("cast_like").Inputs({"data", "dtype_like"}).Relation(CastLikeRelation);

RELAY_OP("reinterpret")
    .Inputs({"data"})
    .Attrs("relay.attrs.CastAttrs", {RequiredAttr("dtype", AttrKind::kDType)})
    .Relation(CastRelation);

RELAY_OP("zeros")
    .Inputs({})
    .Attrs("relay.attrs.InitOpAttrs",
           {RequiredAttr("shape", AttrKind::kIntArray), DTypeAttr("dtype")})
    .Relation(FillRelation);

RELAY_OP("ones")
    .Inputs({})
    .Attrs("relay.attrs.InitOpAttrs",
           {RequiredAttr("shape", AttrKind::kIntArray), DTypeAttr("dtype")})
    .Relation(FillRelation);

RELAY_OP("full")
    .Inputs({"fill_value"})
    .Attrs("relay.attrs.InitOpAttrs",
           {RequiredAttr("shape", AttrKind::kIntArray), DTypeAttr("dtype")})
    .Relation(FullRelation);

RELAY_OP("zeros_like").Inputs({"data"}).Relation(IdentityRelation);

RELAY_OP("ones_like").Inputs({"data"}).Relation(IdentityRelation);

RELAY_OP("full_like").Inputs({"data", "fill_value"}).Relation(FullLikeRelation);

RELAY_OP("where").Inputs({"condition", "x", "y"}).Relation(WhereRelation);

// start, stop and step are inputs as well; the attributes repeat them and are not read.
RELAY_OP("arange")
    .Inputs({"start", "end", "step"})
    .Attrs("relay.attrs.ArangeAttrs",
           {OptionalAttr("start", AttrKind::kAny), OptionalAttr("stop", AttrKind::kAny),
            OptionalAttr("step", AttrKind::kAny), RequiredAttr("dtype", AttrKind::kDType)})
    .Relation(ArangeRelation);

RELAY_OP("shape_of")
    .Inputs({"data"})
    .Attrs("relay.attrs.ShapeOfAttrs", {DTypeAttr("dtype")})
    .Relation(ShapeOfRelation);

RELAY_OP("ndarray_size")
    .Inputs({"data"})
    .Attrs("relay.attrs.NdarraySizeAttrs", {DTypeAttr("dtype")})
    .Relation(NdarraySizeRelation)
    .Alias("contrib.ndarray_size");

}  // namespace
}  // namespace tvm_fixes::relay
