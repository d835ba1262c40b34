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
 * \brief The node classes of TVM that the library reads, with their fields and aliases.
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

struct TupleTypeNode : NodeLayout {
  TupleTypeNode() : NodeLayout(Kind::kOther, {"ir.TupleType"}) {}
  Field<Array<ObjectRef>> fields{this, {"fields"}};
};

struct OpNode : NodeLayout {
  OpNode() : NodeLayout(Kind::kOther, {"ir.Op"}) {}
  Field<String> name{this, {"name"}};
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

struct TensorTypeNode : NodeLayout {
  TensorTypeNode() : NodeLayout(Kind::kOther, {"relax.TensorType", "relax.TensorStructInfo"}) {}
  Field<ObjectRef> shape{this, {"shape"}};
  Field<ObjectRef> dtype{this, {"dtype"}};
  Field<ObjectRef> vdevice{this, {"vdevice"}};
  Field<int32_t> ndim{this, {"ndim"}};
};

struct SLayoutNode : NodeLayout {
  SLayoutNode() : NodeLayout(Kind::kOther, {"s_tir.SLayout"}) {}
  Field<String> name{this, {"name"}};
};

struct LayoutDecisionNode : NodeLayout {
  LayoutDecisionNode() : NodeLayout(Kind::kOther, {"relax.transform.LayoutDecision"}) {}
  Field<ObjectRef> layout{this, {"layout"}};
  Field<bool> is_unknown_dim{this, {"is_unknown_dim"}};
};

/*! \brief What the passes and the operator attributes build: the classes made by reflection. */
struct InferLayoutOutputNode : NodeLayout {
  InferLayoutOutputNode() : NodeLayout(Kind::kOther, {"relax.transform.InferLayoutOutput"}) {}
  Field<ObjectRef> input_layouts{this, {"input_layouts"}};
  Field<ObjectRef> output_layouts{this, {"output_layouts"}};
  Field<ObjectRef> new_attrs{this, {"new_attrs"}};
  Field<ObjectRef> new_args{this, {"new_args"}};
};

struct PermuteDimsAttrsNode : NodeLayout {
  PermuteDimsAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.PermuteDimsAttrs"}) {}
  /*! \brief Null for the reverse order; an axis may be negative. */
  Field<Array<int64_t>> axes{this, {"axes"}};
};

struct SqueezeAttrsNode : NodeLayout {
  SqueezeAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.SqueezeAttrs"}) {}
  /*! \brief Null for all axes of extent 1; an axis may be negative. */
  Field<Array<int64_t>> axis{this, {"axis"}};
};

struct LayerNormAttrsNode : NodeLayout {
  LayerNormAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.LayerNormAttrs"}) {}
  Field<Array<int64_t>> axes{this, {"axes"}};
};

struct RMSNormAttrsNode : NodeLayout {
  RMSNormAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.RMSNormAttrs"}) {}
  Field<Array<int64_t>> axes{this, {"axes"}};
};

struct RepeatAttrsNode : NodeLayout {
  RepeatAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.RepeatAttrs"}) {}
  /*! \brief Nothing to flatten the argument first. */
  Field<Any> axis{this, {"axis"}};
};

struct Resize2DAttrsNode : NodeLayout {
  Resize2DAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.Resize2DAttrs"}) {}
  Field<String> layout{this, {"layout"}};
};

struct Resize3DAttrsNode : NodeLayout {
  Resize3DAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.Resize3DAttrs"}) {}
  Field<String> layout{this, {"layout"}};
};

struct Conv2DTransposeAttrsNode : NodeLayout {
  Conv2DTransposeAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.Conv2DTransposeAttrs"}) {}
  Field<Array<int64_t>> strides{this, {"strides"}};
  Field<Array<int64_t>> padding{this, {"padding"}};
  Field<Array<int64_t>> output_padding{this, {"output_padding"}};
  Field<Array<int64_t>> dilation{this, {"dilation"}};
  Field<String> data_layout{this, {"data_layout"}};
  Field<String> kernel_layout{this, {"kernel_layout"}};
  Field<String> out_layout{this, {"out_layout"}};
};

/*! \brief All layouts, bound together when the library is loaded. */
struct Nodes {
  ExprNode expr;
  VarNode var;
  DataflowVarNode dataflow_var;
  ConstantNode constant;
  IntImmNode int_imm;
  ShapeExprNode shape_expr;
  TupleNode tuple;
  TupleGetItemNode tuple_get_item;
  TupleTypeNode tuple_type;
  OpNode op;
  CallNode call;
  IfNode if_expr;
  SeqExprNode seq_expr;
  FunctionNode function;
  BindingBlockNode binding_block;
  DataflowBlockNode dataflow_block;
  BindingNode binding;
  VarBindingNode var_binding;
  MatchCastNode match_cast;
  TensorTypeNode tensor_type;
  SLayoutNode s_layout;
  LayoutDecisionNode layout_decision;
  InferLayoutOutputNode infer_layout_output;
  PermuteDimsAttrsNode permute_dims_attrs;
  SqueezeAttrsNode squeeze_attrs;
  LayerNormAttrsNode layer_norm_attrs;
  RMSNormAttrsNode rms_norm_attrs;
  RepeatAttrsNode repeat_attrs;
  Resize2DAttrsNode resize2d_attrs;
  Resize3DAttrsNode resize3d_attrs;
  Conv2DTransposeAttrsNode conv2d_transpose_attrs;
};

extern Nodes nodes;

}  // namespace tvm_fixes

#endif  // TVM_FIXES_FFI_NODES_H_
