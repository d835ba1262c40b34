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
 * \file src/relax/analysis/verifier/raise.cc
 * \brief Raises diagnostics as an error.
 */
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/visit_error_context.h>
#include <tvm/ffi/reflection/registry.h>

#include <optional>
#include <string>
#include <utility>

#include "../../../ffi/node_layout.h"
#include "../../../ffi/registration.h"

namespace tvm_fixes {
namespace {

/*!
 * \brief Raise an error for the diagnostics of a module.
 * \param place The node of a single diagnostic. Within a pass, TVM locates it in the module, names
 *        the pass and prints the lines around it. Null if there are several.
 */
void RaiseVerifyError(const String& text, const ObjectRef& place) {
  std::optional<ObjectRef> context;
  if (place.defined()) {
    auto visited = tvm::ffi::make_object<tvm::ffi::VisitErrorContextObj>();
    visited->reverse_visit_pattern = {place};
    context = tvm::ffi::VisitErrorContext(std::move(visited));
  }
  const TVMFFIByteArray* trace = TVMFFIBacktrace(__FILE__, __LINE__, TVM_FFI_FUNC_SIG, 0);
  throw tvm::ffi::Error("tvm_fixes.VerifyError", text, std::string(trace->data, trace->size),
                        std::nullopt, context);
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.analysis.RaiseVerifyError", RaiseVerifyError);
}

}  // namespace
}  // namespace tvm_fixes
