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
 * \brief Ranges of linear expressions, one loop at a time from the innermost outwards.
 */
#include "tir_bounds.h"

#include <tvm/ffi/cast.h>

#include <algorithm>

namespace tvm_fixes {
namespace verifier {

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
  loops_.push_back({var, thread_tag, std::nullopt, std::nullopt, kUnknownDim});
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
