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
 * \file src/relax/transform/refresh_types.h
 * \brief Updates the types of GlobalVars to those of their functions.
 */
#ifndef TVM_FIXES_RELAX_TRANSFORM_REFRESH_TYPES_H_
#define TVM_FIXES_RELAX_TRANSFORM_REFRESH_TYPES_H_

#include "../../ffi/node_layout.h"

namespace tvm_fixes {

/*! \brief Update the types of all GlobalVars. Returns the module itself if none changes. */
ObjectRef RefreshTypes(const ObjectRef& mod);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_TRANSFORM_REFRESH_TYPES_H_
