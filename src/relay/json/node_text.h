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
 * \file src/relay/json/node_text.h
 * \brief The text of one node of a saved program.
 */
#ifndef TVM_FIXES_RELAY_JSON_NODE_TEXT_H_
#define TVM_FIXES_RELAY_JSON_NODE_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

namespace tvm_fixes::relay {

/*! \brief Append a string with quotes; it has only the escapes that TVM reads. */
void AppendJsonString(std::string_view value, std::string* out);

/*! \brief Assembles the text of a node: fields, or the contents of a container or a string. */
class NodeText {
 public:
  explicit NodeText(std::string_view type_key);

  /*! \brief A field stored as text. */
  NodeText& Field(std::string_view name, std::string_view text);
  /*! \brief A field that refers to a node. */
  NodeText& Field(std::string_view name, size_t node) { return Field(name, std::to_string(node)); }
  /*! \brief The characters of a string, or the name of an operator. */
  NodeText& Characters(std::string_view text);
  NodeText& Keys(const std::vector<std::string>& keys);
  /*! \brief The nodes that an Array or a Map holds. */
  NodeText& Elements(const std::vector<size_t>& nodes);

  /*! \brief End the node, and return its text. */
  std::string Finish();

 private:
  std::string text_;
  bool has_fields_ = false;
};

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_JSON_NODE_TEXT_H_
