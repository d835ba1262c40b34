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
 * \file src/relay/json/graph_writer.cc
 * \brief The order in which nodes are written, and those that are not part of an expression.
 */
#include "graph_writer.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>

#include <functional>

#include "../../ffi/registration.h"
#include "../params/tensor_blob.h"
#include "../parser/literal.h"

namespace tvm_fixes::relay {
namespace {

using tvm::ffi::ArrayObj;
using tvm::ffi::MapObj;
using tvm::ffi::TypeIndex;

/*! \brief Append elements, each on its own line. */
template <typename Append>
void AppendLines(const char* name, size_t size, std::string* out, Append append) {
  *out += std::string(" \"") + name + "\": [";
  for (size_t i = 0; i < size; ++i) {
    *out += i == 0 ? "\n  " : ",\n  ";
    append(i);
  }
  *out += "],\n";
}

}  // namespace

std::string GraphWriter::Write(const IRModule& module) {
  NodeText null("");
  Add(&null);
  RegisterConstructors(module);
  size_t root = IndexOf(module);
  for (size_t i = 0; i < queue_.size(); ++i) {
    Pending pending = queue_[i];
    owner_ = pending.owner;
    nodes_[pending.index] = TextOf(pending.object);
  }
  size_t size = 200;
  for (const std::string& node : nodes_) size += node.size() + 4;
  for (const std::string& tensor : tensors_) size += tensor.size() + 6;
  std::string text;
  text.reserve(size);
  text += "{\"root\": " + std::to_string(root) + ",\n";
  AppendLines("nodes", nodes_.size(), &text, [&](size_t i) { text += nodes_[i]; });
  AppendLines("b64ndarrays", tensors_.size(), &text, [&](size_t i) {
    text += '"';
    text += tensors_[i];
    text += '"';
  });
  return text + " \"attrs\": {\"tvm_version\": \"0.19.0\"}}\n";
}

size_t GraphWriter::Add(NodeText* node) {
  nodes_.push_back(node->Finish());
  return nodes_.size() - 1;
}

size_t GraphWriter::AddLeaf(NodeText* node) {
  std::string text = node->Finish();
  auto [found, is_new] = leaves_.try_emplace(text, nodes_.size());
  if (is_new) nodes_.push_back(std::move(text));
  return found->second;
}

size_t GraphWriter::IndexOf(const ObjectRef& object) {
  if (!object.defined()) return 0;
  ObjectRef target = Representative(object);
  auto [found, is_new] = index_.try_emplace(target.get(), nodes_.size());
  if (is_new) {
    queue_.push_back({nodes_.size(), std::move(target), owner_});
    nodes_.emplace_back();
  }
  return found->second;
}

size_t GraphWriter::IndexOfValue(const Any& value) {
  switch (value.type_index()) {
    case TypeIndex::kTVMFFINone:
      return 0;
    case TypeIndex::kTVMFFIBool: {
      NodeText node("IntImm");
      node.Field("dtype", "bool").Field("value", value.cast<bool>() ? "1" : "0");
      return AddLeaf(&node.Field("span", size_t{0}));
    }
    case TypeIndex::kTVMFFIInt:
      return IndexOfInt(value.cast<int64_t>());
    case TypeIndex::kTVMFFIFloat: {
      NodeText node("FloatImm");
      node.Field("dtype", "float64").Field("value", RealText(value.cast<double>()));
      return AddLeaf(&node.Field("span", size_t{0}));
    }
  }
  if (auto text = value.as<String>()) return IndexOfName(*text);
  if (auto object = value.as<ObjectRef>()) return IndexOf(*object);
  FailValue(value.GetTypeKey());
}

size_t GraphWriter::IndexOfName(const String& name) {
  NodeText node("runtime.String");
  return AddLeaf(&node.Characters(std::string_view(name.data(), name.size())));
}

size_t GraphWriter::IndexOfInt(int64_t value) {
  NodeText node("IntImm");
  node.Field("dtype", value == static_cast<int32_t>(value) ? "int32" : "int64");
  return AddLeaf(&node.Field("value", std::to_string(value)).Field("span", size_t{0}));
}

size_t GraphWriter::IndexOfTensor(const Tensor& tensor) {
  const ObjectRef& reference = tensor;
  auto [found, is_new] = tensor_index_.try_emplace(reference.get(), tensors_.size());
  if (is_new) {
    if (tensor.device().device_type != kDLCPU || !tensor.IsContiguous()) {
      ThrowRelayError("a constant is not contiguous in the memory of the CPU: copy it");
    }
    std::string bytes;
    WriteTensor(tensor, &bytes);
    tensors_.push_back(EncodeBase64(bytes));
  }
  return found->second;
}

ObjectRef GraphWriter::Representative(const ObjectRef& object) {
  std::string key;
  if (const auto* global = object.as<GlobalVarObj>()) {
    key = "@" + std::string(global->name);
  } else if (const auto* type = object.as<GlobalTypeVarObj>()) {
    key = ":" + std::string(type->name);
  } else if (const auto* constructor = object.as<ConstructorObj>()) {
    key = std::string(constructor->belong_to->name) + '\0' + std::string(constructor->name);
  } else {
    return object;
  }
  return representatives_.emplace(key, object).first->second;
}

void GraphWriter::RegisterConstructors(const IRModule& module) {
  for (const auto& [name, data] : module->type_definitions) {
    // TVM finds the constructor of a value by this number.
    auto prefix = static_cast<uint32_t>(std::hash<std::string>()(data->header->name) & 0xFF) << 24;
    uint32_t position = 0;
    for (const Constructor& constructor : data->constructors) {
      Representative(constructor);
      tags_.emplace(constructor.get(), static_cast<int32_t>(prefix | position++));
    }
  }
}

std::string GraphWriter::TextOf(const ObjectRef& object) {
  if (const auto* array = object.as<ArrayObj>()) {
    std::vector<size_t> elements;
    elements.reserve(array->size());
    for (const Any& element : *array) elements.push_back(IndexOfValue(element));
    return NodeText("Array").Elements(elements).Finish();
  }
  if (const auto* map = object.as<MapObj>()) return WriteMap(map);
  if (const auto* var = object.as<ShapeVarObj>()) {
    NodeText node("tir.Var");
    node.Field("dtype", "int32").Field("name", IndexOfName(var->name));
    return node.Field("type_annotation", size_t{0}).Field("span", size_t{0}).Finish();
  }
  if (object.as<AnyDimObj>()) {
    return NodeText("tir.Any").Field("dtype", "int32").Field("span", size_t{0}).Finish();
  }
  bool is_known = object.as<ExprObj>() || object.as<TypeObj>() || object.as<PatternObj>() ||
                  object.as<ClauseObj>() || object.as<IRModuleObj>();
  if (!is_known) FailValue(object->GetTypeKey());
  owner_ = 0;
  if (object.as<TypeObj>()) return WriteType(object);
  if (object.as<PatternObj>()) return WritePattern(object);
  if (const auto* clause = object.as<ClauseObj>()) {
    size_t pattern = IndexOf(clause->lhs);
    return NodeText("relay.Clause")
        .Field("lhs", pattern)
        .Field("rhs", IndexOf(clause->rhs))
        .Finish();
  }
  if (auto module = object.as<IRModule>()) return WriteModule(*module);
  return WriteExpr(object);
}

std::string GraphWriter::WriteMap(const MapObj* map) {
  std::vector<std::string> keys;
  std::vector<size_t> values;
  for (const auto& [key, value] : *map) {
    auto name = key.as<String>();
    if (!name) FailValue("a key of type " + key.GetTypeKey());
    if (value == nullptr) continue;
    keys.push_back(*name);
    values.push_back(IndexOfValue(value));
  }
  return NodeText("Map").Keys(keys).Elements(values).Finish();
}

template <typename Name, typename Value>
size_t GraphWriter::NameMap(const Map<String, Value>& map) {
  std::vector<size_t> elements;
  for (const auto& [name, value] : map) {
    elements.push_back(IndexOf(Name(name)));
    elements.push_back(IndexOf(value));
  }
  NodeText node("Map");
  return Add(&node.Elements(elements));
}

template <typename Name, typename Value>
size_t GraphWriter::NodesOfNames(const Map<String, Value>& map) {
  std::vector<std::string> keys;
  std::vector<size_t> nodes;
  for (const auto& [name, value] : map) {
    keys.push_back(name);
    nodes.push_back(IndexOf(Name(name)));
  }
  NodeText node("Map");
  return Add(&node.Keys(keys).Elements(nodes));
}

std::string GraphWriter::WriteModule(const IRModule& module) {
  NodeText empty("Map");
  size_t nothing = AddLeaf(&empty);
  NodeText sources("SourceMap");
  sources.Field("source_map", nothing);
  NodeText node("IRModule");
  node.Field("functions", NameMap<GlobalVar>(module->functions));
  node.Field("type_definitions", NameMap<GlobalTypeVar>(module->type_definitions));
  node.Field("global_var_map_", NodesOfNames<GlobalVar>(module->functions));
  node.Field("global_type_var_map_", NodesOfNames<GlobalTypeVar>(module->type_definitions));
  node.Field("source_map", Add(&sources));
  node.Field("attrs", Dictionary(module->attrs, module));
  return node.Field("global_infos", nothing).Finish();
}

namespace {

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.relay.WriteModule", [](const IRModule& module) {
    return GraphWriter().Write(module);
  });
}

}  // namespace
}  // namespace tvm_fixes::relay
