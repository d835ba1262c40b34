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
 * \file src/relay/transform/recursion.h
 * \brief Helpers of the passes on recursive functions.
 */
#ifndef TVM_FIXES_RELAY_TRANSFORM_RECURSION_H_
#define TVM_FIXES_RELAY_TRANSFORM_RECURSION_H_

#include <algorithm>
#include <optional>
#include <string>

#include "normal_form.h"

namespace tvm_fixes::relay {

/*! \brief The attribute of tail-recursive functions that nest only few calls. */
constexpr const char* kFlattened = "flattened";

/*! \brief Whether values of a type are tensors, or tuples of them. */
bool IsFirstOrder(const Type& type);
/*! \brief The same for the inferred type of an expression. */
bool IsFirstOrder(const Expr& expr);

/*! \brief A new variable of the inferred type of an expression. */
Var NewVar(const std::string& name, const Expr& like);

/*! \brief A name that no function has. */
std::string UnusedName(const Map<String, Function>& functions, const std::string& wanted);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_TRANSFORM_RECURSION_H_
