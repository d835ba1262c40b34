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
 * \file src/relay/json/graph_writer.h
 * \brief Writes programs as tvm.ir.save_json of TVM 0.19 does.
 */
#ifndef TVM_FIXES_RELAY_JSON_GRAPH_WRITER_H_
#define TVM_FIXES_RELAY_JSON_GRAPH_WRITER_H_

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../ir/module.h"
#include "../op/registry.h"
#include "node_text.h"

namespace tvm_fixes::relay {

/*!
 * \brief Gives each object of a program one node.
 *
 * An object gets its index when another one refers to it, and its text later, from a queue. So long
 * chains of objects need no deep stack.
 */
class GraphWriter {
 public:
  /*!
   * \brief The text of a module.
   * \throws RelayError that names the operator and the attribute that TVM 0.19 does not have.
   */
  std::string Write(const IRModule& module);

 private:
  /*! \brief The owner of an attribute: a call, a function or a module. */
  struct Owner {
    ObjectRef node;
    std::string attribute;
  };
  /*! \brief An object that has an index but no text yet. */
  struct Pending {
    size_t index;
    ObjectRef object;
    /*! \brief The index of the attribute that refers to it. */
    uint32_t owner;
  };

  size_t Add(NodeText* node);
  /*! \brief Add a node without children, unless an equal node exists. */
  size_t AddLeaf(NodeText* node);
  /*! \brief The node of an object, which is queued if it is new. */
  size_t IndexOf(const ObjectRef& object);
  size_t IndexOfValue(const Any& value);
  size_t IndexOfName(const String& name);
  size_t IndexOfInt(int64_t value);
  size_t IndexOfTensor(const Tensor& tensor);
  /*! \brief The node of a type, or the null node if the program gives none. */
  size_t IndexOfGiven(const Type& type);
  /*! \brief An array of type parameters; a ShapeVar is a type variable of its own kind. */
  size_t IndexOfTypeParams(const Array<ObjectRef>& params);
  /*! \brief The one object used for all objects of its name: TVM compares them by identity. */
  ObjectRef Representative(const ObjectRef& object);
  void RegisterConstructors(const IRModule& module);

  std::string TextOf(const ObjectRef& object);
  std::string WriteMap(const tvm::ffi::MapObj* map);
  std::string WriteModule(const IRModule& module);
  std::string WriteType(const ObjectRef& type);
  std::string WriteTypeData(const TypeDataObj* data);
  std::string WritePattern(const ObjectRef& pattern);
  std::string WriteExpr(const ObjectRef& expr);
  std::string WriteControl(const ObjectRef& expr);
  std::string WriteFunction(const Function& function);
  std::string WriteConstructor(const ConstructorObj* constructor);
  std::string WriteOp(const OpObj* op);

  /*! \brief Add a map whose keys are the GlobalVars or GlobalTypeVars of the names. */
  template <typename Name, typename Value>
  size_t NameMap(const Map<String, Value>& map);
  /*! \brief Add a map from names to their GlobalVars or GlobalTypeVars. */
  template <typename Name, typename Value>
  size_t NodesOfNames(const Map<String, Value>& map);
  /*! \brief Add a DictAttrs node. */
  size_t Dictionary(const Attrs& attrs, const ObjectRef& owner);
  size_t CallAttrs(const Call& call);
  size_t OperatorAttrs(const Call& call, const OpDecl& decl);
  void WriteField(const OpDecl& decl, const AttrField& field, const Any& value, NodeText* node);
  size_t FieldNode(const OpDecl& decl, const Any& value);

  /*! \brief Set the attribute that the next values belong to, for messages. */
  void SetOwner(const ObjectRef& node, const std::string& attribute);
  [[noreturn]] void FailValue(const std::string& found) const;

  std::vector<std::string> nodes_;
  std::vector<std::string> tensors_;
  /*! \brief All objects that have an index; it keeps them alive. */
  std::vector<Pending> queue_;
  std::unordered_map<const Object*, size_t> index_;
  std::unordered_map<const Object*, size_t> tensor_index_;
  std::unordered_map<std::string, size_t> leaves_;
  std::map<std::pair<const OpDecl*, const Object*>, size_t> attrs_index_;
  std::unordered_map<std::string, ObjectRef> representatives_;
  std::unordered_map<const Object*, int32_t> tags_;
  /*! \brief The first one stands for everything that is not part of an attribute. */
  std::vector<Owner> owners_{Owner{}};
  uint32_t owner_ = 0;
};

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_JSON_GRAPH_WRITER_H_
