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
 * \file src/ffi/tir_nodes.h
 * \brief Layouts of TVM's scalar expressions, statements and PrimFuncs.
 */
#ifndef TVM_FIXES_FFI_TIR_NODES_H_
#define TVM_FIXES_FFI_TIR_NODES_H_

#include "node_layout.h"

namespace tvm_fixes {

/*! \brief A scalar operation on two operands. */
struct BinaryOpNode : NodeLayout {
  BinaryOpNode(const char* type_key, const char* old_type_key)
      : NodeLayout(Kind::kOther, {type_key, old_type_key}) {}
  BinaryOpNode(const char* type_key) : NodeLayout(Kind::kOther, {type_key}) {}
  Field<ObjectRef> a{this, {"a"}};
  Field<ObjectRef> b{this, {"b"}};
};

struct CastNode : NodeLayout {
  CastNode() : NodeLayout(Kind::kOther, {"prim.Cast", "tir.Cast"}) {}
  Field<ObjectRef> value{this, {"value"}};
};

struct NotNode : NodeLayout {
  NotNode() : NodeLayout(Kind::kOther, {"prim.Not", "tir.Not"}) {}
  Field<ObjectRef> a{this, {"a"}};
};

struct BitwiseNotNode : NodeLayout {
  BitwiseNotNode() : NodeLayout(Kind::kOther, {"prim.BitwiseNot"}) {}
  Field<ObjectRef> a{this, {"a"}};
};

struct PrimFuncNode : NodeLayout {
  PrimFuncNode() : NodeLayout(Kind::kOther, {"tirx.PrimFunc", "tir.PrimFunc"}) {}
  Field<ObjectRef> attrs{this, {"attrs"}};
  Field<Array<ObjectRef>> params{this, {"params"}};
  Field<ObjectRef> body{this, {"body"}};
};

struct BufferTypeNode : NodeLayout {
  BufferTypeNode() : NodeLayout(Kind::kOther, {"tirx.BufferType"}) {}
  Field<ObjectRef> dtype{this, {"dtype"}};
  Field<Array<ObjectRef>> shape{this, {"shape"}};
  /*! \brief Empty for a contiguous buffer. */
  Field<Array<ObjectRef>> strides{this, {"strides"}};
};

struct SelectNode : NodeLayout {
  SelectNode() : NodeLayout(Kind::kOther, {"prim.Select"}) {}
  Field<ObjectRef> condition{this, {"condition"}};
  Field<ObjectRef> true_value{this, {"true_value"}};
  Field<ObjectRef> false_value{this, {"false_value"}};
};

struct LetNode : NodeLayout {
  LetNode() : NodeLayout(Kind::kOther, {"prim.Let"}) {}
  Field<ObjectRef> var{this, {"var"}};
  Field<ObjectRef> value{this, {"value"}};
  Field<ObjectRef> body{this, {"body"}};
};

/*! \brief The indices base, base + stride, …, of a vector. */
struct RampNode : NodeLayout {
  RampNode() : NodeLayout(Kind::kOther, {"prim.Ramp"}) {}
  Field<ObjectRef> base{this, {"base"}};
  Field<ObjectRef> stride{this, {"stride"}};
  Field<ObjectRef> lanes{this, {"lanes"}};
};

struct BroadcastNode : NodeLayout {
  BroadcastNode() : NodeLayout(Kind::kOther, {"prim.Broadcast"}) {}
  Field<ObjectRef> value{this, {"value"}};
};

/*! \brief A vector made of elements of other vectors. */
struct ShuffleNode : NodeLayout {
  ShuffleNode() : NodeLayout(Kind::kOther, {"prim.Shuffle"}) {}
  Field<Array<ObjectRef>> vectors{this, {"vectors"}};
};

/*! \brief A load from a buffer, which is a Var whose type is a BufferType. */
struct TensorLoadNode : NodeLayout {
  TensorLoadNode() : NodeLayout(Kind::kOther, {"ir.TensorLoad"}) {}
  Field<ObjectRef> source{this, {"source"}};
  Field<Array<ObjectRef>> indices{this, {"indices"}};
};

struct RangeNode : NodeLayout {
  RangeNode() : NodeLayout(Kind::kOther, {"ir.Range"}) {}
  Field<ObjectRef> min{this, {"min"}};
  Field<ObjectRef> extent{this, {"extent"}};
};

struct IterVarNode : NodeLayout {
  IterVarNode() : NodeLayout(Kind::kOther, {"tirx.IterVar"}) {}
  Field<ObjectRef> dom{this, {"dom"}};
  Field<ObjectRef> var{this, {"var"}};
  Field<int32_t> iter_type{this, {"iter_type"}};
  Field<String> thread_tag{this, {"thread_tag"}};
};

struct BufferStoreNode : NodeLayout {
  BufferStoreNode() : NodeLayout(Kind::kOther, {"tirx.BufferStore"}) {}
  Field<ObjectRef> buffer{this, {"buffer"}};
  Field<ObjectRef> value{this, {"value"}};
  Field<Array<ObjectRef>> indices{this, {"indices"}};
};

/*! \brief A loop from `min` to `min + extent`. */
struct ForNode : NodeLayout {
  ForNode() : NodeLayout(Kind::kOther, {"tirx.For"}) {}
  Field<ObjectRef> loop_var{this, {"loop_var"}};
  Field<ObjectRef> min{this, {"min"}};
  Field<ObjectRef> extent{this, {"extent"}};
  Field<ObjectRef> body{this, {"body"}};
  /*! \brief The IterVar of the threads that the loop is bound to, or null. */
  Field<ObjectRef> thread_binding{this, {"thread_binding"}};
  /*! \brief Null for 1. */
  Field<ObjectRef> step{this, {"step"}};
};

struct SBlockNode : NodeLayout {
  SBlockNode() : NodeLayout(Kind::kOther, {"s_tir.SBlock"}) {}
  Field<Array<ObjectRef>> iter_vars{this, {"iter_vars"}};
  Field<String> name_hint{this, {"name_hint"}};
  Field<ObjectRef> init{this, {"init"}};
  Field<ObjectRef> body{this, {"body"}};
};

struct SBlockRealizeNode : NodeLayout {
  SBlockRealizeNode() : NodeLayout(Kind::kOther, {"s_tir.SBlockRealize"}) {}
  Field<Array<ObjectRef>> iter_values{this, {"iter_values"}};
  Field<ObjectRef> predicate{this, {"predicate"}};
  Field<ObjectRef> block{this, {"block"}};
};

struct SeqStmtNode : NodeLayout {
  SeqStmtNode() : NodeLayout(Kind::kOther, {"tirx.SeqStmt"}) {}
  Field<Array<ObjectRef>> seq{this, {"seq"}};
};

struct IfThenElseNode : NodeLayout {
  IfThenElseNode() : NodeLayout(Kind::kOther, {"tirx.IfThenElse"}) {}
  Field<ObjectRef> condition{this, {"condition"}};
  Field<ObjectRef> then_case{this, {"then_case"}};
  Field<ObjectRef> else_case{this, {"else_case"}};
};

struct BindNode : NodeLayout {
  BindNode() : NodeLayout(Kind::kOther, {"tirx.Bind"}) {}
  Field<ObjectRef> var{this, {"var"}};
  Field<ObjectRef> value{this, {"value"}};
};

struct AttrStmtNode : NodeLayout {
  AttrStmtNode() : NodeLayout(Kind::kOther, {"tirx.AttrStmt"}) {}
  Field<Any> node{this, {"node"}};
  Field<String> attr_key{this, {"attr_key"}};
  Field<ObjectRef> value{this, {"value"}};
  Field<ObjectRef> body{this, {"body"}};
};

struct EvaluateNode : NodeLayout {
  EvaluateNode() : NodeLayout(Kind::kOther, {"tirx.Evaluate"}) {}
  Field<ObjectRef> value{this, {"value"}};
};

struct WhileNode : NodeLayout {
  WhileNode() : NodeLayout(Kind::kOther, {"tirx.While"}) {}
  Field<ObjectRef> body{this, {"body"}};
};

/*! \brief A statement class without fields of interest. */
struct StmtNode : NodeLayout {
  StmtNode(const char* type_key) : NodeLayout(Kind::kOther, {type_key}) {}
};

/*! \brief All layouts of this file. */
struct TirNodes {
  BinaryOpNode add{"prim.Add", "tir.Add"};
  BinaryOpNode sub{"prim.Sub", "tir.Sub"};
  BinaryOpNode mul{"prim.Mul", "tir.Mul"};
  BinaryOpNode truncdiv{"prim.Div", "tir.Div"};
  BinaryOpNode truncmod{"prim.Mod", "tir.Mod"};
  BinaryOpNode floordiv{"prim.FloorDiv", "tir.FloorDiv"};
  BinaryOpNode floormod{"prim.FloorMod", "tir.FloorMod"};
  BinaryOpNode min{"prim.Min", "tir.Min"};
  BinaryOpNode max{"prim.Max", "tir.Max"};
  BinaryOpNode eq{"prim.EQ", "tir.EQ"};
  BinaryOpNode ne{"prim.NE", "tir.NE"};
  BinaryOpNode lt{"prim.LT", "tir.LT"};
  BinaryOpNode le{"prim.LE", "tir.LE"};
  BinaryOpNode gt{"prim.GT", "tir.GT"};
  BinaryOpNode ge{"prim.GE", "tir.GE"};
  BinaryOpNode logical_and{"prim.And", "tir.And"};
  BinaryOpNode logical_or{"prim.Or", "tir.Or"};
  NotNode logical_not;
  BinaryOpNode bitwise_and{"prim.BitwiseAnd"};
  BinaryOpNode bitwise_or{"prim.BitwiseOr"};
  BinaryOpNode bitwise_xor{"prim.BitwiseXor"};
  BitwiseNotNode bitwise_not;
  BinaryOpNode shift_left{"prim.LShift"};
  BinaryOpNode shift_right{"prim.RShift"};
  CastNode cast;
  SelectNode select;
  LetNode let;
  RampNode ramp;
  BroadcastNode broadcast;
  ShuffleNode shuffle;
  TensorLoadNode tensor_load;
  PrimFuncNode prim_func;
  BufferTypeNode buffer_type;
  RangeNode range;
  IterVarNode iter_var;
  BufferStoreNode buffer_store;
  ForNode for_loop;
  SBlockNode block;
  SBlockRealizeNode block_realize;
  SeqStmtNode seq_stmt;
  IfThenElseNode if_then_else;
  BindNode bind;
  AttrStmtNode attr_stmt;
  EvaluateNode evaluate;
  WhileNode while_loop;
  StmtNode alloc_buffer = "tirx.AllocBuffer";
  StmtNode decl_buffer = "tirx.DeclBuffer";
};

extern TirNodes tir_nodes;

}  // namespace tvm_fixes

#endif  // TVM_FIXES_FFI_TIR_NODES_H_
