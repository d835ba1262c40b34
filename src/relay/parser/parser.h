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
 * \file src/relay/parser/parser.h
 * \brief Reads Relay text, versions 0.0.4 and 0.0.5.
 */
#ifndef TVM_FIXES_RELAY_PARSER_PARSER_H_
#define TVM_FIXES_RELAY_PARSER_PARSER_H_

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../ir/module.h"
#include "../op/old_calls.h"
#include "lexer.h"
#include "metadata.h"
#include "scope.h"

namespace tvm_fixes::relay {

struct ParseOptions {
  /*! \brief Make each constant of a missing metadata section a parameter of its function. */
  bool constants_as_inputs = false;
};

/*!
 * \brief Read a program.
 * \param text Definitions, or one expression, which becomes "main".
 * \throws RelayError with line, column and the expected form.
 */
IRModule ParseModule(std::string_view text, const ParseOptions& options);

/*! \brief The minor version of the TVM that writes text 0.0.4. */
inline constexpr int kFirstVersion = 6;

/*! \brief A recursive descent parser; its depth is limited. */
class Parser {
 public:
  Parser(std::string_view program, size_t begin, Metadata metadata, ParseOptions options)
      : lexer_(program, begin), metadata_(std::move(metadata)), options_(options) {
    if (begin > 0) version_.minor = kFirstVersion;
  }

  IRModule ParseProgram();

 private:
  // parser.cc: definitions and functions.
  void ParseHeader();
  void ParseVersion(const Span& span);
  bool AtTirFunction() const;
  void ParseDefinition();
  void ParseTypeDefinition(bool is_extern);
  Constructor ParseConstructor(const GlobalTypeVar& header);
  Function ParseFunction();
  Array<Var> ParseParams(Attrs* attrs);
  void CheckNames() const;

  // parse_expr.cc
  Expr ParseExpr();
  Expr ParseSequence(bool is_value);
  Expr ParseItem();
  Expr ParseValue();
  Expr ParseBinary();
  Expr ParsePostfix();
  Expr ParseAtom();
  Expr ParseNumber(bool negative);
  Expr ParseNegative();
  Expr ParseParens();
  Expr ParseBlock();
  Expr ParseIf();
  Expr ParseReference();
  Expr ParseWord();
  Expr ParseLocal();
  Expr ParseGraph();
  Expr ParseMetaExpr();
  Expr MissingConstant(const Token& token);
  Expr ParseCall(Expr op, const Span& span);

  // parse_match.cc
  Expr ParseMatch();
  Clause ParseClause();
  Pattern ParsePattern();
  Array<Pattern> ParsePatterns();

  // parse_type.cc
  Type ParseType();
  Type ParseTensorType();
  Type ParseFuncType();
  Type ParseNamedType(const Token& name);
  Dim ParseDim();
  Array<ObjectRef> ParseTypeParams();

  // parse_attrs.cc
  bool AtAttrs() const;
  void ParseAttrs(Attrs* attrs);
  Any ParseAttrValue();
  Any ParseAttrList(const char* close);
  Any ParseAttrMap();

  const Token& token() const { return lexer_.token(); }
  bool At(std::string_view punct) const { return token().Is(punct); }
  bool AtWord(std::string_view word) const { return token().IsWord(word); }
  /*! \brief Advance if the current token is this one. */
  bool Accept(std::string_view punct);
  Token Take();
  Token TakeKind(TokenKind kind, const char* expected);
  void Expect(const char* punct);
  [[noreturn]] void FailExpected(const std::string& expected) const;
  /*! \brief Parse the elements of a list up to its end; a comma may follow the last one. */
  template <typename F>
  void ParseList(const char* open, const char* close, F parse_element);

  Var BindVar(const Token& name, Type type);
  Type ParseAnnotation();
  Var ParseBoundVar();
  GlobalVar GetGlobal(const Token& name);
  Op GetOp(std::string_view name);
  String Intern(std::string_view text);
  Expr BindAll(std::vector<struct Binding>* bindings, Expr body);

  /*! \brief Throws if blocks, parentheses and types nest too deeply. */
  class Nesting {
   public:
    explicit Nesting(Parser* parser);
    ~Nesting() { --parser_->depth_; }

   private:
    Parser* parser_;
  };

  Lexer lexer_;
  Metadata metadata_;
  ParseOptions options_;
  ProgramVersion version_;
  int depth_ = 0;

  Map<String, Function> functions_;
  Map<String, TypeData> types_;
  Attrs attrs_;
  ScopedTable<Var> locals_;
  ScopedTable<ObjectRef> type_vars_;
  /*! \brief `%0`, `%1`, ...: the last binding of a number wins, even outside its block. */
  NumberedTable graph_;
  std::unordered_map<std::string_view, GlobalVar> globals_;
  std::unordered_map<std::string_view, GlobalTypeVar> type_names_;
  std::unordered_map<std::string_view, Constructor> constructors_;
  std::unordered_map<std::string_view, Op> ops_;
  std::unordered_map<std::string_view, String> strings_;
  /*! \brief Dimensions that are named outside type parameters. */
  std::unordered_map<std::string_view, ShapeVar> free_dims_;
  /*! \brief The places of the first uses of functions and types. */
  std::vector<std::pair<std::string_view, Span>> used_globals_;
  std::vector<std::pair<std::string_view, Span>> used_types_;
  /*! \brief Variables that the text declares as free. */
  std::vector<Var> free_vars_;
  /*! \brief Inputs that replace missing constants, by their token. */
  std::unordered_map<std::string, Var> constant_inputs_;
  std::vector<Var> new_inputs_;
};

/*! \brief A let binding that waits for its body. */
struct Binding {
  Var var;
  Expr value;
  Span span;
};

template <typename F>
void Parser::ParseList(const char* open, const char* close, F parse_element) {
  Expect(open);
  while (!Accept(close)) {
    parse_element();
    if (Accept(",")) continue;
    if (!At(close)) FailExpected("',' or '" + std::string(close) + "'");
  }
}

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_PARSER_PARSER_H_
