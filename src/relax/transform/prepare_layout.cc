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
 * \brief Simplifies a function before and after ConvertLayout, which drops a layout at a reshape of
 *        a constant, transforms dead values and leaves identities behind.
 *
 * A TupleGetItem of a known tuple becomes its field. A reshape of a constant becomes a constant
 * that shares its memory. A constant operand of a broadcast gets the rank of the result. A permute
 * or layout_transform that moves no element becomes a reshape. Consecutive permutes and
 * layout_transforms, with reshapes between them, become one permute, and consecutive reshapes one
 * reshape. A pixel shuffle becomes reshapes around a permute. Identities and bindings that become
 * dead are removed. The operand of a match_cast is bound to a variable, since ConvertLayout raises
 * otherwise.
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
#include "../analysis/rearrangement.h"
#include "../ir/build.h"
#include "../ir/mutator.h"
#include "../ir/visitor.h"
#include "../op/permute_dims.h"
#include "../op/pixel_shuffle_attrs.h"

namespace tvm_fixes {
namespace {

constexpr const char* kPrepareLayoutFix = "prepare-layout";

/*! \brief Whether a call is a reshape of its first argument. */
bool IsReshape(const CallView& call) {
  return !call.args().empty() && (call.IsOp("relax.reshape") || call.IsOp("relax.expand_dims") ||
                                  call.IsOp("relax.squeeze"));
}

/*! \brief Whether a call may move the elements of its first argument. */
bool IsMove(const CallView& call) {
  return !call.args().empty() &&
         (call.IsOp("relax.permute_dims") || call.IsOp("relax.layout_transform"));
}

/*! \brief Whether a call is a permute that only swaps the last two axes. */
bool IsMatrixTranspose(const CallView& call) {
  auto axes = PermutedAxes(call);
  if (!axes || axes->size() < 2) return false;
  std::swap((*axes)[axes->size() - 2], (*axes)[axes->size() - 1]);
  return std::is_sorted(axes->begin(), axes->end());
}

/*! \brief Collects the second operands of matmuls, which a matmul can read transposed. */
class SecondOperands : public Visitor {
 public:
  explicit SecondOperands(const ObjectRef& function) { VisitExpr(function); }

  bool Contains(const ObjectRef& var) const { return vars_.count(var.get()) != 0; }

 protected:
  void VisitCall(const CallView& call) override {
    if (call.IsOp("relax.matmul") && call.args().size() == 2) vars_.insert(call.args()[1].get());
    Visitor::VisitCall(call);
  }

