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
 * \file src/relax/analysis/verifier/values.cc
 * \brief Infers the types of values bottom-up and compares them with the stated types.
 */
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/tensor.h>

#include <utility>

#include "../../../ffi/tir_nodes.h"
#include "function_verifier.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief Tuples nested deeper count as malformed, to protect the stack. */
constexpr int kMaxTupleDepth = 200;

}  // namespace

TypeId FunctionVerifier::StatedType(const ObjectRef& type, const Path& path) {
  const TypeId id = types().Intern(type);
  const std::vector<TypeProblem>& problems = types().Problems(type);
  if (!problems.empty() && reported_types_.insert(type.get()).second) {
    for (const TypeProblem& problem : problems) {
      verifier_->Error(problem.rule, path, problem.message);
    }
  }
  if (id == kUnknownType || !types_in_scope_.insert(id).second) return id;
  for (const Object* var : types().Vars(id)) {
    if (verifier_->FindVariable(var) != nullptr) continue;
    verifier_->Error("scope.symbol", path,
                     Quote(std::string(nodes.var.name(var))) + " of " + types().Text(id) +
                         " is not defined here");
    Poison(var, path);
  }
  return id;
}

TypeId FunctionVerifier::CheckStated(const ObjectRef& expr, TypeId found, const char* rule,
                                     const Path& path) {
  if (!nodes.expr.IsInstance(expr.get())) return kUnknownType;
  const ObjectRef& type = TypeOf(expr);
  const TypeId stated = StatedType(type, path);
  if (stated == kUnknownType) {
    if (types().Problems(type).empty()) {
      verifier_->Error("type.missing", path, TypeKeyOf(expr.get()) + " has no type");
    }
    return found;
  }
  if (found == kUnknownType || found == stated) return stated;
  const Fit fit = types().Compare(stated, found);
  // A stated type may be less precise than the inferred one; a more precise one may be right.
  verifier_->CheckFit(fit, rule, path,
                      "the stated type " + types().Text(stated) +
                          " does not match the inferred type " + types().Text(found));
  return stated;
}

TypeId FunctionVerifier::TypeOfValue(const ObjectRef& value, const Path& path) {
  switch (KindOf(value.get())) {
    case Kind::kCall:
      return TypeOfCall(CallView(value.get()), path);
    case Kind::kTupleGetItem:
      return TypeOfGetItem(TupleGetItemView(value.get()), path);
    case Kind::kIf:
      VisitIf(IfView(value.get()), path);
      return kUnknownType;
    default:
      return TypeOfLeaf(value, path);
  }
}

TypeId FunctionVerifier::TypeOfLeaf(const ObjectRef& leaf, const Path& path, int depth) {
  const Object* node = leaf.get();
  switch (KindOf(node)) {
    case Kind::kVar:
    case Kind::kDataflowVar:
      return TypeOfVar(VarView(node), path);
    case Kind::kConstant:
      return TypeOfConstant(ConstantView(node), path);
    case Kind::kTuple:
      return TypeOfTuple(TupleView(node), path, depth);
    case Kind::kGlobalVar:
      return TypeOfGlobalVar(node, path);
    case Kind::kExternFunc:
      return StatedType(TypeOf(leaf), path);
    case Kind::kOp:
      return types().Intern(TypeOf(leaf));
    case Kind::kShapeExpr: {
      std::vector<DimId> extents;
      if (!ShapeExprView(node).values().defined()) break;
      for (const ObjectRef& value : ShapeExprView(node).values()) {
        extents.push_back(dims().Intern(value));
        if (extents.back() != kUnknownDim) continue;
        verifier_->Error(
            "ir.malformed", path.Attr("values").Item(extents.size() - 1),
            "expected an integer expression as an extent, got " + TypeKeyOf(value.get()));
      }
      return CheckStated(leaf, types().Shape(std::move(extents)), "type.shape", path);
    }
    case Kind::kCall:
    case Kind::kIf:
    case Kind::kSeqExpr:
    case Kind::kFunction:
    case Kind::kTupleGetItem:
      // A scalar may be a call, and is allowed as a leaf.
      if (types()[types().Intern(TypeOf(leaf))].type_class == TypeClass::kPrim) break;
      verifier_
          ->Error("form.nested", path, "expected a variable or a constant, got " + TypeKeyOf(node))
          .Hint("bind it to a variable first, for example by relax.transform.Normalize");
      return kUnknownType;
    default:
      break;
  }
  if (tir_nodes.prim_func.IsInstance(node)) {
    verifier_->Error("form.nested", path, "expected a value, got a PrimFunc")
        .Hint("add it to the module, and refer to it by its GlobalVar");
    return kUnknownType;
  }
  if (!nodes.expr.IsInstance(node)) {
    verifier_->Error("ir.malformed", path, "expected an expression, got " + TypeKeyOf(node));
    return kUnknownType;
  }
  for (const Object* var : dims().Vars(dims().Intern(leaf))) {
    if (verifier_->FindVariable(var) != nullptr) continue;
    verifier_->Error("scope.symbol", path,
                     Quote(std::string(nodes.var.name(var))) + " is not defined here");
    Poison(var, path);
  }
  return CheckStated(leaf, kUnknownType, "type.value", path);
}

