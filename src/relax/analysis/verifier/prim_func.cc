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
 * \file src/relax/analysis/verifier/prim_func.cc
 * \brief Diagnostics of out-of-bounds accesses, in a PrimFunc and at its calls.
 */
#include "prim_func.h"

#include <algorithm>
#include <string>
#include <utility>

#include "verifier.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief "load from `A`: dim 0: index i + 1 reaches 64, expected less than 64". */
std::string Explain(const DimTable& dims, const Reach& reach, bool is_below) {
  const std::string name = NameOf(reach.var);
  const auto& [place, dim, written, range, extent] = reach.index;
  std::string text;
  const std::string where = dim == kAllDims ? ": a vector over all dims: element "
                                            : ": dim " + std::to_string(dim) + ": index ";
  switch (reach.kind) {
    case Reach::Kind::kLoad:
      text = "load from " + name + where;
      break;
    case Reach::Kind::kStore:
      text = "store to " + name + where;
      break;
    case Reach::Kind::kIterator:
      text = "iterator " + name + ": value ";
      break;
  }
  const std::string reached = dims.Text(is_below ? range.least : range.greatest);
  const std::string value = written == kUnknownDim ? "" : dims.Text(written) + " ";
  text += value == reached + " " ? reached : value + "reaches " + reached;
  return text + (is_below ? ", expected at least 0" : ", expected less than " + dims.Text(extent));
}

const char* RuleOf(const Reach& reach) {
  return reach.kind == Reach::Kind::kIterator ? "tir.domain" : "tir.bounds";
}

bool IsBelow(DimTable* dims, const Reach& reach) {
  return dims->AtLeast(reach.index.range.least, 0) == Relation::kDisproved;
}

/*! \brief Report an error, or a warning if the access depends on data. */
Diagnostic& ReportReach(Verifier* verifier, const Reach& reach, const Path& path,
                        std::string message) {
  if (reach.is_certain) return verifier->Error(RuleOf(reach), path, std::move(message));
  return verifier->Warning(RuleOf(reach), path, std::move(message))
      .Note("under a condition that depends on data, or in a loop of unknown extent");
}

/*! \brief The accesses that are out of bounds at these values, but not at all values. */
std::vector<Reach> FindMoreReachesAt(Verifier* verifier, const Object* global_var,
                                     const PrimFuncReaches& reaches,
                                     const DimTable::Substitution& values) {
  std::vector<Reach> outside = verifier->FindReachesAt(global_var, values).outside;
  auto is_known = [&](const Reach& reach) {
    return std::any_of(reaches.outside.begin(), reaches.outside.end(), [&](const Reach& known) {
      return known.var == reach.var && known.index.dim == reach.index.dim &&
             known.index.value == reach.index.value;
    });
  };
  outside.erase(std::remove_if(outside.begin(), outside.end(), is_known), outside.end());
  return outside;
}

/*!
 * \brief Warn about accesses that are out of bounds at sample sizes in every relative order.
 *
 * A warning, because the sizes at the calls are unknown: symbols that are not extents, or extents
 * with an unstated relation, may never take these values.
 */
void CheckReachesAtSizes(Verifier* verifier, const Object* global_var,
                         const PrimFuncReaches& reaches) {
  constexpr size_t kMaxSymbols = 6;
  const size_t count = reaches.symbols.size();
  if (!reaches.may_vary || reaches.has_scalars || count == 0 || count > kMaxSymbols) return;
  DimTable& dims = verifier->dims();
  std::vector<Reach> common;
  for (const auto& [size, growth] : {std::pair(8, 0), std::pair(5, 3), std::pair(23, -3)}) {
    DimTable::Substitution values;
    for (size_t i = 0; i < count; ++i) {
      values[reaches.symbols[i]] = dims.FromInt(size + growth * static_cast<int64_t>(i));
    }
    std::vector<Reach> outside = FindMoreReachesAt(verifier, global_var, reaches, values);
    if (growth != 0) {
      auto is_not_common = [&](const Reach& reach) {
        return std::none_of(common.begin(), common.end(), [&](const Reach& other) {
          return other.var == reach.var && other.index.dim == reach.index.dim &&
                 other.index.value == reach.index.value;
        });
      };
      outside.erase(std::remove_if(outside.begin(), outside.end(), is_not_common), outside.end());
    }
    common = std::move(outside);
    if (common.empty()) return;
  }
  for (const Reach& reach : common) {
    Diagnostic& found = verifier->Warning(
        RuleOf(reach), reach.path, "at some sizes: " + Explain(dims, reach, IsBelow(&dims, reach)));
    for (size_t i = 0; i < count; ++i) {
      found.Note(NameOf(reaches.symbols[i]) + " is " +
                 std::to_string(23 - 3 * static_cast<int64_t>(i)));
    }
  }
}

}  // namespace

void CheckReaches(Verifier* verifier, const Object* global_var) {
  DimTable& dims = verifier->dims();
  for (const Reach& reach : verifier->ReachesOf(global_var).outside) {
    Diagnostic& found =
        ReportReach(verifier, reach, reach.path, Explain(dims, reach, IsBelow(&dims, reach)));
    if (reach.kind == Reach::Kind::kIterator) {
      found.Hint("extend the domain to all values that the iterator is bound to");
    } else {
      found.Note(NameOf(reach.var) + ": " +
                 verifier->types().Text(verifier->types().Intern(nodes.expr.ty(reach.var))));
    }
  }
  CheckReachesAtSizes(verifier, global_var, verifier->ReachesOf(global_var));
}

void CheckReachesAt(Verifier* verifier, const Object* global_var,
                    const DimTable::Substitution& symbols, const Path& call) {
  PrimFuncReaches& reaches = verifier->ReachesOf(global_var);
  if (!reaches.may_vary || reaches.symbols.empty()) return;
  DimTable& dims = verifier->dims();
  std::vector<DimId> values;
  for (const Object* symbol : reaches.symbols) {
    auto found = symbols.find(symbol);
    values.push_back(found == symbols.end() ? kUnknownDim : found->second);
  }
  auto [it, is_new] = reaches.outside_at.try_emplace(values);
  if (is_new) it->second = FindMoreReachesAt(verifier, global_var, reaches, symbols);
  const std::string name = Quote(std::string(nodes.global_var.name_hint(global_var)));
  for (const Reach& reach : it->second) {
    Diagnostic& found = ReportReach(verifier, reach, call,
                                    name + " goes out of bounds at these shapes: " +
                                        Explain(dims, reach, IsBelow(&dims, reach)));
    found.Note("here in " + name, reach.path);
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == kUnknownDim) continue;
      found.Note(NameOf(reaches.symbols[i]) + " is " + dims.Text(values[i]));
    }
    found.Hint("regenerate " + name + " for these shapes, or fix the caller");
  }
}

}  // namespace verifier
}  // namespace tvm_fixes
