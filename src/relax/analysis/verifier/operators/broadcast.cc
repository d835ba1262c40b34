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
 * \file src/relax/analysis/verifier/operators/broadcast.cc
 * \brief Obligations of operators whose operands broadcast or have the same shape.
 */
#include "obligations.h"

namespace tvm_fixes {
namespace verifier {

namespace {

std::vector<Extent> DimsOf(Obligations* obligations, size_t arg) {
  std::vector<Extent> dims;
  const int ndim = obligations->Tensor(arg)->ndim;
  for (int axis = 0; axis < ndim; ++axis) dims.push_back(obligations->Dim(arg, axis));
  return dims;
}

/*! \brief Require that all arguments broadcast; a scalar always does. */
void Elementwise(Obligations* obligations) {
  // Most calls have operands of one type, which need no proof.
  const std::vector<TypeId>& args = obligations->call().args;
  if (args.size() == 2 && args[0] == args[1]) return;
  std::vector<Extent> all;
  for (size_t arg = 0; arg < args.size(); ++arg) {
    if (obligations->Tensor(arg) == nullptr) continue;
    all = obligations->Broadcast(all, DimsOf(obligations, arg));
  }
}

/*! \brief Require that all arguments have the same shape. */
void SameShape(Obligations* obligations) {
  if (obligations->Tensor(0) == nullptr) return;
  const int ndim = obligations->Tensor(0)->ndim;
  for (size_t arg = 1; arg < obligations->call().args.size(); ++arg) {
    if (obligations->Tensor(arg) == nullptr || !obligations->HasRank(arg, ndim)) continue;
    for (int axis = 0; axis < ndim; ++axis) {
      obligations->Equal(obligations->Dim(arg, axis), obligations->Dim(0, axis));
    }
  }
}

void BroadcastTo(Obligations* obligations) {
  const TypeInfo* data = obligations->Tensor(0);
  const TypeInfo& shape = obligations->type(obligations->call().args[1]);
  if (data == nullptr || shape.type_class != TypeClass::kShape || shape.ndim < 0) return;
  if (shape.ndim < data->ndim) {
    return obligations->Fail(1, "rank of argument 1: expected at least " +
                                    std::to_string(data->ndim) + " (the rank of argument 0), got " +
                                    std::to_string(shape.ndim));
  }
  for (int axis = 0; axis < data->ndim; ++axis) {
    obligations->BroadcastTo(obligations->Dim(0, axis),
                             obligations->Dim(1, axis + shape.ndim - data->ndim));
  }
}

TVM_FIXES_INIT_BLOCK() {
  RegisterObligations(
      "op.broadcast", Elementwise,
      {"relax.add",          "relax.subtract",    "relax.multiply",    "relax.divide",
       "relax.floor_divide", "relax.floor_mod",   "relax.mod",         "relax.power",
       "relax.log_add_exp",  "relax.atan2",       "relax.maximum",     "relax.minimum",
       "relax.equal",        "relax.not_equal",   "relax.greater",     "relax.greater_equal",
       "relax.less",         "relax.less_equal",  "relax.logical_and", "relax.logical_or",
       "relax.logical_xor",  "relax.bitwise_and", "relax.bitwise_or",  "relax.bitwise_xor",
       "relax.left_shift",   "relax.right_shift", "relax.where"});
  RegisterObligations("op.broadcast", SameShape,
                      {"relax.ewise_fma", "relax.nn.cross_entropy_with_logits"});
  RegisterObligations("op.broadcast", BroadcastTo, {"relax.broadcast_to"});
}

}  // namespace

}  // namespace verifier
}  // namespace tvm_fixes
