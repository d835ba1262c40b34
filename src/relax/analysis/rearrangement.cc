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
 * \file src/relax/analysis/rearrangement.cc
 * \brief The effect of a sequence of reshapes, permutes and layout transforms on element order.
 */
#include "rearrangement.h"

#include <algorithm>
#include <utility>

#include "../../ffi/registration.h"
#include "../ir/build.h"
#include "../op/reshape.h"

namespace tvm_fixes {

std::optional<std::vector<CommonFactor>> CommonFactors(const Array<ObjectRef>& in,
                                                       const Array<ObjectRef>& out) {
  auto groups = GroupAxes(in, out);
  if (!groups) return std::nullopt;
  std::vector<CommonFactor> factors;
  for (const AxisGroup& group : *groups) {
    if (group.in.empty()) continue;
    if (group.out.size() == 1) {
      for (size_t i : group.in) factors.push_back({i, group.out[0], in[i]});
      continue;
    }
    if (group.in.size() == 1) {
      for (size_t j : group.out) {
        if (!IsOne(out[j])) factors.push_back({group.in[0], j, out[j]});
      }
      continue;
    }
    // Many-to-many: all extents are static here, and both sides have the same product.
    int64_t in_left = 1;
    int64_t out_left = 1;
    for (auto i = group.in.begin(), j = group.out.begin(); i != group.in.end();) {
      if (in_left == 1) in_left = *AsInt(in[*i]);
      if (out_left == 1) out_left = *AsInt(out[*j]);
      const int64_t factor = std::min(in_left, out_left);
      if (factor <= 0 || in_left % factor != 0 || out_left % factor != 0) return std::nullopt;
      if (factor != 1) factors.push_back({*i, *j, MakeIntImm("int64", factor)});
      in_left /= factor;
      out_left /= factor;
      if (in_left == 1) ++i;
      if (out_left == 1) ++j;
    }
  }
  return factors;
}

Rearrangement::Rearrangement(const ObjectRef& source) : source_(source), shape_(*ShapeOf(source)) {
  for (size_t axis = 0; axis < shape_.size(); ++axis) {
    if (IsOne(shape_[axis])) continue;
    order_.push_back(atoms_.size());
    atoms_.push_back({axis, shape_[axis]});
  }
}

bool Rearrangement::IsIdentity() const { return std::is_sorted(order_.begin(), order_.end()); }

Array<ObjectRef> Rearrangement::Extents() const {
  Array<ObjectRef> extents;
  for (size_t atom : order_) extents.push_back(atoms_[atom].extent);
  return extents;
}

std::optional<std::vector<Rearrangement::Factor>> Rearrangement::FactorAtoms(
    const Array<ObjectRef>& shape) const {
  auto common = CommonFactors(Extents(), shape);
  if (!common) return std::nullopt;
  std::vector<Factor> factors;
  for (const CommonFactor& factor : *common) {
    factors.push_back({order_[factor.in], factor.out, factor.extent});
  }
  return factors;
}

bool Rearrangement::Permute(const AxisPermutation& permutation, const Array<ObjectRef>& result) {
  auto factors = FactorAtoms(permutation.shape);
  if (!factors) return false;
  std::vector<std::vector<ObjectRef>> parts(atoms_.size());
  // By axis, the index of the atom and of the part within it.
  std::vector<std::vector<std::pair<size_t, size_t>>> factors_of(permutation.shape.size());
  for (const Factor& factor : *factors) {
    factors_of[factor.axis].emplace_back(factor.atom, parts[factor.atom].size());
    parts[factor.atom].push_back(factor.extent);
  }
  Rearrangement next(source_);
  next.num_permutes_ = num_permutes_ + 1;
  next.atoms_.clear();
  next.order_.clear();
  std::vector<size_t> first;
  for (size_t atom = 0; atom < atoms_.size(); ++atom) {
    first.push_back(next.atoms_.size());
    for (const ObjectRef& extent : parts[atom]) next.atoms_.push_back({atoms_[atom].axis, extent});
  }
  for (int64_t axis : permutation.axes) {
    for (const auto& [atom, part] : factors_of[axis]) next.order_.push_back(first[atom] + part);
  }
  if (!GroupAxes(next.Extents(), result)) return false;
  *this = std::move(next);
  return true;
}

Rearrangement::AtomsByAxis Rearrangement::AtomsOfSource() const {
  AtomsByAxis atoms(shape_.size());
  for (size_t atom = 0; atom < atoms_.size(); ++atom) atoms[atoms_[atom].axis].push_back(atom);
  return atoms;
}

std::optional<Rearrangement::AtomsByAxis> Rearrangement::AtomsOfResult(
    const Array<ObjectRef>& shape) const {
  auto factors = FactorAtoms(shape);
  if (!factors || factors->size() != atoms_.size()) return std::nullopt;
  AtomsByAxis atoms(shape.size());
  for (const Factor& factor : *factors) atoms[factor.axis].push_back(factor.atom);
  return atoms;
}

AxisPermutation Rearrangement::Join(const Array<ObjectRef>& result) const {
  static const GlobalFunction multiply("prim._OpMul");
  std::vector<size_t> place(atoms_.size());
  for (size_t i = 0; i < order_.size(); ++i) place[order_[i]] = i;
  // Adjacent atoms form one axis, unless they come from two axes of the source.
  const auto starts_axis = [&](size_t atom) {
    return atom == 0 || atoms_[atom].axis != atoms_[atom - 1].axis ||
           place[atom] != place[atom - 1] + 1;
  };
  AxisPermutation joined;
  std::vector<int64_t> ones;
  std::vector<int64_t> axis_of(atoms_.size());
  size_t atom = 0;
  for (size_t axis = 0; axis < shape_.size(); ++axis) {
    if (IsOne(shape_[axis])) {
      ones.push_back(static_cast<int64_t>(joined.shape.size()));
      joined.shape.push_back(shape_[axis]);
    }
    const size_t first = atom;
    while (atom < atoms_.size() && atoms_[atom].axis == axis) {
      axis_of[atom] = static_cast<int64_t>(joined.shape.size());
      ObjectRef extent = atoms_[atom].extent;
      for (++atom; atom < atoms_.size() && !starts_axis(atom); ++atom) {
        extent = multiply(extent, atoms_[atom].extent, nullptr).cast<ObjectRef>();
      }
      joined.shape.push_back(extent);
    }
    if (atom > first && joined.shape.size() == static_cast<size_t>(axis_of[first]) + 1) {
      joined.shape.Set(axis_of[first], shape_[axis]);
    }
  }
  std::vector<int64_t> others;
  for (size_t moved : order_) {
    if (starts_axis(moved)) others.push_back(axis_of[moved]);
  }
  // Axes of extent 1 can go anywhere.
  auto one = ones.begin();
  auto other = others.begin();
  for (const ObjectRef& dim : result) {
    if (IsOne(dim)) {
      if (one != ones.end()) joined.axes.push_back(*one++);
    } else if (other != others.end()) {
      joined.axes.push_back(*other++);
    }
  }
  joined.axes.insert(joined.axes.end(), one, ones.end());
  joined.axes.insert(joined.axes.end(), other, others.end());
  return joined;
}

}  // namespace tvm_fixes
