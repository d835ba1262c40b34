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
 * \brief Layouts of operands that are broadcast to one shape.
 */
#ifndef TVM_FIXES_RELAX_OP_BROADCAST_H_
#define TVM_FIXES_RELAX_OP_BROADCAST_H_

#include <string>

#include "infer_layout.h"

namespace tvm_fixes {

/*!
 * \brief A layout for a tensor of extent 1 along axes where others have more.
 *
 * Where these are split in blocks of 4, it is in blocks of 1: "ABCD4b", "ABCD1b".
 */
std::string WithUnitBlocks(const std::string& layout, const ObjectRef& expr);

/*!
 * \brief The answer that brings all operands into the layout of one that has the result's rank.
 *
 * An operand of one element keeps its original layout, which fits any.
 * \return Null if only the original layout is possible.
 */
ObjectRef FollowOperands(const CallView& call, const VarLayouts& var_layouts);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_BROADCAST_H_
