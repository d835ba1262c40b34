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
 * \file src/relay/transform/dead_code.h
 * \brief Removes code that no result depends on.
 */
#ifndef TVM_FIXES_RELAY_TRANSFORM_DEAD_CODE_H_
#define TVM_FIXES_RELAY_TRANSFORM_DEAD_CODE_H_

#include <string>
#include <unordered_set>

#include "../ir/visitor.h"

namespace tvm_fixes::relay {

/*! \brief The effects on references of evaluating each expression of a module. */
class EffectAnalysis {
 public:
  explicit EffectAnalysis(const IRModule& module);

  /*! \brief Add the expressions of a function; each pass that asks about them calls this first. */
  void Visit(const Function& function);
  /*! \brief Whether a reference may be written. */
  bool MayWrite(const Expr& expr) const { return writes_.count(expr.get()) != 0; }
  /*! \brief Whether a reference may be created, read or written, so that the order matters. */
  bool IsOrdered(const Expr& expr) const { return ordered_.count(expr.get()) != 0; }

 private:
  bool has_references_ = false;
  bool has_writes_ = false;
  std::unordered_set<const Object*> writes_;
  std::unordered_set<const Object*> ordered_;
};

/*!
 * \brief Remove the bindings of variables that nothing uses.
 *
 * Before, `let %a = f(%x); %x` computes a value that is not used. After, it is `%x`; a binding
 * whose value may write a reference is kept.
 */
IRModule DeadCodeElimination(const IRModule& module);

/*! \brief Remove only the bindings of unused constants. */
IRModule RemoveUnusedConstants(const IRModule& module);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_TRANSFORM_DEAD_CODE_H_
