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
 * \file src/ffi/init.cc
 * \brief Entry points of the library, and access to switches and logs of Python.
 */
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include <string>

#include "nodes.h"
#include "registration.h"
#include "tir_nodes.h"

namespace tvm_fixes {

Nodes nodes;
TirNodes tir_nodes;

bool IsEnabled(const char* fix_id) {
  static const GlobalFunction enabled("tvm_fixes.switches.enabled");
  return enabled(fix_id).cast<bool>();
}

void NoteUse(const char* fix_id) { NoteUse(fix_id, ObjectRef(nullptr)); }

void NoteUse(const char* fix_id, const ObjectRef& call) {
  static const GlobalFunction note("tvm_fixes.switches.note");
  note(fix_id, call.defined() ? nodes.expr.span(call.get()) : ObjectRef(nullptr));
}

bool LogsDebug(const char* pass) {
  static const GlobalFunction enabled("tvm_fixes.logs.enabled");
  return enabled(pass).cast<bool>();
}

void LogDebug(const char* pass, const std::string& message) {
  static const GlobalFunction debug("tvm_fixes.logs.debug");
  debug(pass, String(message));
}

namespace {

constexpr const char* kLayoutFunction = "tvm_fixes.ffi.Layout";

/*!
 * \brief Check TVM's layout, then register everything; a second call changes nothing.
 * \param tvm_version The TVM version to name in an error.
 * \param size_overrides See NodeLayout::Bind.
 * \throws RuntimeError naming each type, field and operator attribute that does not match; then
 *        nothing is registered.
 */
void Init(const String& tvm_version, const Map<String, int64_t>& size_overrides) {
  if (Function::GetGlobal(kLayoutFunction).has_value()) return;
  std::vector<std::string> problems = NodeLayout::Bind(size_overrides);
  for (Requirement* requirement : Requirements()) {
    if (std::string problem = requirement->Bind(); !problem.empty()) problems.push_back(problem);
  }
  if (!problems.empty()) {
    std::string text;
    for (const std::string& problem : problems) text += "\n  " + problem;
    TVM_FFI_THROW(RuntimeError) << "the layout of apache-tvm " << std::string(tvm_version)
                                << " does not match this build of tvm-fixes:" << text;
  }
  for (void (*block)() : InitBlocks()) block();
  // Registered last: its presence shows that everything else is registered.
  tvm::ffi::reflection::GlobalDef().def(kLayoutFunction, NodeLayout::Describe);
}

#ifdef TVM_FIXES_SANITIZE
/*! \brief Read one element past a heap array, which the address sanitizer must report. */
int DeliberateFault() {
  // volatile: with a constant size, the undefined-behaviour sanitizer would report the access
  // first.
  volatile size_t size = 4;
  std::unique_ptr<volatile int[]> array(new volatile int[size]());
  return array[size];
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.testing.DeliberateFault", DeliberateFault);
}
#endif

}  // namespace
}  // namespace tvm_fixes

TVM_FFI_DLL_EXPORT_TYPED_FUNC(init, tvm_fixes::Init)
