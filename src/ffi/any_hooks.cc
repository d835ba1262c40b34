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
 * \file src/ffi/any_hooks.cc
 * \brief The hash and the equality of ir.PrimType, as functions that every tvm-ffi can call.
 *
 * Trigger: apache-tvm-ffi 0.1.15 or newer, with a TVM that was built with an older one, and any
 * map or set of tvm-ffi's library that has a PrimType as a key.
 * Mechanism: TVM registers raw C++ functions under "__any_hash__" and "__any_equal__". Older
 * versions of tvm-ffi expect an integer of them, newer ones a TVMFFIAny, and free what they find in
 * its place. A function object serves both, so the raw functions are wrapped.
 * Removal: when the supported wheels of TVM are built with apache-tvm-ffi 0.1.15 or newer.
 */
#include <tvm/ffi/any.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/function.h>

#include <cstring>
#include <new>
#include <utility>

#include "registration.h"

namespace tvm_fixes {
namespace {

using tvm::ffi::Any;

/*! \brief The two registers in which a function returns; an integer takes only the first. */
struct Registers {
  int64_t first;
  int64_t second;
};
static_assert(sizeof(Registers) == sizeof(TVMFFIAny));

/*! \brief The raw function that a type has under a name; null if there is none. */
TVMFFIAny* FindRawFunction(const char* name, int32_t type_index) {
  const TVMFFIByteArray key{name, std::strlen(name)};
  const TVMFFITypeAttrColumn* column = TVMFFIGetTypeAttrColumn(&key);
  if (column == nullptr) return nullptr;
  const int32_t offset = type_index - column->begin_index;
  if (offset < 0 || offset >= column->size) return nullptr;
  // The table has no way to replace an entry.
  auto* attr = const_cast<TVMFFIAny*>(column->data + offset);
  return attr->type_index == kTVMFFIOpaquePtr ? attr : nullptr;
}

/*! \brief Replace a raw function, which owns nothing. */
void Replace(TVMFFIAny* attr, Function function) {
  static_assert(sizeof(Any) == sizeof(TVMFFIAny));
  new (attr) Any(std::move(function));
}

TVM_FIXES_INIT_BLOCK() {
  static const GlobalFunction prim_type("ir.PrimType");
  const Any type = prim_type(DLDataType{kDLFloat, 32, 1});
  TVMFFIAny* hash_attr = FindRawFunction("__any_hash__", type.type_index());
  TVMFFIAny* equal_attr = FindRawFunction("__any_equal__", type.type_index());
  if (hash_attr == nullptr || equal_attr == nullptr) return;
  // A newer TVM returns a TVMFFIAny with an integer; an integer of that value is no type's hash.
  if (reinterpret_cast<Registers (*)(const Any&)>(hash_attr->v_ptr)(type).first == kTVMFFIInt) {
    return;
  }
  auto* hash = reinterpret_cast<int64_t (*)(const Any&)>(hash_attr->v_ptr);
  auto* equal = reinterpret_cast<bool (*)(const Any&, const Any&)>(equal_attr->v_ptr);
  Replace(hash_attr, Function::FromTyped([hash](const Any& value) { return hash(value); }));
  Replace(equal_attr, Function::FromTyped([equal](const Any& left, const Any& right) {
            return equal(left, right);
          }));
}

}  // namespace
}  // namespace tvm_fixes
