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
 * \file src/relay/parser/lexer.cc
 * \brief Splits Relay text into tokens.
 */
#include "lexer.h"

#include <algorithm>
#include <cstring>

namespace tvm_fixes::relay {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

bool IsNameChar(char c) { return IsLetter(c) || IsDigit(c); }

/*!
 * \brief The size of a special float, such as inff, at an offset, which would otherwise be a word.
 */
size_t SpecialFloatSize(std::string_view text) {
  if (text.substr(0, 4) != "inff" && text.substr(0, 4) != "nanf") return 0;
  size_t size = 4;
  while (size < text.size() && IsDigit(text[size])) ++size;
  return size < text.size() && IsNameChar(text[size]) ? 0 : size;
}

/*! \brief A character of a name, or a byte of one that is not ASCII, which a name may hold. */
bool IsNameByte(char c) { return IsNameChar(c) || (static_cast<unsigned char>(c) & 0x80) != 0; }

/*!
 * \brief The number of characters of the name at the beginning of a text.
 *
 * Importers name variables by paths, such as features.0.weight or conv/weights:0.
 */
size_t NameSize(std::string_view text, bool is_local) {
  size_t size = 0;
  for (; size < text.size(); ++size) {
    char c = text[size];
    char next = size + 1 < text.size() ? text[size + 1] : '\0';
    bool joins = IsNameByte(next) && (c == '.' || (is_local && (c == '/' || c == '-')));
    joins = joins || (is_local && c == ':' && IsDigit(next));
    if (!IsNameByte(c) && !joins) break;
  }
  return size;
}

}  // namespace

bool IsPlainName(std::string_view name, bool is_local) {
  return !name.empty() && IsLetter(name[0]) && NameSize(name, is_local) == name.size();
}

void ThrowParseError(const Span& span, const std::string& message) {
  ThrowRelayError("line " + std::to_string(span.line) + ", column " + std::to_string(span.column) +
                  ": " + message);
}

std::string TokenText(const Token& token) {
  size_t size = std::min<size_t>(token.text.size(), 40);
  // The text ends between two characters.
  while (size > 0 && size < token.text.size() && (token.text[size] & 0xC0) == 0x80) --size;
  std::string text = Printable(token.text.substr(0, size));
  if (text.size() < token.text.size()) text += "...";
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the text";
    case TokenKind::kLocal:
    case TokenKind::kGraph:
      return "'%" + text + "'";
    case TokenKind::kGlobal:
      return "'@" + text + "'";
    case TokenKind::kString:
      return "the string \"" + text + "\"";
    case TokenKind::kMeta:
      return "'meta[" + text + "][" + std::to_string(token.value) + "]'";
    default:
      return "'" + text + "'";
  }
}

Lexer::Lexer(std::string_view text, size_t begin) : text_(text) {
  for (; position_ < begin; ++position_) {
    if (text_[position_] != '\n') continue;
    ++line_;
    line_start_ = position_ + 1;
  }
  Next();
}

Span Lexer::Here() const {
  size_t column = position_ - line_start_ + 1;
  return Span{line_, static_cast<int32_t>(std::min<size_t>(column, INT32_MAX))};
}

void Lexer::Fail(const Span& span, const std::string& message) const {
  ThrowParseError(span, message);
}

Token Lexer::Peek() const {
  Lexer ahead = *this;
  ahead.Next();
  return ahead.token_;
}

bool Lexer::AssignFollows() const {
  size_t next = position_;
  while (At(next) == ' ') ++next;
  switch (At(next)) {
    case '=':
      return At(next + 1) != '=' && At(next + 1) != '>';
    case '\t':
    case '\r':
    case '\n':
    case '/':
      return Peek().Is("=");
    default:
      return false;
  }
}

void Lexer::SkipBlockComment() {
  Span start = Here();
  size_t begin = position_ + 2;
  int depth = 1;
  position_ += 2;
  while (depth > 0) {
    if (position_ + 1 >= text_.size()) Fail(start, "the comment is not closed: expected '*/'");
    char c = text_[position_];
    if (c == '*' && text_[position_ + 1] == '/') {
      --depth;
      position_ += 2;
    } else if (c == '/' && text_[position_ + 1] == '*') {
      ++depth;
      position_ += 2;
    } else {
      ++position_;
      if (c == '\n') {
        ++line_;
        line_start_ = position_;
      }
    }
  }
  comment_ = text_.substr(begin, position_ - 2 - begin);
}

void Lexer::SkipSpace() {
  comment_ = {};
  while (position_ < text_.size()) {
    char c = text_[position_];
    if (c == '\n') {
      ++position_;
      ++line_;
      line_start_ = position_;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++position_;
    } else if (c == '/' && At(position_ + 1) == '/') {
      const void* newline = std::memchr(text_.data() + position_, '\n', text_.size() - position_);
      position_ = newline == nullptr
                      ? text_.size()
                      : static_cast<size_t>(static_cast<const char*>(newline) - text_.data());
    } else if (c == '/' && At(position_ + 1) == '*') {
      SkipBlockComment();
    } else {
      return;
    }
  }
}

void Lexer::Set(TokenKind kind, size_t begin, size_t end) {
  token_.kind = kind;
  token_.text = text_.substr(begin, end - begin);
  token_.end = position_;
}

void Lexer::ReadName(TokenKind kind, bool is_local) {
  if (At(position_ + 1) == '"') return ReadQuotedName(kind);
  size_t begin = ++position_;
  if (is_local && IsDigit(At(begin))) {
    while (IsDigit(At(position_))) ++position_;
    Set(TokenKind::kGraph, begin, position_);
    return;
  }
  if (!IsLetter(At(begin))) {
    Fail(token_.span, is_local ? "expected the name or number of a variable after '%'"
                               : "expected the name of a function after '@'");
  }
  position_ += NameSize(text_.substr(begin), is_local);
  Set(kind, begin, position_);
}

