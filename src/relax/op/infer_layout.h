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
 * \brief The layout in which `arg` lies at the moment.
 * \return Nothing if `arg` is no tensor of a known rank.
 */
std::optional<std::string> LayoutOf(const ObjectRef& arg, const VarLayouts& var_layouts);

/*! \brief Whether a layout only reorders `ndim` axes, that is, splits none. */
bool IsPermutation(const std::string& layout, int64_t ndim);

/*!
 * \brief The layout, in letters A, B, …, that turns axes named `from` into axes named `to`.
 * \return Nothing if `to` is no reordering of `from`. ("NCHW", "NHWC") gives "ACDB".
 */
std::optional<std::string> RelativeLayout(const std::string& from, const std::string& to);

/*! \brief Axes named `names`, after they were put in `layout`: ("NCHW", "ACDB") gives "NHWC". */
std::string ApplyLayout(const std::string& names, const std::string& layout);

/*!
 * \brief The answer of an operator.
 * \param inputs The layout in which each tensor argument is wanted, nothing for an unknown rank.
 * \param outputs The layout of each result, likewise.
 * \param attrs The attributes of the converted call.
 * \param new_args Arguments to replace, by position.
 */
ObjectRef MakeInferLayoutOutput(const std::vector<std::optional<std::string>>& inputs,
                                const std::vector<std::optional<std::string>>& outputs,
                                const ObjectRef& attrs,
                                const Map<ObjectRef, ObjectRef>& new_args = {});

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_INFER_LAYOUT_H_
