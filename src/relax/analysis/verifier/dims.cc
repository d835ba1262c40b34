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
 * \file src/relax/analysis/verifier/dims.cc
 * \brief Arithmetic on extents.
 */
#include "dims.h"

#include <tvm/ffi/cast.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "../../../ffi/registration.h"
#include "../../../ffi/tir_nodes.h"
#include "../../ir/build.h"
#include "../integer_division.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief Deeper expressions become one atom, to protect the stack. */
constexpr int kMaxDimDepth = 200;

/*!
 * \brief Larger extents become one atom: products of sums and shared subexpressions may explode.
 */
constexpr size_t kMaxDimSize = 500;

/*! \brief Larger extents are not passed to TVM's analyzer: each part may double its time. */
constexpr size_t kMaxSizeToProve = 40;

bool IsIntegerType(const ObjectRef& ty) {
  if (!nodes.prim_type.IsInstance(ty.get())) return false;
  const uint8_t code = nodes.prim_type.dtype(ty.get()).code;
  return code == kDLInt || code == kDLUInt;
}

/*! \brief Whether an integer type can hold any extent. */
bool IsWide(const ObjectRef& ty) { return nodes.prim_type.dtype(ty.get()).bits >= 32; }

bool IsUnsigned(const ObjectRef& ty) { return nodes.prim_type.dtype(ty.get()).code == kDLUInt; }

}  // namespace

DimTable::DimTable() {
  dims_.emplace_back();  // kUnknownDim
}

DimId DimTable::FromInt(int64_t value) {
  auto [it, is_new] = id_of_int_.try_emplace(value, kUnknownDim);
  if (is_new) {
    Polynomial polynomial;
    if (value != 0) polynomial[{}] = value;
    it->second = InternPolynomial(std::move(polynomial));
  }
  return it->second;
}

DimId DimTable::Intern(const ObjectRef& expr) { return Compute(expr, 0); }

DimId DimTable::Compute(const ObjectRef& expr, int depth) {
  const Object* node = expr.get();
  // Also for literals of other types: TVM's arithmetic does not check the class of the type.
  if (!nodes.expr.IsInstance(node) || !IsIntegerType(nodes.expr.ty(node))) return kUnknownDim;
  if (auto value = tvm_fixes::AsInt(expr)) return FromInt(*value);
  if (auto known = id_of_node_.find(node); known != id_of_node_.end()) return known->second;
  DimId id = kUnknownDim;
  auto binary = [&](Op op, const BinaryOpNode& layout) {
    const DimId lhs = Compute(layout.a(node), depth + 1);
    const DimId rhs = Compute(layout.b(node), depth + 1);
    if (lhs == kUnknownDim || rhs == kUnknownDim) return kUnknownDim;
    const DimId result = op == Op::kSub ? Subtract(lhs, rhs) : Combine(op, lhs, rhs);
    // An expression that is too large becomes an atom.
    return result != kUnknownDim ? result : OfAtom({Op::kOther, node, kUnknownDim, kUnknownDim});
  };
  if (As<VarView>(node)) {
    id = OfAtom({Op::kVar, node, kUnknownDim, kUnknownDim});
  } else if (depth > kMaxDimDepth) {
    id = OfAtom({Op::kOther, node, kUnknownDim, kUnknownDim});
  } else if (tir_nodes.add.IsInstance(node)) {
    id = binary(Op::kAdd, tir_nodes.add);
  } else if (tir_nodes.mul.IsInstance(node)) {
    id = binary(Op::kMul, tir_nodes.mul);
  } else if (tir_nodes.sub.IsInstance(node)) {
    id = binary(Op::kSub, tir_nodes.sub);
  } else if (tir_nodes.floordiv.IsInstance(node)) {
    id = binary(Op::kFloorDiv, tir_nodes.floordiv);
  } else if (tir_nodes.floormod.IsInstance(node)) {
    id = binary(Op::kFloorMod, tir_nodes.floormod);
  } else if (tir_nodes.truncdiv.IsInstance(node)) {
    id = binary(Op::kTruncDiv, tir_nodes.truncdiv);
  } else if (tir_nodes.truncmod.IsInstance(node)) {
    id = binary(Op::kTruncMod, tir_nodes.truncmod);
  } else if (tir_nodes.min.IsInstance(node)) {
    id = binary(Op::kMin, tir_nodes.min);
  } else if (tir_nodes.max.IsInstance(node)) {
    id = binary(Op::kMax, tir_nodes.max);
  } else if (tir_nodes.cast.IsInstance(node) && IsWide(nodes.expr.ty(node))) {
    // A cast to a wide signed integer keeps any extent. 8 or 16 bits may truncate an index, and an
    // unsigned type cannot hold negative values.
    const ObjectRef& value = tir_nodes.cast.value(node);
    id = Compute(value, depth + 1);
    const bool may_wrap = id != kUnknownDim && IsUnsigned(nodes.expr.ty(node)) &&
                          !IsUnsigned(nodes.expr.ty(value.get())) &&
                          AtLeast(id, 0) != Relation::kProved;
    if (id == kUnknownDim || may_wrap) id = OfAtom({Op::kOther, node, kUnknownDim, kUnknownDim});
  } else {
    id = OfAtom({Op::kOther, node, kUnknownDim, kUnknownDim});
  }
  if (id != kUnknownDim) id_of_node_.emplace(node, id);
  return id;
}

