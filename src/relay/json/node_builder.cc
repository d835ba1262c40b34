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
 * \file src/relay/json/node_builder.cc
 * \brief The order in which nodes are built, and those that are not part of an expression.
 */
#include "node_builder.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "../ir/shape.h"

namespace tvm_fixes::relay {
namespace {

constexpr int kMaxNodeDepth = 100;

/*! \brief The fields of each kind of node that refer to nodes which are needed. */
std::vector<const char*> NodeFields(NodeKind kind) {
  switch (kind) {
    case NodeKind::kDictAttrs:
      return {"__dict__"};
    case NodeKind::kVar:
      return {"vid", "type_annotation"};
    case NodeKind::kTuple:
    case NodeKind::kTupleType:
      return {"fields"};
    case NodeKind::kTupleGetItem:
      return {"tuple_value"};
    case NodeKind::kCall:
      return {"op", "args", "attrs", "type_args"};
    case NodeKind::kLet:
      return {"var", "value", "body"};
    case NodeKind::kIf:
      return {"cond", "true_branch", "false_branch"};
    case NodeKind::kFunction:
      return {"params", "body", "ret_type", "type_params", "attrs"};
    case NodeKind::kRefCreate:
    case NodeKind::kRefType:
      return {"value"};
    case NodeKind::kRefRead:
      return {"ref"};
    case NodeKind::kRefWrite:
      return {"ref", "value"};
    case NodeKind::kConstructor:
      return {"inputs", "belong_to"};
    case NodeKind::kMatch:
      return {"data", "clauses"};
    case NodeKind::kClause:
      return {"lhs", "rhs"};
    case NodeKind::kPatternVar:
      return {"var"};
    case NodeKind::kPatternConstructor:
      return {"constructor", "patterns"};
    case NodeKind::kPatternTuple:
      return {"patterns"};
    case NodeKind::kTensorType:
      return {"shape"};
    case NodeKind::kFuncType:
      return {"arg_types", "ret_type", "type_params"};
    case NodeKind::kTypeVar:
    case NodeKind::kGlobalTypeVar:
      return {"var"};
    case NodeKind::kTypeCall:
      return {"func", "args"};
    case NodeKind::kTypeData:
      return {"header", "type_vars", "constructors"};
    case NodeKind::kModule:
      return {"functions", "type_definitions", "attrs"};
    default:
      return {};
  }
}

/*! \brief Whether a node has a name, which may be a node. */
bool HasName(NodeKind kind) {
  switch (kind) {
    case NodeKind::kId:
    case NodeKind::kShapeVar:
    case NodeKind::kStringImm:
    case NodeKind::kGlobalVar:
    case NodeKind::kConstructor:
    case NodeKind::kTypeVar:
    case NodeKind::kGlobalTypeVar:
      return true;
    default:
      return false;
  }
}

/*! \brief Whether nodes of this kind nest in each other outside expressions. */
bool Nests(NodeKind kind) {
  switch (kind) {
    case NodeKind::kArray:
    case NodeKind::kMap:
    case NodeKind::kAttrs:
    case NodeKind::kDictAttrs:
    case NodeKind::kPatternConstructor:
    case NodeKind::kPatternTuple:
      return true;
    default:
      return kind >= NodeKind::kTensorType && kind <= NodeKind::kTypeData;
  }
}

}  // namespace

Any NodeBuilder::BuildRoot() {
  std::vector<size_t> pending{table_.root()};
  while (!pending.empty()) {
    size_t node = pending.back();
    if (states_[node] != State::kNew) {
      pending.pop_back();
      if (states_[node] == State::kBuilt) continue;
      values_[node] = Build(node);
      states_[node] = State::kBuilt;
      continue;
    }
    states_[node] = State::kOpen;
    for (size_t dependency : Dependencies(node)) {
      // Open nodes are ancestors of this one.
      if (states_[dependency] == State::kOpen) {
        table_.Fail(node, "it contains itself, by way of " + table_.Name(dependency));
      }
      if (states_[dependency] == State::kNew) pending.push_back(dependency);
    }
  }
  return values_[table_.root()];
}

std::vector<size_t> NodeBuilder::Dependencies(size_t node) {
  switch (table_.kind(node)) {
    case NodeKind::kArray:
    case NodeKind::kMap:
      return table_.Elements(node);
    case NodeKind::kAttrs:
      return attrs_.References(node);
    default:
      break;
  }
  std::vector<size_t> result;
  for (const char* field : NodeFields(table_.kind(node))) {
    result.push_back(table_.Reference(node, field));
  }
  for (const char* field : {"name_hint", "name", "value"}) {
    if (!HasName(table_.kind(node))) break;
    if (auto name = table_.NameReference(node, field)) result.push_back(*name);
  }
  if (table_.kind(node) == NodeKind::kCall && table_.kind(result[0]) == NodeKind::kOp) {
    attrs_.SetOperator(result[2], DeclOf(result[0]));
  }
  return result;
}

void NodeBuilder::CheckDepth(size_t node) {
  if (!Nests(table_.kind(node))) return;
  int depth = 0;
  for (size_t dependency : Dependencies(node)) {
    depth = std::max<int>(depth, depths_[dependency] + 1);
  }
  if (depth > kMaxNodeDepth) {
    table_.Fail(node, "data, types and patterns nest deeper than " + std::to_string(kMaxNodeDepth) +
                          " levels");
  }
  depths_[node] = static_cast<uint8_t>(depth);
}

Any NodeBuilder::Build(size_t node) {
  CheckDepth(node);
  NodeKind kind = table_.kind(node);
  if (kind >= NodeKind::kTensorType && kind <= NodeKind::kTypeData) return BuildType(node);
  if (kind >= NodeKind::kPatternWildcard && kind <= NodeKind::kPatternTuple) {
    return BuildPattern(node);
  }
  if (kind >= NodeKind::kOp && kind <= NodeKind::kClause) return BuildExpr(node);
  return BuildData(node);
}

Any NodeBuilder::BuildData(size_t node) {
  switch (table_.kind(node)) {
    case NodeKind::kArray:
      return BuildArray(node);
    case NodeKind::kMap:
      return BuildMap(node);
    case NodeKind::kString:
      return String(table_.Text(node));
    case NodeKind::kInt: {
      int64_t value = table_.IntField(node, "value");
      std::optional<NodeTable::Value> dtype = table_.Field(node, "dtype");
      bool is_bool = dtype && (dtype->text() == "bool" || dtype->text() == "uint1");
      return is_bool ? Any(value != 0) : Any(value);
    }
    case NodeKind::kFloat:
      return table_.FloatField(node, "value");
    case NodeKind::kBox:
      return BuildBox(node);
    case NodeKind::kAnyDim:
    case NodeKind::kPrimExpr:
      return AnyDim();
    case NodeKind::kShapeVar:
      return ShapeVar(NameOf(node, "name"));
    case NodeKind::kStringImm:
      return NameOf(node, "value");
    case NodeKind::kId:
      return NameOf(node, "name_hint");
    case NodeKind::kDictAttrs:
      return GetAttrs(node, "__dict__");
    case NodeKind::kAttrs:
      return attrs_.Read(node, values_);
    case NodeKind::kModule:
      return BuildModule(node);
    default:
      return nullptr;
  }
}

Any NodeBuilder::BuildBox(size_t node) {
  std::string text = table_.Text(node);
  std::string key = table_.TypeKey(node);
  const char* expected = "'true' or 'false'";
  if (key == "runtime.BoxBool" && (text == "true" || text == "false")) return text == "true";
  if (key == "runtime.BoxInt") {
    expected = "an integer of 64 bits";
    int64_t value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
  }
  if (key == "runtime.BoxFloat") {
    expected = "a number";
    char* end = nullptr;
    double value = std::strtod(text.c_str(), &end);
    if (!text.empty() && end == text.c_str() + text.size()) return value;
  }
  table_.Fail(node, std::string("expected ") + expected + ", found '" + text.substr(0, 40) + "'");
}

Any NodeBuilder::BuildArray(size_t node) {
  Array<Any> elements;
  std::vector<size_t> indices = table_.Elements(node);
  elements.reserve(static_cast<int64_t>(indices.size()));
  for (size_t index : indices) elements.push_back(values_[index]);
  return elements;
}

String NodeBuilder::KeyOf(size_t map, size_t key) const {
  const Any& value = values_[key];
  if (auto text = value.as<String>()) return *text;
  if (const auto* global = value.as<GlobalVarObj>()) return global->name;
  if (const auto* global = value.as<GlobalTypeVarObj>()) return global->name;
  table_.Fail(map, "expected a string or the name of a function or type as a key, found " +
                       table_.Name(key));
}

Any NodeBuilder::BuildMap(size_t node) {
  std::vector<size_t> data = table_.Elements(node);
  std::vector<std::string> keys = table_.Keys(node);
  Map<String, Any> result;
  auto add = [&](const String& key, size_t value) {
    if (result.count(key) != 0) {
      table_.Fail(node, "the key '" + std::string(key) + "' occurs twice");
    }
    if (values_[value] != nullptr) result.Set(key, values_[value]);
  };
  if (!keys.empty()) {
    if (keys.size() != data.size()) {
      table_.Fail(node, "expected as many values as keys, found " + std::to_string(keys.size()) +
                            " keys and " + std::to_string(data.size()) + " values");
    }
    for (size_t i = 0; i < keys.size(); ++i) add(keys[i], data[i]);
    return result;
  }
  if (data.size() % 2 != 0) {
    table_.Fail(node, "expected pairs of keys and values, found " + std::to_string(data.size()) +
                          " elements");
  }
  for (size_t i = 0; i < data.size(); i += 2) add(KeyOf(node, data[i]), data[i + 1]);
  return result;
}

Attrs NodeBuilder::GetAttrs(size_t node, std::string_view field) const {
  size_t index = table_.Reference(node, field);
  if (values_[index] == nullptr) return {};
  bool is_attrs = table_.kind(index) == NodeKind::kMap ||
                  table_.kind(index) == NodeKind::kDictAttrs ||
                  table_.kind(index) == NodeKind::kAttrs;
  if (!is_attrs) FailField(node, field, "attributes", index);
  return values_[index].cast<Attrs>();
}

void NodeBuilder::CheckFunctions(size_t map) const {
  std::vector<size_t> data = table_.Elements(map);
  for (size_t i = 1; i < data.size(); i += 2) {
    if (table_.kind(data[i]) == NodeKind::kOther) {
      table_.Fail(data[i], "the module holds a function that is not Relay's: '" +
                               std::string(KeyOf(map, data[i - 1])) + "'");
    }
  }
}

Any NodeBuilder::BuildModule(size_t node) {
  CheckFunctions(table_.Reference(node, "functions"));
  Map<String, Function> functions;
  for (const auto& [name, value] : Get<Map<String, Any>>(node, "functions", "a map")) {
    auto function = value.as<Function>();
    if (!function) {
      table_.Fail(node, "'" + std::string(name) + "': expected a Relay function, found " +
                            value.GetTypeKey());
    }
    functions.Set(name, *function);
  }
  Map<String, TypeData> types;
  size_t index = table_.Reference(node, "type_definitions");
  if (values_[index] != nullptr) {
    for (const auto& [name, value] : Get<Map<String, Any>>(node, "type_definitions", "a map")) {
      auto type = value.as<TypeData>();
      if (!type) {
        table_.Fail(node, "'" + std::string(name) + "': expected the definition of a type, found " +
                              value.GetTypeKey());
      }
      types.Set(name, *type);
    }
  }
  return IRModule(functions, types, GetAttrs(node, "attrs"));
}

void NodeBuilder::FailField(size_t node, std::string_view field, const char* expected,
                            size_t found) const {
  table_.Fail(node, "field '" + std::string(field) + "': expected " + expected + ", found " +
                        table_.Name(found));
}

String NodeBuilder::NameOf(size_t node, std::string_view field) const {
  if (auto name = table_.NameReference(node, field)) {
    if (auto text = values_[*name].as<String>()) return *text;
    FailField(node, field, "a name", *name);
  }
  return table_.RequiredField(node, field).String();
}

const OpDecl* NodeBuilder::DeclOf(size_t op) {
  auto [found, is_new] = decls_.try_emplace(op, nullptr);
  if (is_new) found->second = FindOp(table_.Text(op));
  return found->second;
}

Span NodeBuilder::SpanOf(size_t node) {
  std::optional<NodeTable::Value> field = table_.Field(node, "span");
  std::optional<size_t> index = field ? table_.AsIndex(*field) : std::nullopt;
  if (!index) return Span();
  auto [found, is_new] = spans_.try_emplace(*index);
  if (!is_new) return found->second;
  auto read = [&](const char* name, const char* old_name) {
    std::optional<NodeTable::Value> value = table_.Field(*index, name);
    if (!value) value = table_.Field(*index, old_name);
    int64_t number = value ? value->Int().value_or(0) : 0;
    return number > 0 && number <= INT32_MAX ? static_cast<int32_t>(number) : 0;
  };
  Span& span = found->second;
  span.line = read("line", "lineno");
  if (span.line > 0) span.column = read("column", "col_offset");
  return span;
}

}  // namespace tvm_fixes::relay
