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
 * \file src/relax/analysis/verifier/operators/norm.cc
 * \brief Obligations of norms and prelu.
 */
#include <algorithm>

#include "../../../op/norm_attrs.h"
#include "obligations.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*!
 * \brief Require that the arguments from `begin` on have the extents of argument 0 along `axes`.
 */
void CheckParameters(Obligations* obligations, size_t begin, const std::vector<int>& axes) {
  for (size_t arg = begin; arg < obligations->call().args.size(); ++arg) {
    if (!obligations->HasRank(arg, static_cast<int32_t>(axes.size()))) continue;
    if (obligations->Tensor(arg) == nullptr) continue;
    for (size_t i = 0; i < axes.size(); ++i) {
      obligations->Equal(obligations->Dim(arg, static_cast<int>(i)), obligations->Dim(0, axes[i]));
    }
  }
}

void CheckAxesNorm(Obligations* obligations, const Array<int64_t>& attr, const char* name) {
  const TypeInfo* data = obligations->Tensor(0);
  if (data == nullptr) return;
  if (auto axes = obligations->Axes(attr, data->ndim, name)) CheckParameters(obligations, 1, *axes);
}

void BatchNorm(Obligations* obligations) {
  CheckAxesNorm(obligations, {batch_norm_attrs.axis(obligations->attrs())}, "axis");
}

void LayerNorm(Obligations* obligations) {
  CheckAxesNorm(obligations, layer_norm_attrs.axes(obligations->attrs()), "axes");
}

void RMSNorm(Obligations* obligations) {
  CheckAxesNorm(obligations, rms_norm_attrs.axes(obligations->attrs()), "axes");
}

/*! \brief A per-channel norm. Its axes must not include the channel axis. */
std::optional<int> CheckChannelNorm(Obligations* obligations, const ChannelNormAttrsNode& attrs) {
  const TypeInfo* data = obligations->Tensor(0);
  if (data == nullptr) return std::nullopt;
  const Object* node = obligations->attrs();
  const auto channel = obligations->Axis(attrs.channel_axis(node), data->ndim, "channel_axis");
  const auto axes = obligations->Axes(attrs.axes(node), data->ndim);
  if (!channel || !axes) return std::nullopt;
  if (std::find(axes->begin(), axes->end(), *channel) != axes->end()) {
    obligations->Fail(-1, "axes: must not include channel_axis, got " + std::to_string(*channel));
    return std::nullopt;
  }
  CheckParameters(obligations, 1, {*channel});
  return channel;
}

void InstanceNorm(Obligations* obligations) { CheckChannelNorm(obligations, instance_norm_attrs); }

void GroupNorm(Obligations* obligations) {
  const int64_t groups = group_norm_attrs.num_groups(obligations->attrs());
  if (groups < 1) {
    return obligations->Fail(-1, "num_groups: expected at least 1, got " + std::to_string(groups));
  }
  const auto channel = CheckChannelNorm(obligations, group_norm_attrs);
  if (!channel) return;
  obligations->MultipleOf(obligations->Dim(0, *channel),
                          obligations->Attribute(groups, "num_groups"));
}

/*! \brief One slope per channel, or one for all channels. */
void PRelu(Obligations* obligations) {
  const TypeInfo* data = obligations->Tensor(0);
  const TypeInfo* slope = obligations->Tensor(1);
  if (data == nullptr || slope == nullptr) return;
  const auto axis = obligations->Axis(prelu_attrs.axis(obligations->attrs()), data->ndim);
  if (axis && slope->ndim == 1) {
    obligations->BroadcastTo(obligations->Dim(1, 0), obligations->Dim(0, *axis));
  }
}

TVM_FIXES_INIT_BLOCK() {
  RegisterObligations("op.norm", BatchNorm, {"relax.nn.batch_norm"});
  RegisterObligations("op.norm", LayerNorm, {"relax.nn.layer_norm"});
  RegisterObligations("op.norm", RMSNorm, {"relax.nn.rms_norm"});
  RegisterObligations("op.norm", InstanceNorm, {"relax.nn.instance_norm"});
  RegisterObligations("op.norm", GroupNorm, {"relax.nn.group_norm"});
  RegisterObligations("op.norm", PRelu, {"relax.nn.prelu"});
}

}  // namespace

}  // namespace verifier
}  // namespace tvm_fixes