DimId DimTable::Combine(Op op, DimId lhs, DimId rhs) {
  const auto a = AsInt(lhs);
  const auto b = AsInt(rhs);
  if (a && b) {
    if (const auto value = Apply(op, *a, *b)) return FromInt(*value);
  }
  switch (op) {
    case Op::kAdd:
      return Add(lhs, rhs);
    case Op::kMul:
      return Multiply(lhs, rhs);
    case Op::kFloorDiv:
      if (b && *b > 0) return FloorDivide(lhs, *b);
      break;
    case Op::kFloorMod:
      if (b && *b > 0) return Subtract(lhs, Multiply(rhs, FloorDivide(lhs, *b)));
      break;
    case Op::kTruncDiv:
      if (b && *b > 0 && AtLeast(lhs, 0) == Relation::kProved) return FloorDivide(lhs, *b);
      break;
    case Op::kMin:
    case Op::kMax:
      if (AtLeast(Subtract(lhs, rhs), 0) == Relation::kProved) return op == Op::kMax ? lhs : rhs;
      if (AtLeast(Subtract(rhs, lhs), 0) == Relation::kProved) return op == Op::kMax ? rhs : lhs;
      break;
    default:
      break;
  }
  const bool commutes = op == Op::kMin || op == Op::kMax;
  if (commutes && rhs < lhs) std::swap(lhs, rhs);
  return OfAtom({op, nullptr, lhs, rhs});
}

std::optional<int64_t> DimTable::AsInt(DimId dim) const {
  if (dim == kUnknownDim) return std::nullopt;
  const Polynomial& polynomial = dims_[dim].polynomial;
  if (polynomial.empty()) return 0;
  if (polynomial.size() == 1 && polynomial.begin()->first.empty()) {
    return polynomial.begin()->second;
  }
  return std::nullopt;
}

const Object* DimTable::AsVar(DimId dim) const {
  const Polynomial& polynomial = dims_[dim].polynomial;
  if (polynomial.size() != 1) return nullptr;
  const auto& [monomial, factor] = *polynomial.begin();
  if (factor != 1 || monomial.size() != 1) return nullptr;
  const Atom& atom = atoms_[monomial[0]];
  return atom.op == Op::kVar ? atom.node : nullptr;
}

std::optional<DimTable::Polynomial> DimTable::Sum(const Polynomial& lhs, const Polynomial& rhs,
                                                  int64_t factor) {
  Polynomial sum = lhs;
  for (const auto& [monomial, coefficient] : rhs) {
    int64_t scaled = 0;
    if (__builtin_mul_overflow(coefficient, factor, &scaled)) return std::nullopt;
    int64_t& total = sum[monomial];
    if (__builtin_add_overflow(total, scaled, &total)) return std::nullopt;
    if (total == 0) sum.erase(monomial);
  }
  return sum;
}

