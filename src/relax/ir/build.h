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
 * \file src/relax/ir/build.h
 * \brief Builds Relax nodes with TVM's own constructors.
 */
#ifndef TVM_FIXES_RELAX_IR_BUILD_H_
#define TVM_FIXES_RELAX_IR_BUILD_H_

#include <tvm/ffi/container/tensor.h>

#include <vector>

#include "views.h"

namespace tvm_fixes {

/*! \brief The node that a function of TVM returned. */
inline ObjectRef Ref(const Any& any) { return any.cast<ObjectRef>(); }

/*! \brief A BlockBuilder for `mod`, which may be null. It infers the types of new calls. */
ObjectRef MakeBlockBuilder(const ObjectRef& mod);

/*! \brief `expr` with its type and the types of its parts inferred. */
ObjectRef Normalize(const ObjectRef& builder, const ObjectRef& expr);

ObjectRef MakeVar(const String& name, const ObjectRef& ty, bool is_dataflow);
/*! \brief A variable with a span; see python/tvm_fixes/relax/source_nodes.py. */
ObjectRef MakeVar(const String& name, const ObjectRef& ty, bool is_dataflow, const ObjectRef& span);
ObjectRef MakeConstant(const tvm::ffi::Tensor& tensor, const ObjectRef& ty);
/*! \brief A float32 or float64 constant of rank 0. */
ObjectRef MakeScalar(double value, const char* dtype);
ObjectRef MakeInt64Scalar(int64_t value);
ObjectRef MakeIntImm(const char* dtype, int64_t value);
ObjectRef MakeShapeExpr(const Array<ObjectRef>& values);
ObjectRef MakeTuple(const Array<ObjectRef>& fields);
ObjectRef MakeTupleGetItem(const ObjectRef& tuple, int32_t index);
/*! \brief A call without a type; Normalize infers it. */
ObjectRef MakeCall(const ObjectRef& op, const Array<ObjectRef>& args, const ObjectRef& attrs,
                   const Array<ObjectRef>& ty_args, const ObjectRef& span);
ObjectRef MakeIf(const ObjectRef& cond, const ObjectRef& true_branch, const ObjectRef& false_branch,
                 const ObjectRef& span);
ObjectRef MakeSeqExpr(const Array<ObjectRef>& blocks, const ObjectRef& body, const ObjectRef& span);
/*! \brief A function with the attributes of `like`; a null `ret_ty` is inferred from the body. */
ObjectRef MakeFunction(const FunctionView& like, const Array<ObjectRef>& params,
                       const ObjectRef& body, const ObjectRef& ret_ty);
ObjectRef MakeVarBinding(const ObjectRef& var, const ObjectRef& value, const ObjectRef& span);
ObjectRef MakeMatchCast(const ObjectRef& var, const ObjectRef& value, const ObjectRef& ty,
                        const ObjectRef& span);
ObjectRef MakeBlock(const std::vector<ObjectRef>& bindings, bool is_dataflow,
                    const ObjectRef& span);
/*! \brief A tensor type of `shape`; dtype and vdevice as in `like`. */
ObjectRef MakeTensorType(const Array<ObjectRef>& shape, const TensorTypeView& like);

/*! \brief Set the type of a newly built node. */
void SetType(const ObjectRef& expr, const ObjectRef& ty);

bool StructuralEqual(const ObjectRef& lhs, const ObjectRef& rhs);

/*! \brief A copy of a node with some fields replaced. The class must support reflection. */
ObjectRef WithFields(const ObjectRef& node, const Map<String, Any>& replaced);

/*! \brief A node built by reflection from all of its fields. */
ObjectRef MakeByReflection(const NodeLayout& type, const Map<String, Any>& fields);

/*!
 * \brief A function pass, which Sequential, instruments and disabled_pass treat like TVM's own.
 * \param transform Maps (function, module) to the new function; returns the same object if nothing
 *        changes.
 */
ObjectRef MakeFunctionPass(ObjectRef (*transform)(const ObjectRef& function, const ObjectRef& mod),
                           const char* name);

/*!
 * \brief A module pass, treated in the same way.
 * \param transform Returns the same object if nothing changes.
 */
ObjectRef MakeModulePass(ObjectRef (*transform)(const ObjectRef& mod), const char* name);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_IR_BUILD_H_
