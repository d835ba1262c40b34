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
 * \file src/relax/analysis/verifier/function_verifier.h
 * \brief The walk over a function: scopes, forms, and the types of values from the bottom up.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_VERIFIER_FUNCTION_VERIFIER_H_
#define TVM_FIXES_RELAX_ANALYSIS_VERIFIER_FUNCTION_VERIFIER_H_

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "verifier.h"

namespace tvm_fixes {
namespace verifier {

/*!
 * \brief Verifies one function of a module.
 *
 * Each finding is reported once: from there on the type that a variable states is trusted, so that
 * one wrong binding gives one error.
 */
class FunctionVerifier {
 public:
  explicit FunctionVerifier(Verifier* verifier) : verifier_(verifier) {}

  void Run(const FunctionView& function, const Path& path);

 private:
  // Scopes and forms (function_verifier.cc)
  /*! \return The memory from outside of the body that its result may be. */
  std::vector<const Object*> VisitBody(const ObjectRef& body, TypeId expected, const char* rule,
                                       const char* what, const Path& path);
  /*! \brief The memory of what was defined before `mark` that a result may be, or hold. */
  std::vector<const Object*> MemoryFromOutside(const Object* result, size_t mark);
  void VisitBlock(const ObjectRef& block, const Path& path);
  void VisitBinding(const ObjectRef& binding, const Path& path);
  void VisitMatchCast(const BindingView& binding, const KeptPath& path);
  /*! \brief TVM replaces a symbol of a cast's target by what is cast to it, wherever it is. */
  void CheckReplaced(TypeId target, TypeId actual, const DimTable::Substitution& known,
                     const Path& path);
  void VisitLocalFunction(const BindingView& binding, const FunctionView& function,
                          const KeptPath& path);
  void Define(const ObjectRef& var, const Object* value, const Path& path, const KeptPath& origin);
  void DefineSymbols(TypeId type, const Path& path);
  /*! \brief Treat a variable that was reported as defined, to report it only once. */
  void Poison(const Object* var, const Path& path);
  /*! \brief Record that a variable is this function's, and no other's. */
  void ClaimForFunction(const Object* var, const Path& path);
  /*! \brief The expression whose memory a value shares, null if it has its own. */
  const Object* SharedWith(const Object* value);
  /*! \brief Forget what was defined since `mark`. */
  void LeaveScope(size_t mark);

  // Values (values.cc)
  /*! \brief The type of a bound value, from its parts; kUnknownType if one is wrong. */
  TypeId TypeOfValue(const ObjectRef& value, const Path& path);
  /*! \brief The same for what may stand as an argument: a leaf, or a tuple of leaves. */
  TypeId TypeOfLeaf(const ObjectRef& leaf, const Path& path, int depth = 0);
  /*!
   * \brief The type of a variable without findings; nothing for other expressions.
   *
   * Most operands are such variables; their places need not be built.
   */
  std::optional<TypeId> TypeInScope(const Object* expr);
  TypeId TypeOfVar(const VarView& var, const Path& path);
  TypeId TypeOfConstant(const ConstantView& constant, const Path& path);
  TypeId TypeOfTuple(const TupleView& tuple, const Path& path, int depth);
  TypeId TypeOfGetItem(const TupleGetItemView& get_item, const Path& path);
  TypeId TypeOfGlobalVar(const Object* global_var, const Path& path);
  void VisitIf(const IfView& if_expr, const Path& path);
  /*! \brief The type that a node states, after a check of that type by itself. */
  TypeId StatedType(const ObjectRef& type, const Path& path);
  /*! \brief Check that the type that an expression states agrees with its parts. */
  TypeId CheckStated(const ObjectRef& expr, TypeId found, const char* rule, const Path& path);

  // Calls (calls.cc)
  TypeId TypeOfCall(const CallView& call, const Path& path);
  TypeId TypeOfOpCall(const CallView& call, std::vector<TypeId> args, const Path& path);
  TypeId TypeOfFunctionCall(const CallView& call, const std::vector<TypeId>& args,
                            const Path& path);
  bool CheckAttrs(const CallView& call, const OpInfo& op, const Path& path);
  void CheckPurity(bool callee_is_pure, const std::string& callee, const Path& path);

  DimTable& dims() { return verifier_->dims(); }
  TypeTable& types() { return verifier_->types(); }

  Verifier* verifier_;
  bool in_dataflow_block_ = false;
  /*! \brief Whether the function that is visited promises to have no effects. */
  bool must_be_pure_ = false;
  /*! \brief How many bodies the one that is visited is nested in. */
  int depth_ = 0;
  /*! \brief What is in scope, in the order of definition. */
  std::vector<const Object*> scope_;
  /*! \brief Memory that the result of the last If may share. */
  std::vector<const Object*> memory_of_if_;
  /*! \brief The types whose symbols were found in the present scope. */
  std::unordered_set<TypeId> types_in_scope_;
  /*! \brief The malformed types that were reported. */
  std::unordered_set<const Object*> reported_types_;
};

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_FUNCTION_VERIFIER_H_
