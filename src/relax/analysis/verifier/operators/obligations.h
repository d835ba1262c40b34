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
 * \file src/relax/analysis/verifier/operators/obligations.h
 * \brief Requirements of operators beyond the types of their operands: equal extents, divisible
 *        extents, indices in range.
 *
 * TVM's inference rejects proven violations but silently accepts unproven requirements, and a
 * kernel may then read out of bounds. Here an operator states its obligations. Proven violations
 * are errors. Unproven obligations are warnings, from which a runtime check can be generated. A
 * file defines the obligations of some operators and registers them:
 *
 *     void Matmul(Obligations* obligations) { … obligations->Equal(rows, columns); … }
 *
 *     TVM_FIXES_INIT_BLOCK() { RegisterObligations("op.matmul", Matmul, {"relax.matmul"}); }
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_VERIFIER_OPERATORS_OBLIGATIONS_H_
#define TVM_FIXES_RELAX_ANALYSIS_VERIFIER_OPERATORS_OBLIGATIONS_H_

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "../../../../ffi/registration.h"
#include "../verifier.h"

namespace tvm_fixes {
namespace verifier {

/*! \brief How two extents must relate. */
enum class Requirement : uint8_t {
  /*! \brief Not about extents, but about ranks, axes or attributes, which are known. */
  kNone,
  kEqual,
  /*! \brief Equal, or one of them 1. */
  kBroadcast,
  /*! \brief Equal, or the first is 1. */
  kBroadcastTo,
  /*! \brief The first is not less than the second. */
  kAtLeast,
  /*! \brief The second divides the first. */
  kMultipleOf,
  /*!
   * \brief The elements of the first, an argument, are indices into an axis of the second extent.
   */
  kIndicesOf
};

/*! \brief An extent in an obligation, with its description. */
struct Extent {
  DimId dim = kUnknownDim;
  /*! \brief The argument that it belongs to, -1 for an attribute. */
  int arg = -1;
  /*! \brief The field, where the argument is a tuple. */
  int field = -1;
  /*! \brief The axis; -1 if it is not an axis. */
  int axis = -1;
  /*! \brief The description if it is not an axis: "the channels". */
  const char* what = "";

  std::string Text() const;
};

/*! \brief An unproven requirement of a call. */
struct Obligation {
  Requirement requirement;
  Relation relation;
  Extent actual;
  Extent expected;
  /*! \brief For kIndicesOf: whether -1 is the last element. */
  bool counts_from_end = false;
  /*! \brief The expected and the actual value. */
  std::string text;
};

/*! \brief Collects the unproven obligations of one call. */
class Obligations {
 public:
  Obligations(Verifier* verifier, const Call& call) : verifier_(verifier), call_(call) {}

  const Call& call() const { return call_; }
  const Object* attrs() const { return call_.view.attrs().get(); }
  DimTable& dims() { return verifier_->dims(); }
  const TypeInfo& type(TypeId id) const { return verifier_->types()[id]; }

  /*! \brief The type of an argument if it is a tensor of known rank, null otherwise. */
  const TypeInfo* Tensor(size_t arg) const;
  /*! \brief The same for a field of an argument that is a tuple. */
  const TypeInfo* Tensor(size_t arg, size_t field) const;
  /*! \brief The number of fields of an argument; 0 if it is not a tuple. */
  size_t NumFields(size_t arg) const;

  /*! \brief The extent of a tensor argument along a non-negative axis. */
  Extent Dim(size_t arg, int axis) const;
  Extent Dim(size_t arg, int field, int axis) const;
  /*! \brief The value of an attribute. */
  Extent Attribute(int64_t value, const char* what) {
    return {dims().FromInt(value), -1, -1, -1, what};
  }

  void Equal(const Extent& actual, const Extent& expected) {
    Require(Requirement::kEqual, actual, expected);
  }
  void AtLeast(const Extent& actual, const Extent& expected) {
    Require(Requirement::kAtLeast, actual, expected);
  }
  void MultipleOf(const Extent& actual, const Extent& expected) {
    Require(Requirement::kMultipleOf, actual, expected);
  }
  void BroadcastTo(const Extent& actual, const Extent& expected) {
    Require(Requirement::kBroadcastTo, actual, expected);
  }
  /*!
   * \brief Require that two shapes broadcast, aligned at their last axes.
   * \return The broadcast shape, with the extent of `lhs` where it is unknown.
   */
  std::vector<Extent> Broadcast(const std::vector<Extent>& lhs, const std::vector<Extent>& rhs);
  /*! \brief Require that the elements of an argument are indices into an axis of this extent. */
  void Indices(const Extent& indexed, size_t arg, int field, bool counts_from_end);

  /*! \brief Report a violation that does not depend on extents. */
  void Fail(int arg, std::string text, int field = -1);
  /*! \brief Require that a tensor has a given rank; false if it does not. */
  bool HasRank(size_t arg, int32_t ndim, const char* why = "");
  /*!
   * \brief Require that each extent of a tensor is known.
   *
   * For operators whose inference in TVM aborts the process otherwise.
   */
  bool HasExtents(size_t arg);
  /*!
   * \brief Validate an axis and normalize it to a non-negative index.
   * \return std::nullopt, with a diagnostic, if the axis is out of range.
   */
  std::optional<int> Axis(int64_t axis, int32_t ndim, const char* name = "axis");
  /*! \brief The same for several axes, which must be distinct. */
  std::optional<std::vector<int>> Axes(const Array<int64_t>& axes, int32_t ndim,
                                       const char* name = "axes");

  std::vector<Obligation>& found() { return found_; }

 private:
  Relation Decide(Requirement requirement, DimId actual, DimId expected);
  void Require(Requirement requirement, const Extent& actual, const Extent& expected);

  Verifier* verifier_;
  const Call& call_;
  std::vector<Obligation> found_;
};

/*! \brief States the obligations of a call. */
using Collector = void (*)(Obligations* obligations);

/*! \brief Check the obligations of operators, and report violations under the id `rule`. */
void RegisterObligations(const char* rule, Collector collector,
                         std::initializer_list<const char*> op_names);

/*! \brief The unproven obligations of a call; empty for operators without any. */
std::vector<Obligation> ObligationsOf(Verifier* verifier, const Call& call);

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_OPERATORS_OBLIGATIONS_H_
