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
 * \file src/relax/analysis/verifier/tir_bounds.cc
 * \brief Ranges of linear expressions, eliminating loops from the innermost outwards; other
 *        expressions are evaluated at sample points.
 */
#include "tir_bounds.h"

#include <tvm/ffi/cast.h>

#include <algorithm>

#include "../../../ffi/tir_nodes.h"
#include "../../ir/views.h"
#include "../integer_division.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief The maximum number of sample points. */
constexpr int64_t kMaxBoundPoints = 256;

/*! \brief More deeply nested conditions are ignored. */
constexpr int kMaxConditions = 100;

}  // namespace

bool MayRun(DimTable* dims, const std::vector<DimId>& extents) {
  const bool always = std::all_of(extents.begin(), extents.end(), [dims](DimId extent) {
    return dims->AtLeast(extent, 1) == Relation::kProved;
  });
  if (always) return true;
  // Search for a witness: extents are sums and products, so a few sizes suffice.
  for (int64_t size : {1, 2, 8, 64, 1024}) {
    for (int64_t growth : {0, 1, -1}) {
      DimTable::Substitution values;
      int64_t next = size + 8 * std::abs(growth);
      const bool all_run = std::all_of(extents.begin(), extents.end(), [&](DimId extent) {
        for (const Object* var : dims->Vars(extent)) {
          if (values.emplace(var, dims->FromInt(std::max<int64_t>(next, 0))).second) next += growth;
        }
        auto value = dims->Substitute(extent, values);
        return value && dims->AtLeast(*value, 1) == Relation::kProved;
      });
      if (all_run) return true;
    }
  }
  return false;
}

void LoopNest::AddSymbol(const Object* var) {
  Define(var, dims_->Intern(tvm::ffi::GetRef<ObjectRef>(var)));
}

void LoopNest::Define(const Object* var, std::optional<DimId> value) {
  if (value && *value != kUnknownDim) {
    values_[var] = *value;
  } else {
    values_.erase(var);
  }
}

Relation LoopNest::Enter(const Object* var, std::optional<DimId> min, std::optional<DimId> extent,
                         int64_t step, const std::string& thread_tag) {
  values_.erase(var);
  loops_.push_back({var, thread_tag, std::nullopt, std::nullopt, kUnknownDim, step,
                    narrowed_.size(), extents_.size()});
  if (var == nullptr || !min || !extent || step < 1) return Relation::kUnknown;
  auto span = Range(*extent);
  if (span && dims_->AtLeast(span->greatest, 1) == Relation::kDisproved) {
    return Relation::kDisproved;
  }
  if (!NarrowToPositive(*extent)) return Relation::kUnknown;
  span = Range(*extent);
  if (!span) return Relation::kUnknown;
  Loop& loop = loops_.back();
  if (span->least == span->greatest) loop.extent = span->least;
  if (!thread_tag.empty()) {
    auto outer = std::find_if(loops_.begin(), loops_.end() - 1,
                              [&](const Loop& other) { return other.thread_tag == thread_tag; });
    if (outer != loops_.end() - 1) {
      if (loop.extent == kUnknownDim || outer->extent != loop.extent) return Relation::kUnknown;
      loop.value = outer->value;
      Define(var, loop.value);
      return Relation::kProved;
    }
  }
  const DimId rounds = dims_->FloorDivide(dims_->Subtract(*extent, dims_->FromInt(1)), step);
  const DimId last = dims_->Add(*min, dims_->Multiply(rounds, dims_->FromInt(step)));
  loop.range = DimRange{*min, last};
  loop.value = dims_->Intern(tvm::ffi::GetRef<ObjectRef>(var));
  Define(var, loop.value);
  return Relation::kProved;
}

void LoopNest::Leave() {
  const Loop& loop = loops_.back();
  values_.erase(loop.var);
  extents_.resize(loop.num_extents);
  for (; narrowed_.size() > loop.num_narrowed; narrowed_.pop_back()) {
    loops_[narrowed_.back().loop].range = narrowed_.back().before;
  }
  loops_.pop_back();
}

LoopNest::Loop* LoopNest::OnlyLoopOf(DimId dim) {
  Loop* only = nullptr;
  for (const Object* var : dims_->Vars(dim)) {
    auto loop = std::find_if(loops_.begin(), loops_.end(),
                             [var](const Loop& one) { return one.var == var && one.range; });
    if (loop == loops_.end()) continue;
    if (only != nullptr) return nullptr;
    only = &*loop;
  }
  return only;
}

