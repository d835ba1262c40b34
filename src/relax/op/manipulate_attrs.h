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
 * \file src/relax/op/manipulate_attrs.h
 * \brief Attributes of operators that move, repeat, join and split elements.
 */
#ifndef TVM_FIXES_RELAX_OP_MANIPULATE_ATTRS_H_
#define TVM_FIXES_RELAX_OP_MANIPULATE_ATTRS_H_

#include "axis_attrs.h"

namespace tvm_fixes {

struct PermuteDimsAttrsNode : NodeLayout {
  PermuteDimsAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.PermuteDimsAttrs"}) {}
  /*! \brief Null for the reverse order; an axis may be negative. */
  Field<Array<int64_t>> axes{this, {"axes"}};
};

struct SqueezeAttrsNode : NodeLayout {
  SqueezeAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.SqueezeAttrs"}) {}
  /*! \brief Null for all axes of extent 1; an axis may be negative. */
  Field<Array<int64_t>> axis{this, {"axis"}};
};

struct RepeatAttrsNode : NodeLayout {
  RepeatAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.RepeatAttrs"}) {}
  Field<int32_t> repeats{this, {"repeats"}};
  /*! \brief None means to flatten the argument first. */
  Field<Any> axis{this, {"axis"}};
};

struct SplitAttrsNode : AxisAttrsNode {
  SplitAttrsNode() : AxisAttrsNode("relax.attrs.SplitAttrs") {}
  /*! \brief The number of parts as an IntImm, or an array of the positions where parts begin. */
  Field<ObjectRef> indices_or_sections{this, {"indices_or_sections"}};
};

inline PermuteDimsAttrsNode permute_dims_attrs;
inline SqueezeAttrsNode squeeze_attrs;
inline RepeatAttrsNode repeat_attrs;
inline OptionalAxisAttrsNode concat_attrs{"relax.attrs.ConcatAttrs"};
inline OptionalAxisAttrsNode stack_attrs{"relax.attrs.StackAttrs"};
inline SplitAttrsNode split_attrs;

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_MANIPULATE_ATTRS_H_
