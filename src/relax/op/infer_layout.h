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
 * \brief What ConvertLayout asks an operator, and the answer.
 *
 * ConvertLayout names the axes of a tensor A, B, C, … in their original order. The layout of a
 * value is the order in which they lie after conversion: "ACDB" for an NCHW tensor kept as NHWC.
 * A digit and a lower-case letter stand for an axis split in blocks, as in "ABCD4b".
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

/*! \brief The layouts that the user asks for, by operator name: data, kernel and perhaps out. */
using DesiredLayouts = Map<String, Array<String>>;
/*! \brief The layouts of the variables so far: a LayoutDecision, or a nested array of them. */
using VarLayouts = Map<ObjectRef, Any>;

/*! \brief The layout of a tensor that was not converted: "ABCD" for rank 4. */
std::string InitialLayout(int64_t ndim);

/*! \brief The layout of an expression that was not converted, nothing if its rank is unknown. */
std::optional<std::string> InitialLayoutOf(const ObjectRef& expr);

/*!
 * \brief The current layout of `arg`.
 * \return Nothing if `arg` is not a tensor of known rank, or its layout does not fit its type.
 */
std::optional<std::string> LayoutOf(const ObjectRef& arg, const VarLayouts& var_layouts);

/*! \brief As LayoutOf, for a field of a tuple of tensors. */
std::optional<std::string> LayoutOfField(const ObjectRef& tuple, size_t index,
                                         const VarLayouts& var_layouts);

/*! \brief Whether a layout only reorders `ndim` axes, that is, splits none. */
bool IsPermutation(const std::string& layout, int64_t ndim);

/*! \brief Whether a layout splits an axis: "ABCD4b" and, of names, "NCHW4c". */
bool IsPacked(const std::string& layout);

/*! \brief One axis as a value lies in memory: "ABCD4b" has A, B, C, D and b of extent 4. */
struct LayoutAxis {
  /*! \brief Of an axis that is split, the lower-case letter is the block, the other the blocks. */
  char letter;
  /*! \brief The extent of a block; 0 for a capital letter. */
  int64_t factor;
  /*! \brief The axis of the original order that this one is, or is a part of. */
  size_t primal() const;
};

/*! \brief The axes of a layout of letters A, B, …, outermost first. */
std::vector<LayoutAxis> AxesOf(const std::string& layout);

/*! \brief The rank of the original order: that of "ABCD4b" is 4. */
size_t PrimalRank(const std::string& layout);

/*!
 * \brief The layout, in letters A, B, …, that turns axes named `from` into axes named `to`.
 *
 * ("NCHW", "NHWC") gives "ACDB", and ("NCHW", "NCHW4c") gives "ABCD4b".
 * \return Nothing if `from` splits an axis, or `to` neither reorders nor splits the axes of `from`.
 */
std::optional<std::string> RelativeLayout(const std::string& from, const std::string& to);

/*!
 * \brief Axes named `names`, after they were put in `layout`.
 *
 * ("NCHW", "ACDB") gives "NHWC", and ("NCHW", "ABCD4b") gives "NCHW4c".
 */
std::string ApplyLayout(const std::string& names, const std::string& layout);

/*!
 * \brief The shape that a tensor of the original shape `shape` has in `layout`.
 * \return Nothing if an axis that is split is not known to be a multiple of its blocks.
 */
std::optional<Array<ObjectRef>> ShapeInLayout(const Array<ObjectRef>& shape,
                                              const std::string& layout);

/*!
 * \brief Where an axis of the original order, counted from the end if negative, lies in memory.
 * \return Nothing if the layout splits the axis or does not have it.
 */
std::optional<int64_t> PositionOf(int64_t axis, const std::string& layout);

/*!
 * \brief A layout after an operator turned each axis into others.
 *
 * ("ABCD4b", {"A", "B", "", "C"}) gives "ABC4b".
 * \param axes For each original axis, the axes of the result that it becomes, in letters.
 * \return Nothing if an axis that is split becomes anything but one axis, or `axes` are too few.
 */
std::optional<std::string> RenameAxes(const std::string& layout,
                                      const std::vector<std::string>& axes);

/*!
 * \brief The layout of only the last `count` axes: for 3, "ACDB" gives "BCA".
 * \return Nothing if these are not the last in memory.
 */
std::optional<std::string> LayoutOfLastAxes(const std::string& layout, size_t count);

/*!
 * \brief Whether ConvertLayout can bring `arg` from the layout in which it lies into `layout`.
 *
 * It cannot split an axis that its blocks do not divide, and it cannot turn one way of splitting
 * axes into another.
 */
bool IsConvertible(const ObjectRef& arg, const std::string& layout, const VarLayouts& var_layouts);

/*! \brief As above, for a value of tensor type `type` that lies in the layout `present`. */
bool IsConvertible(const ObjectRef& type, const std::string& present, const std::string& layout);

/*!
 * \brief The answer of an operator of tensors that gives a tensor.
 * \param inputs The layout in which each argument is wanted, nothing for an unknown rank.
 * \param output The layout of the result.
 * \param attrs The attributes of the converted call.
 */
ObjectRef MakeInferLayoutOutput(const std::vector<std::optional<std::string>>& inputs,
                                const std::string& output, const ObjectRef& attrs);

/*!
 * \brief The answer of an operator that takes its first argument, or the fields of it, in `data`,
 *        and gives every result in `out`. Its other arguments are brought back into their original
 *        layouts.
 * \param new_args Arguments to replace, by position.
 */
ObjectRef FollowData(const CallView& call, const std::string& data, const std::string& out,
                     const ObjectRef& attrs, const Map<ObjectRef, ObjectRef>& new_args = {});

/*! \brief The answer that brings every argument back into its original layout. */
ObjectRef RestoreLayouts(const CallView& call);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_INFER_LAYOUT_H_
