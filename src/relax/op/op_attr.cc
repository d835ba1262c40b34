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
 * \file src/relax/op/op_attr.cc
 * \brief Access to TVM's operator attributes, and overrides of them.
 */
#include "op_attr.h"

namespace tvm_fixes {

std::string StockOpAttr::Bind() {
  static const GlobalFunction get_op("ir.GetOp");
  static const GlobalFunction get_attr("ir.OpGetAttr");
  auto function = get_attr(get_op(op_name_), key_).try_cast<Function>();
  if (!function) return std::string(op_name_) + ": missing attribute " + key_;
  function_ = new Function(*std::move(function));
  return "";
}

void OverrideOpAttr(const char* op_name, const char* key, const Function& function) {
  // TVM registers its attributes at level 10, and each level can be used only once.
  constexpr int kLevel = 11;
  static const GlobalFunction register_attr("ir.RegisterOpAttr");
  register_attr(op_name, key, function, kLevel);
}

}  // namespace tvm_fixes
