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
 * \file src/relax/analysis/verifier/call_tir.cc
 * \brief Checks of call_tir: the callee, its buffers, and in-place writes.
 */
#include <tvm/ffi/cast.h>

#include <algorithm>

#include "../../../ffi/registration.h"
#include "../../../ffi/tir_nodes.h"
#include "verifier.h"

namespace tvm_fixes {
namespace verifier {

namespace {

struct CallTIRInplaceAttrsNode : NodeLayout {
  CallTIRInplaceAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.CallTIRInplaceAttrs"}) {}
  Field<Array<int64_t>> inplace_indices{this, {"inplace_indices"}};
};

CallTIRInplaceAttrsNode call_tir_inplace_attrs;

/*! \brief The parts of a call_tir. */
struct PrimCall {
  const Call& call;
  std::string callee;
  const Array<ObjectRef>& params;
  const Array<ObjectRef>& args;
  std::vector<TypeId> arg_types;
  std::vector<TypeId> out_types;
  /*!
   * \brief For each output, the argument that it overwrites, or -1 for a newly allocated output.
   */
  std::vector<int64_t> inplace;

  Path ArgPath(size_t i) const { return call.ArgPath(1).Attr("fields").Item(i); }
  size_t NumOwnOutputs() const {
    size_t count = 0;
    for (size_t i = 0; i < out_types.size(); ++i) count += IsInplace(i) ? 0 : 1;
    return count;
  }
  bool IsInplace(size_t out) const { return out < inplace.size() && inplace[out] >= 0; }
};

/*! \brief Match a value with a parameter and bind the parameter's symbols. */
void CheckParam(Verifier* verifier, const PrimCall& call, const ObjectRef& param, TypeId actual,
                const char* rule, const Path& path, const std::string& what, const ObjectRef& value,
                DimTable::Substitution* symbols) {
  const TypeId expected = verifier->types().Intern(TypeOf(param));
  // A handle parameter carries no shape.
  const TypeClass type_class = verifier->types()[expected].type_class;
  if (type_class != TypeClass::kTensor && type_class != TypeClass::kPrim) return;
  const Fit fit = verifier->types().Match(expected, actual, symbols);
  Diagnostic* found = verifier->CheckFit(fit, rule, path, what + " of " + Quote(call.callee));
  if (found == nullptr) return;
  found->Note(Quote(call.callee) + " takes " + NameOf(param.get()) + ": " +
              verifier->types().Text(expected) + ", got " + verifier->types().Text(actual));
  verifier->NoteOrigin(found, value.get());
  if (fit.relation == Relation::kDisproved) {
    found->Hint("regenerate " + Quote(call.callee) + " for these shapes, or fix the caller");
  }
}

/*! \brief The values of symbols that are scalar parameters or whole extents of parameters. */
DimTable::Substitution BindSymbols(Verifier* verifier, const PrimCall& call) {
  DimTable::Substitution symbols;
  for (size_t i = 0; i < call.args.size(); ++i) {
    const DimId scalar = verifier->dims().Intern(call.args[i]);
    if (scalar != kUnknownDim && nodes.prim_type.IsInstance(TypeOf(call.params[i]).get())) {
      symbols.emplace(call.params[i].get(), scalar);
    }
  }
  for (size_t i = 0; i < call.args.size(); ++i) {
    const TypeId expected = verifier->types().Intern(TypeOf(call.params[i]));
    verifier->types().Bind(expected, call.arg_types[i], &symbols);
  }
  size_t param = call.args.size();
  for (size_t i = 0; i < call.out_types.size(); ++i) {
    if (call.IsInplace(i)) continue;
    const TypeId expected = verifier->types().Intern(TypeOf(call.params[param++]));
    verifier->types().Bind(expected, call.out_types[i], &symbols);
  }
  return symbols;
}

void CheckBuffers(Verifier* verifier, const PrimCall& call) {
  const size_t inputs = call.args.size();
  const size_t outputs = call.NumOwnOutputs();
  if (call.params.size() != inputs + outputs) {
    verifier->Error("call_tir.arity", call.call.path,
                    Quote(call.callee) + " takes " + Count(call.params.size(), "parameter") +
                        ", got " + Count(inputs, "argument") + " and " + Count(outputs, "result"));
    return;
  }
  const size_t num_found = verifier->diagnostics().size();
  DimTable::Substitution symbols = BindSymbols(verifier, call);
  for (size_t i = 0; i < inputs; ++i) {
    CheckParam(verifier, call, call.params[i], call.arg_types[i], "call_tir.arg", call.ArgPath(i),
               "argument " + std::to_string(i), call.args[i], &symbols);
  }
  size_t param = inputs;
  const Path out_path = call.call.path.Attr("ty_args").Item(0);
  for (size_t i = 0; i < call.out_types.size(); ++i) {
    const std::string what = "result " + std::to_string(i);
    if (call.IsInplace(i)) {
      const auto source = static_cast<size_t>(call.inplace[i]);
      const Fit fit = verifier->types().Compare(call.arg_types[source], call.out_types[i]);
      verifier->CheckFit(fit, "call_tir_inplace.type", out_path,
                         what + " is written in place of argument " + std::to_string(source));
      continue;
    }
    CheckParam(verifier, call, call.params[param++], call.out_types[i], "call_tir.out", out_path,
               what, ObjectRef(nullptr), &symbols);
  }
  // The symbols of a mismatched call are meaningless.
  if (verifier->diagnostics().size() == num_found) {
    CheckReachesAt(verifier, call.call.arg(0), symbols, call.call.path);
  }
}

/*! \brief Read the in-place outputs; false if inplace_indices is malformed. */
bool ReadInplace(Verifier* verifier, const Call& call, size_t num_args, size_t num_outputs,
                 std::vector<int64_t>* inplace) {
  const Object* attrs = call.view.attrs().get();
  if (!call_tir_inplace_attrs.IsInstance(attrs)) return true;
  const Path path = call.path.Attr("attrs").Attr("inplace_indices");
  const Array<int64_t>& indices = call_tir_inplace_attrs.inplace_indices(attrs);
  if (indices.size() != num_outputs) {
    verifier->Error("call_tir_inplace.index", path,
                    "expected " + std::to_string(num_outputs) +
                        " indices, one for each result, got " + std::to_string(indices.size()));
    return false;
  }
  std::vector<bool> is_taken(num_args, false);
  for (int64_t index : indices) {
    if (index < -1 || index >= static_cast<int64_t>(num_args) || (index >= 0 && is_taken[index])) {
      verifier->Error("call_tir_inplace.index", path,
                      "index " + std::to_string(index) + " is out of range or repeated, with " +
                          Count(num_args, "argument"));
      return false;
    }
    if (index >= 0) is_taken[index] = true;
    inplace->push_back(index);
  }
  return true;
}

/*! \brief Memory that an in-place call overwrites must not be shared. */
void CheckOverwritten(Verifier* verifier, const PrimCall& call) {
  for (int64_t index : call.inplace) {
    if (index < 0) continue;
    const Object* target = call.args[index].get();
    const Variable* variable = verifier->FindVariable(target);
    const Path path = call.ArgPath(index);
    if (variable == nullptr) {
      verifier->Error("call_tir_inplace.target", path,
                      "argument " + std::to_string(index) +
                          " is overwritten: expected a variable, got " + TypeKeyOf(target));
      continue;
    }
    for (size_t i = 0; i < call.args.size(); ++i) {
      const Variable* other = verifier->FindVariable(call.args[i].get());
      if (static_cast<int64_t>(i) == index || other == nullptr) continue;
      if (other->memory != variable->memory) continue;
      const std::string message = "argument " + std::to_string(i) +
                                  " shares the memory of argument " + std::to_string(index);
      const auto second = std::find(call.inplace.begin(), call.inplace.end(), i);
      if (second == call.inplace.end()) {
        // An element-wise function may safely read what it overwrites.
        verifier->Warning("call_tir_inplace.alias", call.ArgPath(i),
                          message + ", which is overwritten");
      } else if (static_cast<int64_t>(i) > index) {
        verifier->Error("call_tir_inplace.alias", call.ArgPath(i),
                        message + ", and both are overwritten");
      }
    }
    const Variable* owner = verifier->FindVariable(variable->memory);
    if (owner != nullptr && owner->value == nullptr && !owner->is_updated) {
      verifier->Warning("call_tir_inplace.param", path,
                        "the memory of a parameter is overwritten: the caller sees it");
    }
    verifier->Overwrite(target, call.call.path);
  }
}

/*! \brief A cache key of everything that the match of arguments and results depends on. */
std::string KeyOf(Verifier* verifier, const Call& call, const Array<ObjectRef>& args, TypeId out) {
  std::string key;
  key.reserve(sizeof(const Object*) + 2 * sizeof(TypeId) + args.size() * sizeof(DimId));
  AppendBytes(call.arg(0), &key);
  AppendBytes(call.args[1], &key);
  AppendBytes(out, &key);
  // Scalar arguments bind symbols.
  for (const ObjectRef& arg : args) AppendBytes(verifier->dims().Intern(arg), &key);
  return key;
}

void CheckCallTir(Verifier* verifier, const Call& call) {
  if (call.view.args().size() != 2) {
    verifier->Error(
        "op.arity", call.path,
        Quote(call.op.name) + ": " + Count(call.view.args().size(), "argument") + ", expected 2");
    return;
  }
  const ObjectRef& callee = call.view.args()[0];
  const ObjectRef& arg_tuple = call.view.args()[1];
  if (KindOf(callee.get()) != Kind::kGlobalVar) {
    verifier->Error("call_tir.callee", call.ArgPath(0),
                    "expected a GlobalVar, got " + TypeKeyOf(callee.get()));
    return;
  }
  const Object* function = verifier->FindFunction(callee.get());
  if (!tir_nodes.prim_func.IsInstance(function)) {
    verifier
        ->Error("call_tir.callee", call.ArgPath(0),
                Quote(std::string(nodes.global_var.name_hint(callee.get()))) + " is " +
                    TypeKeyOf(function) + ", expected a PrimFunc")
        .Hint("call a Relax function by its GlobalVar; call_tir would return uninitialized memory");
    return;
  }
  const Array<ObjectRef>& params = tir_nodes.prim_func.params(function);
  auto args = As<TupleView>(arg_tuple);
  if (!args || !params.defined()) {
    verifier->Error("call_tir.args", call.ArgPath(1),
                    "expected a literal tuple, got " + TypeKeyOf(arg_tuple.get()));
    return;
  }
  if (!call.view.ty_args().defined() || call.view.ty_args().size() != 1) {
    verifier->Error("call_tir.out", call.path.Attr("ty_args"), "expected one result type");
    return;
  }
  const TypeId out = verifier->types().Intern(call.view.ty_args()[0]);
  const bool is_inplace = call_tir_inplace_attrs.IsInstance(call.view.attrs().get());
  std::string key = KeyOf(verifier, call, args->fields(), out);
  if (!is_inplace && verifier->sound_calls().count(key) != 0) return;
  const size_t num_found = verifier->diagnostics().size();
  const TypeInfo& out_info = verifier->types()[out];
  PrimCall prim_call{call,
                     std::string(nodes.global_var.name_hint(callee.get())),
                     params,
                     args->fields(),
                     verifier->types()[call.args[1]].fields,
                     {out},
                     {}};
  if (out_info.type_class == TypeClass::kTuple) prim_call.out_types = out_info.fields;
  if (prim_call.arg_types.size() != prim_call.args.size()) return;
  if (!ReadInplace(verifier, call, prim_call.args.size(), prim_call.out_types.size(),
                   &prim_call.inplace)) {
    return;
  }
  CheckBuffers(verifier, prim_call);
  CheckOverwritten(verifier, prim_call);
  // An in-place call has fewer parameters, so it does not vouch for other calls of these types.
  if (!is_inplace && verifier->diagnostics().size() == num_found) {
    verifier->sound_calls().insert(std::move(key));
  }
}

TVM_FIXES_INIT_BLOCK() {
  RegisterRule("relax.call_tir", CheckCallTir);
  RegisterRule("relax.call_tir_inplace", CheckCallTir);
  RegisterRule("relax.call_tir_with_grad", CheckCallTir);
}

}  // namespace

}  // namespace verifier
}  // namespace tvm_fixes
