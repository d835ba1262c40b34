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
 * \file src/relay/parser/metadata.cc
 * \brief Reads the metadata section: a graph of nodes, which refer to each other by index.
 */
#include "metadata.h"

#include "../ir/shape.h"
#include "../json/json_text.h"
#include "../params/tensor_blob.h"

namespace tvm_fixes::relay {
namespace {

using Value = JsonText::Value;

/*! \brief Reads the nodes that a Relay text may refer to. */
class NodeReader {
 public:
  explicit NodeReader(const Value& root) {
    std::optional<Value> nodes = root.Find("nodes");
    if (!nodes || nodes->kind() != JsonKind::kArray) Fail("a list of nodes");
    nodes->ForEachElement([&](const Value& node) { nodes_.push_back(node); });
    if (std::optional<Value> tensors = root.Find("b64ndarrays")) {
      tensors->ForEachElement([&](const Value& tensor) { tensors_.push_back(tensor); });
    }
    values_.resize(nodes_.size());
  }

  /*! \brief The map from type keys to lists of values. */
  Map<String, Any> ReadTable(const Value& root) {
    std::optional<Value> index = root.Find("root");
    Value table = Node(index ? index->Int() : std::nullopt);
    std::vector<std::string> keys;
    if (std::optional<Value> names = table.Find("keys")) {
      names->ForEachElement([&](const Value& name) { keys.push_back(name.String()); });
    }
    std::vector<std::optional<int64_t>> lists = Data(table);
    if (keys.size() != lists.size()) Fail("as many lists as keys");
    Map<String, Any> result;
    for (size_t i = 0; i < keys.size(); ++i) {
      Array<Any> values;
      for (std::optional<int64_t> element : Data(Node(lists[i]))) {
        values.push_back(Read(element, 0));
      }
      result.Set(keys[i], values);
    }
    return result;
  }

 private:
  [[noreturn]] static void Fail(const std::string& expected) {
    ThrowRelayError("the metadata section is malformed: expected " + expected);
  }

  Value Node(std::optional<int64_t> index) const {
    if (!index || *index < 0 || static_cast<size_t>(*index) >= nodes_.size()) {
      Fail("the index of a node");
    }
    return nodes_[static_cast<size_t>(*index)];
  }

  static std::vector<std::optional<int64_t>> Data(const Value& node) {
    std::vector<std::optional<int64_t>> indices;
    if (std::optional<Value> data = node.Find("data"); data && data->kind() == JsonKind::kArray) {
      data->ForEachElement([&](const Value& index) { indices.push_back(index.Int()); });
    }
    return indices;
  }

  static std::optional<Value> Attr(const Value& node, std::string_view name) {
    std::optional<Value> attrs = node.Find("attrs");
    return attrs ? attrs->Find(name) : std::nullopt;
  }

  static int64_t IntAttr(const Value& node, std::string_view name) {
    std::optional<Value> attr = Attr(node, name);
    std::optional<int64_t> value = attr ? attr->Int() : std::nullopt;
    if (!value) Fail("a number in '" + std::string(name) + "'");
    return *value;
  }

  Any Read(std::optional<int64_t> index, int depth) {
    Value node = Node(index);
    Any& value = values_[static_cast<size_t>(*index)];
    if (depth > 100) Fail("nodes that do not nest deeper than 100 levels");
    if (value == nullptr) value = ReadNode(node, depth);
    return value;
  }

  /*! \brief One node; a kind that Relay text does not need gives None. */
  Any ReadNode(const Value& node, int depth) {
    std::optional<Value> key = node.Find("type_key");
    std::string type = key ? key->String() : std::string();
    if (type == "Array") {
      Array<Any> elements;
      for (std::optional<int64_t> element : Data(node))
        elements.push_back(Read(element, depth + 1));
      return elements;
    }
    if (type == "relay.Constant") return Constant(ReadData(IntAttr(node, "data")));
    if (type == "IntImm" || type == "UIntImm") return IntAttr(node, "value");
    if (type == "FloatImm") {
      std::optional<Value> text = Attr(node, "value");
      return text ? std::strtod(text->String().c_str(), nullptr) : 0.0;
    }
    if (type == "tir.Any" || type == "Any") return AnyDim();
    if (type == "tir.Var" || type == "Variable" || type == "tir.SizeVar") {
      std::optional<Value> name = Attr(node, "name");
      return ShapeVar(name ? name->String() : "n");
    }
    if (type == "runtime.String" || type == "StringImm") {
      std::optional<Value> text = node.Find("repr_str");
      if (!text) text = Attr(node, "value");
      return text ? Any(String(text->String())) : Any(nullptr);
    }
    return Any(nullptr);
  }

  Tensor ReadData(int64_t index) {
    if (index < 0 || static_cast<size_t>(index) >= tensors_.size()) Fail("the index of a tensor");
    std::string bytes = DecodeBase64(tensors_[static_cast<size_t>(index)].text());
    return ReadTensor(bytes, nullptr);
  }

  std::vector<Value> nodes_;
  std::vector<Value> tensors_;
  std::vector<Any> values_;
};

/*! \brief The offset of a marker at the beginning of a line. */
size_t FindLine(std::string_view text, std::string_view marker) {
  size_t found = text.find(marker);
  while (found != std::string_view::npos) {
    size_t before = found == 0 ? std::string_view::npos : text.find_last_not_of(" \t", found - 1);
    if (before == std::string_view::npos || text[before] == '\n') return found;
    found = text.find(marker, found + 1);
  }
  return found;
}

}  // namespace

Metadata::Metadata(std::string_view json) : present_(true) {
  JsonText document(json);
  values_ = NodeReader(document.root()).ReadTable(document.root());
}

std::optional<Any> Metadata::Find(std::string_view key, uint64_t index) const {
  auto list = values_.Get(std::string(key));
  if (!list) return std::nullopt;
  auto values = list->cast<Array<Any>>();
  if (index >= values.size() || values[static_cast<int64_t>(index)] == nullptr) return std::nullopt;
  return values[static_cast<int64_t>(index)];
}

SplitText SplitMetadata(std::string_view text) {
  for (std::string_view marker : {"#[metadata]", "METADATA:"}) {
    size_t found = FindLine(text, marker);
    if (found != std::string_view::npos) {
      return {text.substr(0, found), text.substr(found + marker.size()), true};
    }
  }
  return {text, {}, false};
}

}  // namespace tvm_fixes::relay
