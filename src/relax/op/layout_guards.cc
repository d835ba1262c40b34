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
 * \file src/relax/op/layout_guards.cc
 * \brief Registration of layout guards, and the guards of individual operators.
 *
 * See layout_guards.h.
 *
 * - dropout returns two tensors, but its rule one layout: ConvertLayout raises in any layout.
 * - repeat without an axis flattens the elements in layout order: wrong numbers.
 * - scatter_nd applies its indices to moved axes, and accepts indices in any layout: wrong numbers,
 *   or ConvertLayout raises.
 * - ccl.allgather extends the first axis, which the layout may have moved: ConvertLayout raises.
 * - softmax drops every packed layout, even if it does not act on the split axis.
 * - prelu accepts packed slopes: the module does not build.
 */
#include "layout_guards.h"

#include <vector>

#include "../ir/build.h"
#include "axis_attrs.h"
#include "manipulate_attrs.h"
#include "norm_attrs.h"
namespace tvm_fixes {
namespace {

constexpr const char* kLayoutGuardsFix = "layout-guards";

std::vector<const LayoutGuard*>& Guards() {
  static std::vector<const LayoutGuard*> guards;
  return guards;
}

}  // namespace

LayoutGuard::LayoutGuard(const char* op_name, GuardRule rule)
    : stock_(op_name, kInferLayout), rule_(rule) {
  Guards().push_back(this);
}

LayoutGuard::LayoutGuard(const char* op_name, DataGuardRule rule)
    : stock_(op_name, kInferLayout), data_rule_(rule) {
  Guards().push_back(this);
}

void LayoutGuard::Register() {
  for (const LayoutGuard* guard : Guards()) {
    auto infer_layout = [guard](const ObjectRef& call, const DesiredLayouts& desired_layouts,
                                const VarLayouts& var_layouts) {
      return guard->InferLayout(call, desired_layouts, var_layouts);
    };
    OverrideOpAttr(guard->stock_.op_name(), guard->stock_.key(), Function::FromTyped(infer_layout));
  }
}

ObjectRef LayoutGuard::Answer(const CallView& call, const VarLayouts& var_layouts) const {
  if (rule_ != nullptr) return rule_(call, var_layouts);
  auto layout = LayoutOf(call.args()[0], var_layouts);
  if (!layout || layout == InitialLayoutOf(call.args()[0])) return ObjectRef(nullptr);
  return data_rule_(call, *layout);
}

ObjectRef LayoutGuard::InferLayout(const ObjectRef& call_ref, const DesiredLayouts& desired_layouts,
                                   const VarLayouts& var_layouts) const {
  auto call = As<CallView>(call_ref);
  const bool listed = desired_layouts.count(stock_.op_name()) != 0;
  if (call && !call->args().empty() && !listed && ChoosesLayouts(kLayoutGuardsFix)) {
    const ObjectRef answer = Answer(*call, var_layouts);
    if (answer.defined()) {
      NoteUse(kLayoutGuardsFix, call_ref);
      return answer;
    }
  }
  return stock_(call_ref, desired_layouts, var_layouts);
}

namespace {

ObjectRef Dropout(const CallView& call, const VarLayouts& var_layouts) {
  auto layout = LayoutOf(call.args()[0], var_layouts);
  return layout ? FollowData(call, *layout, *layout, call.attrs()) : RestoreLayouts(call);
}

ObjectRef Repeat(const CallView& call, const std::string& /*layout*/) {
  const auto& type = repeat_attrs;
  if (!type.IsInstance(call.attrs().get())) return ObjectRef(nullptr);
  return type.axis(call.attrs().get()) == nullptr ? RestoreLayouts(call) : ObjectRef(nullptr);
}

ObjectRef ScatterND(const CallView& call, const VarLayouts& /*var_layouts*/) {
  return RestoreLayouts(call);
}

ObjectRef AllGather(const CallView& call, const std::string& layout) {
  return PositionOf(0, layout) == 0 ? ObjectRef(nullptr) : RestoreLayouts(call);
}

ObjectRef Softmax(const CallView& call, const std::string& layout) {
  const auto& type = softmax_attrs;
  if (!IsPacked(layout) || !type.IsInstance(call.attrs().get())) return ObjectRef(nullptr);
  auto position = PositionOf(type.axis(call.attrs().get()), layout);
  if (!position) return ObjectRef(nullptr);
  return FollowData(call, layout, layout, WithFields(call.attrs(), {{"axis", *position}}));
}

ObjectRef PRelu(const CallView& call, const VarLayouts& var_layouts) {
  const auto& type = prelu_attrs;
  if (!type.IsInstance(call.attrs().get()) || call.args().size() != 2) return ObjectRef(nullptr);
  const ObjectRef& slopes = call.args()[1];
  if (LayoutOf(slopes, var_layouts) == InitialLayoutOf(slopes)) return ObjectRef(nullptr);
  auto layout = LayoutOf(call.args()[0], var_layouts);
  auto position = layout ? PositionOf(type.axis(call.attrs().get()), *layout) : std::nullopt;
  if (!position) return RestoreLayouts(call);
  return FollowData(call, *layout, *layout, WithFields(call.attrs(), {{"axis", *position}}));
}

LayoutGuard single_guards[] = {
    {"relax.nn.dropout", Dropout},   {"relax.repeat", Repeat},
    {"relax.scatter_nd", ScatterND}, {"relax.ccl.allgather", AllGather},
    {"relax.nn.softmax", Softmax},   {"relax.nn.prelu", PRelu},
};

TVM_FIXES_INIT_BLOCK() { LayoutGuard::Register(); }

}  // namespace
}  // namespace tvm_fixes
