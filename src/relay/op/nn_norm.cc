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
 * \file src/relay/op/nn_norm.cc
 * \brief Normalization.
 */
#include "nn_util.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief gamma and beta, and for nn.batch_norm also mean and variance, are vectors. */
TensorType CheckVectors(InferContext& context, int64_t* axis) {
  TensorType data = context.Tensor(0);
  *axis = context.Axis("axis", data->ndim());
  for (int i = 1; i < context.num_inputs(); ++i) {
    ExpectInput(context, i, {data->shape[*axis]}, data->dtype);
  }
  return data;
}

Type BatchNormRelation(InferContext& context) {
  if (!context.IsKnown(0)) return Type();
  int64_t axis = 0;
  TensorType data = CheckVectors(context, &axis);
  TensorType vector({data->shape[axis]}, data->dtype);
  return TupleType({data, vector, vector});
}

Type LayerNormRelation(InferContext& context) {
  if (!context.IsKnown(0)) return Type();
  int64_t axis = 0;
  return CheckVectors(context, &axis);
}

Type InstanceNormRelation(InferContext& context) {
  if (!context.IsKnown(0)) return Type();
  int64_t axis = 0;
  TensorType data = CheckVectors(context, &axis);
  if (data->ndim() < 3) context.FailInput(0, "a tensor with at least 3 dimensions");
  if (axis == 0) context.FailAttr("axis", "an axis other than the batch");
  return data;
}

Type GroupNormRelation(InferContext& context) {
  if (!context.IsKnown(0)) return Type();
  int64_t axis = 0;
  TensorType data = CheckVectors(context, &axis);
  int64_t groups = context.Int("num_groups");
  std::optional<int64_t> channels = StaticDim(data->shape[axis]);
  if (axis == 0) context.FailAttr("axis", "an axis other than the batch");
  if (groups < 1 || (channels && *channels % groups != 0)) {
    context.FailAttr("num_groups", "a divisor of the channels");
  }
  return data;
}

Type LRNRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  context.Axis("axis", data->ndim());
  int64_t size = context.Int("size");
  if (size < 1 || size % 2 == 0) context.FailAttr("size", "positive odd int");
  return data;
}

Type L2NormalizeRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  if (!context.Has("axis")) return data;
  for (int64_t axis : context.Ints("axis")) context.CheckAxis("axis", axis, data->ndim());
  return data;
}

Type DropoutRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  return TupleType({data, data});
}

std::vector<AttrField> NormAttrs(int64_t axis) {
  return {IntAttr("axis", axis), FloatAttr("epsilon", 1e-5), BoolAttr("center", true),
          BoolAttr("scale", true)};
}

RELAY_OP("nn.batch_norm")
    .Inputs({"data", "gamma", "beta", "moving_mean", "moving_var"})
    .Attrs("relay.attrs.BatchNormAttrs", NormAttrs(1))
    .InfersInputs()
    .Relation(BatchNormRelation);

RELAY_OP("nn.layer_norm")
    .Inputs({"data", "gamma", "beta"})
    .Attrs("relay.attrs.LayerNormAttrs", NormAttrs(-1))
    .InfersInputs()
    .Relation(LayerNormRelation);

RELAY_OP("nn.instance_norm")
    .Inputs({"data", "gamma", "beta"})
    .Attrs("relay.attrs.InstanceNormAttrs", NormAttrs(1))
    .InfersInputs()
    .Relation(InstanceNormRelation);

RELAY_OP("nn.group_norm")
    .Inputs({"data", "gamma", "beta"})
    .Attrs("relay.attrs.GroupNormAttrs",
           {IntAttr("num_groups", 0), IntAttr("axis", 1), FloatAttr("epsilon", 1e-5),
            BoolAttr("center", true), BoolAttr("scale", true)})
    .InfersInputs()
    .Relation(GroupNormRelation);

RELAY_OP("nn.lrn")
    .Inputs({"data"})
    .Attrs("relay.attrs.LRNAttrs", {IntAttr("size", 5), IntAttr("axis", 1), FloatAttr("bias", 2),
                                    FloatAttr("alpha", 0.0001), FloatAttr("beta", 0.75)})
    .Relation(LRNRelation);

RELAY_OP("nn.l2_normalize")
    .Inputs({"data"})
    .Attrs("relay.attrs.L2NormalizeAttrs",
           {RequiredAttr("eps", AttrKind::kFloat), OptionalAttr("axis", AttrKind::kIntArray)})
    .Relation(L2NormalizeRelation);

RELAY_OP("nn.dropout")
    .Inputs({"data"})
    .Attrs("relay.attrs.DropoutAttrs", {FloatAttr("rate", 0.5)})
    .Relation(DropoutRelation);

}  // namespace
}  // namespace tvm_fixes::relay
