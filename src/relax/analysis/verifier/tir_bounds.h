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
 * \brief The values that an expression takes in a nest of loops.
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

/*! \brief The least and the greatest value that an expression takes. */
struct DimRange {
  DimId least;
  DimId greatest;
};

/*! \brief How a range compares with the interval from 0 up to an extent, for all symbols. */
enum class Place : uint8_t { kInside, kBelow, kAbove, kUnknown };

/*! \brief What a statement needs to run: a true expression, or a loop of positive extent. */
struct Condition {
  ObjectRef expr;
  bool expected = true;
  /*! \brief Where `expr` is null: what must be positive; nothing if that is not known. */
  std::optional<DimId> extent = std::nullopt;
};

/*! \brief Whether loops of these extents run, all of them, for some values of the symbols. */
bool MayRun(DimTable* dims, const std::vector<DimId>& extents);

/*! \brief The loops around a statement, and the values of the variables that it sees. */
class LoopNest {
 public:
  explicit LoopNest(DimTable* dims) : dims_(dims) {}

  /*! \brief Add a symbol of the function, which stands for itself. */
  void AddSymbol(const Object* var);

  /*! \brief Give a variable its value; nothing if that is not known. */
  void Define(const Object* var, std::optional<DimId> value);

  /*!
   * \brief Enter a loop over `min`, `min + step`, … below `min + extent`.
   *
   * If a loop runs only in some iterations of the loops around it, only these count inside it.
   * \param thread_tag The threads that the loop is spread over, empty for a serial loop. A loop
   *        inside another one over the same threads has its value.
   * \return Whether its body runs if all loops around it do; Leave must be called in any case.
   */
  Relation Enter(const Object* var, std::optional<DimId> min, std::optional<DimId> extent,
                 int64_t step, const std::string& thread_tag);
  void Leave();

  /*! \brief An expression in terms of loop variables and symbols; nothing if it is not one. */
  std::optional<DimId> Value(const ObjectRef& expr) { return Value(dims_->Intern(expr)); }
  std::optional<DimId> Value(DimId written);

  /*! \brief The range of a value; nothing if it is not linear in the loop variables. */
  std::optional<DimRange> Range(DimId value) const;

  /*!
   * \brief A low and a high value that are taken: the range if the value is linear.
   *
   * Divisions, remainders, minima and maxima over loops with numeric bounds are computed at
   * points: at all of them if they are few, else at the corners and around multiples of the
   * divisors.
   */
  std::optional<DimRange> Taken(DimId value) const;

  /*!
   * \brief The least and the greatest of the values that are taken at some points at which
   *        conditions are met.
   *
   * Nothing is known where the loops that matter do not run over numbers.
   * \param is_certain Whether each condition must depend only on the loops' variables. Otherwise
   *        conditions on data are assumed to be met.
   */
  std::optional<DimRange> TakenWhere(DimId value, DimId extent,
                                     const std::vector<Condition>& conditions, bool is_certain);

  /*! \brief Whether a condition is one of loop variables and symbols, not of data. */
  bool IsOfLoops(const ObjectRef& condition, int depth = 0);

  /*! \brief Whether a condition is true in every iteration of the loops, or in none. */
  Relation Holds(const ObjectRef& condition, int depth = 0);

  Place Compare(const DimRange& range, DimId extent) const;

  /*! \brief What must be positive for the loops around to run, less what is known to be. */
  const std::vector<DimId>& Extents() const { return extents_; }

 private:
  struct Loop {
    const Object* var;
    std::string thread_tag;
    /*! \brief The value of the variable, and its bounds; nothing if they are not known. */
    std::optional<DimId> value;
    std::optional<DimRange> range;
    DimId extent = kUnknownDim;
    int64_t step = 1;
    /*! \brief How much of what loops around it have given up, and need, was there before it. */
    size_t num_narrowed = 0;
    size_t num_extents = 0;
  };

  /*! \brief The range of a loop before iterations were left out. */
  struct Narrowed {
    size_t loop;
    DimRange before;
  };

  /*! \brief A variable of a loop over numbers. */
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
  /*! \brief Leave out the iterations in which `extent` is not positive; false if that cannot be
   * told, or leaves none. */
  bool RunOnlyWith(DimId extent);
  /*! \brief The only loop that `dim` varies with; null if there is none, or several. */
  Loop* OnlyLoopOf(DimId dim);
  /*! \brief Whether `high - low` is at least `margin` in every iteration, or in none. */
  Relation Exceeds(const ObjectRef& high, const ObjectRef& low, int64_t margin);
  /*! \brief The loop over numbers that a variable is of; nothing for any other variable. */
  std::optional<Axis> AxisOf(const Object* var) const;
  /*! \brief The first and the last value of an axis, and those around multiples of divisors. */
  static std::vector<int64_t> Ends(const Axis& axis, const std::set<int64_t>& divisors);
  /*! \brief Values of loop variables at which a value is extreme; empty if too many. */
  std::vector<std::vector<int64_t>> Points(DimId value, const std::vector<Axis>& axes) const;
  /*! \brief A comparison in a condition; `difference` is nothing where it is one of data. */
  struct Comparison {
    std::optional<DimId> difference;
    /*! \brief It holds where the difference is within these, or, if `is_negated`, outside. */
    int64_t least;
    int64_t greatest;
    bool is_negated;
  };
  /*! \brief A condition that is not made of others; nothing if it is not a comparison. */
  std::optional<Comparison> AsComparison(const ObjectRef& condition);
  /*! \brief The comparisons that a condition is made of. */
  void Comparisons(const ObjectRef& condition, int depth, std::vector<Comparison>* found);
  /*! \brief Whether a statement with this condition runs at a point. */
  Relation RunsAt(const Condition& condition,
                  const std::unordered_map<const Object*, int64_t>& numbers);
  Relation HoldsAt(const ObjectRef& condition,
                   const std::unordered_map<const Object*, int64_t>& numbers, int depth);
  /*! \brief Where comparisons change along an axis, and its ends. */
  std::vector<int64_t> Thresholds(const Axis& axis, const std::vector<Comparison>& comparisons,
                                  const std::set<int64_t>& divisors);
  /*! \brief The least value over one loop, with `sign` 1; with -1 the greatest. */
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
