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
 * \file src/relax/analysis/axis_permutation.cc
 * \brief Converts permute_dims and layout_transform to axis permutations.
 */
#include "axis_permutation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "../../ffi/tir_nodes.h"
#include "../ir/build.h"
#include "../op/permute_dims.h"

namespace tvm_fixes {
namespace {

struct LayoutTransformAttrsNode : NodeLayout {
  LayoutTransformAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.LayoutTransformAttrs"}) {}
  Field<ObjectRef> index_map{this, {"index_map"}};
};

struct IndexMapNode : NodeLayout {
  IndexMapNode() : NodeLayout(Kind::kOther, {"tirx.IndexMap"}) {}
  Field<Array<ObjectRef>> initial_indices{this, {"initial_indices"}};
  Field<Array<ObjectRef>> final_indices{this, {"final_indices"}};
};

LayoutTransformAttrsNode layout_transform_attrs;
IndexMapNode index_map;

/*! \brief The digit `index // lower % extent` of the index of an axis, times `scale`. */
struct Digit {
  size_t axis;
  int64_t lower;
  ObjectRef extent;
  int64_t scale = 1;
};

using Digits = std::vector<Digit>;

/*!
 * \brief The product of two positive factors, or std::nullopt for other factors and on overflow.
 */
std::optional<int64_t> Multiply(int64_t lhs, int64_t rhs) {
  if (lhs <= 0 || rhs <= 0 || lhs > std::numeric_limits<int64_t>::max() / rhs) return std::nullopt;
  return lhs * rhs;
}

/*! \brief Whether the digits, innermost last, cover a range from 0 without gaps. */
bool IsDense(const Digits& digits) {
  std::optional<int64_t> scale = 1;
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    // Outside a symbolic extent, the scale is unknown.
    if (!scale || digit->scale != *scale) return false;
    auto extent = AsInt(digit->extent);
    scale = extent ? Multiply(*scale, *extent) : std::nullopt;
  }
  return true;
}

/*! \brief Decomposes the final indices of an index map into digits of its initial indices. */
class IndexReader {
 public:
  IndexReader(const Array<ObjectRef>& indices, const Array<ObjectRef>& shape)
      : indices_(indices), shape_(shape) {}

  /*! \brief The digits of an index, outermost first, or std::nullopt if they leave gaps. */
  std::optional<Digits> ReadDense(const ObjectRef& index) const {
    auto digits = Read(index);
    if (!digits) return std::nullopt;
    std::stable_sort(digits->begin(), digits->end(),
                     [](const Digit& lhs, const Digit& rhs) { return lhs.scale > rhs.scale; });
    return IsDense(*digits) ? digits : std::nullopt;
  }

 private:
  std::optional<Digits> Read(const ObjectRef& index) const {
    for (size_t axis = 0; axis < indices_.size(); ++axis) {
      if (!index.same_as(indices_[axis])) continue;
      return IsOne(shape_[axis]) ? Digits{} : Digits{{axis, 1, shape_[axis]}};
    }
    if (AsInt(index) == 0) return Digits{};
    const Object* node = index.get();
    if (tir_nodes.add.IsInstance(node))
      return ReadSum(tir_nodes.add.a(node), tir_nodes.add.b(node));
    if (tir_nodes.mul.IsInstance(node)) {
      const ObjectRef& a = tir_nodes.mul.a(node);
      const ObjectRef& b = tir_nodes.mul.b(node);
      return AsInt(a) ? ReadScaled(b, *AsInt(a)) : ReadScaled(a, AsInt(b).value_or(0));
    }
    const bool divides = tir_nodes.floordiv.IsInstance(node);
    if (!divides && !tir_nodes.floormod.IsInstance(node)) return std::nullopt;
    const BinaryOpNode& operation = divides ? tir_nodes.floordiv : tir_nodes.floormod;
    auto dividend = ReadDense(operation.a(node));
    auto divisor = AsInt(operation.b(node));
    if (!dividend || !divisor || *divisor <= 0) return std::nullopt;
    return divides ? Quotient(*dividend, *divisor) : Remainder(*dividend, *divisor);
  }

  std::optional<Digits> ReadSum(const ObjectRef& a, const ObjectRef& b) const {
    auto sum = Read(a);
    auto other = Read(b);
    if (!sum || !other) return std::nullopt;
    sum->insert(sum->end(), other->begin(), other->end());
    return sum;
  }

