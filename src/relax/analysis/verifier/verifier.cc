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
 * \file src/relax/analysis/verifier/verifier.cc
 * \brief Shared state of the rules, and the entry points.
 */
#include "verifier.h"

#include <tvm/ffi/cast.h>
#include <tvm/ffi/extra/structural_equal.h>
#include <tvm/ffi/extra/structural_hash.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>

#include "../../../ffi/registration.h"
#include "../../../ffi/tir_nodes.h"
#include "../../ir/build.h"
#include "function_verifier.h"

namespace tvm_fixes {
namespace verifier {

namespace {

std::unordered_map<std::string, std::vector<Rule>>& Rules() {
  static std::unordered_map<std::string, std::vector<Rule>> rules;
  return rules;
}

/*!
 * \brief The attribute classes of operators that use attributes without declaring them, as found by
 *        calling each operator's constructor in TVM 0.27.
 */
const char* UndeclaredAttrs(const std::string& op_name) {
  static const std::unordered_map<std::string, const char*> classes = {
      {"relax.matmul", "relax.attrs.MatmulAttrs"},
      {"relax.sum", "relax.attrs.StatisticalAttrs"},
      {"relax.mean", "relax.attrs.StatisticalAttrs"},
      {"relax.min", "relax.attrs.StatisticalAttrs"},
      {"relax.max", "relax.attrs.StatisticalAttrs"},
      {"relax.prod", "relax.attrs.StatisticalAttrs"},
      {"relax.std", "relax.attrs.StatisticalAttrs"},
      {"relax.variance", "relax.attrs.StatisticalAttrs"},
      {"relax.median", "relax.attrs.StatisticalAttrs"},
      {"relax.argmax", "relax.attrs.ArgmaxArgminAttrs"},
      {"relax.argmin", "relax.attrs.ArgmaxArgminAttrs"},
      {"relax.bucketize", "relax.attrs.BucketizeAttrs"}};
  auto found = classes.find(op_name);
  return found == classes.end() ? "" : found->second;
}

int32_t TypeIndexOf(const std::string& type_key) {
  TVMFFIByteArray key{type_key.data(), type_key.size()};
  int32_t index = -1;
  if (TVMFFITypeKeyToIndex(&key, &index) == 0) return index;
  TVMFFIObjectHandle error = nullptr;
  TVMFFIErrorMoveFromRaised(&error);
  TVMFFIObjectDecRef(error);
  return -1;
}

bool IsOneOf(const std::string& name, std::initializer_list<const char*> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Path PathOf(const Object* global_var) { return Path::Root().Attr("functions").Key(global_var); }

}  // namespace

void RegisterRule(const char* op_name, Rule rule) { Rules()[op_name].push_back(rule); }

Verifier::Verifier(const ObjectRef& mod) : mod_(mod), types_(&dims_) {
  if (!nodes.module.functions(mod.get()).defined()) return;
  for (const auto& [global_var, function] : nodes.module.functions(mod.get())) {
    functions_.emplace(global_var.get(), function.get());
  }
}

const Object* Verifier::FindFunction(const Object* global_var) const {
  auto found = functions_.find(global_var);
  return found == functions_.end() ? nullptr : found->second;
}

TypeInfo Verifier::SignatureOf(const FunctionView& function) {
  TypeInfo signature;
  signature.type_class = TypeClass::kFunction;
  signature.has_params = function.params().defined();
  signature.is_pure = function.is_pure();
  signature.ret = types_.Intern(function.ret_ty());
  if (!signature.has_params) return signature;
  for (const ObjectRef& param : function.params()) {
    signature.fields.push_back(types_.Intern(TypeOf(param)));
  }
  return signature;
}

TypeInfo Verifier::SignatureOfPrimFunc(const Object* function) {
  TypeInfo signature;
  signature.type_class = TypeClass::kFunction;
  const Array<ObjectRef>& params = tir_nodes.prim_func.params(function);
  signature.has_params = params.defined();
  if (!signature.has_params) return signature;
  for (const ObjectRef& param : params) {
    const TypeId type = types_.Intern(TypeOf(param));
    // A handle accepts any tensor.
    const bool is_pointer = types_[type].type_class == TypeClass::kOther;
    signature.fields.push_back(is_pointer ? kUnknownType : type);
  }
  return signature;
}

void Verifier::CheckGlobalVarType(const ObjectRef& global_var, const TypeInfo& signature,
                                  const Path& path) {
  const TypeId stated = types_.Intern(TypeOf(global_var));
  if (stated == kUnknownType) return;
  const Fit fit = types_.Compare(stated, types_.Intern(signature));
  if (fit.relation != Relation::kDisproved) return;
  const std::string name = nodes.global_var.name_hint(global_var.get());
  CheckFit(fit, "global.stale-type", path, "the type of " + Quote(name) + " is out of date")
      ->Hint("tvm_fixes.transform.RefreshTypes updates it");
}

Variable* Verifier::FindVariable(const Object* var) {
  auto found = variables_.find(var);
  return found == variables_.end() ? nullptr : &found->second;
}

const Object* Verifier::ValueOf(const Object* expr) {
  // The limit guards against cycles in malformed modules.
  for (int steps = 0; steps < 100; ++steps) {
    const Variable* variable = FindVariable(expr);
    if (variable == nullptr || variable->value == nullptr) break;
    expr = variable->value;
  }
  return expr;
}

void Verifier::NoteOrigin(Diagnostic* diagnostic, const Object* expr) {
  const Variable* variable = FindVariable(expr);
  if (diagnostic == nullptr || variable == nullptr) return;
  const std::string name = Quote(std::string(VarView(expr).name()));
  auto call = As<CallView>(variable->value);
  if (call && nodes.op.IsInstance(call->op().get())) {
    diagnostic->Note(name + " is the result of " + std::string(nodes.op.name(call->op().get())),
                     variable->path);
  } else if (variable->value == nullptr) {
    diagnostic->Note(name + " is a parameter", variable->path);
  } else {
    diagnostic->Note(name + " is bound here", variable->path);
  }
}

PrimFuncReaches& Verifier::ReachesOf(const Object* global_var) {
  auto [it, is_new] = reaches_.try_emplace(global_var);
  if (is_new) it->second = FindReachesAt(global_var, {});
  return it->second;
}

PrimFuncReaches Verifier::FindReachesAt(const Object* global_var,
                                        const DimTable::Substitution& values) {
  return FindReaches(&dims_, FindFunction(global_var), PathOf(global_var), values);
}

void Verifier::Overwrite(const Object* var, const Path& path) {
  const Variable* variable = FindVariable(var);
  if (variable == nullptr) return;
  overwritten_.insert_or_assign(variable->memory, Overwritten{path, true});
  auto choices = choices_.find(variable->memory);
  if (choices == choices_.end()) return;
  for (const Object* memory : choices->second)
    overwritten_.emplace(memory, Overwritten{path, false});
}

std::optional<Verifier::Overwritten> Verifier::OverwrittenAt(const Object* var) {
  if (overwritten_.empty()) return std::nullopt;
  std::optional<Overwritten> worst;
  auto look = [&](const Object* memory, bool is_certain) {
    auto found = overwritten_.find(memory);
    if (found == overwritten_.end() || (worst && worst->is_certain)) return;
    worst = Overwritten{found->second.path, is_certain && found->second.is_certain};
  };
  // Tuples may share fields; visit each once.
  std::vector<const Object*> open = {var};
  std::unordered_set<const Object*> seen = {var};
  while (!open.empty()) {
    const Object* expr = open.back();
    open.pop_back();
    if (const Variable* variable = FindVariable(expr)) {
      look(variable->memory, true);
      auto choices = choices_.find(variable->memory);
      if (choices != choices_.end()) {
        for (const Object* memory : choices->second) look(memory, false);
      }
    }
    auto tuple = As<TupleView>(ValueOf(expr));
    if (!tuple || !tuple->fields().defined()) continue;
    for (const ObjectRef& field : tuple->fields()) {
      if (seen.insert(field.get()).second) open.push_back(field.get());
    }
  }
  return worst;
}

const OpInfo& Verifier::InfoOf(const Object* op) {
  auto [it, is_new] = ops_.try_emplace(op);
  OpInfo& info = it->second;
  if (!is_new) return info;
  static const GlobalFunction get_attr("ir.OpGetAttr");
  const ObjectRef ref = tvm::ffi::GetRef<ObjectRef>(op);
  info.name = nodes.op.name(op);
  info.attrs_type_key = nodes.op.attrs_type_key(op);
  if (info.attrs_type_key.empty()) info.attrs_type_key = UndeclaredAttrs(info.name);
  if (!info.attrs_type_key.empty()) info.attrs_type_index = TypeIndexOf(info.attrs_type_key);
  info.num_inputs = nodes.op.num_inputs(op);
  const Any purity = get_attr(ref, "FPurity");
  info.is_pure = purity.try_cast<bool>().value_or(true);
  info.has_infer_type = get_attr(ref, "FInferType") != nullptr;
  info.is_view = IsOneOf(info.name, {"relax.reshape", "relax.flatten", "relax.squeeze",
                                     "relax.expand_dims", "relax.memory.view"});
  info.is_call_tir =
      IsOneOf(info.name, {"relax.call_tir", "relax.call_tir_inplace", "relax.call_tir_with_grad"});
  if (auto found = Rules().find(info.name); found != Rules().end()) info.rules = found->second;
  return info;
}

Diagnostic& Verifier::Report(Severity severity, const char* rule, const Path& path,
                             std::string message) {
  diagnostics_.push_back({severity, rule, function_, path, std::move(message), {}, ""});
  return diagnostics_.back();
}

Diagnostic* Verifier::Check(Relation relation, const char* rule, const Path& path,
                            std::string message) {
  if (relation == Relation::kProved) return nullptr;
  const bool is_wrong = relation == Relation::kDisproved;
  return &Report(is_wrong ? Severity::kError : Severity::kWarning, rule, path, std::move(message));
}

Diagnostic* Verifier::CheckFit(const Fit& fit, const char* rule, const Path& path,
                               const std::string& what) {
  if (fit.relation == Relation::kProved) return nullptr;
  std::string message = what;
  for (size_t i = 0; i < fit.reasons.size(); ++i) {
    message += (i == 0 ? ": " : "; ") + fit.reasons[i];
  }
  return Check(fit.relation, rule, path, std::move(message));
}

namespace {

/*!
 * \brief Append what the type of a call depends on besides its operator and attributes.
 *
 * For a tensor, that is only its type. For a scalar literal or variable, it is the value, which the
 * type of an arange or a slice depends on.
 */
void AppendKey(const ObjectRef& arg, TypeId type, TypeTable* types, std::string* key) {
  const Kind kind = KindOf(arg.get());
  AppendBytes(kind, key);
  AppendBytes(type, key);
  const TypeInfo& info = (*types)[type];
  if (auto tuple = As<TupleView>(arg)) {
    const Array<ObjectRef>& fields = tuple->fields();
    for (size_t i = 0; i < fields.size(); ++i) {
      AppendKey(fields[i], i < info.fields.size() ? info.fields[i] : kUnknownType, types, key);
    }
    return;
  }
  if (info.type_class == TypeClass::kTensor || info.type_class == TypeClass::kTuple) return;
  if (kind == Kind::kShapeExpr && info.has_dims) return;
  const DimId literal = types->dims().Intern(arg);
  AppendBytes(literal, key);
  // Other leaves, such as strings and shape variables, are compared by identity.
  if (literal == kUnknownDim) AppendBytes(arg.get(), key);
}

}  // namespace

const Object* Verifier::CanonicalAttrs(const Object* attrs) {
  if (attrs == nullptr) return nullptr;
  auto [it, is_new] = canonical_attrs_.try_emplace(attrs, attrs);
  if (!is_new) return it->second;
  // Most calls have their own attributes object, so compare by structure. Classes without
  // structural equality throw.
  try {
    const ObjectRef ref = tvm::ffi::GetRef<ObjectRef>(attrs);
    std::vector<const Object*>& alike = attrs_of_hash_[tvm::ffi::StructuralHash::Hash(ref)];
    for (const Object* other : alike) {
      if (!tvm::ffi::StructuralEqual::Equal(ref, tvm::ffi::GetRef<ObjectRef>(other))) continue;
      it->second = other;
      return other;
    }
    alike.push_back(attrs);
  } catch (const tvm::ffi::Error&) {
    return attrs;
  }
  return attrs;
}

const Verifier::Inferred& Verifier::InferType(const Call& call) {
  std::string key;
  AppendBytes(call.view.op().get(), &key);
  AppendBytes(CanonicalAttrs(call.view.attrs().get()), &key);
  for (size_t i = 0; i < call.args.size(); ++i) {
    AppendKey(call.view.args()[i], call.args[i], &types_, &key);
  }
  if (call.view.ty_args().defined()) {
    for (const ObjectRef& ty_arg : call.view.ty_args()) {
      AppendBytes(types_.Intern(ty_arg), &key);
    }
  }
  auto [it, is_new] = inferred_.try_emplace(std::move(key));
  Inferred& result = it->second;
  if (!is_new) return result;
  const Array<ObjectRef> ty_args =
      call.view.ty_args().defined() ? call.view.ty_args() : Array<ObjectRef>();
  // TVM's inference rules may throw errors of any class.
  try {
    const ObjectRef fresh =
        MakeCall(call.view.op(), call.view.args(), call.view.attrs(), ty_args, ObjectRef(nullptr));
    const ObjectRef normalized = Normalize(MakeBlockBuilder(mod_), fresh);
    kept_.push_back(TypeOf(normalized));
    result.type = types_.Intern(kept_.back());
  } catch (const std::exception& error) {
    result.problem = error.what();
  }
  return result;
}

void Verifier::Run() {
  if (!nodes.module.functions(mod_.get()).defined()) {
    Error("ir.malformed", Path::Root().Attr("functions"), "the functions are null");
  }
  VerifySymbols();
  std::map<std::string, const Object*> in_order;
  for (const auto& [global_var, function] : functions_) {
    in_order.emplace(std::string(nodes.global_var.name_hint(global_var)), global_var);
  }
  for (const auto& [name, global_var] : in_order) {
    function_ = name;
    const Path path = PathOf(global_var);
    const Object* function = FindFunction(global_var);
    if (auto view = As<FunctionView>(function)) {
      FunctionVerifier(this).Run(*view, path);
    } else if (tir_nodes.prim_func.IsInstance(function)) {
      CheckReaches(this, global_var);
    } else if (KindOf(function) != Kind::kExternFunc) {
      Error("ir.malformed", path, "expected a function, got " + TypeKeyOf(function));
    }
  }
}

void Verifier::VerifySymbols() {
  std::map<std::string, std::vector<const Object*>> by_symbol;
  for (const auto& [global_var, function] : functions_) {
    const ObjectRef* attrs = nullptr;
    if (As<FunctionView>(function)) attrs = &nodes.function.attrs(function);
    if (tir_nodes.prim_func.IsInstance(function)) attrs = &tir_nodes.prim_func.attrs(function);
    const auto value = attrs == nullptr ? std::nullopt : FunctionAttr(*attrs, "global_symbol");
    if (!value) continue;
    function_ = nodes.global_var.name_hint(global_var);
    const Path path = PathOf(global_var).Attr("attrs");
    auto symbol = value->try_cast<String>();
    if (!symbol) {
      Error("global.symbol", path, "global_symbol is not a string");
      continue;
    }
    if (As<FunctionView>(function) && std::string(*symbol) != function_) {
      Error("global.symbol", path,
            "global_symbol is " + Quote(std::string(*symbol)) + ", the function is " +
                Quote(function_));
    }
    by_symbol[std::string(*symbol)].push_back(global_var);
  }
  for (auto& [symbol, global_vars] : by_symbol) {
    std::sort(global_vars.begin(), global_vars.end(), [](const Object* lhs, const Object* rhs) {
      return std::string(nodes.global_var.name_hint(lhs)) <
             std::string(nodes.global_var.name_hint(rhs));
    });
    for (size_t i = 1; i < global_vars.size(); ++i) {
      function_ = nodes.global_var.name_hint(global_vars[i]);
      Error("global.symbol", PathOf(global_vars[i]).Attr("attrs"),
            "global_symbol " + Quote(symbol) + " is also used by " +
                Quote(std::string(nodes.global_var.name_hint(global_vars[0]))))
          .Hint("function names are unique in a library: rename one of them");
    }
  }
}

namespace {

Array<Map<String, Any>> Verify(const ObjectRef& mod) {
  if (!nodes.module.IsInstance(mod.get())) {
    TVM_FFI_THROW(TypeError) << "verify: expected an IRModule, got " << TypeKeyOf(mod.get());
  }
  Verifier verifier(mod);
  verifier.Run();
  Array<Map<String, Any>> found;
  for (const Diagnostic& diagnostic : verifier.diagnostics()) found.push_back(diagnostic.ToMap());
  return found;
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.analysis.Verify", Verify);
}

}  // namespace

}  // namespace verifier
}  // namespace tvm_fixes
