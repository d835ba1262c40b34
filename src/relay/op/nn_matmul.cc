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
 * \file src/relay/op/nn_matmul.cc
 * \brief Products of matrices.
 */
#include "nn_util.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief A tensor of any number of dimensions times a matrix. */
Type MatmulType(InferContext& context, bool transpose_a, bool transpose_b) {
  if (!context.IsKnown(0)) return Type();
  CheckNotRewritten(context);
  TensorType data = context.Tensor(0);
  int64_t last = data->ndim() - 1;
  if (last < (transpose_a ? 1 : 0)) {
    context.FailInput(0, transpose_a ? "at least 2 dimensions" : "at least 1 dimension");
  }
  Shape result = data->shape;
  Dim inner = result[transpose_a ? last - 1 : last];
  if (transpose_a) result.Set(last - 1, result[last]);
  Dim units = context.Attr("units");
  if (!context.Has("units")) {
    if (!context.IsKnown(1)) return Type();
    units = context.Tensor(1, 2)->shape[transpose_b ? 0 : 1];
  }
  Shape weight = transpose_b ? Shape{units, inner} : Shape{inner, units};
  ExpectInput(context, 1, weight, data->dtype, false);
  result.Set(last, units);
  return TensorType(result, context.DType("out_dtype", data->dtype));
}

Type DenseRelation(InferContext& context) { return MatmulType(context, false, true); }

Type MatmulRelation(InferContext& context) {
  return MatmulType(context, context.Bool("transpose_a"), context.Bool("transpose_b"));
}

Type BatchMatmulRelation(InferContext& context) {
  CheckNotRewritten(context);
  TensorType a = context.Tensor(0, 3);
  TensorType b = context.Tensor(1, 3);
  bool transpose_a = context.Bool("transpose_a");
  bool transpose_b = context.Bool("transpose_b");
  if (!MayBeEqual(a->shape[transpose_a ? 1 : 2], b->shape[transpose_b ? 2 : 1])) {
    context.Fail("cannot multiply " + ShapeText(a->shape) + (transpose_a ? " transposed" : "") +
                 " by " + ShapeText(b->shape) + (transpose_b ? " transposed" : "") +
                 "; TVM before 0.8 had no attribute transpose_b, and always transposed");
  }
  // A program of TVM before 0.8 looks like one that does not transpose.
  bool is_given = context.call()->attrs.count("transpose_b") > 0;
  if (!is_given && !transpose_a && MayBeEqual(a->shape[2], b->shape[2])) {
    context.Fail("transpose_b is needed to multiply " + ShapeText(a->shape) + " by " +
                 ShapeText(b->shape) + ": TVM before 0.8 always transposed the second operand");
  }
  std::optional<Dim> batch = BroadcastDim(a->shape[0], b->shape[0]);
  if (!batch) context.FailInput(1, "a batch of 1 or of " + DimText(a->shape[0]));
  Shape shape = {*batch, a->shape[transpose_a ? 2 : 1], b->shape[transpose_b ? 1 : 2]};
  return TensorType(shape, context.DType("out_dtype", a->dtype));
}

Type DensePackRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 2);
  TensorType weight = context.Tensor(1);
  Layout layout(context, "weight_layout", "NC");
  Shape shape = layout.ToCanonical(context, 1, weight->shape);
  if (!MayBeEqual(shape[1], data->shape[1])) {
    context.FailInput(1, "weights for " + DimText(data->shape[1]) + " features");
  }
  return TensorType({data->shape[0], shape[0]}, context.DType("out_dtype", data->dtype));
}

RELAY_OP("nn.dense")
    .Inputs({"data", "weight"})
    .Attrs("relay.attrs.DenseAttrs",
           {OptionalAttr("units", AttrKind::kInt), DTypeAttr("out_dtype"),
            StringAttr("auto_scheduler_rewritten_layout", ""),
            OptionalAttr("meta_schedule_original_shape", AttrKind::kIntArray)})
    .InfersInputs()
    .Relation(DenseRelation);

RELAY_OP("nn.matmul")
    .Inputs({"tensor_a", "tensor_b"})
    .Attrs("relay.attrs.MatmulAttrs",
           {OptionalAttr("units", AttrKind::kInt), DTypeAttr("out_dtype"),
            BoolAttr("transpose_a", false), BoolAttr("transpose_b", false),
            StringAttr("auto_scheduler_rewritten_layout", ""),
            OptionalAttr("meta_schedule_original_shape", AttrKind::kIntArray)})
    .InfersInputs()
    .Relation(MatmulRelation);

RELAY_OP("nn.batch_matmul")
    .Inputs({"tensor_a", "tensor_b"})
    .Attrs("relay.attrs.BatchMatmulAttrs",
           {DTypeAttr("out_dtype"), BoolAttr("transpose_a", false), BoolAttr("transpose_b", false),
            StringAttr("auto_scheduler_rewritten_layout", ""),
            OptionalAttr("meta_schedule_original_shape", AttrKind::kIntArray)})
    .Relation(BatchMatmulRelation);

RELAY_OP("nn.contrib_dense_pack")
    .Inputs({"data", "weight"})
    .Attrs("relay.attrs.DensePackAttrs",
           {OptionalAttr("units", AttrKind::kInt), DTypeAttr("out_dtype"),
            StringAttr("weight_layout", "NC")})
    .Relation(DensePackRelation);

}  // namespace
}  // namespace tvm_fixes::relay
