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
 * \file src/relax/analysis/verifier/prim_func_walk.cc
 * \brief Walks a PrimFunc and collects its out-of-bounds accesses.
 */
#include "prim_func_walk.h"

#include <tvm/ffi/cast.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "../../../ffi/tir_nodes.h"
#include "../../ir/views.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief Deeper and larger functions are skipped, to protect the stack. */
constexpr size_t kMaxWalkDepth = 500;
constexpr size_t kMaxNodes = 1000000;

}  // namespace

PrimFuncReaches PrimFuncWalk::Run(const Object* function, const DimTable::Substitution& values) {
  if (!tir_nodes.prim_func.IsInstance(function)) return {};
  AddSymbols(tir_nodes.prim_func.params(function));
  for (const Object* symbol : found_.symbols) {
    auto value = values.find(symbol);
    if (value != values.end()) nest_.Define(symbol, value->second);
  }
  Visit(tir_nodes.prim_func.body(function), "body");
  if (has_jump_) return {};
  return std::move(found_);
}

void PrimFuncWalk::AddSymbols(const Array<ObjectRef>& params) {
  if (!params.defined()) return;
  for (const ObjectRef& param : params) {
    const Object* type = TypeOf(param).get();
    if (nodes.prim_type.IsInstance(type)) {
      AddSymbol(param.get());
      found_.has_scalars = true;
    }
    if (!tir_nodes.buffer_type.IsInstance(type)) continue;
    const Array<ObjectRef>& shape = tir_nodes.buffer_type.shape(type);
    if (!shape.defined()) continue;
    for (const ObjectRef& extent : shape) {
      for (const Object* var : dims_->Vars(dims_->Intern(extent))) {
        AddSymbol(var);
        dims_->MarkExtent(dims_->Intern(tvm::ffi::GetRef<ObjectRef>(var)));
      }
    }
  }
}

void PrimFuncWalk::AddSymbol(const Object* var) {
  nest_.AddSymbol(var);
  auto& symbols = found_.symbols;
  if (std::find(symbols.begin(), symbols.end(), var) == symbols.end()) symbols.push_back(var);
}

bool PrimFuncWalk::MayVisit(const ObjectRef& node) {
  if (steps_.size() > kMaxWalkDepth || ++num_visited_ > kMaxNodes) has_jump_ = true;
  return !has_jump_ && node.defined();
}

const PrimFuncWalk::Handlers& PrimFuncWalk::StmtHandlers() {
  static const Handlers handlers = {
      {tir_nodes.seq_stmt.type_info()->type_index, &PrimFuncWalk::VisitSeq},
      {tir_nodes.for_loop.type_info()->type_index, &PrimFuncWalk::VisitFor},
      {tir_nodes.if_then_else.type_info()->type_index, &PrimFuncWalk::VisitIf},
      {tir_nodes.while_loop.type_info()->type_index, &PrimFuncWalk::VisitWhile},
      {tir_nodes.bind.type_info()->type_index, &PrimFuncWalk::VisitBind},
      {tir_nodes.attr_stmt.type_info()->type_index, &PrimFuncWalk::VisitAttr},
      {tir_nodes.evaluate.type_info()->type_index, &PrimFuncWalk::VisitEvaluate},
      {tir_nodes.buffer_store.type_info()->type_index, &PrimFuncWalk::VisitStore},
      {tir_nodes.block_realize.type_info()->type_index, &PrimFuncWalk::VisitBlockRealize},
      {tir_nodes.block.type_info()->type_index, &PrimFuncWalk::VisitBlock},
      {tir_nodes.alloc_buffer.type_info()->type_index, &PrimFuncWalk::VisitNothing},
      {tir_nodes.decl_buffer.type_info()->type_index, &PrimFuncWalk::VisitNothing}};
  return handlers;
}

