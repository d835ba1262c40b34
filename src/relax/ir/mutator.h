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
 * \brief Rewrites Relax functions.
 */
#ifndef TVM_FIXES_RELAX_IR_MUTATOR_H_
#define TVM_FIXES_RELAX_IR_MUTATOR_H_

#include <unordered_map>
#include <vector>

#include "views.h"

namespace tvm_fixes {

using tvm::ffi::ObjectPtrEqual;
using tvm::ffi::ObjectPtrHash;

/*! \brief Whether an expression is a DataflowVar or a tuple that contains one. */
bool HoldsDataflowVar(const ObjectRef& expr);

/*!
 * \brief Rewrites a function binding by binding, in the order of evaluation.
 *
 * Unchanged nodes are returned as the same object, up to the whole function. The type of a call is
 * inferred again if its arguments change. If the type differs, a variable of the new type replaces
 * the old one in all later uses. Only tensor and tuple variables are replaced, since shapes and
 * types may refer to others.
 *
 * A pass overrides RewriteValue to rewrite single values, or RewriteBinding to drop a binding or
 * emit several.
 */
class Mutator {
 public:
  /*! \param mod The module of the functions to rewrite, for the types of their callees. */
  explicit Mutator(const ObjectRef& mod);
  virtual ~Mutator() = default;

  /*! \brief Rewrite a Relax function; return anything else unchanged. */
  ObjectRef Rewrite(const ObjectRef& function);

 protected:
  /*! \brief Replace the variables of `expr` and rewrite its parts. */
  ObjectRef RewriteExpr(const ObjectRef& expr);

  /*!
   * \brief The hook for one value, called after its parts were rewritten.
   *
   * It is not called if the bound variable has a type other than the value's, since the binding
   * then states more than the value.
   * \return The value to bind, `value` itself if unchanged.
   */
  virtual ObjectRef RewriteValue(const ObjectRef& value) { return value; }

  /*! \brief The hook for a shape, a scalar, or a variable that is not replaced. */
  virtual ObjectRef RewriteLeaf(const ObjectRef& leaf) { return leaf; }

  /*! \brief The hook for the type of a binding, a parameter or a type argument. */
  virtual ObjectRef RewriteType(const ObjectRef& type) { return type; }

  /*! \brief The hook around a function's body, or a branch of an If, which has no parameters. */
  virtual ObjectRef RewriteScope(const Array<ObjectRef>& /*params*/, const ObjectRef& body) {
    return RewriteExpr(body);
  }

  /*! \brief The hook that infers the type of a call whose operands changed. */
  virtual ObjectRef InferCall(const CallView& original, const ObjectRef& call);

  /*! \brief Rewrite one binding of the current block and emit its replacement. */
  virtual void RewriteBinding(const BindingView& binding);

  /*!
   * \brief The value that this mutator bound to a variable, null if it did not visit the binding.
   */
  ObjectRef BoundValue(const ObjectRef& var) const;

  /*!
   * \brief Like BoundValue, but null if the value uses variables that are out of scope where `var`
   * is read.
   *
   * A dataflow block's outputs may be read after the block, where its other variables are out of
   * scope.
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
   * \brief Rewrite a branch and splice its blocks into the current sequence.
   *
   * The current block must not be a dataflow block. It ends before the spliced blocks, and a new
   * one begins after them.
   * \return The value of the branch.
   */
  ObjectRef Splice(const ObjectRef& branch);

  /*! \brief Whether there is a current block to emit bindings to. */
  bool in_block() const { return in_block_; }

  /*! \brief Whether the current block is a dataflow block, in which every value is pure. */
  bool in_dataflow_block() const { return in_dataflow_block_; }

  /*! \brief The builder that infers types. */
  const ObjectRef& builder() const { return builder_; }

 private:
  ObjectRef RewriteCall(const CallView& call);
  ObjectRef RewriteIf(const IfView& if_expr);
  ObjectRef RewriteSeqExpr(const SeqExprView& seq);
  /*! \brief Rewrite a block and append the result to the current sequence. */
  void RewriteBlock(const BlockView& block);
  void RewriteMatchCast(const BindingView& binding);
  Array<ObjectRef> RewriteParams(const Array<ObjectRef>& params);
  /*! \brief Whether uses of `var` can read `value` instead. */
  bool CanReplace(const VarView& var, const ObjectRef& value) const;
  Array<ObjectRef> RewriteAll(const Array<ObjectRef>& exprs);
  /*! \brief Append a binding to the current block. */
  void Append(const ObjectRef& binding);
  /*! \brief Replace `var` by a variable of type `ty` and return it. */
  ObjectRef Retype(const VarView& var, const ObjectRef& ty);

  ObjectRef builder_;
  /*! \brief Replacements by variable. */
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
