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
 * \file src/runtime/call_timer.cc
 * \brief An instrument for TVM's virtual machine that records times.
 *
 * An instrument in Python takes about a microsecond before and after each call, as long as a small
 * kernel.
 */
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "../ffi/registration.h"

namespace tvm_fixes {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Bytes;
using tvm::ffi::PackedArgs;

/*! \brief The argument of an instrument that tells whether the call begins or has ended. */
constexpr int kIsBefore = 2;

/*! \brief Calls that fit without an allocation during a run. */
constexpr size_t kReservedMarks = 1 << 14;

int64_t Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

/*!
 * \brief Make an instrument.
 * \return The instrument, and a function that returns what it has recorded and starts again: the
 *         times in ns as 64-bit integers, negative at the begin of a call.
 */
Array<Function> CallTimer() {
  auto marks = std::make_shared<std::vector<int64_t>>();
  marks->reserve(kReservedMarks);
  const Function instrument = Function::FromPacked([marks](PackedArgs args, Any*) {
    if (args[kIsBefore].cast<bool>()) {
      marks->push_back(0);
      marks->back() = -Now();
    } else {
      marks->push_back(Now());
    }
  });
  const Function take = Function::FromTyped([marks]() {
    const Bytes taken(reinterpret_cast<const char*>(marks->data()),
                      marks->size() * sizeof(int64_t));
    marks->clear();
    return taken;
  });
  return {instrument, take};
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.runtime.CallTimer", CallTimer);
}

}  // namespace
}  // namespace tvm_fixes
