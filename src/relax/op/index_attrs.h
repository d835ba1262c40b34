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
 * \file src/relax/op/index_attrs.h
 * \brief Attributes of operators that select elements.
 */
#ifndef TVM_FIXES_RELAX_OP_INDEX_ATTRS_H_
#define TVM_FIXES_RELAX_OP_INDEX_ATTRS_H_

#include "axis_attrs.h"

namespace tvm_fixes {

struct TakeAttrsNode : OptionalAxisAttrsNode {
  TakeAttrsNode() : OptionalAxisAttrsNode("relax.attrs.TakeAttrs") {}
  /*! \brief The handling of out-of-range indices: "fast", "clip", "wrap" or "nan". */
  Field<String> mode{this, {"mode"}};
};

struct ScatterElementsAttrsNode : WideAxisAttrsNode {
  ScatterElementsAttrsNode() : WideAxisAttrsNode("relax.attrs.ScatterElementsAttrs") {}
  /*! \brief "update", "add", "mul", "mean", "max" or "min". */
  Field<String> reduction{this, {"reduction"}};
};

struct StridedSliceAttrsNode : NodeLayout {
  StridedSliceAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.StridedSliceAttrs"}) {}
  Field<bool> assume_inbound{this, {"assume_inbound"}};
};

inline TakeAttrsNode take_attrs;
inline WideAxisAttrsNode gather_elements_attrs{"relax.attrs.GatherElementsAttrs"};
inline ScatterElementsAttrsNode scatter_elements_attrs;
inline StridedSliceAttrsNode strided_slice_attrs;

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_INDEX_ATTRS_H_
