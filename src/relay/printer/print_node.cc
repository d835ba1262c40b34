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
 * \file src/relay/printer/print_node.cc
 * \brief The text of single nodes and of attributes.
 */
#include <cmath>
#include <limits>

#include "../ir/type_text.h"
#include "../parser/literal.h"
#include "printer.h"

namespace tvm_fixes::relay {
namespace {

constexpr int kMaxAttrDepth = 100;

std::string Join(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) {
    if (!text.empty()) text += ", ";
    text += item;
  }
  return text;
}

/*! \brief Whether a text is a word of the lexer: a name, or names joined by dots. */
bool IsWord(const std::string& text) {
  bool starts = true;
  for (char c : text) {
    bool is_letter = std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
    bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (starts ? !is_letter : !(is_letter || is_digit || c == '.')) return false;
    starts = c == '.';
  }
  return !starts;
}

}  // namespace

std::string WordText(const std::string& name) {
  if (!IsWord(name)) ThrowRelayError("the name '" + name + "' has no text");
  return name;
}

std::string Quote(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string Printer::List(const Array<Expr>& exprs) const {
  std::string text;
  for (const Expr& expr : exprs) {
    if (!text.empty()) text += ", ";
    text += TextOf(expr);
  }
  return text;
}

std::string Printer::NodeText(const Expr& expr) {
  if (auto var = expr.as<Var>()) return VarText(*var);
  if (const auto* global = expr.as<GlobalVarObj>()) return NameText('@', global->name);
  if (const auto* op = expr.as<OpObj>()) return WordText(op->name);
  if (const auto* constructor = expr.as<ConstructorObj>()) return WordText(constructor->name);
  if (auto constant = expr.as<Constant>()) return ConstantText(*constant, false);
  if (const auto* call = expr.as<CallObj>()) return CallNodeText(call);
  if (const auto* tuple = expr.as<TupleObj>()) {
    return "(" + List(tuple->fields) + (tuple->fields.size() == 1 ? ",)" : ")");
  }
  if (const auto* item = expr.as<TupleGetItemObj>()) return Field(item);
  if (expr.as<LetObj>()) {
    // Written by AddScope, which must not replace the chain by its number again.
    size_t uses = uses_[expr.get()];
    uses_[expr.get()] = 1;
    std::string text = Block(expr);
    uses_[expr.get()] = uses;
    return text;
  }
  if (const auto* branch = expr.as<IfObj>()) {
    std::string text = "if (" + TextOf(branch->cond) + ") " + Block(branch->true_branch);
    return text + " else " + Block(branch->false_branch);
  }
  if (const auto* function = expr.as<FunctionObj>()) return "fn " + FunctionText(function);
  if (const auto* match = expr.as<MatchObj>()) return MatchText(match);
  if (const auto* create = expr.as<RefCreateObj>()) return "ref(" + TextOf(create->value) + ")";
  if (const auto* read = expr.as<RefReadObj>()) return "ref_read(" + TextOf(read->ref) + ")";
  if (const auto* write = expr.as<RefWriteObj>()) {
    return "ref_write(" + TextOf(write->ref) + ", " + TextOf(write->value) + ")";
  }
  ThrowRelayError("an expression of class " + expr->GetTypeKey() + " has no text");
}

std::string Printer::Field(const TupleGetItemObj* item) const {
  std::string tuple = TextOf(item->tuple);
  bool is_var = item->tuple.as<VarObj>() != nullptr;
  if ((is_var && has_joined_names_) || item->tuple.as<ConstantObj>()) tuple = "(" + tuple + ")";
  return tuple + "." + std::to_string(item->index);
}

std::string Printer::ConstantText(const Constant& constant, bool always_meta) {
  if (!always_meta) {
    if (std::optional<std::string> text = LiteralText(constant->data)) return *text;
  }
  auto [found, is_new] = constant_indices_.try_emplace(constant.get(), constants_.size());
  if (is_new) constants_.push_back(constant);
  std::string text = "meta[relay.Constant][" + std::to_string(found->second) + "]";
  if (options_.show_types && !IsMissing(constant->checked_type)) {
    text += " /* ty=" + TypeText(constant->checked_type) + " */";
  }
  return text;
}

std::string Printer::CallNodeText(const CallObj* call) {
  std::string text = TextOf(call->op);
  if (!call->type_args.empty()) {
    std::string types;
    for (const Type& type : call->type_args) {
      types += (types.empty() ? "" : ", ") + TypeText(type, SIZE_MAX);
    }
    text += "[" + types + "]";
  }
  const auto* constructor = call->op.as<ConstructorObj>();
  bool is_bare = constructor != nullptr && constructor->inputs.empty();
  if (is_bare && call->args.empty() && call->attrs.empty()) return text;
  std::vector<std::string> items;
  for (const Expr& arg : call->args) items.push_back(TextOf(arg));
  AddAttrs(call->attrs, &items);
  return text + "(" + Join(items) + ")";
}

std::string Printer::FunctionText(const FunctionObj* function) {
  std::vector<std::string> items;
  for (const Var& param : function->params) items.push_back(Binder(param));
  AddAttrs(function->attrs, &items);
  std::string text = TypeParamsText(function->type_params) + "(" + Join(items) + ") ";
  if (!IsMissing(function->ret_type)) text += "-> " + TypeText(function->ret_type, SIZE_MAX) + " ";
  return text + Block(function->body);
}

std::string Printer::MatchText(const MatchObj* match) {
  std::string text =
      std::string("match") + (match->complete ? "" : "?") + " (" + TextOf(match->data) + ") {\n";
  ++indent_;
  std::string indent(static_cast<size_t>(indent_) * 2, ' ');
  for (const Clause& clause : match->clauses) {
    text += indent + PatternText(clause->lhs) + " => ";
    text += Block(clause->rhs) + ",\n";
  }
  --indent_;
  return text + std::string(static_cast<size_t>(indent_) * 2, ' ') + "}";
}

std::string Printer::PatternText(const Pattern& pattern) {
  if (++depth_ > kMaxAttrDepth) ThrowRelayError("patterns nest too deeply for text");
  std::string text = "_";
  auto list = [this](const Array<Pattern>& patterns) {
    std::vector<std::string> items;
    for (const Pattern& part : patterns) items.push_back(PatternText(part));
    return "(" + Join(items) + ")";
  };
  if (const auto* var = pattern.as<PatternVarObj>()) {
    text = Binder(var->var);
  } else if (const auto* tuple = pattern.as<PatternTupleObj>()) {
    text = list(tuple->patterns);
  } else if (const auto* made = pattern.as<PatternConstructorObj>()) {
    text = made->constructor->name;
    if (!made->patterns.empty()) text += list(made->patterns);
  }
  --depth_;
  return text;
}

void Printer::AddAttrs(const Attrs& attrs, std::vector<std::string>* items) {
  for (const auto& [name, value] : attrs) {
    std::string key = name;
    items->push_back((IsWord(key) ? key : Quote(key)) + "=" + AttrText(value, 0));
  }
}

std::string Printer::AttrText(const Any& value, int depth) {
  if (depth > kMaxAttrDepth) ThrowRelayError("an attribute nests too deeply for text");
  switch (value.type_index()) {
    case tvm::ffi::TypeIndex::kTVMFFINone:
      return "None";
    case tvm::ffi::TypeIndex::kTVMFFIBool:
      return value.cast<bool>() ? "True" : "False";
    case tvm::ffi::TypeIndex::kTVMFFIInt:
      return std::to_string(value.cast<int64_t>());
    case tvm::ffi::TypeIndex::kTVMFFIFloat: {
      auto real = value.cast<double>();
      bool is_wide = std::isfinite(real) && std::abs(real) > std::numeric_limits<float>::max();
      return RealText(real) + (is_wide ? "f64" : "f");
    }
    case tvm::ffi::TypeIndex::kTVMFFIDataType:
      return Quote(tvm::ffi::DLDataTypeToString(value.cast<DLDataType>()));
  }
  if (auto text = value.as<String>()) return Quote(*text);
  if (auto elements = value.as<Array<Any>>()) {
    std::vector<std::string> items;
    for (const Any& element : *elements) items.push_back(AttrText(element, depth + 1));
    return "[" + Join(items) + "]";
  }
  if (auto map = value.as<Map<String, Any>>()) {
    std::vector<std::string> items;
    for (const auto& [name, element] : *map) {
      items.push_back(Quote(name) + "=" + AttrText(element, depth + 1));
    }
    return "{" + Join(items) + "}";
  }
  if (value.as<AnyDimObj>()) return "?";
  if (auto constant = value.as<Constant>()) return ConstantText(*constant, true);
  if (const auto* global = value.as<GlobalVarObj>()) return NameText('@', global->name);
  if (const auto* op = value.as<OpObj>()) return WordText(op->name);
  ThrowRelayError("an attribute of class " + value.GetTypeKey() + " has no text");
}

}  // namespace tvm_fixes::relay
