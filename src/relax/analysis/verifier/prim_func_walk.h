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
 * \file src/relax/analysis/verifier/prim_func_walk.h
 * \brief Walks a PrimFunc and collects its out-of-bounds accesses.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_VERIFIER_PRIM_FUNC_WALK_H_
#define TVM_FIXES_RELAX_ANALYSIS_VERIFIER_PRIM_FUNC_WALK_H_

#include <cstdint>
#include <functional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "../../../ffi/tir_nodes.h"
#include "call_effect.h"
#include "prim_func.h"
#include "prim_func_access.h"

namespace tvm_fixes {
namespace verifier {

/*! \brief Visits the code that runs at every call of a PrimFunc whose loops run. */
class PrimFuncWalk {
 public:
  PrimFuncWalk(DimTable* dims, const Path& path) : dims_(dims), nest_(dims), path_(path) {}

  PrimFuncReaches Run(const Object* function, const DimTable::Substitution& values);

 private:
  /*! \brief One step of the path from the function's body to the visited node. */
  struct Step {
    const char* attr;
    size_t index;
  };

  class At {
   public:
    At(PrimFuncWalk* walk, const char* attr) : At(walk, Step{attr, 0}) {}
    At(PrimFuncWalk* walk, size_t index) : At(walk, Step{nullptr, index}) {}
    ~At() { steps_->pop_back(); }
    At(const At&) = delete;
    At& operator=(const At&) = delete;

   private:
    At(PrimFuncWalk* walk, Step step) : steps_(&walk->steps_) { steps_->push_back(step); }
    std::vector<Step>* steps_;
  };

  /*! \brief RAII scope: marks nodes visited within it as conditional if `is_conditional`. */
  class ConditionalScope {
   public:
    ConditionalScope(PrimFuncWalk* walk, bool is_conditional)
        : walk_(walk), before_(walk->is_conditional_) {
      walk->is_conditional_ |= is_conditional;
      walk->found_.may_vary |= is_conditional;
    }
    ~ConditionalScope() { walk_->is_conditional_ = before_; }
    ConditionalScope(const ConditionalScope&) = delete;
    ConditionalScope& operator=(const ConditionalScope&) = delete;

   private:
    PrimFuncWalk* walk_;
    bool before_;
  };

  /*! \brief RAII scope: nodes visited within it run only where `condition` is met. */
  class ConditionScope {
   public:
    ConditionScope(PrimFuncWalk* walk, Condition condition) : conditions_(&walk->conditions_) {
      conditions_->push_back(std::move(condition));
      walk->found_.may_vary = true;
    }
    ~ConditionScope() { conditions_->pop_back(); }
    ConditionScope(const ConditionScope&) = delete;
    ConditionScope& operator=(const ConditionScope&) = delete;

   private:
    std::vector<Condition>* conditions_;
  };

  using Handler = void (PrimFuncWalk::*)(const Object* node);
  using Handlers = std::unordered_map<int32_t, Handler>;
  static const Handlers& StmtHandlers();
  static const Handlers& ExprHandlers();

  void AddSymbols(const Array<ObjectRef>& params);
  void AddSymbol(const Object* var);
  bool MayVisit(const ObjectRef& node);
  void Visit(const ObjectRef& stmt);
  void Visit(const ObjectRef& stmt, const char* attr);
  void VisitExpr(const ObjectRef& expr);
  void VisitExpr(const ObjectRef& expr, const char* attr);
  void VisitExprs(const Array<ObjectRef>& exprs, const char* attr);

  /*! \brief Visit code that runs only where a condition has the value `expected`. */
  template <typename Visitor>
  void VisitWhere(const ObjectRef& condition, bool expected, Visitor visit);

  /*!
   * \brief Visit the second operand of a logical operation, evaluated if the first is `expected`.
   */
  void VisitSecondOperand(const ObjectRef& first, bool expected, const std::function<void()>& visit,
                          size_t depth);

  void VisitNothing(const Object*) {}
  void VisitSeq(const Object* node);
  void VisitFor(const Object* node);
  void VisitIf(const Object* node);
  void VisitWhile(const Object* node);
  void VisitBind(const Object* node);
  void VisitAttr(const Object* node);
  void VisitEvaluate(const Object* node);
  void VisitStore(const Object* node);
  void VisitBlockRealize(const Object* node);
  void VisitBlock(const Object* node);

  template <BinaryOpNode TirNodes::* layout>
  void VisitBinary(const Object* node);
  template <BinaryOpNode TirNodes::* layout>
  void VisitLogical(const Object* node);
  void VisitNot(const Object* node);
  void VisitBitwiseNot(const Object* node);
  void VisitCast(const Object* node);
  void VisitRamp(const Object* node);
  void VisitShuffle(const Object* node);
  void VisitBroadcast(const Object* node);
  void VisitSelect(const Object* node);
  void VisitLet(const Object* node);
  void VisitLoad(const Object* node);
  void VisitCall(const Object* node);

  /*!
   * \brief Bind an iterator to its value; true if it was entered as a loop over its domain instead.
   */
  bool BindIterator(const Object* iter_var, const ObjectRef& value);
  void VisitAccess(Reach::Kind kind, const Object* buffer, const Array<ObjectRef>& indices);
  /*! \brief Record a range that may be out of bounds. Returns its proven placement. */
  Place RecordIfOutside(Reach::Kind kind, const Object* var, const IndexReach& reach);
  /*! \brief Like RecordIfOutside, restricted to the iterations that meet the conditions. */
  Place RecordUnderConditions(Reach::Kind kind, const Object* var, const IndexReach& reach);
  void Report(Reach::Kind kind, const Object* var, const IndexReach& reach, bool is_certain);
  Path CurrentPath() const;

  DimTable* dims_;
  LoopNest nest_;
  Path path_;
  PrimFuncReaches found_;
  std::vector<Step> steps_;
  size_t num_visited_ = 0;
  bool is_conditional_ = false;
  /*! \brief The conditions on the visited node that the loops neither prove nor disprove. */
  std::vector<Condition> conditions_;
  /*! \brief Whether a jump or an unknown statement may keep later statements from running. */
  bool has_jump_ = false;
  std::set<std::tuple<const Object*, size_t, DimId, DimId, DimId>> reported_;
  CallEffects effects_;
};

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_PRIM_FUNC_WALK_H_
