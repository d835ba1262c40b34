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
 * \file src/relax/op/reverse_sequence.cc
 * \brief Layout rule of relax.reverse_sequence: both axes move with the layout.
 *
 * Trigger: ConvertLayout of a model that reverses sequences of different lengths between two
 * convolutions. Mechanism: the operator has no FRelaxInferLayout, so ConvertLayout restores the
 * original layout of its argument.
 *
 *     x: layout ACDB (NHWC), R.reverse_sequence(x, lengths, seq_axis=2, batch_axis=0)
 *         =>  R.reverse_sequence(x, lengths, seq_axis=1, batch_axis=0), layout ACDB
 *
 * If the layout splits one of the axes in blocks, the original layout is restored.
 */
#include "../../ffi/registration.h"
#include "../ir/build.h"
#include "follow_layout.h"

namespace tvm_fixes {
namespace {

struct ReverseSequenceAttrsNode : NodeLayout {
  ReverseSequenceAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.ReverseSequenceAttrs"}) {}
  Field<int64_t> seq_axis{this, {"seq_axis"}};
  Field<int64_t> batch_axis{this, {"batch_axis"}};
};

ReverseSequenceAttrsNode reverse_sequence_attrs;

ObjectRef FollowReverseSequence(const CallView& call, const std::string& layout) {
  const auto& type = reverse_sequence_attrs;
  const Object* attrs = call.attrs().get();
  if (!type.IsInstance(attrs)) return ObjectRef(nullptr);
  auto seq_axis = PositionOf(type.seq_axis(attrs), layout);
  auto batch_axis = PositionOf(type.batch_axis(attrs), layout);
  if (!seq_axis || !batch_axis) return ObjectRef(nullptr);
  return FollowData(
      call, layout, layout,
      WithFields(call.attrs(), {{"seq_axis", *seq_axis}, {"batch_axis", *batch_axis}}));
}

TVM_FIXES_INIT_BLOCK() {
  RegisterLayoutRule("relax.reverse_sequence", FollowReverseSequence,
                     "reverse-sequence-infer-layout");
}

}  // namespace
}  // namespace tvm_fixes
