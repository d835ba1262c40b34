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
 * \file nn_sparse.cc
 * \brief Operators on sparse matrices: values, columns, and where each row begins (CSR, BSR).
 */
#include "registry.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief Check the columns and the beginnings of rows, and return the number of rows. */
Dim SparseRows(InferContext& context, int columns) {
  for (int i : {columns, columns + 1}) {
    if (!IsInteger(context.Tensor(i, 1)->dtype)) context.FailInput(i, "integers");
  }
  Dim begins = context.Tensor(columns + 1)->shape[0];
  if (StaticDim(begins) == 0) context.FailInput(columns + 1, "at least 1 element");
  return AddDim(begins, int64_t{-1});
}

/*! \brief Y = X W^T, where the values are numbers or blocks of a sparse W, or X if it is so. */
Type SparseDenseRelation(InferContext& context) {
  TensorType dense = context.Tensor(0, 2);
  TensorType values = context.Tensor(1);
  context.CheckSameDType(0, 1);
  Dim rows = SparseRows(context, 2);
  if (values->ndim() == 3) {
    std::optional<int64_t> inner = StaticDim(dense->shape[1]);
    std::optional<int64_t> width = StaticDim(values->shape[2]);
    bool fits = width && *width > 0 && StaticDim(values->shape[1]);
    if (!fits || (inner && *inner % *width != 0)) {
      context.FailInput(1, "blocks whose extents are known and divide the dense input");
    }
    rows = MultiplyDim(rows, values->shape[1]);
  } else if (values->ndim() != 1) {
    context.FailInput(1, "a tensor with 1 or 3 dimensions");
  }
  Dim others = dense->shape[0];
  if (context.Bool("sparse_lhs")) return TensorType(Shape{rows, others}, dense->dtype);
  return TensorType(Shape{others, rows}, dense->dtype);
}

Type SparseAddRelation(InferContext& context) {
  TensorType dense = context.Tensor(0, 2);
  context.Tensor(1, 1);
  context.CheckSameDType(0, 1);
  if (!MayBeEqual(SparseRows(context, 2), dense->shape[0])) {
    context.FailInput(3, "one element more than rows");
  }
  return dense;
}

/*! \brief Of square matrices only. */
Type SparseTransposeRelation(InferContext& context) {
  TensorType values = context.Tensor(0, 1);
  SparseRows(context, 1);
  Array<Type> fields{values, context.Tensor(1), context.Tensor(2)};
  return TupleType(fields);
}

RELAY_OP("nn.sparse_dense")
    .Inputs({"dense_data", "sparse_data", "sparse_indices", "sparse_indptr"})
    .Attrs("relay.attrs.SparseDenseAttrs", {BoolAttr("sparse_lhs", false)})
    .Relation(SparseDenseRelation);

RELAY_OP("nn.sparse_add")
    .Inputs({"dense_data", "sparse_data", "sparse_indices", "sparse_indptr"})
    .Relation(SparseAddRelation);

RELAY_OP("nn.sparse_transpose")
    .Inputs({"sparse_data", "sparse_indices", "sparse_indptr"})
    .Attrs("relay.attrs.SparseTransposeAttrs", {})
    .Relation(SparseTransposeRelation);

}  // namespace
}  // namespace tvm_fixes::relay