  std::optional<Digits> ReadScaled(const ObjectRef& index, int64_t factor) const {
    auto digits = Read(index);
    if (!digits) return std::nullopt;
    for (Digit& digit : *digits) {
      auto scale = Multiply(digit.scale, factor);
      if (!scale) return std::nullopt;
      digit.scale = *scale;
    }
    return digits;
  }

  /*!
   * \brief The digits of scale `divisor` and above, or std::nullopt if `divisor` cannot split a
   *        digit.
   */
  static std::optional<Digits> Quotient(const Digits& digits, int64_t divisor) {
    Digits quotient;
    for (Digit digit : digits) {
      if (digit.scale < divisor) {
        auto extent = AsInt(digit.extent);
        // The digit, or its inner part, is below the divisor.
        if (extent && *extent <= divisor / digit.scale) continue;
        const int64_t inner = divisor / digit.scale;
        if (!extent || divisor % digit.scale != 0 || *extent % inner != 0) return std::nullopt;
        digit = {digit.axis, digit.lower * inner, MakeIntImm("int64", *extent / inner), divisor};
      } else if (digit.scale % divisor != 0) {
        return std::nullopt;
      }
      digit.scale /= divisor;
      quotient.push_back(digit);
    }
    return quotient;
  }

  /*! \brief The digits below the scale `divisor`. */
  static std::optional<Digits> Remainder(const Digits& digits, int64_t divisor) {
    Digits remainder;
    for (Digit digit : digits) {
      if (digit.scale >= divisor) {
        if (digit.scale % divisor != 0) return std::nullopt;
        continue;
      }
      auto extent = AsInt(digit.extent);
      const int64_t inner = divisor / digit.scale;
      if (!extent || *extent > inner) {
        if (!extent || divisor % digit.scale != 0 || *extent % inner != 0) return std::nullopt;
        digit.extent = MakeIntImm("int64", inner);
      }
      remainder.push_back(digit);
    }
    return remainder;
  }

  const Array<ObjectRef>& indices_;
  const Array<ObjectRef>& shape_;
};

/*! \brief Whether the digits, outermost first, make up exactly an axis of extent `dim`. */
bool CoversAxis(const Digits& digits, const ObjectRef& dim) {
  if (digits.empty()) return IsOne(dim);
  if (digits.size() == 1 && digits[0].lower == 1) return StructuralEqual(digits[0].extent, dim);
  std::optional<int64_t> lower = 1;
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    auto extent = AsInt(digit->extent);
    if (!lower || digit->lower != *lower || !extent) return false;
    lower = Multiply(*lower, *extent);
  }
  return lower && lower == AsInt(dim);
}

std::optional<AxisPermutation> PermutationOf(const Array<ObjectRef>& indices,
                                             const Array<ObjectRef>& result,
                                             const Array<ObjectRef>& shape) {
  if (indices.size() != shape.size()) return std::nullopt;
  const IndexReader reader(indices, shape);
  Digits digits;
  for (const ObjectRef& index : result) {
    auto read = reader.ReadDense(index);
    if (!read) return std::nullopt;
    digits.insert(digits.end(), read->begin(), read->end());
  }
  AxisPermutation permutation;
  permutation.axes.resize(digits.size());
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    std::vector<std::pair<int64_t, size_t>> places;
    for (size_t place = 0; place < digits.size(); ++place) {
      if (digits[place].axis == axis) places.emplace_back(digits[place].lower, place);
    }
    std::sort(places.rbegin(), places.rend());
    Digits split;
    for (const auto& [lower, place] : places) {
      split.push_back(digits[place]);
      permutation.axes[place] = static_cast<int64_t>(permutation.shape.size());
      permutation.shape.push_back(digits[place].extent);
    }
    if (!CoversAxis(split, shape[axis])) return std::nullopt;
  }
  return permutation;
}

}  // namespace

std::optional<AxisPermutation> AsAxisPermutation(const CallView& call) {
  if (call.args().empty()) return std::nullopt;
  auto shape = ShapeOf(call.args()[0]);
  if (!shape) return std::nullopt;
  if (auto axes = PermutedAxes(call)) {
    if (axes->size() != shape->size()) return std::nullopt;
    return AxisPermutation{*shape, *axes};
  }
  const Object* attrs = call.attrs().get();
  if (!call.IsOp("relax.layout_transform") || !layout_transform_attrs.IsInstance(attrs)) {
    return std::nullopt;
  }
  const ObjectRef& map = layout_transform_attrs.index_map(attrs);
  if (!index_map.IsInstance(map.get())) return std::nullopt;
  return PermutationOf(index_map.initial_indices(map.get()), index_map.final_indices(map.get()),
                       *shape);
}

}  // namespace tvm_fixes
