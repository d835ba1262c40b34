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
 * \file src/ffi/nodes.h
 * \brief Layouts of TVM's core IR classes: the fields that the library reads, with their aliases.
 *
 * Operator attributes are declared next to the rules that read them, in src/relax/op.
 */
#ifndef TVM_FIXES_FFI_NODES_H_
#define TVM_FIXES_FFI_NODES_H_

#include <tvm/ffi/any.h>

#include "node_layout.h"

namespace tvm_fixes {

/*! \brief Base of all expressions; `ty` is named struct_info_ before TVM 0.26. */
struct ExprNode : NodeLayout {
  ExprNode() : NodeLayout(Kind::kOther, {"ir.Expr", "ir.RelaxExpr"}) {}
  Field<ObjectRef> span{this, {"span"}};
  Field<ObjectRef> ty{this, {"ty", "struct_info_"}};
};

struct VarNode : NodeLayout {
  VarNode() : NodeLayout(Kind::kVar, {"ir.Var", "relax.expr.Var"}) {}
  Field<String> name{this, {"name"}};
};

struct DataflowVarNode : NodeLayout {
  DataflowVarNode() : NodeLayout(Kind::kDataflowVar, {"relax.expr.DataflowVar"}) {}
};

struct ConstantNode : NodeLayout {
  ConstantNode() : NodeLayout(Kind::kConstant, {"ir.GenericConst"}) {}
  Field<Any> value{this, {"value"}};
};

struct IntImmNode : NodeLayout {
  IntImmNode() : NodeLayout(Kind::kOther, {"ir.IntImm"}) {}
  Field<Any> value{this, {"value"}};
};

struct FloatImmNode : NodeLayout {
  FloatImmNode() : NodeLayout(Kind::kOther, {"ir.FloatImm"}) {}
  Field<double> value{this, {"value"}};
};

struct ShapeExprNode : NodeLayout {
  ShapeExprNode() : NodeLayout(Kind::kShapeExpr, {"relax.expr.ShapeExpr"}) {}
  Field<Array<ObjectRef>> values{this, {"values"}};
};

struct TupleNode : NodeLayout {
  TupleNode() : NodeLayout(Kind::kTuple, {"ir.Tuple", "relax.expr.Tuple"}) {}
  Field<Array<ObjectRef>> fields{this, {"fields"}};
};

struct TupleGetItemNode : NodeLayout {
  TupleGetItemNode()
      : NodeLayout(Kind::kTupleGetItem, {"ir.TupleGetItem", "relax.expr.TupleGetItem"}) {}
  Field<ObjectRef> tuple_value{this, {"tuple_value"}};
  Field<int32_t> index{this, {"index"}};
};

struct GlobalVarNode : NodeLayout {
  GlobalVarNode() : NodeLayout(Kind::kGlobalVar, {"ir.GlobalVar"}) {}
  Field<String> name_hint{this, {"name_hint"}};
};

struct ExternFuncNode : NodeLayout {
  ExternFuncNode() : NodeLayout(Kind::kExternFunc, {"relax.expr.ExternFunc"}) {}
  Field<String> global_symbol{this, {"global_symbol"}};
};

struct StringImmNode : NodeLayout {
  StringImmNode() : NodeLayout(Kind::kOther, {"ir.StringImm", "relax.expr.StringImm"}) {}
  Field<String> value{this, {"value"}};
};

/*! \brief Base of all types. An instance of exactly this class stands for a missing type. */
struct TypeNode : NodeLayout {
  TypeNode() : NodeLayout(Kind::kOther, {"ir.Type"}) {}
  Field<ObjectRef> span{this, {"span"}};
};

struct TupleTypeNode : NodeLayout {
  TupleTypeNode() : NodeLayout(Kind::kOther, {"ir.TupleType"}) {}
  Field<Array<ObjectRef>> fields{this, {"fields"}};
};

struct OpNode : NodeLayout {
  OpNode() : NodeLayout(Kind::kOp, {"ir.Op"}) {}
  Field<String> name{this, {"name"}};
  /*! \brief Empty for an operator without declared attributes. */
  Field<String> attrs_type_key{this, {"attrs_type_key"}};
  /*! \brief -1 for a variable number. */
  Field<int32_t> num_inputs{this, {"num_inputs"}};
};

struct ModuleNode : NodeLayout {
  ModuleNode() : NodeLayout(Kind::kOther, {"ir.IRModule"}) {}
  Field<Map<ObjectRef, ObjectRef>> functions{this, {"functions"}};
};

struct CallNode : NodeLayout {
  CallNode() : NodeLayout(Kind::kCall, {"ir.Call", "relax.expr.Call"}) {}
  Field<ObjectRef> op{this, {"op"}};
  Field<Array<ObjectRef>> args{this, {"args"}};
  Field<ObjectRef> attrs{this, {"attrs"}};
  Field<Array<ObjectRef>> ty_args{this, {"ty_args", "sinfo_args"}};
};

struct IfNode : NodeLayout {
  IfNode() : NodeLayout(Kind::kIf, {"relax.expr.If"}) {}
  Field<ObjectRef> cond{this, {"cond"}};
  Field<ObjectRef> true_branch{this, {"true_branch"}};
  Field<ObjectRef> false_branch{this, {"false_branch"}};
};

struct SeqExprNode : NodeLayout {
  SeqExprNode() : NodeLayout(Kind::kSeqExpr, {"relax.expr.SeqExpr"}) {}
  Field<Array<ObjectRef>> blocks{this, {"blocks"}};
  Field<ObjectRef> body{this, {"body"}};
};

struct FunctionNode : NodeLayout {
  FunctionNode() : NodeLayout(Kind::kFunction, {"relax.expr.Function"}) {}
  Field<ObjectRef> attrs{this, {"attrs"}};
  Field<Array<ObjectRef>> params{this, {"params"}};
  Field<ObjectRef> body{this, {"body"}};
  Field<ObjectRef> ret_ty{this, {"ret_ty", "ret_struct_info"}};
  Field<bool> is_pure{this, {"is_pure"}};
};

struct BindingBlockNode : NodeLayout {
  BindingBlockNode() : NodeLayout(Kind::kBindingBlock, {"relax.expr.BindingBlock"}) {}
  Field<Array<ObjectRef>> bindings{this, {"bindings"}};
  Field<ObjectRef> span{this, {"span"}};
};

struct DataflowBlockNode : NodeLayout {
  DataflowBlockNode() : NodeLayout(Kind::kDataflowBlock, {"relax.expr.DataflowBlock"}) {}
};

/*! \brief Base of VarBinding and MatchCast. */
struct BindingNode : NodeLayout {
  BindingNode() : NodeLayout(Kind::kOther, {"relax.expr.Binding"}) {}
  Field<ObjectRef> span{this, {"span"}};
  Field<ObjectRef> var{this, {"var"}};
};

struct VarBindingNode : NodeLayout {
  VarBindingNode() : NodeLayout(Kind::kVarBinding, {"relax.expr.VarBinding"}) {}
  Field<ObjectRef> value{this, {"value"}};
};

struct MatchCastNode : NodeLayout {
  MatchCastNode() : NodeLayout(Kind::kMatchCast, {"relax.expr.MatchCast"}) {}
  Field<ObjectRef> value{this, {"value"}};
  Field<ObjectRef> ty{this, {"ty", "struct_info"}};
};

struct PrimTypeNode : NodeLayout {
  PrimTypeNode() : NodeLayout(Kind::kOther, {"ir.PrimType"}) {}
  Field<DLDataType> dtype{this, {"dtype"}};
};

struct TensorTypeNode : NodeLayout {
  TensorTypeNode() : NodeLayout(Kind::kOther, {"relax.TensorType", "relax.TensorStructInfo"}) {}
  Field<ObjectRef> shape{this, {"shape"}};
  Field<ObjectRef> dtype{this, {"dtype"}};
  Field<ObjectRef> vdevice{this, {"vdevice"}};
  Field<int32_t> ndim{this, {"ndim"}};
};

struct ShapeTypeNode : NodeLayout {
  ShapeTypeNode() : NodeLayout(Kind::kOther, {"relax.ShapeType", "relax.ShapeStructInfo"}) {}
  /*! \brief Null where the extents are unknown. */
  Field<ObjectRef> values{this, {"values"}};
  Field<int32_t> ndim{this, {"ndim"}};
};

struct FuncTypeNode : NodeLayout {
  FuncTypeNode() : NodeLayout(Kind::kOther, {"relax.FuncType", "relax.FuncStructInfo"}) {}
  /*! \brief Null for an opaque function. */
  Field<ObjectRef> params{this, {"params"}};
  Field<ObjectRef> ret{this, {"ret"}};
  Field<bool> purity{this, {"purity"}};
};

struct AnyTypeNode : NodeLayout {
  AnyTypeNode() : NodeLayout(Kind::kOther, {"relax.AnyType", "relax.ObjectStructInfo"}) {}
};

struct DictAttrsNode : NodeLayout {
  DictAttrsNode() : NodeLayout(Kind::kOther, {"ir.DictAttrs"}) {}
  Field<Map<String, Any>> dict{this, {"__dict__"}};
};

/*! \brief The type of a distributed tensor. */
struct DTensorTypeNode : NodeLayout {
  DTensorTypeNode() : NodeLayout(Kind::kOther, {"relax.DTensorType", "relax.DTensorStructInfo"}) {}
  Field<ObjectRef> tensor_ty{this, {"tensor_ty", "tensor_sinfo"}};
};

/*! \brief All layouts of this file. */
struct Nodes {
  ExprNode expr;
  VarNode var;
  DataflowVarNode dataflow_var;
  ConstantNode constant;
  IntImmNode int_imm;
  FloatImmNode float_imm;
  ShapeExprNode shape_expr;
  TupleNode tuple;
  TupleGetItemNode tuple_get_item;
  GlobalVarNode global_var;
  ExternFuncNode extern_func;
  StringImmNode string_imm;
  TypeNode type;
  TupleTypeNode tuple_type;
  OpNode op;
  ModuleNode module;
  CallNode call;
  IfNode if_expr;
  SeqExprNode seq_expr;
  FunctionNode function;
  BindingBlockNode binding_block;
  DataflowBlockNode dataflow_block;
  BindingNode binding;
  VarBindingNode var_binding;
  MatchCastNode match_cast;
  PrimTypeNode prim_type;
  TensorTypeNode tensor_type;
  ShapeTypeNode shape_type;
  FuncTypeNode func_type;
  AnyTypeNode any_type;
  DictAttrsNode dict_attrs;
  DTensorTypeNode d_tensor_type;
};

extern Nodes nodes;

}  // namespace tvm_fixes

#endif  // TVM_FIXES_FFI_NODES_H_
