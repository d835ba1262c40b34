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
 * \file src/relay/op/random.cc
 * \brief Random numbers: known by name, but not translated.
 */
#include "registry.h"

namespace tvm_fixes::relay {
namespace {

const char* const kReason = "Relay's generator of random numbers, Threefry, is not supported";

RELAY_OP("random.threefry_generate")
    .Inputs({"key"})
    .Attrs("relay.attrs.ThreefryGenerateAttrs", {RequiredAttr("out_shape", AttrKind::kIntArray)})
    .Rejected(kReason);

RELAY_OP("random.threefry_split").Inputs({"key"}).Rejected(kReason);

RELAY_OP("random.uniform")
    .Inputs({"key", "low", "high"})
    .Attrs("relay.attrs.UniformAttrs",
           {RequiredAttr("out_shape", AttrKind::kIntArray), DTypeAttr("out_dtype")})
    .Rejected(kReason);

RELAY_OP("random.normal")
    .Inputs({"key", "mean", "scale"})
    .Attrs("relay.attrs.NormalAttrs",
           {RequiredAttr("out_shape", AttrKind::kIntArray), DTypeAttr("out_dtype")})
    .Rejected(kReason);

RELAY_OP("random.multinomial")
    .Inputs({"key", "probs"})
    .Attrs("relay.attrs.MultinomialAttrs", {IntAttr("num_samples", 1)})
    .Rejected(kReason);

}  // namespace
}  // namespace tvm_fixes::relay
