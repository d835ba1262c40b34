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
 * \file src/relax/ir/build.cc
 * \brief Builds Relax nodes with TVM's own constructors.
 */
#include "build.h"

#include <tvm/ffi/extra/structural_equal.h>
#include <tvm/ffi/reflection/accessor.h>
#include <tvm/ffi/reflection/creator.h>
#include <tvm/ffi/rvalue_ref.h>

#include "../../ffi/registration.h"

namespace tvm_fixes {

namespace refl = tvm::ffi::reflection;

namespace {

Array<ObjectRef> OrEmpty(const Array<ObjectRef>& array) {
  return array.defined() ? array : Array<ObjectRef>();
}

/*! \brief Allocator of host memory for the data of a tensor. */
struct HostMemory {
  void AllocData(DLTensor* tensor) {
    tensor->data = ::operator new(tvm::ffi::GetDataSize(*tensor));
  }
  void FreeData(DLTensor* tensor) { ::operator delete(tensor->data); }
};

}  // namespace

ObjectRef MakeBlockBuilder(const ObjectRef& mod) {
  static const GlobalFunction create("relax.BlockBuilderCreate");
  return Ref(create(mod));
}

ObjectRef Normalize(const ObjectRef& builder, const ObjectRef& expr) {
  static const GlobalFunction normalize("relax.BlockBuilderNormalize");
  return Ref(normalize(builder, expr));
}

ObjectRef MakeVar(const String& name, const ObjectRef& ty, bool is_dataflow) {
  return MakeVar(name, ty, is_dataflow, ObjectRef(nullptr));
}

ObjectRef MakeVar(const String& name, const ObjectRef& ty, bool is_dataflow,
                  const ObjectRef& span) {
  static const GlobalFunction var("ir.Var");
  static const GlobalFunction dataflow_var("relax.DataflowVar");
  return Ref((is_dataflow ? dataflow_var : var)(name, ty, span));
}

ObjectRef MakeConstant(const tvm::ffi::Tensor& tensor, const ObjectRef& ty) {
  static const GlobalFunction constant("ir.GenericConst");
  return Ref(constant(tensor, ty, nullptr));
}

namespace {

/*! \brief A constant of rank 0, filled in by `write`. */
template <typename Write>
ObjectRef MakeScalarOf(const char* dtype, Write write) {
  static const GlobalFunction prim_type("ir.PrimType");
  static const GlobalFunction tensor_type("relax.TensorType");
  const DLDataType type = tvm::ffi::StringToDLDataType(dtype);
  auto tensor = tvm::ffi::Tensor::FromNDAlloc(HostMemory(), {}, type, {kDLCPU, 0});
  write(tensor.data_ptr());
  const ObjectRef shape = MakeShapeExpr({});
  return MakeConstant(tensor, Ref(tensor_type(shape, prim_type(type), -1, nullptr, nullptr)));
}

}  // namespace

ObjectRef MakeScalar(double value, const char* dtype) {
  return MakeScalarOf(dtype, [&](void* data) {
    if (tvm::ffi::StringToDLDataType(dtype).bits == 64) {
      *static_cast<double*>(data) = value;
    } else {
      *static_cast<float*>(data) = static_cast<float>(value);
    }
  });
}

ObjectRef MakeInt64Scalar(int64_t value) {
  return MakeScalarOf("int64", [&](void* data) { *static_cast<int64_t*>(data) = value; });
}

ObjectRef MakeIntImm(const char* dtype, int64_t value) {
  static const GlobalFunction int_imm("ir.IntImm");
  return Ref(int_imm(tvm::ffi::StringToDLDataType(dtype), value, nullptr));
}

ObjectRef MakeShapeExpr(const Array<ObjectRef>& values) {
  static const GlobalFunction shape_expr("relax.ShapeExpr");
  return Ref(shape_expr(values, nullptr));
}

ObjectRef MakeTuple(const Array<ObjectRef>& fields) {
  static const GlobalFunction tuple("ir.Tuple");
  return Ref(tuple(fields, nullptr));
}

ObjectRef MakeTupleGetItem(const ObjectRef& tuple, int32_t index) {
  static const GlobalFunction get_item("ir.TupleGetItem");
  return Ref(get_item(tuple, index, nullptr));
}

ObjectRef MakeCall(const ObjectRef& op, const Array<ObjectRef>& args, const ObjectRef& attrs,
                   const Array<ObjectRef>& ty_args, const ObjectRef& span) {
  static const GlobalFunction call("ir.Call");
  static const GlobalFunction missing("ir.TypeMissing");
  return Ref(call(missing(), op, args, attrs, OrEmpty(ty_args), span));
}

ObjectRef MakeIf(const ObjectRef& cond, const ObjectRef& true_branch, const ObjectRef& false_branch,
                 const ObjectRef& span) {
  static const GlobalFunction if_expr("relax.If");
  return Ref(if_expr(cond, true_branch, false_branch, span));
}

ObjectRef MakeSeqExpr(const Array<ObjectRef>& blocks, const ObjectRef& body,
                      const ObjectRef& span) {
  static const GlobalFunction seq_expr("relax.SeqExpr");
  return Ref(seq_expr(blocks, body, span));
}

ObjectRef MakeFunction(const FunctionView& like, const Array<ObjectRef>& params,
                       const ObjectRef& body, const ObjectRef& ret_ty) {
  static const GlobalFunction function("relax.Function");
  return Ref(
      function(params, body, ret_ty, like.is_pure(), like.attrs(), nodes.expr.span(like.get())));
}

ObjectRef MakeVarBinding(const ObjectRef& var, const ObjectRef& value, const ObjectRef& span) {
  static const GlobalFunction var_binding("relax.VarBinding");
  return Ref(var_binding(var, value, span));
}

ObjectRef MakeMatchCast(const ObjectRef& var, const ObjectRef& value, const ObjectRef& ty,
                        const ObjectRef& span) {
  static const GlobalFunction match_cast("relax.MatchCast");
  return Ref(match_cast(var, value, ty, span));
}

ObjectRef MakeBlock(const std::vector<ObjectRef>& bindings, bool is_dataflow,
                    const ObjectRef& span) {
  static const GlobalFunction binding_block("relax.BindingBlock");
  static const GlobalFunction dataflow_block("relax.DataflowBlock");
  return Ref((is_dataflow ? dataflow_block : binding_block)(
      Array<ObjectRef>(bindings.begin(), bindings.end()), span));
}

ObjectRef MakeTensorType(const Array<ObjectRef>& shape, const TensorTypeView& like) {
  static const GlobalFunction tensor_type("relax.TensorType");
  return Ref(tensor_type(MakeShapeExpr(shape), like.dtype(), -1, like.vdevice(), nullptr));
}

void SetType(const ObjectRef& expr, const ObjectRef& ty) {
  static const GlobalFunction update_type("relax.UpdateType");
  update_type(expr, ty);
}

bool StructuralEqual(const ObjectRef& lhs, const ObjectRef& rhs) {
  return lhs.same_as(rhs) || tvm::ffi::StructuralEqual::Equal(lhs, rhs);
}

ObjectRef WithFields(const ObjectRef& node, const Map<String, Any>& replaced) {
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(node->type_index());
  Map<String, Any> fields = replaced;
  refl::ForEachFieldInfo(info, [&](const TVMFFIFieldInfo* field) {
    const String name(field->name);
    if (fields.count(name) == 0) fields.Set(name, refl::FieldGetter(field)(node));
  });
  return Ref(refl::ObjectCreator(info)(fields));
}

ObjectRef MakeByReflection(const NodeLayout& type, const Map<String, Any>& fields) {
  return Ref(refl::ObjectCreator(type.type_info())(fields));
}

ObjectRef MakeFunctionPass(ObjectRef (*transform)(const ObjectRef& function, const ObjectRef& mod),
                           const char* name) {
  static const GlobalFunction pass_info("transform.PassInfo");
  static const GlobalFunction make_pass("relax.transform.MakeFunctionPass");
  auto run = Function::FromTyped(
      [transform](tvm::ffi::RValueRef<ObjectRef> function, ObjectRef mod, ObjectRef /*context*/) {
        const ObjectRef original = *std::move(function);
        return transform(original, mod);
      });
  return Ref(make_pass(run, pass_info(0, String(name), Array<String>(), false)));
}

ObjectRef MakeModulePass(ObjectRef (*transform)(const ObjectRef& mod), const char* name) {
  static const GlobalFunction pass_info("transform.PassInfo");
  static const GlobalFunction make_pass("transform.MakeModulePass");
  auto run =
      Function::FromTyped([transform](tvm::ffi::RValueRef<ObjectRef> mod, ObjectRef /*context*/) {
        const ObjectRef original = *std::move(mod);
        return transform(original);
      });
  return Ref(make_pass(run, pass_info(0, String(name), Array<String>(), false)));
}

}  // namespace tvm_fixes
