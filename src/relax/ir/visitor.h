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
 * \file src/relax/ir/visitor.h
 * \brief Visits Relax expressions in evaluation order.
 */
#ifndef TVM_FIXES_RELAX_IR_VISITOR_H_
#define TVM_FIXES_RELAX_IR_VISITOR_H_

#include "views.h"

namespace tvm_fixes {

/*!
 * \brief Visits every expression of a function where it occurs.
 *
 * A variable is passed to VisitVarDef where it is bound and to VisitVarUse where it is read. Types
 * and scalar (TIR) expressions are not entered. Null nodes and nodes of unknown classes are
 * skipped.
 */
class Visitor {
 public:
  virtual ~Visitor() = default;

  void VisitExpr(const ObjectRef& expr);

 protected:
  virtual void VisitVarDef(const VarView& /*var*/) {}
  virtual void VisitVarUse(const VarView& /*var*/) {}
  virtual void VisitConstant(const ConstantView& /*constant*/) {}
  virtual void VisitCall(const CallView& call);
  virtual void VisitTuple(const TupleView& tuple);
  virtual void VisitTupleGetItem(const TupleGetItemView& get_item);
  virtual void VisitIf(const IfView& if_expr);
  virtual void VisitSeqExpr(const SeqExprView& seq);
  virtual void VisitFunction(const FunctionView& function);
  virtual void VisitBlock(const BlockView& block);
  virtual void VisitBinding(const BindingView& binding);
};

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_IR_VISITOR_H_
