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
 * \file src/relax/op/slice_scatter.cc
 * \brief Layout rule of relax.slice_scatter: both tensors have one layout, with which the axis
 * moves.
 *
 * See follow_layout.h.
 *
 *     x: layout ACDB (NHWC), R.slice_scatter(x, y, 0, 8, 2, axis=1)
 *         =>  R.slice_scatter(x, permute_dims(y, [0, 2, 3, 1]), 0, 8, 2, axis=3), layout ACDB
 *
 * If the layout splits the axis in blocks, the original layouts are restored.
 */
#include <vector>

#include "../../ffi/registration.h"
#include "../ir/build.h"
#include "axis_attrs.h"
#include "follow_layout.h"

namespace tvm_fixes {
namespace {

AxisAttrsNode slice_scatter_attrs{"relax.attrs.SliceScatterAttrs"};

ObjectRef FollowSliceScatter(const CallView& call, const VarLayouts& var_layouts) {
  const Array<ObjectRef>& args = call.args();
  if (!slice_scatter_attrs.IsInstance(call.attrs().get())) return ObjectRef(nullptr);
  auto data = LayoutOf(args[0], var_layouts);
  auto part = LayoutOf(args[1], var_layouts);
  if (!data || !part) return ObjectRef(nullptr);
  const std::string& layout = data != InitialLayoutOf(args[0]) ? *data : *part;
  for (size_t i : {0, 1}) {
    if (!IsConvertible(args[i], layout, var_layouts)) return ObjectRef(nullptr);
  }
  auto axis = PositionOf(slice_scatter_attrs.axis(call.attrs().get()), layout);
  if (!axis) return ObjectRef(nullptr);
  std::vector<std::optional<std::string>> inputs(args.size());
  inputs[0] = inputs[1] = layout;
  return MakeInferLayoutOutput(inputs, layout, WithFields(call.attrs(), {{"axis", *axis}}));
}

TVM_FIXES_INIT_BLOCK() { RegisterLayoutRule("relax.slice_scatter", FollowSliceScatter); }

}  // namespace
}  // namespace tvm_fixes
