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
 * \file src/relax/ir/substitution.h
 * \brief Substitutes scalar and shape variables in expressions and types.
 */
#ifndef TVM_FIXES_RELAX_IR_SUBSTITUTION_H_
#define TVM_FIXES_RELAX_IR_SUBSTITUTION_H_

#include <functional>
#include <unordered_map>

#include "views.h"

namespace tvm_fixes {

/*! \brief A map from scalar and shape variables to their replacements. */
class Substitution {
 public:
  /*! \param simplify Simplifies a scalar after substitution. */
  explicit Substitution(std::function<ObjectRef(const ObjectRef&)> simplify)
      : simplify_(std::move(simplify)) {}

  void Set(const ObjectRef& var, const ObjectRef& value) { values_.insert_or_assign(var, value); }

  /*!
   * \brief Substitute in a scalar, a shape or a type. Other nodes, and nodes without such
   *        variables, are returned unchanged.
   */
  ObjectRef operator()(const ObjectRef& node) const;

 private:
  ObjectRef InType(const ObjectRef& type) const;
  /*! \brief Substitute in a node of any class. */
  ObjectRef InNode(const ObjectRef& node) const;

  std::function<ObjectRef(const ObjectRef&)> simplify_;
  std::unordered_map<ObjectRef, ObjectRef, tvm::ffi::ObjectPtrHash, tvm::ffi::ObjectPtrEqual>
      values_;
};

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_IR_SUBSTITUTION_H_
