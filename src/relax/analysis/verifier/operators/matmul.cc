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
 * \file src/relax/analysis/verifier/operators/matmul.cc
 * \brief Obligations of matmul and attention.
 */
#include "obligations.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief All extents of an argument except the last `count`. */
std::vector<Extent> BatchDims(Obligations* obligations, size_t arg, int count) {
  std::vector<Extent> dims;
  const int ndim = obligations->Tensor(arg)->ndim;
  for (int axis = 0; axis < ndim - count; ++axis) dims.push_back(obligations->Dim(arg, axis));
  return dims;
}

/*! \brief (…, m, k) x (…, k, n). An operand of rank 1 is a row or a column. */
void Matmul(Obligations* obligations) {
  for (size_t arg : {0, 1}) {
    const TypeInfo* tensor = obligations->Tensor(arg);
    if (tensor == nullptr) return;
    if (tensor->ndim == 0) {
      const std::string name = std::to_string(arg);
      return obligations->Fail(static_cast<int>(arg),
                               "rank of argument " + name + ": expected at least 1, got 0");
    }
  }
  const int lhs_ndim = obligations->Tensor(0)->ndim;
  const int rhs_ndim = obligations->Tensor(1)->ndim;
  obligations->Equal(obligations->Dim(1, rhs_ndim == 1 ? 0 : rhs_ndim - 2),
                     obligations->Dim(0, lhs_ndim - 1));
  if (lhs_ndim <= 2 || rhs_ndim <= 2) return;
  obligations->Broadcast(BatchDims(obligations, 0, 2), BatchDims(obligations, 1, 2));
}

/*!
 * \brief Queries, keys and values (batch, length, heads, width), and an optional bias (batch,
 *        heads, queries, keys).
 */
void Attention(Obligations* obligations) {
  const size_t count = obligations->call().args.size();
  bool has_rank = true;
  for (size_t arg = 0; arg < count; ++arg) has_rank &= obligations->HasRank(arg, 4);
  if (!has_rank) return;
  bool has_extents = true;
  for (size_t arg = 0; arg < count; ++arg) has_extents &= obligations->HasExtents(arg);
  if (!has_extents) return;
  for (size_t arg = 0; arg < count; ++arg) {
    if (obligations->Tensor(arg) == nullptr) return;
  }
  for (size_t arg : {1, 2}) {
    obligations->Equal(obligations->Dim(arg, 0), obligations->Dim(0, 0));
    obligations->MultipleOf(obligations->Dim(0, 2), obligations->Dim(arg, 2));
  }
  obligations->Equal(obligations->Dim(1, 3), obligations->Dim(0, 3));
  obligations->Equal(obligations->Dim(2, 1), obligations->Dim(1, 1));
  if (count < 4) return;
  obligations->BroadcastTo(obligations->Dim(3, 0), obligations->Dim(0, 0));
  obligations->BroadcastTo(obligations->Dim(3, 1), obligations->Dim(0, 2));
  obligations->BroadcastTo(obligations->Dim(3, 2), obligations->Dim(0, 1));
  obligations->Equal(obligations->Dim(3, 3), obligations->Dim(1, 1));
}

TVM_FIXES_INIT_BLOCK() {
  RegisterObligations("op.matmul", Matmul, {"relax.matmul"});
  RegisterObligations("op.attention", Attention, {"relax.nn.attention", "relax.nn.attention_bias"});
}

}  // namespace

}  // namespace verifier
}  // namespace tvm_fixes
