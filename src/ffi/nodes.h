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

/*! \brief Base of all types; a type of just this class stands for one that is missing. */
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
  /*! \brief Empty for an operator that has no attributes, or that does not say which. */
  Field<String> attrs_type_key{this, {"attrs_type_key"}};
  /*! \brief -1 for any number. */
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

/*! \brief The type of a tensor that lies on several devices. */
struct DTensorTypeNode : NodeLayout {
  DTensorTypeNode() : NodeLayout(Kind::kOther, {"relax.DTensorType", "relax.DTensorStructInfo"}) {}
  Field<ObjectRef> tensor_ty{this, {"tensor_ty", "tensor_sinfo"}};
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

struct PixelShuffleAttrsNode : NodeLayout {
  PixelShuffleAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.PixelShuffleAttrs"}) {}
  Field<int32_t> upscale_factor{this, {"upscale_factor"}};
};

struct LayoutTransformAttrsNode : NodeLayout {
  LayoutTransformAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.LayoutTransformAttrs"}) {}
  Field<ObjectRef> index_map{this, {"index_map"}};
};

struct IndexMapNode : NodeLayout {
  IndexMapNode() : NodeLayout(Kind::kOther, {"tirx.IndexMap"}) {}
  Field<Array<ObjectRef>> initial_indices{this, {"initial_indices"}};
  Field<Array<ObjectRef>> final_indices{this, {"final_indices"}};
};

struct BatchNormAttrsNode : NodeLayout {
  BatchNormAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.BatchNormAttrs"}) {}
  Field<int32_t> axis{this, {"axis"}};
  Field<double> epsilon{this, {"epsilon"}};
  Field<bool> center{this, {"center"}};
  Field<bool> scale{this, {"scale"}};
  Field<bool> training{this, {"training"}};
};

/*! \brief The attributes of a norm over some axes, for each element of another. */
struct ChannelNormAttrsNode : NodeLayout {
  ChannelNormAttrsNode(const char* type_key) : NodeLayout(Kind::kOther, {type_key}) {}
  Field<int32_t> channel_axis{this, {"channel_axis"}};
  Field<Array<int64_t>> axes{this, {"axes"}};
  Field<double> epsilon{this, {"epsilon"}};
  Field<bool> center{this, {"center"}};
  Field<bool> scale{this, {"scale"}};
};

struct GroupNormAttrsNode : ChannelNormAttrsNode {
  GroupNormAttrsNode() : ChannelNormAttrsNode("relax.attrs.GroupNormAttrs") {}
  Field<int32_t> num_groups{this, {"num_groups"}};
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
  Field<int32_t> repeats{this, {"repeats"}};
  /*! \brief Nothing to flatten the argument first. */
  Field<Any> axis{this, {"axis"}};
};

/*! \brief The attributes of an operator that acts along one axis, which may be negative. */
struct AxisAttrsNode : NodeLayout {
  AxisAttrsNode(const char* type_key) : NodeLayout(Kind::kOther, {type_key}) {}
  Field<int32_t> axis{this, {"axis"}};
};

struct OptionalAxisAttrsNode : NodeLayout {
  OptionalAxisAttrsNode(const char* type_key) : NodeLayout(Kind::kOther, {type_key}) {}
  /*! \brief Nothing to flatten the argument first. */
  Field<Any> axis{this, {"axis"}};
};

struct TakeAttrsNode : OptionalAxisAttrsNode {
  TakeAttrsNode() : OptionalAxisAttrsNode("relax.attrs.TakeAttrs") {}
  /*! \brief What an index out of range means: "fast", "clip", "wrap" or "nan". */
  Field<String> mode{this, {"mode"}};
};

struct WideAxisAttrsNode : NodeLayout {
  WideAxisAttrsNode(const char* type_key) : NodeLayout(Kind::kOther, {type_key}) {}
  Field<int64_t> axis{this, {"axis"}};
};

struct ScanopAttrsNode : OptionalAxisAttrsNode {
  ScanopAttrsNode() : OptionalAxisAttrsNode("relax.attrs.ScanopAttrs") {}
  Field<bool> exclusive{this, {"exclusive"}};
};

struct ScatterElementsAttrsNode : WideAxisAttrsNode {
  ScatterElementsAttrsNode() : WideAxisAttrsNode("relax.attrs.ScatterElementsAttrs") {}
  /*! \brief "update", "add", "mul", "mean", "max" or "min". */
  Field<String> reduction{this, {"reduction"}};
};

struct GatherNDAttrsNode : NodeLayout {
  GatherNDAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.GatherNDAttrs"}) {}
  Field<int64_t> batch_dims{this, {"batch_dims"}};
};

struct OneHotAttrsNode : AxisAttrsNode {
  OneHotAttrsNode() : AxisAttrsNode("relax.attrs.OneHotAttrs") {}
  Field<int32_t> depth{this, {"depth"}};
};

struct ExpandDimsAttrsNode : NodeLayout {
  ExpandDimsAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.ExpandDimsAttrs"}) {}
  /*! \brief Axes of the result, which may be negative. */
  Field<Array<int64_t>> axis{this, {"axis"}};
};

struct StridedSliceAttrsNode : NodeLayout {
  StridedSliceAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.StridedSliceAttrs"}) {}
  Field<bool> assume_inbound{this, {"assume_inbound"}};
};

struct SplitAttrsNode : AxisAttrsNode {
  SplitAttrsNode() : AxisAttrsNode("relax.attrs.SplitAttrs") {}
  /*! \brief An IntImm, the number of parts, or an array of them, where the parts begin. */
  Field<ObjectRef> indices_or_sections{this, {"indices_or_sections"}};
};

struct StatisticalAttrsNode : NodeLayout {
  StatisticalAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.StatisticalAttrs"}) {}
  /*! \brief Null for all axes; an axis may be negative. */
  Field<Array<int64_t>> axis{this, {"axis"}};
  Field<bool> keepdims{this, {"keepdims"}};
};

struct PadAttrsNode : NodeLayout {
  PadAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.PadAttrs"}) {}
  /*! \brief Before and after the first axis, before and after the second, … */
  Field<Array<int64_t>> pad_width{this, {"pad_width"}};
  /*! \brief "constant", "reflect", "replicate" or "circular". */
  Field<String> pad_mode{this, {"pad_mode"}};
};

struct LayoutAttrsNode : NodeLayout {
  LayoutAttrsNode(const char* type_key) : NodeLayout(Kind::kOther, {type_key}) {}
  Field<String> layout{this, {"layout"}};
};

struct PoolAttrsNode : LayoutAttrsNode {
  using LayoutAttrsNode::LayoutAttrsNode;
  Field<String> out_layout{this, {"out_layout"}};
};

/*! \brief The attributes of a pooling with windows. */
struct PoolWindowAttrsNode : PoolAttrsNode {
  using PoolAttrsNode::PoolAttrsNode;
  Field<Array<int64_t>> pool_size{this, {"pool_size"}};
  Field<Array<int64_t>> strides{this, {"strides"}};
  /*! \brief Before each spatial axis, then after each. */
  Field<Array<int64_t>> padding{this, {"padding"}};
  Field<Array<int64_t>> dilation{this, {"dilation"}};
  Field<bool> ceil_mode{this, {"ceil_mode"}};
};

/*! \brief The attributes of a convolution of 1, 2 or 3 spatial axes. */
struct ConvAttrsNode : NodeLayout {
  ConvAttrsNode(const char* type_key) : NodeLayout(Kind::kOther, {type_key}) {}
  Field<Array<int64_t>> strides{this, {"strides"}};
  /*! \brief Before each spatial axis, then after each. */
  Field<Array<int64_t>> padding{this, {"padding"}};
  Field<Array<int64_t>> dilation{this, {"dilation"}};
  Field<int32_t> groups{this, {"groups"}};
  Field<String> data_layout{this, {"data_layout"}};
  Field<String> kernel_layout{this, {"kernel_layout"}};
  Field<String> out_layout{this, {"out_layout"}};
};

struct ConvTransposeAttrsNode : ConvAttrsNode {
  using ConvAttrsNode::ConvAttrsNode;
  Field<Array<int64_t>> output_padding{this, {"output_padding"}};
};

struct CallTIRInplaceAttrsNode : NodeLayout {
  CallTIRInplaceAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.CallTIRInplaceAttrs"}) {}
  Field<Array<int64_t>> inplace_indices{this, {"inplace_indices"}};
};

/*! \brief All layouts, bound together when the library is loaded. */
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
  SLayoutNode s_layout;
  LayoutDecisionNode layout_decision;
  InferLayoutOutputNode infer_layout_output;
  PermuteDimsAttrsNode permute_dims_attrs;
  SqueezeAttrsNode squeeze_attrs;
  PixelShuffleAttrsNode pixel_shuffle_attrs;
  LayoutTransformAttrsNode layout_transform_attrs;
  IndexMapNode index_map;
  BatchNormAttrsNode batch_norm_attrs;
  ChannelNormAttrsNode instance_norm_attrs = "relax.attrs.InstanceNormAttrs";
  GroupNormAttrsNode group_norm_attrs;
  LayerNormAttrsNode layer_norm_attrs;
  RMSNormAttrsNode rms_norm_attrs;
  RepeatAttrsNode repeat_attrs;
  AxisAttrsNode prelu_attrs = "relax.attrs.PReluAttrs";
  AxisAttrsNode softmax_attrs = "relax.attrs.SoftmaxAttrs";
  AxisAttrsNode sort_attrs = "relax.attrs.SortAttrs";
  AxisAttrsNode argsort_attrs = "relax.attrs.ArgsortAttrs";
  AxisAttrsNode topk_attrs = "relax.attrs.TopKAttrs";
  AxisAttrsNode quantize_attrs = "relax.attrs.QuantizeAttrs";
  OptionalAxisAttrsNode argmax_attrs = "relax.attrs.ArgmaxArgminAttrs";
  ScanopAttrsNode scanop_attrs;
  TakeAttrsNode take_attrs;
  WideAxisAttrsNode gather_elements_attrs = "relax.attrs.GatherElementsAttrs";
  WideAxisAttrsNode flip_attrs = "relax.attrs.FlipAttrs";
  ScatterElementsAttrsNode scatter_elements_attrs;
  GatherNDAttrsNode gather_nd_attrs;
  OneHotAttrsNode one_hot_attrs;
  ExpandDimsAttrsNode expand_dims_attrs;
  StridedSliceAttrsNode strided_slice_attrs;
  OptionalAxisAttrsNode concat_attrs = "relax.attrs.ConcatAttrs";
  OptionalAxisAttrsNode stack_attrs = "relax.attrs.StackAttrs";
  SplitAttrsNode split_attrs;
  StatisticalAttrsNode statistical_attrs;
  PoolAttrsNode pool_attrs[6] = {
      "relax.attrs.Pool1DAttrs",         "relax.attrs.Pool2DAttrs",
      "relax.attrs.Pool3DAttrs",         "relax.attrs.AdaptivePool1DAttrs",
      "relax.attrs.AdaptivePool2DAttrs", "relax.attrs.AdaptivePool3DAttrs"};
  /*! \brief By spatial axes less one. */
  PoolWindowAttrsNode pool_window_attrs[3] = {"relax.attrs.Pool1DAttrs", "relax.attrs.Pool2DAttrs",
                                              "relax.attrs.Pool3DAttrs"};
  PadAttrsNode pad_attrs;
  CallTIRInplaceAttrsNode call_tir_inplace_attrs;
  LayoutAttrsNode resize2d_attrs = "relax.attrs.Resize2DAttrs";
  LayoutAttrsNode resize3d_attrs = "relax.attrs.Resize3DAttrs";
  /*! \brief By spatial axes less one. */
  ConvAttrsNode conv_attrs[3] = {"relax.attrs.Conv1DAttrs", "relax.attrs.Conv2DAttrs",
                                 "relax.attrs.Conv3DAttrs"};
  ConvTransposeAttrsNode conv_transpose_attrs[3] = {"relax.attrs.Conv1DTransposeAttrs",
                                                    "relax.attrs.Conv2DTransposeAttrs",
                                                    "relax.attrs.Conv3DTransposeAttrs"};
};

extern Nodes nodes;

}  // namespace tvm_fixes

#endif  // TVM_FIXES_FFI_NODES_H_
