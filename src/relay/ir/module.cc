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
 * \file src/relay/ir/module.cc
 * \brief Constructor and reflection of IRModule.
 */
#include "module.h"

#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"

namespace tvm_fixes::relay {

IRModule::IRModule(Map<String, Function> functions, Map<String, TypeData> type_definitions,
                   Attrs attrs)
    : IRModule(make_object<IRModuleObj>(std::move(functions), std::move(type_definitions),
                                        std::move(attrs))) {}

namespace {

TVM_FIXES_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::ObjectDef<IRModuleObj>()
      .def(refl::init<Map<String, Function>, Map<String, TypeData>, Attrs>())
      .def_ro("type_definitions", &IRModuleObj::type_definitions)
      .def_ro("functions", &IRModuleObj::functions)
      .def_ro("attrs", &IRModuleObj::attrs);
}

}  // namespace
}  // namespace tvm_fixes::relay
