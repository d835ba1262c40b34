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
 * \file src/relax/analysis/verifier/calls.cc
 * \brief Checks of calls of operators and functions.
 */
#include <tvm/ffi/cast.h>
#include <tvm/ffi/reflection/accessor.h>

#include <algorithm>

#include "../../../ffi/tir_nodes.h"
#include "function_verifier.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief Whether a call's attributes have the class that its operator declares. */
bool HasAttrs(const CallView& call, const OpInfo& op) {
  const Object* attrs = call.attrs().get();
  return op.attrs_type_index < 0 ||
         (attrs != nullptr && attrs->type_index() == op.attrs_type_index);
}

/*! \brief The name of a non-nullable attribute that is null, or null if there is none. */
const char* NullField(const CallView& call, const OpInfo& op) {
  if (op.attrs_type_index < 0) return nullptr;
  const Object* attrs = call.attrs().get();
  const char* name = nullptr;
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(attrs->type_index());
  tvm::ffi::reflection::ForEachFieldInfoWithEarlyStop(info, [&](const TVMFFIFieldInfo* field) {
    // Nullable fields are declared as Any.
    if (field->field_static_type_index < kTVMFFIStaticObjectBegin) return false;
    const Any value = tvm::ffi::reflection::FieldGetter(field)(attrs);
    if (value != nullptr) return false;
    name = field->name.data;
    return true;
  });
  return name;
}

