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
 * \file src/relay/json/node_table.cc
 * \brief Finds the nodes of a saved text and checks every index.
 */
#include "node_table.h"

#include <tvm/ffi/error.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "../params/tensor_blob.h"

namespace tvm_fixes::relay {
namespace {

using Value = JsonText::Value;

constexpr char kFormat[] = "not a Relay program that tvm.ir.save_json wrote";

/*! \brief The kinds by type key. */
const std::unordered_map<std::string_view, NodeKind>& KindTable() {
  static const auto* table = new std::unordered_map<std::string_view, NodeKind>{
      {"", NodeKind::kNull},
      {"Array", NodeKind::kArray},
      {"Map", NodeKind::kMap},
      {"StrMap", NodeKind::kMap},
      {"runtime.String", NodeKind::kString},
      {"StringImm", NodeKind::kStringImm},
      {"tir.StringImm", NodeKind::kStringImm},
      {"EnvFunc", NodeKind::kString},
      {"IntImm", NodeKind::kInt},
      {"UIntImm", NodeKind::kInt},
      {"FloatImm", NodeKind::kFloat},
      {"runtime.BoxInt", NodeKind::kBox},
      {"runtime.BoxBool", NodeKind::kBox},
      {"runtime.BoxFloat", NodeKind::kBox},
      {"Any", NodeKind::kAnyDim},
      {"tir.Any", NodeKind::kAnyDim},
      {"Variable", NodeKind::kShapeVar},
      {"SizeVar", NodeKind::kShapeVar},
      {"tir.Var", NodeKind::kShapeVar},
      {"tir.SizeVar", NodeKind::kShapeVar},
      {"DictAttrs", NodeKind::kDictAttrs},
      {"Op", NodeKind::kOp},
      {"GlobalVar", NodeKind::kGlobalVar},
      {"TensorType", NodeKind::kTensorType},
      {"TupleType", NodeKind::kTupleType},
      {"FuncType", NodeKind::kFuncType},
      {"TypeVar", NodeKind::kTypeVar},
      {"GlobalTypeVar", NodeKind::kGlobalTypeVar},
      {"TypeCall", NodeKind::kTypeCall},
      {"IncompleteType", NodeKind::kIncompleteType},
      {"IRModule", NodeKind::kModule},
      {"relay.Module", NodeKind::kModule},
      {"relay.Op", NodeKind::kOp},
      {"relay.GlobalVar", NodeKind::kGlobalVar},
      {"relay.TensorType", NodeKind::kTensorType},
      {"relay.TupleType", NodeKind::kTupleType},
      {"relay.FuncType", NodeKind::kFuncType},
      {"relay.TypeVar", NodeKind::kTypeVar},
      {"relay.GlobalTypeVar", NodeKind::kGlobalTypeVar},
      {"relay.TypeCall", NodeKind::kTypeCall},
      {"relay.RefType", NodeKind::kRefType},
      {"relay.IncompleteType", NodeKind::kIncompleteType},
      {"relay.TypeData", NodeKind::kTypeData},
      {"relay.Id", NodeKind::kId},
      {"relay.Var", NodeKind::kVar},
      {"relay.Constant", NodeKind::kConstant},
      {"relay.Tuple", NodeKind::kTuple},
      {"relay.TupleGetItem", NodeKind::kTupleGetItem},
      {"relay.Call", NodeKind::kCall},
      {"relay.Let", NodeKind::kLet},
      {"relay.If", NodeKind::kIf},
      {"relay.Function", NodeKind::kFunction},
      {"relay.RefCreate", NodeKind::kRefCreate},
      {"relay.RefRead", NodeKind::kRefRead},
      {"relay.RefWrite", NodeKind::kRefWrite},
      {"relay.Constructor", NodeKind::kConstructor},
      {"relay.Match", NodeKind::kMatch},
      {"relay.Clause", NodeKind::kClause},
      {"relay.PatternWildcard", NodeKind::kPatternWildcard},
      {"relay.PatternVar", NodeKind::kPatternVar},
      {"relay.PatternConstructor", NodeKind::kPatternConstructor},
      {"relay.PatternTuple", NodeKind::kPatternTuple}};
  return *table;
}

/*! \brief The keys of TVM 0.6 for arithmetic, which later begin with "tir.". */
bool IsOldPrimExpr(std::string_view key) {
  for (const char* name : {"Add", "Sub", "Mul",  "Div",    "Mod",  "FloorDiv", "FloorMod", "Min",
                           "Max", "EQ",  "NE",   "LT",     "LE",   "GT",       "GE",       "And",
                           "Or",  "Not", "Cast", "Select", "Call", "Let"}) {
    if (key == name) return true;
  }
  return false;
}

NodeKind KindOf(std::string_view key) {
  auto found = KindTable().find(key);
  if (found != KindTable().end()) return found->second;
  if (key.rfind("relay.attrs.", 0) == 0) return NodeKind::kAttrs;
  if (key == "tir.PrimFunc") return NodeKind::kOther;
  if (key.rfind("tir.", 0) == 0 || IsOldPrimExpr(key)) return NodeKind::kPrimExpr;
  return NodeKind::kOther;
}

/*! \brief A value for a message. */
std::string Quote(const Value& value) {
  if (value.kind() == JsonKind::kArray) return "an array";
  if (value.kind() == JsonKind::kObject) return "an object";
  std::string text = Printable(value.text().substr(0, 40));
  return "'" + text + (value.text().size() > 40 ? "...'" : "'");
}

}  // namespace

NodeTable::NodeTable(std::string_view json) : document_(json) {
  RejectOtherFormats();
  Value top = document_.root();
  std::optional<Value> nodes = top.Find("nodes");
  nodes->ForEachElement([&](const Value& node) {
    std::optional<Value> key = node.Find("type_key");
    bool has_key = key && key->kind() == JsonKind::kString;
    if (node.kind() != JsonKind::kObject || (key && !has_key)) {
      ThrowRelayError("node " + std::to_string(nodes_.size()) +
                      ": expected an object with a 'type_key'");
    }
    nodes_.push_back(node);
    kinds_.push_back(key ? KindOf(key->text()) : NodeKind::kNull);
  });
  std::optional<Value> tensors = top.Find("b64ndarrays");
  if (tensors && tensors->kind() == JsonKind::kArray) {
    tensors->ForEachElement([&](const Value& tensor) { tensors_.push_back(tensor); });
  }
  decoded_.resize(tensors_.size());
  Value root = *top.Find("root");
  std::optional<size_t> index = AsIndex(root);
  if (!index) {
    ThrowRelayError("'root': expected the index of one of " + std::to_string(size()) +
                    " nodes, found " + Quote(root));
  }
  root_ = *index;
  ReadVersion();
}

void NodeTable::RejectOtherFormats() const {
  Value top = document_.root();
  if (top.Find("arg_nodes") && top.Find("heads")) {
    ThrowRelayError(
        "this is the graph of TVM's graph executor, which holds calls of compiled functions and "
        "not the program: expected the JSON of tvm.ir.save_json, or the program's text");
  }
  if (top.Find("root_index")) {
    ThrowRelayError(
        "this JSON was saved by TVM 0.20 or later, which has no Relay: expected the JSON of "
        "tvm.ir.save_json of TVM 0.6 to 0.19");
  }
  std::optional<Value> nodes = top.Find("nodes");
  if (!nodes || nodes->kind() != JsonKind::kArray) {
    ThrowRelayError(std::string(kFormat) + ": it has no array 'nodes'");
  }
  if (!top.Find("root")) ThrowRelayError(std::string(kFormat) + ": it has no 'root'");
}

void NodeTable::ReadVersion() {
  std::optional<Value> attrs = document_.root().Find("attrs");
  std::optional<Value> version = attrs ? attrs->Find("tvm_version") : std::nullopt;
  if (!version) return;
  std::string_view text = version->text();
  int minor = 0;
  if (text.substr(0, 2) == "0.") {
    text.remove_prefix(2);
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), minor);
    if (error == std::errc() && minor >= 0) {
      version_.minor = minor;
      version_.is_unreleased = text.find("dev") != std::string_view::npos;
      return;
    }
  }
  ThrowRelayError("'tvm_version': expected 0.6 to 0.19, found " + Quote(*version));
}

