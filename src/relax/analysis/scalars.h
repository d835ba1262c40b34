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
 * \file src/relax/analysis/scalars.h
 * \brief Arithmetic on scalar expressions with simplification.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_SCALARS_H_
#define TVM_FIXES_RELAX_ANALYSIS_SCALARS_H_

#include <tvm/ffi/any.h>

#include <cstdint>
#include <optional>

#include "../../ffi/node_layout.h"

namespace tvm_fixes {

/*! \brief The kinds of tracked elements. */
enum class ScalarKind : uint8_t { kInt, kBool, kFloat, kOther };

ScalarKind KindOfDType(DLDataType dtype);

/*! \brief The data type of a scalar expression or of a tensor type; kDLOpaqueHandle if unknown. */
DLDataType DTypeOf(const ObjectRef& type);

/*! \brief The value of a float literal, or std::nullopt for any other expression. */
std::optional<double> AsFloat(const ObjectRef& expr);

/*!
 * \brief Arithmetic on scalars: int64 expressions over tensor extents, conditions on them, and
 *        float literals.
 *
 * A null reference stands for an unknown scalar, as an operand and as a result. A result is unknown
 * if it overflows int64, divides by an expression that may be zero, rounds differently from the
 * operator, has more than 40 parts, or is symbolic with a literal beyond kMaxLiteral. Symbols are
 * assumed to be too small for an overflow, as TVM assumes for indices.
 */
class Scalars {
 public:
  /*!
   * \brief A number above any extent. Expressions with larger literals overflow in TVM's analyzer,
   *        which moves literals from one side to the other: to it, n - 2**63 is not negative.
   */
  static constexpr int64_t kMaxLiteral = int64_t{1} << 56;

  Scalars();

  /*! \brief Record that `expr` is not negative, if that constrains a variable. */
  void MarkNonNegative(const ObjectRef& expr);

  ObjectRef Simplify(const ObjectRef& expr) const;
  /*! \brief The truth value of a condition, if it is the same for all values of its variables. */
  std::optional<bool> Decide(const ObjectRef& condition) const;
  bool Proves(const ObjectRef& condition) const { return Decide(condition) == true; }
  /*! \brief Whether `condition` holds wherever `premise` does. */
  bool ProvesUnder(const ObjectRef& premise, const ObjectRef& condition) const;
  bool ProvesEqual(const ObjectRef& lhs, const ObjectRef& rhs) const;
  bool ProvesAtLeast(const ObjectRef& expr, int64_t bound) const;
  bool ProvesNegative(const ObjectRef& expr) const;

  /*!
   * \brief Whether an expression may replace a symbol that is bound to it.
   *
   * A select may not: each use would duplicate all of its parts.
   */
  static bool IsRepeatable(const ObjectRef& expr);

  static ObjectRef Int(int64_t value);
  static ObjectRef Bool(bool value);
  static ObjectRef Float(double value);

  ObjectRef Add(const ObjectRef& lhs, const ObjectRef& rhs) const;
  ObjectRef Subtract(const ObjectRef& lhs, const ObjectRef& rhs) const;
  ObjectRef Multiply(const ObjectRef& lhs, const ObjectRef& rhs) const;
  ObjectRef FloorDivide(const ObjectRef& lhs, const ObjectRef& rhs) const;
  ObjectRef FloorModulo(const ObjectRef& lhs, const ObjectRef& rhs) const;
  /*! \brief Rounded towards zero. */
  ObjectRef TruncDivide(const ObjectRef& lhs, const ObjectRef& rhs) const;
  /*! \brief The remainder of TruncDivide. */
  ObjectRef TruncModulo(const ObjectRef& lhs, const ObjectRef& rhs) const;
  ObjectRef Minimum(const ObjectRef& lhs, const ObjectRef& rhs) const;
  ObjectRef Maximum(const ObjectRef& lhs, const ObjectRef& rhs) const;

  ObjectRef Equal(const ObjectRef& lhs, const ObjectRef& rhs) const;
  ObjectRef Less(const ObjectRef& lhs, const ObjectRef& rhs) const;
  ObjectRef LessEqual(const ObjectRef& lhs, const ObjectRef& rhs) const;
  ObjectRef Not(const ObjectRef& condition) const;
  ObjectRef And(const ObjectRef& lhs, const ObjectRef& rhs) const;
  ObjectRef Or(const ObjectRef& lhs, const ObjectRef& rhs) const;

  /*! \brief `value` cast to `dtype`. */
  ObjectRef Cast(const ObjectRef& value, DLDataType dtype) const;
  /*!
   * \brief `value` if `dtype` represents it exactly; null if not, or if that is unknown.
   */
  static ObjectRef IfRepresentable(const ObjectRef& value, DLDataType dtype);

 private:
  /*! \brief The simplified expression, or null if it is too large to track. */
  ObjectRef SimplifyIfSmall(const ObjectRef& expr) const;
  /*! \brief A condition, replaced by a literal if its truth value is known. */
  ObjectRef FoldIfDecided(const ObjectRef& condition) const;

  Any analyzer_;
};

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_SCALARS_H_