const PrimFuncWalk::Handlers& PrimFuncWalk::ExprHandlers() {
  static const Handlers handlers = {
      {tir_nodes.add.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::add>},
      {tir_nodes.sub.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::sub>},
      {tir_nodes.mul.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::mul>},
      {tir_nodes.truncdiv.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::truncdiv>},
      {tir_nodes.truncmod.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::truncmod>},
      {tir_nodes.floordiv.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::floordiv>},
      {tir_nodes.floormod.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::floormod>},
      {tir_nodes.min.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::min>},
      {tir_nodes.max.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::max>},
      {tir_nodes.eq.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::eq>},
      {tir_nodes.ne.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::ne>},
      {tir_nodes.lt.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::lt>},
      {tir_nodes.le.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::le>},
      {tir_nodes.gt.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::gt>},
      {tir_nodes.ge.type_info()->type_index, &PrimFuncWalk::VisitBinary<&TirNodes::ge>},
      {tir_nodes.logical_and.type_info()->type_index,
       &PrimFuncWalk::VisitLogical<&TirNodes::logical_and>},
      {tir_nodes.logical_or.type_info()->type_index,
       &PrimFuncWalk::VisitLogical<&TirNodes::logical_or>},
      {tir_nodes.logical_not.type_info()->type_index, &PrimFuncWalk::VisitNot},
      {tir_nodes.bitwise_and.type_info()->type_index,
       &PrimFuncWalk::VisitBinary<&TirNodes::bitwise_and>},
      {tir_nodes.bitwise_or.type_info()->type_index,
       &PrimFuncWalk::VisitBinary<&TirNodes::bitwise_or>},
      {tir_nodes.bitwise_xor.type_info()->type_index,
       &PrimFuncWalk::VisitBinary<&TirNodes::bitwise_xor>},
      {tir_nodes.bitwise_not.type_info()->type_index, &PrimFuncWalk::VisitBitwiseNot},
      {tir_nodes.shift_left.type_info()->type_index,
       &PrimFuncWalk::VisitBinary<&TirNodes::shift_left>},
      {tir_nodes.shift_right.type_info()->type_index,
       &PrimFuncWalk::VisitBinary<&TirNodes::shift_right>},
      {tir_nodes.cast.type_info()->type_index, &PrimFuncWalk::VisitCast},
      {tir_nodes.ramp.type_info()->type_index, &PrimFuncWalk::VisitRamp},
      {tir_nodes.shuffle.type_info()->type_index, &PrimFuncWalk::VisitShuffle},
      {tir_nodes.broadcast.type_info()->type_index, &PrimFuncWalk::VisitBroadcast},
      {tir_nodes.select.type_info()->type_index, &PrimFuncWalk::VisitSelect},
      {tir_nodes.let.type_info()->type_index, &PrimFuncWalk::VisitLet},
      {tir_nodes.tensor_load.type_info()->type_index, &PrimFuncWalk::VisitLoad},
      {nodes.call.type_info()->type_index, &PrimFuncWalk::VisitCall}};
  return handlers;
}

void PrimFuncWalk::Visit(const ObjectRef& stmt) {
  if (!MayVisit(stmt)) return;
  auto handler = StmtHandlers().find(stmt->type_index());
  if (handler == StmtHandlers().end()) {
    // A return, a break, a failing assertion, or an unknown class.
    has_jump_ = true;
    return;
  }
  (this->*handler->second)(stmt.get());
}

void PrimFuncWalk::Visit(const ObjectRef& stmt, const char* attr) {
  At at(this, attr);
  Visit(stmt);
}

void PrimFuncWalk::VisitExpr(const ObjectRef& expr) {
  if (is_conditional_ || !MayVisit(expr)) return;
  auto handler = ExprHandlers().find(expr->type_index());
  if (handler != ExprHandlers().end()) (this->*handler->second)(expr.get());
}

void PrimFuncWalk::VisitExpr(const ObjectRef& expr, const char* attr) {
  At at(this, attr);
  VisitExpr(expr);
}

void PrimFuncWalk::VisitExprs(const Array<ObjectRef>& exprs, const char* attr) {
  if (is_conditional_ || !exprs.defined()) return;
  At at(this, attr);
  for (size_t i = 0; i < exprs.size(); ++i) {
    At item(this, i);
    VisitExpr(exprs[i]);
  }
}

void PrimFuncWalk::VisitSeq(const Object* node) {
  const Array<ObjectRef>& seq = tir_nodes.seq_stmt.seq(node);
  if (!seq.defined()) return;
  At at(this, "seq");
  for (size_t i = 0; i < seq.size(); ++i) {
    At item(this, i);
    Visit(seq[i]);
  }
}

