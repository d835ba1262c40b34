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
 * \file src/relax/op/last_axes.cc
 * \brief Layout rules of operators that act on the last axes and treat the others as batch axes.
 *
 * See follow_layout.h. The batch axes may have any order.
 */
#include "../../ffi/registration.h"
#include "follow_layout.h"

namespace tvm_fixes {
namespace {

template <size_t kCount>
ObjectRef FollowBatch(const CallView& call, const std::string& layout) {
  if (LayoutOfLastAxes(layout, kCount) != InitialLayout(kCount)) return ObjectRef(nullptr);
  return FollowData(call, layout, layout, call.attrs());
}

TVM_FIXES_INIT_BLOCK() {
  RegisterLayoutRule("relax.nn.pixel_shuffle", FollowBatch<3>);
  RegisterLayoutRule("relax.tril", FollowBatch<2>);
  RegisterLayoutRule("relax.triu", FollowBatch<2>);
}

}  // namespace
}  // namespace tvm_fixes
