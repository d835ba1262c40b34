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
 * \file src/relay/json/node_table.h
 * \brief The nodes of a text of TVM's save_json, not yet read as objects.
 */
#ifndef TVM_FIXES_RELAY_JSON_NODE_TABLE_H_
#define TVM_FIXES_RELAY_JSON_NODE_TABLE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../ir/object.h"
#include "../op/old_calls.h"
#include "json_text.h"

namespace tvm_fixes::relay {

/*! \brief The meaning of a node; versions that rename a type key share one kind. */
enum class NodeKind : uint8_t {
  kNull,
  kArray,
  kMap,
  kString,
  /*! \brief A string that is an expression of TIR. */
  kStringImm,
  kInt,
  kFloat,
  /*! \brief A number that TVM 0.18 and 0.19 store as text. */
  kBox,
  kAnyDim,
  kShapeVar,
  /*! \brief A computed extent, such as n + 1. */
  kPrimExpr,
  kDictAttrs,
  kAttrs,
  kId,
  kOp,
  kVar,
  kGlobalVar,
  kConstant,
  kTuple,
  kTupleGetItem,
  kCall,
  kLet,
  kIf,
  kFunction,
  kRefCreate,
  kRefRead,
  kRefWrite,
  kConstructor,
  kMatch,
  kClause,
  kPatternWildcard,
  kPatternVar,
  kPatternConstructor,
  kPatternTuple,
  kTensorType,
  kTupleType,
  kFuncType,
  kTypeVar,
  kGlobalTypeVar,
  kTypeCall,
  kRefType,
  kIncompleteType,
  kTypeData,
  kModule,
  /*! \brief A node that no Relay program needs; it is read as None. */
  kOther,
};

/*! \brief The nodes, tensors and version of a text, which must outlive the table. */
class NodeTable {
 public:
  using Value = JsonText::Value;

  /*!
   * \brief Read the text and find its nodes.
   * \throws RelayError if it is not JSON, or not what save_json writes.
   */
  explicit NodeTable(std::string_view json);
  NodeTable(const NodeTable&) = delete;
  NodeTable& operator=(const NodeTable&) = delete;

  size_t size() const { return nodes_.size(); }
  size_t root() const { return root_; }
  /*! \brief The minor version of the TVM that saved the text: 6 to 19. */
  int version() const { return version_.minor; }
  const ProgramVersion& program_version() const { return version_; }

  NodeKind kind(size_t node) const { return kinds_[node]; }
  std::string TypeKey(size_t node) const;

  /*! \brief A field of a node, or std::nullopt. */
  std::optional<Value> Field(size_t node, std::string_view name) const;
  Value RequiredField(size_t node, std::string_view name) const;
  /*! \brief Call a function on the name and value of each field. */
  template <typename F>
  void ForEachField(size_t node, F visit) const {
    std::optional<Value> fields = Member(node, "attrs", JsonKind::kObject);
    if (fields) fields->ForEachMember(visit);
  }
  int64_t IntField(size_t node, std::string_view name) const {
    return IntOf(node, name, RequiredField(node, name));
  }
  double FloatField(size_t node, std::string_view name) const {
    return FloatOf(node, name, RequiredField(node, name));
  }
  /*! \brief The number that the value of a field is. */
  int64_t IntOf(size_t node, std::string_view name, const Value& value) const;
  double FloatOf(size_t node, std::string_view name, const Value& value) const;
  /*! \brief The string that a name refers to since TVM 0.7; std::nullopt if the field has the text.
   */
  std::optional<size_t> NameReference(size_t node, std::string_view field) const;

  /*! \brief The node that a field refers to; the null node if the field is absent. */
  size_t Reference(size_t node, std::string_view field) const;
  /*! \brief The index of a node, if a value is one. */
  std::optional<size_t> AsIndex(const Value& value) const;
  /*! \brief The nodes that an Array or a Map holds. */
  std::vector<size_t> Elements(size_t node) const;
  /*! \brief The keys of a Map whose keys are strings and stored as such. */
  std::vector<std::string> Keys(size_t node) const;
  /*! \brief The characters of a string, or the name of an operator. */
  std::string Text(size_t node) const;
  /*! \brief The tensor that a field refers to; each is decoded once. */
  Tensor TensorField(size_t node, std::string_view field);

  /*! \brief "node 3 (relay.Call)". */
  std::string Name(size_t node) const;
  [[noreturn]] void Fail(size_t node, const std::string& message) const;

 private:
  std::optional<Value> Member(size_t node, std::string_view name, JsonKind kind) const;
  void ReadVersion();
  void RejectOtherFormats() const;

  JsonText document_;
  std::vector<Value> nodes_;
  std::vector<NodeKind> kinds_;
  std::vector<Value> tensors_;
  std::vector<Tensor> decoded_;
  size_t root_ = 0;
  ProgramVersion version_{6};
};

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_JSON_NODE_TABLE_H_
