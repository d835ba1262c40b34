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
 * \file src/cuda_libraries/cublas.cc
 * \brief Matrix products by cuBLASLt.
 *
 * The declarations follow NVIDIA's documentation of the cuBLASLt API, version 13.
 */
#include "call.h"

namespace tvm_fixes::cuda_libraries {
namespace {

// cudaDataType
constexpr int kFloat16 = 2;
constexpr int kBFloat16 = 14;
constexpr int kFloat32 = 0;
// cublasComputeType_t: float32 sums, and no TF32 for products of float32.
constexpr int kCompute32 = 68;
// cublasLtMatmulDescAttributes_t
constexpr int kTransposeA = 3;
constexpr int kTransposeB = 4;
constexpr int kEpilogue = 7;
constexpr int kBiasPointer = 8;
// cublasLtEpilogue_t
constexpr uint32_t kBias = 4;
// cublasLtMatrixLayoutAttribute_t
constexpr int kBatchCount = 5;
constexpr int kBatchStride = 6;
// cublasLtMatmulPreferenceAttributes_t
constexpr int kMaxWorkspace = 1;
constexpr int kMinAlignments[] = {5, 6, 7, 8};

struct Algorithm {
  uint64_t data[8];
};

struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

using SetAttribute = int(Handle, int, const void*, size_t);

/*! \brief cuBLASLt for one thread and one device. */
struct CublasLt {
  CublasLt() : library("libcublasLt.so.13") {
    Create* create;
    library.Find("cublasLtCreate", &create);
    library.Find("cublasLtMatmul", &matmul);
    library.Find("cublasLtMatmulAlgoGetHeuristic", &find_algorithm);
    library.Find("cublasLtMatmulDescCreate", &create_product);
    library.Find("cublasLtMatmulDescSetAttribute", &set_product);
    library.Find("cublasLtMatrixLayoutCreate", &create_layout);
    library.Find("cublasLtMatrixLayoutSetAttribute", &set_layout);
    library.Find("cublasLtMatmulPreferenceCreate", &create_preference);
    library.Find("cublasLtMatmulPreferenceSetAttribute", &set_preference);
    library.Find("cublasLtMatmulPreferenceDestroy", &destroy_preference);
    Check(create(&handle), "cublasLtCreate");
  }

  Library library;
  Handle handle = nullptr;
  int (*matmul)(Handle, Handle, const void*, const void*, Handle, const void*, Handle, const void*,
                const void*, Handle, void*, Handle, const Algorithm*, void*, size_t, void*);
  int (*find_algorithm)(Handle, Handle, Handle, Handle, Handle, Handle, Handle, int, Heuristic*,
                        int*);
  int (*create_product)(Handle*, int, int);
  int (*create_layout)(Handle*, int, uint64_t, uint64_t, int64_t);
  Create* create_preference;
  SetAttribute *set_product, *set_layout, *set_preference;
  int (*destroy_preference)(Handle);
};

/*! \brief A matrix or a batch of matrices, in row-major order. */
struct Matrices {
  int64_t rows, columns, count;
};

Matrices MatricesOf(const DLTensor& tensor) {
  if (tensor.ndim < 2) throw std::runtime_error("expected matrices, got a vector");
  const int64_t* last = tensor.shape + tensor.ndim - 2;
  int64_t count = 1;
  for (const int64_t* extent = tensor.shape; extent < last; ++extent) count *= *extent;
  return {last[0], last[1], count};
}

int TypeOf(const DLTensor& tensor) { return CodeOf(tensor, kFloat32, kFloat16, kBFloat16); }

/*!
 * \brief The description of a product, and the algorithm for it.
 *
 * cuBLAS stores matrices by columns.  A row-major matrix is its transpose, so the product is
 * computed as (lhs * rhs)^T = rhs^T * lhs^T, and cuBLAS's A is `rhs`.
 */
struct Plan {
  Handle product, lhs, rhs, out;
  Heuristic found;
};

/*! \brief The arguments: lhs, rhs, an optional bias, options, the result and a workspace. */
struct Call {
  explicit Call(const Arguments& args)
      : lhs(args.Tensor(0)),
        rhs(args.Tensor(1)),
        bias(args.size() == 6 ? &args.Tensor(2) : nullptr),
        options(args.Shape(args.size() - 3)),
        out(args.Tensor(args.size() - 2)),
        workspace(args.Tensor(args.size() - 1)) {
    if (options.size() != 2) throw std::runtime_error("expected two options");
  }

