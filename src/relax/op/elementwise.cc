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
 * \file src/relax/op/elementwise.cc
 * \brief Layout rules of element-wise operators.
 *
 * See follow_layout.h.
 */
#include "../../ffi/registration.h"
#include "follow_layout.h"

namespace tvm_fixes {
namespace {

ObjectRef FollowElementwise(const CallView& call, const std::string& layout) {
  return FollowData(call, layout, layout, call.attrs());
}

TVM_FIXES_INIT_BLOCK() {
  for (const char* op_name :
       {"relax.bucketize", "relax.clip", "relax.full_like", "relax.nn.leakyrelu",
        "relax.nn.softplus", "relax.ones_like", "relax.zeros_like"}) {
    RegisterLayoutRule(op_name, FollowElementwise);
  }
}

}  // namespace
}  // namespace tvm_fixes
