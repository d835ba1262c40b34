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
 * \file src/relax/analysis/verifier/diagnostic.cc
 * \brief Conversion of paths and diagnostics to TVM and Python objects.
 */
#include "diagnostic.h"

#include <tvm/ffi/cast.h>

#include <algorithm>

namespace tvm_fixes {
namespace verifier {

namespace {

thread_local Path::Arena* current_arena = nullptr;

}  // namespace

Path::Arena::Arena() : previous_(current_arena) { current_arena = this; }
Path::Arena::~Arena() { current_arena = previous_; }

const Path::Node* Path::Append(Node node) {
  constexpr size_t kChunk = 1024;
  Arena& arena = *current_arena;
  const size_t chunk = arena.size_ / kChunk;
  if (chunk == arena.chunks_.size()) arena.chunks_.push_back(std::make_unique<Node[]>(kChunk));
  Node* place = &arena.chunks_[chunk][arena.size_ % kChunk];
  *place = node;
  ++arena.size_;
  return place;
}

KeptPath::KeptPath(const Path& path) : Path(path) {
  current_arena->num_kept_ = current_arena->size_;
}

Path::Scratch::Scratch() : begin_(current_arena->size_) {}
Path::Scratch::~Scratch() { current_arena->size_ = std::max(begin_, current_arena->num_kept_); }

tvm::ffi::reflection::AccessPath Path::ToAccessPath() const {
  std::vector<const Node*> steps;
  for (const Node* node = node_; node != nullptr; node = node->parent) steps.push_back(node);
  auto path = tvm::ffi::reflection::AccessPath::Root();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if ((*step)->attr != nullptr) {
      path = path->Attr((*step)->attr);
    } else if ((*step)->key != nullptr) {
      path = path->MapItem(tvm::ffi::GetRef<ObjectRef>((*step)->key));
    } else {
      path = path->ArrayItem((*step)->index);
    }
  }
  return path;
}

Map<String, Any> Diagnostic::ToMap() const {
  static const char* const names[] = {"error", "warning", "note"};
  Array<Array<Any>> all_notes;
  for (const auto& [text, where] : notes) {
    all_notes.push_back({String(text), where ? Any(where->ToAccessPath()) : Any(nullptr)});
  }
  return {{"severity", String(names[static_cast<int>(severity)])},
          {"rule", String(rule)},
          {"function", String(function)},
          {"path", path.ToAccessPath()},
          {"message", String(message)},
          {"notes", all_notes},
          {"hint", String(hint)}};
}

}  // namespace verifier
}  // namespace tvm_fixes
