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
 * \file src/relax/ir/views.h
 * \brief Typed, non-owning views of Relax nodes.
 *
 *     if (auto call = As<CallView>(expr)) Use(call->op(), call->args());
 *
 * A view is a raw pointer, valid while a reference keeps the node alive. Any field may be null in a
 * malformed module; As and TypeOf accept null.
 */
#ifndef TVM_FIXES_RELAX_IR_VIEWS_H_
#define TVM_FIXES_RELAX_IR_VIEWS_H_

#include <tvm/ffi/cast.h>
#include <tvm/ffi/object.h>

#include <algorithm>
#include <optional>

#include "../../ffi/nodes.h"

namespace tvm_fixes {

class View {
 public:
  explicit View(const Object* node) : node_(node) {}
  const Object* get() const { return node_; }
  /*! \brief A reference that owns the node. */
  ObjectRef ref() const { return tvm::ffi::GetRef<ObjectRef>(node_); }

 protected:
  const Object* node_;
};

/*! \brief A view of `node`, or std::nullopt if it is null or of another class. */
template <typename V>
std::optional<V> As(const Object* node) {
  if (!V::Is(node)) return std::nullopt;
  return V(node);
}

template <typename V>
std::optional<V> As(const ObjectRef& node) {
  return As<V>(node.get());
}

/*! \brief A Var or a DataflowVar. */
class VarView : public View {
 public:
  using View::View;
  static bool Is(const Object* node) {
    const Kind kind = KindOf(node);
    return kind == Kind::kVar || kind == Kind::kDataflowVar;
  }
  const String& name() const { return nodes.var.name(node_); }
  bool is_dataflow() const { return KindOf(node_) == Kind::kDataflowVar; }
};

class ConstantView : public View {
 public:
  using View::View;
  static bool Is(const Object* node) { return KindOf(node) == Kind::kConstant; }
  /*! \brief The payload: a Tensor in a Relax constant. */
  const Any& value() const { return nodes.constant.value(node_); }
};

class ShapeExprView : public View {
 public:
  using View::View;
  static bool Is(const Object* node) { return KindOf(node) == Kind::kShapeExpr; }
  const Array<ObjectRef>& values() const { return nodes.shape_expr.values(node_); }
};

class TupleView : public View {
 public:
  using View::View;
  static bool Is(const Object* node) { return KindOf(node) == Kind::kTuple; }
  const Array<ObjectRef>& fields() const { return nodes.tuple.fields(node_); }
};

class TupleGetItemView : public View {
 public:
  using View::View;
  static bool Is(const Object* node) { return KindOf(node) == Kind::kTupleGetItem; }
  const ObjectRef& tuple_value() const { return nodes.tuple_get_item.tuple_value(node_); }
  int32_t index() const { return nodes.tuple_get_item.index(node_); }
};

class CallView : public View {
 public:
  using View::View;
  static bool Is(const Object* node) { return KindOf(node) == Kind::kCall; }
  const ObjectRef& op() const { return nodes.call.op(node_); }
  const Array<ObjectRef>& args() const { return nodes.call.args(node_); }
  const ObjectRef& attrs() const { return nodes.call.attrs(node_); }
  const Array<ObjectRef>& ty_args() const { return nodes.call.ty_args(node_); }
  /*! \brief Whether the callee is the operator `name`. */
  bool IsOp(const char* name) const {
    return nodes.op.IsInstance(op().get()) && nodes.op.name(op().get()) == name;
  }
};

class IfView : public View {
 public:
  using View::View;
  static bool Is(const Object* node) { return KindOf(node) == Kind::kIf; }
  const ObjectRef& cond() const { return nodes.if_expr.cond(node_); }
  const ObjectRef& true_branch() const { return nodes.if_expr.true_branch(node_); }
  const ObjectRef& false_branch() const { return nodes.if_expr.false_branch(node_); }
};

class SeqExprView : public View {
 public:
  using View::View;
  static bool Is(const Object* node) { return KindOf(node) == Kind::kSeqExpr; }
  const Array<ObjectRef>& blocks() const { return nodes.seq_expr.blocks(node_); }
  const ObjectRef& body() const { return nodes.seq_expr.body(node_); }
};

class FunctionView : public View {
 public:
  using View::View;
  static bool Is(const Object* node) { return KindOf(node) == Kind::kFunction; }
  const Array<ObjectRef>& params() const { return nodes.function.params(node_); }
  const ObjectRef& body() const { return nodes.function.body(node_); }
  const ObjectRef& ret_ty() const { return nodes.function.ret_ty(node_); }
  bool is_pure() const { return nodes.function.is_pure(node_); }
  const ObjectRef& attrs() const { return nodes.function.attrs(node_); }
};

/*! \brief A BindingBlock or a DataflowBlock. */
class BlockView : public View {
 public:
  using View::View;
  static bool Is(const Object* node) {
    const Kind kind = KindOf(node);
    return kind == Kind::kBindingBlock || kind == Kind::kDataflowBlock;
  }
  const Array<ObjectRef>& bindings() const { return nodes.binding_block.bindings(node_); }
  const ObjectRef& span() const { return nodes.binding_block.span(node_); }
  bool is_dataflow() const { return KindOf(node_) == Kind::kDataflowBlock; }
};

/*! \brief A VarBinding or a MatchCast. */
class BindingView : public View {
 public:
  using View::View;
  static bool Is(const Object* node) {
    const Kind kind = KindOf(node);
    return kind == Kind::kVarBinding || kind == Kind::kMatchCast;
  }
  const ObjectRef& var() const { return nodes.binding.var(node_); }
  const ObjectRef& span() const { return nodes.binding.span(node_); }
  bool is_match_cast() const { return KindOf(node_) == Kind::kMatchCast; }
  const ObjectRef& value() const {
    return is_match_cast() ? nodes.match_cast.value(node_) : nodes.var_binding.value(node_);
  }
  /*! \brief The type that a MatchCast checks. */
  const ObjectRef& cast_ty() const { return nodes.match_cast.ty(node_); }
};

class TensorTypeView : public View {
 public:
  using View::View;
  static bool Is(const Object* node) { return nodes.tensor_type.IsInstance(node); }
  /*! \brief Null, a ShapeExpr, or a variable of a shape type. */
  const ObjectRef& shape() const { return nodes.tensor_type.shape(node_); }
  const ObjectRef& dtype() const { return nodes.tensor_type.dtype(node_); }
  const ObjectRef& vdevice() const { return nodes.tensor_type.vdevice(node_); }
  /*! \brief The rank, or -1 if unknown. */
  int32_t ndim() const { return nodes.tensor_type.ndim(node_); }
};

/*! \brief An attribute of a function, from its attribute node `attrs`, or std::nullopt if unset. */
inline std::optional<Any> FunctionAttr(const ObjectRef& attrs, const char* name) {
  if (!nodes.dict_attrs.IsInstance(attrs.get())) return std::nullopt;
  const Map<String, Any>& dict = nodes.dict_attrs.dict(attrs.get());
  if (!dict.defined()) return std::nullopt;
  auto found = dict.find(name);
  if (found == dict.end()) return std::nullopt;
  return (*found).second;
}

/*! \brief The type of an expression; null for null or if none has been inferred. */
inline ObjectRef TypeOf(const ObjectRef& expr) {
  return expr.defined() ? nodes.expr.ty(expr.get()) : ObjectRef(nullptr);
}

/*! \brief Whether a type is that of a tensor or a tuple, which shapes and types cannot refer to. */
inline bool IsTensorOrTuple(const ObjectRef& ty) {
  return nodes.tensor_type.IsInstance(ty.get()) || nodes.tuple_type.IsInstance(ty.get());
}

/*! \brief The value of an integer literal, or std::nullopt for any other expression. */
inline std::optional<int64_t> AsInt(const ObjectRef& expr) {
  if (!nodes.int_imm.IsInstance(expr.get())) return std::nullopt;
  return nodes.int_imm.value(expr.get()).try_cast<int64_t>();
}

/*! \brief Normalize an axis that may be negative. */
inline int64_t NormalizeAxis(int64_t axis, size_t ndim) {
  return axis < 0 ? axis + static_cast<int64_t>(ndim) : axis;
}

/*! \brief Whether a dim is known to be 1. */
inline bool IsOne(const ObjectRef& dim) { return AsInt(dim) == 1; }

/*! \brief The shape of a tensor type if each dim is known, or std::nullopt. */
inline std::optional<Array<ObjectRef>> ShapeOfType(const ObjectRef& type) {
  auto tensor = As<TensorTypeView>(type);
  if (!tensor) return std::nullopt;
  auto shape = As<ShapeExprView>(tensor->shape());
  if (!shape) return std::nullopt;
  return shape->values();
}

/*! \brief The shape of a tensor expression if each dim is known, or std::nullopt. */
inline std::optional<Array<ObjectRef>> ShapeOf(const ObjectRef& expr) {
  return ShapeOfType(TypeOf(expr));
}

/*! \brief Whether an expression is a tensor with exactly one element. */
inline bool IsSingleElement(const ObjectRef& expr) {
  auto shape = ShapeOf(expr);
  return shape && std::all_of(shape->begin(), shape->end(), IsOne);
}

/*! \brief Whether a function becomes a single kernel, so that no call may be inserted. */
inline bool IsKernel(const FunctionView& function) {
  const char* const names[] = {"Primitive", "Composite", "Codegen"};
  return std::any_of(std::begin(names), std::end(names), [&](const char* name) {
    return FunctionAttr(function.attrs(), name).has_value();
  });
}

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_IR_VIEWS_H_
