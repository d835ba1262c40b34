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
 * \file src/relay/parser/parse_match.cc
 * \brief Match and patterns.
 */
#include "parser.h"

namespace tvm_fixes::relay {

Expr Parser::ParseMatch() {
  Token word = Take();
  Expr data = ParseAtom();
  Array<Clause> clauses;
  ParseList("{", "}", [&] { clauses.push_back(ParseClause()); });
  return WithSpan(Match(data, clauses, word.text == "match"), word.span);
}

Clause Parser::ParseClause() {
  size_t mark = locals_.Mark();
  Pattern pattern = ParsePattern();
  Expect("=>");
  Expr value = ParseExpr();
  locals_.Leave(mark);
  return Clause(pattern, value);
}

Array<Pattern> Parser::ParsePatterns() {
  Array<Pattern> patterns;
  ParseList("(", ")", [&] { patterns.push_back(ParsePattern()); });
  return patterns;
}

Pattern Parser::ParsePattern() {
  Nesting nesting(this);
  if (token().kind == TokenKind::kLocal) {
    return Pattern(make_object<PatternVarObj>(ParseBoundVar()));
  }
  if (At("(")) return Pattern(make_object<PatternTupleObj>(ParsePatterns()));
  if (AtWord("_")) {
    Take();
    return Pattern(make_object<PatternWildcardObj>());
  }
  if (token().kind != TokenKind::kWord) FailExpected("a pattern");
  auto found = constructors_.find(token().text);
  if (found == constructors_.end()) {
    ThrowParseError(token().span, "the constructor " + TokenText(token()) + " is not defined");
  }
  Constructor constructor = found->second;
  Span span = Take().span;
  Array<Pattern> patterns;
  if (At("(")) patterns = ParsePatterns();
  if (patterns.size() != constructor->inputs.size()) {
    ThrowParseError(span, "the constructor " + std::string(constructor->name) + " has " +
                              std::to_string(constructor->inputs.size()) +
                              " fields, but the pattern has " + std::to_string(patterns.size()));
  }
  return Pattern(make_object<PatternConstructorObj>(constructor, patterns));
}

}  // namespace tvm_fixes::relay
