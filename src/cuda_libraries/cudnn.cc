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
 * \file src/cuda_libraries/cudnn.cc
 * \brief Convolutions by cuDNN.
 *
 * The declarations follow NVIDIA's documentation of the cuDNN API, version 9.
 */
#include "call.h"

namespace tvm_fixes::cuda_libraries {
namespace {

// cudnnDataType_t
constexpr int kFloat32 = 0;
constexpr int kFloat16 = 2;
constexpr int kBFloat16 = 9;
// cudnnTensorFormat_t
constexpr int kChannelsFirst = 0;
constexpr int kChannelsLast = 1;
// cudnnMathType_t: tensor cores, and none for float32, whose products TF32 would round.
constexpr int kTensorCores = 1;
constexpr int kFma = 3;
constexpr int kCrossCorrelation = 1;
constexpr int kMaxAlgorithms = 8;

/*! \brief cudnnConvolutionFwdAlgoPerf_t, and that of the gradient, which has the same layout. */
struct Performance {
  int algorithm;
  int status;
  float time;
  size_t memory;
  int determinism;
  int math;
  int reserved[3];
};

using FindAlgorithm = int(Handle, Handle, Handle, Handle, Handle, int, int*, Performance*);
using ConvolveFunction = int(Handle, const void*, Handle, const void*, Handle, const void*, Handle,
                             int, void*, size_t, const void*, Handle, void*);

/*! \brief cuDNN for one thread and one device. */
struct Cudnn {
  Cudnn() : library("libcudnn.so.9") {
    Create* create;
    library.Find("cudnnCreate", &create);
    library.Find("cudnnSetStream", &set_stream);
    library.Find("cudnnCreateTensorDescriptor", &create_tensor);
    library.Find("cudnnSetTensorNdDescriptorEx", &set_tensor);
    library.Find("cudnnCreateFilterDescriptor", &create_filter);
    library.Find("cudnnSetFilterNdDescriptor", &set_filter);
    library.Find("cudnnCreateConvolutionDescriptor", &create_convolution);
    library.Find("cudnnSetConvolutionNdDescriptor", &set_convolution);
    library.Find("cudnnSetConvolutionGroupCount", &set_groups);
    library.Find("cudnnSetConvolutionMathType", &set_math);
    library.Find("cudnnGetConvolutionForwardAlgorithm_v7", &find_forward);
    library.Find("cudnnGetConvolutionBackwardDataAlgorithm_v7", &find_transposed);
    library.Find("cudnnConvolutionForward", &forward);
    library.Find("cudnnConvolutionBackwardData", &transposed);
    Check(create(&handle), "cudnnCreate");
  }

  Library library;
  Handle handle = nullptr;
  int (*set_stream)(Handle, void*);
  Create *create_tensor, *create_filter, *create_convolution;
  int (*set_tensor)(Handle, int, int, int, const int*);
  int (*set_filter)(Handle, int, int, int, const int*);
  int (*set_convolution)(Handle, int, const int*, const int*, const int*, int, int);
  int (*set_groups)(Handle, int);
  int (*set_math)(Handle, int);
  FindAlgorithm *find_forward, *find_transposed;
  // The gradient of the data takes the weight first, and is a transposed convolution.
  ConvolveFunction *forward, *transposed;
};

int TypeOf(const DLTensor& tensor) { return CodeOf(tensor, kFloat32, kFloat16, kBFloat16); }

/*! \brief The arguments: data, weight, options, the result and a workspace. */
struct Call {
  explicit Call(const Arguments& args)
      : data(args.Tensor(0)),
        weight(args.Tensor(1)),
        options(args.Shape(2)),
        out(args.Tensor(3)),
        workspace(args.Tensor(4)),
        rank(data.ndim - 2) {
    if (rank < 1 || options.size() != 3 + 3 * static_cast<size_t>(rank)) {
      throw std::runtime_error("expected options for each spatial axis");
    }
  }

  bool is_transposed() const { return options[0] != 0; }
  bool has_channels_last() const { return options[1] != 0; }
  int groups() const { return static_cast<int>(options[2]); }

  /*! \brief Padding (0), strides (1) or dilations (2); cuDNN needs two spatial axes or more. */
  std::vector<int> Window(int which) const {
    const auto first = options.begin() + 3 + which * rank;
    std::vector<int> window(first, first + rank);
    if (rank == 1) window.insert(window.begin(), which == 0 ? 0 : 1);
    return window;
  }

  std::vector<int64_t> Key() const {
    std::vector<int64_t> key = options;
    key.insert(key.end(), {TypeOf(out), rank, workspace.shape[0]});
    for (const DLTensor* tensor : {&data, &weight, &out}) {
      key.insert(key.end(), tensor->shape, tensor->shape + tensor->ndim);
    }
    return key;
  }

