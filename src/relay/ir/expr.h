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
 * \file src/relay/ir/expr.h
 * \brief The expressions of Relay.
 *
 * A node is immutable, except for its checked type and its span.
 */
#ifndef TVM_FIXES_RELAY_IR_EXPR_H_
#define TVM_FIXES_RELAY_IR_EXPR_H_

#include "type.h"

namespace tvm_fixes::relay {

using Attrs = Map<String, Any>;

/*! \brief Base class of all expressions. */
class ExprObj : public Object {
 public:
  /*! \brief The inferred type; null before InferType. */
  mutable Type checked_type;
  mutable Span span;

  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindDAGNode;
  static constexpr uint32_t _type_child_slots = 20;
  TVM_FFI_DECLARE_OBJECT_INFO("tvm_fixes.relay.Expr", ExprObj, Object);
};

class Expr : public ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Expr, ObjectRef, ExprObj);
};

/*! \brief Give a new node the span of another one. */
template <typename Ref>
Ref WithSpan(Ref node, const Span& span) {
  node->span = span;
  return node;
}

class VarObj : public ExprObj {
 public:
  String name;
  /*! \brief The type that the program gives, or an IncompleteType. */
  Type type_annotation;

  VarObj(String name, Type type_annotation)
      : name(std::move(name)), type_annotation(std::move(type_annotation)) {}
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindFreeVar;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.Var", VarObj, ExprObj);
};

class Var : public Expr {
 public:
  Var(String name, Type type_annotation);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Var, Expr, VarObj);
};

/*! \brief The name of a function of the module. */
class GlobalVarObj : public ExprObj {
 public:
  String name;

  explicit GlobalVarObj(String name) : name(std::move(name)) {}
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.GlobalVar", GlobalVarObj, ExprObj);
};

class GlobalVar : public Expr {
 public:
  explicit GlobalVar(String name);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(GlobalVar, Expr, GlobalVarObj);
};

class OpDecl;

/*! \brief An operator. There is one object for each name; an unknown one has no declaration. */
class OpObj : public ExprObj {
 public:
  String name;
  const OpDecl* decl;

  OpObj(String name, const OpDecl* decl) : name(std::move(name)), decl(decl) {}
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.Op", OpObj, ExprObj);
};

class Op : public Expr {
 public:
  /*! \brief The operator of this name, declared or not. */
  static Op Get(const String& name);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Op, Expr, OpObj);
};

class ConstantObj : public ExprObj {
 public:
  Tensor data;

  explicit ConstantObj(Tensor data) : data(std::move(data)) {}
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.Constant", ConstantObj, ExprObj);
};

class Constant : public Expr {
 public:
  explicit Constant(Tensor data);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Constant, Expr, ConstantObj);
};

class TupleObj : public ExprObj {
 public:
  Array<Expr> fields;

  explicit TupleObj(Array<Expr> fields) : fields(std::move(fields)) {}
  ~TupleObj() { ReleaseFields(fields); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.Tuple", TupleObj, ExprObj);
};

class Tuple : public Expr {
 public:
  explicit Tuple(Array<Expr> fields);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Tuple, Expr, TupleObj);
};

class TupleGetItemObj : public ExprObj {
 public:
  Expr tuple;
  int64_t index;

  TupleGetItemObj(Expr tuple, int64_t index) : tuple(std::move(tuple)), index(index) {}
  ~TupleGetItemObj() { ReleaseFields(tuple); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.TupleGetItem", TupleGetItemObj, ExprObj);
};

class TupleGetItem : public Expr {
 public:
  TupleGetItem(Expr tuple, int64_t index);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(TupleGetItem, Expr, TupleGetItemObj);
};

class CallObj : public ExprObj {
 public:
  /*! \brief An Op, a Constructor, a GlobalVar or any expression that yields a function. */
  Expr op;
  Array<Expr> args;
  /*! \brief The attributes that the program gives; defaults are in the operator's declaration. */
  Attrs attrs;
  Array<Type> type_args;

