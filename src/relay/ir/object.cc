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
 * \file src/relay/ir/object.cc
 * \brief Spans, errors, and the destruction of deep programs.
 */
#include "object.h"

#include <tvm/ffi/error.h>

#include <vector>

namespace tvm_fixes::relay {

std::string Span::str() const {
  return defined() ? std::to_string(line) + ":" + std::to_string(column) : std::string();
}

void ReleaseLater(ObjectRef reference) {
  // A pointer, because a destructor may run after thread-local objects are destroyed.
  static thread_local std::vector<ObjectRef>* pending = nullptr;
  if (!reference.defined()) return;
  if (pending != nullptr) {
    pending->push_back(std::move(reference));
    return;
  }
  std::vector<ObjectRef> references;
  pending = &references;
  references.push_back(std::move(reference));
  while (!references.empty()) {
    ObjectRef last = std::move(references.back());
    references.pop_back();
  }
  pending = nullptr;
}

const Array<ObjectRef>& EmptyArray() {
  // Never destroyed: programs may outlive the library's other statics.
  static const auto* array = new Array<ObjectRef>();
  return *array;
}

const Map<String, Any>& EmptyMap() {
  static const auto* map = new Map<String, Any>();
  return *map;
}

namespace {

/*! \brief The size of the UTF-8 character at an offset, 0 if there is none. */
size_t CharacterSize(const std::string& text, size_t offset) {
  auto lead = static_cast<unsigned char>(text[offset]);
  size_t size = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (lead > 0xF4 || offset + size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((static_cast<unsigned char>(text[offset + i]) & 0xC0) != 0x80) return 0;
  }
  auto second = static_cast<unsigned char>(size > 1 ? text[offset + 1] : 0);
  bool is_overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  bool is_surrogate = lead == 0xED && second >= 0xA0;
  bool is_beyond = lead == 0xF4 && second >= 0x90;
  return is_overlong || is_surrogate || is_beyond ? 0 : size;
}

/*! \brief The text with '?' for each byte that is not UTF-8, which Python rejects. */
std::string ValidUtf8(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t size = CharacterSize(text, i);
    result += size == 0 ? "?" : text.substr(i, size);
    i += size == 0 ? 1 : size;
  }
  return result;
}

}  // namespace

std::string Printable(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  for (char c : text) {
    auto code = static_cast<unsigned char>(c);
    if (code >= 0x20 && code != 0x7f) {
      result += c;
    } else {
      result += {'\\', 'x', kDigits[code / 16], kDigits[code % 16]};
    }
  }
  return result;
}

void ThrowRelayError(const std::string& message) {
  throw tvm::ffi::Error("tvm_fixes.RelayError", ValidUtf8(message), "");
}

}  // namespace tvm_fixes::relay
