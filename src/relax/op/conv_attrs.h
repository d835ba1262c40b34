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
 * \file src/relax/op/conv_attrs.h
 * \brief Attributes of convolutions and their transposes.
 */
#ifndef TVM_FIXES_RELAX_OP_CONV_ATTRS_H_
#define TVM_FIXES_RELAX_OP_CONV_ATTRS_H_

#include "../../ffi/node_layout.h"

namespace tvm_fixes {

/*! \brief The attributes of a convolution with 1, 2 or 3 spatial axes. */
struct ConvAttrsNode : NodeLayout {
  ConvAttrsNode(const char* type_key) : NodeLayout(Kind::kOther, {type_key}) {}
  Field<Array<int64_t>> strides{this, {"strides"}};
  /*! \brief The padding before each spatial axis, then after each. */
  Field<Array<int64_t>> padding{this, {"padding"}};
  Field<Array<int64_t>> dilation{this, {"dilation"}};
  Field<int32_t> groups{this, {"groups"}};
  Field<String> data_layout{this, {"data_layout"}};
  Field<String> kernel_layout{this, {"kernel_layout"}};
  Field<String> out_layout{this, {"out_layout"}};
};

struct ConvTransposeAttrsNode : ConvAttrsNode {
  using ConvAttrsNode::ConvAttrsNode;
  Field<Array<int64_t>> output_padding{this, {"output_padding"}};
};

/*! \brief Indexed by the number of spatial axes minus one. */
inline ConvAttrsNode conv_attrs[3] = {"relax.attrs.Conv1DAttrs", "relax.attrs.Conv2DAttrs",
                                      "relax.attrs.Conv3DAttrs"};
inline ConvTransposeAttrsNode conv_transpose_attrs[3] = {"relax.attrs.Conv1DTransposeAttrs",
                                                         "relax.attrs.Conv2DTransposeAttrs",
                                                         "relax.attrs.Conv3DTransposeAttrs"};

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_CONV_ATTRS_H_
