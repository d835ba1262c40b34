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
 * \file src/relax/analysis/verifier/dims.h
 * \brief Tensor extents as polynomials. Comparisons are proved, disproved or unknown.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_VERIFIER_DIMS_H_
#define TVM_FIXES_RELAX_ANALYSIS_VERIFIER_DIMS_H_

#include <tvm/ffi/object.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "../../../ffi/node_layout.h"

namespace tvm_fixes {
namespace verifier {

/*! \brief The truth of a statement over symbols of any value. */
enum class Relation : uint8_t { kProved, kDisproved, kUnknown };

/*! \brief The conjunction of two statements. */
inline Relation Both(Relation lhs, Relation rhs) {
  if (lhs == Relation::kDisproved || rhs == Relation::kDisproved) return Relation::kDisproved;
  return lhs == Relation::kProved ? rhs : lhs;
}

/*! \brief The negation of a statement. */
inline Relation Not(Relation relation) {
  if (relation == Relation::kUnknown) return relation;
  return relation == Relation::kProved ? Relation::kDisproved : Relation::kProved;
}

/*! \brief An extent; equal ids are equal extents. */
using DimId = uint32_t;
/*! \brief An unknown extent. */
constexpr DimId kUnknownDim = 0;

/*! \brief An atom of a polynomial: a variable or a non-polynomial operation. */
using AtomId = uint32_t;

/*!
 * \brief The extents of a module, each interned once.
 *
 * An extent is stored as a polynomial with integer coefficients over atoms, in normal form, so that
 * `n + n` and `2 * n` have the same id. Divisions, remainders and minima are atoms, as are
 * operations whose coefficients overflow 64 bits. The expressions must outlive the table.
 */
class DimTable {
 public:
  DimTable();

  /*! \brief The id of a scalar expression; kUnknownDim for null and for non-integers. */
  DimId Intern(const ObjectRef& expr);
  DimId FromInt(int64_t value);

  std::optional<int64_t> AsInt(DimId dim) const;
  /*! \brief The variable that an extent is, null for any other extent. */
  const Object* AsVar(DimId dim) const;
  /*! \brief Whether an extent was read completely. An unread part may contain more variables. */
  bool IsRead(DimId dim) const { return dims_[dim].is_read; }
  /*! \brief The variables in the part of an extent that was read. */
  const std::vector<const Object*>& Vars(DimId dim) const { return dims_[dim].vars; }

  DimId Add(DimId lhs, DimId rhs);
  DimId Subtract(DimId lhs, DimId rhs);
  DimId Multiply(DimId lhs, DimId rhs);
  /*! \brief The quotient, rounded down. The divisor must be positive. */
  DimId FloorDivide(DimId lhs, int64_t divisor);

  /*! \brief `coefficient * var + rest`, both free of the variable. */
  struct Linear {
    DimId coefficient;
    DimId rest;
  };
  /*! \brief `dim` as a linear function of `var`, or std::nullopt if it is not linear. */
  std::optional<Linear> AsLinear(DimId dim, const Object* var);

  Relation Equal(DimId lhs, DimId rhs);
  /*! \brief If an extent is a variable, record that it is not negative. */
  void MarkExtent(DimId dim) {
    if (const Object* var = AsVar(dim)) extents_.insert(var);
  }
  /*! \brief Whether `dim >= bound`. Variables marked as extents are at least 0. */
  Relation AtLeast(DimId dim, int64_t bound);

  /*! \brief Values by variable. */
  using Substitution = std::unordered_map<const Object*, DimId>;
  /*! \brief Evaluate an extent for numeric values of its variables; std::nullopt if undefined. */
  std::optional<int64_t> Evaluate(DimId dim,
                                  const std::unordered_map<const Object*, int64_t>& numbers) const;
  /*! \brief All divisors in an extent, of divisions and remainders of any kind. */
  std::set<int64_t> Divisors(DimId dim) const;
  /*! \brief `dim` with variables replaced, or std::nullopt if one of them has no value. */
  std::optional<DimId> Substitute(DimId dim, const Substitution& values);

  /*!
   * \brief Solve `pattern == actual` for the variables of the pattern that have no value yet.
   *
   * It is solved if the pattern has exactly one such variable, in one linear term.
   * \return The truth of the equation after that; kUnknown if it cannot be solved.
   */
  Relation Solve(DimId pattern, DimId actual, Substitution* values);

  /*! \brief The extent as an int64 expression. */
  tvm::ffi::ObjectRef ToExpr(DimId dim) const;
  /*! \brief The text as in TVMScript. */
  std::string Text(DimId dim) const;

 private:
  /*! \brief A product of atoms in ascending order; empty for 1. */
  using Monomial = std::vector<AtomId>;
  /*! \brief Coefficients by monomial; never 0. */
  using Polynomial = std::map<Monomial, int64_t>;

  enum class Op : uint8_t {
    kVar,
    kAdd,
    kSub,
    kMul,
    kFloorDiv,
    kFloorMod,
    kTruncDiv,
    kTruncMod,
    kMin,
    kMax,
    kOther
  };

  struct Dim {
    Polynomial polynomial;
    std::vector<const Object*> vars;
    /*! \brief The number of monomials and atoms, including those nested in atoms. */
    size_t size = 0;
    /*! \brief Whether every atom was read. Unread expressions may be deep. */
    bool is_read = true;
  };

  struct Atom {
    Op op;
    /*! \brief The variable, or for kOther the expression. */
    const Object* node;
    DimId lhs;
    DimId rhs;
  };

  DimId InternPolynomial(Polynomial polynomial);
  AtomId InternAtom(const Atom& atom);
  DimId OfAtom(const Atom& atom);
  DimId Compute(const ObjectRef& expr, int depth);
  DimId Combine(Op op, DimId lhs, DimId rhs);
  static std::optional<int64_t> Apply(Op op, int64_t lhs, int64_t rhs);
  /*! \brief lhs + factor * rhs, or std::nullopt if a coefficient overflows. */
  static std::optional<Polynomial> Sum(const Polynomial& lhs, const Polynomial& rhs,
                                       int64_t factor);
  static std::optional<Polynomial> Product(const Polynomial& lhs, const Polynomial& rhs);
  Relation Decide(DimId lhs, DimId rhs);
  /*! \brief Ask TVM's analyzer about extents with non-polynomial atoms. */
  bool CanProveEqual(DimId lhs, DimId rhs);
  std::string AtomText(AtomId atom) const;

  /*! \brief A deque, so that references stay valid when elements are added. */
  std::deque<Dim> dims_;
  std::deque<Atom> atoms_;
  std::map<std::tuple<Op, const Object*, DimId, DimId>, AtomId> id_of_atom_;
  std::map<Polynomial, DimId> id_of_polynomial_;
  std::unordered_map<int64_t, DimId> id_of_int_;
  std::unordered_map<const Object*, DimId> id_of_node_;
  std::map<std::pair<DimId, DimId>, Relation> decided_;
  /*! \brief The variables known to be non-negative. A scalar parameter may be negative. */
  std::unordered_set<const Object*> extents_;
  Any analyzer_;
};

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_DIMS_H_
