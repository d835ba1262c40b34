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
 * \file src/relax/op/pool_attrs.h
 * \brief Attributes of poolings and resizes, which include a layout.
 */
#ifndef TVM_FIXES_RELAX_OP_POOL_ATTRS_H_
#define TVM_FIXES_RELAX_OP_POOL_ATTRS_H_

#include "../../ffi/node_layout.h"

namespace tvm_fixes {

struct LayoutAttrsNode : NodeLayout {
  LayoutAttrsNode(const char* type_key) : NodeLayout(Kind::kOther, {type_key}) {}
  Field<String> layout{this, {"layout"}};
};

struct PoolAttrsNode : LayoutAttrsNode {
  using LayoutAttrsNode::LayoutAttrsNode;
  Field<String> out_layout{this, {"out_layout"}};
};

/*! \brief Windowed poolings of 1, 2 and 3 spatial axes, then adaptive poolings. */
inline PoolAttrsNode pool_attrs[6] = {
    "relax.attrs.Pool1DAttrs",         "relax.attrs.Pool2DAttrs",
    "relax.attrs.Pool3DAttrs",         "relax.attrs.AdaptivePool1DAttrs",
    "relax.attrs.AdaptivePool2DAttrs", "relax.attrs.AdaptivePool3DAttrs"};
inline LayoutAttrsNode resize2d_attrs{"relax.attrs.Resize2DAttrs"};
inline LayoutAttrsNode resize3d_attrs{"relax.attrs.Resize3DAttrs"};

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_POOL_ATTRS_H_