void PrimFuncWalk::VisitFor(const Object* node) {
  const auto& layout = tir_nodes.for_loop;
  VisitExpr(layout.min(node), "min");
  VisitExpr(layout.extent(node), "extent");
  const ObjectRef& step = layout.step(node);
  const ObjectRef& binding = layout.thread_binding(node);
  const bool is_thread = tir_nodes.iter_var.IsInstance(binding.get());
  const Relation runs =
      nest_.Enter(layout.loop_var(node).get(), nest_.Value(layout.min(node)),
                  nest_.Value(layout.extent(node)), step.defined() ? AsInt(step).value_or(0) : 1,
                  is_thread ? std::string(tir_nodes.iter_var.thread_tag(binding.get())) : "");
  if (runs == Relation::kUnknown) {
    const auto extent = nest_.Value(layout.extent(node));
    const bool is_read = extent && dims_->IsRead(*extent);
    ConditionScope condition_scope(this, {ObjectRef(), true, is_read ? extent : std::nullopt});
    Visit(layout.body(node), "body");
  } else {
    ConditionalScope conditional_scope(this, runs == Relation::kDisproved);
    Visit(layout.body(node), "body");
  }
  nest_.Leave();
}

void PrimFuncWalk::VisitIf(const Object* node) {
  const ObjectRef& condition = tir_nodes.if_then_else.condition(node);
  VisitExpr(condition, "condition");
  VisitWhere(condition, true, [&] { Visit(tir_nodes.if_then_else.then_case(node), "then_case"); });
  VisitWhere(condition, false, [&] { Visit(tir_nodes.if_then_else.else_case(node), "else_case"); });
}

template <typename Visitor>
void PrimFuncWalk::VisitWhere(const ObjectRef& condition, bool expected, Visitor visit) {
  const Relation holds = expected ? nest_.Holds(condition) : Not(nest_.Holds(condition));
  if (holds == Relation::kProved) return visit();
  if (holds == Relation::kUnknown) {
    ConditionScope condition_scope(this, {condition, expected});
    return visit();
  }
  // Even dead code is visited: a jump in it makes later accesses uncertain.
  ConditionalScope conditional_scope(this, true);
  visit();
}

void PrimFuncWalk::VisitWhile(const Object* node) {
  ConditionalScope conditional_scope(this, true);
  Visit(tir_nodes.while_loop.body(node), "body");
}

void PrimFuncWalk::VisitBind(const Object* node) {
  VisitExpr(tir_nodes.bind.value(node), "value");
  nest_.Define(tir_nodes.bind.var(node).get(), nest_.Value(tir_nodes.bind.value(node)));
}

void PrimFuncWalk::VisitAttr(const Object* node) {
  const auto& layout = tir_nodes.attr_stmt;
  const auto bound = layout.node(node).try_cast<ObjectRef>();
  const Object* iter_var = bound ? bound->get() : nullptr;
  if (layout.attr_key(node) != "thread_extent" || !tir_nodes.iter_var.IsInstance(iter_var)) {
    Visit(layout.body(node), "body");
    return;
  }
  const Relation runs = nest_.Enter(tir_nodes.iter_var.var(iter_var).get(), dims_->FromInt(0),
                                    nest_.Value(layout.value(node)), 1,
                                    std::string(tir_nodes.iter_var.thread_tag(iter_var)));
  {
    ConditionalScope conditional_scope(this, runs != Relation::kProved);
    Visit(layout.body(node), "body");
  }
  nest_.Leave();
}

void PrimFuncWalk::VisitEvaluate(const Object* node) {
  const ObjectRef& value = tir_nodes.evaluate.value(node);
  auto call = As<CallView>(value);
  if (call && effects_.Of(call->op().get()) == CallEffect::kJump) has_jump_ = true;
  VisitExpr(value, "value");
}

void PrimFuncWalk::VisitStore(const Object* node) {
  const auto& layout = tir_nodes.buffer_store;
  VisitAccess(Reach::Kind::kStore, layout.buffer(node).get(), layout.indices(node));
  VisitExpr(layout.value(node), "value");
}

