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
 * \file src/relay/json/json_text.cc
 * \brief Reads JSON.
 */
#include "json_text.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "../ir/object.h"

namespace tvm_fixes::relay {

/*! \brief Fills a JsonText; a stack of open containers replaces recursion. */
class JsonReader {
 public:
  explicit JsonReader(JsonText* document) : document_(document), text_(document->text_) {}

  void Read() {
    do {
      ReadValue();
    } while (!open_.empty());
    SkipSpace();
    if (position_ < text_.size()) Fail("expected the end of the text");
  }

 private:
  struct Container {
    uint32_t index;
    bool is_object;
  };

  char Current() const { return position_ < text_.size() ? text_[position_] : '\0'; }

  void SkipSpace() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n' ||
                                        text_[position_] == '\r' || text_[position_] == '\t')) {
      ++position_;
    }
  }

  [[noreturn]] void Fail(const std::string& message) const {
    std::string found = position_ >= text_.size() ? "the end of the text"
                                                  : "'" + std::string(1, text_[position_]) + "'";
    ThrowRelayError("JSON, " + document_->Place(position_) + ": " + message + ", found " + found);
  }

  /*! \brief Read one value, and close the containers that end after it. */
  void ReadValue() {
    SkipSpace();
    char c = Current();
    if (c == '{' || c == '[') {
      ++position_;
      bool is_object = c == '{';
      open_.push_back(
          {static_cast<uint32_t>(Add(is_object ? JsonKind::kObject : JsonKind::kArray, {})),
           is_object});
      SkipSpace();
      if (Current() == (is_object ? '}' : ']')) return Close();
      if (is_object) ReadName();
      return;
    }
    if (c == '"') {
      ReadString();
    } else {
      ReadWord();
    }
    Finish();
  }

  /*! \brief Continue after a value: with the next one, or with the end of its container. */
  void Finish() {
    if (open_.empty()) return;
    ++document_->items_[open_.back().index].size;
    SkipSpace();
    bool is_object = open_.back().is_object;
    if (Current() == ',') {
      ++position_;
      if (is_object) ReadName();
    } else if (Current() == (is_object ? '}' : ']')) {
      Close();
    } else {
      Fail(is_object ? "expected ',' or '}'" : "expected ',' or ']'");
    }
  }

  /*! \brief Close containers, in a loop because many may end at once. */
  void Close() {
    while (true) {
      ++position_;
      document_->items_[open_.back().index].next = static_cast<uint32_t>(document_->items_.size());
      open_.pop_back();
      if (open_.empty()) return;
      ++document_->items_[open_.back().index].size;
      SkipSpace();
      bool is_object = open_.back().is_object;
      if (Current() == (is_object ? '}' : ']')) continue;
      if (Current() != ',') Fail(is_object ? "expected ',' or '}'" : "expected ',' or ']'");
      ++position_;
      if (is_object) ReadName();
      return;
    }
  }

  void ReadName() {
    SkipSpace();
    if (Current() != '"') Fail("expected a name");
    ReadString();
    SkipSpace();
    if (Current() != ':') Fail("expected ':'");
    ++position_;
  }

  size_t Add(JsonKind kind, std::string_view text) {
    if (document_->items_.size() >= UINT32_MAX - 1) Fail("the text has too many values");
    JsonText::Item item;
    item.kind = kind;
    item.text = text;
    item.next = static_cast<uint32_t>(document_->items_.size() + 1);
    document_->items_.push_back(item);
    return document_->items_.size() - 1;
  }

  void ReadString() {
    size_t begin = ++position_;
    bool has_escapes = false;
    while (true) {
      const void* quote = position_ >= text_.size() ? nullptr
                                                    : std::memchr(text_.data() + position_, '"',
                                                                  text_.size() - position_);
      if (quote == nullptr) {
        position_ = text_.size();
        Fail("expected '\"' at the end of a string");
      }
      auto end = static_cast<size_t>(static_cast<const char*>(quote) - text_.data());
      size_t slashes = 0;
      while (end - slashes > begin && text_[end - slashes - 1] == '\\') ++slashes;
      has_escapes =
          has_escapes || std::memchr(text_.data() + position_, '\\', end - position_) != nullptr;
      position_ = end + 1;
      if (slashes % 2 == 0) break;
    }
    size_t index = Add(JsonKind::kString, text_.substr(begin, position_ - 1 - begin));
    document_->items_[index].has_escapes = has_escapes;
  }

  void ReadWord() {
    size_t begin = position_;
    while (position_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[position_])) ||
            std::strchr("+-._", text_[position_]) != nullptr) &&
           text_[position_] != '\0') {
      ++position_;
    }
    std::string_view word = text_.substr(begin, position_ - begin);
    if (word == "null") {
      Add(JsonKind::kNull, word);
    } else if (word == "true" || word == "false") {
      Add(JsonKind::kBool, word);
    } else if (IsNumber(word)) {
      Add(JsonKind::kNumber, word);
    } else {
      position_ = begin;
      Fail("expected a value");
    }
  }

  static bool IsNumber(std::string_view word) {
    double value = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    // NaN and Infinity are not JSON, but Python writes them.
    return !word.empty() && error != std::errc::invalid_argument &&
           end == word.data() + word.size();
  }

  JsonText* document_;
  std::string_view text_;
  size_t position_ = 0;
  std::vector<Container> open_;
};

