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
 * \file src/relay/op/random.cc
 * \brief Random numbers of the generator Threefry.
 */
#include "registry.h"

namespace tvm_fixes::relay {
namespace {

constexpr DLDataType kUInt64{kDLUInt, 64, 1};

TensorType KeyType() { return TensorType(Shape{int64_t{10}}, kUInt64); }

void CheckKey(InferContext& context) {
  TensorType key = context.Tensor(0, 1);
  if (!SameDType(key->dtype, kUInt64) || !MayBeEqual(key->shape[0], int64_t{10})) {
    context.FailInput(0, "a key: Tensor[(10), uint64]");
  }
}

/*! \brief The shape of the numbers, which must not be empty. */
Shape NumbersShape(InferContext& context) {
  std::vector<int64_t> shape = context.Ints("out_shape");
  for (int64_t extent : shape) {
    if (extent < 1) context.FailAttr("out_shape", "ints above 0");
  }
  return MakeShape(shape);
}

Type ThreefryGenerateRelation(InferContext& context) {
  CheckKey(context);
  return TupleType(Array<Type>{KeyType(), TensorType(NumbersShape(context), kUInt64)});
}

Type ThreefrySplitRelation(InferContext& context) {
  CheckKey(context);
  return TupleType(Array<Type>{KeyType(), KeyType()});
}

/*! \brief uniform and normal: the key and two parameters, which are scalars. */
Type DistributionRelation(InferContext& context) {
  CheckKey(context);
  DLDataType dtype = context.DType("out_dtype");
  if (dtype.code != kDLFloat || (dtype.bits != 32 && dtype.bits != 64)) {
    context.FailAttr("out_dtype", "float32 or float64");
  }
  for (int i = 1; i < 3; ++i) {
    if (!SameDType(context.Tensor(i, 0)->dtype, dtype)) {
      context.FailInput(i, "a scalar of dtype " + DTypeText(dtype));
    }
  }
  return TupleType(Array<Type>{KeyType(), TensorType(NumbersShape(context), dtype)});
}

Type MultinomialRelation(InferContext& context) {
  CheckKey(context);
  TensorType probs = context.Tensor(1);
  if (probs->ndim() == 0) context.FailInput(1, "a tensor with at least 1 dimension");
  int64_t samples = context.Int("num_samples");
  if (samples < 1) context.FailAttr("num_samples", "an int above 0");
  Shape shape = probs->shape;
  shape.Set(probs->ndim() - 1, samples);
  return TupleType(Array<Type>{KeyType(), TensorType(shape, kInt32)});
}

RELAY_OP("random.threefry_generate")
    .Inputs({"key"})
    .Attrs("relay.attrs.ThreefryGenerateAttrs", {RequiredAttr("out_shape", AttrKind::kIntArray)})
    .Relation(ThreefryGenerateRelation);

RELAY_OP("random.threefry_split").Inputs({"key"}).Relation(ThreefrySplitRelation);

RELAY_OP("random.uniform")
    .Inputs({"key", "low", "high"})
    .Attrs("relay.attrs.UniformAttrs",
           {RequiredAttr("out_shape", AttrKind::kIntArray), DTypeAttr("out_dtype")})
    .Relation(DistributionRelation);

RELAY_OP("random.normal")
    .Inputs({"key", "mean", "scale"})
    .Attrs("relay.attrs.NormalAttrs",
           {RequiredAttr("out_shape", AttrKind::kIntArray), DTypeAttr("out_dtype")})
    .Relation(DistributionRelation);

RELAY_OP("random.multinomial")
    .Inputs({"key", "probs"})
    .Attrs("relay.attrs.MultinomialAttrs", {IntAttr("num_samples", 1)})
    .Relation(MultinomialRelation);

}  // namespace
}  // namespace tvm_fixes::relay
