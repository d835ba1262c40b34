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
 * \file src/relay/op/nn_activation.cc
 * \brief Activation functions and the addition of a bias.
 */
#include "nn_util.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The second input is a vector along an axis of the first. */
Type VectorRelation(InferContext& context) {
  if (!context.IsKnown(0)) return Type();
  TensorType data = context.Tensor(0);
  int64_t axis = context.Axis("axis", data->ndim());
  ExpectInput(context, 1, {data->shape[axis]}, data->dtype);
  return data;
}

RELAY_OP("nn.relu").Inputs({"data"}).Relation(IdentityRelation);

RELAY_OP("nn.leaky_relu")
    .Inputs({"data"})
    .Attrs("relay.attrs.LeakyReluAttrs", {FloatAttr("alpha", 0.25)})
    .Relation(IdentityRelation);

RELAY_OP("nn.prelu")
    .Inputs({"data", "alpha"})
    .Attrs("relay.attrs.PReluAttrs", {IntAttr("axis", 1)})
    .InfersInputs()
    .Relation(VectorRelation);

RELAY_OP("nn.bias_add")
    .Inputs({"data", "bias"})
    .Attrs("relay.attrs.BiasAddAttrs", {IntAttr("axis", 1)})
    .InfersInputs()
    .Relation(VectorRelation);

RELAY_OP("nn.softmax")
    .Inputs({"data"})
    .Attrs("relay.attrs.SoftmaxAttrs", {IntAttr("axis", -1)})
    .Relation(AxisRelation);

RELAY_OP("nn.fast_softmax")
    .Inputs({"data"})
    .Attrs("relay.attrs.SoftmaxAttrs", {IntAttr("axis", -1)})
    .Relation(AxisRelation);

RELAY_OP("nn.log_softmax")
    .Inputs({"data"})
    .Attrs("relay.attrs.SoftmaxAttrs", {IntAttr("axis", -1)})
    .Relation(AxisRelation);

}  // namespace
}  // namespace tvm_fixes::relay
