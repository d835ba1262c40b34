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
 * \file src/relax/ir/mutator.cc
 * \brief Rewrites Relax functions.
 */
#include "mutator.h"

#include <algorithm>
#include <utility>

#include "build.h"
#include "rewrite_each.h"

namespace tvm_fixes {

bool HoldsDataflowVar(const ObjectRef& expr) {
  auto tuple = As<TupleView>(expr);
  if (!tuple) return KindOf(expr.get()) == Kind::kDataflowVar;
  return std::any_of(tuple->fields().begin(), tuple->fields().end(), HoldsDataflowVar);
}

namespace {

bool IsSame(const std::vector<ObjectRef>& rewritten, const Array<ObjectRef>& original) {
  return original.defined() && rewritten.size() == original.size() &&
         std::equal(rewritten.begin(), rewritten.end(), original.begin(),
                    [](const ObjectRef& lhs, const ObjectRef& rhs) { return lhs.same_as(rhs); });
}

}  // namespace

Mutator::Mutator(const ObjectRef& mod) : builder_(MakeBlockBuilder(mod)) {}

ObjectRef Mutator::Rewrite(const ObjectRef& function) {
  auto view = As<FunctionView>(function);
  if (!view) return function;
  const Array<ObjectRef> params = RewriteParams(view->params());
  const ObjectRef body = RewriteScope(params, view->body());
  const ObjectRef ret_ty = RewriteType(view->ret_ty());
  if (params.same_as(view->params()) && body.same_as(view->body()) &&
      ret_ty.same_as(view->ret_ty())) {
    return function;
  }
  return MakeFunction(*view, params, body, ret_ty);
}

Array<ObjectRef> Mutator::RewriteParams(const Array<ObjectRef>& params) {
  return RewriteEach(params, [this](const ObjectRef& param) {
    const ObjectRef ty = RewriteType(TypeOf(param));
    if (!VarView::Is(param.get()) || ty.same_as(TypeOf(param))) return param;
    return Retype(VarView(param.get()), ty);
  });
}

ObjectRef Mutator::Retype(const VarView& var, const ObjectRef& ty) {
  // The span names the nodes of the original model that the variable stands for.
  const ObjectRef& span = nodes.expr.span(var.ref().get());
  ObjectRef fresh = MakeVar(var.name(), ty, var.is_dataflow(), span);
  replacement_.insert_or_assign(var.ref(), fresh);
  return fresh;
}

ObjectRef Mutator::RewriteExpr(const ObjectRef& expr) {
  const Object* node = expr.get();
  switch (KindOf(node)) {
    case Kind::kVar:
    case Kind::kDataflowVar: {
      auto it = replacement_.find(expr);
      return it == replacement_.end() ? RewriteLeaf(expr) : it->second;
    }
    case Kind::kCall:
      return RewriteCall(CallView(node));
    case Kind::kTuple: {
      const Array<ObjectRef>& fields = TupleView(node).fields();
      const Array<ObjectRef> new_fields = RewriteAll(fields);
      if (new_fields.same_as(fields)) return expr;
      return Normalize(builder_, MakeTuple(new_fields));
    }
    case Kind::kTupleGetItem: {
      const TupleGetItemView get_item(node);
      const ObjectRef tuple = RewriteExpr(get_item.tuple_value());
      if (tuple.same_as(get_item.tuple_value())) return expr;
      return Normalize(builder_, MakeTupleGetItem(tuple, get_item.index()));
    }
    case Kind::kIf:
      return RewriteIf(IfView(node));
    case Kind::kSeqExpr:
      return RewriteSeqExpr(SeqExprView(node));
    case Kind::kFunction:
      return Rewrite(expr);
    default:
      return RewriteLeaf(expr);
  }
}

Array<ObjectRef> Mutator::RewriteAll(const Array<ObjectRef>& exprs) {
  return RewriteEach(exprs, [this](const ObjectRef& expr) { return RewriteExpr(expr); });
}

ObjectRef Mutator::RewriteCall(const CallView& call) {
  const ObjectRef op = RewriteExpr(call.op());
  const Array<ObjectRef> args = RewriteAll(call.args());
  const Array<ObjectRef> ty_args =
      RewriteEach(call.ty_args(), [this](const ObjectRef& type) { return RewriteType(type); });
  if (op.same_as(call.op()) && args.same_as(call.args()) && ty_args.same_as(call.ty_args())) {
    return call.ref();
  }
  return InferCall(call, MakeCall(op, args, call.attrs(), ty_args, nodes.expr.span(call.get())));
}

ObjectRef Mutator::InferCall(const CallView& /*original*/, const ObjectRef& call) {
  return Normalize(builder_, call);
}

ObjectRef Mutator::RewriteIf(const IfView& if_expr) {
  const ObjectRef cond = RewriteExpr(if_expr.cond());
  const ObjectRef true_branch = RewriteScope({}, if_expr.true_branch());
  const ObjectRef false_branch = RewriteScope({}, if_expr.false_branch());
  if (cond.same_as(if_expr.cond()) && true_branch.same_as(if_expr.true_branch()) &&
      false_branch.same_as(if_expr.false_branch())) {
    return if_expr.ref();
  }
  return Normalize(builder_,
                   MakeIf(cond, true_branch, false_branch, nodes.expr.span(if_expr.get())));
}

ObjectRef Mutator::RewriteSeqExpr(const SeqExprView& seq) {
  std::vector<ObjectRef> outer_blocks = std::exchange(blocks_, {});
  if (seq.blocks().defined()) {
    for (const ObjectRef& block : seq.blocks()) {
      if (auto view = As<BlockView>(block)) {
        RewriteBlock(*view);
      } else {
        blocks_.push_back(block);
      }
    }
  }
  const ObjectRef body = RewriteExpr(seq.body());
  const std::vector<ObjectRef> blocks = std::exchange(blocks_, std::move(outer_blocks));
  if (IsSame(blocks, seq.blocks()) && body.same_as(seq.body())) return seq.ref();
  const ObjectRef new_seq =
      MakeSeqExpr(Array<ObjectRef>(blocks.begin(), blocks.end()), body, nodes.expr.span(seq.get()));
  // If the type of the body is unchanged, so is that of the sequence; inferring it again would walk
  // the whole expression.
  if (StructuralEqual(TypeOf(body), TypeOf(seq.body()))) {
    SetType(new_seq, TypeOf(seq.ref()));
    return new_seq;
  }
  return Normalize(builder_, new_seq);
}

void Mutator::RewriteBlock(const BlockView& block) {
  std::vector<ObjectRef> outer_bindings = std::exchange(bindings_, {});
  const bool outer_in_block = std::exchange(in_block_, true);
  const bool outer_in_dataflow = std::exchange(in_dataflow_block_, block.is_dataflow());
  if (block.bindings().defined()) {
    for (const ObjectRef& binding : block.bindings()) {
      if (auto view = As<BindingView>(binding)) {
        RewriteBinding(*view);
      } else {
        Append(binding);
      }
    }
  }
  in_dataflow_block_ = outer_in_dataflow;
  in_block_ = outer_in_block;
  const std::vector<ObjectRef> bindings = std::exchange(bindings_, std::move(outer_bindings));
  if (IsSame(bindings, block.bindings())) {
    blocks_.push_back(block.ref());
  } else if (!bindings.empty()) {
    blocks_.push_back(MakeBlock(bindings, block.is_dataflow(), block.span()));
  }
}

ObjectRef Mutator::Splice(const ObjectRef& branch) {
  if (!bindings_.empty()) {
    blocks_.push_back(MakeBlock(std::exchange(bindings_, {}), false, ObjectRef(nullptr)));
  }
  auto seq = As<SeqExprView>(branch);
  if (!seq) return RewriteExpr(branch);
  if (seq->blocks().defined()) {
    for (const ObjectRef& block : seq->blocks()) {
      if (auto view = As<BlockView>(block)) RewriteBlock(*view);
    }
  }
  return RewriteExpr(seq->body());
}

void Mutator::RewriteBinding(const BindingView& binding) {
  if (binding.is_match_cast()) return RewriteMatchCast(binding);
  if (!VarView::Is(binding.var().get())) return Append(binding.ref());
  const ObjectRef value = RewriteExpr(binding.value());
  if (StructuralEqual(TypeOf(binding.var()), TypeOf(binding.value()))) {
    return EmitVarBinding(binding, RewriteValue(value));
  }
  const ObjectRef stated = RewriteType(TypeOf(binding.var()));
  if (value.same_as(binding.value()) && stated.same_as(TypeOf(binding.var()))) {
    return Append(binding.ref());
  }
  const VarView var(binding.var().get());
  const ObjectRef new_var =
      stated.same_as(TypeOf(binding.var())) ? binding.var() : Retype(var, stated);
  Append(MakeVarBinding(new_var, value, binding.span()));
}

void Mutator::RewriteMatchCast(const BindingView& binding) {
  const ObjectRef value = RewriteExpr(binding.value());
  const ObjectRef ty = RewriteType(binding.cast_ty());
  if (value.same_as(binding.value()) && ty.same_as(binding.cast_ty())) {
    return Append(binding.ref());
  }
  ObjectRef var = binding.var();
  if (!ty.same_as(binding.cast_ty()) && VarView::Is(var.get()))
    var = Retype(VarView(var.get()), ty);
  Append(MakeMatchCast(var, value, ty, binding.span()));
}

void Mutator::Append(const ObjectRef& binding) {
  auto view = As<BindingView>(binding);
  if (view && !view->is_match_cast()) bound_.insert_or_assign(view->var(), view->value());
  bindings_.push_back(binding);
}

ObjectRef Mutator::ValueInScope(const ObjectRef& var) const {
  const ObjectRef value = BoundValue(var);
  auto call = As<CallView>(value);
  const bool may_escape = call && KindOf(var.get()) == Kind::kVar &&
                          std::any_of(call->args().begin(), call->args().end(), HoldsDataflowVar);
  return may_escape ? ObjectRef(nullptr) : value;
}

ObjectRef Mutator::Emit(const ObjectRef& value) {
  const ObjectRef normalized = Normalize(builder_, value);
  const ObjectRef var = MakeVar("lv", TypeOf(normalized), in_dataflow_block_);
  Append(MakeVarBinding(var, normalized, nodes.expr.span(value.get())));
  return var;
}

ObjectRef Mutator::EmitMatchCast(const String& name, const ObjectRef& value, const ObjectRef& ty) {
  const ObjectRef var = MakeVar(name, ty, in_dataflow_block_);
  Append(MakeMatchCast(var, value, ty, nodes.expr.span(value.get())));
  return var;
}

ObjectRef Mutator::BoundValue(const ObjectRef& var) const {
  auto it = bound_.find(var);
  return it == bound_.end() ? ObjectRef(nullptr) : it->second;
}

bool Mutator::CanReplace(const VarView& var, const ObjectRef& value) const {
  // The output of a dataflow block must stay bound, since the value may be a DataflowVar.
  if (in_dataflow_block_ && !var.is_dataflow()) return false;
  if (!IsTensorOrTuple(TypeOf(var.ref()))) return false;
  const Kind kind = KindOf(value.get());
  return kind == Kind::kVar || kind == Kind::kDataflowVar || kind == Kind::kConstant;
}

void Mutator::EmitVarBinding(const BindingView& original, const ObjectRef& value) {
  if (value.same_as(original.value()) && !original.is_match_cast()) {
    Append(original.ref());
    return;
  }
  const VarView var(original.var().get());
  if (CanReplace(var, value)) {
    replacement_[original.var()] = value;
    return;
  }
  ObjectRef new_var = original.var();
  if (!StructuralEqual(TypeOf(original.var()), TypeOf(value))) {
    new_var = Retype(var, TypeOf(value));
  }
  Append(MakeVarBinding(new_var, value, original.span()));
}

}  // namespace tvm_fixes