void PrimFuncWalk::VisitBlockRealize(const Object* node) {
  const auto& layout = tir_nodes.block_realize;
  const Object* block = layout.block(node).get();
  if (!tir_nodes.block.IsInstance(block)) return;
  const Array<ObjectRef>& values = layout.iter_values(node);
  const Array<ObjectRef>& iter_vars = tir_nodes.block.iter_vars(block);
  VisitExprs(values, "iter_values");
  const bool is_sound =
      values.defined() && iter_vars.defined() && values.size() == iter_vars.size();
  ConditionalScope conditional_scope(this, !is_sound);
  VisitWhere(layout.predicate(node), true, [&] {
    size_t num_loops = 0;
    if (!is_conditional_) {
      for (size_t i = 0; i < values.size(); ++i) {
        At at(this, "iter_values");
        At item(this, i);
        num_loops += BindIterator(iter_vars[i].get(), values[i]) ? 1 : 0;
      }
    }
    Visit(layout.block(node), "block");
    for (; num_loops > 0; --num_loops) nest_.Leave();
  });
}

void PrimFuncWalk::VisitBlock(const Object* node) {
  // The init statement is visited without the values of the reduction iterators.
  Visit(tir_nodes.block.init(node), "init");
  Visit(tir_nodes.block.body(node), "body");
}

bool PrimFuncWalk::BindIterator(const Object* iter_var, const ObjectRef& value) {
  if (!tir_nodes.iter_var.IsInstance(iter_var)) return false;
  const Object* var = tir_nodes.iter_var.var(iter_var).get();
  const std::optional<DimId> bound = nest_.Value(value);
  nest_.Define(var, bound);
  const Object* domain = tir_nodes.iter_var.dom(iter_var).get();
  if (!bound || !tir_nodes.range.IsInstance(domain)) return false;
  const auto extent = nest_.Value(tir_nodes.range.extent(domain));
  if (!extent || AsInt(tir_nodes.range.min(domain)) != 0) return false;
  const auto range = nest_.Taken(*bound);
  if (!range) return false;
  const Place place =
      RecordIfOutside(Reach::Kind::kIterator, var, {0, 0, dims_->Intern(value), *range, *extent});
  if (place == Place::kInside || place == Place::kUnknown) return false;
  // From here on, trust the domain, so that one mistake gives one diagnostic.
  nest_.Enter(var, dims_->FromInt(0), extent, 1, "");
  return true;
}

void PrimFuncWalk::VisitAccess(Reach::Kind kind, const Object* buffer,
                               const Array<ObjectRef>& indices) {
  if (is_conditional_ || has_jump_ || !indices.defined()) return;
  VisitExprs(indices, "indices");
  At at(this, "indices");
  const std::vector<IndexReach> reaches = ReachesOfAccess(dims_, &nest_, buffer, indices);
  found_.may_vary |= reaches.size() < indices.size();
  for (const IndexReach& reach : reaches) {
    At item(this, reach.index);
    RecordIfOutside(kind, buffer, reach);
  }
}

Place PrimFuncWalk::RecordIfOutside(Reach::Kind kind, const Object* var, const IndexReach& reach) {
  const Place place = nest_.Compare(reach.range, reach.extent);
  if (place == Place::kInside) return place;
  found_.may_vary = true;
  if (!conditions_.empty()) return RecordUnderConditions(kind, var, reach);
  if (place == Place::kUnknown || !MayRun(dims_, nest_.Extents())) return Place::kUnknown;
  Report(kind, var, reach, true);
  return place;
}

Place PrimFuncWalk::RecordUnderConditions(Reach::Kind kind, const Object* var,
                                          const IndexReach& reach) {
  // Vector accesses are not tracked under conditions.
  if (reach.value == kUnknownDim) return Place::kUnknown;
  const auto value = nest_.Value(reach.value);
  if (!value) return Place::kUnknown;
  for (const bool is_certain : {true, false}) {
    const auto taken = nest_.TakenWhere(*value, reach.extent, conditions_, is_certain);
    if (!taken) continue;
    IndexReach narrowed = reach;
    narrowed.range = *taken;
    const Place place = nest_.Compare(*taken, reach.extent);
    if (place != Place::kBelow && place != Place::kAbove) continue;
    Report(kind, var, narrowed, is_certain);
    return place;
  }
  return Place::kUnknown;
}

void PrimFuncWalk::Report(Reach::Kind kind, const Object* var, const IndexReach& reach,
                          bool is_certain) {
  const auto key =
      std::make_tuple(var, reach.dim, reach.range.least, reach.range.greatest, reach.extent);
  if (reported_.insert(key).second) {
    found_.outside.push_back({kind, var, reach, CurrentPath(), is_certain});
  }
}

template <BinaryOpNode TirNodes::* layout>
void PrimFuncWalk::VisitBinary(const Object* node) {
  VisitExpr((tir_nodes.*layout).a(node), "a");
  VisitExpr((tir_nodes.*layout).b(node), "b");
}

