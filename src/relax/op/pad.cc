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
 * \file src/relax/op/pad.cc
 * \brief Layout rule of relax.nn.pad: the widths move with their axes.
 *
 * See follow_layout.h.
 */
#include "../../ffi/registration.h"
#include "../ir/build.h"
#include "follow_layout.h"
#include "pad_attrs.h"

namespace tvm_fixes {
namespace {

ObjectRef FollowPad(const CallView& call, const std::string& layout) {
  if (!pad_attrs.IsInstance(call.attrs().get())) return ObjectRef(nullptr);
  const Array<int64_t>& given = pad_attrs.pad_width(call.attrs().get());
  Array<int64_t> moved;
  for (const LayoutAxis& axis : AxesOf(layout)) {
    const size_t primal = axis.primal();
    if (2 * primal + 1 >= given.size()) return ObjectRef(nullptr);
    const bool is_padded = given[2 * primal] != 0 || given[2 * primal + 1] != 0;
    if (is_padded && !PositionOf(primal, layout)) return ObjectRef(nullptr);
    moved.push_back(given[2 * primal]);
    moved.push_back(given[2 * primal + 1]);
  }
  return FollowData(call, layout, layout, WithFields(call.attrs(), {{"pad_width", moved}}));
}

TVM_FIXES_INIT_BLOCK() { RegisterLayoutRule("relax.nn.pad", FollowPad); }

}  // namespace
}  // namespace tvm_fixes