void Lexer::ReadQuotedName(TokenKind kind) {
  size_t begin = position_ + 2;
  size_t end = text_.find_first_of("\"\n", begin);
  if (end == std::string_view::npos || text_[end] != '"' || end == begin) {
    Fail(token_.span, "expected a name in quotes");
  }
  position_ = end + 1;
  Set(kind, begin, end);
}

void Lexer::ReadWord() {
  size_t begin = position_;
  if (text_.compare(begin, 5, "meta[") == 0) return ReadMeta();
  if (size_t size = SpecialFloatSize(text_.substr(begin))) {
    position_ += size;
    return Set(TokenKind::kNumber, begin, position_);
  }
  while (IsNameChar(At(position_)) || (At(position_) == '.' && IsLetter(At(position_ + 1)))) {
    ++position_;
  }
  if (text_.compare(begin, position_ - begin, "match") == 0 && At(position_) == '?') ++position_;
  Set(TokenKind::kWord, begin, position_);
}

void Lexer::ReadNumber() {
  size_t begin = position_;
  auto digits = [this] {
    while (IsDigit(At(position_))) ++position_;
  };
  digits();
  char after_point = At(position_ + 1);
  if (At(position_) == '.' && (IsDigit(after_point) || after_point == 'f' || after_point == 'e')) {
    ++position_;
    digits();
  }
  char sign = At(position_ + 1);
  bool has_sign = sign == '+' || sign == '-';
  if ((At(position_) == 'e' || At(position_) == 'E') &&
      IsDigit(At(position_ + 1 + (has_sign ? 1 : 0)))) {
    position_ += has_sign ? 2 : 1;
    digits();
  }
  char suffix = At(position_);
  if (suffix == 'f' || suffix == 'i' || suffix == 'u') {
    ++position_;
    digits();
  }
  if (IsNameChar(At(position_))) {
    while (IsNameChar(At(position_))) ++position_;
    Fail(token_.span,
         "'" + std::string(text_.substr(begin, position_ - begin)) + "' is not a number");
  }
  Set(TokenKind::kNumber, begin, position_);
}

void Lexer::ReadString() {
  size_t begin = ++position_;
  while (true) {
    char c = At(position_);
    if (position_ >= text_.size()) Fail(token_.span, "the string is not closed: expected '\"'");
    if (c == '"') break;
    if (c == '\\' && (At(position_ + 1) == '"' || At(position_ + 1) == '\\')) ++position_;
    ++position_;
    if (c == '\n') {
      ++line_;
      line_start_ = position_;
    }
  }
  ++position_;
  Set(TokenKind::kString, begin, position_ - 1);
}

void Lexer::ReadMeta() {
  size_t begin = position_ + 5;
  size_t close = text_.find(']', begin);
  if (close == std::string_view::npos || close - begin > 200 || At(close + 1) != '[') {
    Fail(token_.span, "expected meta[Type][index]");
  }
  position_ = close + 2;
  uint64_t index = 0;
  size_t first_digit = position_;
  while (IsDigit(At(position_)) && position_ - first_digit < 18) {
    index = index * 10 + static_cast<uint64_t>(text_[position_++] - '0');
  }
  if (position_ == first_digit || At(position_) != ']') {
    Fail(token_.span, "expected meta[Type][index]");
  }
  ++position_;
  Set(TokenKind::kMeta, begin, close);
  token_.value = index;
}

void Lexer::ReadPunct() {
  static constexpr const char* kPairs[] = {"->", "=>", "<=", ">=", "==", "!="};
  size_t begin = position_;
  std::string_view pair = text_.substr(begin, 2);
  for (const char* candidate : kPairs) {
    if (pair == candidate) {
      position_ += 2;
      return Set(TokenKind::kPunct, begin, position_);
    }
  }
  if (std::strchr("()[]{},;:.=+-*/<>?!#", text_[begin]) == nullptr || text_[begin] == '\0') {
    auto code = static_cast<unsigned char>(text_[begin]);
    std::string shown =
        code >= 0x20 && code < 0x7F ? std::string(1, text_[begin]) : "byte " + std::to_string(code);
    Fail(token_.span, "unexpected character '" + shown + "'");
  }
  ++position_;
  Set(TokenKind::kPunct, begin, position_);
}

void Lexer::Next() {
  SkipSpace();
  token_.span = Here();
  token_.value = 0;
  if (position_ >= text_.size()) return Set(TokenKind::kEnd, position_, position_);
  char c = text_[position_];
  if (IsLetter(c)) return ReadWord();
  if (c == '%') return ReadName(TokenKind::kLocal, true);
  if (c == '@') return ReadName(TokenKind::kGlobal, false);
  if (IsDigit(c)) return ReadNumber();
  if (c == '"') return ReadString();
  ReadPunct();
}

void Lexer::NextIndex() {
  token_.span = Here();
  size_t begin = position_;
  uint64_t value = 0;
  while (IsDigit(At(position_)) && position_ - begin < 9) {
    value = value * 10 + static_cast<uint64_t>(text_[position_++] - '0');
  }
  if (begin == position_ || IsNameChar(At(position_))) {
    Fail(token_.span, "expected the index of a tuple's field after '.'");
  }
  Set(TokenKind::kNumber, begin, position_);
  token_.value = value;
}

void Lexer::Shorten(size_t size) {
  position_ = static_cast<size_t>(token_.text.data() - text_.data()) + size;
  token_.text = token_.text.substr(0, size);
  token_.end = position_;
}

}  // namespace tvm_fixes::relay
