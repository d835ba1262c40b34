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
 * \file src/relax/op/axiswise.cc
 * \brief Layout rules of operators that act along one axis, which moves with the layout.
 *
 * See follow_layout.h. If the layout splits the axis in blocks, the original layout is restored.
 */
#include <algorithm>
#include <vector>

#include "../../ffi/registration.h"
#include "../ir/build.h"
#include "axis_attrs.h"
#include "follow_layout.h"
#include "index_attrs.h"
#include "statistical_attrs.h"

namespace tvm_fixes {
namespace {

OptionalAxisAttrsNode argmax_attrs{"relax.attrs.ArgmaxArgminAttrs"};
AxisAttrsNode argsort_attrs{"relax.attrs.ArgsortAttrs"};
AxisAttrsNode quantize_attrs{"relax.attrs.QuantizeAttrs"};
AxisAttrsNode sort_attrs{"relax.attrs.SortAttrs"};
AxisAttrsNode topk_attrs{"relax.attrs.TopKAttrs"};

/*! \brief The axis of a call, or std::nullopt if it flattens its data first. */
template <auto& type>
std::optional<int64_t> AxisOf(const CallView& call) {
  if (!type.IsInstance(call.attrs().get())) return std::nullopt;
  return Any(type.axis(call.attrs().get())).template try_cast<int64_t>();
}

ObjectRef WithAxis(const CallView& call, int64_t axis) {
  return WithFields(call.attrs(), {{"axis", axis}});
}

/*! \brief The rank of a tensor, or of the first field of a tuple. */
std::optional<int64_t> RankOf(const ObjectRef& type) {
  if (nodes.tuple_type.IsInstance(type.get())) {
    const Array<ObjectRef>& fields = nodes.tuple_type.fields(type.get());
    return fields.empty() ? std::nullopt : RankOf(fields[0]);
  }
  auto tensor = As<TensorTypeView>(type);
  if (!tensor || tensor->ndim() < 0) return std::nullopt;
  return tensor->ndim();
}

/*!
 * \brief Move the axis with the data.
 *
 * The other axes are unchanged, so the rank of the result determines how many axes replace this
 * one: none for a reduction, the rank of the indices for a take.
 */
template <auto& type>
ObjectRef FollowAxis(const CallView& call, const std::string& layout) {
  auto axis = AxisOf<type>(call);
  auto ndim = RankOf(TypeOf(call.args()[0]));
  auto out_ndim = RankOf(TypeOf(call.ref()));
  auto position = axis ? PositionOf(*axis, layout) : std::nullopt;
  if (!position || !ndim || !out_ndim) return ObjectRef(nullptr);
  const int64_t acted_on = NormalizeAxis(*axis, *ndim);
  std::vector<std::string> axes(*ndim);
  char next = 'A';
  for (int64_t i = 0; i < *ndim; ++i) {
    for (int64_t n = i == acted_on ? *out_ndim - *ndim + 1 : 1; n > 0; --n) axes[i] += next++;
  }
  auto out_layout = RenameAxes(layout, axes);
  if (!out_layout) return ObjectRef(nullptr);
  return FollowData(call, layout, *out_layout, WithAxis(call, *position));
}

/*! \brief Quantize and dequantize: with one scale for all elements, the axis does not matter. */
ObjectRef FollowQuantized(const CallView& call, const std::string& layout) {
  const Array<ObjectRef>& args = call.args();
  if (!std::all_of(args.begin() + 1, args.end(), IsSingleElement)) {
    return FollowAxis<quantize_attrs>(call, layout);
  }
  return FollowData(call, layout, layout, WithAxis(call, 0));
}

TVM_FIXES_INIT_BLOCK() {
  RegisterLayoutRule("relax.argmax", FollowAxis<argmax_attrs>);
  RegisterLayoutRule("relax.argmin", FollowAxis<argmax_attrs>);
  RegisterLayoutRule("relax.argsort", FollowAxis<argsort_attrs>);
  RegisterLayoutRule("relax.cumprod", FollowAxis<scanop_attrs>);
  RegisterLayoutRule("relax.cumsum", FollowAxis<scanop_attrs>);
  RegisterLayoutRule("relax.dequantize", FollowQuantized);
  RegisterLayoutRule("relax.nn.log_softmax", FollowAxis<softmax_attrs>);
  RegisterLayoutRule("relax.quantize", FollowQuantized);
  RegisterLayoutRule("relax.sort", FollowAxis<sort_attrs>);
  RegisterLayoutRule("relax.take", FollowAxis<take_attrs>);
  RegisterLayoutRule("relax.topk", FollowAxis<topk_attrs>);
}

}  // namespace
}  // namespace tvm_fixes
