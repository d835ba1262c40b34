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
 * \file src/relax/analysis/shape_values_elementwise.cc
 * \brief Compile-time values of element-wise operators.
 */
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "shape_values.h"
#include "shape_values_operands.h"

namespace tvm_fixes {

namespace {

using Value = std::optional<ShapeValue>;
using Binary = ObjectRef (Scalars::*)(const ObjectRef&, const ObjectRef&) const;

/*! \brief The shape that two shapes broadcast to, or std::nullopt if they do not. */
std::optional<std::vector<int64_t>> Broadcast(const std::vector<int64_t>& lhs,
                                              const std::vector<int64_t>& rhs) {
  std::vector<int64_t> shape(std::max(lhs.size(), rhs.size()));
  auto extent = [&](const std::vector<int64_t>& of, size_t axis) {
    const size_t missing = shape.size() - of.size();
    return axis < missing ? int64_t{1} : of[axis - missing];
  };
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const int64_t left = extent(lhs, axis), right = extent(rhs, axis);
    if (left != right && left != 1 && right != 1) return std::nullopt;
    shape[axis] = left == 1 ? right : left;
  }
  return shape;
}

template <typename Combine>
Value Zip(const ShapeValue& lhs, const ShapeValue& rhs, Combine combine) {
  auto shape = Broadcast(lhs.shape, rhs.shape);
  if (!shape || NumElements(*shape) > ShapeValues::kMaxElements) return std::nullopt;
  const ShapeValue left = BroadcastTo(lhs, *shape), right = BroadcastTo(rhs, *shape);
  ShapeValue result{*std::move(shape), {}};
  for (size_t i = 0; i < left.elements.size(); ++i) {
    result.elements.push_back(combine(left.elements[i], right.elements[i]));
  }
  return result;
}

/*! \brief Evaluate a binary operator. Unknown elements are passed to `op` as null. */
template <Binary op>
Value EvaluateBinary(const ShapeValues& values, const CallView& call) {
  auto lhs = Operand(values, call, 0), rhs = Operand(values, call, 1);
  if (!lhs || !rhs) return std::nullopt;
  return Zip(*lhs, *rhs, [&](const ObjectRef& left, const ObjectRef& right) {
    return (values.scalars().*op)(left, right);
  });
}

/*! \brief The same with swapped operands: `a > b` is `b < a`. */
template <Binary op>
Value EvaluateExchanged(const ShapeValues& values, const CallView& call) {
  auto lhs = Operand(values, call, 0), rhs = Operand(values, call, 1);
  if (!lhs || !rhs) return std::nullopt;
  return Zip(*lhs, *rhs, [&](const ObjectRef& left, const ObjectRef& right) {
    return (values.scalars().*op)(right, left);
  });
}

Value EvaluateNotEqual(const ShapeValues& values, const CallView& call) {
  auto equal = EvaluateBinary<&Scalars::Equal>(values, call);
  if (!equal) return std::nullopt;
  for (ObjectRef& element : equal->elements) element = values.scalars().Not(element);
  return equal;
}

template <typename Compute>
Value MapElements(const ShapeValues& values, const CallView& call, Compute compute) {
  auto value = Operand(values, call, 0);
  if (!value) return std::nullopt;
  for (ObjectRef& element : value->elements) {
    if (element.defined()) element = compute(values.scalars(), element);
  }
  return value;
}

Value EvaluateNegative(const ShapeValues& values, const CallView& call) {
  return MapElements(values, call, [](const Scalars& scalars, const ObjectRef& x) {
    if (auto real = AsFloat(x)) return Scalars::Float(-*real);
    return scalars.Subtract(Scalars::Int(0), x);
  });
}

Value EvaluateAbs(const ShapeValues& values, const CallView& call) {
  return MapElements(values, call, [](const Scalars& scalars, const ObjectRef& x) {
    if (auto real = AsFloat(x)) return Scalars::Float(std::abs(*real));
    return scalars.Maximum(x, scalars.Subtract(Scalars::Int(0), x));
  });
}

Value EvaluateNot(const ShapeValues& values, const CallView& call) {
  return MapElements(values, call,
                     [](const Scalars& scalars, const ObjectRef& x) { return scalars.Not(x); });
}

Value EvaluateSquare(const ShapeValues& values, const CallView& call) {
  return MapElements(values, call, [](const Scalars& scalars, const ObjectRef& x) {
    return scalars.Multiply(x, x);
  });
}

/*!
 * \brief Evaluate a function of floats. With `keeps_integers`, such as for floor, integers pass
 *        through.
 */
template <double (*compute)(double), bool keeps_integers>
Value EvaluateFloat(const ShapeValues& values, const CallView& call) {
  return MapElements(values, call, [](const Scalars&, const ObjectRef& x) {
    if (auto real = AsFloat(x)) return Scalars::Float(compute(*real));
    return keeps_integers ? x : ObjectRef(nullptr);
  });
}

double Floor(double x) { return std::floor(x); }
double Ceil(double x) { return std::ceil(x); }
double Trunc(double x) { return std::trunc(x); }
double Sqrt(double x) { return std::sqrt(x); }

Value EvaluateCast(const ShapeValues& values, const CallView& call) {
  const DLDataType dtype = DTypeOf(TypeOf(call.ref()));
  return MapElements(values, call, [&](const Scalars& scalars, const ObjectRef& x) {
    return scalars.Cast(x, dtype);
  });
}

Value EvaluateClip(const ShapeValues& values, const CallView& call) {
  auto least = Operand(values, call, 1), greatest = Operand(values, call, 2);
  if (!least || !greatest) return std::nullopt;
  const ObjectRef low = OnlyElement(*least), high = OnlyElement(*greatest);
  const DLDataType dtype = DTypeOf(TypeOf(call.ref()));
  return MapElements(values, call, [&](const Scalars& scalars, const ObjectRef& x) {
    return scalars.Minimum(scalars.Maximum(x, scalars.Cast(low, dtype)), scalars.Cast(high, dtype));
  });
}

Value EvaluateWhere(const ShapeValues& values, const CallView& call) {
  auto condition = Operand(values, call, 0);
  auto lhs = Operand(values, call, 1), rhs = Operand(values, call, 2);
  if (!condition || !lhs || !rhs) return std::nullopt;
  const Scalars& scalars = values.scalars();
  auto shape = Broadcast(lhs->shape, rhs->shape);
  if (shape) shape = Broadcast(condition->shape, *shape);
  if (!shape || NumElements(*shape) > ShapeValues::kMaxElements) return std::nullopt;
  const ShapeValue conditions = BroadcastTo(*condition, *shape);
  const ShapeValue left = BroadcastTo(*lhs, *shape), right = BroadcastTo(*rhs, *shape);
  ShapeValue result{*std::move(shape), {}};
  for (size_t i = 0; i < conditions.elements.size(); ++i) {
    const ObjectRef &x = left.elements[i], &y = right.elements[i];
    if (auto holds = scalars.Decide(conditions.elements[i])) {
      result.elements.push_back(*holds ? x : y);
    } else {
      result.elements.push_back(scalars.ProvesEqual(x, y) ? x : ObjectRef(nullptr));
    }
  }
  return result;
}

/*!
 * \brief Evaluate a bitwise operator on booleans, where it is logical; on integers it is not
 *        tracked.
 */
template <Binary op>
Value EvaluateBitwise(const ShapeValues& values, const CallView& call) {
  if (KindOfDType(DTypeOf(TypeOf(call.ref()))) != ScalarKind::kBool) return std::nullopt;
  return EvaluateBinary<op>(values, call);
}

}  // namespace

