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
 * \file src/relax/op/norm.cc
 * \brief Layouts of relax.nn.layer_norm and relax.nn.rms_norm.
 *
 * TVM: seen in 0.27. Trigger: ConvertLayout over a norm of several axes of which the order
 * changes, such as LayerNorm((C, H, W)) after a convolution in NHWC. Symptom: wrong numbers, and
 * reads out of bounds, without a word. Mechanism: the axes follow the layout of the data, while
 * scale and offset, which have these axes in their original order, stay as they are. Here the data
 * keeps its original layout unless the axes come in the same order.
 *
 * Removal: delete this file once its probe passes on the oldest TVM that is supported.
 */
#include <algorithm>
#include <string>
#include <vector>

#include "../../ffi/registration.h"
#include "../ir/build.h"
#include "infer_layout.h"
#include "op_attr.h"

namespace tvm_fixes {
namespace {

constexpr const char* kFixId = "norm-infer-layout";

/*! \brief Whether `layout` has the given axes of the original layout in the given order. */
bool KeepsOrder(const std::string& layout, const Array<int64_t>& axes) {
  const auto ndim = static_cast<int64_t>(layout.size());
  size_t last = 0;
  for (int64_t axis : axes) {
    const size_t position = layout.find(static_cast<char>('A' + (axis < 0 ? axis + ndim : axis)));
    if (position == std::string::npos || position < last) return false;
    last = position;
  }
  return true;
}

/*! \brief The rule of TVM where it is right, and the original layout elsewhere. */
template <typename AttrsNode>
Function GuardInferLayout(const char* op_name, const AttrsNode& attrs_node) {
  const Function* stock = StockOpAttr(op_name, "FRelaxInferLayout");
  return Function::FromTyped([stock, &attrs_node](const ObjectRef& call_ref,
                                                  const DesiredLayouts& desired_layouts,
                                                  const VarLayouts& var_layouts) {
    const auto ask_stock = [&] {
      return (*stock)(call_ref, desired_layouts, var_layouts).template cast<ObjectRef>();
    };
    auto call = As<CallView>(call_ref);
    if (!call || !attrs_node.IsInstance(call->attrs().get()) || !IsEnabled(kFixId)) {
      return ask_stock();
    }
    auto layout = LayoutOf(call->args()[0], var_layouts);
    const Array<int64_t>& axes = attrs_node.axes(call->attrs().get());
    if (layout && IsPermutation(*layout, layout->size()) && KeepsOrder(*layout, axes)) {
      return ask_stock();
    }
    NoteUse(kFixId);
    std::vector<std::optional<std::string>> inputs;
    for (const ObjectRef& arg : call->args()) inputs.push_back(InitialLayoutOf(arg));
    return MakeInferLayoutOutput(inputs, {InitialLayoutOf(call_ref)}, call->attrs());
  });
}

TVM_FIXES_INIT_BLOCK() {
  OverrideOpAttr("relax.nn.layer_norm", "FRelaxInferLayout",
                 GuardInferLayout("relax.nn.layer_norm", nodes.layer_norm_attrs));
  OverrideOpAttr("relax.nn.rms_norm", "FRelaxInferLayout",
                 GuardInferLayout("relax.nn.rms_norm", nodes.rms_norm_attrs));
}

}  // namespace
}  // namespace tvm_fixes
