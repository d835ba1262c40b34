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
 * \file src/ffi/registration.cc
 * \brief Registration. Each native library has a copy of this file, and its own init blocks.
 */
#include "registration.h"

#include <memory>

namespace tvm_fixes {

std::vector<void (*)()>& InitBlocks() {
  static std::vector<void (*)()> blocks;
  return blocks;
}

std::vector<Requirement*>& Requirements() {
  static std::vector<Requirement*> requirements;
  return requirements;
}

Requirement::Requirement() { Requirements().push_back(this); }

const Function& GlobalFunction::get() const {
  const Function* function = function_.load(std::memory_order_acquire);
  if (function != nullptr) return *function;
  auto looked_up = std::make_unique<Function>(Function::GetGlobalRequired(name_));
  if (function_.compare_exchange_strong(function, looked_up.get(), std::memory_order_acq_rel)) {
    function = looked_up.release();
  }
  return *function;
}

}  // namespace tvm_fixes