bool LoopNest::NarrowToPositive(DimId extent) {
  const auto span = Range(extent);
  if (!span || dims_->AtLeast(span->greatest, 1) == Relation::kDisproved) return false;
  if (IsAtLeast(span->least, 1)) return true;
  if (span->least == span->greatest) {
    extents_.push_back(span->least);
    return true;
  }
  // Narrow the loop to the iterations with c * i + rest >= 1: raise its start or lower its end.
  Loop* loop = OnlyLoopOf(extent);
  const auto linear = loop ? dims_->AsLinear(extent, loop->var) : std::nullopt;
  const auto factor = linear ? dims_->AsInt(linear->coefficient) : std::nullopt;
  if (!factor || loop->step != 1 || *factor == 0 || *factor == INT64_MIN) return false;
  DimRange range = *loop->range;
  if (*factor > 0) {
    range.least = dims_->FloorDivide(dims_->Subtract(linear->coefficient, linear->rest), *factor);
    if (!IsAtLeast(dims_->Subtract(range.least, loop->range->least), 0)) return false;
  } else {
    range.greatest = dims_->FloorDivide(dims_->Subtract(linear->rest, dims_->FromInt(1)), -*factor);
    if (!IsAtLeast(dims_->Subtract(loop->range->greatest, range.greatest), 0)) return false;
  }
  narrowed_.push_back({static_cast<size_t>(loop - loops_.data()), *loop->range});
  loop->range = range;
  // The remaining iterations may depend on outer loops.
  return NarrowToPositive(
      dims_->Add(dims_->Subtract(range.greatest, range.least), dims_->FromInt(1)));
}

std::optional<DimId> LoopNest::Value(DimId written) {
  if (dims_->AsInt(written)) return written;
  return dims_->Substitute(written, values_);
}

std::optional<DimId> LoopNest::Extreme(DimId value, const Loop& loop, int sign) const {
  const auto& vars = dims_->Vars(value);
  if (std::find(vars.begin(), vars.end(), loop.var) == vars.end()) return value;
  const auto linear = dims_->AsLinear(value, loop.var);
  if (!linear) return std::nullopt;
  const bool grows = IsAtLeast(linear->coefficient, 0);
  if (!grows && !IsAtLeast(dims_->Subtract(dims_->FromInt(0), linear->coefficient), 0)) {
    return std::nullopt;
  }
  const DimId at = grows == (sign > 0) ? loop.range->least : loop.range->greatest;
  return dims_->Add(dims_->Multiply(linear->coefficient, at), linear->rest);
}

std::optional<DimRange> LoopNest::Range(DimId value) const {
  DimRange range{value, value};
  for (auto loop = loops_.rbegin(); loop != loops_.rend(); ++loop) {
    if (!loop->range) continue;
    const auto least = Extreme(range.least, *loop, 1);
    const auto greatest = Extreme(range.greatest, *loop, -1);
    if (!least || !greatest) return std::nullopt;
    range = {*least, *greatest};
  }
  return range;
}

std::optional<LoopNest::Axis> LoopNest::AxisOf(const Object* var) const {
  auto loop = std::find_if(loops_.begin(), loops_.end(),
                           [var](const Loop& one) { return one.var == var && one.range; });
  if (loop == loops_.end()) return std::nullopt;
  const auto first = dims_->AsInt(loop->range->least);
  const auto last = dims_->AsInt(loop->range->greatest);
  if (!first || !last || *last < *first) return std::nullopt;
  return Axis{var, *first, *last, loop->step};
}

std::vector<int64_t> LoopNest::Ends(const Axis& axis, const std::set<int64_t>& divisors) {
  const auto& [var, first, last, step] = axis;
  std::set<int64_t> found = {first, last};
  for (int64_t divisor : divisors) {
    // The ends of the first and the last full block, and of the remainder.
    if (step != 1 || divisor > last - first) continue;
    const int64_t end = last - FloorRemainder(last, divisor);
    for (int64_t point : {first + divisor - 1 - FloorRemainder(first, divisor), end - 1, end}) {
      if (point >= first && point <= last) found.insert(point);
    }
  }
  return {found.begin(), found.end()};
}

std::vector<std::vector<int64_t>> LoopNest::Points(DimId value,
                                                   const std::vector<Axis>& axes) const {
  std::vector<std::vector<int64_t>> points(axes.size());
  auto are_few = [&](auto size) {
    int64_t count = 1;
    for (size_t i = 0; i < axes.size(); ++i) {
      if (size(i) > kMaxBoundPoints / count) return false;
      count *= size(i);
    }
    return true;
  };
  if (are_few([&](size_t i) { return axes[i].rounds(); })) {
    for (size_t i = 0; i < axes.size(); ++i) {
      for (int64_t k = 0; k < axes[i].rounds(); ++k) {
        points[i].push_back(axes[i].first + k * axes[i].step);
      }
    }
    return points;
  }
  for (const std::set<int64_t>& divisors : {dims_->Divisors(value), std::set<int64_t>()}) {
    for (size_t i = 0; i < axes.size(); ++i) points[i] = Ends(axes[i], divisors);
    if (are_few([&](size_t i) { return static_cast<int64_t>(points[i].size()); })) return points;
  }
  return {};
}

