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
 * \file src/relay/json/node_builder.h
 * \brief Builds objects from the nodes of a saved text.
 */
#ifndef TVM_FIXES_RELAY_JSON_NODE_BUILDER_H_
#define TVM_FIXES_RELAY_JSON_NODE_BUILDER_H_

#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../ir/module.h"
#include "attr_reader.h"
#include "node_table.h"

namespace tvm_fixes::relay {

/*!
 * \brief Builds the nodes that the root needs, each exactly once, operands first, without
 *        recursion.
 */
class NodeBuilder {
 public:
  explicit NodeBuilder(std::string_view json) : table_(json), attrs_(table_) {
    states_.resize(table_.size());
    depths_.resize(table_.size());
    values_.resize(table_.size());
  }

  const NodeTable& table() const { return table_; }
  /*! \brief The value of the root. */
  Any BuildRoot();

 private:
  enum class State : uint8_t { kNew, kOpen, kBuilt };

  /*! \brief The nodes that a node needs. */
  std::vector<size_t> Dependencies(size_t node);
  /*! \brief Limit the nesting of data, types and patterns: code that walks them recurses. */
  void CheckDepth(size_t node);

  Any Build(size_t node);
  Any BuildData(size_t node);
  Any BuildType(size_t node);
  Any BuildExpr(size_t node);
  Any BuildPattern(size_t node);

  Any BuildBox(size_t node);
  Any BuildArray(size_t node);
  Any BuildMap(size_t node);
  Any BuildTensorType(size_t node);
  Any BuildTypeVar(size_t node);
  Any BuildVar(size_t node);
  Any BuildCall(size_t node);
  bool HasInt64Type(size_t node) const;
  Any BuildFunction(size_t node);
  Any BuildModule(size_t node);
  /*!
   * \brief Reject functions that are not Relay's, as in lowered modules: a Map<String, Any> would
   *        drop them.
   */
  void CheckFunctions(size_t map) const;
  /*! \brief The key of a map's entry: a string, or the name of the object that is the key. */
  String KeyOf(size_t map, size_t key) const;
  Shape BuildShape(size_t type, size_t array);
  /*! \brief The name of an old type, which is stored in a variable. */
  String TypeName(size_t node) const;
  /*! \brief The name in a field; names that are nodes are shared. */
  String NameOf(size_t node, std::string_view field) const;
  const OpDecl* DeclOf(size_t op);
  Span SpanOf(size_t node);

  [[noreturn]] void FailField(size_t node, std::string_view field, const char* expected,
                              size_t found) const;

  /*! \brief The object that a field refers to. */
  template <typename T>
  T Get(size_t node, std::string_view field, const char* expected) const {
    size_t index = table_.Reference(node, field);
    auto value = values_[index].as<T>();
    if (values_[index] == nullptr || !value) FailField(node, field, expected, index);
    return *value;
  }
  /*! \brief The array that a field refers to; a null reference means an empty one. */
  template <typename T>
  Array<T> GetArray(size_t node, std::string_view field, const char* expected);
  /*! \brief The type that a field refers to, or IncompleteType. */
  Type GetType(size_t node, std::string_view field) const;
  Attrs GetAttrs(size_t node, std::string_view field) const;

  NodeTable table_;
  AttrReader attrs_;
  std::vector<State> states_;
  std::vector<uint8_t> depths_;
  std::vector<Any> values_;
  // Parts that many nodes may share are read once, so that the time stays linear.
  /*! \brief The arrays whose element types have been checked. */
  std::set<std::pair<size_t, std::string_view>> checked_;
  std::unordered_map<size_t, Shape> shapes_;
  std::unordered_map<size_t, const OpDecl*> decls_;
  std::unordered_map<size_t, Span> spans_;
};

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_JSON_NODE_BUILDER_H_
