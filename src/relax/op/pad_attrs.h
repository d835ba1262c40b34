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
 * \file src/relax/op/pad_attrs.h
 * \brief Attributes of pad.
 */
#ifndef TVM_FIXES_RELAX_OP_PAD_ATTRS_H_
#define TVM_FIXES_RELAX_OP_PAD_ATTRS_H_

#include "../../ffi/node_layout.h"

namespace tvm_fixes {

struct PadAttrsNode : NodeLayout {
  PadAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.PadAttrs"}) {}
  /*! \brief The padding before and after the first axis, before and after the second, … */
  Field<Array<int64_t>> pad_width{this, {"pad_width"}};
  /*! \brief "constant", "reflect", "replicate" or "circular". */
  Field<String> pad_mode{this, {"pad_mode"}};
};

inline PadAttrsNode pad_attrs;

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_PAD_ATTRS_H_
