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
 * \file src/relax/analysis/verifier/dims_evaluate.cc
 * \brief Evaluation of extents for numeric values of their variables.
 */
#include <algorithm>

#include "../integer_division.h"
#include "dims.h"

namespace tvm_fixes {
namespace verifier {

std::optional<int64_t> DimTable::Apply(Op op, int64_t lhs, int64_t rhs) {
  int64_t result = 0;
  switch (op) {
    case Op::kAdd:
      return __builtin_add_overflow(lhs, rhs, &result) ? std::nullopt : std::optional(result);
    case Op::kMul:
      return __builtin_mul_overflow(lhs, rhs, &result) ? std::nullopt : std::optional(result);
    case Op::kMin:
      return std::min(lhs, rhs);
    case Op::kMax:
      return std::max(lhs, rhs);
    default:
      break;
  }
  if (!CanDivide(lhs, rhs)) return std::nullopt;
  switch (op) {
    case Op::kFloorDiv:
      return FloorQuotient(lhs, rhs);
    case Op::kFloorMod:
      return FloorRemainder(lhs, rhs);
    case Op::kTruncDiv:
      return lhs / rhs;
    case Op::kTruncMod:
      return lhs % rhs;
    default:
      return std::nullopt;
  }
}

std::optional<int64_t> DimTable::Evaluate(
    DimId dim, const std::unordered_map<const Object*, int64_t>& numbers) const {
  if (dim == kUnknownDim) return std::nullopt;
  std::optional<int64_t> sum = 0;
  for (const auto& [monomial, factor] : dims_[dim].polynomial) {
    std::optional<int64_t> product = factor;
    for (AtomId id : monomial) {
      const Atom& atom = atoms_[id];
      std::optional<int64_t> value;
      if (atom.op == Op::kVar) {
        auto found = numbers.find(atom.node);
        if (found != numbers.end()) value = found->second;
      } else if (atom.op != Op::kOther) {
        const auto lhs = Evaluate(atom.lhs, numbers);
        const auto rhs = Evaluate(atom.rhs, numbers);
        if (lhs && rhs) value = Apply(atom.op, *lhs, *rhs);
      }
      if (!value) return std::nullopt;
      product = Apply(Op::kMul, *product, *value);
      if (!product) return std::nullopt;
    }
    sum = Apply(Op::kAdd, *sum, *product);
    if (!sum) return std::nullopt;
  }
  return sum;
}

std::set<int64_t> DimTable::Divisors(DimId dim) const {
  std::set<int64_t> divisors;
  for (const auto& [monomial, factor] : dims_[dim].polynomial) {
    for (AtomId id : monomial) {
      const Atom& atom = atoms_[id];
      if (atom.op == Op::kVar || atom.op == Op::kOther) continue;
      const auto divisor = AsInt(atom.rhs);
      if (divisor && *divisor > 0) divisors.insert(*divisor);
      divisors.merge(Divisors(atom.lhs));
      divisors.merge(Divisors(atom.rhs));
    }
  }
  return divisors;
}

}  // namespace verifier
}  // namespace tvm_fixes
