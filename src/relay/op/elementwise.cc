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
 * \file src/relay/op/elementwise.cc
 * \brief Unary math, and binary operators that broadcast.
 */
#include "registry.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The shape of the input, with a bool result. */
Type PredicateRelation(InferContext& context) {
  return TensorType(context.Tensor(0)->shape, kBool);
}

Type FixedPointMultiplyRelation(InferContext& context) {
  for (int i = 1; i < context.num_inputs(); ++i) context.Tensor(i);
  return context.Tensor(0);
}

void DeclareUnary() {
  static const char* const names[] = {
      "abs",      "acos",      "acosh", "asin",    "asinh",      "atan", "atanh",
      "ceil",     "copy",      "cos",   "cosh",    "erf",        "exp",  "fast_erf",
      "fast_exp", "fast_tanh", "floor", "log",     "log10",      "log2", "logical_not",
      "negative", "round",     "rsqrt", "sigmoid", "sign",       "sin",  "sinh",
      "sqrt",     "tan",       "tanh",  "trunc",   "bitwise_not"};
  for (const char* name : names) DeclareOp(name).Inputs({"data"}).Relation(IdentityRelation);
  for (const char* name : {"isfinite", "isinf", "isnan"}) {
    DeclareOp(name).Inputs({"data"}).Relation(PredicateRelation);
  }
}

void DeclareBinary() {
  static const char* const names[] = {"add",         "bitwise_and",  "bitwise_or",   "bitwise_xor",
                                      "divide",      "floor_divide", "floor_mod",    "left_shift",
                                      "logical_and", "logical_or",   "logical_xor",  "maximum",
                                      "minimum",     "mod",          "multiply",     "power",
                                      "right_shift", "subtract",     "trunc_divide", "trunc_mod"};
  for (const char* name : names) {
    DeclareOp(name).Inputs({"lhs", "rhs"}).Relation(BroadcastRelation);
  }
  for (const char* name :
       {"equal", "greater", "greater_equal", "less", "less_equal", "not_equal"}) {
    DeclareOp(name).Inputs({"lhs", "rhs"}).Relation(CompareRelation);
  }
}

[[maybe_unused]] const bool declared_elementwise = (DeclareUnary(), DeclareBinary(), true);

RELAY_OP("clip")
    .Inputs({"data"})
    .Attrs("relay.attrs.ClipAttrs",
           {RequiredAttr("a_min", AttrKind::kFloat), RequiredAttr("a_max", AttrKind::kFloat)})
    .Relation(IdentityRelation);

RELAY_OP("fixed_point_multiply")
    .Inputs({"data"})
    .Attrs("relay.attrs.FixedPointMultiplyAttrs",
           {RequiredAttr("multiplier", AttrKind::kInt), RequiredAttr("shift", AttrKind::kInt)})
    .Relation(FixedPointMultiplyRelation);

RELAY_OP("fixed_point_multiply_per_axis")
    .Inputs({"data", "fp_multiplier", "left_shift", "right_shift"})
    .Attrs("relay.attrs.FixedPointMultiplyPerAxisAttrs",
           {BoolAttr("is_lshift_required", false), BoolAttr("is_rshift_required", false),
            RequiredAttr("axes", AttrKind::kIntArray)})
    .Relation(FixedPointMultiplyRelation);

}  // namespace
}  // namespace tvm_fixes::relay
