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
 * \file src/relay/transform/fold_constant.h
 * \brief Computes values that are known at compile time.
 */
#ifndef TVM_FIXES_RELAY_TRANSFORM_FOLD_CONSTANT_H_
#define TVM_FIXES_RELAY_TRANSFORM_FOLD_CONSTANT_H_

#include <unordered_map>
#include <vector>

#include "../ir/visitor.h"
#include "evaluate.h"

namespace tvm_fixes::relay {

/*!
 * \brief Folds constants, and updates the types of rewritten expressions.
 *
 * A constant replaces a variable that a let binds to it. The binding itself is kept, because
 * unchanged branches may still use it.
 */
class Folder : public ExprMutator {
 public:
  explicit Folder(const Expr& root);

 protected:
  Expr Rewrite(const Expr& original, const Expr& rebuilt) override;
  /*! \brief The replacement of a call of an operator, or null to keep it. */
  virtual Expr RewriteOperator(const Call& call, const Array<Type>& arg_types);

 private:
  Expr Simplify(const Expr& original, const Expr& rebuilt);
  Expr SimplifyCall(const Call& call);
  Expr SimplifyItem(const TupleGetItem& item);
  Expr SimplifyIf(const Expr& original, const If& branch);
  Expr SimplifyMatch(const Expr& original, const Match& match);
  Type TypeOf(const Expr& expr) const;
  void UpdateType(const Expr& original, const Expr& result);

  ConstantFolder folder_;
  /*! \brief The variables that lets bind to a value. */
  std::unordered_map<const Object*, std::vector<Var>> bound_to_;
  /*! \brief Variables whose value is a constant or a tuple of constants and variables. */
  std::unordered_map<const Object*, Expr> known_;
  std::unordered_map<const Object*, Type> types_;
};

/*!
 * \brief Compute calls of operators on small constants, and the shapes of static tensors.
 *
 * Before, `add(1, 2)` is a call. After, it is the constant 3.
 */
IRModule FoldConstant(const IRModule& module);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_TRANSFORM_FOLD_CONSTANT_H_
