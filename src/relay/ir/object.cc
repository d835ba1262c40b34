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
 * \file src/relay/ir/object.cc
 * \brief Spans, errors, and the destruction of deep programs.
 */
#include "object.h"

#include <tvm/ffi/error.h>

#include <vector>

namespace tvm_fixes::relay {

std::string Span::str() const {
  return defined() ? std::to_string(line) + ":" + std::to_string(column) : std::string();
}

void ReleaseLater(ObjectRef reference) {
  // A pointer, because a destructor may run after thread-local objects are destroyed.
  static thread_local std::vector<ObjectRef>* pending = nullptr;
  if (!reference.defined()) return;
  if (pending != nullptr) {
    pending->push_back(std::move(reference));
    return;
  }
  std::vector<ObjectRef> references;
  pending = &references;
  references.push_back(std::move(reference));
  while (!references.empty()) {
    ObjectRef last = std::move(references.back());
    references.pop_back();
  }
  pending = nullptr;
}

void ThrowRelayError(const std::string& message) {
  throw tvm::ffi::Error("tvm_fixes.RelayError", message, "");
}

}  // namespace tvm_fixes::relay
