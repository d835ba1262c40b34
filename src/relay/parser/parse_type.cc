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
 * \file src/relay/parser/parse_type.cc
 * \brief Types.
 */
#include "../ir/shape.h"
#include "literal.h"
#include "parser.h"

namespace tvm_fixes::relay {

Type Parser::ParseType() {
  Nesting nesting(this);
  if (At("(")) {
    Array<Type> fields;
    ParseList("(", ")", [&] { fields.push_back(ParseType()); });
    return TupleType(fields);
  }
  if (token().kind == TokenKind::kMeta) {
    Token meta = Take();
    std::optional<Any> value = metadata_.Find(meta.text, meta.value);
    auto type = value && *value != nullptr ? value->as<Type>() : std::nullopt;
    if (!type) ThrowParseError(meta.span, "expected a type, found " + TokenText(meta));
    return *type;
  }
  if (token().kind != TokenKind::kWord) FailExpected("a type");
  if (AtWord("_")) {
    Take();
    return IncompleteType();
  }
  if (AtWord("Tensor")) return ParseTensorType();
  if (AtWord("fn")) return ParseFuncType();
  if (AtWord("ref")) {
    Take();
    Expect("(");
    Type value = ParseType();
    Expect(")");
    return RefType(value);
  }
  return ParseNamedType(Take());
}

Type Parser::ParseTensorType() {
  Take();
  Expect("[");
  Shape shape;
  if (At("(")) {
    ParseList("(", ")", [&] { shape.push_back(ParseDim()); });
  } else {
    shape.push_back(ParseDim());
  }
  Expect(",");
  Token name = TakeKind(TokenKind::kWord, "a dtype");
  std::optional<DLDataType> dtype = ParseDType(std::string(name.text));
  if (!dtype || dtype->lanes != 1) {
    ThrowParseError(name.span, "expected a dtype, found " + TokenText(name));
  }
  Expect("]");
  return TensorType(shape, *dtype);
}

Dim Parser::ParseDim() {
  Token dim = token();
  if (Accept("?")) return AnyDim();
  // Version 0.0.4 may put a dimension in parentheses.
  if (Accept("(")) {
    Dim inner = ParseDim();
    Expect(")");
    return inner;
  }
  if (dim.kind == TokenKind::kNumber) {
    Take();
    std::string problem;
    std::optional<Literal> literal = ReadLiteral(dim.text, false, &problem);
    if (!literal || literal->dtype.code != kDLInt) {
      ThrowParseError(dim.span, "expected a dimension, found " + TokenText(dim));
    }
    return literal->integer;
  }
  if (dim.kind == TokenKind::kMeta) {
    Take();
    std::optional<Any> value = metadata_.Find(dim.text, dim.value);
    if (value && (StaticDim(*value) || IsAnyDim(*value) || value->as<ShapeVarObj>())) {
      return *value;
    }
    // An expression of dimensions, or the section is missing: the dimension is unknown.
    return AnyDim();
  }
  if (dim.kind != TokenKind::kWord) FailExpected("a dimension");
  Take();
  if (ObjectRef param = type_vars_.Find(dim.text); param.defined()) {
    if (param.as<ShapeVarObj>()) return param;
    ThrowParseError(dim.span, TokenText(dim) + " is a type, not a dimension: declare it as '" +
                                  std::string(dim.text) + ": Shape'");
  }
  auto [found, is_new] = free_dims_.try_emplace(dim.text);
  if (is_new) found->second = ShapeVar(Intern(dim.text));
  return found->second;
}

Type Parser::ParseFuncType() {
  Take();
  size_t mark = type_vars_.Mark();
  Array<ObjectRef> type_params;
  if (At("[")) type_params = ParseTypeParams();
  Array<Type> args;
  ParseList("(", ")", [&] { args.push_back(ParseType()); });
  Expect("->");
  Type result = ParseType();
  type_vars_.Leave(mark);
  return FuncType(type_params, args, result);
}

Type Parser::ParseNamedType(const Token& name) {
  if (std::optional<DLDataType> dtype = ParseDType(std::string(name.text))) {
    return TensorType(Shape(), *dtype);
  }
  Type head;
  if (ObjectRef param = type_vars_.Find(name.text); param.defined()) {
    auto var = param.as<TypeVar>();
    if (!var) ThrowParseError(name.span, TokenText(name) + " is a dimension, not a type");
    if (!At("[")) return *var;
    head = *var;
  } else {
    auto [found, is_new] = type_names_.try_emplace(name.text);
    if (is_new) found->second = GlobalTypeVar(Intern(name.text));
    used_types_.emplace_back(name.text, name.span);
    head = found->second;
  }
  Array<Type> args;
  if (At("[")) ParseList("[", "]", [&] { args.push_back(ParseType()); });
  return TypeCall(head, args);
}

Array<ObjectRef> Parser::ParseTypeParams() {
  Array<ObjectRef> params;
  ParseList("[", "]", [&] {
    Token name = TakeKind(TokenKind::kWord, "a type parameter");
    ObjectRef param;
    if (Accept(":")) {
      Token kind = TakeKind(TokenKind::kWord, "'Type' or 'Shape'");
      if (kind.text == "Shape") {
        param = ShapeVar(Intern(name.text));
      } else if (kind.text != "Type") {
        ThrowParseError(kind.span, "expected 'Type' or 'Shape', found " + TokenText(kind));
      }
    }
    if (!param.defined()) param = TypeVar(Intern(name.text));
    type_vars_.Bind(name.text, param);
    params.push_back(param);
  });
  return params;
}

}  // namespace tvm_fixes::relay