/*! \brief The first line of a TVM error, without a trace. */
std::string FirstLine(const std::string& text) {
  const size_t begin = text.find_first_not_of("\n ");
  if (begin == std::string::npos) return text;
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

bool IsWellFormed(const CallView& call, const OpInfo& op) {
  return call.args().defined() && static_cast<int64_t>(call.args().size()) >= op.num_inputs &&
         HasAttrs(call, op) && NullField(call, op) == nullptr;
}

TypeId FunctionVerifier::TypeOfCall(const CallView& call, const Path& path) {
  if (!call.args().defined()) {
    verifier_->Error("ir.malformed", path, "the arguments are null");
    return kUnknownType;
  }
  const size_t findings = verifier_->diagnostics().size();
  std::vector<TypeId> args;
  args.reserve(call.args().size());
  for (size_t i = 0; i < call.args().size(); ++i) {
    const ObjectRef& arg = call.args()[i];
    const auto known = TypeInScope(arg.get());
    args.push_back(known ? *known : TypeOfLeaf(arg, path.Attr("args").Item(i)));
  }
  if (call.ty_args().defined()) {
    for (size_t i = 0; i < call.ty_args().size(); ++i) {
      StatedType(call.ty_args()[i], path.Attr("ty_args").Item(i));
    }
  }
  const bool is_sound = verifier_->diagnostics().size() == findings;
  switch (KindOf(call.op().get())) {
    case Kind::kOp:
      return is_sound ? TypeOfOpCall(call, std::move(args), path) : kUnknownType;
    case Kind::kGlobalVar:
    case Kind::kVar:
    case Kind::kDataflowVar:
      return TypeOfFunctionCall(call, args, path);
    case Kind::kExternFunc:
      CheckPurity(false, std::string(nodes.extern_func.global_symbol(call.op().get())), path);
      return kUnknownType;
    default:
      verifier_->Error("call.callee", path.Attr("op"),
                       "expected an operator or a function, got " + TypeKeyOf(call.op().get()));
      return kUnknownType;
  }
}

bool FunctionVerifier::CheckAttrs(const CallView& call, const OpInfo& op, const Path& path) {
  if (!HasAttrs(call, op)) {
    verifier_->Error("op.attrs", path.Attr("attrs"),
                     Quote(op.name) + ": expected " + op.attrs_type_key + ", got " +
                         TypeKeyOf(call.attrs().get()));
    return false;
  }
  const char* null_field = NullField(call, op);
  if (null_field == nullptr) return true;
  verifier_->Error("op.attrs", path.Attr("attrs").Attr(null_field),
                   Quote(op.name) + ": the attribute " + null_field + " is null");
  return false;
}

TypeId FunctionVerifier::TypeOfOpCall(const CallView& call, std::vector<TypeId> args,
                                      const Path& path) {
  const OpInfo& op = verifier_->InfoOf(call.op().get());
  // num_inputs is ignored for operators without a rule: some of TVM's values are wrong.
  if (!op.rules.empty() && static_cast<int64_t>(args.size()) < op.num_inputs) {
    verifier_->Error("op.arity", path,
                     Quote(op.name) + ": " + Count(args.size(), "argument") + ", expected " +
                         std::to_string(op.num_inputs));
    return kUnknownType;
  }
  if (!CheckAttrs(call, op, path)) return kUnknownType;
  CheckPurity(op.is_pure, op.name, path);
  const bool are_known = std::all_of(args.begin(), args.end(),
                                     [this](TypeId type) { return types().IsComplete(type); });
  const Call site{call, op, path, std::move(args)};
  const size_t findings = verifier_->diagnostics().size();
  for (Rule rule : op.rules) rule(verifier_, site);
  for (size_t i = findings; i < verifier_->diagnostics().size(); ++i) {
    if (verifier_->diagnostics()[i].severity == Severity::kError) return kUnknownType;
  }
  if (op.is_call_tir) {
    return call.ty_args().defined() && call.ty_args().size() == 1
               ? types().Intern(call.ty_args()[0])
               : kUnknownType;
  }
  if (!are_known || !op.has_infer_type) return kUnknownType;
  const Verifier::Inferred& inferred = verifier_->InferType(site);
  if (!inferred.problem.empty()) {
    Diagnostic& wrong =
        verifier_->Error("op.type", path, Quote(op.name) + ": " + FirstLine(inferred.problem));
    for (const ObjectRef& arg : call.args()) verifier_->NoteOrigin(&wrong, arg.get());
  }
  return inferred.type;
}

TypeId FunctionVerifier::TypeOfFunctionCall(const CallView& call, const std::vector<TypeId>& args,
                                            const Path& path) {
  const ObjectRef& callee = call.op();
  const Path callee_path = path.Attr("op");
  TypeInfo signature;
  std::string name;
  if (KindOf(callee.get()) == Kind::kGlobalVar) {
    name = nodes.global_var.name_hint(callee.get());
    TypeOfGlobalVar(callee.get(), callee_path);
    const Object* function = verifier_->FindFunction(callee.get());
    if (auto view = As<FunctionView>(function)) {
      signature = verifier_->SignatureOf(*view);
      verifier_->CheckGlobalVarType(callee, signature, callee_path);
    } else if (tir_nodes.prim_func.IsInstance(function)) {
      // The lowered form of call_tir, which passes the outputs as arguments.
      signature = verifier_->SignatureOfPrimFunc(function);
      signature.is_pure = !in_dataflow_block_;
      if (signature.has_params && signature.fields.size() != args.size()) {
        verifier_
            ->Error("call.callee", callee_path,
                    Quote(name) + " is a PrimFunc with " +
                        Count(signature.fields.size(), "parameter") +
                        ", but is called as a Relax function with " + std::to_string(args.size()))
            .Hint("call it with R.call_tir, which allocates the result");
        return kUnknownType;
      }
    } else {
      return kUnknownType;
    }
  } else {
    name = nodes.var.name(callee.get());
    const TypeId type = TypeOfVar(VarView(callee.get()), callee_path);
    signature = types()[type];
    if (type != kUnknownType && signature.type_class != TypeClass::kFunction) {
      verifier_->Error("call.callee", callee_path,
                       Quote(name) + " is " + types().Text(type) + ", expected a function");
    }
    if (signature.type_class != TypeClass::kFunction) return kUnknownType;
  }
  CheckPurity(signature.is_pure, name, path);
  if (!signature.has_params) return kUnknownType;
  if (signature.fields.size() != args.size()) {
    verifier_->Error("call.arity", path,
                     Quote(name) + ": " + Count(args.size(), "argument") + ", expected " +
                         std::to_string(signature.fields.size()));
    return kUnknownType;
  }
  DimTable::Substitution symbols;
  for (size_t i = 0; i < args.size(); ++i) {
    types().Bind(signature.fields[i], args[i], &symbols);
  }
  for (size_t i = 0; i < args.size(); ++i) {
    const Fit fit = types().Match(signature.fields[i], args[i], &symbols);
    Diagnostic* wrong = verifier_->CheckFit(fit, "call.arg", path.Attr("args").Item(i),
                                            "argument " + std::to_string(i) + " of " + Quote(name));
    verifier_->NoteOrigin(wrong, call.args()[i].get());
  }
  return types().Substitute(signature.ret, symbols);
}

void FunctionVerifier::CheckPurity(bool callee_is_pure, const std::string& callee,
                                   const Path& path) {
  if (callee_is_pure || !(in_dataflow_block_ || must_be_pure_)) return;
  verifier_
      ->Error("purity", path,
              Quote(callee) + " is impure, but is called in " +
                  (in_dataflow_block_ ? "a dataflow block" : "a pure function"))
      .Hint("if it has no side effects, call it with R.call_pure_packed");
}

}  // namespace verifier
}  // namespace tvm_fixes
