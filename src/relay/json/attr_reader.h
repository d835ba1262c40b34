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
 * \file src/relay/json/attr_reader.h
 * \brief Reads the attributes of operators from their nodes.
 */
#ifndef TVM_FIXES_RELAY_JSON_ATTR_READER_H_
#define TVM_FIXES_RELAY_JSON_ATTR_READER_H_

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../op/registry.h"
#include "node_table.h"

namespace tvm_fixes::relay {

/*!
 * \brief Distinguishes numbers and strings from references to nodes: all are stored as "12".
 */
class AttrReader {
 public:
  explicit AttrReader(const NodeTable& table) : table_(table) {}

  /*! \brief Set the operator that the attributes of a node belong to. */
  void SetOperator(size_t attrs, const OpDecl* decl) { decls_.emplace(attrs, decl); }

  /*! \brief The nodes that the attributes refer to. */
  std::vector<size_t> References(size_t attrs) const;
  /*! \brief The attributes, given the values of all nodes. */
  Attrs Read(size_t attrs, const std::vector<Any>& values) const;

 private:
  using Value = JsonText::Value;

  /*! \brief The known properties of the attributes of one node. */
  struct Schema {
    size_t node;
    std::string key;
    /*! \brief The operator's declaration, or null. */
    const OpDecl* decl;

    std::optional<AttrKind> KindOf(const std::string& name) const;
  };

  Schema SchemaOf(size_t attrs) const;
  /*! \brief Call a function on the name and value of each field that the program gives. */
  template <typename F>
  void ForEachGiven(size_t attrs, F visit) const;
  std::optional<size_t> AsReference(const Schema& schema, const std::string& name,
                                    const Value& value) const;
  Any Literal(const Schema& schema, const std::string& name, const Value& value) const;

  const NodeTable& table_;
  std::unordered_map<size_t, const OpDecl*> decls_;
};

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_JSON_ATTR_READER_H_
