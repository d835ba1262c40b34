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
 * \brief Ranges of linear expressions, one loop at a time from the innermost outwards; of others,
 *        what they reach at points.
 */
#include "tir_bounds.h"

#include <tvm/ffi/cast.h>

#include <algorithm>

#include "../../../ffi/tir_nodes.h"
#include "../../ir/views.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief At how many points a value is computed at most. */
constexpr int64_t kMaxPoints = 256;

/*! \brief Conditions of more parts are not read. */
constexpr int kMaxConditions = 100;

}  // namespace

bool MayRun(DimTable* dims, const std::vector<DimId>& extents) {
  const bool always = std::all_of(extents.begin(), extents.end(), [dims](DimId extent) {
    return dims->AtLeast(extent, 1) == Relation::kProved;
  });
  if (always) return true;
  // A witness: extents are sums and products, so that a few sizes show what may be positive.
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

void LoopNest::AddSymbol(const Object* var, bool is_extent) {
  Define(var, dims_->Intern(tvm::ffi::GetRef<ObjectRef>(var)));
  if (!is_extent) return;
  extents_.insert(var);
  dims_->MarkExtent(dims_->Intern(tvm::ffi::GetRef<ObjectRef>(var)));
}

void LoopNest::Define(const Object* var, std::optional<DimId> value) {
  if (value && *value != kUnknownDim) {
    values_[var] = *value;
  } else {
    values_.erase(var);
  }
}

bool LoopNest::Enter(const Object* var, std::optional<DimId> min, std::optional<DimId> extent,
                     int64_t step, const std::string& thread_tag) {
  values_.erase(var);
  loops_.push_back({var, thread_tag, std::nullopt, std::nullopt, kUnknownDim, step});
  Loop& loop = loops_.back();
  if (var == nullptr || !min || !extent || step < 1) return false;
  const auto span = Range(*extent);
  if (!span || dims_->AtLeast(span->greatest, 1) == Relation::kDisproved) return false;
  // A loop whose extent varies with another one must run in each of its rounds.
  if (span->least != span->greatest && !IsAtLeast(span->least, 1)) return false;
  if (span->least == span->greatest) loop.extent = span->least;
  if (!thread_tag.empty()) {
    auto outer = std::find_if(loops_.begin(), loops_.end() - 1,
                              [&](const Loop& other) { return other.thread_tag == thread_tag; });
    if (outer != loops_.end() - 1) {
      if (outer->extent != loop.extent) return false;
      loop.value = outer->value;
      Define(var, loop.value);
      return true;
    }
  }
  // Division in DimTable takes variables for extents, which are not negative.
  const auto begin = Range(*min);
  if (!begin || !IsAtLeast(begin->least, 0)) return true;
  const DimId rounds = dims_->FloorDivide(dims_->Subtract(*extent, dims_->FromInt(1)), step);
  const DimId last = dims_->Add(*min, dims_->Multiply(rounds, dims_->FromInt(step)));
  loop.range = DimRange{*min, last};
  loop.value = dims_->Intern(tvm::ffi::GetRef<ObjectRef>(var));
  Define(var, loop.value);
  return true;
}

void LoopNest::Leave() {
  values_.erase(loops_.back().var);
  loops_.pop_back();
}

std::optional<DimId> LoopNest::Value(const ObjectRef& expr) {
  const DimId written = dims_->Intern(expr);
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
  if (!first || !last || *first < 0 || *last < *first) return std::nullopt;
  return Axis{var, *first, *last, loop->step};
}

std::vector<int64_t> LoopNest::Ends(const Axis& axis, const std::set<int64_t>& divisors) {
  const auto& [var, first, last, step] = axis;
  std::set<int64_t> found = {first, last};
  for (int64_t divisor : divisors) {
    // The ends of the first and of the last whole block, and what follows it.
    if (step != 1 || divisor > last - first) continue;
    const int64_t end = last - last % divisor;
    for (int64_t point : {first + divisor - 1 - first % divisor, end - 1, end}) {
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
      if (size(i) > kMaxPoints / count) return false;
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
  // Loops over numbers have all combinations of their values: each of them is taken.
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

bool LoopNest::Holds(const ObjectRef& condition, int depth) {
  const Object* node = condition.get();
  if (auto literal = AsInt(condition)) return *literal != 0;
  if (depth > kMaxConditions) return false;
  auto exceeds = [&](const ObjectRef& high, const ObjectRef& low, int64_t margin) {
    const auto upper = Value(high);
    const auto lower = Value(low);
    if (!upper || !lower) return false;
    const auto range = Range(dims_->Subtract(*upper, *lower));
    return range && IsAtLeast(range->least, margin);
  };
  const TirNodes& tir = tir_nodes;
  if (tir.lt.IsInstance(node)) return exceeds(tir.lt.b(node), tir.lt.a(node), 1);
  if (tir.le.IsInstance(node)) return exceeds(tir.le.b(node), tir.le.a(node), 0);
  if (tir.gt.IsInstance(node)) return exceeds(tir.gt.a(node), tir.gt.b(node), 1);
  if (tir.ge.IsInstance(node)) return exceeds(tir.ge.a(node), tir.ge.b(node), 0);
  if (!tir.logical_and.IsInstance(node)) return false;
  return Holds(tir.logical_and.a(node), depth + 1) && Holds(tir.logical_and.b(node), depth + 1);
}

Place LoopNest::Compare(const DimRange& range, DimId extent) const {
  const DimId room = dims_->Subtract(extent, range.greatest);
  if (IsOfExtents(range.least) && dims_->AtLeast(range.least, 0) == Relation::kDisproved) {
    return Place::kBelow;
  }
  if (IsOfExtents(room) && dims_->AtLeast(room, 1) == Relation::kDisproved) return Place::kAbove;
  return IsAtLeast(range.least, 0) && IsAtLeast(room, 1) ? Place::kInside : Place::kUnknown;
}

std::vector<DimId> LoopNest::Extents() const {
  std::vector<DimId> extents;
  for (const Loop& loop : loops_) {
    if (loop.extent != kUnknownDim && !dims_->AsInt(loop.extent)) extents.push_back(loop.extent);
  }
  return extents;
}

bool LoopNest::IsOfExtents(DimId dim) const {
  const auto& vars = dims_->Vars(dim);
  return std::all_of(vars.begin(), vars.end(),
                     [this](const Object* var) { return extents_.count(var) != 0; });
}

bool LoopNest::IsAtLeast(DimId dim, int64_t bound) const {
  return IsOfExtents(dim) && dims_->AtLeast(dim, bound) == Relation::kProved;
}

}  // namespace verifier
}  // namespace tvm_fixes
