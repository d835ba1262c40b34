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
 * \file src/relax/analysis/verifier/tir_bounds.h
 * \brief Ranges of expressions in a loop nest.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_VERIFIER_TIR_BOUNDS_H_
#define TVM_FIXES_RELAX_ANALYSIS_VERIFIER_TIR_BOUNDS_H_

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "dims.h"

namespace tvm_fixes {
namespace verifier {

/*! \brief The smallest and largest value of an expression. */
struct DimRange {
  DimId least;
  DimId greatest;
};

/*! \brief The placement of a range relative to [0, extent), for all values of the symbols. */
enum class Place : uint8_t { kInside, kBelow, kAbove, kUnknown };

/*! \brief A condition for a statement to run: an expression value, or a positive loop extent. */
struct Condition {
  ObjectRef expr;
  bool expected = true;
  /*! \brief If `expr` is null, the extent that must be positive; std::nullopt if unknown. */
  std::optional<DimId> extent = std::nullopt;
};

/*! \brief Whether all loops of these extents run for some values of the symbols. */
bool MayRun(DimTable* dims, const std::vector<DimId>& extents);

/*! \brief The loops around a statement, and the values of the variables in scope. */
class LoopNest {
 public:
  explicit LoopNest(DimTable* dims) : dims_(dims) {}

  /*! \brief Add a symbol of the function, which is its own value. */
  void AddSymbol(const Object* var);

  /*! \brief Bind a variable to its value, or to std::nullopt if that is unknown. */
  void Define(const Object* var, std::optional<DimId> value);

  /*!
   * \brief Enter a loop over `min`, `min + step`, … below `min + extent`.
   *
   * If a loop runs only in some iterations of the loops around it, only these count inside it.
   * \param thread_tag The threads that the loop is bound to, empty for a serial loop. A loop inside
   *        another loop over the same threads has the value of that loop.
   * \return Whether its body runs if all loops around it do; Leave must be called in any case.
   */
  Relation Enter(const Object* var, std::optional<DimId> min, std::optional<DimId> extent,
                 int64_t step, const std::string& thread_tag);
  void Leave();

  /*!
   * \brief An expression over loop variables and symbols, or std::nullopt if it uses anything else.
   */
  std::optional<DimId> Value(const ObjectRef& expr) { return Value(dims_->Intern(expr)); }
  std::optional<DimId> Value(DimId written);

  /*! \brief The range of a value, or std::nullopt if it is not linear in the loop variables. */
  std::optional<DimRange> Range(DimId value) const;

  /*!
   * \brief A low and a high value that are attained; for a linear value, its exact range.
   *
   * Divisions, remainders, minima and maxima over loops with numeric bounds are evaluated at sample
   * points: at all points if there are few, else at the corners and around multiples of the
   * divisors.
   */
  std::optional<DimRange> Taken(DimId value) const;

  /*!
   * \brief The smallest and largest value at sample points that meet the conditions.
   *
   * Requires numeric bounds of the relevant loops.
   * \param is_certain Whether each condition must depend only on loop variables. If false,
   *        conditions on data are assumed to be met.
   */
  std::optional<DimRange> TakenWhere(DimId value, DimId extent,
                                     const std::vector<Condition>& conditions, bool is_certain);

  /*! \brief Whether a condition depends only on loop variables and symbols, not on data. */
  bool IsOfLoops(const ObjectRef& condition, int depth = 0);

  /*! \brief Whether a condition holds in every iteration, or in none. */
  Relation Holds(const ObjectRef& condition, int depth = 0);

  Place Compare(const DimRange& range, DimId extent) const;

  /*! \brief The extents that must be positive for the loops to run, and are not known to be. */
  const std::vector<DimId>& Extents() const { return extents_; }

 private:
  struct Loop {
    const Object* var;
    std::string thread_tag;
    /*! \brief The value of the variable and its bounds; std::nullopt if unknown. */
    std::optional<DimId> value;
    std::optional<DimRange> range;
    DimId extent = kUnknownDim;
    int64_t step = 1;
    /*!
     * \brief The sizes of the enclosing nest's lists when this loop was entered, to restore on
     *        Leave.
     */
    size_t num_narrowed = 0;
    size_t num_extents = 0;
  };

  /*! \brief The range of a loop before it was narrowed. */
  struct Narrowed {
    size_t loop;
    DimRange before;
  };

  /*! \brief The variable of a loop with numeric bounds. */
  struct Axis {
    const Object* var;
    int64_t first;
    int64_t last;
    int64_t step;

    int64_t rounds() const { return (last - first) / step + 1; }
  };

  bool IsAtLeast(DimId dim, int64_t bound) const {
    return dims_->AtLeast(dim, bound) == Relation::kProved;
  }
  /*!
   * \brief Narrow the loops to iterations with positive `extent`; false if that is impossible or
   *        leaves none.
   */
  bool NarrowToPositive(DimId extent);
  /*! \brief The only loop that `dim` depends on; null if there is none, or several. */
  Loop* OnlyLoopOf(DimId dim);
  /*! \brief Whether `high - low` is at least `margin` in every iteration, or in none. */
  Relation Exceeds(const ObjectRef& high, const ObjectRef& low, int64_t margin);
  /*! \brief The loop with numeric bounds of a variable, or std::nullopt for any other variable. */
  std::optional<Axis> AxisOf(const Object* var) const;
  /*! \brief The first and last value of an axis, and the values around multiples of divisors. */
  static std::vector<int64_t> Ends(const Axis& axis, const std::set<int64_t>& divisors);
  /*! \brief The points at which a value may be extreme; empty if there are too many. */
  std::vector<std::vector<int64_t>> Points(DimId value, const std::vector<Axis>& axes) const;
  /*! \brief A comparison in a condition; `difference` is std::nullopt if it depends on data. */
  struct Comparison {
    std::optional<DimId> difference;
    /*! \brief It holds if the difference is within these bounds or, if `is_negated`, outside. */
    int64_t least;
    int64_t greatest;
    bool is_negated;
  };
  /*! \brief A single comparison, or std::nullopt for any other condition. */
  std::optional<Comparison> AsComparison(const ObjectRef& condition);
  /*! \brief Collect the comparisons in a condition. */
  void Comparisons(const ObjectRef& condition, int depth, std::vector<Comparison>* found);
  /*! \brief Whether a statement under this condition runs at a point. */
  Relation RunsAt(const Condition& condition,
                  const std::unordered_map<const Object*, int64_t>& numbers);
  Relation HoldsAt(const ObjectRef& condition,
                   const std::unordered_map<const Object*, int64_t>& numbers, int depth);
  /*! \brief The ends of an axis, and the values at which comparisons along it change. */
  std::vector<int64_t> Thresholds(const Axis& axis, const std::vector<Comparison>& comparisons,
                                  const std::set<int64_t>& divisors);
  /*! \brief The smallest value over one loop for `sign` 1, the largest for -1. */
  std::optional<DimId> Extreme(DimId value, const Loop& loop, int sign) const;

  DimTable* dims_;
  std::vector<Loop> loops_;
  DimTable::Substitution values_;
  std::vector<Narrowed> narrowed_;
  std::vector<DimId> extents_;
};

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_TIR_BOUNDS_H_
