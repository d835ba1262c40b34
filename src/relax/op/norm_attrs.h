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
 * \file src/relax/op/norm_attrs.h
 * \brief Attributes of norms and prelu.
 */
#ifndef TVM_FIXES_RELAX_OP_NORM_ATTRS_H_
#define TVM_FIXES_RELAX_OP_NORM_ATTRS_H_

#include "axis_attrs.h"

namespace tvm_fixes {

struct BatchNormAttrsNode : NodeLayout {
  BatchNormAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.BatchNormAttrs"}) {}
  Field<int32_t> axis{this, {"axis"}};
  Field<double> epsilon{this, {"epsilon"}};
  Field<bool> center{this, {"center"}};
  Field<bool> scale{this, {"scale"}};
  Field<bool> training{this, {"training"}};
};

/*! \brief The attributes of a norm over some axes with a separate channel axis. */
struct ChannelNormAttrsNode : NodeLayout {
  ChannelNormAttrsNode(const char* type_key) : NodeLayout(Kind::kOther, {type_key}) {}
  Field<int32_t> channel_axis{this, {"channel_axis"}};
  Field<Array<int64_t>> axes{this, {"axes"}};
  Field<double> epsilon{this, {"epsilon"}};
  Field<bool> center{this, {"center"}};
  Field<bool> scale{this, {"scale"}};
};

struct GroupNormAttrsNode : ChannelNormAttrsNode {
  GroupNormAttrsNode() : ChannelNormAttrsNode("relax.attrs.GroupNormAttrs") {}
  Field<int32_t> num_groups{this, {"num_groups"}};
};

struct LayerNormAttrsNode : NodeLayout {
  LayerNormAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.LayerNormAttrs"}) {}
  Field<Array<int64_t>> axes{this, {"axes"}};
};

struct RMSNormAttrsNode : NodeLayout {
  RMSNormAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.RMSNormAttrs"}) {}
  Field<Array<int64_t>> axes{this, {"axes"}};
};

inline BatchNormAttrsNode batch_norm_attrs;
inline ChannelNormAttrsNode instance_norm_attrs{"relax.attrs.InstanceNormAttrs"};
inline GroupNormAttrsNode group_norm_attrs;
inline LayerNormAttrsNode layer_norm_attrs;
inline RMSNormAttrsNode rms_norm_attrs;
inline AxisAttrsNode prelu_attrs{"relax.attrs.PReluAttrs"};

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_NORM_ATTRS_H_