std::optional<DimTable::Polynomial> DimTable::Product(const Polynomial& lhs,
                                                      const Polynomial& rhs) {
  Polynomial product;
  for (const auto& [left, left_factor] : lhs) {
    Polynomial row;
    for (const auto& [right, right_factor] : rhs) {
      Monomial monomial;
      std::merge(left.begin(), left.end(), right.begin(), right.end(),
                 std::back_inserter(monomial));
      if (__builtin_mul_overflow(left_factor, right_factor, &row[monomial])) return std::nullopt;
    }
    auto sum = Sum(product, row, 1);
    if (!sum) return std::nullopt;
    product = std::move(*sum);
  }
  return product;
}

DimId DimTable::Add(DimId lhs, DimId rhs) {
  if (lhs == kUnknownDim || rhs == kUnknownDim) return kUnknownDim;
  if (dims_[lhs].size + dims_[rhs].size > kMaxDimSize) return kUnknownDim;
  auto sum = Sum(dims_[lhs].polynomial, dims_[rhs].polynomial, 1);
  return sum ? InternPolynomial(std::move(*sum)) : OfAtom({Op::kAdd, nullptr, lhs, rhs});
}

DimId DimTable::Subtract(DimId lhs, DimId rhs) {
  if (lhs == kUnknownDim || rhs == kUnknownDim) return kUnknownDim;
  if (dims_[lhs].size + dims_[rhs].size > kMaxDimSize) return kUnknownDim;
  auto difference = Sum(dims_[lhs].polynomial, dims_[rhs].polynomial, -1);
  if (difference) return InternPolynomial(std::move(*difference));
  return Add(lhs, Multiply(FromInt(-1), rhs));
}

DimId DimTable::Multiply(DimId lhs, DimId rhs) {
  if (lhs == kUnknownDim || rhs == kUnknownDim) return kUnknownDim;
  if (dims_[lhs].size * dims_[rhs].size > kMaxDimSize) return kUnknownDim;
  auto product = Product(dims_[lhs].polynomial, dims_[rhs].polynomial);
  return product ? InternPolynomial(std::move(*product)) : OfAtom({Op::kMul, nullptr, lhs, rhs});
}

DimId DimTable::FloorDivide(DimId lhs, int64_t divisor) {
  if (lhs == kUnknownDim || divisor <= 0) return kUnknownDim;
  if (divisor == 1) return lhs;
  // Pull out the terms that the divisor divides: (4 n + 3) // 4 is n + 3 // 4.
  Polynomial quotient;
  Polynomial rest;
  for (const auto& [monomial, factor] : dims_[lhs].polynomial) {
    const int64_t whole = FloorQuotient(factor, divisor);
    const int64_t left = FloorRemainder(factor, divisor);
    if (left == 0 || monomial.empty()) {
      if (whole != 0) quotient[monomial] = whole;
      if (left != 0) rest[monomial] = left;
    } else {
      rest[monomial] = factor;
    }
  }
  const bool is_small = rest.empty() || (rest.size() == 1 && rest.begin()->first.empty());
  const DimId whole = InternPolynomial(std::move(quotient));
  if (is_small) return whole;
  const DimId divided =
      OfAtom({Op::kFloorDiv, nullptr, InternPolynomial(std::move(rest)), FromInt(divisor)});
  return Add(whole, divided);
}

std::optional<DimTable::Linear> DimTable::AsLinear(DimId dim, const Object* var) {
  if (dim == kUnknownDim) return std::nullopt;
  Polynomial coefficient;
  Polynomial rest;
  for (const auto& [monomial, factor] : dims_[dim].polynomial) {
    Monomial others;
    int power = 0;
    for (AtomId id : monomial) {
      const Atom& atom = atoms_[id];
      if (atom.op == Op::kVar && atom.node == var) {
        ++power;
        continue;
      }
      // A non-arithmetic atom may hide any variable.
      if (atom.op == Op::kOther) return std::nullopt;
      for (DimId operand : {atom.lhs, atom.rhs}) {
        const auto& vars = dims_[operand].vars;
        if (std::find(vars.begin(), vars.end(), var) != vars.end()) return std::nullopt;
      }
      others.push_back(id);
    }
    if (power > 1) return std::nullopt;
    (power == 1 ? coefficient : rest).emplace(std::move(others), factor);
  }
  return Linear{InternPolynomial(std::move(coefficient)), InternPolynomial(std::move(rest))};
}