std::string NodeTable::TypeKey(size_t node) const {
  std::optional<Value> key = nodes_[node].Find("type_key");
  return key ? key->String() : std::string();
}

std::string NodeTable::Name(size_t node) const {
  std::string key = Printable(TypeKey(node).substr(0, 80));
  return "node " + std::to_string(node) + " (" + (key.empty() ? "null" : key) + ")";
}

void NodeTable::Fail(size_t node, const std::string& message) const {
  ThrowRelayError(Name(node) + ": " + message);
}

std::optional<Value> NodeTable::Member(size_t node, std::string_view name, JsonKind kind) const {
  std::optional<Value> member = nodes_[node].Find(name);
  if (member && member->kind() != kind) {
    Fail(node, "'" + std::string(name) + "' is " + Quote(*member) + ", expected " +
                   (kind == JsonKind::kArray    ? "an array"
                    : kind == JsonKind::kObject ? "an object"
                                                : "a string"));
  }
  return member;
}

std::optional<Value> NodeTable::Field(size_t node, std::string_view name) const {
  std::optional<Value> fields = Member(node, "attrs", JsonKind::kObject);
  return fields ? fields->Find(name) : std::nullopt;
}

Value NodeTable::RequiredField(size_t node, std::string_view name) const {
  std::optional<Value> value = Field(node, name);
  if (!value) Fail(node, "it lacks the field '" + std::string(name) + "'");
  return *value;
}

