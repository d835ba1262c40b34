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
 * \file src/relay/op/transform_reshape.cc
 * \brief Operators that give the same elements another shape.
 */
#include <algorithm>
#include <set>

#include "registry.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief dividend / divisor; `?` unless both are static. */
Dim DivideDim(const InferContext& context, const Dim& dividend, const Dim& divisor) {
  std::optional<int64_t> left = StaticDim(dividend);
  std::optional<int64_t> right = StaticDim(divisor);
  if (right == 1) return dividend;
  if (right == 0) context.FailAttr("newshape", "a shape whose -1 can be inferred");
  if (!left || !right) return AnyDim();
  return *left / *right;
}

/*! \brief Computes the result of a reshape from its special values, from left to right. */
class ReshapeInference {
 public:
  ReshapeInference(const InferContext& context, std::vector<Dim> input,
                   std::vector<int64_t> newshape)
      : context_(context), input_(std::move(input)), newshape_(std::move(newshape)) {}

  std::vector<Dim> Run() {
    bool allow_zero = context_.Bool("allowzero");
    for (size_t i = 0; i < newshape_.size(); ++i) {
      int64_t value = newshape_[i];
      if (value > 0 || (value == 0 && allow_zero)) {
        output_.push_back(value);
        ++source_;
      } else if (value == 0) {
        CopyDim();
      } else if (value == -1) {
        if (inferred_) context_.FailAttr("newshape", "at most one -1");
        inferred_ = i;
        output_.push_back(int64_t{1});
        ++source_;
      } else if (value == -2) {
        while (source_ < input_.size()) CopyDim();
      } else if (value == -3) {
        Dim first = Take();
        AddUsed(MultiplyDim(first, Take()));
      } else if (value == -4) {
        Split(i);
        i += 2;
      } else {
        context_.FailAttr("newshape", "extents and the special values 0 to -4");
      }
    }
    if (inferred_) Infer();
    return output_;
  }

 private:
  Dim Take() {
    if (source_ >= input_.size()) {
      context_.FailAttr("newshape", "special values that fit the dimensions of the input");
    }
    used_inputs_.insert(source_);
    return input_[source_++];
  }

  void AddUsed(Dim dim) {
    used_outputs_.insert(output_.size());
    output_.push_back(std::move(dim));
  }

  void CopyDim() { AddUsed(Take()); }

  /*! \brief -4, a, b: one dimension becomes two; one of them may be -1. */
  void Split(size_t position) {
    if (position + 2 >= newshape_.size()) context_.FailAttr("newshape", "two values after -4");
    Dim whole = Take();
    int64_t left = newshape_[position + 1];
    int64_t right = newshape_[position + 2];
    if ((left < 1 && left != -1) || (right < 1 && right != -1) || (left == -1 && right == -1)) {
      context_.FailAttr("newshape", "two extents after -4, one of which may be -1");
    }
    AddUsed(left == -1 ? DivideDim(context_, whole, right) : Dim(left));
    AddUsed(right == -1 ? DivideDim(context_, whole, left) : Dim(right));
  }

  void Infer() {
    // Relay counts the position in newshape, even if a -2 or -4 precedes it.
    if (*inferred_ >= output_.size()) {
      context_.FailAttr("newshape", "-1 that is not shifted by a -4 before it");
    }
    Dim rest = int64_t{1};
    for (size_t i = 0; i < input_.size(); ++i) {
      if (used_inputs_.count(i) == 0) rest = MultiplyDim(rest, input_[i]);
    }
    for (size_t i = 0; i < output_.size(); ++i) {
      if (used_outputs_.count(i) == 0) rest = DivideDim(context_, rest, output_[i]);
    }
    output_[*inferred_] = rest;
  }

  const InferContext& context_;
  std::vector<Dim> input_;
  std::vector<int64_t> newshape_;
  std::vector<Dim> output_;
  size_t source_ = 0;
  std::optional<size_t> inferred_;
  std::set<size_t> used_inputs_;
  std::set<size_t> used_outputs_;
};

/*! \brief Fail if both shapes are static and differ in the number of elements. */
void CheckSameSize(const InferContext& context, const Shape& from, const Shape& to) {
  if (!StaticShape(from) || !StaticShape(to)) return;
  if (SameDim(NumElements(from), NumElements(to))) return;
  context.Fail("shape " + ShapeText(from) + " cannot be reshaped to " + ShapeText(to) +
               ", which has another number of elements");
}

Type ReshapeTo(InferContext& context, bool reverse) {
  TensorType data = context.Tensor(0);
  std::vector<Dim> input(data->shape.begin(), data->shape.end());
  std::vector<int64_t> newshape = context.Ints("newshape");
  if (reverse) {
    std::reverse(input.begin(), input.end());
    std::reverse(newshape.begin(), newshape.end());
  }
  std::vector<Dim> output = ReshapeInference(context, input, newshape).Run();
  if (reverse) std::reverse(output.begin(), output.end());
  Shape shape(output.begin(), output.end());
  CheckSameSize(context, data->shape, shape);
  return TensorType(shape, data->dtype);
}

Type ReshapeRelation(InferContext& context) { return ReshapeTo(context, context.Bool("reverse")); }

Type ReverseReshapeRelation(InferContext& context) { return ReshapeTo(context, true); }

/*! \brief An end of a range of axes; None is the number of dimensions. */
int64_t RangeBound(const InferContext& context, const char* attr, int64_t ndim) {
  if (!context.Has(attr)) return ndim;
  int64_t bound = context.Int(attr);
  if (bound < 0) bound += ndim;
  if (bound < 0 || bound > ndim) {
    context.FailAttr(attr, "position in [0, " + std::to_string(ndim) + "]");
  }
  return bound;
}