std::optional<TypeId> FunctionVerifier::TypeInScope(const Object* expr) {
  if (!verifier_->overwritten_.empty()) return std::nullopt;
  const Variable* variable = verifier_->FindVariable(expr);
  if (variable == nullptr || variable->memory == nullptr) return std::nullopt;
  return variable->type;
}

TypeId FunctionVerifier::TypeOfVar(const VarView& var, const Path& path) {
  const Variable* variable = verifier_->FindVariable(var.get());
  const std::string name = Quote(std::string(var.name()));
  if (variable == nullptr) {
    if (var.is_dataflow() && !in_dataflow_block_) {
      verifier_
          ->Error("scope.dataflow", path,
                  name + " is a dataflow variable used outside of its block")
          .Hint("R.output makes a variable visible after its block");
    } else {
      verifier_->Error("scope.undefined", path, name + " is not defined here");
    }
    Poison(var.get(), path);
    return kUnknownType;
  }
  if (auto call = verifier_->OverwrittenAt(var.get())) {
    verifier_
        ->Check(call->is_certain ? Relation::kDisproved : Relation::kUnknown,
                "call_tir_inplace.use", path,
                name + (call->is_certain ? " is used after its memory was overwritten"
                                         : " is used after its memory may have been overwritten"))
        ->Note("overwritten by this call", call->path)
        .Hint("call_tir allocates a new result");
  }
  // A shape symbol has a type but no memory.
  return variable->memory != nullptr ? variable->type : types().Intern(TypeOf(var.ref()));
}

TypeId FunctionVerifier::TypeOfConstant(const ConstantView& constant, const Path& path) {
  const ObjectRef expr = constant.ref();
  auto tensor = constant.value().try_cast<tvm::ffi::Tensor>();
  if (!tensor || !tensor->defined()) {
    const TypeId stated = CheckStated(expr, kUnknownType, "type.constant", path);
    if (types()[stated].type_class != TypeClass::kTensor) return stated;
    verifier_->Error("type.constant", path,
                     "the constant of type " + types().Text(stated) + " has no data");
    return kUnknownType;
  }
  TypeInfo info;
  info.type_class = TypeClass::kTensor;
  info.dtype = tensor->dtype();
  info.ndim = static_cast<int32_t>(tensor->shape().size());
  info.has_dims = true;
  for (int64_t extent : tensor->shape()) info.dims.push_back(dims().FromInt(extent));
  // Only the stated type of a constant names its device.
  info.vdevice = types()[types().Intern(TypeOf(expr))].vdevice;
  return CheckStated(expr, types().Intern(std::move(info)), "type.constant", path);
}

