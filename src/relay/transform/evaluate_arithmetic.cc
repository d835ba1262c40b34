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
 * \file src/relay/transform/evaluate_arithmetic.cc
 * \brief Operators on each element and reductions, on small constants.
 *
 * Integers wrap around like those of the compiled program. Operations without a defined result
 * (division by zero, a float that does not fit an integer) are not folded.
 */
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "evaluate.h"

namespace tvm_fixes::relay {
namespace {

constexpr int64_t kMinInt = std::numeric_limits<int64_t>::min();

/*! \brief Whether the dtype is uint64 and the value does not fit int64. */
bool IsHuge(int64_t value, DLDataType dtype) {
  return dtype.code == kDLUInt && dtype.bits == 64 && value < 0;
}

uint64_t Bits(int64_t value) { return static_cast<uint64_t>(value); }

struct Add {
  static bool Int(int64_t a, int64_t b, int64_t* out) {
    *out = static_cast<int64_t>(Bits(a) + Bits(b));
    return true;
  }
  static double Float(double a, double b, DLDataType) { return a + b; }
};

struct Subtract {
  static bool Int(int64_t a, int64_t b, int64_t* out) {
    *out = static_cast<int64_t>(Bits(a) - Bits(b));
    return true;
  }
  static double Float(double a, double b, DLDataType) { return a - b; }
};

struct Multiply {
  static bool Int(int64_t a, int64_t b, int64_t* out) {
    *out = static_cast<int64_t>(Bits(a) * Bits(b));
    return true;
  }
  static double Float(double a, double b, DLDataType) { return a * b; }
};

bool CanDivide(int64_t a, int64_t b) { return b != 0 && !(a == kMinInt && b == -1); }

struct Divide {
  static bool Int(int64_t a, int64_t b, int64_t* out) {
    if (!CanDivide(a, b)) return false;
    *out = a / b;
    return true;
  }
  static double Float(double a, double b, DLDataType) { return a / b; }
};

struct FloorDivide {
  static bool Int(int64_t a, int64_t b, int64_t* out) {
    if (!CanDivide(a, b)) return false;
    *out = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
    return true;
  }
  static double Float(double a, double b, DLDataType dtype) {
    return std::floor(RoundFloat(a / b, dtype));
  }
};

struct TruncDivide : Divide {
  static double Float(double a, double b, DLDataType dtype) {
    return std::trunc(RoundFloat(a / b, dtype));
  }
};

struct Mod {
  static bool Int(int64_t a, int64_t b, int64_t* out) {
    if (!CanDivide(a, b)) return false;
    *out = a % b;
    return true;
  }
  static double Float(double a, double b, DLDataType) { return std::fmod(a, b); }
};

struct FloorMod {
  static bool Int(int64_t a, int64_t b, int64_t* out) {
    if (!CanDivide(a, b)) return false;
    int64_t rest = a % b;
    *out = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    return true;
  }
  static double Float(double a, double b, DLDataType dtype) {
    return a - RoundFloat(FloorDivide::Float(a, b, dtype) * b, dtype);
  }
};

struct Maximum {
  static bool Int(int64_t a, int64_t b, int64_t* out) {
    *out = std::max(a, b);
    return true;
  }
  static double Float(double a, double b, DLDataType) { return std::max(a, b); }
};

struct Minimum {
  static bool Int(int64_t a, int64_t b, int64_t* out) {
    *out = std::min(a, b);
    return true;
  }
  static double Float(double a, double b, DLDataType) { return std::min(a, b); }
};

template <typename Operation>
bool Combine(const Scalar& a, const Scalar& b, DLDataType dtype, Scalar* out) {
  if (IsFloat(dtype)) {
    // Which operand min and max return for NaN depends on the target.
    if (std::isnan(a.f) || std::isnan(b.f)) return false;
    out->f = RoundFloat(Operation::Float(a.f, b.f, dtype), dtype);
    return true;
  }
  if (IsHuge(a.i, dtype) || IsHuge(b.i, dtype)) return false;
  if (!Operation::Int(a.i, b.i, &out->i)) return false;
  out->i = WrapInt(out->i, dtype);
  return true;
}

template <typename Operation>
bool Binary(Evaluation& e) {
  if (e.inputs.size() != 2) return false;
  const ConstValue& a = e.inputs[0];
  const ConstValue& b = e.inputs[1];
  if (!SameDType(a.dtype, b.dtype) || !SameDType(a.dtype, e.result.dtype)) return false;
  if (!Broadcasts(a.shape, e.result.shape) || !Broadcasts(b.shape, e.result.shape)) return false;
  for (int64_t i = 0; i < e.result.size(); ++i) {
    const Scalar& left = a.elements[BroadcastIndex(i, e.result.shape, a.shape)];
    const Scalar& right = b.elements[BroadcastIndex(i, e.result.shape, b.shape)];
    if (!Combine<Operation>(left, right, e.result.dtype, &e.result.elements[i])) return false;
  }
  return true;
}

/*! \brief Comparisons and logical operators: a bool result. */
template <typename Test>
bool Predicate(Evaluation& e) {
  if (e.inputs.size() != 2 || !IsBool(e.result.dtype)) return false;
  const ConstValue& a = e.inputs[0];
  const ConstValue& b = e.inputs[1];
  if (!SameDType(a.dtype, b.dtype)) return false;
  if (!Broadcasts(a.shape, e.result.shape) || !Broadcasts(b.shape, e.result.shape)) return false;
  for (int64_t i = 0; i < e.result.size(); ++i) {
    const Scalar& left = a.elements[BroadcastIndex(i, e.result.shape, a.shape)];
    const Scalar& right = b.elements[BroadcastIndex(i, e.result.shape, b.shape)];
    if (IsHuge(left.i, a.dtype) || IsHuge(right.i, b.dtype)) return false;
    e.result.elements[i].i = a.is_float() ? Test()(left.f, right.f) : Test()(left.i, right.i);
  }
  return true;
}

struct LogicalXor {
  bool operator()(double a, double b) const { return (a != 0) != (b != 0); }
  bool operator()(int64_t a, int64_t b) const { return (a != 0) != (b != 0); }
};

bool Convert(const Scalar& from, DLDataType source, DLDataType target, Scalar* out) {
  if (IsFloat(source)) {
    if (IsFloat(target)) {
      out->f = RoundFloat(from.f, target);
    } else if (IsBool(target)) {
      out->i = from.f != 0;
    } else {
      double whole = std::trunc(from.f);
      if (!(std::fabs(whole) < 9.0e18)) return false;
      out->i = static_cast<int64_t>(whole);
      return !(target.code == kDLUInt && whole < 0) && WrapInt(out->i, target) == out->i;
    }
    return true;
  }
  if (IsFloat(target)) {
    if (IsHuge(from.i, source)) return false;
    // Round once: convert int64 to float32 directly, not through float64.
    out->f = target.bits == 64 ? static_cast<double>(from.i)
                               : RoundFloat(static_cast<float>(from.i), target);
  } else {
    out->i = WrapInt(from.i, target);
  }
  return true;
}

bool Cast(Evaluation& e) {
  if (e.inputs.empty() || e.inputs[0].size() != e.result.size()) return false;
  for (int64_t i = 0; i < e.result.size(); ++i) {
    const ConstValue& data = e.inputs[0];
    if (!Convert(data.elements[i], data.dtype, e.result.dtype, &e.result.elements[i])) return false;
  }
  return true;
}

/*! \brief A function of one element that keeps the dtype. */
template <typename IntFunction, typename FloatFunction>
bool Unary(Evaluation& e, IntFunction int_function, FloatFunction float_function) {
  if (e.inputs.size() != 1 || e.inputs[0].size() != e.result.size()) return false;
  DLDataType dtype = e.result.dtype;
  if (!SameDType(dtype, e.inputs[0].dtype)) return false;
  for (int64_t i = 0; i < e.result.size(); ++i) {
    const Scalar& element = e.inputs[0].elements[i];
    if (IsHuge(element.i, dtype)) return false;
    if (IsFloat(dtype)) {
      e.result.elements[i].f = RoundFloat(float_function(element.f), dtype);
    } else {
      e.result.elements[i].i = WrapInt(int_function(element.i), dtype);
    }
  }
  return true;
}

int64_t NegateInt(int64_t x) { return static_cast<int64_t>(uint64_t{0} - Bits(x)); }
int64_t KeepInt(int64_t x) { return x; }

bool Negative(Evaluation& e) {
  return Unary(e, NegateInt, [](double x) { return -x; });
}

bool Abs(Evaluation& e) {
  return Unary(
      e, [](int64_t x) { return x < 0 ? NegateInt(x) : x; }, [](double x) { return std::fabs(x); });
}

bool Ceil(Evaluation& e) {
  return Unary(e, KeepInt, [](double x) { return std::ceil(x); });
}

bool Floor(Evaluation& e) {
  return Unary(e, KeepInt, [](double x) { return std::floor(x); });
}

bool LogicalNot(Evaluation& e) {
  if (!IsBool(e.result.dtype)) return false;
  return Unary(e, [](int64_t x) -> int64_t { return x == 0; }, [](double x) { return x; });
}

bool Clip(Evaluation& e) {
  double low = e.call.Float("a_min");
  double high = e.call.Float("a_max");
  if (!e.result.is_float()) {
    // Bounds that are not exact integers are left to the compiled operator.
    bool is_exact = std::trunc(low) == low && std::trunc(high) == high;
    if (!is_exact || std::fabs(low) > 1e15 || std::fabs(high) > 1e15) return false;
  }
  auto int_low = static_cast<int64_t>(e.result.is_float() ? 0 : low);
  auto int_high = static_cast<int64_t>(e.result.is_float() ? 0 : high);
  low = e.result.is_float() ? RoundFloat(low, e.result.dtype) : low;
  high = e.result.is_float() ? RoundFloat(high, e.result.dtype) : high;
  return Unary(
      e, [=](int64_t x) { return std::max(std::min(x, int_high), int_low); },
      [=](double x) { return std::max(std::min(x, high), low); });
}

/*! \brief For each dimension of the input, whether it is reduced. */
std::vector<bool> ReducedAxes(const Evaluation& e) {
  int64_t ndim = e.inputs[0].ndim();
  std::vector<bool> reduced(ndim, !e.call.Has("axis"));
  if (!e.call.Has("axis")) return reduced;
  for (int64_t axis : e.call.Ints("axis")) reduced[e.call.CheckAxis("axis", axis, ndim)] = true;
  if (e.call.Has("exclude") && e.call.Bool("exclude")) reduced.flip();
  return reduced;
}

template <typename Operation>
bool Reduce(Evaluation& e) {
  if (e.inputs.size() != 1 || !SameDType(e.inputs[0].dtype, e.result.dtype)) return false;
  const ConstValue& data = e.inputs[0];
  std::vector<bool> reduced = ReducedAxes(e);
  std::vector<int64_t> kept_shape;
  for (size_t i = 0; i < reduced.size(); ++i) {
    if (!reduced[i]) kept_shape.push_back(data.shape[i]);
  }
  std::vector<bool> started(e.result.size(), false);
  for (int64_t i = 0; i < data.size(); ++i) {
    std::vector<int64_t> coordinates = Unravel(i, data.shape);
    std::vector<int64_t> kept;
    for (size_t axis = 0; axis < reduced.size(); ++axis) {
      if (!reduced[axis]) kept.push_back(coordinates[axis]);
    }
    int64_t target = Ravel(kept, kept_shape);
    if (target >= e.result.size()) return false;
    Scalar& result = e.result.elements[target];
    if (!started[target]) {
      result = data.elements[i];
      started[target] = true;
    } else if (!Combine<Operation>(result, data.elements[i], data.dtype, &result)) {
      return false;
    }
  }
  for (bool is_set : started) {
    // The result of an empty reduction depends on the operator.
    if (!is_set) return false;
  }
  return true;
}

}  // namespace

const EvaluatorTable& ArithmeticEvaluators() {
  static const EvaluatorTable table = {
      {"add", Binary<Add>},
      {"subtract", Binary<Subtract>},
      {"multiply", Binary<Multiply>},
      {"divide", Binary<Divide>},
      {"trunc_divide", Binary<TruncDivide>},
      {"floor_divide", Binary<FloorDivide>},
      {"mod", Binary<Mod>},
      {"trunc_mod", Binary<Mod>},
      {"floor_mod", Binary<FloorMod>},
      {"maximum", Binary<Maximum>},
      {"minimum", Binary<Minimum>},
      {"equal", Predicate<std::equal_to<>>},
      {"not_equal", Predicate<std::not_equal_to<>>},
      {"less", Predicate<std::less<>>},
      {"less_equal", Predicate<std::less_equal<>>},
      {"greater", Predicate<std::greater<>>},
      {"greater_equal", Predicate<std::greater_equal<>>},
      {"logical_and", Predicate<std::logical_and<>>},
      {"logical_or", Predicate<std::logical_or<>>},
      {"logical_xor", Predicate<LogicalXor>},
      {"logical_not", LogicalNot},
      {"negative", Negative},
      {"abs", Abs},
      {"ceil", Ceil},
      {"floor", Floor},
      {"clip", Clip},
      {"cast", Cast},
      {"cast_like", Cast},
      {"prod", Reduce<Multiply>},
      {"sum", Reduce<Add>},
      {"max", Reduce<Maximum>},
      {"min", Reduce<Minimum>},
      {"all", Reduce<Minimum>},
      {"any", Reduce<Maximum>},
  };
  return table;
}

}  // namespace tvm_fixes::relay
