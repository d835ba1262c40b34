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
 * \brief Walks a function: checks scopes and normal form, and infers types bottom-up.
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
 * After an error, the stated type of a variable is trusted, so that one wrong binding gives one
 * error.
 */
class FunctionVerifier {
 public:
  explicit FunctionVerifier(Verifier* verifier) : verifier_(verifier) {}

  void Run(const FunctionView& function, const Path& path);

 private:
  // Scopes and normal form (function_verifier.cc)
  /*! \return The memory from outside the body that its result may alias. */
  std::vector<const Object*> VisitBody(const ObjectRef& body, TypeId expected, const char* rule,
                                       const char* what, const Path& path);
  /*! \brief The memory, defined before `mark`, that a result may alias or contain. */
  std::vector<const Object*> MemoryFromOutside(const Object* result, size_t mark);
  void VisitBlock(const ObjectRef& block, const Path& path);
  void VisitBinding(const ObjectRef& binding, const Path& path);
  void VisitMatchCast(const BindingView& binding, const KeptPath& path);
  /*!
   * \brief Reject a cast whose target symbol occurs in the value: TVM would substitute it
   *        endlessly.
   */
  void CheckReplaced(TypeId target, TypeId actual, const DimTable::Substitution& known,
                     const Path& path);
  void VisitLocalFunction(const BindingView& binding, const FunctionView& function,
                          const KeptPath& path);
  void Define(const ObjectRef& var, const Object* value, const Path& path, const KeptPath& origin);
  void DefineSymbols(TypeId type, const Path& path);
  /*! \brief Treat an undefined variable as defined, to report it only once. */
  void Poison(const Object* var, const Path& path);
  /*! \brief Record that a variable belongs to this function only. */
  void ClaimForFunction(const Object* var, const Path& path);
  /*! \brief The expression that a value aliases, null if it has its own memory. */
  const Object* SharedWith(const Object* value);
  /*! \brief Drop the definitions since `mark`. */
  void LeaveScope(size_t mark);

  // Values (values.cc)
  /*! \brief Infer the type of a bound value from its parts; kUnknownType if one is wrong. */
  TypeId TypeOfValue(const ObjectRef& value, const Path& path);
  /*! \brief The same for a valid argument: a leaf, or a tuple of leaves. */
  TypeId TypeOfLeaf(const ObjectRef& leaf, const Path& path, int depth = 0);
  /*!
   * \brief The type of a variable without diagnostics, or std::nullopt for other expressions.
   *
   * Most operands are such variables, and need no path.
   */
  std::optional<TypeId> TypeInScope(const Object* expr);
  TypeId TypeOfVar(const VarView& var, const Path& path);
  TypeId TypeOfConstant(const ConstantView& constant, const Path& path);
  TypeId TypeOfTuple(const TupleView& tuple, const Path& path, int depth);
  TypeId TypeOfGetItem(const TupleGetItemView& get_item, const Path& path);
  TypeId TypeOfGlobalVar(const Object* global_var, const Path& path);
  void VisitIf(const IfView& if_expr, const Path& path);
  /*! \brief The stated type of a node, after checking the type itself. */
  TypeId StatedType(const ObjectRef& type, const Path& path);
  /*! \brief Check that an expression's stated type agrees with its parts. */
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
  /*! \brief Whether the visited function is declared pure. */
  bool must_be_pure_ = false;
  /*! \brief The nesting depth of the visited body. */
  int depth_ = 0;
  /*! \brief The variables in scope, in definition order. */
  std::vector<const Object*> scope_;
  /*! \brief The memory that the result of the last If may alias. */
  std::vector<const Object*> memory_of_if_;
  /*! \brief The types whose symbols have been checked in the current scope. */
  std::unordered_set<TypeId> types_in_scope_;
  /*! \brief The malformed types already reported. */
  std::unordered_set<const Object*> reported_types_;
};

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_FUNCTION_VERIFIER_H_
