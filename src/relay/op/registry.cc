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
 * \file src/relay/op/registry.cc
 * \brief The table of operators.
 */
#include "registry.h"

#include <tvm/ffi/reflection/registry.h>

#include <mutex>
#include <unordered_map>

namespace tvm_fixes::relay {
namespace {

/*! \brief Never destroyed: Op objects point to the declarations. */
struct Table {
  std::map<std::string, OpDecl*> ops;
  std::map<std::string, OpDecl*> aliases;
  /*! \brief Declarations that clash; reported when the library is loaded. */
  std::vector<std::string> duplicates;
};

Table& GetTable() {
  static Table* table = new Table();
  return *table;
}

/*! \brief The Op objects that exist, by name. */
struct OpPool {
  std::mutex mutex;
  std::unordered_map<std::string, Op> ops;
};

OpPool& GetOpPool() {
  static OpPool* pool = new OpPool();
  return *pool;
}

}  // namespace

const char* AttrKindText(AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt:
      return "int";
    case AttrKind::kFloat:
      return "float";
    case AttrKind::kBool:
      return "bool";
    case AttrKind::kString:
      return "string";
    case AttrKind::kDType:
      return "dtype";
    case AttrKind::kIntArray:
      return "array of ints";
    case AttrKind::kFloatArray:
      return "array of floats";
    case AttrKind::kNestedIntArray:
      return "array of arrays of ints";
    case AttrKind::kStringArray:
      return "array of strings";
    case AttrKind::kAny:
      break;
  }
  return "any value";
}

OpDecl& OpDecl::Inputs(std::vector<std::string> names) {
  input_names = std::move(names);
  min_inputs = max_inputs = static_cast<int>(input_names.size());
  return *this;
}

OpDecl& OpDecl::Variadic(int minimum) {
  min_inputs = minimum;
  max_inputs = -1;
  return *this;
}

OpDecl& OpDecl::MinInputs(int minimum) {
  min_inputs = minimum;
  return *this;
}

OpDecl& OpDecl::Attrs(std::string key, std::vector<AttrField> fields) {
  attrs_key = std::move(key);
  attr_fields = std::move(fields);
  return *this;
}

OpDecl& OpDecl::Relation(TypeRelation function) {
  relation = std::move(function);
  return *this;
}

OpDecl& OpDecl::InfersInputs() {
  infers_inputs = true;
  return *this;
}

OpDecl& OpDecl::Annotation() {
  effect = OpEffect::kAnnotation;
  return *this;
}

OpDecl& OpDecl::Rejected(std::string reason) {
  effect = OpEffect::kRejected;
  rejection = std::move(reason);
  return *this;
}

OpDecl& OpDecl::Alias(const std::string& other_name) {
  Table& table = GetTable();
  if (!table.aliases.emplace(other_name, this).second) table.duplicates.push_back(other_name);
  return *this;
}

const AttrField* OpDecl::FindAttr(const std::string& attr) const {
  for (const AttrField& field : attr_fields) {
    if (field.name == attr) return &field;
  }
  return nullptr;
}

OpDecl& DeclareOp(const char* name) {
  Table& table = GetTable();
  auto* decl = new OpDecl(name);
  if (!table.ops.emplace(name, decl).second) table.duplicates.push_back(name);
  return *decl;
}

const OpDecl* FindOp(const std::string& name) {
  const Table& table = GetTable();
  auto found = table.ops.find(name);
  if (found != table.ops.end()) return found->second;
  found = table.aliases.find(name);
  return found == table.aliases.end() ? nullptr : found->second;
}

const std::map<std::string, OpDecl*>& AllOps() { return GetTable().ops; }

Op Op::Get(const String& name) {
  OpPool& pool = GetOpPool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  const OpDecl* decl = FindOp(name);
  std::string key = decl == nullptr ? std::string(name) : decl->name;
  auto [found, is_new] = pool.ops.try_emplace(key, tvm::ffi::UnsafeInit{});
  if (is_new) found->second = Op(make_object<OpObj>(String(key), decl));
  return found->second;
}

namespace {

Map<String, Any> DescribeField(const AttrField& field) {
  Map<String, Any> row;
  row.Set("name", String(field.name));
  row.Set("kind", String(AttrKindText(field.kind)));
  row.Set("required", field.required);
  row.Set("default", field.default_value);
  return row;
}

/*! \brief The declaration of an operator for Python. */
Map<String, Any> Describe(const OpDecl& decl) {
  Array<Any> names;
  for (const std::string& name : decl.input_names) names.push_back(String(name));
  Array<Any> fields;
  for (const AttrField& field : decl.attr_fields) fields.push_back(DescribeField(field));
  Map<String, Any> row;
  row.Set("input_names", names);
  row.Set("min_inputs", decl.min_inputs);
  row.Set("max_inputs", decl.max_inputs);
  row.Set("attrs_key", String(decl.attrs_key));
  row.Set("attrs", fields);
  static const char* const effects[] = {"computes", "annotation", "rejected"};
  row.Set("effect", String(effects[static_cast<int>(decl.effect)]));
  row.Set("rejection", String(decl.rejection));
  row.Set("has_relation", static_cast<bool>(decl.relation));
  return row;
}

TVM_FIXES_INIT_BLOCK() {
  std::string duplicates;
  for (const std::string& name : GetTable().duplicates) duplicates += " " + name;
  if (!duplicates.empty()) {
    TVM_FFI_THROW(RuntimeError) << "Relay operators declared twice:" << duplicates;
  }
  tvm::ffi::reflection::GlobalDef()
      .def("tvm_fixes.relay.Operators",
           [] {
             Map<String, Any> rows;
             for (const auto& [name, decl] : AllOps()) rows.Set(name, Describe(*decl));
             return rows;
           })
      .def("tvm_fixes.relay.CompleteAttrs",
           [](const Call& call) { return CompleteAttrs(call.get()); });
}

}  // namespace
}  // namespace tvm_fixes::relay
