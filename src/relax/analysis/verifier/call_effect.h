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
 * \file src/relax/analysis/verifier/call_effect.h
 * \brief Evaluation rules of calls in a PrimFunc.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_VERIFIER_CALL_EFFECT_H_
#define TVM_FIXES_RELAX_ANALYSIS_VERIFIER_CALL_EFFECT_H_

#include <cstdint>
#include <unordered_map>

#include "../../../ffi/node_layout.h"

namespace tvm_fixes {
namespace verifier {

/*! \brief Which arguments a call evaluates, and whether control returns. */
enum class CallEffect : uint8_t {
  /*! \brief All arguments are evaluated. */
  kStrict,
  /*! \brief Only the first argument is certainly evaluated. */
  kConditional,
  /*! \brief An argument may be an address instead of a value. */
  kOpaque,
  /*! \brief Control may not reach the next statement. */
  kJump
};

/*! \brief A cache of call effects by operator. */
class CallEffects {
 public:
  CallEffect Of(const Object* op);

 private:
  std::unordered_map<const Object*, CallEffect> known_;
};

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_CALL_EFFECT_H_