std::optional<DimRange> LoopNest::Taken(DimId value) const {
  if (auto range = Range(value)) return range;
  // Loops with numeric bounds run through all combinations of their values.
  std::vector<Axis> axes;
  for (const Object* var : dims_->Vars(value)) {
    const auto axis = AxisOf(var);
    if (!axis) return std::nullopt;
    axes.push_back(*axis);
  }
  const std::vector<std::vector<int64_t>> points = Points(value, axes);
  if (points.empty()) return std::nullopt;
  std::unordered_map<const Object*, int64_t> numbers;
  std::vector<size_t> at(axes.size(), 0);
  int64_t least = INT64_MAX;
  int64_t greatest = INT64_MIN;
  while (true) {
    for (size_t i = 0; i < axes.size(); ++i) numbers[axes[i].var] = points[i][at[i]];
    const auto reached = dims_->Evaluate(value, numbers);
    if (!reached) return std::nullopt;
    least = std::min(least, *reached);
    greatest = std::max(greatest, *reached);
    size_t i = 0;
    while (i < at.size() && ++at[i] == points[i].size()) at[i++] = 0;
    if (i == at.size()) break;
  }
  return DimRange{dims_->FromInt(least), dims_->FromInt(greatest)};
}

Relation LoopNest::Exceeds(const ObjectRef& high, const ObjectRef& low, int64_t margin) {
  const auto upper = Value(high);
  const auto lower = Value(low);
  const auto range = upper && lower ? Range(dims_->Subtract(*upper, *lower)) : std::nullopt;
  if (!range) return Relation::kUnknown;
  if (IsAtLeast(range->least, margin)) return Relation::kProved;
  const bool never = dims_->AtLeast(range->greatest, margin) == Relation::kDisproved;
  return never ? Relation::kDisproved : Relation::kUnknown;
}

Relation LoopNest::Holds(const ObjectRef& condition, int depth) {
  const Object* node = condition.get();
  if (auto literal = AsInt(condition)) {
    return *literal != 0 ? Relation::kProved : Relation::kDisproved;
  }
  if (depth > kMaxConditions) return Relation::kUnknown;
  const TirNodes& tir = tir_nodes;
  if (tir.lt.IsInstance(node)) return Exceeds(tir.lt.b(node), tir.lt.a(node), 1);
  if (tir.le.IsInstance(node)) return Exceeds(tir.le.b(node), tir.le.a(node), 0);
  if (tir.gt.IsInstance(node)) return Exceeds(tir.gt.a(node), tir.gt.b(node), 1);
  if (tir.ge.IsInstance(node)) return Exceeds(tir.ge.a(node), tir.ge.b(node), 0);
  for (const BinaryOpNode* equality : {&tir.eq, &tir.ne}) {
    if (!equality->IsInstance(node)) continue;
    const Relation equal = Both(Exceeds(equality->a(node), equality->b(node), 0),
                                Exceeds(equality->b(node), equality->a(node), 0));
    return equality == &tir.eq ? equal : Not(equal);
  }
  if (tir.logical_not.IsInstance(node)) return Not(Holds(tir.logical_not.a(node), depth + 1));
  const bool is_or = tir.logical_or.IsInstance(node);
  if (!is_or && !tir.logical_and.IsInstance(node)) return Relation::kUnknown;
  const BinaryOpNode& layout = is_or ? tir.logical_or : tir.logical_and;
  const Relation lhs = Holds(layout.a(node), depth + 1);
  const Relation rhs = Holds(layout.b(node), depth + 1);
  return is_or ? Not(Both(Not(lhs), Not(rhs))) : Both(lhs, rhs);
}

Place LoopNest::Compare(const DimRange& range, DimId extent) const {
  const DimId room = dims_->Subtract(extent, range.greatest);
  if (dims_->AtLeast(range.least, 0) == Relation::kDisproved) return Place::kBelow;
  if (dims_->AtLeast(room, 1) == Relation::kDisproved) return Place::kAbove;
  return IsAtLeast(range.least, 0) && IsAtLeast(room, 1) ? Place::kInside : Place::kUnknown;
}

}  // namespace verifier
}  // namespace tvm_fixes
