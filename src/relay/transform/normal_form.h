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
 * \file src/relay/transform/normal_form.h
 * \brief The two forms of a program: a graph, or a chain of let bindings.
 */
#ifndef TVM_FIXES_RELAY_TRANSFORM_NORMAL_FORM_H_
#define TVM_FIXES_RELAY_TRANSFORM_NORMAL_FORM_H_

#include "../ir/visitor.h"

namespace tvm_fixes::relay {

/*!
 * \brief Bind each intermediate value to a variable (administrative normal form).
 *
 * Before, `add(nn.relu(%x), %x)` nests calls. After, `let %t0 = nn.relu(%x); add(%t0, %x)` has only
 * variables and constants as operands, so the order of evaluation is explicit.
 */
IRModule ToANormalForm(const IRModule& module);
Function ToANormalForm(const Function& function);

/*!
 * \brief Replace variables by the values that lets bind to them.
 *
 * Before, `let %a = nn.relu(%x); add(%a, %a)` names a value. After, `add(%0, %0)` shares it. Reads
 * and writes of references stay bound, as do recursive functions and values that a function
 * captures.
 */
IRModule ToGraphNormalForm(const IRModule& module);

/*! \brief The chain of lets that binds variables in order and returns a result. */
Expr MakeLets(const std::vector<std::pair<Var, Expr>>& bindings, Expr result);

/*! \brief Whether an operand needs no binding. */
bool IsAtomic(const Expr& expr);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_TRANSFORM_NORMAL_FORM_H_
