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
 * \file src/relay/ir/type_text.h
 * \brief Types as text, as the parser reads them.
 */
#ifndef TVM_FIXES_RELAY_IR_TYPE_TEXT_H_
#define TVM_FIXES_RELAY_IR_TYPE_TEXT_H_

#include <string>

#include "type.h"

namespace tvm_fixes::relay {

/*! \brief A type such as "Tensor[(1, ?), float32]"; "..." replaces the text beyond the limit. */
std::string TypeText(const Type& type, size_t limit = 1000);

/*! \brief "[A, n: Shape]", or an empty string. */
std::string TypeParamsText(const Array<ObjectRef>& params);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_IR_TYPE_TEXT_H_
