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
 * \file src/relax/op/broadcast_guard.cc
 * \brief Layout guards of operators that broadcast their operands.
 *
 * See layout_guards.h. TVM's rule raises, or crashes,
 *
 * - for a number, which is not a tensor;
 * - for an operand that has extent 1, or no axis, where the other operand's layout splits the axis;
 * - for two operands that are split in different ways.
 */
#include <algorithm>

#include "broadcast.h"
#include "layout_guards.h"

namespace tvm_fixes {
namespace {

ObjectRef Broadcast(const CallView& call, const VarLayouts& var_layouts) {
  const auto is_plain = [&](const ObjectRef& arg) {
    auto layout = LayoutOf(arg, var_layouts);
    return layout && !IsPacked(*layout);
  };
  if (std::all_of(call.args().begin(), call.args().end(), is_plain)) return ObjectRef(nullptr);
  const ObjectRef answer = FollowOperands(call, var_layouts);
  return answer.defined() ? answer : RestoreLayouts(call);
}

LayoutGuard broadcast_guards[] = {
    {"relax.add", Broadcast},          {"relax.atan2", Broadcast},
    {"relax.bitwise_and", Broadcast},  {"relax.bitwise_or", Broadcast},
    {"relax.bitwise_xor", Broadcast},  {"relax.divide", Broadcast},
    {"relax.equal", Broadcast},        {"relax.ewise_fma", Broadcast},
    {"relax.floor_divide", Broadcast}, {"relax.floor_mod", Broadcast},
    {"relax.greater", Broadcast},      {"relax.greater_equal", Broadcast},
    {"relax.left_shift", Broadcast},   {"relax.less", Broadcast},
    {"relax.less_equal", Broadcast},   {"relax.log_add_exp", Broadcast},
    {"relax.logical_and", Broadcast},  {"relax.logical_or", Broadcast},
    {"relax.logical_xor", Broadcast},  {"relax.maximum", Broadcast},
    {"relax.minimum", Broadcast},      {"relax.mod", Broadcast},
    {"relax.multiply", Broadcast},     {"relax.not_equal", Broadcast},
    {"relax.power", Broadcast},        {"relax.right_shift", Broadcast},
    {"relax.subtract", Broadcast},
};

}  // namespace
}  // namespace tvm_fixes
