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
 * \file src/relay/ir/object.h
 * \brief Common parts of the classes of the Relay IR.
 */
#ifndef TVM_FIXES_RELAY_IR_OBJECT_H_
#define TVM_FIXES_RELAY_IR_OBJECT_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/memory.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tvm_fixes::relay {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::make_object;
using tvm::ffi::Map;
using tvm::ffi::Object;
using tvm::ffi::ObjectPtr;
using tvm::ffi::ObjectRef;
using tvm::ffi::String;
using tvm::ffi::Tensor;

/*! \brief A place in a source text, counted from 1; zeros if there is none. */
struct Span {
  int32_t line = 0;
  int32_t column = 0;

  bool defined() const { return line > 0; }
  /*! \brief "line:column", or an empty string. */
  std::string str() const;
};

/*!
 * \brief Drop a reference without recursion into what it keeps alive.
 *
 * The destructor of a node passes its children here. The outermost call releases them in a loop, so
 * that a chain of a million nodes needs no deep stack.
 */
void ReleaseLater(ObjectRef reference);

/*! \brief Call ReleaseLater on each field that is set. */
template <typename... Fields>
void ReleaseFields(Fields&... fields) {
  (ReleaseLater(std::move(fields)), ...);
}

/*! \brief A shared empty container, which is copied when it is changed. */
const Array<ObjectRef>& EmptyArray();
const Map<String, Any>& EmptyMap();

/*! \brief Text from a file for a one-line message, with control characters escaped. */
std::string Printable(std::string_view text);

/*! \brief Throw RelayError, Python's tvm_fixes.errors.RelayError. */
[[noreturn]] void ThrowRelayError(const std::string& message);

/*! \brief The node of a reference if it has this class, else null. */
template <typename NodeType>
const NodeType* As(const ObjectRef& reference) {
  return reference.as<NodeType>();
}

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_IR_OBJECT_H_
