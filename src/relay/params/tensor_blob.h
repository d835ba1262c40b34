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
 * \file src/relay/params/tensor_blob.h
 * \brief Tensors as TVM saves them, and base64.
 */
#ifndef TVM_FIXES_RELAY_PARAMS_TENSOR_BLOB_H_
#define TVM_FIXES_RELAY_PARAMS_TENSOR_BLOB_H_

#include <string>
#include <string_view>

#include "../ir/object.h"

namespace tvm_fixes::relay {

/*!
 * \brief Read one tensor: magic number, device, dtype, shape, size, elements.
 * \param data The bytes from the tensor's first byte on.
 * \param used The number of bytes that the tensor has.
 * \throws RelayError if the declared sizes do not fit each other or the bytes present; nothing is
 *         allocated then.
 */
Tensor ReadTensor(std::string_view data, size_t* used);

/*! \brief Append a tensor on the CPU in the same form. */
void WriteTensor(const Tensor& tensor, std::string* out);

/*!
 * \brief Decode base64; white space is skipped.
 * \throws RelayError at any other character.
 */
std::string DecodeBase64(std::string_view text);

std::string EncodeBase64(std::string_view bytes);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_PARAMS_TENSOR_BLOB_H_
