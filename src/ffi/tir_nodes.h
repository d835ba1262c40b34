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
 * \brief The node classes of TVM's scalar expressions and primitive functions, with their fields.
 */
#ifndef TVM_FIXES_FFI_TIR_NODES_H_
#define TVM_FIXES_FFI_TIR_NODES_H_

#include "node_layout.h"

namespace tvm_fixes {

/*! \brief A scalar operation on two operands. */
struct BinaryOpNode : NodeLayout {
  BinaryOpNode(const char* type_key, const char* old_type_key)
      : NodeLayout(Kind::kOther, {type_key, old_type_key}) {}
  Field<ObjectRef> a{this, {"a"}};
  Field<ObjectRef> b{this, {"b"}};
};

struct CastNode : NodeLayout {
  CastNode() : NodeLayout(Kind::kOther, {"prim.Cast", "tir.Cast"}) {}
  Field<ObjectRef> value{this, {"value"}};
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
};

/*! \brief All layouts of this file, bound with the others when the library is loaded. */
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
  CastNode cast;
  PrimFuncNode prim_func;
  BufferTypeNode buffer_type;
};

extern TirNodes tir_nodes;

}  // namespace tvm_fixes

#endif  // TVM_FIXES_FFI_TIR_NODES_H_
