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
 * \brief Arithmetic on scalar expressions, simplified as they are made.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_SCALARS_H_
#define TVM_FIXES_RELAX_ANALYSIS_SCALARS_H_

#include <tvm/ffi/any.h>

#include <cstdint>
#include <optional>

#include "../../ffi/node_layout.h"

namespace tvm_fixes {

/*! \brief The kinds of elements that are followed. */
enum class ScalarKind : uint8_t { kInt, kBool, kFloat, kOther };

ScalarKind KindOfDType(DLDataType dtype);

/*! \brief The data type of a scalar expression or of a tensor type; kDLOpaqueHandle if unknown. */
DLDataType DTypeOf(const ObjectRef& type);

/*! \brief The value of a float literal, nothing for any other expression. */
std::optional<double> AsFloat(const ObjectRef& expr);

/*!
 * \brief Scalars: int64 expressions over the extents of tensors, conditions on them, and literals
 *        of floats.
 *
 * A null reference stands for a scalar that is not known, as an operand and as a result. What
 * would overflow int64, divide by what may be zero, or round otherwise than the operator does, is
 * not known, nor is an expression of more than 40 parts. A symbolic expression is taken not to
 * overflow, as TVM does with indices.
 */
class Scalars {
 public:
  Scalars();

  /*! \brief Record that `expr` is not negative, if that says something about a variable. */
  void MarkNonNegative(const ObjectRef& expr);

  ObjectRef Simplify(const ObjectRef& expr) const;
  /*! \brief Whether a condition holds, or fails, for all values of its variables. */
  std::optional<bool> Decide(const ObjectRef& condition) const;
  bool Proves(const ObjectRef& condition) const { return Decide(condition) == true; }
  /*! \brief Whether `condition` holds wherever `premise` does. */
  bool ProvesUnder(const ObjectRef& premise, const ObjectRef& condition) const;
  bool ProvesEqual(const ObjectRef& lhs, const ObjectRef& rhs) const;
  bool ProvesAtLeast(const ObjectRef& expr, int64_t bound) const;
  bool ProvesNegative(const ObjectRef& expr) const;

  /*!
   * \brief Whether an expression may stand in the place of a symbol that is bound to it.
   *
   * A choice may not: each use would repeat all of its parts.
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

  /*! \brief `value`, of elements of one kind, as an element of `dtype`. */
  ObjectRef Cast(const ObjectRef& value, DLDataType dtype) const;
  /*!
   * \brief `value` if a tensor of `dtype` can hold it unchanged; null if not, or if that is not
   *        known.
   */
  static ObjectRef Hold(const ObjectRef& value, DLDataType dtype);

 private:
  /*! \brief An expression that was made, simplified; null if it is too large to be followed. */
  ObjectRef Follow(const ObjectRef& expr) const;
  /*! \brief A condition with its truth value in place of it where that is known. */
  ObjectRef Settle(const ObjectRef& condition) const;

  Any analyzer_;
};

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_SCALARS_H_
