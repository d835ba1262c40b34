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
 * \file src/relax/op/layout_guards.h
 * \brief Layout guards of operators whose rules in TVM are wrong in some layouts.
 *
 * Trigger: ConvertLayout of a model in which a converted value reaches one of these operators.
 * Mechanism: TVM's rules accept layouts that the operator, its type inference or its lowering do
 * not support; see the files that include this one.
 *
 * A guard replaces TVM's rule where that is wrong. It follows the layout if it can, and restores
 * the original layouts otherwise.
 *
 * Removal: delete this file, layout_guards.cc and the files *_guard.cc once the probe passes on
 * the oldest TVM that is supported.
 */
#ifndef TVM_FIXES_RELAX_OP_LAYOUT_GUARDS_H_
#define TVM_FIXES_RELAX_OP_LAYOUT_GUARDS_H_

#include <string>

#include "infer_layout.h"
#include "op_attr.h"

namespace tvm_fixes {

/*! \brief Infers the layouts of a call; null to use TVM's rule. */
using GuardRule = ObjectRef (*)(const CallView& call, const VarLayouts& var_layouts);

/*! \brief Like GuardRule, called only if the first argument is not in its original layout. */
using DataGuardRule = ObjectRef (*)(const CallView& call, const std::string& layout);

/*! \brief A rule that takes precedence over TVM's for one operator. Instances are file statics. */
class LayoutGuard {
 public:
  LayoutGuard(const char* op_name, GuardRule rule);
  LayoutGuard(const char* op_name, DataGuardRule rule);

  /*! \brief Enable all guards. */
  static void Register();

 private:
  ObjectRef Answer(const CallView& call, const VarLayouts& var_layouts) const;
  ObjectRef InferLayout(const ObjectRef& call_ref, const DesiredLayouts& desired_layouts,
                        const VarLayouts& var_layouts) const;

  StockOpAttr stock_;
  GuardRule rule_ = nullptr;
  DataGuardRule data_rule_ = nullptr;
};

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_OP_LAYOUT_GUARDS_H_
