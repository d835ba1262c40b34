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
 * \file src/relay/ir/expr.cc
 * \brief Constructors and reflection of the expressions.
 */
#include "expr.h"

#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"

namespace tvm_fixes::relay {

Var::Var(String name, Type type_annotation)
    : Var(make_object<VarObj>(std::move(name), std::move(type_annotation))) {}

GlobalVar::GlobalVar(String name) : GlobalVar(make_object<GlobalVarObj>(std::move(name))) {}

Constant::Constant(Tensor data) : Constant(make_object<ConstantObj>(std::move(data))) {}

Tuple::Tuple(Array<Expr> fields) : Tuple(make_object<TupleObj>(std::move(fields))) {}

TupleGetItem::TupleGetItem(Expr tuple, int64_t index)
    : TupleGetItem(make_object<TupleGetItemObj>(std::move(tuple), index)) {}

Call::Call(Expr op, Array<Expr> args, Attrs attrs, Array<Type> type_args)
    : Call(make_object<CallObj>(std::move(op), std::move(args), std::move(attrs),
                                std::move(type_args))) {}

Let::Let(Var var, Expr value, Expr body)
    : Let(make_object<LetObj>(std::move(var), std::move(value), std::move(body))) {}

If::If(Expr cond, Expr true_branch, Expr false_branch)
    : If(make_object<IfObj>(std::move(cond), std::move(true_branch), std::move(false_branch))) {}

Function::Function(Array<Var> params, Expr body, Type ret_type, Array<ObjectRef> type_params,
                   Attrs attrs)
    : Function(make_object<FunctionObj>(std::move(params), std::move(body), std::move(ret_type),
                                        std::move(type_params), std::move(attrs))) {}

RefCreate::RefCreate(Expr value) : RefCreate(make_object<RefCreateObj>(std::move(value))) {}

RefRead::RefRead(Expr ref) : RefRead(make_object<RefReadObj>(std::move(ref))) {}

RefWrite::RefWrite(Expr ref, Expr value)
    : RefWrite(make_object<RefWriteObj>(std::move(ref), std::move(value))) {}

namespace {

namespace refl = tvm::ffi::reflection;

void RegisterLeaves() {
  refl::ObjectDef<ExprObj>(refl::init(false))
      .def_ro("checked_type", &ExprObj::checked_type, refl::AttachFieldFlag::SEqHashIgnore());
  refl::ObjectDef<VarObj>()
      .def(refl::init<String, Type>())
      .def_ro("name", &VarObj::name, refl::AttachFieldFlag::SEqHashIgnore())
      .def_ro("type_annotation", &VarObj::type_annotation);
  refl::ObjectDef<GlobalVarObj>().def(refl::init<String>()).def_ro("name", &GlobalVarObj::name);
  refl::ObjectDef<OpObj>(refl::init(false)).def_ro("name", &OpObj::name);
  refl::ObjectDef<ConstantObj>().def(refl::init<Tensor>()).def_ro("data", &ConstantObj::data);
}

void RegisterBranches() {
  const auto defines = refl::AttachFieldFlag::SEqHashDefPattern();
  refl::ObjectDef<TupleObj>().def(refl::init<Array<Expr>>()).def_ro("fields", &TupleObj::fields);
  refl::ObjectDef<TupleGetItemObj>()
      .def(refl::init<Expr, int64_t>())
      .def_ro("tuple", &TupleGetItemObj::tuple)
      .def_ro("index", &TupleGetItemObj::index);
  refl::ObjectDef<CallObj>()
      .def(refl::init<Expr, Array<Expr>, Attrs, Array<Type>>())
      .def_ro("op", &CallObj::op)
      .def_ro("args", &CallObj::args)
      .def_ro("attrs", &CallObj::attrs)
      .def_ro("type_args", &CallObj::type_args);
  refl::ObjectDef<LetObj>()
      .def(refl::init<Var, Expr, Expr>())
      .def_ro("var", &LetObj::var, refl::AttachFieldFlag::SEqHashDefSimple())
      .def_ro("value", &LetObj::value)
      .def_ro("body", &LetObj::body);
  refl::ObjectDef<IfObj>()
      .def(refl::init<Expr, Expr, Expr>())
      .def_ro("cond", &IfObj::cond)
      .def_ro("true_branch", &IfObj::true_branch)
      .def_ro("false_branch", &IfObj::false_branch);
  refl::ObjectDef<FunctionObj>()
      .def(refl::init<Array<Var>, Expr, Type, Array<ObjectRef>, Attrs>())
      .def_ro("type_params", &FunctionObj::type_params, defines)
      .def_ro("params", &FunctionObj::params, defines)
      .def_ro("ret_type", &FunctionObj::ret_type)
      .def_ro("body", &FunctionObj::body)
      .def_ro("attrs", &FunctionObj::attrs);
  refl::ObjectDef<RefCreateObj>().def(refl::init<Expr>()).def_ro("value", &RefCreateObj::value);
  refl::ObjectDef<RefReadObj>().def(refl::init<Expr>()).def_ro("ref", &RefReadObj::ref);
  refl::ObjectDef<RefWriteObj>()
      .def(refl::init<Expr, Expr>())
      .def_ro("ref", &RefWriteObj::ref)
      .def_ro("value", &RefWriteObj::value);
}

TVM_FIXES_INIT_BLOCK() {
  RegisterLeaves();
  RegisterBranches();
  refl::GlobalDef()
      .def("tvm_fixes.relay.Op", [](const String& name) { return Op::Get(name); })
      .def("tvm_fixes.relay.ExprSpan",
           [](const Expr& expr) { return Array<int64_t>{expr->span.line, expr->span.column}; })
      .def("tvm_fixes.relay.ExprSetSpan", [](const Expr& expr, int64_t line, int64_t column) {
        expr->span = Span{static_cast<int32_t>(line), static_cast<int32_t>(column)};
      });
}

}  // namespace
}  // namespace tvm_fixes::relay