const std::unordered_map<std::string, ShapeEvaluator>& ElementwiseEvaluators() {
  static const auto* evaluators = new std::unordered_map<std::string, ShapeEvaluator>{
      {"relax.add", EvaluateBinary<&Scalars::Add>},
      {"relax.subtract", EvaluateBinary<&Scalars::Subtract>},
      {"relax.multiply", EvaluateBinary<&Scalars::Multiply>},
      {"relax.divide", EvaluateBinary<&Scalars::TruncDivide>},
      {"relax.floor_divide", EvaluateBinary<&Scalars::FloorDivide>},
      {"relax.mod", EvaluateBinary<&Scalars::TruncModulo>},
      {"relax.floor_mod", EvaluateBinary<&Scalars::FloorModulo>},
      {"relax.minimum", EvaluateBinary<&Scalars::Minimum>},
      {"relax.maximum", EvaluateBinary<&Scalars::Maximum>},
      {"relax.equal", EvaluateBinary<&Scalars::Equal>},
      {"relax.not_equal", EvaluateNotEqual},
      {"relax.less", EvaluateBinary<&Scalars::Less>},
      {"relax.less_equal", EvaluateBinary<&Scalars::LessEqual>},
      {"relax.greater", EvaluateExchanged<&Scalars::Less>},
      {"relax.greater_equal", EvaluateExchanged<&Scalars::LessEqual>},
      {"relax.logical_and", EvaluateBinary<&Scalars::And>},
      {"relax.logical_or", EvaluateBinary<&Scalars::Or>},
      {"relax.logical_not", EvaluateNot},
      {"relax.bitwise_and", EvaluateBitwise<&Scalars::And>},
      {"relax.bitwise_or", EvaluateBitwise<&Scalars::Or>},
      {"relax.negative", EvaluateNegative},
      {"relax.abs", EvaluateAbs},
      {"relax.square", EvaluateSquare},
      {"relax.astype", EvaluateCast},
      {"relax.clip", EvaluateClip},
      {"relax.where", EvaluateWhere},
      {"relax.floor", EvaluateFloat<Floor, true>},
      {"relax.ceil", EvaluateFloat<Ceil, true>},
      {"relax.trunc", EvaluateFloat<Trunc, true>},
      {"relax.sqrt", EvaluateFloat<Sqrt, false>},
  };
  return *evaluators;
}

}  // namespace tvm_fixes
