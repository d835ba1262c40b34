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
 * \file src/runtime/lent_results.cc
 * \brief Calls of a model whose caller keeps the memory of the results: it is not copied.
 *
 * When the caller drops such a result, its memory returns to the pool of TVM, which keeps it for
 * the next tensor of that size. A caller that keeps many results at the same time would leave as
 * many pieces of memory there. Therefore, the pool is cleared if it has too much of it.
 */
#include <pthread.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../ffi/registration.h"

namespace tvm_fixes {
namespace {

using tvm::ffi::Any;
using tvm::ffi::AnyView;
using tvm::ffi::Array;
using tvm::ffi::PackedArgs;
using tvm::ffi::Shape;
using tvm::ffi::Tensor;

/*! \brief The memory of dropped results that no later result has. */
class IdleMemory {
 public:
  static IdleMemory* Global() {
    static IdleMemory* const memory = new IdleMemory();  // results may outlive the statics
    return memory;
  }

  /*! \brief Note a result of this size, which gets the memory of a dropped one if there is any. */
  void Use(int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = dropped_.find(bytes);
    if (found == dropped_.end() || found->second == 0) return;
    --found->second;
    bytes_ -= bytes;
  }

  /*! \brief Note that a result was dropped. Returns whether there are more than `max` bytes now. */
  bool Drop(int64_t bytes, int64_t max) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++dropped_[bytes];
    bytes_ += bytes;
    if (bytes_ <= max) return false;
    bytes_ = 0;
    dropped_.clear();
    return true;
  }

 private:
  IdleMemory() {
    // A child would find the mutex held by a thread that it does not have.
    pthread_atfork([] { Global()->mutex_.lock(); }, [] { Global()->mutex_.unlock(); },
                   [] { Global()->mutex_.unlock(); });
  }

  std::mutex mutex_;
  int64_t bytes_ = 0;
  /*! \brief The number of dropped results by size. */
  std::unordered_map<int64_t, int64_t> dropped_;
};

/*! \brief Which results of a model are lent, and how much of their memory may be idle. */
struct Terms {
  std::vector<bool> owned;
  int64_t min_bytes;
  int64_t max_idle;
  Function clear;

  /*! \brief The size of a result; 0 if it is not lent. */
  int64_t BytesOf(size_t index, const Any& result) const {
    if (index >= owned.size() || !owned[index]) return 0;
    const auto tensor = result.as<Tensor>();
    if (!tensor || tensor->device().device_type != kDLCPU || !tensor->IsContiguous()) return 0;
    const auto bytes = static_cast<int64_t>(tvm::ffi::GetDataSize(*tensor));
    return bytes < min_bytes ? 0 : bytes;
  }
};

/*! \brief The "allocator" of a tensor that has the memory of a result. */
class Loan {
 public:
  Loan(Tensor result, int64_t bytes, int64_t total, std::shared_ptr<const Terms> terms)
      : result_(std::move(result)), bytes_(bytes), total_(total), terms_(std::move(terms)) {}

  void AllocData(DLTensor* tensor) {
    const auto result = result_.cast<Tensor>();
    tensor->data = result.data_ptr();
    tensor->byte_offset = result.byte_offset();
    IdleMemory::Global()->Use(bytes_);
  }

  void FreeData(DLTensor*) {
    result_.reset();
    if (!IdleMemory::Global()->Drop(bytes_, std::max(terms_->max_idle, 2 * total_))) return;
    try {
      terms_->clear();
    } catch (const std::exception&) {
      // The memory stays in the pool: a destructor cannot fail.
    }
  }

 private:
  Any result_;
  int64_t bytes_;
  /*! \brief The size of all results of the call that are lent. */
  int64_t total_;
  std::shared_ptr<const Terms> terms_;
};

Tensor Lend(const Any& result, int64_t bytes, int64_t total,
            const std::shared_ptr<const Terms>& terms) {
  auto tensor = result.cast<Tensor>();
  return Tensor::FromNDAlloc(Loan(tensor, bytes, total, terms), tensor.shape(), tensor.dtype(),
                             tensor.device());
}

/*! \brief Lend the results of a call: a tensor, or the fields of a tuple. */
void LendAll(const std::shared_ptr<const Terms>& terms, Any* result) {
  if (const int64_t bytes = terms->BytesOf(0, *result)) {
    *result = Lend(*result, bytes, bytes, terms);
    return;
  }
  const auto fields = result->as<Array<Any>>();
  if (!fields) return;
  std::vector<int64_t> bytes;
  int64_t total = 0;
  for (const Any& field : *fields) {
    bytes.push_back(terms->BytesOf(bytes.size(), field));
    total += bytes.back();
  }
  if (total == 0) return;
  Array<Any> lent;
  for (size_t index = 0; index < bytes.size(); ++index) {
    const Any field = (*fields)[index];
    lent.push_back(bytes[index] ? Any(Lend(field, bytes[index], total, terms)) : field);
  }
  *result = lent;
}

/*!
 * \brief A function that calls `function`, and lends its results.
 * \param function The function of a model.
 * \param last Its last arguments.
 * \param owned The indices of the results that share no memory with anything else.
 * \param min_bytes The size of the smallest result that is lent.
 * \param max_idle The memory of dropped results that may always stay in the pool.
 * \param clear Clears the pool.
 */
Function Lending(const Function& function, const Array<Any>& last, const Shape& owned,
                 int64_t min_bytes, int64_t max_idle, const Function& clear) {
  auto terms = std::make_shared<Terms>(Terms{{}, std::max<int64_t>(min_bytes, 1), max_idle, clear});
  for (const int64_t index : owned) {
    const auto place = static_cast<size_t>(index);
    terms->owned.resize(std::max(terms->owned.size(), place + 1));
    terms->owned[place] = true;
  }
  const std::shared_ptr<const Terms> agreed = terms;
  return Function::FromPacked([function, last, agreed](PackedArgs args, Any* result) {
    if (last.empty()) {
      function.CallPacked(args, result);
    } else {
      std::vector<AnyView> all(args.data(), args.data() + args.size());
      all.insert(all.end(), last.begin(), last.end());
      function.CallPacked(all.data(), static_cast<int32_t>(all.size()), result);
    }
    LendAll(agreed, result);
  });
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.runtime.Lending", Lending);
}

}  // namespace
}  // namespace tvm_fixes