  const DLTensor& data;
  const DLTensor& weight;
  std::vector<int64_t> options;
  const DLTensor& out;
  const DLTensor& workspace;
  int rank;
};

/*! \brief Extents in cuDNN's order, with the channels second. */
std::vector<int> ChannelsFirst(const Call& call, const DLTensor& tensor) {
  std::vector<int> extents(tensor.shape, tensor.shape + tensor.ndim);
  if (call.has_channels_last()) {
    std::rotate(extents.begin() + 1, extents.end() - 1, extents.end());
  }
  if (call.rank == 1) extents.insert(extents.begin() + 2, 1);
  return extents;
}

struct Plan {
  Handle data, weight, out, convolution;
  /*! \brief The algorithms that fit the workspace; the fastest is the last. */
  std::vector<Performance> algorithms;
};

Plan Describe(const Cudnn& dnn, const Call& call) {
  Plan plan{};
  const int format = call.has_channels_last() ? kChannelsLast : kChannelsFirst;
  const std::pair<Handle*, const DLTensor*> tensors[] = {{&plan.data, &call.data},
                                                         {&plan.out, &call.out}};
  for (auto [descriptor, tensor] : tensors) {
    const std::vector<int> extents = ChannelsFirst(call, *tensor);
    Check(dnn.create_tensor(descriptor), "cudnnCreateTensorDescriptor");
    Check(dnn.set_tensor(*descriptor, format, TypeOf(*tensor), static_cast<int>(extents.size()),
                         extents.data()),
          "cudnnSetTensorNdDescriptorEx");
  }
  const std::vector<int> extents = ChannelsFirst(call, call.weight);
  Check(dnn.create_filter(&plan.weight), "cudnnCreateFilterDescriptor");
  Check(dnn.set_filter(plan.weight, TypeOf(call.weight), format, static_cast<int>(extents.size()),
                       extents.data()),
        "cudnnSetFilterNdDescriptor");
  const std::vector<int> pads = call.Window(0), strides = call.Window(1),
                         dilations = call.Window(2);
  Check(dnn.create_convolution(&plan.convolution), "cudnnCreateConvolutionDescriptor");
  Check(dnn.set_convolution(plan.convolution, static_cast<int>(pads.size()), pads.data(),
                            strides.data(), dilations.data(), kCrossCorrelation, kFloat32),
        "cudnnSetConvolutionNdDescriptor");
  Check(dnn.set_groups(plan.convolution, call.groups()), "cudnnSetConvolutionGroupCount");
  return plan;
}

Plan Choose(const Cudnn& dnn, const Call& call) {
  Plan plan = Describe(dnn, call);
  Check(dnn.set_math(plan.convolution, TypeOf(call.out) == kFloat32 ? kFma : kTensorCores),
        "cudnnSetConvolutionMathType");
  Performance found[kMaxAlgorithms];
  int count = 0;
  if (call.is_transposed()) {
    Check(dnn.find_transposed(dnn.handle, plan.weight, plan.data, plan.convolution, plan.out,
                              kMaxAlgorithms, &count, found),
          "cudnnGetConvolutionBackwardDataAlgorithm_v7");
  } else {
    Check(dnn.find_forward(dnn.handle, plan.data, plan.weight, plan.convolution, plan.out,
                           kMaxAlgorithms, &count, found),
          "cudnnGetConvolutionForwardAlgorithm_v7");
  }
  // cuDNN returns the fastest first.
  const auto limit = static_cast<size_t>(call.workspace.shape[0]);
  for (int i = count - 1; i >= 0; --i) {
    if (found[i].status == 0 && found[i].memory <= limit) plan.algorithms.push_back(found[i]);
  }
  if (plan.algorithms.empty()) throw std::runtime_error("cuDNN has no algorithm for it");
  return plan;
}

/*! \brief Convolve with the fastest algorithm of a plan; return cuDNN's status. */
int Convolve(const Cudnn& dnn, const Call& call, const Plan& plan) {
  const Performance& chosen = plan.algorithms.back();
  // Float32 keeps FMA: another type of math allows TF32.
  if (TypeOf(call.out) != kFloat32) {
    Check(dnn.set_math(plan.convolution, chosen.math), "cudnnSetConvolutionMathType");
  }
  const float one = 1, zero = 0;
  if (call.is_transposed()) {
    return dnn.transposed(dnn.handle, &one, plan.weight, Data(call.weight), plan.data,
                          Data(call.data), plan.convolution, chosen.algorithm, Data(call.workspace),
                          chosen.memory, &zero, plan.out, Data(call.out));
  }
  return dnn.forward(dnn.handle, &one, plan.data, Data(call.data), plan.weight, Data(call.weight),
                     plan.convolution, chosen.algorithm, Data(call.workspace), chosen.memory, &zero,
                     plan.out, Data(call.out));
}

void Convolution(const Arguments& args) {
  if (args.size() != 5) throw std::runtime_error("expected 5 arguments");
  const Call call(args);
  if (IsEmpty(call.out)) return;
  auto& state = State<Cudnn, Plan>::For(call.out);
  const Cudnn& dnn = state.functions;
  Plan& plan = state.PlanOf(call, Choose);
  Check(dnn.set_stream(dnn.handle, Stream(call.out)), "cudnnSetStream");
  // cuDNN lists algorithms that it then rejects; the next one may run.
  int status = Convolve(dnn, call, plan);
  while (status != 0 && plan.algorithms.size() > 1) {
    plan.algorithms.pop_back();
    status = Convolve(dnn, call, plan);
  }
  Check(status, call.is_transposed() ? "cudnnConvolutionBackwardData" : "cudnnConvolutionForward");
}

}  // namespace

/*!
 * \brief Convolve data of one to three spatial axes, or the transposed operation.
 *
 * The arguments are data, weight, a shape of options, the result, and a workspace of bytes.  The
 * options are whether the convolution is transposed, whether the channels are the last axis of the
 * data and the second axis of the weight follows its spatial axes, the number of groups, and for
 * all spatial axes the padding at both ends, the strides and the dilations.
 */
extern "C" __attribute__((visibility("default"))) int __tvm_ffi_tvm_fixes_cudnn_convolution(
    void*, const TVMFFIAny* args, int32_t size, TVMFFIAny*) {
  return Guard("cuDNN", args, size, Convolution);
}

}  // namespace tvm_fixes::cuda_libraries