TypeId FunctionVerifier::TypeOfTuple(const TupleView& tuple, const Path& path, int depth) {
  if (!tuple.fields().defined() || depth > kMaxTupleDepth) {
    verifier_->Error("ir.malformed", path,
                     depth > kMaxTupleDepth ? "the tuple is nested more than 200 deep"
                                            : "the fields of the tuple are null");
    return kUnknownType;
  }
  std::vector<TypeId> fields;
  fields.reserve(tuple.fields().size());
  for (size_t i = 0; i < tuple.fields().size(); ++i) {
    const ObjectRef& field = tuple.fields()[i];
    const auto known = TypeInScope(field.get());
    fields.push_back(known ? *known : TypeOfLeaf(field, path.Attr("fields").Item(i), depth + 1));
  }
  return CheckStated(tuple.ref(), types().Tuple(std::move(fields)), "type.tuple", path);
}

TypeId FunctionVerifier::TypeOfGetItem(const TupleGetItemView& get_item, const Path& path) {
  const TypeId tuple = TypeOfLeaf(get_item.tuple_value(), path.Attr("tuple_value"));
  if (tuple == kUnknownType) return kUnknownType;
  const TypeInfo& info = types()[tuple];
  if (info.type_class == TypeClass::kAny) return kUnknownType;
  const int32_t index = get_item.index();
  if (info.type_class != TypeClass::kTuple || index < 0 ||
      index >= static_cast<int64_t>(info.fields.size())) {
    Diagnostic& wrong = verifier_->Error(
        "type.get_item", path,
        "cannot take field " + std::to_string(index) + " of " + types().Text(tuple));
    verifier_->NoteOrigin(&wrong, get_item.tuple_value().get());
    return kUnknownType;
  }
  return info.fields[index];
}

TypeId FunctionVerifier::TypeOfGlobalVar(const Object* global_var, const Path& path) {
  if (verifier_->FindFunction(global_var) == nullptr) {
    verifier_
        ->Error("global.undefined", path,
                Quote(std::string(nodes.global_var.name_hint(global_var))) +
                    " is not a function of this module")
        .Hint("a GlobalVar is matched by identity, not by name: use mod.get_global_var");
  }
  return types().Intern(TypeOf(tvm::ffi::GetRef<ObjectRef>(global_var)));
}

void FunctionVerifier::VisitIf(const IfView& if_expr, const Path& path) {
  if (in_dataflow_block_) {
    verifier_->Error("form.if", path, "an If is not allowed in a dataflow block");
  }
  const TypeId cond = TypeOfLeaf(if_expr.cond(), path.Attr("cond"));
  const TypeInfo& info = types()[cond];
  const bool is_scalar = info.type_class == TypeClass::kPrim ||
                         (info.type_class == TypeClass::kTensor && info.ndim == 0);
  const bool is_bool =
      info.dtype.code == kDLBool || (info.dtype.code == kDLUInt && info.dtype.bits == 1);
  if (cond != kUnknownType && info.type_class != TypeClass::kAny && !(is_scalar && is_bool)) {
    const bool may_be = info.type_class == TypeClass::kTensor && info.ndim <= 0 &&
                        (is_bool || info.dtype.bits == 0);
    Diagnostic* wrong = verifier_->Check(
        may_be ? Relation::kUnknown : Relation::kDisproved, "if.condition", path.Attr("cond"),
        "the condition is " + types().Text(cond) + ", expected a boolean of rank 0");
    verifier_->NoteOrigin(wrong, if_expr.cond().get());
  }
  const TypeId stated = types().Intern(TypeOf(if_expr.ref()));
  // A branch does not see overwrites of the other branch; code after the If sees both.
  const auto before = verifier_->overwritten_;
  auto memory = VisitBody(if_expr.true_branch(), stated, "type.if", "the true branch",
                          path.Attr("true_branch"));
  const auto after_true = std::exchange(verifier_->overwritten_, before);
  const auto other = VisitBody(if_expr.false_branch(), stated, "type.if", "the false branch",
                               path.Attr("false_branch"));
  verifier_->overwritten_.insert(after_true.begin(), after_true.end());
  memory.insert(memory.end(), other.begin(), other.end());
  memory_of_if_ = std::move(memory);
}

}  // namespace verifier
}  // namespace tvm_fixes
