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
 * \file src/relax/analysis/count_operators.cc
 * \brief Counts the calls of each operator in a function, including branches and inner functions.
 */
#include <tvm/ffi/reflection/registry.h>

#include <unordered_map>

#include "../../ffi/registration.h"
#include "../ir/visitor.h"

namespace tvm_fixes {
namespace {

class OperatorCounter : public Visitor {
 public:
  std::unordered_map<const Object*, int64_t> counts;

 protected:
  void VisitCall(const CallView& call) override {
    const Object* op = call.op().get();
    if (nodes.op.IsInstance(op)) ++counts[op];
    Visitor::VisitCall(call);
  }
};

Map<String, int64_t> CountOperators(const ObjectRef& function) {
  OperatorCounter counter;
  counter.VisitExpr(function);
  Map<String, int64_t> by_name;
  for (const auto& [op, count] : counter.counts) by_name.Set(nodes.op.name(op), count);
  return by_name;
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.analysis.CountOperators", CountOperators);
}

}  // namespace
}  // namespace tvm_fixes