 private:
  std::unordered_set<const Object*> vars_;
};

/*! \brief Whether the shapes of two expressions are known to be the same, dim by dim. */
bool HaveSameShape(const ObjectRef& lhs, const ObjectRef& rhs) {
  auto lhs_shape = ShapeOf(lhs);
  auto rhs_shape = ShapeOf(rhs);
  return lhs_shape && rhs_shape && StructuralEqual(*lhs_shape, *rhs_shape);
}

/*! \brief The binary element-wise operators, which broadcast a constant of lower rank. */
bool IsBroadcastingBinary(const CallView& call) {
  static const std::unordered_set<std::string> names = {
      "relax.add",          "relax.subtract", "relax.multiply",   "relax.divide",
      "relax.floor_divide", "relax.mod",      "relax.floor_mod",  "relax.power",
      "relax.minimum",      "relax.maximum",  "relax.equal",      "relax.not_equal",
      "relax.less",         "relax.greater",  "relax.less_equal", "relax.greater_equal"};
  return nodes.op.IsInstance(call.op().get()) && call.args().size() == 2 &&
         names.count(nodes.op.name(call.op().get())) != 0;
}

/*! \brief The values of static dims, or std::nullopt if a dim is symbolic. */
std::optional<std::vector<int64_t>> AsInts(const Array<ObjectRef>& dims) {
  std::vector<int64_t> values;
  for (const ObjectRef& dim : dims) {
    auto value = AsInt(dim);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

/*! \brief The dims of a tensor of static shape, or std::nullopt. */
std::optional<std::vector<int64_t>> StaticShape(const ObjectRef& expr) {
  auto shape = ShapeOf(expr);
  return shape ? AsInts(*shape) : std::nullopt;
}

/*! \brief Whether a shape is known to have no elements. */
bool HasZero(const std::optional<Array<ObjectRef>>& shape) {
  return shape && std::any_of(shape->begin(), shape->end(),
                              [](const ObjectRef& dim) { return AsInt(dim) == 0; });
}

/*! \brief A contiguous tensor viewed in another shape with the same number of elements. */
tvm::ffi::Tensor ViewAs(const tvm::ffi::Tensor& tensor, const std::vector<int64_t>& shape) {
  // One extra element, so that the pointers of a scalar's view are not null.
  std::vector<int64_t> strides(shape.size() + 1, 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  const int64_t* extents = shape.empty() ? strides.data() : shape.data();
  return tensor.as_strided(tvm::ffi::ShapeView(extents, shape.size()),
                           tvm::ffi::ShapeView(strides.data(), shape.size()));
}

/*! \brief The constant `expr` viewed in another static shape; null if that is impossible. */
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

/*! \brief Rewrites single values. */
class Simplifier : public Mutator {
 public:
  Simplifier(const ObjectRef& mod, const ObjectRef& function)
      : Mutator(mod), second_operands_(function) {}

 protected:
  void RewriteBinding(const BindingView& binding) override {
    const ObjectRef outer = std::exchange(bound_var_, binding.var());
    // ConvertLayout tracks the layouts of variables, and raises at a cast of anything else.
    if (binding.is_match_cast() && KindOf(binding.var().get()) == Kind::kDataflowVar &&
        KindOf(binding.value().get()) == Kind::kCall) {
      const ObjectRef cast = MakeMatchCast(binding.var(), Emit(RewriteExpr(binding.value())),
                                           binding.cast_ty(), binding.span());
      Mutator::RewriteBinding(*As<BindingView>(cast));
    } else {
      Mutator::RewriteBinding(binding);
    }
    bound_var_ = outer;
  }

  ObjectRef RewriteValue(const ObjectRef& value) override {
    if (auto get_item = As<TupleGetItemView>(value)) return ForwardField(*get_item);
    auto call = As<CallView>(value);
    if (!call) return value;
    // In TVM's reshape, an extent of 0 copies an extent of the data.
    if ((IsReshape(*call) || IsMove(*call)) && HasZero(ShapeOf(value))) return value;
    if (IsReshape(*call)) return JoinReshapes(*call);
    if (IsMove(*call)) return JoinMoves(*call);
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
    // An output tuple of a block may be read where the field is out of scope.
    const bool may_escape = KindOf(var.get()) == Kind::kVar && HoldsDataflowVar(field);
    return may_escape || !field.defined() ? get_item.ref() : field;
  }

  /*!
   * \brief Merge a permute or layout_transform with the preceding one, across reshapes.
   *
   * A transpose that a matmul can absorb is left to the matmul.
   *
   *     b = R.layout_transform(a, …)          c = R.reshape(a, …)
   *     c = R.reshape(b, …)               =>   d = R.permute_dims(c, …)
   *     e = R.permute_dims(c, …)               e = R.reshape(d, …)
   */
  ObjectRef JoinMoves(const CallView& call) {
    static const GlobalFunction permute_dims("relax.op.permute_dims");
    auto permutation = AsAxisPermutation(call);
    auto result = ShapeOf(call.ref());
    if (!permutation || !result) return call.ref();
    Rearrangement move(call.args()[0]);
    if (!move.Permute(*permutation, *result)) return call.ref();
    const Rearrangement moves = Trace(call);
    if (moves.IsIdentity()) return View(moves.source(), *result);
    if (move.IsIdentity()) return View(move.source(), *result);
    if (moves.num_permutes() < 2 ||
        (second_operands_.Contains(bound_var_) && IsMatrixTranspose(call))) {
      return call.ref();
    }
    const AxisPermutation joined = moves.Join(*result);
    const Array<int64_t> axes(joined.axes.begin(), joined.axes.end());
    const ObjectRef data = EmitCall(View(moves.source(), joined.shape));
    const ObjectRef permuted = Normalize(builder(), permute_dims(data, axes).cast<ObjectRef>());
    return HaveSameShape(permuted, call.ref()) ? permuted : View(Emit(permuted), *result);
  }

  /*! \brief The rearrangement from the start of a chain of moves to the result of `call`. */
  Rearrangement Trace(const CallView& call) const {
    std::vector<CallView> steps{call};
    // A preceding move is already merged with those before it, except possibly a transpose.
    for (bool joined = false; !joined;) {
      auto before = As<CallView>(ValueInScope(steps.back().args()[0]));
      if (!before || !ShapeOf(before->ref())) break;
      if (!IsReshape(*before) && !AsAxisPermutation(*before)) break;
      joined = IsMove(*before) && !IsMatrixTranspose(*before);
      steps.push_back(*before);
    }
    // A reshape before the first move would only split more axes.
    while (IsReshape(steps.back()) || !ShapeOf(steps.back().args()[0])) steps.pop_back();
    Rearrangement moves(steps.back().args()[0]);
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      auto permutation = AsAxisPermutation(*step);
      if (!permutation || moves.Permute(*permutation, *ShapeOf(step->ref()))) continue;
      moves = Rearrangement(step->args()[0]);
      moves.Permute(*permutation, *ShapeOf(step->ref()));
    }
    return moves;
  }

  ObjectRef JoinReshapes(const CallView& call) const {
    const ObjectRef& data = call.args()[0];
    auto shape = ShapeOf(call.ref());
    if (!shape) return call.ref();
    const ObjectRef view = View(data, *shape);
    auto reshape = As<CallView>(view);
    return reshape && reshape->args()[0].same_as(data) ? call.ref() : view;
  }

  /*! \brief `data` in another shape: unchanged, as a constant, or by a single reshape. */
  ObjectRef View(ObjectRef data, const Array<ObjectRef>& shape) const {
    static const GlobalFunction reshape("relax.op.reshape");
    while (auto before = As<CallView>(ValueInScope(data))) {
      if (!IsReshape(*before)) break;
      data = before->args()[0];
    }
    auto own_shape = ShapeOf(data);
    if (own_shape && StructuralEqual(*own_shape, shape)) return data;
    if (auto extents = AsInts(shape)) {
      const ObjectRef constant = ReshapeConstant(data, *extents);
      if (constant.defined()) return constant;
    }
    return Normalize(builder(), reshape(data, MakeShapeExpr(shape)).cast<ObjectRef>());
  }

  /*! \brief Bind a call to a variable; return anything else unchanged. */
  ObjectRef EmitCall(const ObjectRef& expr) {
    return KindOf(expr.get()) == Kind::kCall ? Emit(expr) : expr;
  }

  /*!
   * \brief Decompose a pixel shuffle into reshapes around a permute, which all have layout rules.
   *
   * The channels are split into (C, row, column). Rows and columns move behind height and width and
   * merge with them.
   */
  ObjectRef SplitPixelShuffle(const CallView& call) {
    static const GlobalFunction permute_dims("relax.op.permute_dims");
    const Object* attrs = call.attrs().get();
    auto in_shape = ShapeOf(call.args()[0]);
    auto out_shape = ShapeOf(call.ref());
    if (!in_shape || !out_shape || !pixel_shuffle_attrs.IsInstance(attrs)) return call.ref();
    const ObjectRef factor = MakeIntImm("int64", pixel_shuffle_attrs.upscale_factor(attrs));
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
    const ObjectRef channels = EmitCall(View(call.args()[0], split));
    const ObjectRef pixels = Emit(permute_dims(channels, axes).cast<ObjectRef>());
    return View(pixels, *out_shape);
  }

  /*!
   * \brief Give constant operands the rank of the result, and single elements rank 0.
   *
   * A constant that does not extend to the channel axis, the second one, is unchanged:
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

  SecondOperands second_operands_;
  /*! \brief The variable of the current binding. */
  ObjectRef bound_var_;
};

/*!
 * \brief Whether a binding may be removed if nothing reads its variable.
 *
 * A MatchCast is a check and may bind symbols. Shapes and types may refer to a scalar or a shape.
 */
bool IsRemovable(const BindingView& binding, bool in_dataflow_block) {
  return in_dataflow_block && !binding.is_match_cast() && IsTensorOrTuple(TypeOf(binding.var()));
}

/*!
 * \brief Collects live variables: those read, directly or indirectly, by the result or by a binding
 *        that is not removable.
 */
class LiveVariables : public Visitor {
 public:
  explicit LiveVariables(const ObjectRef& function) {
    VisitExpr(function);
    // A worklist instead of recursion, since chains of bindings can be long.
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
  if (!IsEnabled(kPrepareLayoutFix)) return function;
  const ObjectRef simplified = Simplifier(mod, function).Rewrite(function);
  const ObjectRef prepared = DeadBindingRemover(mod, simplified).Rewrite(simplified);
  if (!prepared.same_as(function)) NoteUse(kPrepareLayoutFix);
  return prepared;
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.transform.PrepareLayout", []() {
    return MakeFunctionPass(PrepareLayout, "PrepareLayout");
  });
}

}  // namespace
}  // namespace tvm_fixes
