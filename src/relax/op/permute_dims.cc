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
 * \file src/relax/op/permute_dims.cc
 * \brief Layout rule of relax.permute_dims.
 *
 * Trigger: ConvertLayout of a model that permutes a converted value, such as an attention block in
 * an image model. Mechanism: TVM's rule keeps the permute as a real transpose. But it only changes
 * the layout, and ConvertLayout inserts a transpose anyway if an operator needs its argument in
 * another layout.
 *
 *     x: layout ACB, R.permute_dims(x, [0, 2, 1])  =>  R.permute_dims(x, [0, 1, 2]), layout ABC
 *
 * PrepareLayout removes the remaining identity.
 */
#include "permute_dims.h"

#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "../ir/build.h"
#include "infer_layout.h"
#include "manipulate_attrs.h"
#include "op_attr.h"

namespace tvm_fixes {

std::optional<std::vector<int64_t>> PermutedAxes(const CallView& call) {
  if (!call.IsOp("relax.permute_dims") || call.args().size() != 1) return std::nullopt;
  auto type = As<TensorTypeView>(TypeOf(call.args()[0]));
  if (!type || type->ndim() < 0 || !permute_dims_attrs.IsInstance(call.attrs().get())) {
    return std::nullopt;
  }
  const auto ndim = static_cast<size_t>(type->ndim());
  std::vector<int64_t> axes(ndim);
  const Array<int64_t>& given = permute_dims_attrs.axes(call.attrs().get());
  if (!given.defined()) {
    std::iota(axes.rbegin(), axes.rend(), 0);
    return axes;
  }
  if (given.size() != ndim) return std::nullopt;
  std::vector<int64_t> in_order(ndim);
  std::iota(in_order.begin(), in_order.end(), 0);
  for (size_t i = 0; i < ndim; ++i) axes[i] = NormalizeAxis(given[i], ndim);
  if (!std::is_permutation(axes.begin(), axes.end(), in_order.begin())) return std::nullopt;
  return axes;
}

namespace {

constexpr const char* kPermuteDims = "relax.permute_dims";
constexpr const char* kPermuteDimsFix = "permute-dims-infer-layout";

StockOpAttr stock_permute_dims_layout(kPermuteDims, kInferLayout);

ObjectRef InferPermuteDimsLayout(const ObjectRef& call_ref, const DesiredLayouts& desired_layouts,
                                 const VarLayouts& var_layouts) {
  const auto stock = [&] {
    return stock_permute_dims_layout(call_ref, desired_layouts, var_layouts);
  };
  auto call = As<CallView>(call_ref);
  if (!call || !ChoosesLayouts(kPermuteDimsFix)) return stock();
  auto axes = PermutedAxes(*call);
  if (!axes) return stock();
  auto layout = LayoutOf(call->args()[0], var_layouts);
  if (!layout) return stock();
  if (IsPacked(*layout)) {
    // An operator that supports "ABCD4b" may not support "ADBC4d", so unpack. Unpacking moves the
    // elements anyway, so move them directly into the result's order.
    std::string order;
    for (int64_t axis : *axes) order.push_back(static_cast<char>('A' + axis));
    if (!IsConvertible(call->args()[0], order, var_layouts)) return RestoreLayouts(*call);
    layout = order;
  }
  std::vector<std::string> becomes(axes->size());
  for (size_t i = 0; i < axes->size(); ++i) becomes[(*axes)[i]] = static_cast<char>('A' + i);
  auto out_layout = RenameAxes(*layout, becomes);
  if (!out_layout) return stock();
  Array<int64_t> identity;
  for (size_t i = 0; i < axes->size(); ++i) identity.push_back(static_cast<int64_t>(i));
  NoteUse(kPermuteDimsFix, call_ref);
  return FollowData(*call, *layout, *out_layout, WithFields(call->attrs(), {{"axes", identity}}));
}

TVM_FIXES_INIT_BLOCK() {
  OverrideOpAttr(kPermuteDims, kInferLayout, Function::FromTyped(InferPermuteDimsLayout));
}

}  // namespace
}  // namespace tvm_fixes
