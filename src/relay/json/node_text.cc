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
 * \file src/relay/json/node_text.cc
 * \brief Writes nodes as JSON.
 */
#include "node_text.h"

#include <algorithm>
#include <cstdint>

#include "../params/tensor_blob.h"

namespace tvm_fixes::relay {

void AppendJsonString(std::string_view value, std::string* out) {
  *out += '"';
  for (char c : value) {
    switch (c) {
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      case '"':
      case '\\':
        *out += '\\';
        [[fallthrough]];
      default:
        *out += c;
    }
  }
  *out += '"';
}

NodeText::NodeText(std::string_view type_key) : text_("{\"type_key\": ") {
  AppendJsonString(type_key, &text_);
}

NodeText& NodeText::Field(std::string_view name, std::string_view text) {
  text_ += has_fields_ ? ", " : ", \"attrs\": {";
  has_fields_ = true;
  AppendJsonString(name, &text_);
  text_ += ": ";
  AppendJsonString(text, &text_);
  return *this;
}

NodeText& NodeText::Characters(std::string_view text) {
  if (text.empty()) return *this;
  bool is_printable = std::all_of(text.begin(), text.end(), [](char c) {
    auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte < 0x7F;
  });
  if (is_printable) {
    text_ += ", \"repr_str\": ";
    AppendJsonString(text, &text_);
    return *this;
  }
  // A length of 8 bytes precedes the characters.
  uint64_t size = text.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
  text_ += ", \"repr_b64\": \"" + EncodeBase64(bytes.append(text)) + "\"";
  return *this;
}

NodeText& NodeText::Keys(const std::vector<std::string>& keys) {
  for (size_t i = 0; i < keys.size(); ++i) {
    text_ += i == 0 ? ", \"keys\": [" : ", ";
    AppendJsonString(keys[i], &text_);
  }
  if (!keys.empty()) text_ += "]";
  return *this;
}

NodeText& NodeText::Elements(const std::vector<size_t>& nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    text_ += (i == 0 ? ", \"data\": [" : ", ") + std::to_string(nodes[i]);
  }
  if (!nodes.empty()) text_ += "]";
  return *this;
}

std::string NodeText::Finish() {
  text_ += has_fields_ ? "}}" : "}";
  return std::move(text_);
}

}  // namespace tvm_fixes::relay
