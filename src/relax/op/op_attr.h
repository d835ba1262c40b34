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
 * \file src/relax/op/op_attr.h
 * \brief Operator attributes: TVM's own, and ours in their place.
 */
#ifndef TVM_FIXES_RELAX_OP_OP_ATTR_H_
#define TVM_FIXES_RELAX_OP_OP_ATTR_H_

#include <tvm/ffi/function.h>

namespace tvm_fixes {

/*!
 * \brief The function that TVM registered as attribute `key` of operator `op_name`.
 * \return A reference that is never dropped; null if the operator has no such attribute.
 */
const tvm::ffi::Function* StockOpAttr(const char* op_name, const char* key);

/*! \brief Put a function in the place of TVM's attribute `key` of operator `op_name`. */
void OverrideOpAttr(const char* op_name, const char* key, const tvm::ffi::Function& function);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_OP_ATTR_H_
