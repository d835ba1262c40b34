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
 * \file src/relay/json/node_graph.cc
 * \brief Reads saved modules.
 */
#include "node_graph.h"

#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"
#include "../ir/visitor.h"
#include "node_builder.h"

namespace tvm_fixes::relay {

Any ReadNodeGraph(std::string_view json) { return NodeBuilder(json).BuildRoot(); }

IRModule ReadModule(std::string_view json) {
  NodeBuilder builder(json);
  Any root = builder.BuildRoot();
  if (auto module = root.as<IRModule>(); module && module->defined()) return *module;
  if (auto function = root.as<Function>(); function && function->defined()) {
    return IRModule({{"main", *function}});
  }
  auto expr = root.as<Expr>();
  if (!expr || !expr->defined()) {
    const NodeTable& table = builder.table();
    table.Fail(table.root(), "expected a Relay module, function or expression as the root");
  }
  std::vector<Var> params = FreeVars(*expr);
  return IRModule({{"main", Function(Array<Var>(params.begin(), params.end()), *expr)}});
}

namespace {

TVM_FIXES_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def(
          "tvm_fixes.relay.ReadModule",
          [](const String& json) { return ReadModule(std::string_view(json.data(), json.size())); })
      .def("tvm_fixes.relay.ReadNodeGraph", [](const String& json) {
        return ReadNodeGraph(std::string_view(json.data(), json.size()));
      });
}

}  // namespace
}  // namespace tvm_fixes::relay
