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
 * \file src/relax/op/follow_layout.h
 * \brief Layout rules of operators for which TVM has none.
 *
 * Trigger: ConvertLayout of a model with one of them between two convolutions. Mechanism: an
 * operator without FRelaxInferLayout gets its arguments in their original layout.
 *
 *     x: layout ACDB (NHWC), R.nn.pad(x, [0, 0, 0, 0, 1, 1, 2, 2])
 *         =>  R.nn.pad(x, [0, 0, 1, 1, 2, 2, 0, 0]), layout ACDB
 *
 * Removal: delete the files that include this one once the probe passes on the oldest TVM that is
 * supported; reshape.cc and reverse_sequence.cc have their own probes.
 */
#ifndef TVM_FIXES_RELAX_OP_FOLLOW_LAYOUT_H_
#define TVM_FIXES_RELAX_OP_FOLLOW_LAYOUT_H_

#include <string>

#include "infer_layout.h"

namespace tvm_fixes {

/*!
 * \brief Infers the layouts of a call; null to keep its arguments in their original layouts.
 *
 * Called only if an argument is in another layout and all ranks are known.
 */
using LayoutRule = ObjectRef (*)(const CallView& call, const VarLayouts& var_layouts);

/*! \brief Like LayoutRule, for an operator that depends only on the layout of its first argument.
 */
using DataLayoutRule = ObjectRef (*)(const CallView& call, const std::string& layout);

constexpr const char* kOperatorsInferLayout = "operators-infer-layout";

/*! \brief Register a rule that is used while the fix `fix_id` is enabled. */
void RegisterLayoutRule(const char* op_name, LayoutRule rule,
                        const char* fix_id = kOperatorsInferLayout);
void RegisterLayoutRule(const char* op_name, DataLayoutRule rule,
                        const char* fix_id = kOperatorsInferLayout);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_FOLLOW_LAYOUT_H_