  bool transposes_lhs() const { return options[0] != 0; }
  bool transposes_rhs() const { return options[1] != 0; }

  /*! \brief All values that determine the algorithm. */
  std::vector<int64_t> Key() const {
    std::vector<int64_t> key = options;
    key.push_back(bias != nullptr ? Alignment(*bias) : 0);
    key.push_back(workspace.shape[0]);
    for (const DLTensor* tensor : {&lhs, &rhs, &out}) {
      key.insert(key.end(), {TypeOf(*tensor), tensor->ndim, Alignment(*tensor)});
      key.insert(key.end(), tensor->shape, tensor->shape + tensor->ndim);
    }
    return key;
  }

  const DLTensor& lhs;
  const DLTensor& rhs;
  const DLTensor* bias;
  std::vector<int64_t> options;
  const DLTensor& out;
  const DLTensor& workspace;
};

/*! \brief The matrices of a call. */
struct Operands {
  Matrices lhs, rhs, out;
};

/*!
 * \brief Check the extents; if a batch is multiplied by one matrix, merge the batch into the rows.
 * \throws std::runtime_error if the extents do not fit.
 */
Operands OperandsOf(const Call& call) {
  Operands found{MatricesOf(call.lhs), MatricesOf(call.rhs), MatricesOf(call.out)};
  const auto& [lhs, rhs, out] = found;
  const int64_t rows = call.transposes_lhs() ? lhs.columns : lhs.rows;
  const int64_t depth = call.transposes_lhs() ? lhs.rows : lhs.columns;
  const int64_t columns = call.transposes_rhs() ? rhs.rows : rhs.columns;
  const int64_t depth_of_rhs = call.transposes_rhs() ? rhs.columns : rhs.rows;
  const bool are_equal = rows == out.rows && columns == out.columns && depth == depth_of_rhs;
  const bool cover_batch =
      (lhs.count == 1 || lhs.count == out.count) && (rhs.count == 1 || rhs.count == out.count);
  const DLTensor* bias = call.bias;
  if (!are_equal || !cover_batch || depth == 0 ||
      (bias != nullptr && (bias->ndim != 1 || bias->shape[0] != out.columns))) {
    throw std::runtime_error("the extents of the operands do not fit");
  }
  if (rhs.count == 1 && lhs.count == out.count && !call.transposes_lhs()) {
    found.lhs = {lhs.rows * lhs.count, lhs.columns, 1};
    found.out = {out.rows * out.count, out.columns, 1};
  }
  return found;
}

Handle LayoutOf(const CublasLt& lt, const DLTensor& tensor, const Matrices& matrices,
                int64_t count) {
  Handle layout;
  Check(
      lt.create_layout(&layout, TypeOf(tensor), matrices.columns, matrices.rows, matrices.columns),
      "cublasLtMatrixLayoutCreate");
  if (count > 1) {
    const auto batch = static_cast<int32_t>(count);
    const int64_t stride = matrices.count == 1 ? 0 : matrices.rows * matrices.columns;
    const char* function = "cublasLtMatrixLayoutSetAttribute";
    Check(lt.set_layout(layout, kBatchCount, &batch, sizeof(batch)), function);
    Check(lt.set_layout(layout, kBatchStride, &stride, sizeof(stride)), function);
  }
  return layout;
}

void SetBias(const CublasLt& lt, const Plan& plan, const Call& call) {
  if (call.bias == nullptr) return;
  void* bias = Data(*call.bias);
  Check(lt.set_product(plan.product, kBiasPointer, &bias, sizeof(bias)),
        "cublasLtMatmulDescSetAttribute");
}

Plan Describe(const CublasLt& lt, const Call& call) {
  const Operands operands = OperandsOf(call);
  Plan plan{};
  Check(lt.create_product(&plan.product, kCompute32, kFloat32), "cublasLtMatmulDescCreate");
  const int32_t transposes[] = {call.transposes_rhs(), call.transposes_lhs()};
  const char* function = "cublasLtMatmulDescSetAttribute";
  Check(lt.set_product(plan.product, kTransposeA, &transposes[0], sizeof(int32_t)), function);
  Check(lt.set_product(plan.product, kTransposeB, &transposes[1], sizeof(int32_t)), function);
  if (call.bias != nullptr) {
    Check(lt.set_product(plan.product, kEpilogue, &kBias, sizeof(kBias)), function);
  }
  SetBias(lt, plan, call);
  const int64_t count = operands.out.count;
  plan.lhs = LayoutOf(lt, call.lhs, operands.lhs, count);
  plan.rhs = LayoutOf(lt, call.rhs, operands.rhs, count);
  plan.out = LayoutOf(lt, call.out, operands.out, count);
  return plan;
}

Plan Choose(const CublasLt& lt, const Call& call) {
  Plan plan = Describe(lt, call);
  Handle preference;
  Check(lt.create_preference(&preference), "cublasLtMatmulPreferenceCreate");
  const auto workspace = static_cast<uint64_t>(call.workspace.shape[0]);
  const char* function = "cublasLtMatmulPreferenceSetAttribute";
  Check(lt.set_preference(preference, kMaxWorkspace, &workspace, sizeof(workspace)), function);
  const uint32_t alignments[] = {Alignment(call.rhs), Alignment(call.lhs), Alignment(call.out),
                                 Alignment(call.out)};
  for (int i = 0; i < 4; ++i) {
    Check(lt.set_preference(preference, kMinAlignments[i], &alignments[i], sizeof(uint32_t)),
          function);
  }
  int found = 0;
  const int status = lt.find_algorithm(lt.handle, plan.product, plan.rhs, plan.lhs, plan.out,
                                       plan.out, preference, 1, &plan.found, &found);
  lt.destroy_preference(preference);
  Check(status, "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0) throw std::runtime_error("cuBLASLt has no algorithm for this product");
  return plan;
}

void Multiply(const Arguments& args) {
  if (args.size() != 5 && args.size() != 6) throw std::runtime_error("expected 5 or 6 arguments");
  const Call call(args);
  if (IsEmpty(call.out)) return;
  auto& state = State<CublasLt, Plan>::For(call.out);
  const CublasLt& lt = state.functions;
  const Plan& plan = state.PlanOf(call, Choose);
  SetBias(lt, plan, call);
  const float one = 1, zero = 0;
  Check(lt.matmul(lt.handle, plan.product, &one, Data(call.rhs), plan.rhs, Data(call.lhs), plan.lhs,
                  &zero, Data(call.out), plan.out, Data(call.out), plan.out, &plan.found.algorithm,
                  Data(call.workspace), plan.found.workspace, Stream(call.out)),
        "cublasLtMatmul");
}

}  // namespace

/*!
 * \brief Multiply matrices: out = lhs * rhs + bias.
 *
 * The arguments are lhs, rhs, optionally a bias of one element per column, a shape of options, out,
 * and a workspace of bytes.  The options are whether lhs is transposed, and whether rhs is.
 */
extern "C" __attribute__((visibility("default"))) int __tvm_ffi_tvm_fixes_cublas_matmul(
    void*, const TVMFFIAny* args, int32_t size, TVMFFIAny*) {
  return Guard("cuBLAS", args, size, Multiply);
}

}  // namespace tvm_fixes::cuda_libraries
