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
 * \file src/relax/analysis/scalars.cc
 * \brief Arithmetic on scalar expressions with simplification.
 */
#include "scalars.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "../../ffi/registration.h"
#include "../../ffi/tir_nodes.h"
#include "../ir/build.h"
#include "integer_division.h"

namespace tvm_fixes {

namespace {

constexpr DLDataType kUnknownDType = {kDLOpaqueHandle, 0, 0};

/*!
 * \brief The maximum size of a tracked expression: each part may double the time of TVM's analyzer.
 */
constexpr size_t kMaxParts = 40;

/*! \brief Whether a sum of kMaxParts of such numbers could overflow; see Scalars::kMaxLiteral. */
bool IsHuge(int64_t number) {
  return number > Scalars::kMaxLiteral || number < -Scalars::kMaxLiteral;
}

/*! \brief Whether an expression is an int64 scalar, the type of extents. */
bool IsInt64(const ObjectRef& expr) {
  const DLDataType dtype = DTypeOf(TypeOf(expr));
  return dtype.code == kDLInt && dtype.bits == 64 && dtype.lanes == 1;
}

bool IsBool(const ObjectRef& expr) {
  return expr.defined() && KindOfDType(DTypeOf(TypeOf(expr))) == ScalarKind::kBool;
}

/*! \brief Two integer literals or two float literals. */
template <typename T>
struct Literals {
  T lhs;
  T rhs;
};

std::optional<Literals<int64_t>> AsInts(const ObjectRef& lhs, const ObjectRef& rhs) {
  auto left = AsInt(lhs), right = AsInt(rhs);
  if (!left || !right) return std::nullopt;
  return Literals<int64_t>{*left, *right};
}

std::optional<Literals<double>> AsFloats(const ObjectRef& lhs, const ObjectRef& rhs) {
  auto left = AsFloat(lhs), right = AsFloat(rhs);
  if (!left || !right) return std::nullopt;
  return Literals<double>{*left, *right};
}

/*!
 * \brief Whether both operands are int64: TVM's constructors reject operands of different types.
 */
bool AreInt64(const ObjectRef& lhs, const ObjectRef& rhs) { return IsInt64(lhs) && IsInt64(rhs); }

/*! \brief The operands of an expression; empty if it has none. */
std::vector<ObjectRef> OperandsOf(const Object* node) {
  const TirNodes& tir = tir_nodes;
  for (const BinaryOpNode* binary :
       {&tir.add, &tir.sub, &tir.mul, &tir.floordiv, &tir.floormod, &tir.truncdiv, &tir.truncmod,
        &tir.min, &tir.max, &tir.eq, &tir.ne, &tir.lt, &tir.le, &tir.gt, &tir.ge, &tir.logical_and,
        &tir.logical_or}) {
    if (binary->IsInstance(node)) return {binary->a(node), binary->b(node)};
  }
  if (tir.select.IsInstance(node)) {
    return {tir.select.condition(node), tir.select.true_value(node), tir.select.false_value(node)};
  }
  if (tir.cast.IsInstance(node)) return {tir.cast.value(node)};
  if (tir.logical_not.IsInstance(node)) return {tir.logical_not.a(node)};
  auto call = As<CallView>(node);
  if (!call || !call->args().defined()) return {};
  return {call->args().begin(), call->args().end()};
}

/*!
 * \brief Whether an expression has more than kMaxParts parts, or a part that `is_rejected` holds
 *        for.
 */
template <typename IsRejected>
bool IsLargeOr(const ObjectRef& expr, IsRejected is_rejected) {
  std::vector<ObjectRef> open = {expr};
  for (size_t num_parts = 0; !open.empty(); ++num_parts) {
    if (num_parts == kMaxParts) return true;
    const ObjectRef part = open.back();
    open.pop_back();
    if (is_rejected(part)) return true;
    const std::vector<ObjectRef> operands = OperandsOf(part.get());
    open.insert(open.end(), operands.begin(), operands.end());
  }
  return false;
}

/*! \brief Whether an expression has too many parts, or a literal that may make it overflow. */
bool IsLarge(const ObjectRef& expr) {
  return IsLargeOr(expr, [](const ObjectRef& part) {
    return nodes.int_imm.IsInstance(part.get()) && IsHuge(AsInt(part).value_or(INT64_MAX));
  });
}

/*! \brief Whether the product of literals of two expressions, neither of them large, is huge. */
bool IsHugeProduct(const ObjectRef& lhs, const ObjectRef& rhs) {
  int64_t product = 1;
  for (const ObjectRef& expr : {lhs, rhs}) {
    int64_t largest = 1;
    IsLargeOr(expr, [&](const ObjectRef& part) {
      largest = std::max(largest, std::abs(AsInt(part).value_or(1)));
      return false;
    });
    if (__builtin_mul_overflow(product, largest, &product)) return true;
  }
  return IsHuge(product);
}

}  // namespace

ScalarKind KindOfDType(DLDataType dtype) {
  if (dtype.lanes != 1) return ScalarKind::kOther;
  if (dtype.code == kDLBool || (dtype.code == kDLUInt && dtype.bits == 1)) return ScalarKind::kBool;
  if (dtype.code == kDLInt || dtype.code == kDLUInt) return ScalarKind::kInt;
  if (dtype.code == kDLFloat && (dtype.bits == 32 || dtype.bits == 64)) return ScalarKind::kFloat;
  return ScalarKind::kOther;
}

DLDataType DTypeOf(const ObjectRef& type) {
  const Object* node = type.get();
  if (nodes.tensor_type.IsInstance(node)) node = nodes.tensor_type.dtype(node).get();
  return nodes.prim_type.IsInstance(node) ? nodes.prim_type.dtype(node) : kUnknownDType;
}

std::optional<double> AsFloat(const ObjectRef& expr) {
  if (!nodes.float_imm.IsInstance(expr.get())) return std::nullopt;
  return nodes.float_imm.value(expr.get());
}

Scalars::Scalars() {
  static const GlobalFunction analyzer("sym.Analyzer");
  analyzer_ = analyzer();
}

void Scalars::MarkNonNegative(const ObjectRef& expr) {
  static const GlobalFunction update("sym.AnalyzerConstIntBoundUpdate");
  static const GlobalFunction const_int_bound("sym.ConstIntBound");
  if (!VarView::Is(expr.get()) || !IsInt64(expr)) return;
  // TVM represents infinity by the largest integer.
  constexpr int64_t kInfinity = std::numeric_limits<int64_t>::max();
  update(analyzer_, expr, const_int_bound(0, kInfinity).cast<ObjectRef>(), true);
}

ObjectRef Scalars::Simplify(const ObjectRef& expr) const {
  static const GlobalFunction simplify("sym.AnalyzerSimplify");
  if (!expr.defined() || AsInt(expr) || VarView::Is(expr.get()) || IsLarge(expr)) return expr;
  // The analyzer throws on expressions it has no rules for.
  try {
    return Ref(simplify(analyzer_, expr, 2));
  } catch (const tvm::ffi::Error&) {
    return expr;
  }
}

ObjectRef Scalars::SimplifyIfSmall(const ObjectRef& expr) const {
  if (IsLarge(expr)) return ObjectRef(nullptr);
  const ObjectRef simplified = Simplify(expr);
  return AsInt(simplified) || !IsLarge(simplified) ? simplified : ObjectRef(nullptr);
}

std::optional<bool> Scalars::Decide(const ObjectRef& condition) const {
  static const GlobalFunction can_prove("sym.AnalyzerCanProve");
  static const GlobalFunction negate("prim.Not");
  if (!IsBool(condition)) return std::nullopt;
  if (auto value = AsInt(condition)) return *value != 0;
  if (IsLarge(condition)) return std::nullopt;
  try {
    if (can_prove(analyzer_, condition, 0).cast<bool>()) return true;
    if (can_prove(analyzer_, negate(condition, nullptr), 0).cast<bool>()) return false;
  } catch (const tvm::ffi::Error&) {
  }
  return std::nullopt;
}

bool Scalars::ProvesUnder(const ObjectRef& premise, const ObjectRef& condition) const {
  static const GlobalFunction enter("sym.AnalyzerEnterConstraintContext");
  if (!IsBool(premise) || IsLarge(premise)) return false;
  const auto leave = enter(analyzer_, premise).cast<Function>();
  const bool proved = Proves(condition);
  leave();
  return proved;
}

bool Scalars::ProvesEqual(const ObjectRef& lhs, const ObjectRef& rhs) const {
  if (!lhs.defined() || !rhs.defined()) return false;
  if (lhs.same_as(rhs)) return true;
  return Proves(Equal(lhs, rhs));
}

bool Scalars::ProvesAtLeast(const ObjectRef& expr, int64_t bound) const {
  return Proves(LessEqual(Int(bound), expr));
}

bool Scalars::ProvesNegative(const ObjectRef& expr) const { return Proves(Less(expr, Int(0))); }

bool Scalars::IsRepeatable(const ObjectRef& expr) {
  return !IsLargeOr(expr,
                    [](const ObjectRef& part) { return tir_nodes.select.IsInstance(part.get()); });
}

ObjectRef Scalars::Int(int64_t value) { return MakeIntImm("int64", value); }

ObjectRef Scalars::Bool(bool value) { return MakeIntImm("bool", value ? 1 : 0); }

ObjectRef Scalars::Float(double value) {
  static const GlobalFunction float_imm("ir.FloatImm");
  return Ref(float_imm(DLDataType{kDLFloat, 64, 1}, value, nullptr));
}

ObjectRef Scalars::Add(const ObjectRef& lhs, const ObjectRef& rhs) const {
  static const GlobalFunction add("prim._OpAdd");
  if (auto of = AsInts(lhs, rhs)) {
    int64_t sum;
    return __builtin_add_overflow(of->lhs, of->rhs, &sum) ? ObjectRef(nullptr) : Int(sum);
  }
  if (auto of = AsFloats(lhs, rhs)) return Float(of->lhs + of->rhs);
  return AreInt64(lhs, rhs) ? SimplifyIfSmall(Ref(add(lhs, rhs, nullptr))) : ObjectRef(nullptr);
}

ObjectRef Scalars::Subtract(const ObjectRef& lhs, const ObjectRef& rhs) const {
  static const GlobalFunction subtract("prim._OpSub");
  if (auto of = AsInts(lhs, rhs)) {
    int64_t difference;
    if (__builtin_sub_overflow(of->lhs, of->rhs, &difference)) return ObjectRef(nullptr);
    return Int(difference);
  }
  if (auto of = AsFloats(lhs, rhs)) return Float(of->lhs - of->rhs);
  return AreInt64(lhs, rhs) ? SimplifyIfSmall(Ref(subtract(lhs, rhs, nullptr)))
                            : ObjectRef(nullptr);
}

ObjectRef Scalars::Multiply(const ObjectRef& lhs, const ObjectRef& rhs) const {
  static const GlobalFunction multiply("prim._OpMul");
  if (auto of = AsInts(lhs, rhs)) {
    int64_t product;
    return __builtin_mul_overflow(of->lhs, of->rhs, &product) ? ObjectRef(nullptr) : Int(product);
  }
  if (auto of = AsFloats(lhs, rhs)) return Float(of->lhs * of->rhs);
  if (!AreInt64(lhs, rhs) || IsLarge(lhs) || IsLarge(rhs) || IsHugeProduct(lhs, rhs)) {
    return ObjectRef(nullptr);
  }
  return SimplifyIfSmall(Ref(multiply(lhs, rhs, nullptr)));
}

ObjectRef Scalars::FloorDivide(const ObjectRef& lhs, const ObjectRef& rhs) const {
  static const GlobalFunction divide("prim._OpFloorDiv");
  if (auto of = AsInts(lhs, rhs))
    return CanDivide(of->lhs, of->rhs) ? Int(FloorQuotient(of->lhs, of->rhs)) : ObjectRef();
  if (!AreInt64(lhs, rhs) || !ProvesAtLeast(rhs, 1)) return ObjectRef(nullptr);
  return SimplifyIfSmall(Ref(divide(lhs, rhs, nullptr)));
}

ObjectRef Scalars::FloorModulo(const ObjectRef& lhs, const ObjectRef& rhs) const {
  static const GlobalFunction modulo("prim._OpFloorMod");
  if (auto of = AsInts(lhs, rhs)) {
    return CanDivide(of->lhs, of->rhs) ? Int(FloorRemainder(of->lhs, of->rhs)) : ObjectRef();
  }
  if (!AreInt64(lhs, rhs) || !ProvesAtLeast(rhs, 1)) return ObjectRef(nullptr);
  return SimplifyIfSmall(Ref(modulo(lhs, rhs, nullptr)));
}

ObjectRef Scalars::TruncDivide(const ObjectRef& lhs, const ObjectRef& rhs) const {
  if (auto of = AsInts(lhs, rhs))
    return CanDivide(of->lhs, of->rhs) ? Int(of->lhs / of->rhs) : ObjectRef();
  if (auto of = AsFloats(lhs, rhs)) return Float(of->lhs / of->rhs);
  return ProvesAtLeast(lhs, 0) ? FloorDivide(lhs, rhs) : ObjectRef(nullptr);
}

ObjectRef Scalars::TruncModulo(const ObjectRef& lhs, const ObjectRef& rhs) const {
  if (auto of = AsInts(lhs, rhs))
    return CanDivide(of->lhs, of->rhs) ? Int(of->lhs % of->rhs) : ObjectRef();
  return ProvesAtLeast(lhs, 0) ? FloorModulo(lhs, rhs) : ObjectRef(nullptr);
}

ObjectRef Scalars::Minimum(const ObjectRef& lhs, const ObjectRef& rhs) const {
  static const GlobalFunction minimum("prim._OpMin");
  if (auto of = AsInts(lhs, rhs)) return Int(std::min(of->lhs, of->rhs));
  if (auto of = AsFloats(lhs, rhs)) return Float(std::min(of->lhs, of->rhs));
  if (Proves(LessEqual(lhs, rhs))) return lhs;
  if (Proves(LessEqual(rhs, lhs))) return rhs;
  return AreInt64(lhs, rhs) ? SimplifyIfSmall(Ref(minimum(lhs, rhs, nullptr))) : ObjectRef(nullptr);
}

ObjectRef Scalars::Maximum(const ObjectRef& lhs, const ObjectRef& rhs) const {
  static const GlobalFunction maximum("prim._OpMax");
  if (auto of = AsInts(lhs, rhs)) return Int(std::max(of->lhs, of->rhs));
  if (auto of = AsFloats(lhs, rhs)) return Float(std::max(of->lhs, of->rhs));
  if (Proves(LessEqual(lhs, rhs))) return rhs;
  if (Proves(LessEqual(rhs, lhs))) return lhs;
  return AreInt64(lhs, rhs) ? SimplifyIfSmall(Ref(maximum(lhs, rhs, nullptr))) : ObjectRef(nullptr);
}

ObjectRef Scalars::FoldIfDecided(const ObjectRef& condition) const {
  if (IsLarge(condition)) return ObjectRef(nullptr);
  const auto value = Decide(condition);
  return value ? Bool(*value) : condition;
}

ObjectRef Scalars::Equal(const ObjectRef& lhs, const ObjectRef& rhs) const {
  static const GlobalFunction equal("prim._OpEQ");
  if (auto of = AsInts(lhs, rhs)) return Bool(of->lhs == of->rhs);
  if (auto of = AsFloats(lhs, rhs)) return Bool(of->lhs == of->rhs);
  return AreInt64(lhs, rhs) ? FoldIfDecided(Ref(equal(lhs, rhs, nullptr))) : ObjectRef(nullptr);
}

ObjectRef Scalars::Less(const ObjectRef& lhs, const ObjectRef& rhs) const {
  static const GlobalFunction less("prim._OpLT");
  if (auto of = AsInts(lhs, rhs)) return Bool(of->lhs < of->rhs);
  if (auto of = AsFloats(lhs, rhs)) return Bool(of->lhs < of->rhs);
  return AreInt64(lhs, rhs) ? FoldIfDecided(Ref(less(lhs, rhs, nullptr))) : ObjectRef(nullptr);
}

ObjectRef Scalars::LessEqual(const ObjectRef& lhs, const ObjectRef& rhs) const {
  static const GlobalFunction less_equal("prim._OpLE");
  if (auto of = AsInts(lhs, rhs)) return Bool(of->lhs <= of->rhs);
  if (auto of = AsFloats(lhs, rhs)) return Bool(of->lhs <= of->rhs);
  return AreInt64(lhs, rhs) ? FoldIfDecided(Ref(less_equal(lhs, rhs, nullptr)))
                            : ObjectRef(nullptr);
}

ObjectRef Scalars::Not(const ObjectRef& condition) const {
  static const GlobalFunction negate("prim.Not");
  if (!IsBool(condition)) return ObjectRef(nullptr);
  if (auto value = AsInt(condition)) return Bool(*value == 0);
  return SimplifyIfSmall(Ref(negate(condition, nullptr)));
}

ObjectRef Scalars::And(const ObjectRef& lhs, const ObjectRef& rhs) const {
  static const GlobalFunction both("prim._OpAnd");
  for (const ObjectRef& operand : {lhs, rhs}) {
    if (Decide(operand) == false) return Bool(false);
  }
  if (!IsBool(lhs) || !IsBool(rhs)) return ObjectRef(nullptr);
  return FoldIfDecided(Ref(both(lhs, rhs, nullptr)));
}

ObjectRef Scalars::Or(const ObjectRef& lhs, const ObjectRef& rhs) const {
  static const GlobalFunction either("prim._OpOr");
  for (const ObjectRef& operand : {lhs, rhs}) {
    if (Decide(operand) == true) return Bool(true);
  }
  if (!IsBool(lhs) || !IsBool(rhs)) return ObjectRef(nullptr);
  return FoldIfDecided(Ref(either(lhs, rhs, nullptr)));
}

ObjectRef Scalars::Cast(const ObjectRef& value, DLDataType dtype) const {
  if (!value.defined()) return value;
  const auto integer = AsInt(value);
  const auto real = AsFloat(value);
  switch (KindOfDType(dtype)) {
    case ScalarKind::kBool:
      if (real) return Bool(*real != 0);
      if (integer) return Bool(*integer != 0);
      return IsBool(value) ? value : Not(Equal(value, Int(0)));
    case ScalarKind::kInt: {
      if (integer) return Int(*integer);
      if (!real) return IsBool(value) ? ObjectRef(nullptr) : value;
      // Beyond this, the result of the conversion is processor-dependent.
      if (!(std::abs(*real) < 0x1p62)) return ObjectRef(nullptr);
      return Int(static_cast<int64_t>(*real));
    }
    case ScalarKind::kFloat:
      if (real) return value;
      if (!integer) return ObjectRef(nullptr);
      return Float(dtype.bits == 32 ? static_cast<float>(*integer) : static_cast<double>(*integer));
    default:
      return ObjectRef(nullptr);
  }
}

ObjectRef Scalars::IfRepresentable(const ObjectRef& value, DLDataType dtype) {
  if (!value.defined()) return value;
  const bool is_bool = IsBool(value);
  switch (KindOfDType(dtype)) {
    case ScalarKind::kBool:
      return is_bool ? value : ObjectRef(nullptr);
    case ScalarKind::kInt: {
      if (is_bool || AsFloat(value)) return ObjectRef(nullptr);
      const bool is_signed = dtype.code == kDLInt;
      const auto literal = AsInt(value);
      if (!literal) return is_signed && dtype.bits >= 32 ? value : ObjectRef(nullptr);
      if (dtype.bits >= 64) return is_signed || *literal >= 0 ? value : ObjectRef(nullptr);
      const int64_t least = is_signed ? -(int64_t{1} << (dtype.bits - 1)) : 0;
      const int64_t end = int64_t{1} << (is_signed ? dtype.bits - 1 : dtype.bits);
      return least <= *literal && *literal < end ? value : ObjectRef(nullptr);
    }
    case ScalarKind::kFloat: {
      const auto real = AsFloat(value);
      if (!real || !std::isfinite(*real)) return ObjectRef(nullptr);
      // For sums, products, quotients and square roots, rounding to double first does not change
      // the float32 result.
      if (dtype.bits == 64) return value;
      const auto rounded = static_cast<float>(*real);
      return std::isfinite(rounded) ? Float(rounded) : ObjectRef(nullptr);
    }
    default:
      return ObjectRef(nullptr);
  }
}

}  // namespace tvm_fixes
