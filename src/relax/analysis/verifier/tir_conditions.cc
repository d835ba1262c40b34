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
 * \file src/relax/analysis/verifier/tir_conditions.cc
 * \brief Ranges of expressions in the loop iterations that meet conditions.
 */
#include <algorithm>
#include <limits>

#include "../../../ffi/tir_nodes.h"
#include "../../ir/views.h"
#include "../integer_division.h"
#include "tir_bounds.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief The maximum number of sample points. */
constexpr int64_t kMaxConditionPoints = 4096;

/*! \brief More deeply nested conditions are ignored. */
constexpr int kMaxConditionDepth = 100;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

}  // namespace

std::optional<LoopNest::Comparison> LoopNest::AsComparison(const ObjectRef& condition) {
  struct Kind {
    const BinaryOpNode* layout;
    int64_t least;
    int64_t greatest;
    bool is_negated;
  };
  const TirNodes& tir = tir_nodes;
  const Kind kinds[] = {{&tir.lt, kLeast, -1, false}, {&tir.le, kLeast, 0, false},
                        {&tir.gt, 1, kMost, false},   {&tir.ge, 0, kMost, false},
                        {&tir.eq, 0, 0, false},       {&tir.ne, 0, 0, true}};
  for (const auto& [layout, least, greatest, is_negated] : kinds) {
    if (!layout->IsInstance(condition.get())) continue;
    const auto lhs = Value(layout->a(condition.get()));
    const auto rhs = Value(layout->b(condition.get()));
    Comparison found{std::nullopt, least, greatest, is_negated};
    if (lhs && rhs && *lhs != kUnknownDim && *rhs != kUnknownDim) {
      const DimId difference = dims_->Subtract(*lhs, *rhs);
      if (dims_->IsRead(difference)) found.difference = difference;
    }
    return found;
  }
  return std::nullopt;
}

void LoopNest::Comparisons(const ObjectRef& condition, int depth, std::vector<Comparison>* found) {
  const Object* node = condition.get();
  if (node == nullptr || depth > kMaxConditionDepth) return;
  if (auto comparison = AsComparison(condition)) {
    found->push_back(*comparison);
  } else if (tir_nodes.logical_not.IsInstance(node)) {
    Comparisons(tir_nodes.logical_not.a(node), depth + 1, found);
  } else {
    for (const BinaryOpNode* layout : {&tir_nodes.logical_and, &tir_nodes.logical_or}) {
      if (!layout->IsInstance(node)) continue;
      Comparisons(layout->a(node), depth + 1, found);
      Comparisons(layout->b(node), depth + 1, found);
    }
  }
}

bool LoopNest::IsOfLoops(const ObjectRef& condition, int depth) {
  const Object* node = condition.get();
  if (node == nullptr || depth > kMaxConditionDepth) return false;
  if (AsInt(condition)) return true;
  if (auto comparison = AsComparison(condition)) return comparison->difference.has_value();
  if (tir_nodes.logical_not.IsInstance(node)) {
    return IsOfLoops(tir_nodes.logical_not.a(node), depth + 1);
  }
  for (const BinaryOpNode* layout : {&tir_nodes.logical_and, &tir_nodes.logical_or}) {
    if (layout->IsInstance(node)) {
      return IsOfLoops(layout->a(node), depth + 1) && IsOfLoops(layout->b(node), depth + 1);
    }
  }
  return false;
}

Relation LoopNest::HoldsAt(const ObjectRef& condition,
                           const std::unordered_map<const Object*, int64_t>& numbers, int depth) {
  const Object* node = condition.get();
  if (node == nullptr || depth > kMaxConditionDepth) return Relation::kUnknown;
  if (auto literal = AsInt(condition)) {
    return *literal != 0 ? Relation::kProved : Relation::kDisproved;
  }
  if (auto comparison = AsComparison(condition)) {
    if (!comparison->difference) return Relation::kUnknown;
    const auto difference = dims_->Evaluate(*comparison->difference, numbers);
    if (!difference) return Relation::kUnknown;
    const bool is_within = *difference >= comparison->least && *difference <= comparison->greatest;
    return is_within != comparison->is_negated ? Relation::kProved : Relation::kDisproved;
  }
  if (tir_nodes.logical_not.IsInstance(node)) {
    return Not(HoldsAt(tir_nodes.logical_not.a(node), numbers, depth + 1));
  }
  const bool is_or = tir_nodes.logical_or.IsInstance(node);
  if (!is_or && !tir_nodes.logical_and.IsInstance(node)) return Relation::kUnknown;
  const BinaryOpNode& layout = is_or ? tir_nodes.logical_or : tir_nodes.logical_and;
  const Relation lhs = HoldsAt(layout.a(node), numbers, depth + 1);
  const Relation rhs = HoldsAt(layout.b(node), numbers, depth + 1);
  return is_or ? Not(Both(Not(lhs), Not(rhs))) : Both(lhs, rhs);
}

