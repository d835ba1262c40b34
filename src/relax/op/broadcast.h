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
 * \file src/relax/op/broadcast.h
 * \brief Layouts of operands that broadcast to a common shape.
 */
#ifndef TVM_FIXES_RELAX_OP_BROADCAST_H_
#define TVM_FIXES_RELAX_OP_BROADCAST_H_

#include <string>

#include "infer_layout.h"

namespace tvm_fixes {

/*!
 * \brief The layout of an operand with extents of 1 along axes that broadcast.
 *
 * Blocks of such an axis have extent 1: "ABCD4b" becomes "ABCD1b".
 */
std::string WithUnitBlocks(const std::string& layout, const ObjectRef& expr);

/*!
 * \brief Bring all operands into the layout of an operand that has the result's rank.
 *
 * A single-element operand keeps its original layout, which is compatible with any.
 * \return Null if only the original layout is possible.
 */
ObjectRef FollowOperands(const CallView& call, const VarLayouts& var_layouts);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_BROADCAST_H_