template <BinaryOpNode TirNodes::* layout>
void PrimFuncWalk::VisitLogical(const Object* node) {
  const ObjectRef& first = (tir_nodes.*layout).a(node);
  VisitExpr(first, "a");
  VisitSecondOperand(
      first, layout == &TirNodes::logical_and, [&] { VisitExpr((tir_nodes.*layout).b(node), "b"); },
      0);
}

void PrimFuncWalk::VisitSecondOperand(const ObjectRef& first, bool expected,
                                      const std::function<void()>& visit, size_t depth) {
  // LLVM code evaluates both operands; C-like code short-circuits. A condition on loop variables
  // therefore narrows the second operand, but one on data does not.
  const BinaryOpNode& layout = expected ? tir_nodes.logical_and : tir_nodes.logical_or;
  if (depth < kMaxWalkDepth && layout.IsInstance(first.get())) {
    const auto next = [&] {
      VisitSecondOperand(layout.b(first.get()), expected, visit, depth + 1);
    };
    return VisitSecondOperand(layout.a(first.get()), expected, next, depth + 1);
  }
  if (!nest_.IsOfLoops(first)) return visit();
  VisitWhere(first, expected, visit);
}

void PrimFuncWalk::VisitNot(const Object* node) { VisitExpr(tir_nodes.logical_not.a(node), "a"); }

void PrimFuncWalk::VisitBitwiseNot(const Object* node) {
  VisitExpr(tir_nodes.bitwise_not.a(node), "a");
}

void PrimFuncWalk::VisitCast(const Object* node) { VisitExpr(tir_nodes.cast.value(node), "value"); }

void PrimFuncWalk::VisitRamp(const Object* node) { VisitExpr(tir_nodes.ramp.base(node), "base"); }

void PrimFuncWalk::VisitShuffle(const Object* node) {
  VisitExprs(tir_nodes.shuffle.vectors(node), "vectors");
}

void PrimFuncWalk::VisitBroadcast(const Object* node) {
  VisitExpr(tir_nodes.broadcast.value(node), "value");
}

void PrimFuncWalk::VisitSelect(const Object* node) {
  const ObjectRef& condition = tir_nodes.select.condition(node);
  VisitExpr(condition, "condition");
  // TVM turns a select of loaded values into an if_then_else.
  VisitWhere(condition, true, [&] { VisitExpr(tir_nodes.select.true_value(node), "true_value"); });
  VisitWhere(condition, false,
             [&] { VisitExpr(tir_nodes.select.false_value(node), "false_value"); });
}

void PrimFuncWalk::VisitLet(const Object* node) {
  VisitExpr(tir_nodes.let.value(node), "value");
  nest_.Define(tir_nodes.let.var(node).get(), nest_.Value(tir_nodes.let.value(node)));
  VisitExpr(tir_nodes.let.body(node), "body");
}

void PrimFuncWalk::VisitLoad(const Object* node) {
  VisitAccess(Reach::Kind::kLoad, tir_nodes.tensor_load.source(node).get(),
              tir_nodes.tensor_load.indices(node));
}

void PrimFuncWalk::VisitCall(const Object* node) {
  const CallView call(node);
  if (!call.args().defined()) return;
  const CallEffect effect = effects_.Of(call.op().get());
  if (effect == CallEffect::kStrict) VisitExprs(call.args(), "args");
  if (effect != CallEffect::kConditional || call.args().empty()) return;
  At at(this, "args");
  {
    At item(this, size_t{0});
    VisitExpr(call.args()[0]);
  }
  for (size_t taken = 1; taken < std::min<size_t>(call.args().size(), 3); ++taken) {
    VisitWhere(call.args()[0], taken == 1, [&] {
      At item(this, taken);
      VisitExpr(call.args()[taken]);
    });
  }
}

Path PrimFuncWalk::CurrentPath() const {
  Path path = path_;
  for (const Step& step : steps_) {
    path = step.attr != nullptr ? path.Attr(step.attr) : path.Item(step.index);
  }
  return path;
}

PrimFuncReaches FindReaches(DimTable* dims, const Object* function, const Path& path,
                            const DimTable::Substitution& values) {
  return PrimFuncWalk(dims, path).Run(function, values);
}

}  // namespace verifier
}  // namespace tvm_fixes
