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
 * \file src/relay/ir/visitor.h
 * \brief Walks and rewrites of expressions of any depth, without recursion.
 */
#ifndef TVM_FIXES_RELAY_IR_VISITOR_H_
#define TVM_FIXES_RELAY_IR_VISITOR_H_

#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "module.h"

namespace tvm_fixes::relay {

/*!
 * \brief Call a function on each direct child of an expression, in the order of evaluation.
 *
 * Children include the body of a function, both branches and the clauses. Variables are visited
 * where they are used, not where they are bound.
 */
template <typename F>
void ForEachChild(const Expr& node, F visit) {
  if (const auto* call = node.as<CallObj>()) {
    visit(call->op);
    for (const Expr& arg : call->args) visit(arg);
  } else if (const auto* tuple = node.as<TupleObj>()) {
    for (const Expr& field : tuple->fields) visit(field);
  } else if (const auto* item = node.as<TupleGetItemObj>()) {
    visit(item->tuple);
  } else if (const auto* let = node.as<LetObj>()) {
    visit(let->value);
    visit(let->body);
  } else if (const auto* function = node.as<FunctionObj>()) {
    visit(function->body);
  } else if (const auto* branch = node.as<IfObj>()) {
    visit(branch->cond);
    visit(branch->true_branch);
    visit(branch->false_branch);
  } else if (const auto* match = node.as<MatchObj>()) {
    visit(match->data);
    for (const Clause& clause : match->clauses) visit(clause->rhs);
  } else if (const auto* create = node.as<RefCreateObj>()) {
    visit(create->value);
  } else if (const auto* read = node.as<RefReadObj>()) {
    visit(read->ref);
  } else if (const auto* write = node.as<RefWriteObj>()) {
    visit(write->ref);
    visit(write->value);
  }
}

/*!
 * \brief Call a function once on each expression below the root and on the root, operands first.
 */
void PostOrder(const Expr& root, const std::function<void(const Expr&)>& visit);

/*! \brief The variables that a pattern binds. */
void ForEachPatternVar(const Pattern& pattern, const std::function<void(const Var&)>& visit);

/*! \brief The variables that are used but not bound within an expression, in order of use. */
std::vector<Var> FreeVars(const Expr& expr);

/*!
 * \brief Rewrites expressions, operands first; a shared node is rewritten once.
 *
 * A subclass overrides Rewrite, or MutateVar to replace variables where they are bound and used.
 */
class ExprMutator {
 public:
  virtual ~ExprMutator() = default;

  Expr Mutate(const Expr& root);
  Function MutateFunction(const Function& function);

 protected:
  /*!
   * \brief The replacement of a node.
   * \param original The node as it was.
   * \param rebuilt The node over the replacements of its operands; the original if none changed.
   */
  virtual Expr Rewrite(const Expr& original, const Expr& rebuilt);
  /*! \brief The replacement of a variable; called once for each. */
  virtual Var MutateVar(const Var& var);
  /*! \brief Whether to leave an expression and all expressions below it unchanged. */
  virtual bool Skip(const Expr& expr);

 private:
  Expr Rebuild(const Expr& expr);
  Expr RebuildBinder(const Expr& expr);
  Expr Find(const Expr& expr) const;
  Var Replacement(const Var& var);
  Pattern MutatePattern(const Pattern& pattern);

  std::unordered_map<const Object*, Expr> memo_;
  /*! \brief Keeps the keys of the memo alive. */
  std::vector<Expr> originals_;
};

/*! \brief Replace variables by expressions, where they are used and free. */
Expr Substitute(const Expr& expr, const std::unordered_map<const Object*, Expr>& replacements);

/*!
 * \brief A copy in which each bound variable is new.
 *
 * A function that is inlined twice must not bind the same variables twice.
 */
Expr CopyWithNewVars(const Expr& expr);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_IR_VISITOR_H_
