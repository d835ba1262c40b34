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
 * \file src/relay/transform/dynamic_rules.cc
 * \brief Rules that make one call of a dyn.* operator static.
 */
#include "dynamic_rules.h"

#include <algorithm>
#include <functional>

namespace tvm_fixes::relay {
namespace {

using KnownInts = std::optional<std::vector<int64_t>>;

/*! \brief A call of a dyn.* operator. */
struct DynCall {
  const Call& call;
  const Array<Type>& types;

  size_t num_args() const { return call->args.size(); }

  [[noreturn]] void Fail(const std::string& message) const {
    ThrowRelayError(CallText(call.get()) + ": " + message);
  }

  std::optional<ConstValue> Value(size_t index) const {
    if (index >= num_args()) return std::nullopt;
    const auto* constant = call->args[index].as<ConstantObj>();
    return constant == nullptr ? std::nullopt : LoadValue(constant->data);
  }

  /*! \brief The elements of an integer operand with up to `max_ndim` dimensions. */
  KnownInts IntOperand(size_t index, int64_t max_ndim = 1) const {
    std::optional<ConstValue> value = Value(index);
    if (!value || value->is_float() || value->ndim() > max_ndim) return std::nullopt;
    std::vector<int64_t> ints;
    for (const Scalar& element : value->elements) ints.push_back(element.i);
    return ints;
  }

  /*! \brief A shape: none of its extents is negative. */
  KnownInts ShapeOperand(size_t index) const {
    KnownInts shape = IntOperand(index);
    if (!shape) return shape;
    for (int64_t dim : *shape) {
      if (dim < 0) Fail("the shape has the extent " + std::to_string(dim));
    }
    return shape;
  }

  /*! \brief A number, integer or float, in a tensor of one element. */
  std::optional<double> Number(size_t index) const {
    std::optional<ConstValue> value = Value(index);
    if (!value || value->size() != 1) return std::nullopt;
    const Scalar& element = value->elements[0];
    return value->is_float() ? element.f : static_cast<double>(element.i);
  }

  /*! \brief The number of dimensions of an argument, or -1. */
  int64_t Rank(size_t index) const {
    const auto* type = index < types.size() ? types[index].as<TensorTypeObj>() : nullptr;
    return type == nullptr ? -1 : type->ndim();
  }

  /*! \brief The static operator on the first `count` arguments, with one more attribute. */
  Expr Make(const char* op, size_t count, const char* attr, Any value) const {
    Attrs attrs = call->attrs;
    attrs.Set(attr, std::move(value));
    return Make(op, count, std::move(attrs));
  }

