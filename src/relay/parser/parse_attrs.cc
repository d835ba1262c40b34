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
 * \file src/relay/parser/parse_attrs.cc
 * \brief Attributes of calls and functions.
 */
#include "../ir/shape.h"
#include "literal.h"
#include "parser.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The content of a string, in which a backslash escapes only quotes and backslashes. */
std::string Unescape(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    bool escapes =
        text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == '"' || text[i + 1] == '\\');
    if (escapes) ++i;
    result += text[i];
  }
  return result;
}

}  // namespace

bool Parser::AtAttrs() const {
  bool is_name = token().kind == TokenKind::kWord || token().kind == TokenKind::kString;
  return is_name && lexer_.AssignFollows();
}

void Parser::ParseAttrs(Attrs* attrs) {
  while (AtAttrs()) {
    Token name = Take();
    Expect("=");
    Any value = ParseAttrValue();
    String key = name.kind == TokenKind::kWord ? Intern(name.text) : String(Unescape(name.text));
    if (attrs->count(key) != 0) {
      ThrowParseError(name.span, "the attribute " + TokenText(name) + " is given twice");
    }
    attrs->Set(key, std::move(value));
    if (!At(",")) return;
    TokenKind next = lexer_.Peek().kind;
    if (next != TokenKind::kWord && next != TokenKind::kString) return;
    Take();
  }
}

Any Parser::ParseAttrList(const char* close) {
  Nesting nesting(this);
  Array<Any> elements;
  bool has_comma = false;
  Take();
  while (!Accept(close)) {
    elements.push_back(ParseAttrValue());
    if (Accept(",")) {
      has_comma = true;
    } else if (!At(close)) {
      FailExpected("',' or '" + std::string(close) + "'");
    }
  }
  // As in Python, parentheses around one value change nothing.
  if (*close == ')' && elements.size() == 1 && !has_comma) return elements[0];
  return elements;
}

Any Parser::ParseAttrMap() {
  Nesting nesting(this);
  Map<String, Any> map;
  ParseList("{", "}", [&] {
    if (token().kind != TokenKind::kWord && token().kind != TokenKind::kString) {
      FailExpected("the name of an attribute");
    }
    Token name = Take();
    Expect("=");
    map.Set(String(Unescape(name.text)), ParseAttrValue());
  });
  return map;
}

Any Parser::ParseAttrValue() {
  if (At("[")) return ParseAttrList("]");
  if (At("(")) return ParseAttrList(")");
  if (At("{")) return ParseAttrMap();
  if (Accept("?")) return AnyDim();
  if (token().kind == TokenKind::kString) {
    std::string_view text = Take().text;
    if (text.find('\\') == std::string_view::npos) return Intern(text);
    return String(Unescape(text));
  }
  if (AtWord("None") || AtWord("nullptr")) {
    Take();
    return Any(nullptr);
  }
  if (AtWord("True") || AtWord("False")) return Take().text == "True";
  if (token().kind == TokenKind::kMeta) {
    Token meta = Take();
    if (std::optional<Any> value = metadata_.Find(meta.text, meta.value)) return *value;
    if (meta.text == "VirtualDevice") return Any(nullptr);
    return MissingConstant(meta);
  }
  bool negative = false;
  while (At("-")) {
    Take();
    negative = !negative;
  }
  if (token().kind == TokenKind::kNumber) {
    Token number = Take();
    std::string problem;
    std::optional<Literal> literal = ReadLiteral(number.text, negative, &problem);
    if (!literal) {
      ThrowParseError(number.span, "invalid number " + TokenText(number) + ": " + problem);
    }
    return literal->dtype.code == kDLFloat ? Any(literal->real) : Any(literal->integer);
  }
  if (negative) FailExpected("a number");
  return ParseAtom();
}

}  // namespace tvm_fixes::relay
