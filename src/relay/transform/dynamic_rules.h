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
 * \file src/relay/transform/dynamic_rules.h
 * \brief Rules that make one call of a dyn.* operator static.
 */
#ifndef TVM_FIXES_RELAY_TRANSFORM_DYNAMIC_RULES_H_
#define TVM_FIXES_RELAY_TRANSFORM_DYNAMIC_RULES_H_

#include "evaluate.h"

namespace tvm_fixes::relay {

/*!
 * \brief The call of the static operator that a call of a dyn.* operator stands for.
 * \param call The call.
 * \param arg_types The types of its arguments, null where unknown.
 * \return Null if the operator has no rule or an operand that it needs is not constant.
 * \throws RelayError if the operand has a value that the operator does not allow.
 */
Expr MakeStatic(const Call& call, const Array<Type>& arg_types);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_TRANSFORM_DYNAMIC_RULES_H_