  Expr Make(const char* op, size_t count, Attrs attrs) const {
    Array<Expr> args(call->args.begin(), call->args.begin() + count);
    return WithSpan(Call(Op::Get(op), args, std::move(attrs)), call->span);
  }
};

Array<Any> ToArray(const std::vector<int64_t>& values) {
  return Array<Any>(values.begin(), values.end());
}

Expr Reshape(const DynCall& dyn) {
  KnownInts shape = dyn.IntOperand(1);
  if (!shape) return Expr();
  for (int64_t dim : *shape) {
    // -2 and -4 would change the number of dimensions; only the static operator has them.
    if (dim == -2 || dim < -3) dyn.Fail("newshape holds " + std::to_string(dim));
  }
  return dyn.Make("reshape", 1, "newshape", ToArray(*shape));
}

/*! \brief Remove exactly the axes that the operand names. */
Expr Squeeze(const DynCall& dyn) {
  KnownInts axes = dyn.IntOperand(1);
  int64_t ndim = dyn.Rank(0);
  if (!axes || ndim < 0) return Expr();
  // An empty list of axes removes nothing; without axes the static operator removes all of
  // extent 1.
  if (axes->empty()) return dyn.call->args[0];
  for (int64_t& axis : *axes) {
    if (axis < -ndim || axis >= ndim) {
      dyn.Fail("axis " + std::to_string(axis) + " of a tensor with " + std::to_string(ndim) +
               " dimensions");
    }
    if (axis < 0) axis += ndim;
  }
  std::sort(axes->begin(), axes->end());
  if (std::adjacent_find(axes->begin(), axes->end()) != axes->end()) {
    dyn.Fail("an axis is named twice");
  }
  return dyn.Make("squeeze", 1, "axis", ToArray(*axes));
}

Expr ExpandDims(const DynCall& dyn) {
  KnownInts axis = dyn.IntOperand(1);
  if (!axis || axis->size() != 1) return Expr();
  return dyn.Make("expand_dims", 1, "axis", (*axis)[0]);
}

Expr OneHot(const DynCall& dyn) {
  KnownInts depth = dyn.IntOperand(3);
  if (!depth || depth->size() != 1) return Expr();
  return dyn.Make("one_hot", 3, "depth", (*depth)[0]);
}

Expr TopK(const DynCall& dyn) {
  KnownInts k = dyn.IntOperand(1);
  // The static operator takes k below 1 for "all".
  if (!k || k->size() != 1 || (*k)[0] < 1) return Expr();
  return dyn.Make("topk", 1, "k", (*k)[0]);
}

Expr Pad(const DynCall& dyn) {
  KnownInts widths = dyn.IntOperand(1, 2);
  if (!widths || dyn.num_args() != 3 || dyn.Value(1)->ndim() != 2) return Expr();
  if (dyn.Value(1)->shape[1] != 2) dyn.Fail("pad_width needs two columns");
  Array<Any> pairs;
  for (size_t i = 0; i + 1 < widths->size(); i += 2) {
    pairs.push_back(Array<Any>{(*widths)[i], (*widths)[i + 1]});
  }
  Attrs attrs = dyn.call->attrs;
  attrs.Set("pad_width", pairs);
  Array<Expr> args = {dyn.call->args[0], dyn.call->args[2]};
  return WithSpan(Call(Op::Get("nn.pad"), args, attrs), dyn.call->span);
}

Expr StridedSlice(const DynCall& dyn) {
  Attrs attrs = dyn.call->attrs;
  const char* names[] = {"begin", "end", "strides"};
  for (size_t i = 0; i < 3; ++i) {
    KnownInts values = dyn.IntOperand(i + 1);
    if (!values) return Expr();
    attrs.Set(names[i], ToArray(*values));
  }
  attrs.erase("axes");
  return dyn.Make("strided_slice", 1, attrs);
}

Expr Resize2D(const DynCall& dyn) {
  KnownInts size = dyn.ShapeOperand(1);
  if (!size) return Expr();
  Attrs attrs = dyn.call->attrs;
  attrs.Set("size", ToArray(*size));
  std::optional<ConstValue> roi = dyn.Value(2);
  if (roi) {
    Array<Any> values;
    for (const Scalar& element : roi->elements) {
      values.push_back(roi->is_float() ? element.f : static_cast<double>(element.i));
    }
    attrs.Set("roi", values);
  } else {
    // Only this coordinate transformation uses the region of interest.
    auto mode = attrs.Get("coordinate_transformation_mode");
    auto text = mode ? mode->as<String>() : std::nullopt;
    if (text && std::string(*text) == "tf_crop_and_resize") return Expr();
  }
  return dyn.Make("image.resize2d", 1, attrs);
}

Expr Upsample(const DynCall& dyn, const char* op, const std::vector<const char*>& names) {
  Attrs attrs = dyn.call->attrs;
  for (size_t i = 0; i < names.size(); ++i) {
    std::optional<double> scale = dyn.Number(i + 1);
    if (!scale) return Expr();
    if (!(*scale > 0)) dyn.Fail(std::string(names[i]) + " is not positive");
    attrs.Set(names[i], *scale);
  }
  return dyn.Make(op, 1, attrs);
}

Expr Upsampling(const DynCall& dyn) {
  return Upsample(dyn, "nn.upsampling", {"scale_h", "scale_w"});
}

Expr Upsampling3D(const DynCall& dyn) {
  return Upsample(dyn, "nn.upsampling3d", {"scale_d", "scale_h", "scale_w"});
}

using Rule = std::function<Expr(const DynCall&)>;

/*! \brief The rule of an operator whose last operand, a shape, becomes an attribute. */
Rule LastOperandToAttr(const char* op, size_t operand, const char* attr) {
  return [=](const DynCall& dyn) {
    KnownInts shape = dyn.ShapeOperand(operand);
    return shape ? dyn.Make(op, operand, attr, ToArray(*shape)) : Expr();
  };
}

const std::map<std::string, Rule>& Rules() {
  static const std::map<std::string, Rule> rules = {
      {"dyn.reshape", Reshape},
      {"dyn.squeeze", Squeeze},
      {"dyn.expand_dims", ExpandDims},
      {"dyn.tile", LastOperandToAttr("tile", 1, "reps")},
      {"dyn.broadcast_to", LastOperandToAttr("broadcast_to", 1, "shape")},
      {"dyn.zeros", LastOperandToAttr("zeros", 0, "shape")},
      {"dyn.ones", LastOperandToAttr("ones", 0, "shape")},
      {"dyn.full", LastOperandToAttr("full", 1, "shape")},
      {"dyn.one_hot", OneHot},
      {"dyn.topk", TopK},
      {"dyn.sparse_to_dense", LastOperandToAttr("sparse_to_dense", 3, "output_shape")},
      {"dyn.nn.pad", Pad},
      {"dyn.strided_slice", StridedSlice},
      {"dyn.image.resize2d", Resize2D},
      {"dyn.nn.upsampling", Upsampling},
      {"dyn.nn.upsampling3d", Upsampling3D},
  };
  return rules;
}

}  // namespace

Expr MakeStatic(const Call& call, const Array<Type>& arg_types) {
  const auto* op = call->op.as<OpObj>();
  if (op == nullptr) return Expr();
  auto rule = Rules().find(op->name);
  return rule == Rules().end() ? Expr() : rule->second({call, arg_types});
}

}  // namespace tvm_fixes::relay
