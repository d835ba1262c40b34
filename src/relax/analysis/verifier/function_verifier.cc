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
 * \file src/relax/analysis/verifier/function_verifier.cc
 * \brief Checks of functions, blocks and bindings: scopes and definitions.
 */
#include "function_verifier.h"

#include <tvm/ffi/cast.h>

#include <algorithm>
#include <utility>

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief Branches and functions nested deeper are skipped, to protect the stack. */
constexpr int kMaxBodyDepth = 500;

/*! \brief Whether a function has the attribute relax.force_pure. */
bool IsForcedPure(const FunctionView& function) {
  const auto value = FunctionAttr(function.attrs(), "relax.force_pure");
  return value && value->try_cast<bool>().value_or(false);
}

/*! \brief The names of the parameters that a function may overwrite. */
std::optional<Map<String, Any>> UpdatesOf(const FunctionView& function) {
  const auto value = FunctionAttr(function.attrs(), "updates");
  return value ? value->try_cast<Map<String, Any>>() : std::nullopt;
}

}  // namespace

void FunctionVerifier::Run(const FunctionView& function, const Path& path) {
  const bool outer_must_be_pure = must_be_pure_;
  const bool outer_in_dataflow_block = in_dataflow_block_;
  const size_t mark = scope_.size();
  in_dataflow_block_ = false;
  const bool is_forced = IsForcedPure(function);
  must_be_pure_ = function.is_pure() && !is_forced;
  if (is_forced && !function.is_pure()) {
    verifier_->Error("purity", path.Attr("is_pure"),
                     "the attribute relax.force_pure is set, but is_pure is not");
  }
  const Path params_path = path.Attr("params");
  const auto updates = UpdatesOf(function);
  if (function.params().defined()) {
    // A parameter may use a symbol that a later parameter defines.
    for (size_t i = 0; i < function.params().size(); ++i) {
      const ObjectRef& param = function.params()[i];
      if (As<VarView>(param)) DefineSymbols(types().Intern(TypeOf(param)), params_path.Item(i));
    }
    for (size_t i = 0; i < function.params().size(); ++i) {
      const ObjectRef& param = function.params()[i];
      const Path param_path = params_path.Item(i);
      if (!As<VarView>(param)) {
        verifier_->Error("ir.malformed", param_path,
                         "expected a variable, got " + TypeKeyOf(param.get()));
        continue;
      }
      if (VarView(param.get()).is_dataflow()) {
        verifier_->Error("scope.dataflow", param_path,
                         "the parameter " + NameOf(param.get()) + " is a dataflow variable");
      }
      Define(param, nullptr, param_path, param_path);
      Variable* variable = verifier_->FindVariable(param.get());
      if (updates && variable != nullptr) {
        variable->is_updated = updates->count(VarView(param.get()).name()) != 0;
      }
    }
  } else {
    verifier_->Error("ir.malformed", params_path, "the parameters are null");
  }
  const TypeId ret = StatedType(function.ret_ty(), path.Attr("ret_ty"));
  if (ret == kUnknownType && types().Problems(function.ret_ty()).empty()) {
    verifier_->Error("type.missing", path, "the function has no result type");
  }
  VisitBody(function.body(), ret, "type.return", "the result", path.Attr("body"));
  LeaveScope(mark);
  must_be_pure_ = outer_must_be_pure;
  in_dataflow_block_ = outer_in_dataflow_block;
}

std::vector<const Object*> FunctionVerifier::VisitBody(const ObjectRef& body, TypeId expected,
                                                       const char* rule, const char* what,
                                                       const Path& path) {
  auto seq = As<SeqExprView>(body);
  if (!seq) {
    verifier_->Error("ir.malformed", path,
                     std::string(what) + ": expected a SeqExpr, got " + TypeKeyOf(body.get()));
    return {};
  }
  if (depth_ == kMaxBodyDepth) {
    verifier_->Error("ir.malformed", path, std::string(what) + " is nested more than 500 deep");
    return {};
  }
  ++depth_;
  const size_t mark = scope_.size();
  if (seq->blocks().defined()) {
    const Path blocks_path = path.Attr("blocks");
    for (size_t i = 0; i < seq->blocks().size(); ++i) {
      VisitBlock(seq->blocks()[i], blocks_path.Item(i));
    }
  } else {
    verifier_->Error("ir.malformed", path, "the blocks are null");
  }
  const Path body_path = path.Attr("body");
  const TypeId found = TypeOfLeaf(seq->body(), body_path);
  const TypeId stated = CheckStated(body, found, "type.seq", path);
  Diagnostic* wrong = verifier_->CheckFit(
      types().Compare(expected, found != kUnknownType ? found : stated), rule, body_path, what);
  verifier_->NoteOrigin(wrong, seq->body().get());
  // A branch or a local function; the outermost body has no enclosing scope.
  std::vector<const Object*> memory;
  if (depth_ > 1) memory = MemoryFromOutside(seq->body().get(), mark);
  LeaveScope(mark);
  --depth_;
  return memory;
}

