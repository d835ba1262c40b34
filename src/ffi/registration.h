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
 * \file src/ffi/registration.h
 * \brief Registration with TVM, and calls of TVM's global functions.
 */
#ifndef TVM_FIXES_FFI_REGISTRATION_H_
#define TVM_FIXES_FFI_REGISTRATION_H_

#include <tvm/ffi/function.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

namespace tvm_fixes {

using tvm::ffi::Function;

/*!
 * \brief Blocks to run once, after the layouts are bound.
 *
 * An error in a static initializer would end the process, so registration waits until the layouts
 * have been checked.
 */
std::vector<void (*)()>& InitBlocks();

struct InitBlock {
  explicit InitBlock(void (*block)()) { InitBlocks().push_back(block); }
};

/*! \brief Something that the library needs from TVM. Instances are statics. */
class Requirement {
 public:
  Requirement();
  virtual ~Requirement() = default;
  Requirement(const Requirement&) = delete;
  Requirement& operator=(const Requirement&) = delete;

  /*! \brief Look it up. Returns an error message, empty on success. */
  virtual std::string Bind() = 0;
};

std::vector<Requirement*>& Requirements();

#define TVM_FIXES_CONCAT_IMPL(a, b) a##b
#define TVM_FIXES_CONCAT(a, b) TVM_FIXES_CONCAT_IMPL(a, b)

/*! \brief `TVM_FIXES_INIT_BLOCK() { … }`: run the body once the layout checks have passed. */
#define TVM_FIXES_INIT_BLOCK() TVM_FIXES_INIT_BLOCK_IMPL(__COUNTER__)
#define TVM_FIXES_INIT_BLOCK_IMPL(id)                                \
  static void TVM_FIXES_CONCAT(tvm_fixes_init_, id)();               \
  static const ::tvm_fixes::InitBlock TVM_FIXES_CONCAT(              \
      tvm_fixes_block_, id)(&TVM_FIXES_CONCAT(tvm_fixes_init_, id)); \
  static void TVM_FIXES_CONCAT(tvm_fixes_init_, id)()

/*!
 * \brief A global function of TVM, looked up at its first call.
 *
 * The reference is never released: TVM's table may already be destroyed when this library's statics
 * are.
 */
class GlobalFunction {
 public:
  constexpr explicit GlobalFunction(const char* name) : name_(name) {}

  template <typename... Args>
  tvm::ffi::Any operator()(Args&&... args) const {
    return get()(std::forward<Args>(args)...);
  }

  /*! \throws ValueError if TVM has no function of this name. */
  const Function& get() const;

 private:
  const char* name_;
  mutable std::atomic<const Function*> function_{nullptr};
};

/*!
 * \brief Whether a fix is enabled, that is, not listed in `TVM_FIXES_DISABLE`
 *        (tvm_fixes/support/switches.py).
 */
bool IsEnabled(const char* fix_id);

/*! \brief Record that a fix was applied, for the report of a compilation. */
void NoteUse(const char* fix_id);

/*! \brief Record that a fix was applied to a call; its span names the nodes of the model. */
void NoteUse(const char* fix_id, const tvm::ffi::ObjectRef& call);

/*! \brief Whether debug messages of a pass are enabled (tvm_fixes/support/logs.py). */
bool LogsDebug(const char* pass);

void LogDebug(const char* pass, const std::string& message);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_FFI_REGISTRATION_H_
