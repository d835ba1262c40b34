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
 * \brief Access to TVM's operator attributes, and overrides of them.
 */
#ifndef TVM_FIXES_RELAX_OP_OP_ATTR_H_
#define TVM_FIXES_RELAX_OP_OP_ATTR_H_

#include <tvm/ffi/function.h>

#include <string>

#include "../../ffi/registration.h"

namespace tvm_fixes {

constexpr const char* kInferLayout = "FRelaxInferLayout";
constexpr const char* kInferType = "FInferType";

/*! \brief Override attribute `key` of operator `op_name`. */
void OverrideOpAttr(const char* op_name, const char* key, const Function& function);

/*! \brief TVM's original function for an operator attribute. Instances are file statics. */
class StockOpAttr : public Requirement {
 public:
  StockOpAttr(const char* op_name, const char* key) : op_name_(op_name), key_(key) {}

  std::string Bind() override;

  const char* op_name() const { return op_name_; }
  const char* key() const { return key_; }

  template <typename... Args>
  tvm::ffi::ObjectRef operator()(const Args&... args) const {
    return (*function_)(args...).template cast<tvm::ffi::ObjectRef>();
  }

 private:
  const char* op_name_;
  const char* key_;
  // Never released: at exit, TVM's table may be destroyed before this library.
  const Function* function_ = nullptr;
};

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_OP_ATTR_H_
