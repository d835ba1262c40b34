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
 * \file src/relay/parser/parser.cc
 * \brief Programs, definitions and functions.
 */
#include "parser.h"

#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"
#include "../op/registry.h"

namespace tvm_fixes::relay {

namespace {

/*! \brief At this depth, even the large frames of sanitizers fit a stack of 8 MiB. */
constexpr int kMaxExprDepth = 400;

}  // namespace

Parser::Nesting::Nesting(Parser* parser) : parser_(parser) {
  if (++parser->depth_ > kMaxExprDepth) {
    --parser->depth_;
    ThrowParseError(parser->token().span,
                    "expressions nest deeper than " + std::to_string(kMaxExprDepth) + " levels");
  }
}

void Parser::FailExpected(const std::string& expected) const {
  ThrowParseError(token().span, "expected " + expected + ", found " + TokenText(token()));
}

bool Parser::Accept(std::string_view punct) {
  if (!At(punct)) return false;
  lexer_.Next();
  return true;
}

Token Parser::Take() {
  Token taken = token();
  lexer_.Next();
  return taken;
}

Token Parser::TakeKind(TokenKind kind, const char* expected) {
  if (token().kind != kind) FailExpected(expected);
  return Take();
}

void Parser::Expect(const char* punct) {
  if (!Accept(punct)) FailExpected("'" + std::string(punct) + "'");
}

String Parser::Intern(std::string_view text) {
  auto [found, is_new] = strings_.try_emplace(text);
  if (is_new) found->second = String(std::string(text));
  return found->second;
}

GlobalVar Parser::GetGlobal(const Token& name) {
  auto [found, is_new] = globals_.try_emplace(name.text);
  if (is_new) {
    found->second = WithSpan(GlobalVar(Intern(name.text)), name.span);
    used_globals_.emplace_back(name.text, name.span);
  }
  return found->second;
}

Op Parser::GetOp(std::string_view name) {
  auto [found, is_new] = ops_.try_emplace(name);
  if (is_new) found->second = Op::Get(Intern(name));
  return found->second;
}

Var Parser::BindVar(const Token& name, Type type) {
  Var var = WithSpan(Var(std::string(name.text), std::move(type)), name.span);
  locals_.Bind(name.text, var);
  return var;
}

Type Parser::ParseAnnotation() {
  if (Accept("{")) {
    // A device, which has no meaning for the result.
    Attrs ignored;
    ParseAttrs(&ignored);
    Expect("}");
  }
  return Accept(":") ? ParseType() : IncompleteType();
}

Var Parser::ParseBoundVar() {
  Token name = TakeKind(TokenKind::kLocal, "a variable");
  Type type = ParseAnnotation();
  return BindVar(name, std::move(type));
}

void Parser::ParseHeader() {
  while (At("#")) {
    Span span = Take().span;
    Expect("[");
    if (AtWord("attrs")) {
      Take();
      Expect("=");
      if (!At("{")) FailExpected("'{'");
      attrs_ = ParseAttrMap().cast<Attrs>();
    } else if (AtWord("version")) {
      ParseVersion(span);
    } else {
      FailExpected("'version' or 'attrs'");
    }
    Expect("]");
  }
}

void Parser::ParseVersion(const Span& span) {
  Take();
  Expect("=");
  Token version = TakeKind(TokenKind::kString, "a version");
  if (version.text != "0.0.5" && version.text != "0.0.4") {
    ThrowParseError(span, "expected version 0.0.4 or 0.0.5, found " + TokenText(version));
  }
  version_.minor = version.text == "0.0.4" ? kFirstVersion : 0;
}

IRModule Parser::ParseProgram() {
  ParseHeader();
  if (At("{") && lexer_.Peek().kind == TokenKind::kString) {
    ThrowParseError(token().span, "expected Relay text, found JSON, which load_json reads");
  }
  bool has_definitions = AtTirFunction() || AtWord("def") || AtWord("type") || AtWord("extern");
  if (has_definitions || token().kind == TokenKind::kEnd) {
    while (token().kind != TokenKind::kEnd) ParseDefinition();
  } else {
    Expr expr = ParseExpr();
    if (token().kind != TokenKind::kEnd) FailExpected("the end of the text");
    auto function = expr.as<Function>();
    bool is_main = function && free_vars_.empty() && new_inputs_.empty();
    if (!is_main) {
      free_vars_.insert(free_vars_.end(), new_inputs_.begin(), new_inputs_.end());
      function = Function(Array<Var>(free_vars_.begin(), free_vars_.end()), expr);
      (*function)->span = expr->span;
    }
    functions_.Set("main", *function);
  }
  CheckNames();
  return IRModule(functions_, types_, attrs_);
}

void Parser::CheckNames() const {
  for (const auto& [name, span] : used_globals_) {
    if (functions_.count(std::string(name)) == 0) {
      ThrowParseError(span, "the function @" + std::string(name) + " is not defined");
    }
  }
  for (const auto& [name, span] : used_types_) {
    if (types_.count(std::string(name)) == 0) {
      ThrowParseError(span, "the type " + std::string(name) + " is not defined");
    }
  }
}

bool Parser::AtTirFunction() const {
  return token().kind == TokenKind::kGlobal && lexer_.AssignFollows();
}

void Parser::ParseDefinition() {
  if (AtWord("extern")) {
    Take();
    if (!AtWord("type")) FailExpected("'type'");
    return ParseTypeDefinition(true);
  }
  if (AtWord("type")) return ParseTypeDefinition(false);
  if (AtTirFunction()) {
    ThrowParseError(token().span, TokenText(token()) + " is a TIR function, not a Relay function");
  }
  if (!AtWord("def")) FailExpected("'def', 'type' or 'extern'");
  Take();
  Token name = TakeKind(TokenKind::kGlobal, "the name of a function");
  String key = Intern(name.text);
  if (functions_.count(key) != 0) {
    ThrowParseError(name.span, "the function @" + std::string(name.text) + " is defined twice");
  }
  if (At("=")) {
    ThrowParseError(token().span, "the function @" + std::string(name.text) +
                                      " is not a Relay function: expected its parameters");
  }
  new_inputs_.clear();
  constant_inputs_.clear();
  Function function = ParseFunction();
  if (!new_inputs_.empty()) {
    if (name.text != "main") {
      ThrowParseError(new_inputs_[0]->span,
                      "a missing constant can become an input only in @main, not in @" +
                          std::string(name.text));
    }
    Array<Var> params = function->params;
    for (const Var& input : new_inputs_) params.push_back(input);
    function = WithSpan(Function(params, function->body, function->ret_type, function->type_params,
                                 function->attrs),
                        function->span);
  }
  if (!free_vars_.empty()) {
    ThrowParseError(free_vars_[0]->span, "the function @" + std::string(name.text) +
                                             " has the free variable %" +
                                             std::string(free_vars_[0]->name));
  }
  function->span = name.span;
  functions_.Set(key, function);
}

void Parser::ParseTypeDefinition(bool is_extern) {
  Take();
  Token name = TakeKind(TokenKind::kWord, "the name of a type");
  String key = Intern(name.text);
  if (types_.count(key) != 0) {
    ThrowParseError(name.span, "the type " + std::string(name.text) + " is defined twice");
  }
  auto [header, is_new] = type_names_.try_emplace(name.text);
  if (is_new) header->second = GlobalTypeVar(key);
  GlobalTypeVar type_name = header->second;
  size_t mark = type_vars_.Mark();
  Array<TypeVar> type_vars;
  if (At("[")) {
    for (const ObjectRef& param : ParseTypeParams()) {
      auto var = param.as<TypeVar>();
      if (!var) ThrowParseError(name.span, "the parameters of a type must be types");
      type_vars.push_back(*var);
    }
  }
  Array<Constructor> constructors;
  if (At("{")) {
    if (is_extern) ThrowParseError(token().span, "an extern type has no constructors");
    ParseList("{", "}", [&] { constructors.push_back(ParseConstructor(type_name)); });
  }
  type_vars_.Leave(mark);
  types_.Set(key, TypeData(type_name, type_vars, constructors, is_extern));
}

Constructor Parser::ParseConstructor(const GlobalTypeVar& header) {
  Token name = TakeKind(TokenKind::kWord, "the name of a constructor");
  Array<Type> inputs;
  if (At("(")) ParseList("(", ")", [&] { inputs.push_back(ParseType()); });
  Constructor constructor = WithSpan(Constructor(Intern(name.text), inputs, header), name.span);
  if (!constructors_.emplace(name.text, constructor).second) {
    ThrowParseError(name.span, "the constructor " + std::string(name.text) + " is defined twice");
  }
  return constructor;
}

Array<Var> Parser::ParseParams(Attrs* attrs) {
  Array<Var> params;
  ParseList("(", ")", [&] {
    if (AtAttrs()) {
      ParseAttrs(attrs);
    } else {
      params.push_back(ParseBoundVar());
    }
  });
  return params;
}

Function Parser::ParseFunction() {
  Span span = token().span;
  size_t locals = locals_.Mark();
  size_t types = type_vars_.Mark();
  Array<ObjectRef> type_params = EmptyArray();
  if (At("[")) type_params = ParseTypeParams();
  Attrs attrs = EmptyMap();
  Array<Var> params = ParseParams(&attrs);
  Type ret_type = Accept("->") ? ParseType() : IncompleteType();
  if (!At("{")) FailExpected("'{'");
  Expr body = ParseBlock();
  locals_.Leave(locals);
  type_vars_.Leave(types);
  attrs.erase("virtual_device_");
  return WithSpan(Function(params, body, ret_type, type_params, attrs), span);
}

namespace {

/*! \brief The offset after the first line of version 0.0.4, which is not a token. */
size_t OldVersionEnd(std::string_view program) {
  constexpr std::string_view kVersion = "v0.0.4";
  size_t begin = program.find_first_not_of(" \t\r\n");
  bool has_version =
      begin != std::string_view::npos && program.substr(begin, kVersion.size()) == kVersion;
  return has_version ? begin + kVersion.size() : 0;
}

}  // namespace

IRModule ParseModule(std::string_view text, const ParseOptions& options) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    text.remove_prefix(kByteOrderMark.size());
  }
  SplitText parts = SplitMetadata(text);
  return Parser(parts.program, OldVersionEnd(parts.program), Metadata(parts), options)
      .ParseProgram();
}

namespace {

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def(
      "tvm_fixes.relay.Parse", [](const String& text, bool constants_as_inputs) {
        ParseOptions options;
        options.constants_as_inputs = constants_as_inputs;
        return ParseModule(std::string_view(text.data(), text.size()), options);
      });
}

}  // namespace
}  // namespace tvm_fixes::relay
