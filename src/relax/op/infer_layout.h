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
 * \file src/relax/op/infer_layout.h
 * \brief Helpers for FRelaxInferLayout, which ConvertLayout calls for each operator.
 *
 * ConvertLayout names the axes of a tensor A, B, C, … in their original order. The layout of a
 * value is their order after conversion: "ACDB" for an NCHW tensor kept as NHWC. A digit and a
 * lower-case letter stand for an axis split in blocks, as in "ABCD4b".
 */
#ifndef TVM_FIXES_RELAX_OP_INFER_LAYOUT_H_
#define TVM_FIXES_RELAX_OP_INFER_LAYOUT_H_

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>

#include <optional>
#include <string>
#include <vector>

#include "../ir/views.h"

namespace tvm_fixes {

/*! \brief The user's desired layouts by operator name: data, kernel and optionally out. */
using DesiredLayouts = Map<String, Array<String>>;
/*! \brief The layouts of variables decided so far: a LayoutDecision, or a nested array of them. */
using VarLayouts = Map<ObjectRef, Any>;

/*!
 * \brief Whether a fix is enabled, and the target of the scope is supported, or unknown.
 *
 * Other backends keep TVM's layouts: their passes expect them. Those for Adreno, for example,
 * choose a texture by the layout of a tensor.
 */
bool ChoosesLayouts(const char* fix_id);

/*! \brief The layout of an unconverted tensor: "ABCD" for rank 4. */
std::string InitialLayout(int64_t ndim);

/*! \brief The layout of an unconverted expression, or std::nullopt if its rank is unknown. */
std::optional<std::string> InitialLayoutOf(const ObjectRef& expr);

/*!
 * \brief The current layout of `arg`.
 * \return std::nullopt if `arg` is not a tensor of known rank, or its layout does not fit its type.
 */
std::optional<std::string> LayoutOf(const ObjectRef& arg, const VarLayouts& var_layouts);

/*! \brief Like LayoutOf, for a field of a tuple of tensors. */
std::optional<std::string> LayoutOfField(const ObjectRef& tuple, size_t index,
                                         const VarLayouts& var_layouts);

/*! \brief Whether a layout only reorders `ndim` axes and splits none. */
bool IsPermutation(const std::string& layout, int64_t ndim);

/*! \brief Whether a layout splits an axis, as "ABCD4b" and "NCHW4c" do. */
bool IsPacked(const std::string& layout);

/*! \brief One axis of a layout: "ABCD4b" has A, B, C, D, and b of extent 4. */
struct LayoutAxis {
  /*!
   * \brief For a split axis, a lower-case letter is the position within a block, a capital the
   *        block index.
   */
  char letter;
  /*! \brief The extent of a block; 0 for a capital letter. */
  int64_t factor;
  /*! \brief The original axis that contains this one. */
  size_t primal() const;
};

/*! \brief The axes of a layout of letters A, B, …, outermost first. */
std::vector<LayoutAxis> AxesOf(const std::string& layout);

/*! \brief The rank before splitting: 4 for "ABCD4b". */
size_t PrimalRank(const std::string& layout);

/*!
 * \brief The layout, in letters A, B, …, that turns axes named `from` into axes named `to`.
 *
 * ("NCHW", "NHWC") gives "ACDB", and ("NCHW", "NCHW4c") gives "ABCD4b".
 * \return std::nullopt if `from` splits an axis, or `to` neither reorders nor splits the axes of
 * `from`.
 */
std::optional<std::string> RelativeLayout(const std::string& from, const std::string& to);

/*!
 * \brief The names `names` of axes, rearranged by `layout`.
 *
 * ("NCHW", "ACDB") gives "NHWC", and ("NCHW", "ABCD4b") gives "NCHW4c".
 */
std::string ApplyLayout(const std::string& names, const std::string& layout);

/*!
 * \brief The shape in `layout` of a tensor with the original shape `shape`.
 * \return std::nullopt if an axis that is split is not known to be a multiple of its blocks.
 */
std::optional<Array<ObjectRef>> ShapeInLayout(const Array<ObjectRef>& shape,
                                              const std::string& layout);

/*!
 * \brief The position in `layout` of an original axis, which may be negative.
 * \return std::nullopt if the layout splits the axis or does not have it.
 */
std::optional<int64_t> PositionOf(int64_t axis, const std::string& layout);

/*! \brief The position of an original axis in a layout: of its blocks if the layout splits it. */
struct AxisPlace {
  int64_t position;
  /*! \brief The elements of the axis per step at the position: those of a block, or 1. */
  int64_t elements;
};

/*! \brief The place in `layout` of an original axis, which may be negative. */
std::optional<AxisPlace> PlaceOf(int64_t axis, const std::string& layout);

/*!
 * \brief The layout after an operator that replaces each axis by others.
 *
 * ("ABCD4b", {"A", "B", "", "C"}) gives "ABC4b".
 * \param axes For each original axis, the letters of the result axes that replace it.
 * \return std::nullopt if a split axis does not map to exactly one axis, or `axes` has too few
 *         entries.
 */
std::optional<std::string> RenameAxes(const std::string& layout,
                                      const std::vector<std::string>& axes);

/*!
 * \brief The layout of the last `count` axes only: for 3, "ACDB" gives "BCA".
 * \return std::nullopt if these axes are not the innermost ones.
 */
std::optional<std::string> LayoutOfLastAxes(const std::string& layout, size_t count);

/*!
 * \brief Whether ConvertLayout can convert `arg` from its current layout to `layout`.
 *
 * It cannot split an axis that is not a multiple of the blocks, or convert one packed layout to
 * another.
 */
bool IsConvertible(const ObjectRef& arg, const std::string& layout, const VarLayouts& var_layouts);

/*! \brief Like above, for a value of tensor type `type` whose current layout is `present`. */
bool IsConvertible(const ObjectRef& type, const std::string& present, const std::string& layout);

/*!
 * \brief The result of FRelaxInferLayout for an operator that maps tensors to a tensor.
 * \param inputs The required layout of each argument, std::nullopt for an unknown rank.
 * \param output The layout of the result.
 * \param attrs The attributes of the converted call.
 */
ObjectRef MakeInferLayoutOutput(const std::vector<std::optional<std::string>>& inputs,
                                const std::string& output, const ObjectRef& attrs);

/*!
 * \brief Require the first argument, or its fields, in layout `data`, give every result layout
 *        `out`, and restore the original layouts of the other arguments.
 * \param new_args Replacement arguments by position.
 */
ObjectRef FollowData(const CallView& call, const std::string& data, const std::string& out,
                     const ObjectRef& attrs, const Map<ObjectRef, ObjectRef>& new_args = {});

/*! \brief Restore the original layout of every argument. */
ObjectRef RestoreLayouts(const CallView& call);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_INFER_LAYOUT_H_
