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
 * \file src/relax/analysis/verifier/call_effect.cc
 * \brief Effects of TIR operators, as far as bounds checks depend on them.
 */
#include "call_effect.h"

#include <tvm/ffi/cast.h>

#include <string>

#include "../../../ffi/nodes.h"
#include "../../../ffi/registration.h"

namespace tvm_fixes {
namespace verifier {

namespace {

CallEffect EffectOf(const Object* op) {
  if (!nodes.op.IsInstance(op)) return CallEffect::kOpaque;
  static const GlobalFunction get_attr("ir.OpGetAttr");
  const std::string name = nodes.op.name(op);
  if (name == "prim.if_then_else") return CallEffect::kConditional;
  if (name == "tirx.address_of" || name == "tirx.buffer_data") return CallEffect::kOpaque;
  // TVM's CallEffectKind.
  constexpr int64_t kExprAnnotation = 0, kPure = 1, kEmbedInfo = 5, kControlJump = 6;
  const Any kind = get_attr(tvm::ffi::GetRef<ObjectRef>(op), "TCallEffectKind");
  const auto value = kind.try_cast<int64_t>();
  if (value == kExprAnnotation || value == kPure) return CallEffect::kStrict;
  return value == kEmbedInfo || value == kControlJump ? CallEffect::kJump : CallEffect::kOpaque;
}

}  // namespace

CallEffect CallEffects::Of(const Object* op) {
  auto [it, is_new] = known_.try_emplace(op);
  if (is_new) it->second = EffectOf(op);
  return it->second;
}

}  // namespace verifier
}  // namespace tvm_fixes