Type ReshapeLikeRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType like = context.Tensor(1);
  int64_t lhs_begin = RangeBound(context, "lhs_begin", data->ndim());
  int64_t lhs_end = RangeBound(context, "lhs_end", data->ndim());
  int64_t rhs_begin = RangeBound(context, "rhs_begin", like->ndim());
  int64_t rhs_end = RangeBound(context, "rhs_end", like->ndim());
  Shape shape;
  for (int64_t i = 0; i < lhs_begin; ++i) shape.push_back(data->shape[i]);
  for (int64_t i = rhs_begin; i < rhs_end; ++i) shape.push_back(like->shape[i]);
  for (int64_t i = lhs_end; i < data->ndim(); ++i) shape.push_back(data->shape[i]);
  CheckSameSize(context, data->shape, shape);
  return TensorType(shape, data->dtype);
}

Type SqueezeRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  std::vector<bool> dropped(data->ndim(), false);
  if (context.Has("axis")) {
    for (int64_t axis : context.Ints("axis")) {
      dropped[context.CheckAxis("axis", axis, data->ndim())] = true;
    }
  } else {
    if (!StaticShape(data->shape)) context.FailAttr("axis", "axes, as the shape is not static");
    for (int i = 0; i < data->ndim(); ++i) dropped[i] = StaticDim(data->shape[i]) == 1;
  }
  Shape shape;
  for (int i = 0; i < data->ndim(); ++i) {
    if (!dropped[i]) {
      shape.push_back(data->shape[i]);
    } else if (!MayBeEqual(data->shape[i], int64_t{1})) {
      context.FailAttr("axis", "axes with extent 1 of shape " + ShapeText(data->shape));
    }
  }
  return TensorType(shape, data->dtype);
}

Type ExpandDimsRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  int64_t position = context.Axis("axis", data->ndim() + 1);
  int64_t count = context.Int("num_newaxis");
  if (count < 0 || count > 1024) context.FailAttr("num_newaxis", "a number in [0, 1024]");
  Shape shape;
  for (int64_t i = 0; i <= data->ndim(); ++i) {
    for (int64_t j = 0; i == position && j < count; ++j) shape.push_back(int64_t{1});
    if (i < data->ndim()) shape.push_back(data->shape[i]);
  }
  return TensorType(shape, data->dtype);
}

Type TransposeRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  Shape shape;
  if (!context.Has("axes")) {
    for (int i = data->ndim() - 1; i >= 0; --i) shape.push_back(data->shape[i]);
    return TensorType(shape, data->dtype);
  }
  std::vector<bool> used(data->ndim(), false);
  std::vector<int64_t> axes = context.Ints("axes");
  for (int64_t given : axes) {
    int64_t axis = context.CheckAxis("axes", given, data->ndim());
    if (used[axis]) context.FailAttr("axes", "each axis once");
    used[axis] = true;
    shape.push_back(data->shape[axis]);
  }
  if (axes.size() != static_cast<size_t>(data->ndim())) {
    context.FailAttr("axes", std::to_string(data->ndim()) + " axes");
  }
  return TensorType(shape, data->dtype);
}

// "reverse" existed only in TVM 0.6 and 0.7.
RELAY_OP("reshape")
    .Inputs({"data"})
    .Attrs("relay.attrs.ReshapeAttrs", {RequiredAttr("newshape", AttrKind::kIntArray),
                                        BoolAttr("allowzero", false), BoolAttr("reverse", false)})
    .Relation(ReshapeRelation);

RELAY_OP("contrib_reverse_reshape")
    .Inputs({"data"})
    .Attrs("relay.attrs.ReshapeAttrs", {RequiredAttr("newshape", AttrKind::kIntArray),
                                        BoolAttr("allowzero", false), BoolAttr("reverse", true)})
    .Relation(ReverseReshapeRelation)
    .Alias("_contrib_reverse_reshape");

RELAY_OP("reshape_like")
    .Inputs({"lhs", "rhs"})
    .Attrs("relay.attrs.ReshapeLikeAttrs",
           {IntAttr("lhs_begin", 0), OptionalAttr("lhs_end", AttrKind::kInt),
            IntAttr("rhs_begin", 0), OptionalAttr("rhs_end", AttrKind::kInt)})
    .Relation(ReshapeLikeRelation);

RELAY_OP("squeeze")
    .Inputs({"data"})
    .Attrs("relay.attrs.SqueezeAttrs", {OptionalAttr("axis", AttrKind::kIntArray)})
    .Relation(SqueezeRelation);

RELAY_OP("expand_dims")
    .Inputs({"data"})
    .Attrs("relay.attrs.ExpandDimsAttrs",
           {RequiredAttr("axis", AttrKind::kInt), IntAttr("num_newaxis", 1)})
    .Relation(ExpandDimsRelation);

RELAY_OP("transpose")
    .Inputs({"data"})
    .Attrs("relay.attrs.TransposeAttrs", {OptionalAttr("axes", AttrKind::kIntArray)})
    .Relation(TransposeRelation);

RELAY_OP("auto_scheduler_layout_transform")
    .Inputs({"data"})
    .Attrs("relay.attrs.AutoSchedulerLayoutTransformAttrs",
           {RequiredAttr("src_layout", AttrKind::kString),
            RequiredAttr("dst_layout", AttrKind::kString)})
    .Rejected("its layouts belong to a schedule of the auto-scheduler, which TVM removed");

RELAY_OP("meta_schedule_layout_transform")
    .Inputs({"data"})
    .Attrs("relay.attrs.MetaScheduleLayoutTransformAttrs",
           {RequiredAttr("index_map", AttrKind::kAny)})
    .Rejected("its layout belongs to a schedule; save the program before relay.build");

}  // namespace
}  // namespace tvm_fixes::relay
