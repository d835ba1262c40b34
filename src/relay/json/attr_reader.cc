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
 * \file src/relay/json/attr_reader.cc
 * \brief Determines the kind of a stored attribute from the operator's declaration and the version.
 */
#include "attr_reader.h"

#include <map>
#include <set>
#include <sstream>

#include "attr_schema.h"

namespace tvm_fixes::relay {
namespace {

using Value = JsonText::Value;

/*! \brief The declared kinds by type key of the attributes; operators share some keys. */
const std::map<std::string, std::map<std::string, AttrKind>>& KindsByKey() {
  static const auto* table = [] {
    auto* result = new std::map<std::string, std::map<std::string, AttrKind>>();
    for (const auto& [name, decl] : AllOps()) {
      for (const AttrField& field : decl->attr_fields) {
        (*result)[decl->attrs_key].emplace(field.name, field.kind);
      }
    }
    return result;
  }();
  return *table;
}

bool IsArrayKind(AttrKind kind) {
  return kind == AttrKind::kIntArray || kind == AttrKind::kFloatArray ||
         kind == AttrKind::kNestedIntArray || kind == AttrKind::kStringArray;
}

bool IsNumber(NodeKind kind) {
  return kind == NodeKind::kInt || kind == NodeKind::kFloat || kind == NodeKind::kBox;
}

}  // namespace

AttrReader::Schema AttrReader::SchemaOf(size_t attrs) const {
  auto decl = decls_.find(attrs);
  return {attrs, table_.TypeKey(attrs), decl == decls_.end() ? nullptr : decl->second};
}

std::optional<AttrKind> AttrReader::Schema::KindOf(const std::string& name) const {
  const AttrField* field = decl == nullptr ? nullptr : decl->FindAttr(name);
  if (field != nullptr) return field->kind;
  auto kinds = KindsByKey().find(key);
  if (kinds == KindsByKey().end()) return OldFieldKind(key, name);
  auto kind = kinds->second.find(name);
  return kind == kinds->second.end() ? OldFieldKind(key, name) : kind->second;
}

std::optional<size_t> AttrReader::AsReference(const Schema& schema, const std::string& name,
                                              const Value& value) const {
  std::optional<size_t> index = table_.AsIndex(value);
  if (!index) return std::nullopt;
  NodeKind target = table_.kind(*index);
  bool is_container = target == NodeKind::kArray || target == NodeKind::kNull;
  if (IsNumberNode(schema.key, name, table_.version())) {
    // An unreleased version may still store the number.
    bool fits = is_container || IsNumber(target) || target == NodeKind::kConstant ||
                target == NodeKind::kPrimExpr || target == NodeKind::kVar ||
                target == NodeKind::kCall || target == NodeKind::kTupleGetItem;
    return fits ? index : std::nullopt;
  }
  std::optional<AttrKind> kind = schema.KindOf(name);
  if (!kind) return std::nullopt;
  if (IsArrayKind(*kind)) return is_container || IsNumber(target) ? index : std::nullopt;
  if (*kind == AttrKind::kString) {
    // Between the known versions, a field changes from text to a node.
    bool may_be_node = table_.version() >= 7 &&
                       (table_.version() < kWrittenVersion || IsStringNode(schema.key, name));
    bool is_string = target == NodeKind::kString || target == NodeKind::kStringImm;
    return may_be_node && is_string ? index : std::nullopt;
  }
  return *kind == AttrKind::kAny ? index : std::nullopt;
}

template <typename F>
void AttrReader::ForEachGiven(size_t attrs, F visit) const {
  std::optional<Value> list = table_.Field(attrs, kDefaultsField);
  std::set<std::string> defaults;
  if (list) {
    std::istringstream names(list->String());
    for (std::string name; std::getline(names, name, ',');) defaults.insert(name);
    defaults.insert(kDefaultsField);
  }
  table_.ForEachField(attrs, [&](const Value& name, const Value& value) {
    std::string field = name.String();
    if (defaults.count(field) == 0) visit(field, value);
  });
}

std::vector<size_t> AttrReader::References(size_t attrs) const {
  std::vector<size_t> result;
  Schema schema = SchemaOf(attrs);
  ForEachGiven(attrs, [&](const std::string& name, const Value& value) {
    if (auto index = AsReference(schema, name, value)) result.push_back(*index);
  });
  return result;
}

Any AttrReader::Literal(const Schema& schema, const std::string& name, const Value& value) const {
  std::optional<AttrKind> kind = schema.KindOf(name);
  if (kind == AttrKind::kString) return String(value.String());
  if (kind == AttrKind::kDType) {
    std::string text = value.String();
    return String(text == "void" ? "" : text);
  }
  if (kind == AttrKind::kInt) return table_.IntOf(schema.node, name, value);
  if (kind == AttrKind::kFloat) return table_.FloatOf(schema.node, name, value);
  if (kind == AttrKind::kBool) {
    if (value.kind() == JsonKind::kBool) return value.Bool();
    return table_.IntOf(schema.node, name, value) != 0;
  }
  if (std::optional<int64_t> number = value.Int()) return *number;
  return String(value.String());
}

Attrs AttrReader::Read(size_t attrs, const std::vector<Any>& values) const {
  Attrs result;
  Schema schema = SchemaOf(attrs);
  ForEachGiven(attrs, [&](const std::string& name, const Value& value) {
    std::optional<size_t> index = AsReference(schema, name, value);
    Any read = index ? values[*index] : Literal(schema, name, value);
    if (read != nullptr) result.Set(name, read);
  });
  return result;
}

}  // namespace tvm_fixes::relay
