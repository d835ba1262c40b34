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
 * \file src/relax/analysis/verifier/operators/pad.cc
 * \brief Obligations of pad.
 */
#include <algorithm>

#include "../../../op/pad_attrs.h"
#include "obligations.h"

namespace tvm_fixes {
namespace verifier {

namespace {

void Pad(Obligations* obligations) {
  const TypeInfo* data = obligations->Tensor(0);
  if (data == nullptr) return;
  const Object* attrs = obligations->attrs();
  const Array<int64_t>& widths = pad_attrs.pad_width(attrs);
  if (static_cast<int64_t>(widths.size()) != 2 * static_cast<int64_t>(data->ndim)) {
    return obligations->Fail(-1, "pad_width: expected " + std::to_string(2 * data->ndim) +
                                     " values (2 for each axis of argument 0), got " +
                                     std::to_string(widths.size()));
  }
  // TVM's inference cannot read an unknown shape.
  if (data->shape_var != nullptr && !obligations->HasExtents(0)) return;
  const String& mode = pad_attrs.pad_mode(attrs);
  const bool reflects = mode == "reflect";
  if (!reflects && mode != "circular" && mode != "replicate") return;
  for (int axis = 0; axis < data->ndim; ++axis) {
    const int64_t width = std::max(widths[2 * axis], widths[2 * axis + 1]);
    if (width <= 0) continue;
    // The padding repeats elements of the axis. Reflection uses each at most once, without the
    // edge; the other modes wrap around as often as needed.
    const int64_t needed = reflects ? width + 1 : 1;
    obligations->AtLeast(obligations->Dim(0, axis),
                         obligations->Attribute(needed, "for pad_width"));
  }
}

TVM_FIXES_INIT_BLOCK() { RegisterObligations("op.pad", Pad, {"relax.nn.pad"}); }

}  // namespace

}  // namespace verifier
}  // namespace tvm_fixes