Relation DimTable::Equal(DimId lhs, DimId rhs) {
  if (lhs == kUnknownDim || rhs == kUnknownDim) return Relation::kUnknown;
  if (lhs == rhs) return Relation::kProved;
  if (AsInt(lhs) && AsInt(rhs)) return Relation::kDisproved;
  const auto pair = std::minmax(lhs, rhs);
  auto [it, is_new] = decided_.try_emplace(pair, Relation::kUnknown);
  if (is_new) it->second = Decide(pair.first, pair.second);
  return it->second;
}

Relation DimTable::Decide(DimId lhs, DimId rhs) {
  const DimId difference = Subtract(lhs, rhs);
  if (AsInt(difference)) return Relation::kDisproved;
  // If the terms have a common divisor that does not divide the constant, the sum is never 0.
  int64_t divisor = 0;
  int64_t constant = 0;
  bool has_opaque = false;
  for (const auto& [monomial, factor] : dims_[difference].polynomial) {
    if (monomial.empty()) {
      constant = factor;
    } else {
      divisor = std::gcd(divisor, factor);
    }
    for (AtomId atom : monomial) has_opaque |= atoms_[atom].op != Op::kVar;
  }
  if (divisor != 0 && constant % divisor != 0) return Relation::kDisproved;
  if (AtLeast(difference, 1) == Relation::kProved ||
      AtLeast(Subtract(rhs, lhs), 1) == Relation::kProved) {
    return Relation::kDisproved;
  }
  return has_opaque && CanProveEqual(lhs, rhs) ? Relation::kProved : Relation::kUnknown;
}

Relation DimTable::AtLeast(DimId dim, int64_t bound) {
  if (dim == kUnknownDim) return Relation::kUnknown;
  int64_t constant = 0;
  bool may_grow = false;
  bool may_shrink = false;
  for (const auto& [monomial, factor] : dims_[dim].polynomial) {
    if (monomial.empty()) {
      constant = factor;
      continue;
    }
    for (AtomId atom : monomial) {
      if (atoms_[atom].op != Op::kVar || extents_.count(atoms_[atom].node) == 0) {
        return Relation::kUnknown;
      }
    }
    (factor > 0 ? may_grow : may_shrink) = true;
  }
  if (!may_shrink && constant >= bound) return Relation::kProved;
  if (!may_grow && constant < bound) return Relation::kDisproved;
  return Relation::kUnknown;
}

std::optional<DimId> DimTable::Substitute(DimId dim, const Substitution& values) {
  if (dim == kUnknownDim) return std::nullopt;
  const Polynomial& polynomial = dims_[dim].polynomial;
  DimId sum = FromInt(0);
  for (const auto& [monomial, factor] : polynomial) {
    DimId product = FromInt(factor);
    for (AtomId id : monomial) {
      const Atom& atom = atoms_[id];
      DimId value = kUnknownDim;
      if (atom.op == Op::kVar) {
        auto found = values.find(atom.node);
        if (found == values.end()) return std::nullopt;
        value = found->second;
      } else if (atom.op == Op::kOther) {
        return std::nullopt;
      } else {
        auto lhs = Substitute(atom.lhs, values);
        auto rhs = Substitute(atom.rhs, values);
        if (!lhs || !rhs) return std::nullopt;
        value = Combine(atom.op, *lhs, *rhs);
      }
      product = Multiply(product, value);
    }
    sum = Add(sum, product);
  }
  return sum;
}

