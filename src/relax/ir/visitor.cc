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
 * \file src/relax/ir/visitor.cc
 * \brief Visits Relax expressions in evaluation order.
 */
#include "visitor.h"

namespace tvm_fixes {

void Visitor::VisitExpr(const ObjectRef& expr) {
  const Object* node = expr.get();
  switch (KindOf(node)) {
    case Kind::kVar:
    case Kind::kDataflowVar:
      return VisitVarUse(VarView(node));
    case Kind::kConstant:
      return VisitConstant(ConstantView(node));
    case Kind::kCall:
      return VisitCall(CallView(node));
    case Kind::kTuple:
      return VisitTuple(TupleView(node));
    case Kind::kTupleGetItem:
      return VisitTupleGetItem(TupleGetItemView(node));
    case Kind::kIf:
      return VisitIf(IfView(node));
    case Kind::kSeqExpr:
      return VisitSeqExpr(SeqExprView(node));
    case Kind::kFunction:
      return VisitFunction(FunctionView(node));
    default:
      return;
  }
}

void Visitor::VisitCall(const CallView& call) {
  VisitExpr(call.op());
  if (!call.args().defined()) return;
  for (const ObjectRef& arg : call.args()) VisitExpr(arg);
}

void Visitor::VisitTuple(const TupleView& tuple) {
  if (!tuple.fields().defined()) return;
  for (const ObjectRef& field : tuple.fields()) VisitExpr(field);
}

void Visitor::VisitTupleGetItem(const TupleGetItemView& get_item) {
  VisitExpr(get_item.tuple_value());
}

void Visitor::VisitIf(const IfView& if_expr) {
  VisitExpr(if_expr.cond());
  VisitExpr(if_expr.true_branch());
  VisitExpr(if_expr.false_branch());
}

void Visitor::VisitSeqExpr(const SeqExprView& seq) {
  if (seq.blocks().defined()) {
    for (const ObjectRef& block : seq.blocks()) {
      if (auto view = As<BlockView>(block)) VisitBlock(*view);
    }
  }
  VisitExpr(seq.body());
}

void Visitor::VisitFunction(const FunctionView& function) {
  if (function.params().defined()) {
    for (const ObjectRef& param : function.params()) {
      if (auto var = As<VarView>(param)) VisitVarDef(*var);
    }
  }
  VisitExpr(function.body());
}

void Visitor::VisitBlock(const BlockView& block) {
  if (!block.bindings().defined()) return;
  for (const ObjectRef& binding : block.bindings()) {
    if (auto view = As<BindingView>(binding)) VisitBinding(*view);
  }
}

void Visitor::VisitBinding(const BindingView& binding) {
  VisitExpr(binding.value());
  if (auto var = As<VarView>(binding.var())) VisitVarDef(*var);
}

}  // namespace tvm_fixes
