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
 * \file src/cuda_libraries/call.h
 * \brief Calls of NVIDIA's libraries from a compiled model.
 *
 * The functions of this folder are linked into a model's library, which must run without
 * tvm-fixes. So they use only the C API of tvm-ffi, and open NVIDIA's libraries by name on the
 * first call; linking a model does not need them.
 */
#ifndef TVM_FIXES_CUDA_LIBRARIES_CALL_H_
#define TVM_FIXES_CUDA_LIBRARIES_CALL_H_

#include <dlfcn.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace tvm_fixes::cuda_libraries {

/*! \brief A library's handle, or a descriptor that it created. */
using Handle = void*;
using Create = int(Handle*);

/*! \brief A shared library that stays open. */
class Library {
 public:
  /*!
   * \brief Open a library.
   * \param name Its file name, such as "libcudnn.so.9".
   * \throws std::runtime_error if it cannot be opened.
   */
  explicit Library(const char* name) : name_(name), handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error("cannot load " + name_ + ": " + dlerror());
  }

  /*!
   * \brief Find a function.
   * \throws std::runtime_error if the library does not have it.
   */
  template <typename Signature>
  void Find(const char* function, Signature** found) const {
    *found = reinterpret_cast<Signature*>(dlsym(handle_, function));
    if (*found == nullptr) throw std::runtime_error(name_ + " has no function " + function);
  }

 private:
  std::string name_;
  void* handle_;
};

/*!
 * \brief Check the status that a library's function returned.
 * \throws std::runtime_error if it is not zero.
 */
inline void Check(int status, const char* function) {
  if (status == 0) return;
  throw std::runtime_error(std::string(function) + " failed with status " + std::to_string(status));
}

/*! \brief The arguments of a call. */
class Arguments {
 public:
  Arguments(const TVMFFIAny* values, int32_t size) : values_(values), size_(size) {}

  int32_t size() const { return size_; }

  /*! \throws std::runtime_error if the argument is not a tensor on a GPU. */
  const DLTensor& Tensor(int32_t index) const {
    const TVMFFIAny& value = values_[index];
    const DLTensor* tensor = nullptr;
    if (value.type_index == kTVMFFIDLTensorPtr) {
      tensor = static_cast<const DLTensor*>(value.v_ptr);
    } else if (value.type_index == kTVMFFITensor) {
      tensor = TVMFFITensorGetDLTensorPtr(value.v_obj);
    }
    if (tensor == nullptr || tensor->device.device_type != kDLCUDA) {
      throw std::runtime_error("argument " + std::to_string(index) + ": expected a CUDA tensor");
    }
    return *tensor;
  }

  /*! \throws std::runtime_error if the argument is not a shape. */
  std::vector<int64_t> Shape(int32_t index) const {
    if (values_[index].type_index != kTVMFFIShape) {
      throw std::runtime_error("argument " + std::to_string(index) + ": expected a shape");
    }
    const TVMFFIShapeCell* cell = TVMFFIShapeGetCellPtr(values_[index].v_obj);
    return std::vector<int64_t>(cell->data, cell->data + cell->size);
  }

 private:
  const TVMFFIAny* values_;
  int32_t size_;
};

inline void* Data(const DLTensor& tensor) {
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
}

/*! \brief The largest power of two, up to 256, that divides the address of the data. */
inline uint32_t Alignment(const DLTensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(Data(tensor)) | 256;
  return static_cast<uint32_t>(address & (~address + 1));
}

/*!
 * \brief The code of a library for the dtype of a tensor.
 * \param float32, float16, bfloat16 The codes of the dtypes that it computes.
 * \throws std::runtime_error for another dtype.
 */
inline int CodeOf(const DLTensor& tensor, int float32, int float16, int bfloat16) {
  const DLDataType type = tensor.dtype;
  if (type.code == kDLBfloat && type.bits == 16) return bfloat16;
  if (type.code == kDLFloat && type.bits == 16) return float16;
  if (type.code == kDLFloat && type.bits == 32) return float32;
  throw std::runtime_error("expected float32, float16 or bfloat16");
}

inline bool IsEmpty(const DLTensor& tensor) {
  return std::any_of(tensor.shape, tensor.shape + tensor.ndim, [](int64_t n) { return n == 0; });
}

/*! \brief The stream that TVM launches its kernels on. */
inline void* Stream(const DLTensor& tensor) {
  return TVMFFIEnvGetStream(tensor.device.device_type, tensor.device.device_id);
}

/*!
 * \brief Make the device of a tensor the current one, as TVM does before it launches a kernel.
 * \throws std::runtime_error if there is no such device.
 */
inline void SetDevice(const DLTensor& tensor) {
  static const TVMFFIObjectHandle function = [] {
    const char name[] = "__tvm_set_device";
    const TVMFFIByteArray bytes{name, sizeof(name) - 1};
    TVMFFIObjectHandle found = nullptr;
    Check(TVMFFIFunctionGetGlobal(&bytes, &found), name);
    if (found == nullptr) throw std::runtime_error(std::string(name) + " is missing");
    return found;
  }();
  TVMFFIAny args[2] = {};
  args[0].type_index = args[1].type_index = kTVMFFIInt;
  args[0].v_int64 = tensor.device.device_type;
  args[1].v_int64 = tensor.device.device_id;
  TVMFFIAny result{};
  Check(TVMFFIFunctionCall(function, args, 2, &result), "__tvm_set_device");
}

/*!
 * \brief A library and its plans; each thread has its own for each device, without a lock.
 *
 * A handle of the library belongs to one device.
 */
template <typename Functions, typename Plan>
struct State {
  /*! \brief The state of this thread for the device of a tensor, which becomes the current one. */
  static State& For(const DLTensor& tensor) {
    SetDevice(tensor);
    static thread_local std::map<int32_t, State*> states;
    State*& state = states[tensor.device.device_id];
    // Never freed: at the end of a thread, the device may be gone.
    if (state == nullptr) state = new State();
    return *state;
  }

  /*! \brief The plan of a call: what `choose` returned for the first call with the same key. */
  template <typename Call>
  Plan& PlanOf(const Call& call, Plan (*choose)(const Functions&, const Call&)) {
    const std::vector<int64_t> key = call.Key();
    const auto place = plans.find(key);
    if (place != plans.end()) return place->second;
    return plans.emplace(key, choose(functions, call)).first->second;
  }

  Functions functions;
  std::map<std::vector<int64_t>, Plan> plans;
};

/*!
 * \brief Run the body of a packed function; an exception becomes tvm-ffi's error.
 * \param name The function, for the message of the error.
 */
template <typename Body>
int Guard(const char* name, const TVMFFIAny* args, int32_t size, Body body) {
  try {
    body(Arguments(args, size));
    return 0;
  } catch (const std::exception& error) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", (std::string(name) + ": " + error.what()).c_str());
    return -1;
  }
}

}  // namespace tvm_fixes::cuda_libraries

#endif  // TVM_FIXES_CUDA_LIBRARIES_CALL_H_