Relation LoopNest::RunsAt(const Condition& condition,
                          const std::unordered_map<const Object*, int64_t>& numbers) {
  if (condition.extent) {
    const auto rounds = dims_->Evaluate(*condition.extent, numbers);
    if (!rounds) return Relation::kUnknown;
    return *rounds > 0 ? Relation::kProved : Relation::kDisproved;
  }
  const Relation holds = HoldsAt(condition.expr, numbers, 0);
  return condition.expected ? holds : Not(holds);
}

std::vector<int64_t> LoopNest::Thresholds(const Axis& axis,
                                          const std::vector<Comparison>& comparisons,
                                          const std::set<int64_t>& divisors) {
  std::set<int64_t> found;
  auto add = [&](int64_t value) {
    value = axis.first + (value - axis.first) / axis.step * axis.step;
    if (value >= axis.first && value <= axis.last) found.insert(value);
  };
  for (int64_t end : Ends(axis, divisors)) add(end);
  add(axis.first + (axis.last - axis.first) / 2);
  for (const Comparison& comparison : comparisons) {
    if (!comparison.difference) continue;
    const auto linear = dims_->AsLinear(*comparison.difference, axis.var);
    const auto factor = linear ? dims_->AsInt(linear->coefficient) : std::nullopt;
    const auto rest = linear ? dims_->AsInt(linear->rest) : std::nullopt;
    if (!factor || !rest || *factor == 0 || *factor == kLeast || *rest == kLeast) continue;
    const int64_t root = FloorQuotient(*factor < 0 ? *rest : -*rest, std::abs(*factor));
    if (root < axis.first - 2 || root > axis.last + 2) continue;
    for (int64_t step : {-1, 0, 1}) add(root + step);
  }
  return {found.begin(), found.end()};
}

std::optional<DimRange> LoopNest::TakenWhere(DimId value, DimId extent,
                                             const std::vector<Condition>& conditions,
                                             bool is_certain) {
  std::vector<Comparison> comparisons;
  for (const Condition& condition : conditions) {
    if (is_certain && !condition.extent && !IsOfLoops(condition.expr)) return std::nullopt;
    if (condition.extent) comparisons.push_back({condition.extent, 1, kMost, false});
    Comparisons(condition.expr, 0, &comparisons);
  }
  std::vector<DimId> read = {value, extent};
  for (const Comparison& one : comparisons) {
    if (one.difference) read.push_back(*one.difference);
  }
  std::vector<Axis> axes;
  std::set<const Object*> seen;
  std::set<int64_t> divisors;
  for (DimId dim : read) {
    if (!dims_->IsRead(dim)) return std::nullopt;
    divisors.merge(dims_->Divisors(dim));
    for (const Object* var : dims_->Vars(dim)) {
      if (!seen.insert(var).second) continue;
      const auto axis = AxisOf(var);
      if (!axis) return std::nullopt;
      axes.push_back(*axis);
    }
  }
  std::vector<std::vector<int64_t>> points;
  int64_t count = 1;
  bool is_all = true;
  for (const Axis& axis : axes) {
    is_all = is_all && axis.rounds() <= kMaxConditionPoints / count;
    if (is_all) count *= axis.rounds();
  }
  count = 1;
  for (const Axis& axis : axes) {
    std::vector<int64_t> own;
    if (is_all) {
      for (int64_t at = axis.first; at <= axis.last; at += axis.step) own.push_back(at);
    } else {
      own = Thresholds(axis, comparisons, divisors);
    }
    if (static_cast<int64_t>(own.size()) > kMaxConditionPoints / count) return std::nullopt;
    count *= static_cast<int64_t>(own.size());
    points.push_back(std::move(own));
  }
  std::unordered_map<const Object*, int64_t> numbers;
  std::vector<size_t> at(axes.size(), 0);
  std::optional<int64_t> least;
  std::optional<int64_t> greatest;
  while (true) {
    for (size_t i = 0; i < axes.size(); ++i) numbers[axes[i].var] = points[i][at[i]];
    const bool runs =
        std::all_of(conditions.begin(), conditions.end(), [&](const Condition& condition) {
          const Relation runs = RunsAt(condition, numbers);
          return runs == Relation::kProved || (runs == Relation::kUnknown && !is_certain);
        });
    const auto reached = runs ? dims_->Evaluate(value, numbers) : std::nullopt;
    if (reached) {
      least = std::min(least.value_or(*reached), *reached);
      greatest = std::max(greatest.value_or(*reached), *reached);
    }
    size_t i = 0;
    while (i < at.size() && ++at[i] == points[i].size()) at[i++] = 0;
    if (i == at.size()) break;
  }
  if (!least) return std::nullopt;
  return DimRange{dims_->FromInt(*least), dims_->FromInt(*greatest)};
}

}  // namespace verifier
}  // namespace tvm_fixes
