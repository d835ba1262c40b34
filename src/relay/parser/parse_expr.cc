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
 * \file src/relay/parser/parse_expr.cc
 * \brief Expressions.
 */
#include "literal.h"
#include "parser.h"

namespace tvm_fixes::relay {
namespace {

struct BinaryOperator {
  const char* symbol;
  const char* op;
  int precedence;
};

constexpr BinaryOperator kBinaryOperators[] = {
    {"*", "multiply", 12}, {"/", "divide", 12},     {"+", "add", 10},    {"-", "subtract", 10},
    {"<", "less", 8},      {"<=", "less_equal", 8}, {">", "greater", 8}, {">=", "greater_equal", 8},
    {"==", "equal", 7},    {"!=", "not_equal", 7},
};

const BinaryOperator* FindBinaryOperator(const Token& token) {
  if (token.kind != TokenKind::kPunct) return nullptr;
  for (const BinaryOperator& candidate : kBinaryOperators) {
    if (token.text == candidate.symbol) return &candidate;
  }
  return nullptr;
}

}  // namespace

Expr Parser::ParseExpr() { return ParseSequence(false); }

Expr Parser::BindAll(std::vector<Binding>* bindings, Expr body) {
  while (!bindings->empty()) {
    Binding& last = bindings->back();
    body = WithSpan(Let(std::move(last.var), std::move(last.value), std::move(body)), last.span);
    bindings->pop_back();
  }
  return body;
}

/*!
 * \brief Parses a chain of bindings and items without recursion along the chain; returns its value.
 * \param is_value Whether it is the value of a binding, which ends at the semicolon.
 */
Expr Parser::ParseSequence(bool is_value) {
  Nesting nesting(this);
  std::vector<Binding> bindings;
  size_t mark = locals_.Mark();
  while (true) {
    Span span = token().span;
    if (token().kind == TokenKind::kGraph && lexer_.AssignFollows()) {
      std::string_view number = Take().text;
      Expect("=");
      Expr value = ParseValue();
      Expect(";");
      graph_.Bind(number, std::move(value));
      continue;
    }
    if (AtWord("free_var")) {
      Take();
      free_vars_.push_back(ParseBoundVar());
      Expect(";");
      continue;
    }
    if (AtWord("let")) {
      Take();
      Token name = TakeKind(TokenKind::kLocal, "a variable");
      Type type = ParseAnnotation();
      Expect("=");
      // A function may call itself; any other value may use an outer variable of the same name.
      bool is_recursive = AtWord("fn") || !locals_.Find(name.text).defined();
      Var var = WithSpan(Var(std::string(name.text), std::move(type)), name.span);
      if (is_recursive) locals_.Bind(name.text, var);
      Expr value = ParseValue();
      if (!is_recursive) locals_.Bind(name.text, var);
      Expect(";");
      bindings.push_back({std::move(var), std::move(value), span});
      continue;
    }
    Expr item = ParseItem();
    if (is_value || !Accept(";")) {
      locals_.Leave(mark);
      return BindAll(&bindings, std::move(item));
    }
    // Version 0.0.4 separates items by two semicolons.
    Accept(";");
    bindings.push_back({Var("_", IncompleteType()), std::move(item), span});
  }
}

Expr Parser::ParseValue() { return AtWord("let") ? ParseSequence(true) : ParseItem(); }

Expr Parser::ParseItem() { return ParseBinary(); }

Expr Parser::ParseBinary() {
  struct Pending {
    Expr left;
    const BinaryOperator* op;
    Span span;
  };
  std::vector<Pending> stack;
  Expr right = ParsePostfix();
  while (true) {
    const BinaryOperator* op = FindBinaryOperator(token());
    while (!stack.empty() && (op == nullptr || op->precedence <= stack.back().op->precedence)) {
      Pending& last = stack.back();
      right = WithSpan(Call(GetOp(last.op->op), {last.left, right}), last.span);
      stack.pop_back();
    }
    if (op == nullptr) return right;
    stack.push_back({std::move(right), op, token().span});
    Take();
    right = ParsePostfix();
  }
}

Expr Parser::ParsePostfix() {
  Span span = token().span;
  Expr expr = ParseAtom();
  while (true) {
    if (At("(") || At("[")) {
      expr = ParseCall(std::move(expr), span);
    } else if (At(".")) {
      lexer_.NextIndex();
      auto index = static_cast<int64_t>(Take().value);
      expr = WithSpan(TupleGetItem(std::move(expr), index), span);
    } else {
      break;
    }
  }
  const auto* constructor = expr.as<ConstructorObj>();
  if (constructor != nullptr && constructor->inputs.empty()) return WithSpan(Call(expr, {}), span);
  return expr;
}

Expr Parser::ParseCall(Expr op, const Span& span) {
  Array<Expr> args;
  Attrs attrs = EmptyMap();
  Array<Type> type_args = NoTypes();
  if (At("[")) {
    ParseList("[", "]", [&] { type_args.push_back(ParseType()); });
    const auto* constructor = op.as<ConstructorObj>();
    if (!At("(") && constructor != nullptr && constructor->inputs.empty()) {
      return WithSpan(Call(std::move(op), args, attrs, type_args), span);
    }
  }
  ParseList("(", ")", [&] {
    if (AtAttrs()) return ParseAttrs(&attrs);
    if (token().kind == TokenKind::kMeta && lexer_.Peek().Is(")")) {
      std::optional<Any> value = metadata_.Find(token().text, token().value);
      if (auto map = value ? value->as<Attrs>() : std::nullopt) {
        Take();
        attrs = *map;
        return;
      }
    }
    args.push_back(ParseExpr());
  });
  attrs.erase("attrs_type_key");
  bool is_wide = ReturnsIndices(op) && lexer_.comment().find("ty=") != std::string_view::npos &&
                 lexer_.comment().find("int64") != std::string_view::npos;
  Call call = WithSpan(
      UpdateCall(std::move(op), std::move(args), std::move(attrs), std::move(type_args), version_),
      span);
  if (is_wide) return WideIndices(call);
  return call;
}

Expr Parser::ParseAtom() {
  switch (token().kind) {
    case TokenKind::kLocal:
      return ParseLocal();
    case TokenKind::kGraph:
      return ParseGraph();
    case TokenKind::kGlobal: {
      GlobalVar global = GetGlobal(token());
      Take();
      return global;
    }
    case TokenKind::kNumber:
      return ParseNumber(false);
    case TokenKind::kMeta:
      return ParseMetaExpr();
    case TokenKind::kWord:
      return ParseWord();
    default:
      break;
  }
  if (At("(")) return ParseParens();
  if (At("{")) return ParseBlock();
  if (At("-")) return ParseNegative();
  FailExpected("an expression");
}

Expr Parser::ParseNegative() {
  Nesting nesting(this);
  Span span = Take().span;
  bool negative = true;
  while (At("-")) {
    Take();
    negative = !negative;
  }
  if (token().kind == TokenKind::kNumber) return WithSpan(ParseNumber(negative), span);
  Expr operand = ParsePostfix();
  return negative ? WithSpan(Call(GetOp("negative"), {operand}), span) : operand;
}

Expr Parser::ParseNumber(bool negative) {
  Token number = TakeKind(TokenKind::kNumber, "a number");
  std::string problem;
  std::optional<Literal> literal = ReadLiteral(number.text, negative, &problem);
  if (!literal) {
    ThrowParseError(number.span, "invalid number " + TokenText(number) + ": " + problem);
  }
  return WithSpan(Constant(ScalarTensor(*literal)), number.span);
}

Expr Parser::ParseParens() {
  Span span = Take().span;
  if (Accept(")")) return WithSpan(Tuple(Array<Expr>()), span);
  Expr first = ParseExpr();
  if (Accept(")")) return first;
  if (!At(",")) FailExpected("',' or ')'");
  Array<Expr> fields = {first};
  while (Accept(",")) {
    if (At(")")) break;
    fields.push_back(ParseExpr());
  }
  if (!Accept(")")) FailExpected("',' or ')'");
  return WithSpan(Tuple(fields), span);
}

Expr Parser::ParseBlock() {
  Expect("{");
  Expr body = ParseExpr();
  if (!Accept("}")) FailExpected("';' or '}'");
  return body;
}

Expr Parser::ParseIf() {
  Span span = Take().span;
  Expect("(");
  Expr condition = ParseExpr();
  Expect(")");
  Expr yes = ParseBlock();
  if (!AtWord("else")) FailExpected("'else'");
  Take();
  Expr no = ParseBlock();
  return WithSpan(If(condition, yes, no), span);
}

Expr Parser::ParseReference() {
  Token word = Take();
  Expect("(");
  Expr ref = ParseExpr();
  Expr value;
  if (word.text == "ref_write") {
    Expect(",");
    value = ParseExpr();
  }
  Expect(")");
  if (word.text == "ref") return WithSpan(RefCreate(ref), word.span);
  if (word.text == "ref_read") return WithSpan(RefRead(ref), word.span);
  return WithSpan(RefWrite(ref, value), word.span);
}

Expr Parser::ParseWord() {
  std::string_view text = token().text;
  Span span = token().span;
  if (text == "True" || text == "False") {
    Take();
    Literal literal{DLDataType{kDLBool, 8, 1}};
    literal.integer = text == "True" ? 1 : 0;
    return WithSpan(Constant(ScalarTensor(literal)), span);
  }
  if (text == "fn") {
    Nesting nesting(this);
    Take();
    return WithSpan(ParseFunction(), span);
  }
  if (text == "if") return ParseIf();
  if (text == "match" || text == "match?") return ParseMatch();
  if (text == "let") return ParseSequence(true);
  if (text == "ref" || text == "ref_read" || text == "ref_write") return ParseReference();
  for (const char* keyword : {"def", "type", "extern", "else", "free_var"}) {
    if (text == keyword) FailExpected("an expression");
  }
  Take();
  auto constructor = constructors_.find(text);
  if (constructor != constructors_.end()) return constructor->second;
  return GetOp(text);
}

Expr Parser::ParseLocal() {
  std::string_view name = token().text;
  Var var = locals_.Find(name);
  // In %a.0 and %a-1, the name ends before the separator unless such a variable exists.
  while (!var.defined()) {
    size_t end = name.find_last_of("./-:");
    if (end == std::string_view::npos) {
      ThrowParseError(token().span, "the variable " + TokenText(token()) + " is not defined");
    }
    name = name.substr(0, end);
    var = locals_.Find(name);
  }
  if (name.size() < token().text.size()) lexer_.Shorten(name.size());
  Take();
  return var;
}

Expr Parser::ParseGraph() {
  Expr expr = graph_.Find(token().text);
  if (!expr.defined()) ThrowParseError(token().span, TokenText(token()) + " is not defined");
  Take();
  return expr;
}

Expr Parser::ParseMetaExpr() {
  Token meta = token();
  std::optional<Any> value = metadata_.Find(meta.text, meta.value);
  if (!value) return MissingConstant(Take());
  auto expr = *value == nullptr ? std::nullopt : value->as<Expr>();
  if (!expr) ThrowParseError(meta.span, "expected an expression, found " + TokenText(meta));
  Take();
  return *expr;
}

/*! \brief An input that replaces a missing constant; the comment after its use states its type. */
Expr Parser::MissingConstant(const Token& meta) {
  if (metadata_.present()) {
    ThrowParseError(meta.span, "the metadata section has no " + TokenText(meta));
  }
  if (!options_.constants_as_inputs || meta.text != "relay.Constant") {
    ThrowParseError(meta.span, "the text has no metadata section for " + TokenText(meta) +
                                   ": save it with show_meta_data=True");
  }
  std::string name = "constant_" + std::to_string(meta.value);
  auto [found, is_new] = constant_inputs_.try_emplace(name);
  if (is_new) {
    Type type = IncompleteType();
    std::string_view comment = lexer_.comment();
    size_t begin = comment.find("ty=");
    if (begin != std::string_view::npos) {
      Lexer outer = lexer_;
      lexer_ = Lexer(comment.substr(begin + 3));
      type = ParseType();
      lexer_ = outer;
    }
    found->second = WithSpan(Var(String(name), type), meta.span);
    new_inputs_.push_back(found->second);
  }
  return found->second;
}

}  // namespace tvm_fixes::relay
