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
 * \file src/relax/op/axis_attrs.h
 * \brief Attributes of operators that act along one axis.
 */
#ifndef TVM_FIXES_RELAX_OP_AXIS_ATTRS_H_
#define TVM_FIXES_RELAX_OP_AXIS_ATTRS_H_

#include "../../ffi/node_layout.h"

namespace tvm_fixes {

/*! \brief The attributes of an operator that acts along one axis, which may be negative. */
struct AxisAttrsNode : NodeLayout {
  AxisAttrsNode(const char* type_key) : NodeLayout(Kind::kOther, {type_key}) {}
  Field<int32_t> axis{this, {"axis"}};
};

struct OptionalAxisAttrsNode : NodeLayout {
  OptionalAxisAttrsNode(const char* type_key) : NodeLayout(Kind::kOther, {type_key}) {}
  /*! \brief None means to flatten the argument first. */
  Field<Any> axis{this, {"axis"}};
};

struct WideAxisAttrsNode : NodeLayout {
  WideAxisAttrsNode(const char* type_key) : NodeLayout(Kind::kOther, {type_key}) {}
  Field<int64_t> axis{this, {"axis"}};
};

inline AxisAttrsNode softmax_attrs{"relax.attrs.SoftmaxAttrs"};

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_AXIS_ATTRS_H_