std::vector<const Object*> FunctionVerifier::MemoryFromOutside(const Object* result, size_t mark) {
  std::vector<const Object*> found;
  std::vector<const Object*> open = {result};
  std::unordered_set<const Object*> seen = {result};
  const std::unordered_set<const Object*> inside(scope_.begin() + mark, scope_.end());
  auto add = [&](const Object* memory) {
    if (memory != nullptr && inside.count(memory) == 0) found.push_back(memory);
  };
  while (!open.empty()) {
    const Object* expr = open.back();
    open.pop_back();
    if (const Variable* variable = verifier_->FindVariable(expr)) {
      add(variable->memory);
      auto choices = verifier_->choices_.find(variable->memory);
      if (choices != verifier_->choices_.end()) {
        for (const Object* memory : choices->second) add(memory);
      }
    }
    auto tuple = As<TupleView>(verifier_->ValueOf(expr));
    if (!tuple || !tuple->fields().defined()) continue;
    for (const ObjectRef& field : tuple->fields()) {
      if (seen.insert(field.get()).second) open.push_back(field.get());
    }
  }
  return found;
}

void FunctionVerifier::VisitBlock(const ObjectRef& block, const Path& path) {
  auto view = As<BlockView>(block);
  if (!view || !view->bindings().defined()) {
    verifier_->Error("ir.malformed", path,
                     "expected a block of bindings, got " + TypeKeyOf(block.get()));
    return;
  }
  const bool outer = in_dataflow_block_;
  const size_t mark = scope_.size();
  in_dataflow_block_ = view->is_dataflow();
  const Path bindings_path = path.Attr("bindings");
  for (size_t i = 0; i < view->bindings().size(); ++i) {
    VisitBinding(view->bindings()[i], bindings_path.Item(i));
  }
  in_dataflow_block_ = outer;
  if (!view->is_dataflow()) return;
  auto is_local = [](const Object* var) { return KindOf(var) == Kind::kDataflowVar; };
  for (size_t i = mark; i < scope_.size(); ++i) {
    if (is_local(scope_[i])) verifier_->variables_.erase(scope_[i]);
  }
  scope_.erase(std::remove_if(scope_.begin() + mark, scope_.end(), is_local), scope_.end());
}

void FunctionVerifier::VisitBinding(const ObjectRef& binding, const Path& path) {
  auto view = As<BindingView>(binding);
  if (!view || !As<VarView>(view->var())) {
    verifier_->Error("ir.malformed", path,
                     view ? "expected a variable to bind, got " + TypeKeyOf(view->var().get())
                          : "expected a binding, got " + TypeKeyOf(binding.get()));
    return;
  }
  const KeptPath origin = path;
  const Path::Scratch scratch;
  if (view->is_match_cast()) return VisitMatchCast(*view, origin);
  if (auto function = As<FunctionView>(view->value())) {
    return VisitLocalFunction(*view, *function, origin);
  }
  const ObjectRef& value = view->value();
  const Path value_path = path.Attr("value");
  const TypeId found = TypeOfValue(value, value_path);
  const TypeId stated = CheckStated(value, found, "type.value", value_path);
  Define(view->var(), value.get(), path.Attr("var"), origin);
  const TypeId bound = types().Intern(TypeOf(view->var()));
  if (bound == stated) return;
  const Fit fit = types().Compare(bound, stated);
  const std::string what = NameOf(view->var().get()) + " cannot hold its value";
  Diagnostic* wrong = verifier_->CheckFit(fit, "type.binding", path.Attr("var"), what);
  if (wrong != nullptr && fit.narrows) {
    wrong->severity = Severity::kError;
    wrong->Hint(
        "use R.match_cast to state what the value's type leaves open; it checks at run time");
  }
}

void FunctionVerifier::VisitMatchCast(const BindingView& binding, const KeptPath& path) {
  const Path value_path = path.Attr("value");
  const Path type_path = path.Attr("ty");
  const TypeId found = TypeOfValue(binding.value(), value_path);
  const TypeId actual = CheckStated(binding.value(), found, "type.value", value_path);
  const TypeId target = types().Intern(binding.cast_ty());
  // New symbols are bound to the matched value; known symbols are compared with it.
  DimTable::Substitution known;
  for (const Object* var : types().Vars(target)) {
    if (verifier_->FindVariable(var) == nullptr) continue;
    known.emplace(var, dims().Intern(tvm::ffi::GetRef<ObjectRef>(var)));
  }
  const Fit fit = types().Match(target, actual, &known);
  if (fit.relation == Relation::kDisproved) {
    Diagnostic* wrong =
        verifier_->CheckFit(fit, "type.match_cast", value_path, "the cast can never succeed");
    verifier_->NoteOrigin(wrong, binding.value().get());
  }
  CheckReplaced(target, actual, known, value_path);
  DefineSymbols(target, type_path);
  StatedType(binding.cast_ty(), type_path);
  Define(binding.var(), binding.value().get(), path.Attr("var"), path);
  const TypeId bound = types().Intern(TypeOf(binding.var()));
  verifier_->CheckFit(types().Compare(bound, target), "type.binding", path.Attr("var"),
                      NameOf(binding.var().get()) + " cannot hold the result of the cast");
}

