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
 * \file src/relax/op/infer_layout.cc
 * \brief What ConvertLayout asks an operator, and the answer.
 */
#include "infer_layout.h"

#include <algorithm>

#include "../../ffi/registration.h"
#include "../ir/build.h"

namespace tvm_fixes {
namespace {

ObjectRef MakeLayoutDecision(const std::optional<std::string>& layout) {
  static const GlobalFunction s_layout("s_tir.SLayout");
  static const GlobalFunction prim_type("ir.PrimType");
  const Any s =
      layout ? s_layout(*layout, prim_type(tvm::ffi::StringToDLDataType("int32"))) : Any();
  return MakeByReflection(nodes.layout_decision,
                          {{"layout", s}, {"is_unknown_dim", !layout.has_value()}});
}

Array<Any> MakeLayoutDecisions(const std::vector<std::optional<std::string>>& layouts) {
  Array<Any> decisions;
  for (const std::optional<std::string>& layout : layouts)
    decisions.push_back(MakeLayoutDecision(layout));
  return decisions;
}

}  // namespace

std::string InitialLayout(int64_t ndim) {
  std::string layout;
  for (int64_t i = 0; i < ndim; ++i) layout.push_back(static_cast<char>('A' + i));
  return layout;
}

std::optional<std::string> InitialLayoutOf(const ObjectRef& expr) {
  auto tensor = As<TensorTypeView>(TypeOf(expr));
  if (!tensor || tensor->ndim() < 0) return std::nullopt;
  return InitialLayout(tensor->ndim());
}

std::optional<std::string> LayoutOf(const ObjectRef& arg, const VarLayouts& var_layouts) {
  auto known = var_layouts.find(arg);
  if (known != var_layouts.end()) {
    auto decision = (*known).second.try_cast<ObjectRef>();
    if (!decision || !nodes.layout_decision.IsInstance(decision->get())) return std::nullopt;
    if (nodes.layout_decision.is_unknown_dim(decision->get())) return std::nullopt;
    const ObjectRef& layout = nodes.layout_decision.layout(decision->get());
    if (!nodes.s_layout.IsInstance(layout.get())) return std::nullopt;
    return std::string(nodes.s_layout.name(layout.get()));
  }
  return InitialLayoutOf(arg);
}

bool IsPermutation(const std::string& layout, int64_t ndim) {
  std::string sorted = layout;
  std::sort(sorted.begin(), sorted.end());
  return sorted == InitialLayout(ndim);
}

std::optional<std::string> RelativeLayout(const std::string& from, const std::string& to) {
  if (!std::is_permutation(from.begin(), from.end(), to.begin(), to.end())) return std::nullopt;
  std::string layout;
  for (char axis : to) layout.push_back(static_cast<char>('A' + from.find(axis)));
  return layout;
}

std::string ApplyLayout(const std::string& names, const std::string& layout) {
  std::string applied;
  for (char axis : layout) applied.push_back(names[axis - 'A']);
  return applied;
}

ObjectRef MakeInferLayoutOutput(const std::vector<std::optional<std::string>>& inputs,
                                const std::vector<std::optional<std::string>>& outputs,
                                const ObjectRef& attrs, const Map<ObjectRef, ObjectRef>& new_args) {
  return MakeByReflection(nodes.infer_layout_output,
                          {{"input_layouts", MakeLayoutDecisions(inputs)},
                           {"output_layouts", MakeLayoutDecisions(outputs)},
                           {"new_attrs", attrs},
                           {"new_args", new_args}});
}

}  // namespace tvm_fixes
