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
 * \file src/relax/analysis/rearrangement.h
 * \brief The effect of a sequence of reshapes, permutes and layout transforms on element order.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_REARRANGEMENT_H_
#define TVM_FIXES_RELAX_ANALYSIS_REARRANGEMENT_H_

#include <optional>
#include <vector>

#include "../ir/views.h"
#include "axis_permutation.h"

namespace tvm_fixes {

/*! \brief A common factor of an axis of one shape and an axis of another. */
struct CommonFactor {
  size_t in;
  size_t out;
  ObjectRef extent;
};

/*!
 * \brief The common factors of the axes of two shapes with the same number of elements, in order.
 * \param in Extents other than 1.
 * \return std::nullopt if there is no common factorization, or symbolic extents leave it undecided.
 */
std::optional<std::vector<CommonFactor>> CommonFactors(const Array<ObjectRef>& in,
                                                       const Array<ObjectRef>& out);

/*!
 * \brief The order of the elements of a value, in terms of an earlier one, its source.
 *
 * The axes of the source are split into atoms: every axis of every value in the sequence is a
 * product of them. A reshape keeps the order of the atoms; a permute changes only their order. A
 * symbolic extent is an atom, or a product of atoms that some shape in the sequence names.
 */
class Rearrangement {
 public:
  /*! \brief The order of the elements of `source` itself, whose shape must be known. */
  explicit Rearrangement(const ObjectRef& source);

  /*!
   * \brief Append a permute.
   * \return Whether the permuted axes are products of atoms and the result can be viewed in shape
   *         `result`. On false, this object is unchanged.
   */
  bool Permute(const AxisPermutation& permutation, const Array<ObjectRef>& result);

  /*! \brief For each axis of a shape, its atoms, outermost first. */
  using AtomsByAxis = std::vector<std::vector<size_t>>;
  AtomsByAxis AtomsOfSource() const;
  /*!
   * \brief The atoms of each axis of the value viewed in `shape`.
   * \return std::nullopt if an atom would have to be split.
   */
  std::optional<AtomsByAxis> AtomsOfResult(const Array<ObjectRef>& shape) const;
  const ObjectRef& extent(size_t atom) const { return atoms_[atom].extent; }

  const ObjectRef& source() const { return source_; }
  /*! \brief The number of permutes appended. */
  size_t num_permutes() const { return num_permutes_; }
  /*! \brief Whether the element order is that of the source. */
  bool IsIdentity() const;

  /*!
   * \brief All permutes as a single permute of the source, with as few axes as possible.
   * \param result The preferred shape of the permuted axes, used where possible.
   */
  AxisPermutation Join(const Array<ObjectRef>& result) const;

 private:
  /*! \brief A factor, other than 1, of an axis of the source. */
  struct Atom {
    size_t axis;
    ObjectRef extent;
  };
  /*! \brief A common factor of an atom and an axis of a shape. */
  struct Factor {
    size_t atom;
    size_t axis;
    ObjectRef extent;
  };

  /*! \brief The extents of the atoms, in the order of the value. */
  Array<ObjectRef> Extents() const;

  /*!
   * \brief The common factors of atoms and axes of `shape`, in order, or std::nullopt if they
   *        have no common factors.
   */
  std::optional<std::vector<Factor>> FactorAtoms(const Array<ObjectRef>& shape) const;

  ObjectRef source_;
  Array<ObjectRef> shape_;
  /*! \brief In the order of the source. */
  std::vector<Atom> atoms_;
  /*! \brief The atoms by index, in the order of the value. */
  std::vector<size_t> order_;
  size_t num_permutes_ = 0;
};

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_REARRANGEMENT_H_
