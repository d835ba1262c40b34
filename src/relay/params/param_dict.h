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
 * \file src/relay/params/param_dict.h
 * \brief The files of parameters that TVM's save_param_dict writes.
 */
#ifndef TVM_FIXES_RELAY_PARAMS_PARAM_DICT_H_
#define TVM_FIXES_RELAY_PARAMS_PARAM_DICT_H_

#include <string>
#include <string_view>

#include "../ir/object.h"

namespace tvm_fixes::relay {

/*!
 * \brief Read tensors by name, in the order of the file.
 * \throws RelayError with the offset in the file if it is malformed; counts and sizes are checked
 *         against the bytes present before anything is allocated.
 */
Map<String, Tensor> ReadParams(std::string_view data);

/*! \brief Write tensors on the CPU in the same form. */
std::string WriteParams(const Map<String, Tensor>& params);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_PARAMS_PARAM_DICT_H_
