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
 * \file src/relax/ir/mutator.h
 * \brief Rewriting of Relax functions.
 */
#ifndef TVM_FIXES_RELAX_IR_MUTATOR_H_
#define TVM_FIXES_RELAX_IR_MUTATOR_H_

#include <unordered_map>
#include <vector>

#include "views.h"

namespace tvm_fixes {

using tvm::ffi::ObjectPtrEqual;
using tvm::ffi::ObjectPtrHash;

/*! \brief Whether an expression is a variable of a dataflow block, or a tuple that has one. */
bool HoldsDataflowVar(const ObjectRef& expr);

/*!
 * \brief Rewrites a function binding by binding, in the order of evaluation.
 *
 * What does not change comes back as the same object, up to the whole function. A call whose
 * arguments change has its type inferred anew, and where that differs, the variable is replaced
 * by one of the new type, in all uses that follow. A variable that is not a tensor or a tuple
 * is never replaced: shapes and types may name it.
 *
 * A pass overrides RewriteValue for a rewrite of one value, or RewriteBinding for one that
 * drops a binding or emits others.
 */
class Mutator {
 public:
  /*! \param mod The module of the functions to rewrite, for the types of what they call. */
  explicit Mutator(const ObjectRef& mod);
  virtual ~Mutator() = default;

  /*! \brief Rewrite a Relax function; anything else comes back as it is. */
  ObjectRef Rewrite(const ObjectRef& function);

 protected:
  /*! \brief `expr` with variables replaced and what it holds rewritten. */
  ObjectRef RewriteExpr(const ObjectRef& expr);

  /*!
   * \brief The hook for one value, after what it holds was rewritten.
   *
   * It is not called for a value that is bound under another type than its own: the binding states
   * something that the value does not.
   * \return The value to bind: `value` itself if nothing is to change.
   */
  virtual ObjectRef RewriteValue(const ObjectRef& value) { return value; }

  /*! \brief The hook for a shape, a scalar, or a variable that nothing replaces. */
  virtual ObjectRef RewriteLeaf(const ObjectRef& leaf) { return leaf; }

  /*! \brief The hook for a type that a binding, a parameter or an argument states. */
  virtual ObjectRef RewriteType(const ObjectRef& type) { return type; }

  /*! \brief The hook around a branch of an If, which has no parameters, and a function's body. */
  virtual ObjectRef RewriteScope(const Array<ObjectRef>& /*params*/, const ObjectRef& body) {
    return RewriteExpr(body);
  }

  /*! \brief The hook that infers the type of a call whose operands changed. */
  virtual ObjectRef InferCall(const CallView& original, const ObjectRef& call);

  /*! \brief Rewrite one binding of the current block and emit what takes its place. */
  virtual void RewriteBinding(const BindingView& binding);

  /*! \brief What a variable was bound to by this mutator, null if it did not see the binding. */
  ObjectRef BoundValue(const ObjectRef& var) const;

  /*!
   * \brief As BoundValue; null also if the value names something that is out of scope where `var`
   * is read.
   *
   * The outputs of a dataflow block may be read after the block, where its other values are not.
   */
  ObjectRef ValueInScope(const ObjectRef& var) const;

  /*! \brief Bind a new variable to `value` in the current block; returns the variable. */
  ObjectRef Emit(const ObjectRef& value);

  /*! \brief Bind the variable of `original`, or one that replaces it, to `value` in the current
   * block; a MatchCast becomes a VarBinding. */
  void EmitVarBinding(const BindingView& original, const ObjectRef& value);

  /*! \brief Check, in the current block, that `value` is of type `ty`; returns the variable. */
  ObjectRef EmitMatchCast(const String& name, const ObjectRef& value, const ObjectRef& ty);

  /*! \brief Read `value` instead of `var` from here on. */
  void Replace(const ObjectRef& var, const ObjectRef& value) {
    replacement_.insert_or_assign(var, value);
  }

  /*!
   * \brief Rewrite a branch and put its blocks into the current sequence, at the current place.
   *
   * The current block must not be a dataflow block: it ends before them, and a new one begins after
   * them.
   * \return What the branch evaluates to.
   */
  ObjectRef Splice(const ObjectRef& branch);

  /*! \brief Whether there is a block that a binding can be emitted to. */
  bool in_block() const { return in_block_; }

  /*! \brief Whether the current block is a dataflow block, in which every value is pure. */
  bool in_dataflow_block() const { return in_dataflow_block_; }

  /*! \brief The builder that infers types. */
  const ObjectRef& builder() const { return builder_; }

 private:
  ObjectRef RewriteCall(const CallView& call);
  ObjectRef RewriteIf(const IfView& if_expr);
  ObjectRef RewriteSeqExpr(const SeqExprView& seq);
  /*! \brief Rewrite a block and append what it becomes to the current sequence. */
  void RewriteBlock(const BlockView& block);
  void RewriteMatchCast(const BindingView& binding);
  Array<ObjectRef> RewriteParams(const Array<ObjectRef>& params);
  /*! \brief Whether uses of `var` can read `value` instead. */
  bool CanReplace(const VarView& var, const ObjectRef& value) const;
  Array<ObjectRef> RewriteAll(const Array<ObjectRef>& exprs);
  /*! \brief Append a binding to the current block. */
  void Append(const ObjectRef& binding);
  /*! \brief A variable like `var`, of type `ty`, that takes its place. */
  ObjectRef Retype(const VarView& var, const ObjectRef& ty);

  ObjectRef builder_;
  /*! \brief What to read instead of a variable. */
  std::unordered_map<ObjectRef, ObjectRef, ObjectPtrHash, ObjectPtrEqual> replacement_;
  /*! \brief The bindings emitted so far, by variable. */
  std::unordered_map<ObjectRef, ObjectRef, ObjectPtrHash, ObjectPtrEqual> bound_;
  /*! \brief The blocks of the current sequence, and the bindings of the block after them. */
  std::vector<ObjectRef> blocks_;
  std::vector<ObjectRef> bindings_;
  bool in_block_ = false;
  bool in_dataflow_block_ = false;
};

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_IR_MUTATOR_H_
