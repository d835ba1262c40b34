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
 * \file src/relay/json/node_graph.h
 * \brief Reads what tvm.ir.save_json of TVM 0.6 to 0.19 wrote.
 */
#ifndef TVM_FIXES_RELAY_JSON_NODE_GRAPH_H_
#define TVM_FIXES_RELAY_JSON_NODE_GRAPH_H_

#include <string_view>

#include "../ir/module.h"

namespace tvm_fixes::relay {

/*!
 * \brief Read the root of a saved text: Map -> Map<String, Any>, Array -> Array<Any>, attributes ->
 *        Map<String, Any>, IntImm -> int64 or bool, FloatImm -> double, Any -> AnyDim.
 *
 * Nodes that no Relay program needs become None; a map drops them.
 *
 * \throws RelayError with the node's index if the text is malformed.
 */
Any ReadNodeGraph(std::string_view json);

/*! \brief Read a saved module; a function or expression becomes "main". */
IRModule ReadModule(std::string_view json);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_JSON_NODE_GRAPH_H_