JsonText::JsonText(std::string_view text) : text_(text) { JsonReader(this).Read(); }

std::string JsonText::Place(size_t offset) const {
  offset = std::min(offset, text_.size());
  auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(offset), '\n');
  size_t newline = offset == 0 ? std::string_view::npos : text_.rfind('\n', offset - 1);
  size_t column = newline == std::string_view::npos ? offset + 1 : offset - newline;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

size_t JsonText::Value::offset() const {
  const char* data = item().text.data();
  return data == nullptr ? 0 : static_cast<size_t>(data - document_->text_.data());
}

std::optional<int64_t> JsonText::Value::Int() const {
  std::string_view text = item().text;
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<JsonText::Value> JsonText::Value::Find(std::string_view name) const {
  if (kind() != JsonKind::kObject) return std::nullopt;
  std::optional<Value> found;
  ForEachMember([&](const Value& key, const Value& value) {
    if (!found && key.text() == name) found = value;
  });
  return found;
}

namespace {

void AppendUtf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    *out += static_cast<char>(code);
    return;
  }
  int extra = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static constexpr unsigned char kLead[] = {0, 0xC0, 0xE0, 0xF0};
  *out += static_cast<char>(kLead[extra] | (code >> (6 * extra)));
  for (int i = extra; i-- > 0;) *out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F));
}

/*! \brief The code point, or U+FFFD for half of a surrogate pair. */
uint32_t ValidCode(uint32_t code) { return code >= 0xD800 && code < 0xE000 ? 0xFFFD : code; }

/*! \brief The four hexadecimal digits at an offset, or std::nullopt. */
std::optional<uint32_t> ReadHex(std::string_view text, size_t offset) {
  if (offset + 4 > text.size()) return std::nullopt;
  uint32_t code = 0;
  auto [end, error] = std::from_chars(text.data() + offset, text.data() + offset + 4, code, 16);
  if (error != std::errc() || end != text.data() + offset + 4) return std::nullopt;
  return code;
}

}  // namespace

bool IsUtf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    auto lead = static_cast<unsigned char>(bytes[i]);
    size_t extra = lead < 0x80 ? 0 : lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4 || bytes.size() - i <= extra) return false;
    uint32_t code = extra == 0 ? lead : lead & (0x3F >> extra);
    for (size_t k = 1; k <= extra; ++k) {
      auto next = static_cast<unsigned char>(bytes[i + k]);
      if ((next & 0xC0) != 0x80) return false;
      code = (code << 6) | (next & 0x3F);
    }
    static constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (code < kLeast[extra] || code > 0x10FFFF || ValidCode(code) != code) return false;
    i += extra + 1;
  }
  return true;
}

std::string JsonText::Value::String() const {
  std::string_view raw = item().text;
  if (!item().has_escapes) return std::string(raw);
  static constexpr std::string_view kLetters = "nrtbf";
  static constexpr std::string_view kControls = "\n\r\t\b\f";
  std::string result;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\' || i + 1 >= raw.size()) {
      result += raw[i];
      continue;
    }
    char letter = raw[++i];
    size_t control = kLetters.find(letter);
    std::optional<uint32_t> code = letter == 'u' ? ReadHex(raw, i + 1) : std::nullopt;
    if (control != std::string_view::npos) {
      result += kControls[control];
    } else if (code) {
      i += 4;
      bool is_high = *code >= 0xD800 && *code < 0xDC00;
      if (is_high && raw.substr(i + 1, 2) == "\\u") {
        if (std::optional<uint32_t> low = ReadHex(raw, i + 3);
            low && *low >= 0xDC00 && *low < 0xE000) {
          code = 0x10000 + ((*code - 0xD800) << 10) + ((*low - 0xDC00) & 0x3FF);
          i += 6;
        }
      }
      AppendUtf8(ValidCode(*code), &result);
    } else {
      result += letter;
    }
  }
  return result;
}

}  // namespace tvm_fixes::relay
