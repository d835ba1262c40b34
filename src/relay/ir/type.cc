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
 * \file src/relay/ir/type.cc
 * \brief Constructors and reflection of the types.
 */
#include "type.h"

#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"

namespace tvm_fixes::relay {

ShapeVar::ShapeVar(String name) : ShapeVar(make_object<ShapeVarObj>(std::move(name))) {}

TensorType::TensorType(Shape shape, DLDataType dtype)
    : TensorType(make_object<TensorTypeObj>(std::move(shape), dtype)) {}

TupleType::TupleType(Array<Type> fields)
    : TupleType(make_object<TupleTypeObj>(std::move(fields))) {}

TypeVar::TypeVar(String name) : TypeVar(make_object<TypeVarObj>(std::move(name))) {}

GlobalTypeVar::GlobalTypeVar(String name)
    : GlobalTypeVar(make_object<GlobalTypeVarObj>(std::move(name))) {}

FuncType::FuncType(Array<ObjectRef> type_params, Array<Type> arg_types, Type ret_type)
    : FuncType(make_object<FuncTypeObj>(std::move(type_params), std::move(arg_types),
                                        std::move(ret_type))) {}

TypeCall::TypeCall(Type func, Array<Type> args)
    : TypeCall(make_object<TypeCallObj>(std::move(func), std::move(args))) {}

RefType::RefType(Type value) : RefType(make_object<RefTypeObj>(std::move(value))) {}

IncompleteType::IncompleteType() : Type(make_object<IncompleteTypeObj>()) {}

namespace {

namespace refl = tvm::ffi::reflection;

TVM_FIXES_INIT_BLOCK() {
  const auto defines = refl::AttachFieldFlag::SEqHashDefPattern();
  // A name is only a hint: equality depends on the binding of a variable.
  const auto ignore = refl::AttachFieldFlag::SEqHashIgnore();
  refl::ObjectDef<TypeObj>(refl::init(false));
  refl::ObjectDef<AnyDimObj>().def(refl::init<>());
  refl::ObjectDef<ShapeVarObj>()
      .def(refl::init<String>())
      .def_ro("name", &ShapeVarObj::name, ignore);
  refl::ObjectDef<TensorTypeObj>()
      .def(refl::init<Shape, DLDataType>())
      .def_ro("shape", &TensorTypeObj::shape)
      .def_ro("dtype", &TensorTypeObj::dtype);
  refl::ObjectDef<TupleTypeObj>()
      .def(refl::init<Array<Type>>())
      .def_ro("fields", &TupleTypeObj::fields);
  refl::ObjectDef<TypeVarObj>().def(refl::init<String>()).def_ro("name", &TypeVarObj::name, ignore);
  refl::ObjectDef<GlobalTypeVarObj>()
      .def(refl::init<String>())
      .def_ro("name", &GlobalTypeVarObj::name);
  refl::ObjectDef<FuncTypeObj>()
      .def(refl::init<Array<ObjectRef>, Array<Type>, Type>())
      .def_ro("type_params", &FuncTypeObj::type_params, defines)
      .def_ro("arg_types", &FuncTypeObj::arg_types)
      .def_ro("ret_type", &FuncTypeObj::ret_type);
  refl::ObjectDef<TypeCallObj>()
      .def(refl::init<Type, Array<Type>>())
      .def_ro("func", &TypeCallObj::func)
      .def_ro("args", &TypeCallObj::args);
  refl::ObjectDef<RefTypeObj>().def(refl::init<Type>()).def_ro("value", &RefTypeObj::value);
  refl::ObjectDef<IncompleteTypeObj>().def(refl::init<>());
}

}  // namespace
}  // namespace tvm_fixes::relay
