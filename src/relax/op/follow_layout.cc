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
 * \file src/relax/op/follow_layout.cc
 * \brief Layout rules of operators for which TVM has none.
 */
#include "follow_layout.h"

#include <algorithm>

#include "op_attr.h"

namespace tvm_fixes {
namespace {

template <typename Rule>
void Register(const char* op_name, Rule rule, const char* fix_id) {
  auto infer_layout = [rule, fix_id](const ObjectRef& call_ref,
                                     const DesiredLayouts& /*desired_layouts*/,
                                     const VarLayouts& var_layouts) {
    const CallView call(call_ref.get());
    const auto lies_as_written = [&](const ObjectRef& arg) {
      return LayoutOf(arg, var_layouts) == InitialLayoutOf(arg);
    };
    const Array<ObjectRef>& args = call.args();
    if (std::all_of(args.begin(), args.end(), lies_as_written) || !ChoosesLayouts(fix_id)) {
      return RestoreLayouts(call);
    }
    const ObjectRef answer = rule(call, var_layouts);
    if (!answer.defined()) return RestoreLayouts(call);
    NoteUse(fix_id, call_ref);
    return answer;
  };
  OverrideOpAttr(op_name, kInferLayout, Function::FromTyped(infer_layout));
}

}  // namespace

void RegisterLayoutRule(const char* op_name, LayoutRule rule, const char* fix_id) {
  Register(op_name, rule, fix_id);
}

void RegisterLayoutRule(const char* op_name, DataLayoutRule rule, const char* fix_id) {
  const auto of_data = [rule](const CallView& call, const VarLayouts& var_layouts) {
    auto layout = LayoutOf(call.args()[0], var_layouts);
    return layout ? rule(call, *layout) : ObjectRef(nullptr);
  };
  Register(op_name, of_data, fix_id);
}

}  // namespace tvm_fixes