int64_t NodeTable::IntOf(size_t node, std::string_view name, const Value& value) const {
  std::optional<int64_t> number = value.Int();
  if (!number) {
    Fail(node, "field '" + std::string(name) + "': expected an integer of 64 bits, found " +
                   Quote(value));
  }
  return *number;
}

double NodeTable::FloatOf(size_t node, std::string_view name, const Value& value) const {
  std::string text = value.String();
  char* end = nullptr;
  double number = std::strtod(text.c_str(), &end);
  if (text.empty() || end != text.c_str() + text.size()) {
    Fail(node, "field '" + std::string(name) + "': expected a number, found " + Quote(value));
  }
  return number;
}

std::optional<size_t> NodeTable::NameReference(size_t node, std::string_view field) const {
  std::optional<Value> value = version() >= 7 ? Field(node, field) : std::nullopt;
  std::optional<size_t> index = value ? AsIndex(*value) : std::nullopt;
  return index && kinds_[*index] == NodeKind::kString ? index : std::nullopt;
}

std::optional<size_t> NodeTable::AsIndex(const Value& value) const {
  bool is_scalar = value.kind() == JsonKind::kString || value.kind() == JsonKind::kNumber;
  std::optional<int64_t> index = is_scalar ? value.Int() : std::nullopt;
  if (!index || *index < 0 || static_cast<uint64_t>(*index) >= nodes_.size()) return std::nullopt;
  return static_cast<size_t>(*index);
}

size_t NodeTable::Reference(size_t node, std::string_view field) const {
  std::optional<Value> value = Field(node, field);
  if (!value) return 0;
  std::optional<size_t> index = AsIndex(*value);
  if (!index) {
    Fail(node, "field '" + std::string(field) + "': expected the index of one of " +
                   std::to_string(size()) + " nodes, found " + Quote(*value));
  }
  return *index;
}

std::vector<size_t> NodeTable::Elements(size_t node) const {
  std::vector<size_t> elements;
  std::optional<Value> data = Member(node, "data", JsonKind::kArray);
  if (!data) return elements;
  elements.reserve(data->size());
  data->ForEachElement([&](const Value& element) {
    std::optional<size_t> index = AsIndex(element);
    if (!index) {
      Fail(node, "element " + std::to_string(elements.size()) + ": expected the index of one of " +
                     std::to_string(size()) + " nodes, found " + Quote(element));
    }
    elements.push_back(*index);
  });
  return elements;
}

std::vector<std::string> NodeTable::Keys(size_t node) const {
  std::vector<std::string> keys;
  std::optional<Value> names = Member(node, "keys", JsonKind::kArray);
  if (names) names->ForEachElement([&](const Value& name) { keys.push_back(name.String()); });
  return keys;
}

std::string NodeTable::Text(size_t node) const {
  for (const char* name : {"repr_str", "global_key"}) {
    if (std::optional<Value> text = Member(node, name, JsonKind::kString)) return text->String();
  }
  std::optional<Value> encoded = Member(node, "repr_b64", JsonKind::kString);
  if (!encoded) return std::string();
  // A length of 8 bytes precedes the characters.
  std::string bytes = DecodeBase64(encoded->text());
  uint64_t length = 0;
  if (bytes.size() >= sizeof(length)) std::memcpy(&length, bytes.data(), sizeof(length));
  if (bytes.size() < sizeof(length) || length != bytes.size() - sizeof(length)) {
    Fail(node, "'repr_b64' declares " + std::to_string(length) + " bytes, but has " +
                   std::to_string(bytes.size()) + " with its length of 8 bytes");
  }
  bytes.erase(0, sizeof(length));
  if (!IsUtf8(bytes)) Fail(node, "'repr_b64' is not text in UTF-8");
  return bytes;
}

Tensor NodeTable::TensorField(size_t node, std::string_view field) {
  Value value = RequiredField(node, field);
  std::optional<int64_t> index = value.Int();
  if (!index || *index < 0 || static_cast<uint64_t>(*index) >= tensors_.size()) {
    Fail(node, "field '" + std::string(field) + "': expected the index of one of " +
                   std::to_string(tensors_.size()) + " tensors, found " + Quote(value));
  }
  auto position = static_cast<size_t>(*index);
  if (!decoded_[position].defined()) {
    const Value& tensor = tensors_[position];
    if (tensor.kind() != JsonKind::kString) {
      Fail(node, "tensor " + std::to_string(position) + " is not a string");
    }
    try {
      std::string bytes = DecodeBase64(tensor.text());
      size_t used = 0;
      decoded_[position] = ReadTensor(bytes, &used);
      if (used != bytes.size()) {
        ThrowRelayError(std::to_string(bytes.size() - used) + " bytes follow its elements");
      }
    } catch (const tvm::ffi::Error& error) {
      Fail(node, "tensor " + std::to_string(position) + ": " + error.message());
    }
  }
  return decoded_[position];
}

}  // namespace tvm_fixes::relay