Relation DimTable::Solve(DimId pattern, DimId actual, Substitution* values) {
  if (pattern == kUnknownDim || actual == kUnknownDim) return Relation::kUnknown;
  if (auto known = Substitute(pattern, *values)) return Equal(*known, actual);
  if (const Object* var = AsVar(pattern)) {
    values->emplace(var, actual);
    return Relation::kProved;
  }
  // Solve c * v + rest == actual for the only variable v without a value.
  const Object* unsolved = nullptr;
  int64_t coefficient = 0;
  Polynomial rest;
  for (const auto& [monomial, factor] : dims_[pattern].polynomial) {
    const bool is_var = monomial.size() == 1 && atoms_[monomial[0]].op == Op::kVar;
    if (is_var && values->count(atoms_[monomial[0]].node) == 0) {
      if (unsolved != nullptr) return Relation::kUnknown;
      unsolved = atoms_[monomial[0]].node;
      coefficient = factor;
    } else {
      rest.emplace(monomial, factor);
    }
  }
  auto known = Substitute(InternPolynomial(std::move(rest)), *values);
  if (unsolved == nullptr || !known) return Relation::kUnknown;
  const DimId right = Subtract(actual, *known);
  Polynomial quotient;
  for (const auto& [monomial, factor] : dims_[right].polynomial) {
    if (!CanDivide(factor, coefficient)) return Relation::kUnknown;
    if (factor % coefficient != 0) {
      return AsInt(right) ? Relation::kDisproved : Relation::kUnknown;
    }
    quotient.emplace(monomial, factor / coefficient);
  }
  values->emplace(unsolved, InternPolynomial(std::move(quotient)));
  return Relation::kProved;
}

DimId DimTable::InternPolynomial(Polynomial polynomial) {
  auto [it, is_new] = id_of_polynomial_.try_emplace(polynomial, kUnknownDim);
  if (!is_new) return it->second;
  Dim dim;
  auto add = [&dim](const Object* var) {
    if (std::find(dim.vars.begin(), dim.vars.end(), var) == dim.vars.end()) dim.vars.push_back(var);
  };
  for (const auto& [monomial, factor] : polynomial) {
    ++dim.size;
    for (AtomId id : monomial) {
      const Atom& atom = atoms_[id];
      ++dim.size;
      if (atom.op == Op::kVar) add(atom.node);
      dim.is_read &= atom.op != Op::kOther;
      for (DimId operand : {atom.lhs, atom.rhs}) {
        dim.size += dims_[operand].size;
        dim.is_read &= dims_[operand].is_read;
        for (const Object* var : dims_[operand].vars) add(var);
      }
    }
  }
  dim.polynomial = std::move(polynomial);
  dims_.push_back(std::move(dim));
  it->second = static_cast<DimId>(dims_.size() - 1);
  return it->second;
}

AtomId DimTable::InternAtom(const Atom& atom) {
  auto [it, is_new] =
      id_of_atom_.try_emplace({atom.op, atom.node, atom.lhs, atom.rhs}, atoms_.size());
  if (is_new) atoms_.push_back(atom);
  return it->second;
}

DimId DimTable::OfAtom(const Atom& atom) {
  if (dims_[atom.lhs].size + dims_[atom.rhs].size > kMaxDimSize) return kUnknownDim;
  return InternPolynomial({{{InternAtom(atom)}, 1}});
}

bool DimTable::CanProveEqual(DimId lhs, DimId rhs) {
  static const GlobalFunction analyzer("sym.Analyzer");
  static const GlobalFunction can_prove_equal("sym.AnalyzerCanProveEqual");
  // The analyzer recurses without a limit, and visits a shared subexpression once per use.
  for (const Dim& dim : {std::cref(dims_[lhs]), std::cref(dims_[rhs])}) {
    if (!dim.is_read || dim.size > kMaxSizeToProve) return false;
  }
  // The analyzer throws on operands of different dtypes.
  try {
    if (analyzer_ == nullptr) analyzer_ = analyzer();
    return can_prove_equal(analyzer_, ToExpr(lhs), ToExpr(rhs)).cast<bool>();
  } catch (const tvm::ffi::Error&) {
    return false;
  }
}

}  // namespace verifier
}  // namespace tvm_fixes
