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
 * \file src/relax/op/broadcast.cc
 * \brief Layout rules of operators that broadcast: relax.where and relax.broadcast_to.
 *
 * See follow_layout.h.
 */
#include "broadcast.h"

#include <algorithm>
#include <vector>

#include "../../ffi/registration.h"
#include "../ir/build.h"
#include "follow_layout.h"

namespace tvm_fixes {

std::string WithUnitBlocks(const std::string& layout, const ObjectRef& expr) {
  auto shape = ShapeOf(expr);
  if (!shape || shape->size() != PrimalRank(layout)) return layout;
  std::string adapted;
  for (const LayoutAxis& axis : AxesOf(layout)) {
    const bool is_unit = IsOne((*shape)[axis.primal()]);
    if (axis.factor > 0) adapted += std::to_string(is_unit ? 1 : axis.factor);
    adapted += axis.letter;
  }
  return adapted;
}

namespace {

/*! \brief Whether a layout splits an axis of the result in blocks of 1 only if its extent is 1. */
bool HasBlocksOf(const std::string& layout, const ObjectRef& result) {
  auto shape = ShapeOf(result);
  const std::vector<LayoutAxis> axes = AxesOf(layout);
  return std::none_of(axes.begin(), axes.end(), [&](const LayoutAxis& axis) {
    return axis.factor == 1 && !(shape && IsOne((*shape)[axis.primal()]));
  });
}

/*!
 * \brief The operand layouts that broadcast to `layout`, or std::nullopt if an operand has none.
 */
std::optional<std::vector<std::optional<std::string>>> LayoutsOfOperands(
    const CallView& call, const std::string& layout, const VarLayouts& var_layouts) {
  std::vector<std::optional<std::string>> operands;
  for (const ObjectRef& arg : call.args()) {
    auto initial = InitialLayoutOf(arg);
    if (!initial || initial->empty() || IsSingleElement(arg)) {
      operands.push_back(initial);
      continue;
    }
    auto last_axes = LayoutOfLastAxes(layout, initial->size());
    if (!last_axes) return std::nullopt;
    operands.push_back(WithUnitBlocks(*last_axes, arg));
    if (!IsConvertible(arg, *operands.back(), var_layouts)) return std::nullopt;
  }
  return operands;
}

}  // namespace

ObjectRef FollowOperands(const CallView& call, const VarLayouts& var_layouts) {
  const auto initial = InitialLayoutOf(call.ref());
  if (!initial) return ObjectRef(nullptr);
  std::vector<ObjectRef> args(call.args().begin(), call.args().end());
  // Prefer packed layouts: they were requested for a convolution, others may not have been.
  std::stable_partition(args.begin(), args.end(), [&](const ObjectRef& arg) {
    auto layout = LayoutOf(arg, var_layouts);
    return layout && IsPacked(*layout);
  });
  for (const ObjectRef& arg : args) {
    auto layout = LayoutOf(arg, var_layouts);
    // An operand of lower rank does not determine where the leading axes go.
    if (InitialLayoutOf(arg) != initial || IsSingleElement(arg)) continue;
    if (!layout || layout == initial || !HasBlocksOf(*layout, call.ref())) continue;
    if (auto operands = LayoutsOfOperands(call, *layout, var_layouts)) {
      return MakeInferLayoutOutput(*operands, *layout, call.attrs());
    }
  }
  return ObjectRef(nullptr);
}

namespace {

ObjectRef FollowBroadcast(const CallView& call, const std::string& layout) {
  auto in = InitialLayoutOf(call.args()[0]);
  auto out_shape = ShapeOf(call.ref());
  if (!in || !out_shape || out_shape->size() < in->size()) return ObjectRef(nullptr);
  const size_t leading = out_shape->size() - in->size();
  std::vector<std::string> axes;
  for (size_t axis = 0; axis < in->size(); ++axis) {
    axes.emplace_back(1, static_cast<char>('A' + leading + axis));
  }
  auto renamed = RenameAxes(layout, axes);
  if (!renamed) return ObjectRef(nullptr);
  const std::string out_layout = InitialLayout(leading) + *renamed;
  auto new_shape = ShapeInLayout(*out_shape, out_layout);
  if (!new_shape) return ObjectRef(nullptr);
  return FollowData(call, layout, out_layout, call.attrs(),
                    {{MakeIntImm("int64", 1), MakeShapeExpr(*new_shape)}});
}

TVM_FIXES_INIT_BLOCK() {
  RegisterLayoutRule("relax.where", FollowOperands);
  RegisterLayoutRule("relax.broadcast_to", FollowBroadcast);
}

}  // namespace
}  // namespace tvm_fixes
