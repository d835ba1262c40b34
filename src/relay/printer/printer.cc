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
 * \file src/relay/printer/printer.cc
 * \brief Modules, scopes and the binding of nodes to numbers.
 */
#include "printer.h"

#include <tvm/ffi/reflection/registry.h>

#include <algorithm>

#include "../../ffi/registration.h"
#include "../ir/type_text.h"
#include "../ir/visitor.h"
#include "../params/tensor_blob.h"
#include "../parser/lexer.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The parser's limit: deeper text could not be read back. */
constexpr int kMaxBlockDepth = 190;

/*! \brief A tuple whose text is longer is bound to a number. */
constexpr size_t kMaxInline = 60;

constexpr const char* kVersion = "#[version = \"0.0.5\"]\n";

bool IsLeaf(const Expr& expr) {
  return expr.as<VarObj>() || expr.as<GlobalVarObj>() || expr.as<OpObj>() ||
         expr.as<ConstantObj>() || expr.as<ConstructorObj>();
}

}  // namespace

std::string NameText(char prefix, const std::string& name) {
  bool is_plain = IsPlainName(name, prefix == '%');
  if (!is_plain && (name.empty() || name.find_first_of("\"\n") != std::string::npos)) {
    ThrowRelayError("the name '" + name + "' has no text");
  }
  return prefix + (is_plain ? name : "\"" + name + "\"");
}

void Printer::CountUses(const Expr& root) {
  ++uses_[root.get()];
  std::vector<Expr> stack = {root};
  while (!stack.empty()) {
    Expr expr = std::move(stack.back());
    stack.pop_back();
    ForEachChild(expr, [&](const Expr& child) {
      if (++uses_[child.get()] == 1 && !IsLeaf(child)) stack.push_back(child);
    });
  }
}

void Printer::AddLine(const std::string& line) {
  out_.append(static_cast<size_t>(indent_) * 2, ' ');
  out_ += line;
  out_ += '\n';
}

std::string Printer::Module(const IRModule& module) {
  for (const auto& [name, data] : module->type_definitions) AddTypeData(data);
  for (const auto& [name, function] : module->functions) CountUses(function);
  for (const auto& [name, function] : module->functions) {
    names_.clear();
    has_joined_names_ = false;
    std::string text = FunctionText(function.get());
    AddLine("def " + NameText('@', name) + text);
    out_ += '\n';
  }
  std::string text = kVersion;
  if (!module->attrs.empty()) text += "#[attrs = " + AttrText(module->attrs, 0) + "]\n";
  text += out_;
  if (!module->functions.empty()) text.pop_back();
  return text + MetadataSection();
}

std::string Printer::Expression(const Expr& expr) {
  CountUses(expr);
  AddScope(expr);
  std::string text = kVersion;
  for (const Var& var : free_vars_) text += "free_var " + Binder(var) + ";\n";
  return text + out_ + MetadataSection();
}

void Printer::AddTypeData(const TypeData& data) {
  Array<ObjectRef> params;
  for (const TypeVar& var : data->type_vars) params.push_back(var);
  std::string head = "type " + std::string(data->header->name) + TypeParamsText(params);
  if (data->is_extern) {
    AddLine("extern " + head);
    return;
  }
  AddLine(head + " {");
  ++indent_;
  for (const Constructor& constructor : data->constructors) {
    std::string inputs;
    for (const Type& input : constructor->inputs) {
      inputs += (inputs.empty() ? "" : ", ") + TypeText(input, SIZE_MAX);
    }
    AddLine(std::string(constructor->name) + (inputs.empty() ? "" : "(" + inputs + ")") + ",");
  }
  --indent_;
  AddLine("}");
}

void Printer::AddScope(const Expr& root) {
  if (++depth_ > kMaxBlockDepth) {
    ThrowRelayError("blocks nest deeper than " + std::to_string(kMaxBlockDepth) +
                    " levels: the text could not be read back");
  }
  Expr expr = root;
  while (true) {
    const auto* let = expr.as<LetObj>();
    // A chain that is used in several places is a separate block, which has a number.
    if (let == nullptr || uses_[expr.get()] > 1 || texts_.count(expr.get()) != 0) break;
    bool names_itself = let->value.as<FunctionObj>() != nullptr;
    std::string var = names_itself ? Binder(let->var) : "";
    std::string value = Materialize(let->value);
    if (!names_itself) var = Binder(let->var);
    AddLine("let " + var + " = " + value + ";");
    expr = let->body;
  }
  AddLine(Materialize(expr));
  --depth_;
}

std::string Printer::Block(const Expr& root) {
  std::string outer;
  outer.swap(out_);
  ++indent_;
  AddScope(root);
  --indent_;
  outer.swap(out_);
  return "{\n" + outer + std::string(static_cast<size_t>(indent_) * 2, ' ') + "}";
}

