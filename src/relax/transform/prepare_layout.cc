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
 * \file src/relax/transform/prepare_layout.cc
 * \brief Clears the way for ConvertLayout, which gives up a layout at a reshape of a constant and
 *        transforms values that nobody reads; and clears away the identities that it leaves.
 *
 * A field taken of a tuple becomes the field; a reshape of a constant becomes a constant that
 * shares its memory; a constant operand of a broadcast gets the rank of the result; a permute or a
 * layout_transform that leaves every element where it is becomes a reshape; permutes in a row
 * become one; a pixel shuffle becomes reshapes around a permute; an operator that changes nothing
 * is dropped; and so is what a dataflow block then no longer needs.
 *
 *     lv0 = R.reshape(bias, R.shape([1, 8, 1, 1]))          lv1 = R.add(x, bias_1x8x1x1)
 *     lv1 = R.add(x, lv0)                              =>   gv = R.nn.relu(lv1)
 *     lv2 = (lv1, R.zeros_like(lv1))
 *     gv = R.nn.relu(lv2[0])
 */
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "../../ffi/registration.h"
#include "../ir/build.h"
#include "../ir/mutator.h"
#include "../ir/visitor.h"
#include "../op/permute_dims.h"
#include "../op/reshape.h"

namespace tvm_fixes {
namespace {

constexpr const char* kFixId = "prepare-layout";

/*! \brief Whether a permute keeps the order of all axes that have more than one element. */
bool KeepsOrderOfAxes(const CallView& permute, const std::vector<int64_t>& axes) {
  auto shape = ShapeOf(permute.args()[0]);
  const bool known = shape && shape->size() == axes.size();
  int64_t last = -1;
  for (int64_t axis : axes) {
    if (known && IsOne((*shape)[axis])) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

/*! \brief Whether a permute swaps the last two axes, and nothing else. */
bool IsMatrixTransposition(std::vector<int64_t> axes) {
  if (axes.size() < 2) return false;
  std::swap(axes[axes.size() - 2], axes[axes.size() - 1]);
  return std::is_sorted(axes.begin(), axes.end());
}

/*! \brief The position in memory of an element of a tensor; null if an inner extent is symbolic. */
ObjectRef FlatIndex(const Array<ObjectRef>& index, const Array<ObjectRef>& shape) {
  static const GlobalFunction add("prim._OpAdd");
  static const GlobalFunction multiply("prim._OpMul");
  if (index.size() != shape.size() || index.empty()) return ObjectRef(nullptr);
  ObjectRef flat = index[0];
  for (size_t i = 1; i < index.size(); ++i) {
    auto extent = AsInt(shape[i]);
    if (!extent) return ObjectRef(nullptr);
    const ObjectRef scaled = multiply(flat, *extent, nullptr).cast<ObjectRef>();
    flat = add(scaled, index[i], nullptr).cast<ObjectRef>();
  }
  return flat;
}

/*! \brief Whether two shapes that agree in a symbolic outermost extent agree in all. */
bool HaveSameSize(const Array<ObjectRef>& lhs, const Array<ObjectRef>& rhs) {
  auto inner_size = [](const Array<ObjectRef>& shape) {
    int64_t size = 1;
    for (size_t i = 1; i < shape.size(); ++i) size *= AsInt(shape[i]).value_or(0);
    return size;
  };
  if (StructuralEqual(lhs[0], rhs[0])) return inner_size(lhs) == inner_size(rhs);
  auto lhs_outer = AsInt(lhs[0]);
  auto rhs_outer = AsInt(rhs[0]);
  return lhs_outer && rhs_outer && *lhs_outer * inner_size(lhs) == *rhs_outer * inner_size(rhs);
}

/*! \brief Whether a layout_transform leaves every element at its position in memory. */
bool KeepsPositions(const CallView& transform) {
  static const GlobalFunction analyzer("sym.Analyzer");
  static const GlobalFunction bind("sym.AnalyzerBind");
  static const GlobalFunction range("ir.Range");
  static const GlobalFunction can_prove_equal("sym.AnalyzerCanProveEqual");
  const Object* attrs = transform.attrs().get();
  auto in_shape = ShapeOf(transform.args()[0]);
  auto out_shape = ShapeOf(transform.ref());
  if (!in_shape || !out_shape || !nodes.layout_transform_attrs.IsInstance(attrs)) return false;
  const ObjectRef& map = nodes.layout_transform_attrs.index_map(attrs);
  if (!nodes.index_map.IsInstance(map.get())) return false;
  const Array<ObjectRef>& in_index = nodes.index_map.initial_indices(map.get());
  const ObjectRef from = FlatIndex(in_index, *in_shape);
  const ObjectRef to = FlatIndex(nodes.index_map.final_indices(map.get()), *out_shape);
  // A result of another size is padded.
  if (!from.defined() || !to.defined() || !HaveSameSize(*in_shape, *out_shape)) return false;
  const Any known = analyzer();
  for (size_t i = 0; i < in_index.size(); ++i) {
    if (auto extent = AsInt((*in_shape)[i])) {
      bind(known, in_index[i], range(0, *extent, nullptr), false);
    }
  }
  return can_prove_equal(known, from, to).cast<bool>();
}

/*! \brief Whether a call gives the elements of its first argument in the same order. */
bool KeepsElements(const CallView& call) {
  if (call.args().empty()) return false;
  if (auto axes = PermutedAxes(call)) return KeepsOrderOfAxes(call, *axes);
  if (call.IsOp("relax.layout_transform")) return KeepsPositions(call);
  return call.IsOp("relax.reshape") || call.IsOp("relax.expand_dims") || call.IsOp("relax.squeeze");
}

/*! \brief Whether the shapes of two expressions are known to be the same, dim by dim. */
bool HaveSameShape(const ObjectRef& lhs, const ObjectRef& rhs) {
  auto lhs_shape = ShapeOf(lhs);
  auto rhs_shape = ShapeOf(rhs);
  return lhs_shape && rhs_shape && StructuralEqual(*lhs_shape, *rhs_shape);
}

/*! \brief The element-wise operators with two operands, which broadcast a constant of lower rank.
 */
bool IsBroadcastingBinary(const CallView& call) {
  static const std::unordered_set<std::string> names = {
      "relax.add",          "relax.subtract", "relax.multiply",   "relax.divide",
      "relax.floor_divide", "relax.mod",      "relax.floor_mod",  "relax.power",
      "relax.minimum",      "relax.maximum",  "relax.equal",      "relax.not_equal",
      "relax.less",         "relax.greater",  "relax.less_equal", "relax.greater_equal"};
  return nodes.op.IsInstance(call.op().get()) && call.args().size() == 2 &&
         names.count(nodes.op.name(call.op().get())) != 0;
}

/*! \brief The dims of a tensor whose shape is static, nothing otherwise. */
std::optional<std::vector<int64_t>> StaticShape(const ObjectRef& expr) {
  auto shape = ShapeOf(expr);
  if (!shape) return std::nullopt;
  std::vector<int64_t> dims;
  for (const ObjectRef& dim : *shape) {
    auto value = AsInt(dim);
    if (!value) return std::nullopt;
    dims.push_back(*value);
  }
  return dims;
}

/*! \brief A contiguous tensor seen in another shape of as many elements. */
tvm::ffi::Tensor ViewAs(const tvm::ffi::Tensor& tensor, const std::vector<int64_t>& shape) {
  // Never empty: the view of a scalar must have pointers too.
  std::vector<int64_t> strides(shape.size() + 1, 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  const int64_t* extents = shape.empty() ? strides.data() : shape.data();
  return tensor.as_strided(tvm::ffi::ShapeView(extents, shape.size()),
                           tvm::ffi::ShapeView(strides.data(), shape.size()));
}

/*! \brief The constant `expr` seen in another static shape; null if it is none or not so. */
ObjectRef ReshapeConstant(const ObjectRef& expr, const std::vector<int64_t>& shape) {
  auto constant = As<ConstantView>(expr);
  auto type = As<TensorTypeView>(TypeOf(expr));
  if (!constant || !type) return ObjectRef(nullptr);
  auto tensor = constant->value().try_cast<tvm::ffi::Tensor>();
  if (!tensor || !tensor->IsContiguous()) return ObjectRef(nullptr);
  int64_t size = 1;
  for (int64_t dim : shape) size *= dim;
  if (size != tensor->numel()) return ObjectRef(nullptr);
  Array<ObjectRef> dims;
  for (int64_t dim : shape) dims.push_back(MakeIntImm("int64", dim));
  return MakeConstant(ViewAs(*tensor, shape), MakeTensorType(dims, *type));
}

bool HoldsDataflowVar(const ObjectRef& expr) {
  auto tuple = As<TupleView>(expr);
  if (!tuple) return KindOf(expr.get()) == Kind::kDataflowVar;
  return std::any_of(tuple->fields().begin(), tuple->fields().end(), HoldsDataflowVar);
}

/*! \brief The rewrites of single values. */
class Simplifier : public Mutator {
 public:
  using Mutator::Mutator;

 protected:
  ObjectRef RewriteValue(const ObjectRef& value) override {
    if (auto get_item = As<TupleGetItemView>(value)) return ForwardField(*get_item);
    auto call = As<CallView>(value);
    if (!call) return value;
    if (KeepsElements(*call)) return SimplifyReshape(*call);
    if (call->IsOp("relax.permute_dims")) return JoinPermutes(*call);
    if (call->IsOp("relax.broadcast_to") && !call->args().empty() &&
        HaveSameShape(value, call->args()[0])) {
      return call->args()[0];
    }
    if (IsBroadcastingBinary(*call)) return AlignConstants(*call);
    if (call->IsOp("relax.nn.pixel_shuffle")) return SplitPixelShuffle(*call);
    return value;
  }

 private:
  ObjectRef ForwardField(const TupleGetItemView& get_item) const {
    const ObjectRef& var = get_item.tuple_value();
    auto tuple = As<TupleView>(KindOf(var.get()) == Kind::kTuple ? var : BoundValue(var));
    const int64_t index = get_item.index();
    if (!tuple || index < 0 || index >= static_cast<int64_t>(tuple->fields().size())) {
      return get_item.ref();
    }
    const ObjectRef field = tuple->fields()[index];
    // A tuple that its block gives out may be read where the field itself is out of scope.
    const bool may_escape = KindOf(var.get()) == Kind::kVar && HoldsDataflowVar(field);
    return may_escape || !field.defined() ? get_item.ref() : field;
  }

  /*!
   * \brief Join a permute with the one before it, past a reshape where one stands between them.
   *
   * A transposition of the last two axes is left for the matmul that may read it.
   *
   *     b = R.permute_dims(a, …)
   *     c = R.reshape(b, …)               =>   d = R.permute_dims(a, …)
   *     e = R.permute_dims(c, …)               e = R.reshape(d, …)
   */
  ObjectRef JoinPermutes(const CallView& call) {
    auto axes = PermutedAxes(call);
    auto before = As<CallView>(BoundValue(call.args()[0]));
    if (!axes || !before || IsMatrixTransposition(*axes)) return call.ref();
    const bool reshaped = before->IsOp("relax.reshape");
    if (reshaped) {
      axes = AxesBefore(*before, *axes);
      before = As<CallView>(BoundValue(before->args()[0]));
    }
    auto first = axes && before ? PermutedAxes(*before) : std::nullopt;
    if (!first) return call.ref();
    Array<int64_t> joined;
    for (int64_t axis : *axes) joined.push_back((*first)[axis]);
    static const GlobalFunction permute_dims("relax.op.permute_dims");
    const ObjectRef permuted =
        Normalize(builder(), permute_dims(before->args()[0], joined).cast<ObjectRef>());
    const ObjectRef simplified = RewriteValue(permuted);
    if (!reshaped) return simplified;
    const bool is_call = KindOf(simplified.get()) == Kind::kCall;
    return MakeReshape(is_call ? Emit(simplified) : simplified, *ShapeOf(call.ref()));
  }

  /*!
   * \brief The axes by which to permute the argument of a reshape in place of its result.
   * \return Nothing if axes that the reshape makes of the same ones would be torn apart.
   */
  static std::optional<std::vector<int64_t>> AxesBefore(const CallView& reshape,
                                                        const std::vector<int64_t>& axes) {
    auto in_shape = ShapeOf(reshape.args()[0]);
    auto out_shape = ShapeOf(reshape.ref());
    auto groups = in_shape && out_shape ? GroupAxes(*in_shape, *out_shape) : std::nullopt;
    if (!groups) return std::nullopt;
    std::vector<int64_t> before;
    for (size_t axis = 0; axis < in_shape->size(); ++axis) {
      if (FindGroup(*groups, &AxisGroup::in, axis) == groups->end()) before.push_back(axis);
    }
    for (size_t i = 0; i < axes.size();) {
      const AxisGroup& group = *FindGroup(*groups, &AxisGroup::out, axes[i]);
      for (size_t member : group.out) {
        if (i == axes.size() || axes[i++] != static_cast<int64_t>(member)) return std::nullopt;
      }
      before.insert(before.end(), group.in.begin(), group.in.end());
    }
    return before;
  }

  ObjectRef SimplifyReshape(const CallView& call) const {
    const ObjectRef& data = call.args()[0];
    if (HaveSameShape(call.ref(), data)) return data;
    if (auto shape = StaticShape(call.ref())) {
      const ObjectRef constant = ReshapeConstant(data, *shape);
      if (constant.defined()) return constant;
    }
    auto shape = ShapeOf(call.ref());
    const bool is_reshape =
        !call.IsOp("relax.permute_dims") && !call.IsOp("relax.layout_transform");
    if (!shape || is_reshape) return call.ref();
    return MakeReshape(data, *shape);
  }

  ObjectRef MakeReshape(const ObjectRef& data, const Array<ObjectRef>& shape) const {
    static const GlobalFunction reshape("relax.op.reshape");
    return Normalize(builder(), reshape(data, MakeShapeExpr(shape)).cast<ObjectRef>());
  }

  /*!
   * \brief A pixel shuffle as the permute that it is, between reshapes, all of which follow
   * layouts.
   *
   * The channels (C, row, column) are split, rows and columns go behind height and width, and are
   * merged with them.
   */
  ObjectRef SplitPixelShuffle(const CallView& call) {
    static const GlobalFunction permute_dims("relax.op.permute_dims");
    const Object* attrs = call.attrs().get();
    auto in_shape = ShapeOf(call.args()[0]);
    auto out_shape = ShapeOf(call.ref());
    if (!in_shape || !out_shape || !nodes.pixel_shuffle_attrs.IsInstance(attrs)) return call.ref();
    const ObjectRef factor = MakeIntImm("int64", nodes.pixel_shuffle_attrs.upscale_factor(attrs));
    const auto channel = static_cast<int64_t>(in_shape->size()) - 3;
    Array<ObjectRef> split;
    Array<int64_t> axes;
    for (int64_t axis = 0; axis < channel; ++axis) {
      split.push_back((*in_shape)[axis]);
      axes.push_back(axis);
    }
    for (const ObjectRef& extent : {(*out_shape)[channel], factor, factor, (*in_shape)[channel + 1],
                                    (*in_shape)[channel + 2]}) {
      split.push_back(extent);
    }
    for (int64_t axis : {0, 3, 1, 4, 2}) axes.push_back(channel + axis);
    const ObjectRef channels = Emit(MakeReshape(call.args()[0], split));
    const ObjectRef pixels = Emit(permute_dims(channels, axes).cast<ObjectRef>());
    return MakeReshape(pixels, *out_shape);
  }

  /*!
   * \brief Give constant operands the rank of the result, and a single element the rank 0.
   *
   * A constant that does not reach the second axis, that of the channels, stays as it is:
   * ConvertLayout to a packed layout cannot split an axis of extent 1.
   */
  ObjectRef AlignConstants(const CallView& call) const {
    auto out_shape = ShapeOf(call.ref());
    if (!out_shape) return call.ref();
    const size_t ndim = out_shape->size();
    std::vector<ObjectRef> args;
    bool changed = false;
    for (const ObjectRef& arg : call.args()) {
      args.push_back(arg);
      auto shape = StaticShape(arg);
      if (!shape || shape->empty() || shape->size() >= ndim) continue;
      if (std::all_of(shape->begin(), shape->end(), [](int64_t dim) { return dim == 1; })) {
        shape->clear();
      } else {
        shape->insert(shape->begin(), ndim - shape->size(), 1);
        if ((*shape)[1] == 1) continue;
      }
      const ObjectRef aligned = ReshapeConstant(arg, *shape);
      if (!aligned.defined()) continue;
      args.back() = aligned;
      changed = true;
    }
    if (!changed) return call.ref();
    return Normalize(builder(),
                     MakeCall(call.op(), Array<ObjectRef>(args.begin(), args.end()), call.attrs(),
                              call.ty_args(), nodes.expr.span(call.get())));
  }
};

/*!
 * \brief Whether a binding may go if nobody reads its variable.
 *
 * A MatchCast checks, and may bind symbols; a scalar or a shape may be named by shapes and types.
 */
bool IsRemovable(const BindingView& binding, bool in_dataflow_block) {
  return in_dataflow_block && !binding.is_match_cast() && IsTensorOrTuple(TypeOf(binding.var()));
}

/*!
 * \brief The variables that are read, directly or not, by something that must stay: the result,
 *        and every binding that IsRemovable does not name.
 */
class LiveVariables : public Visitor {
 public:
  explicit LiveVariables(const ObjectRef& function) {
    VisitExpr(function);
    // A chain of bindings can be long: no recursion along it.
    while (!pending_.empty()) {
      const ObjectRef value = std::move(pending_.back());
      pending_.pop_back();
      VisitExpr(value);
    }
  }

  bool Contains(const Object* var) const { return live_.count(var) != 0; }

 protected:
  void VisitBlock(const BlockView& block) override {
    const bool outer = std::exchange(in_dataflow_block_, block.is_dataflow());
    Visitor::VisitBlock(block);
    in_dataflow_block_ = outer;
  }

  void VisitBinding(const BindingView& binding) override {
    if (IsRemovable(binding, in_dataflow_block_) && !Contains(binding.var().get())) {
      unread_.insert_or_assign(binding.var().get(), binding.value());
      return;
    }
    Visitor::VisitBinding(binding);
  }

  void VisitVarUse(const VarView& var) override {
    live_.insert(var.get());
    auto value = unread_.find(var.get());
    if (value == unread_.end()) return;
    pending_.push_back(std::move(value->second));
    unread_.erase(value);
  }

 private:
  bool in_dataflow_block_ = false;
  std::unordered_set<const Object*> live_;
  std::unordered_map<const Object*, ObjectRef> unread_;
  std::vector<ObjectRef> pending_;
};

class DeadBindingRemover : public Mutator {
 public:
  DeadBindingRemover(const ObjectRef& mod, const ObjectRef& function)
      : Mutator(mod), live_(function) {}

 protected:
  void RewriteBinding(const BindingView& binding) override {
    if (IsRemovable(binding, in_dataflow_block()) && !live_.Contains(binding.var().get())) return;
    Mutator::RewriteBinding(binding);
  }

 private:
  LiveVariables live_;
};

ObjectRef PrepareLayout(const ObjectRef& function, const ObjectRef& mod) {
  if (!IsEnabled(kFixId)) return function;
  const ObjectRef simplified = Simplifier(mod).Rewrite(function);
  const ObjectRef prepared = DeadBindingRemover(mod, simplified).Rewrite(simplified);
  if (!prepared.same_as(function)) NoteUse(kFixId);
  return prepared;
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.transform.PrepareLayout", []() {
    return MakeFunctionPass(PrepareLayout, "PrepareLayout");
  });
}

}  // namespace
}  // namespace tvm_fixes
