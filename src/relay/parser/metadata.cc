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
 * \brief Finds and reads the metadata section.
 */
#include "metadata.h"

#include <tvm/ffi/error.h>

#include <algorithm>

#include "../json/node_graph.h"

namespace tvm_fixes::relay {
namespace {

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

Metadata::Metadata(const SplitText& parts) : present_(parts.has_metadata) {
  if (!present_) return;
  std::string where =
      "in the metadata section, which begins in line " + std::to_string(parts.metadata_line) + ": ";
  try {
    auto table = ReadNodeGraph(parts.metadata).as<Map<String, Any>>();
    if (!table) ThrowRelayError("expected a map of lists");
    values_ = *table;
  } catch (const tvm::ffi::Error& error) {
    ThrowRelayError(where + error.message());
  }
}

std::optional<Any> Metadata::Find(std::string_view key, uint64_t index) const {
  auto list = values_.Get(std::string(key));
  if (!list) return std::nullopt;
  auto values = list->as<Array<Any>>();
  if (!values || index >= values->size()) return std::nullopt;
  return (*values)[static_cast<int64_t>(index)];
}

SplitText SplitMetadata(std::string_view text) {
  for (std::string_view marker : {"#[metadata]", "METADATA:"}) {
    size_t found = FindLine(text, marker);
    if (found != std::string_view::npos) {
      SplitText parts{text.substr(0, found), text.substr(found + marker.size())};
      parts.has_metadata = true;
      parts.metadata_line = 1 + std::count(parts.program.begin(), parts.program.end(), '\n');
      return parts;
    }
  }
  return {text, {}};
}

}  // namespace tvm_fixes::relay