void Printer::PushOperands(const Expr& expr, std::vector<std::pair<Expr, bool>>* stack) const {
  auto push = [&](const Expr& operand) {
    if (texts_.count(operand.get()) == 0) stack->emplace_back(operand, false);
  };
  if (const auto* call = expr.as<CallObj>()) {
    push(call->op);
    for (size_t i = call->args.size(); i-- > 0;) push(call->args[i]);
  } else if (const auto* branch = expr.as<IfObj>()) {
    push(branch->cond);
  } else if (const auto* match = expr.as<MatchObj>()) {
    push(match->data);
  } else if (!expr.as<LetObj>() && !expr.as<FunctionObj>()) {
    size_t first = stack->size();
    ForEachChild(expr, push);
    std::reverse(stack->begin() + static_cast<ptrdiff_t>(first), stack->end());
  }
}

std::string Printer::Materialize(const Expr& root) {
  std::vector<std::pair<Expr, bool>> stack = {{root, false}};
  while (!stack.empty()) {
    auto [expr, ready] = std::move(stack.back());
    stack.pop_back();
    if (texts_.count(expr.get()) != 0) continue;
    if (!ready) {
      stack.emplace_back(expr, true);
      PushOperands(expr, &stack);
      continue;
    }
    std::string text = NodeText(expr);
    bool is_single_root = expr.same_as(root) && uses_[expr.get()] <= 1;
    if (is_single_root) return text + TypeComment(expr);
    if (!IsLeaf(expr) && !StaysInline(expr, text)) {
      std::string number = "%" + std::to_string(next_number_++);
      AddLine(number + " = " + text + TypeComment(expr) + ";");
      text = std::move(number);
    }
    texts_.emplace(expr.get(), std::move(text));
  }
  return TextOf(root);
}

bool Printer::StaysInline(const Expr& expr, const std::string& text) const {
  if (uses_.at(expr.get()) > 1 || text.size() > kMaxInline) return false;
  return expr.as<TupleObj>() != nullptr || expr.as<TupleGetItemObj>() != nullptr;
}

std::string Printer::TypeComment(const Expr& expr) const {
  if (!options_.show_types || IsMissing(expr->checked_type) || IsLeaf(expr)) return "";
  return " /* ty=" + TypeText(expr->checked_type) + " */";
}

std::string Printer::NewName(const Var& var) {
  std::string name = var->name;
  for (char& c : name) {
    bool ends_quotes = c == '"' || c == '\n';
    if (ends_quotes) c = '_';
  }
  if (name.empty()) name = "v";
  has_joined_names_ = has_joined_names_ || name.find('.') != std::string::npos;
  std::string unique = name;
  size_t& count = names_[name];
  for (bool is_new = count++ == 0; !is_new;) {
    unique = name + "_" + std::to_string(count - 1);
    is_new = names_.emplace(unique, 1).second;
    if (!is_new) ++count;
  }
  return unique;
}

std::string Printer::Binder(const Var& var) {
  auto [found, is_new] = var_names_.try_emplace(var.get());
  if (is_new) found->second = NewName(var);
  std::string text = NameText('%', found->second);
  texts_[var.get()] = text;
  if (!IsMissing(var->type_annotation)) text += ": " + TypeText(var->type_annotation, SIZE_MAX);
  return text;
}

std::string Printer::VarText(const Var& var) {
  auto found = var_names_.find(var.get());
  if (found != var_names_.end()) return NameText('%', found->second);
  std::string name = NewName(var);
  var_names_.emplace(var.get(), name);
  free_vars_.push_back(var);
  return NameText('%', name);
}

std::string Printer::MetadataSection() const {
  if (constants_.empty()) return "";
  if (!options_.show_metadata) return "\n// The metadata section is left out.\n";
  std::string lists;
  std::string nodes;
  std::string tensors;
  for (size_t i = 0; i < constants_.size(); ++i) {
    std::string separator = i == 0 ? "" : ", ";
    lists += separator + std::to_string(i + 3);
    nodes +=
        ",\n    {\"type_key\": \"relay.Constant\", \"attrs\": {\"_checked_type_\": \"0\", "
        "\"data\": \"" +
        std::to_string(i) + "\", \"span\": \"0\"}}";
    std::string blob;
    WriteTensor(constants_[i]->data, &blob);
    tensors += (i == 0 ? "\n    \"" : ",\n    \"") + EncodeBase64(blob) + "\"";
  }
  return "\n#[metadata]\n{\n  \"root\": 1,\n  \"nodes\": [\n    {\"type_key\": \"\"},\n"
         "    {\"type_key\": \"Map\", \"keys\": [\"relay.Constant\"], \"data\": [2]},\n"
         "    {\"type_key\": \"Array\", \"data\": [" +
         lists + "]}" + nodes + "\n  ],\n  \"b64ndarrays\": [" + tensors +
         "\n  ],\n  \"attrs\": {\"tvm_version\": \"0.19.0\"}\n}\n";
}

std::string PrintModule(const IRModule& module, const PrintOptions& options) {
  return Printer(options).Module(module);
}

std::string PrintExpr(const Expr& expr, const PrintOptions& options) {
  return Printer(options).Expression(expr);
}

namespace {

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("tvm_fixes.relay.PrintModule",
           [](const IRModule& module, bool metadata, bool types) {
             return String(PrintModule(module, {metadata, types}));
           })
      .def("tvm_fixes.relay.PrintExpr", [](const Expr& expr, bool metadata, bool types) {
        return String(PrintExpr(expr, {metadata, types}));
      });
}

}  // namespace
}  // namespace tvm_fixes::relay
