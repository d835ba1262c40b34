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
 * \file src/relay/ir/module.h
 * \brief A Relay program: functions and type definitions by name.
 */
#ifndef TVM_FIXES_RELAY_IR_MODULE_H_
#define TVM_FIXES_RELAY_IR_MODULE_H_

#include "adt.h"

namespace tvm_fixes::relay {

class IRModuleObj : public Object {
 public:
  /*! \brief By name, in the order of the program. */
  Map<String, Function> functions;
  Map<String, TypeData> type_definitions;
  Attrs attrs;

  IRModuleObj(Map<String, Function> functions, Map<String, TypeData> type_definitions, Attrs attrs)
      : functions(std::move(functions)),
        type_definitions(std::move(type_definitions)),
        attrs(std::move(attrs)) {}

  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.IRModule", IRModuleObj, Object);
};

class IRModule : public ObjectRef {
 public:
  explicit IRModule(Map<String, Function> functions, Map<String, TypeData> type_definitions = {},
                    Attrs attrs = {});
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(IRModule, ObjectRef, IRModuleObj);
};

/*! \brief Apply a function to each function of a module; the same module if none changes. */
template <typename F>
IRModule MapFunctions(const IRModule& module, F transform) {
  Map<String, Function> functions;
  bool changed = false;
  for (const auto& [name, function] : module->functions) {
    Function result = transform(function);
    changed = changed || !result.same_as(function);
    functions.Set(name, std::move(result));
  }
  if (!changed) return module;
  return IRModule(std::move(functions), module->type_definitions, module->attrs);
}

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_IR_MODULE_H_
