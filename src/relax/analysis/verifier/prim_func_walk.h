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
 * \brief The walk over a PrimFunc that finds what its accesses reach.
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

/*! \brief Visits what runs at every call of a PrimFunc whose loops run. */
class Walk {
 public:
  Walk(DimTable* dims, const Path& path) : dims_(dims), nest_(dims), path_(path) {}

  PrimFuncReaches Run(const Object* function, const DimTable::Substitution& values);

 private:
  /*! \brief One step from the function's body to the node that is visited. */
  struct Step {
    const char* attr;
    size_t index;
  };

  class At {
   public:
    At(Walk* walk, const char* attr) : At(walk, Step{attr, 0}) {}
    At(Walk* walk, size_t index) : At(walk, Step{nullptr, index}) {}
    ~At() { steps_->pop_back(); }
    At(const At&) = delete;
    At& operator=(const At&) = delete;

   private:
    At(Walk* walk, Step step) : steps_(&walk->steps_) { steps_->push_back(step); }
    std::vector<Step>* steps_;
  };

  /*! \brief Marks what is visited meanwhile as conditional, if it is. */
  class Under {
   public:
    Under(Walk* walk, bool is_conditional) : walk_(walk), before_(walk->is_conditional_) {
      walk->is_conditional_ |= is_conditional;
      walk->found_.may_vary |= is_conditional;
    }
    ~Under() { walk_->is_conditional_ = before_; }
    Under(const Under&) = delete;
    Under& operator=(const Under&) = delete;

   private:
    Walk* walk_;
    bool before_;
  };

  /*! \brief What is visited meanwhile runs where a condition is met. */
  class Where {
   public:
    Where(Walk* walk, Condition condition) : conditions_(&walk->conditions_) {
      conditions_->push_back(std::move(condition));
      walk->found_.may_vary = true;
    }
    ~Where() { conditions_->pop_back(); }
    Where(const Where&) = delete;
    Where& operator=(const Where&) = delete;

   private:
    std::vector<Condition>* conditions_;
  };

  using Handler = void (Walk::*)(const Object* node);
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

  /*! \brief Visit what runs where a condition is `expected`, unless it never is. */
  template <typename Visitor>
  void VisitWhere(const ObjectRef& condition, bool expected, Visitor visit);

  /*! \brief Visit the second operand of a logical operation whose first is `expected`. */
  void VisitAfter(const ObjectRef& first, bool expected, const std::function<void()>& visit,
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

  /*! \brief Give an iterator its value; true if it stands for a loop over its domain instead. */
  bool BindIterator(const Object* iter_var, const ObjectRef& value);
  void VisitAccess(Reach::Kind kind, const Object* buffer, const Array<ObjectRef>& indices);
  /*! \brief Hold a range that lies outside; where it was proved to lie is returned. */
  Place Hold(Reach::Kind kind, const Object* var, const IndexReach& reach);
  /*! \brief As Hold, for the iterations of the loops that meet the conditions. */
  Place HoldUnderConditions(Reach::Kind kind, const Object* var, const IndexReach& reach);
  void Report(Reach::Kind kind, const Object* var, const IndexReach& reach, bool is_certain);
  Path CurrentPath() const;

  DimTable* dims_;
  LoopNest nest_;
  Path path_;
  PrimFuncReaches found_;
  std::vector<Step> steps_;
  size_t num_visited_ = 0;
  bool is_conditional_ = false;
  /*! \brief What else must hold for what is visited to run: conditions that the loops neither prove
   * nor disprove. */
  std::vector<Condition> conditions_;
  /*! \brief Whether some statement may keep others from running, or is not known. */
  bool has_jump_ = false;
  std::set<std::tuple<const Object*, size_t, DimId, DimId, DimId>> held_;
  CallEffects effects_;
};

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_PRIM_FUNC_WALK_H_