void FunctionVerifier::CheckReplaced(TypeId target, TypeId actual,
                                     const DimTable::Substitution& known, const Path& path) {
  const std::vector<DimId>& wanted = types()[target].dims;
  const std::vector<DimId>& given = types()[actual].dims;
  if (wanted.size() != given.size()) return;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Object* var = dims().AsVar(wanted[i]);
    if (var == nullptr || known.count(var) == 0 || wanted[i] == given[i]) continue;
    const std::vector<const Object*>& vars = dims().Vars(given[i]);
    if (std::find(vars.begin(), vars.end(), var) == vars.end()) continue;
    const std::string symbol = "`" + dims().Text(wanted[i]) + "`";
    verifier_->Error("type.match_cast", path,
                     "dim " + std::to_string(i) + ": `" + dims().Text(given[i]) + "` is cast to " +
                         symbol + ", which it depends on: TVM would substitute " + symbol +
                         " endlessly");
  }
}

void FunctionVerifier::VisitLocalFunction(const BindingView& binding, const FunctionView& function,
                                          const KeptPath& path) {
  // A local function may call itself.
  Define(binding.var(), binding.value().get(), path.Attr("var"), path);
  Run(function, path.Attr("value"));
}

void FunctionVerifier::Define(const ObjectRef& var, const Object* value, const Path& path,
                              const KeptPath& origin) {
  const VarView view(var.get());
  if (view.is_dataflow() && !in_dataflow_block_ && value != nullptr) {
    verifier_->Error(
        "scope.dataflow", path,
        NameOf(var.get()) + " is a dataflow variable bound outside of a dataflow block");
  }
  auto [it, is_new] = verifier_->variables_.try_emplace(var.get());
  Variable& variable = it->second;
  const bool is_symbol = !is_new && (variable.memory == nullptr || variable.is_poisoned);
  variable.is_poisoned = false;
  if (!is_new && !is_symbol) {
    verifier_->Error("scope.redefined", path, NameOf(var.get()) + " is defined more than once")
        .Note("first defined here", variable.path);
    return;
  }
  if (is_new) scope_.push_back(var.get());
  variable.path = origin;
  variable.value = value;
  variable.memory = var.get();
  if (const Variable* source = verifier_->FindVariable(SharedWith(value))) {
    variable.memory = source->memory;
  }
  if (KindOf(value) == Kind::kIf && !memory_of_if_.empty()) {
    verifier_->choices_[var.get()] = std::exchange(memory_of_if_, {});
  }
  if (value == nullptr) ClaimForFunction(var.get(), path);
  variable.type = StatedType(TypeOf(var), path);
  if (variable.type == kUnknownType && types().Problems(TypeOf(var)).empty()) {
    verifier_->Error("type.missing", path, NameOf(var.get()) + " has no type");
  }
}

void FunctionVerifier::DefineSymbols(TypeId type, const Path& path) {
  const TypeInfo& info = types()[type];
  auto define = [&](const Object* var) {
    if (var == nullptr || !verifier_->variables_.try_emplace(var).second) return;
    verifier_->variables_[var].path = path;
    scope_.push_back(var);
    ClaimForFunction(var, path);
  };
  if (info.type_class == TypeClass::kFunction) return;
  for (DimId dim : info.dims) define(dims().AsVar(dim));
  define(info.shape_var);
  for (TypeId field : info.fields) DefineSymbols(field, path);
}

void FunctionVerifier::Poison(const Object* var, const Path& path) {
  Variable& variable = verifier_->variables_[var];
  variable.path = path;
  variable.memory = var;
  variable.is_poisoned = true;
  scope_.push_back(var);
}

void FunctionVerifier::ClaimForFunction(const Object* var, const Path& path) {
  const auto& [it, is_new] = verifier_->owner_.try_emplace(var, verifier_->function_);
  if (is_new || it->second == verifier_->function_) return;
  verifier_->Error("scope.shared", path,
                   Quote(std::string(nodes.var.name(var))) + " is used by two functions, " +
                       Quote(it->second) + " and this one");
}

const Object* FunctionVerifier::SharedWith(const Object* value) {
  if (auto get_item = As<TupleGetItemView>(value)) {
    auto tuple = As<TupleView>(verifier_->ValueOf(get_item->tuple_value().get()));
    const int32_t index = get_item->index();
    if (!tuple || index < 0 || index >= static_cast<int64_t>(tuple->fields().size())) {
      return get_item->tuple_value().get();
    }
    return tuple->fields()[index].get();
  }
  auto call = As<CallView>(value);
  if (!call) return value;
  const Object* op = call->op().get();
  const bool is_view = nodes.op.IsInstance(op) && verifier_->InfoOf(op).is_view;
  return is_view && call->args().defined() && !call->args().empty() ? call->args()[0].get()
                                                                    : nullptr;
}

void FunctionVerifier::LeaveScope(size_t mark) {
  if (scope_.size() == mark) return;
  for (size_t i = mark; i < scope_.size(); ++i) verifier_->variables_.erase(scope_[i]);
  scope_.resize(mark);
  types_in_scope_.clear();
}

}  // namespace verifier
}  // namespace tvm_fixes
