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
 * \file src/relay/parser/lexer.h
 * \brief Splits Relay text into tokens, one at a time.
 */
#ifndef TVM_FIXES_RELAY_PARSER_LEXER_H_
#define TVM_FIXES_RELAY_PARSER_LEXER_H_

#include <string>
#include <string_view>

#include "../ir/object.h"

namespace tvm_fixes::relay {

enum class TokenKind {
  kEnd,
  /*! \brief One of `( ) [ ] { } , ; : . = + - * / < > ? ! #`, or `-> => <= >= == !=`. */
  kPunct,
  /*! \brief A word or a dotted name: keywords, operators, types. */
  kWord,
  /*! \brief `%name` or `%"any name"`; the text has neither `%` nor quotes. */
  kLocal,
  /*! \brief `%12`; the text has no `%`. */
  kGraph,
  /*! \brief `@name` or `@"any name"`; the text has neither `@` nor quotes. */
  kGlobal,
  kNumber,
  /*! \brief The text has no quotes; escapes are as in the source. */
  kString,
  /*! \brief `meta[key][index]`; the text is the key, `value` the index. */
  kMeta,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  Span span;
  uint64_t value = 0;
  /*! \brief The offset after the token. */
  size_t end = 0;

  bool Is(std::string_view punct) const { return kind == TokenKind::kPunct && text == punct; }
  bool IsWord(std::string_view word) const { return kind == TokenKind::kWord && text == word; }
};

/*! \brief Whether a name needs no quotes after `%` or `@`. */
bool IsPlainName(std::string_view name, bool is_local);

/*! \brief The token for an error message. */
std::string TokenText(const Token& token);

/*! \brief A lexer can be copied to look ahead. */
class Lexer {
 public:
  /*! \brief Begin at an offset; places count from the beginning of the text. */
  explicit Lexer(std::string_view text, size_t begin = 0);

  const Token& token() const { return token_; }
  /*! \brief The token after the current one. */
  Token Peek() const;
  /*! \brief Whether the token after the current one is `=`. */
  bool AssignFollows() const;
  void Next();
  /*! \brief Read digits that follow the current token at once, as the index of a tuple. */
  void NextIndex();
  /*! \brief Shorten the current token to its first characters, and continue after them. */
  void Shorten(size_t size);
  /*! \brief The last comment before the current token, without its delimiters. */
  std::string_view comment() const { return comment_; }

  [[noreturn]] void Fail(const Span& span, const std::string& message) const;

 private:
  Span Here() const;
  char At(size_t offset) const { return offset < text_.size() ? text_[offset] : '\0'; }
  void SkipSpace();
  void SkipBlockComment();
  void Set(TokenKind kind, size_t begin, size_t end);
  void ReadName(TokenKind kind, bool is_local);
  void ReadQuotedName(TokenKind kind);
  void ReadWord();
  void ReadNumber();
  void ReadString();
  void ReadMeta();
  void ReadPunct();

  std::string_view text_;
  size_t position_ = 0;
  int32_t line_ = 1;
  size_t line_start_ = 0;
  Token token_;
  std::string_view comment_;
};

/*! \brief Throw a RelayError that begins with the place. */
[[noreturn]] void ThrowParseError(const Span& span, const std::string& message);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_PARSER_LEXER_H_
