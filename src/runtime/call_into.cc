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
 * \file src/runtime/call_into.cc
 * \brief A call of a model that copies its results to memory of the caller.
 *
 * To convert a result to an array in Python takes 0.8 microseconds, as long as a small kernel.
 */
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "../ffi/registration.h"

namespace tvm_fixes {
namespace {

using tvm::ffi::Any;
using tvm::ffi::AnyView;
using tvm::ffi::Array;
using tvm::ffi::Tensor;

/*! \brief Whether `from` can be copied to `to` as bytes: contiguous, on the CPU, of equal type. */
bool HasTypeOf(const Tensor& from, const Tensor& to) {
  const auto shape = from.shape();
  const auto expected = to.shape();
  const DLDataType dtype = from.dtype();
  const DLDataType wanted = to.dtype();
  return from.device().device_type == kDLCPU && dtype.code == wanted.code &&
         dtype.bits == wanted.bits && dtype.lanes == wanted.lanes && from.IsContiguous() &&
         std::equal(shape.begin(), shape.end(), expected.begin(), expected.end());
}

void Copy(const Tensor& from, const Tensor& to) {
  const size_t bytes = tvm::ffi::GetDataSize(to);
  if (bytes == 0) return;
  const char* data = static_cast<const char*>(from.data_ptr()) + from.byte_offset();
  std::memcpy(to.data_ptr(), data, bytes);
}

/*!
 * \brief Call `function` with `args`, and copy its results to `outputs`.
 * \param outputs Contiguous tensors on the CPU.
 * \return None, or the result of the function if it is not tensors of the types of `outputs`.
 */
Any CallInto(const Function& function, const Array<Any>& args, const Array<Tensor>& outputs) {
  const std::vector<AnyView> views(args.begin(), args.end());
  Any result;
  function.CallPacked(views.data(), static_cast<int32_t>(views.size()), &result);
  if (auto tensor = result.as<Tensor>()) {
    if (outputs.size() != 1 || !HasTypeOf(*tensor, outputs[0])) return result;
    Copy(*tensor, outputs[0]);
    return nullptr;
  }
  const auto fields = result.as<Array<Any>>();
  if (!fields || fields->size() != outputs.size()) return result;
  for (size_t place = 0; place < outputs.size(); ++place) {
    const auto tensor = (*fields)[place].as<Tensor>();
    if (!tensor || !HasTypeOf(*tensor, outputs[place])) return result;
  }
  for (size_t place = 0; place < outputs.size(); ++place) {
    Copy((*fields)[place].cast<Tensor>(), outputs[place]);
  }
  return nullptr;
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.runtime.CallInto", CallInto);
}

}  // namespace
}  // namespace tvm_fixes
