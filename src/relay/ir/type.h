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
 * \file src/relay/ir/type.h
 * \brief The types of Relay.
 */
#ifndef TVM_FIXES_RELAY_IR_TYPE_H_
#define TVM_FIXES_RELAY_IR_TYPE_H_

#include "object.h"

namespace tvm_fixes::relay {

/*! \brief Base class of all types. */
class TypeObj : public Object {
 public:
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  static constexpr uint32_t _type_child_slots = 12;
  TVM_FFI_DECLARE_OBJECT_INFO("tvm_fixes.relay.Type", TypeObj, Object);
};

class Type : public ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Type, ObjectRef, TypeObj);
};

/*! \brief A shared empty array. */
inline const Array<Type>& NoTypes() {
  static const auto* types = new Array<Type>();
  return *types;
}

/*! \brief A dimension whose extent is known only at run time: `?`. */
class AnyDimObj : public Object {
 public:
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.Any", AnyDimObj, Object);
};

/*! \brief A named dimension, bound by the type parameters of a function. */
class ShapeVarObj : public Object {
 public:
  String name;

  explicit ShapeVarObj(String name) : name(std::move(name)) {}
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindFreeVar;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.ShapeVar", ShapeVarObj, Object);
};

class ShapeVar : public ObjectRef {
 public:
  explicit ShapeVar(String name);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(ShapeVar, ObjectRef, ShapeVarObj);
};

/*! \brief A dimension: an int64, an AnyDim or a ShapeVar. */
using Dim = Any;
using Shape = Array<Dim>;

class TensorTypeObj : public TypeObj {
 public:
  Shape shape;
  DLDataType dtype;

  TensorTypeObj(Shape shape, DLDataType dtype) : shape(std::move(shape)), dtype(dtype) {}
  int64_t ndim() const { return static_cast<int64_t>(shape.size()); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.TensorType", TensorTypeObj, TypeObj);
};

class TensorType : public Type {
 public:
  TensorType(Shape shape, DLDataType dtype);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(TensorType, Type, TensorTypeObj);
};

class TupleTypeObj : public TypeObj {
 public:
  Array<Type> fields;

  explicit TupleTypeObj(Array<Type> fields) : fields(std::move(fields)) {}
  ~TupleTypeObj() { ReleaseFields(fields); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.TupleType", TupleTypeObj, TypeObj);
};

class TupleType : public Type {
 public:
  explicit TupleType(Array<Type> fields);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(TupleType, Type, TupleTypeObj);
};

/*! \brief A parameter of a polymorphic function or of an algebraic data type. */
class TypeVarObj : public TypeObj {
 public:
  String name;

  explicit TypeVarObj(String name) : name(std::move(name)) {}
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindFreeVar;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.TypeVar", TypeVarObj, TypeObj);
};

class TypeVar : public Type {
 public:
  explicit TypeVar(String name);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(TypeVar, Type, TypeVarObj);
};

/*! \brief The name of an algebraic data type of the module. */
class GlobalTypeVarObj : public TypeObj {
 public:
  String name;

  explicit GlobalTypeVarObj(String name) : name(std::move(name)) {}
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.GlobalTypeVar", GlobalTypeVarObj, TypeObj);
};

class GlobalTypeVar : public Type {
 public:
  explicit GlobalTypeVar(String name);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(GlobalTypeVar, Type, GlobalTypeVarObj);
};

class FuncTypeObj : public TypeObj {
 public:
  /*! \brief TypeVars and ShapeVars. */
  Array<ObjectRef> type_params;
  Array<Type> arg_types;
  Type ret_type;

  FuncTypeObj(Array<ObjectRef> type_params, Array<Type> arg_types, Type ret_type)
      : type_params(std::move(type_params)),
        arg_types(std::move(arg_types)),
        ret_type(std::move(ret_type)) {}
  ~FuncTypeObj() { ReleaseFields(arg_types, ret_type); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.FuncType", FuncTypeObj, TypeObj);
};

class FuncType : public Type {
 public:
  FuncType(Array<ObjectRef> type_params, Array<Type> arg_types, Type ret_type);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(FuncType, Type, FuncTypeObj);
};

/*! \brief An algebraic data type with arguments, such as List[int32]. */
class TypeCallObj : public TypeObj {
 public:
  Type func;
  Array<Type> args;

  TypeCallObj(Type func, Array<Type> args) : func(std::move(func)), args(std::move(args)) {}
  ~TypeCallObj() { ReleaseFields(args); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.TypeCall", TypeCallObj, TypeObj);
};

class TypeCall : public Type {
 public:
  TypeCall(Type func, Array<Type> args);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(TypeCall, Type, TypeCallObj);
};

class RefTypeObj : public TypeObj {
 public:
  Type value;

  explicit RefTypeObj(Type value) : value(std::move(value)) {}
  ~RefTypeObj() { ReleaseFields(value); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.RefType", RefTypeObj, TypeObj);
};

class RefType : public Type {
 public:
  explicit RefType(Type value);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(RefType, Type, RefTypeObj);
};

/*! \brief A type that the program does not state. */
class IncompleteTypeObj : public TypeObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.IncompleteType", IncompleteTypeObj, TypeObj);
};

class IncompleteType : public Type {
 public:
  IncompleteType();
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(IncompleteType, Type, IncompleteTypeObj);
};

/*! \brief Whether a type is null or an IncompleteType. */
inline bool IsMissing(const Type& type) {
  return !type.defined() || type.as<IncompleteTypeObj>() != nullptr;
}

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_IR_TYPE_H_
