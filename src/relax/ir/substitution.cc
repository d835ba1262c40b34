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
 * \file src/relax/ir/substitution.cc
 * \brief Substitutes scalar and shape variables in expressions and types.
 */
#include "substitution.h"

#include <tvm/ffi/container/tuple.h>
#include <tvm/ffi/extra/structural_visit.h>

#include "../../ffi/registration.h"
#include "build.h"
#include "rewrite_each.h"

namespace tvm_fixes {

ObjectRef Substitution::operator()(const ObjectRef& node) const {
  if (values_.empty() || !node.defined()) return node;
  switch (KindOf(node.get())) {
    case Kind::kVar:
    case Kind::kDataflowVar: {
      auto it = values_.find(node);
      return it == values_.end() ? node : it->second;
    }
    case Kind::kShapeExpr: {
      const Array<ObjectRef>& dims = ShapeExprView(node.get()).values();
      const Array<ObjectRef> replaced = RewriteEach(dims, *this);
      return replaced.same_as(dims) ? node : MakeShapeExpr(replaced);
    }
    case Kind::kOther:
      break;
    default:
      return node;
  }
  if (nodes.type.IsInstance(node.get())) return InType(node);
  if (!nodes.prim_type.IsInstance(TypeOf(node).get())) return node;
  const ObjectRef replaced = InNode(node);
  return replaced.same_as(node) ? node : simplify_(replaced);
}

ObjectRef Substitution::InType(const ObjectRef& type) const {
  static const GlobalFunction tensor_type("relax.TensorType");
  static const GlobalFunction shape_type("relax.ShapeType");
  static const GlobalFunction tuple_type("ir.TupleType");
  const Object* node = type.get();
  const ObjectRef& span = nodes.type.span(node);
  if (auto tensor = As<TensorTypeView>(type)) {
    const ObjectRef shape = (*this)(tensor->shape());
    if (shape.same_as(tensor->shape())) return type;
    return tensor_type(shape, tensor->dtype(), -1, tensor->vdevice(), span).cast<ObjectRef>();
  }
  if (nodes.shape_type.IsInstance(node)) {
    const auto dims = Any(nodes.shape_type.values(node)).try_cast<Array<ObjectRef>>();
    if (!dims || !dims->defined()) return type;
    const Array<ObjectRef> replaced = RewriteEach(*dims, *this);
    return replaced.same_as(*dims) ? type : shape_type(replaced, -1, span).cast<ObjectRef>();
  }
  if (nodes.tuple_type.IsInstance(node)) {
    const Array<ObjectRef>& fields = nodes.tuple_type.fields(node);
    const Array<ObjectRef> replaced = RewriteEach(fields, *this);
    return replaced.same_as(fields) ? type : tuple_type(replaced, span).cast<ObjectRef>();
  }
  return nodes.prim_type.IsInstance(node) ? type : InNode(type);
}

ObjectRef Substitution::InNode(const ObjectRef& node) const {
  static const GlobalFunction structural_map("ffi.StructuralMap");
  using Entry = tvm::ffi::Tuple<int32_t, Function>;
  const auto replace = Function::FromTyped([this](ObjectRef var) {
    auto it = values_.find(var);
    return it == values_.end() ? var : it->second;
  });
  const Array<Entry> callbacks = {Entry(nodes.var.type_info()->type_index, replace),
                                  Entry(nodes.dataflow_var.type_info()->type_index, replace)};
  return structural_map(node, callbacks, Array<Entry>(),
                        static_cast<int32_t>(tvm::ffi::WalkOrder::kPostOrder))
      .cast<ObjectRef>();
}

}  // namespace tvm_fixes
