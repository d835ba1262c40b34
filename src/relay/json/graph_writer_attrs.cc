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
 * \file src/relay/json/graph_writer_attrs.cc
 * \brief Writes an operator's attributes as the fields of its attrs node in TVM.
 */
#include "../parser/literal.h"
#include "attr_schema.h"
#include "graph_writer.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief Format a number that TVM stores by value. None becomes 0, which the operator ignores. */
std::string NumberText(const Any& value) {
  switch (value.type_index()) {
    case tvm::ffi::TypeIndex::kTVMFFINone:
      return "0";
    case tvm::ffi::TypeIndex::kTVMFFIBool:
      return value.cast<bool>() ? "1" : "0";
    case tvm::ffi::TypeIndex::kTVMFFIFloat:
      return RealText(value.cast<double>());
  }
  return std::to_string(value.cast<int64_t>());
}

std::string StringText(const Any& value) {
  return value == nullptr ? std::string() : std::string(value.cast<String>());
}

}  // namespace

void GraphWriter::SetOwner(const ObjectRef& node, const std::string& attribute) {
  owners_.push_back({node, attribute});
  owner_ = static_cast<uint32_t>(owners_.size() - 1);
}

void GraphWriter::FailValue(const std::string& found) const {
  const Owner& owner = owners_[owner_];
  std::string place = "module";
  if (const auto* call = owner.node.as<CallObj>()) place = CallText(call);
  if (owner.node.as<FunctionObj>()) place = "function";
  ThrowRelayError(place + ": attribute '" + owner.attribute +
                  "': cannot be saved in TVM's JSON format: " + found);
}

size_t GraphWriter::Dictionary(const Attrs& attrs, const ObjectRef& owner) {
  auto [found, is_new] = attrs_index_.try_emplace({nullptr, attrs.get()}, 0);
  if (!is_new) return found->second;
  std::vector<std::string> keys;
  std::vector<size_t> values;
  for (const auto& [name, value] : attrs) {
    if (value == nullptr) continue;
    SetOwner(owner, name);
    keys.push_back(name);
    values.push_back(IndexOfValue(value));
  }
  owner_ = 0;
  NodeText map("Map");
  NodeText node("DictAttrs");
  found->second = Add(&node.Field("__dict__", Add(&map.Keys(keys).Elements(values))));
  return found->second;
}

size_t GraphWriter::CallAttrs(const Call& call) {
  const auto* op = call->op.as<OpObj>();
  if (op == nullptr) return call->attrs.empty() ? 0 : Dictionary(call->attrs, call);
  if (op->decl == nullptr) {
    for (const auto& [name, value] : call->attrs) {
      ThrowRelayError(CallText(call.get()) + ": attribute '" + std::string(name) +
                      "': the operator is unknown, so its attributes cannot be saved");
    }
    return 0;
  }
  if (IsRemovedForm(op->name, call->args.size())) {
    ThrowRelayError(CallText(call.get()) + ": TVM 0.19 has no form with " +
                    std::to_string(call->args.size()) + " inputs");
  }
  auto [found, is_new] = attrs_index_.try_emplace({op->decl, call->attrs.get()}, 0);
  if (is_new) found->second = OperatorAttrs(call, *op->decl);
  return found->second;
}

size_t GraphWriter::OperatorAttrs(const Call& call, const OpDecl& decl) {
  Attrs complete = CompleteAttrs(call.get());
  if (decl.attr_fields.empty()) return 0;
  NodeText node(decl.attrs_key);
  std::string defaults;
  for (const AttrField& field : decl.attr_fields) {
    auto given = call->attrs.find(field.name);
    bool is_given = given != call->attrs.end() && (*given).second != nullptr;
    const Any value = complete[field.name];
    if (IsRemovedField(decl.attrs_key, field.name)) {
      if (!is_given) continue;
      if (!tvm::ffi::AnyEqual()(value, field.default_value)) {
        ThrowRelayError(CallText(call.get()) + ": attribute '" + field.name +
                        "': TVM 0.19 does not have this attribute, so only its default value can "
                        "be saved");
      }
    } else if (!is_given) {
      defaults += (defaults.empty() ? "" : ",") + field.name;
    }
    SetOwner(call, field.name);
    WriteField(decl, field, value, &node);
  }
  owner_ = 0;
  if (!defaults.empty()) node.Field(kDefaultsField, defaults);
  return Add(&node);
}

void GraphWriter::WriteField(const OpDecl& decl, const AttrField& field, const Any& value,
                             NodeText* node) {
  switch (field.kind) {
    case AttrKind::kInt:
    case AttrKind::kFloat:
    case AttrKind::kBool:
      if (IsNumberNode(decl.attrs_key, field.name, kWrittenVersion)) break;
      node->Field(field.name, NumberText(value));
      return;
    case AttrKind::kString:
      if (IsStringNode(decl.attrs_key, field.name)) break;
      node->Field(field.name, StringText(value));
      return;
    case AttrKind::kDType:
      node->Field(field.name, StringText(value));
      return;
    default:
      break;
  }
  node->Field(field.name, FieldNode(decl, value));
}

size_t GraphWriter::FieldNode(const OpDecl& decl, const Any& value) {
  const std::string& key = decl.attrs_key;
  if (key == "relay.attrs.SplitAttrs") {
    auto box = [this](const Any& number) {
      if (!number.as<int64_t>()) FailValue("a nested array");
      NodeText node("runtime.BoxInt");
      return AddLeaf(&node.Characters(std::to_string(number.cast<int64_t>())));
    };
    auto indices = value.as<Array<Any>>();
    if (!indices) return box(value);
    std::vector<size_t> elements;
    for (const Any& index : *indices) elements.push_back(box(index));
    NodeText node("Array");
    return Add(&node.Elements(elements));
  }
  if (key == "relay.attrs.DebugAttrs" && value.as<String>()) {
    NodeText node("EnvFunc");
    return AddLeaf(&node.Characters(StringText(value)));
  }
  bool is_device = key == "relay.attrs.OnDeviceAttrs" || key == "relay.attrs.DeviceCopyAttrs";
  if (is_device && value == nullptr) {
    // TVM represents a missing device as an unconstrained VirtualDevice.
    NodeText node("VirtualDevice");
    node.Field("device_type_int", "-1").Field("virtual_device_id", "-1");
    node.Field("target", size_t{0}).Field("memory_scope", IndexOfName(""));
    return AddLeaf(&node);
  }
  return IndexOfValue(value);
}

}  // namespace tvm_fixes::relay
