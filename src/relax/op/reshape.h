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
 * \file src/relax/op/reshape.h
 * \brief The mapping of axes by a relax.reshape.
 */
#ifndef TVM_FIXES_RELAX_OP_RESHAPE_H_
#define TVM_FIXES_RELAX_OP_RESHAPE_H_

#include <optional>
#include <vector>

#include "../ir/views.h"

namespace tvm_fixes {

/*! \brief Adjacent axes of the argument that become adjacent axes of the result. */
struct AxisGroup {
  std::vector<size_t> in;
  std::vector<size_t> out;
};

/*!
 * \brief Split a reshape into the smallest groups of axes that do not exchange elements.
 *
 * An argument axis of extent 1 that the result drops belongs to no group.
 * \return std::nullopt if symbolic extents are regrouped, unless one extent is the product of
 *         several.
 */
std::optional<std::vector<AxisGroup>> GroupAxes(const Array<ObjectRef>& in,
                                                const Array<ObjectRef>& out);

/*! \brief The group with `axis` in its member `axes` (one side of the reshape), or the end. */
std::vector<AxisGroup>::const_iterator FindGroup(const std::vector<AxisGroup>& groups,
                                                 std::vector<size_t> AxisGroup::* axes,
                                                 size_t axis);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_RESHAPE_H_