  CallObj(Expr op, Array<Expr> args, Attrs attrs, Array<Type> type_args)
      : op(std::move(op)),
        args(std::move(args)),
        attrs(std::move(attrs)),
        type_args(std::move(type_args)) {}
  ~CallObj() { ReleaseFields(op, args, attrs, type_args); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.Call", CallObj, ExprObj);
};

class Call : public Expr {
 public:
  Call(Expr op, Array<Expr> args, Attrs attrs = EmptyMap(), Array<Type> type_args = NoTypes());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Call, Expr, CallObj);
};

class LetObj : public ExprObj {
 public:
  Var var;
  Expr value;
  Expr body;

  LetObj(Var var, Expr value, Expr body)
      : var(std::move(var)), value(std::move(value)), body(std::move(body)) {}
  ~LetObj() { ReleaseFields(value, body); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.Let", LetObj, ExprObj);
};

class Let : public Expr {
 public:
  Let(Var var, Expr value, Expr body);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Let, Expr, LetObj);
};

class IfObj : public ExprObj {
 public:
  Expr cond;
  Expr true_branch;
  Expr false_branch;

  IfObj(Expr cond, Expr true_branch, Expr false_branch)
      : cond(std::move(cond)),
        true_branch(std::move(true_branch)),
        false_branch(std::move(false_branch)) {}
  ~IfObj() { ReleaseFields(cond, true_branch, false_branch); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.If", IfObj, ExprObj);
};

class If : public Expr {
 public:
  If(Expr cond, Expr true_branch, Expr false_branch);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(If, Expr, IfObj);
};

class FunctionObj : public ExprObj {
 public:
  /*! \brief TypeVars and ShapeVars. */
  Array<ObjectRef> type_params;
  Array<Var> params;
  /*! \brief The type that the program gives, or an IncompleteType. */
  Type ret_type;
  Expr body;
  Attrs attrs;

  FunctionObj(Array<Var> params, Expr body, Type ret_type, Array<ObjectRef> type_params,
              Attrs attrs)
      : type_params(std::move(type_params)),
        params(std::move(params)),
        ret_type(std::move(ret_type)),
        body(std::move(body)),
        attrs(std::move(attrs)) {}
  ~FunctionObj() { ReleaseFields(params, body, attrs); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.Function", FunctionObj, ExprObj);
};

class Function : public Expr {
 public:
  Function(Array<Var> params, Expr body, Type ret_type = IncompleteType(),
           Array<ObjectRef> type_params = EmptyArray(), Attrs attrs = EmptyMap());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Function, Expr, FunctionObj);
};

class RefCreateObj : public ExprObj {
 public:
  Expr value;

  explicit RefCreateObj(Expr value) : value(std::move(value)) {}
  ~RefCreateObj() { ReleaseFields(value); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.RefCreate", RefCreateObj, ExprObj);
};

class RefCreate : public Expr {
 public:
  explicit RefCreate(Expr value);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(RefCreate, Expr, RefCreateObj);
};

class RefReadObj : public ExprObj {
 public:
  Expr ref;

  explicit RefReadObj(Expr ref) : ref(std::move(ref)) {}
  ~RefReadObj() { ReleaseFields(ref); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.RefRead", RefReadObj, ExprObj);
};

class RefRead : public Expr {
 public:
  explicit RefRead(Expr ref);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(RefRead, Expr, RefReadObj);
};

class RefWriteObj : public ExprObj {
 public:
  Expr ref;
  Expr value;

  RefWriteObj(Expr ref, Expr value) : ref(std::move(ref)), value(std::move(value)) {}
  ~RefWriteObj() { ReleaseFields(ref, value); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.RefWrite", RefWriteObj, ExprObj);
};

class RefWrite : public Expr {
 public:
  RefWrite(Expr ref, Expr value);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(RefWrite, Expr, RefWriteObj);
};

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_IR_EXPR_H_
