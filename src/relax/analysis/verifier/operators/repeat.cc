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
 * \file src/relax/analysis/verifier/operators/repeat.cc
 * \brief Obligations of repeat.
 */
#include "../../../op/manipulate_attrs.h"
#include "obligations.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief TVM infers a type for fewer than 1 repeats, but has no kernel. */
void Repeat(Obligations* obligations) {
  const int64_t repeats = repeat_attrs.repeats(obligations->attrs());
  if (repeats >= 1) return;
  obligations->Fail(-1, "repeats: expected at least 1, got " + std::to_string(repeats));
}

TVM_FIXES_INIT_BLOCK() { RegisterObligations("op.repeat", Repeat, {"relax.repeat"}); }

}  // namespace

}  // namespace verifier
}  // namespace tvm_fixes
