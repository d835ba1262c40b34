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
 * \file src/relax/transform/broadcast_free_matmul.cc
 * \brief Replaces a matmul of a broadcast tensor by a matmul of the tensor itself.
 *
 * Trigger: a linear layer on a non-contiguous input, a buffer as the left operand of a matmul,
 * `W.expand` before a bmm. Mechanism: PyTorch's decomposition expands both operands for a bmm, and
 * no pass exploits that matmul itself broadcasts.
 *
 *     w1 = R.broadcast_to(w, [16, 64, 96])
 *     y = R.matmul(x, w1)                    =>   y = R.matmul(x, w)
 *
 * Removal: delete this file and analysis/broadcast_view.* when TVM keeps these weights small.
 */
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "../../ffi/registration.h"
#include "../analysis/broadcast_view.h"
#include "../analysis/rearrangement.h"
#include "../ir/build.h"
#include "../ir/dead_code.h"
#include "../ir/mutator.h"
#include "../ir/visitor.h"

namespace tvm_fixes {
namespace {

constexpr const char* kBroadcastFreeMatmulFix = "broadcast-free-matmul";
constexpr const char* kBroadcastFreeMatmul = "BroadcastFreeMatmul";

using Vars = std::unordered_set<const Object*>;

/*! \brief Mark the extents of a function's parameters as non-negative. */
void MarkExtents(Scalars* scalars, const Array<ObjectRef>& params) {
  static const GlobalFunction non_negative("relax.analysis.CollectNonNegativeExpressions");
  if (!params.defined()) return;
  for (const ObjectRef& param : params) {
    if (!TypeOf(param).defined()) continue;
    for (const ObjectRef& extent : non_negative(TypeOf(param)).cast<Array<ObjectRef>>()) {
      scalars->MarkNonNegative(extent);
    }
  }
}

/*! \brief Whether an extent is 0. In the target shape of a reshape, 0 has another meaning. */
bool IsEmpty(const Array<ObjectRef>& shape) {
  return std::any_of(shape.begin(), shape.end(),
                     [](const ObjectRef& dim) { return AsInt(dim) == 0; });
}

/*! \brief An operand of a matmul, itself or as a view of a smaller tensor. */
struct Operand {
  BroadcastView view;
  Array<ObjectRef> shape;
  bool is_view;

  /*! \brief The number of batch axes. */
  size_t num_batch() const { return shape.size() < 2 ? 0 : shape.size() - 2; }
  const AxisParts& axis_from_end(size_t i) const { return view.axes[view.axes.size() - i]; }
};

/*! \brief The operand shapes of a smaller matmul, and the shapes that expand its result. */
struct SmallMatmul {
  Array<ObjectRef> lhs;
  Array<ObjectRef> rhs;
  /*! \brief The result with an axis for each part, of extent 1 where it is repeated. */
  Array<ObjectRef> parts;
  /*! \brief The same, with repeated parts at their full extents. */
  Array<ObjectRef> repeated;
  /*! \brief The shape of the result. */
  Array<ObjectRef> shape;
  bool reads_lhs_view = false;
  bool reads_rhs_view = false;
};

/*! \brief Works out the SmallMatmul of two operands. */
class Planner {
 public:
  Planner(const Scalars& scalars, Operand lhs, Operand rhs, const Array<ObjectRef>& shape)
      : scalars_(scalars), lhs_(std::move(lhs)), rhs_(std::move(rhs)) {
    plan_.shape = shape;
  }

  /*!
   * \return std::nullopt if the matmul does not become smaller, or that is unknown; then `why`
   * holds the reason.
   */
  std::optional<SmallMatmul> Run(std::string* why) {
    const size_t lhs_rank = lhs_.shape.size(), rhs_rank = rhs_.shape.size();
    if (lhs_rank == 0 || rhs_rank == 0) return std::nullopt;
    // The reduction axis cannot shrink: repeated elements add up.
    if (IsRepeated(lhs_.axis_from_end(1))) KeepUnchanged(&lhs_);
    if (IsRepeated(rhs_.axis_from_end(rhs_rank == 1 ? 1 : 2))) KeepUnchanged(&rhs_);
    if (!lhs_.view.IsRepeated() && !rhs_.view.IsRepeated()) {
      *why = "the reduction axis is repeated";
      return std::nullopt;
    }
    const size_t num_batch = std::max(lhs_.num_batch(), rhs_.num_batch());
    for (size_t axis = 0; axis < num_batch; ++axis) {
      if (!AddBatchAxis(axis, num_batch)) {
        *why = "the batch extents leave open what is repeated";
        return std::nullopt;
      }
    }
    const bool has_rows = lhs_rank > 1, has_columns = rhs_rank > 1;
    const size_t rank = plan_.shape.size();
    if (rank != num_batch + has_rows + has_columns) return std::nullopt;
    DropLeadingOnes();
    if (has_rows) AddMatrixAxis(lhs_.axis_from_end(2), plan_.shape[num_batch], &plan_.lhs);
    plan_.lhs.push_back(lhs_.shape[lhs_rank - 1]);
    plan_.rhs.push_back(rhs_.shape[has_columns ? rhs_rank - 2 : 0]);
    if (has_columns) AddMatrixAxis(rhs_.axis_from_end(1), plan_.shape[rank - 1], &plan_.rhs);
    plan_.reads_lhs_view = lhs_.is_view;
    plan_.reads_rhs_view = rhs_.is_view;
    if (!gains_) {
      *why = "both operands vary along the batch";
      return std::nullopt;
    }
    return plan_;
  }

 private:
  /*! \brief Use an operand unchanged. */
  static void KeepUnchanged(Operand* operand) {
    operand->view = ViewOfShape(operand->shape);
    operand->is_view = false;
  }

  /*! \brief The parts of an operand along a batch axis of the result; may be empty. */
  std::optional<AxisParts> PartsOf(const Operand& operand, size_t axis, size_t num_batch) const {
    const ObjectRef& extent = plan_.shape[axis];
    const AxisParts all_repeated = {{extent, true}};
    const size_t missing = num_batch - operand.num_batch();
    if (axis < missing) return all_repeated;
    const ObjectRef& own = operand.shape[axis - missing];
    if (scalars_.ProvesEqual(own, extent)) {
      return MergeParts(scalars_, operand.view.axes[axis - missing], extent);
    }
    if (scalars_.ProvesEqual(own, Scalars::Int(1))) return all_repeated;
    return std::nullopt;
  }

  bool AddBatchAxis(size_t axis, size_t num_batch) {
    const ObjectRef& extent = plan_.shape[axis];
    if (IsOne(extent)) {
      AddBatchPart(extent, axis < num_batch - lhs_.num_batch(),
                   axis < num_batch - rhs_.num_batch());
      return true;
    }
    const auto lhs = PartsOf(lhs_, axis, num_batch), rhs = PartsOf(rhs_, axis, num_batch);
    if (!lhs || !rhs || lhs->empty() || rhs->empty()) return false;
    for (const Operand* operand : {&lhs_, &rhs_}) {
      const size_t missing = num_batch - operand->num_batch();
      gains_ |= axis >= missing && IsRepeated(operand->view.axes[axis - missing]);
    }
    if (lhs->size() == 1 && rhs->size() == 1) {
      AddBatchPart(extent, (*lhs)[0].is_repeated, (*rhs)[0].is_repeated);
      return true;
    }
    Array<ObjectRef> lhs_extents, rhs_extents;
    for (const AxisPart& part : *lhs) lhs_extents.push_back(part.extent);
    for (const AxisPart& part : *rhs) rhs_extents.push_back(part.extent);
    const auto factors = CommonFactors(lhs_extents, rhs_extents);
    if (!factors) return false;
    for (const CommonFactor& factor : *factors) {
      AddBatchPart(factor.extent, (*lhs)[factor.in].is_repeated, (*rhs)[factor.out].is_repeated);
    }
    return true;
  }

  void AddBatchPart(const ObjectRef& extent, bool lhs_repeats, bool rhs_repeats) {
    const ObjectRef one = Scalars::Int(1);
    plan_.lhs.push_back(lhs_repeats ? one : extent);
    plan_.rhs.push_back(rhs_repeats ? one : extent);
    plan_.parts.push_back(lhs_repeats && rhs_repeats ? one : extent);
    plan_.repeated.push_back(extent);
  }

  /*! \brief Add the rows or columns: the varying parts become one axis in `dims`. */
  void AddMatrixAxis(const AxisParts& parts, const ObjectRef& extent, Array<ObjectRef>* dims) {
    if (!IsRepeated(parts)) {
      dims->push_back(extent);
      plan_.parts.push_back(extent);
      plan_.repeated.push_back(extent);
      return;
    }
    gains_ = true;
    ObjectRef varying = Scalars::Int(1);
    for (const AxisPart& part : MergeParts(scalars_, parts, extent)) {
      if (!part.is_repeated) varying = scalars_.Multiply(varying, part.extent);
      plan_.parts.push_back(part.is_repeated ? Scalars::Int(1) : part.extent);
      plan_.repeated.push_back(part.extent);
    }
    dims->push_back(varying);
  }

  /*! \brief Drop leading axes of extent 1, which a matmul does not need. */
  void DropLeadingOnes() {
    for (auto [operand, dims] : {std::pair(&lhs_, &plan_.lhs), std::pair(&rhs_, &plan_.rhs)}) {
      // An unchanged operand keeps its rank.
      const size_t least = operand->is_view ? 0 : operand->num_batch();
      size_t first = 0;
      while (first < dims->size() - std::min(least, dims->size()) && IsOne((*dims)[first])) ++first;
      *dims = Array<ObjectRef>(dims->begin() + first, dims->end());
    }
  }

  const Scalars& scalars_;
  Operand lhs_;
  Operand rhs_;
  SmallMatmul plan_;
  bool gains_ = false;
};

/*! \brief Collects the matmuls of a function that become smaller, and the views that they read. */
class Analysis : public Visitor {
 public:
  struct Matmul {
    ObjectRef lhs;
    ObjectRef rhs;
    SmallMatmul small;
  };
  /*! \brief How the source of a view derives from the source of its operand. */
  struct Link {
    ObjectRef operand;
    std::optional<AxisPermutation> permutation;
  };

  Analysis(const ObjectRef& function, const std::string& name) : name_(name) {
    MarkExtents(&scalars_, FunctionView(function.get()).params());
    VisitExpr(function);
    while (DropRecomputed()) {
    }
    const Vars needed = ViewsRead();
    for (const Object* view : order_) {
      if (needed.count(view) == 0) links_.erase(view);
    }
  }

  const std::unordered_map<const Object*, Matmul>& matmuls() const { return matmuls_; }
  /*! \brief The views that these matmuls read, directly or indirectly, by variable. */
  const std::unordered_map<const Object*, Link>& links() const { return links_; }

 protected:
  void VisitFunction(const FunctionView& function) override {
    const auto outer = std::exchange(block_, nullptr);
    Visitor::VisitFunction(function);
    block_ = outer;
  }

  void VisitBlock(const BlockView& block) override {
    const auto outer = std::exchange(block_, block.is_dataflow() ? block.get() : nullptr);
    Visitor::VisitBlock(block);
    block_ = outer;
  }

  void VisitBinding(const BindingView& binding) override {
    const Object* outer = std::exchange(reader_, binding.var().get());
    Visitor::VisitBinding(binding);
    reader_ = outer;
    auto call = As<CallView>(binding.value());
    if (!call || binding.is_match_cast() || !VarView::Is(binding.var().get()) ||
        !StructuralEqual(TypeOf(binding.var()), TypeOf(binding.value()))) {
      return;
    }
    if (IsBroadcastStep(*call)) RecordView(binding.var(), *call);
    if (call->IsOp("relax.matmul") && call->args().size() == 2) Plan(binding.var(), *call);
  }

  void VisitVarUse(const VarView& var) override { readers_[var.get()].push_back(reader_); }

 private:
  void RecordView(const ObjectRef& var, const CallView& call) {
    // A dataflow block's output may be read where the source of the view is out of scope.
    if (block_ != nullptr && !VarView(var.get()).is_dataflow()) return;
    const ObjectRef& operand = call.args()[0];
    auto known = views_.find(operand.get());
    auto shape = ShapeOf(operand);
    const bool begins =
        call.IsOp("relax.broadcast_to") || call.IsOp("relax.tile") || call.IsOp("relax.repeat");
    if (!shape || (known == views_.end() && !begins)) return;
    auto step =
        FollowStep(scalars_, known == views_.end() ? ViewOfShape(*shape) : known->second, call);
    if (!step || (step->permutation && !step->view.IsRepeated())) return;
    views_.emplace(var.get(), std::move(step->view));
    links_.emplace(var.get(), Link{operand, std::move(step->permutation)});
    order_.push_back(var.get());
  }

  std::optional<Operand> OperandOf(const ObjectRef& expr) const {
    auto shape = ShapeOf(expr);
    if (!shape) return std::nullopt;
    auto view = views_.find(expr.get());
    if (view == views_.end()) return Operand{ViewOfShape(*shape), *shape, false};
    return Operand{view->second, *shape, true};
  }

  void Plan(const ObjectRef& var, const CallView& call) {
    auto lhs = OperandOf(call.args()[0]), rhs = OperandOf(call.args()[1]);
    auto shape = ShapeOf(call.ref());
    if (!lhs || !rhs || !shape) return;
    if (!lhs->view.IsRepeated() && !rhs->view.IsRepeated()) return;
    if (IsEmpty(lhs->shape) || IsEmpty(rhs->shape)) {
      return Log(var.get(), "an operand has no elements");
    }
    std::string why = "the shape of the result is not known";
    auto small = Planner(scalars_, *std::move(lhs), *std::move(rhs), *shape).Run(&why);
    if (!small) return Log(var.get(), why);
    matmuls_.emplace(var.get(), Matmul{call.args()[0], call.args()[1], *std::move(small)});
  }

  void Log(const Object* var, const std::string& why) const {
    if (LogsDebug(kBroadcastFreeMatmul)) {
      LogDebug(kBroadcastFreeMatmul,
               name_ + ": `" + std::string(VarView(var).name()) + "`: " + why);
    }
  }

  /*! \brief The chain of views that produces `expr`, from the last to the first. */
  std::vector<const Object*> ChainOf(const ObjectRef& expr) const {
    std::vector<const Object*> chain;
    for (auto link = links_.find(expr.get()); link != links_.end();
         link = links_.find(link->second.operand.get())) {
      chain.push_back(link->first);
    }
    return chain;
  }

  std::vector<const Object*> ViewsReadBy(const Matmul& matmul) const {
    std::vector<const Object*> views;
    if (matmul.small.reads_lhs_view) views = ChainOf(matmul.lhs);
    if (matmul.small.reads_rhs_view) {
      for (const Object* view : ChainOf(matmul.rhs)) views.push_back(view);
    }
    return views;
  }

  Vars ViewsRead() const {
    Vars views;
    for (const auto& [var, matmul] : matmuls_) {
      for (const Object* view : ViewsReadBy(matmul)) views.insert(view);
    }
    return views;
  }

  /*!
   * \brief Drop a matmul from the rewrite if it would repeat a permute that another user needs
   *        anyway.
   * \return Whether a matmul was dropped.
   */
  bool DropRecomputed() {
    const Vars needed = ViewsRead();
    Vars dead;
    for (auto view = order_.rbegin(); view != order_.rend(); ++view) {
      if (needed.count(*view) != 0 && IsDead(*view, dead)) dead.insert(*view);
    }
    Vars dropped;
    for (const auto& [var, matmul] : matmuls_) {
      for (const Object* view : ViewsReadBy(matmul)) {
        if (links_.at(view).permutation && dead.count(view) == 0) dropped.insert(var);
      }
    }
    for (const Object* var : dropped) {
      Log(var, "an operand is also permuted for another user");
      matmuls_.erase(var);
    }
    return !dropped.empty();
  }

  /*! \brief Whether only `dead` variables and matmuls that become smaller read a view. */
  bool IsDead(const Object* view, const Vars& dead) const {
    auto readers = readers_.find(view);
    if (readers == readers_.end()) return true;
    for (const Object* reader : readers->second) {
      if (dead.count(reader) != 0) continue;
      auto matmul = matmuls_.find(reader);
      if (matmul == matmuls_.end()) return false;
      const auto& [lhs, rhs, small] = matmul->second;
      if (lhs.get() == view && !small.reads_lhs_view) return false;
      if (rhs.get() == view && !small.reads_rhs_view) return false;
    }
    return true;
  }

  const std::string& name_;
  Scalars scalars_;
  /*! \brief The dataflow block that is visited. */
  const Object* block_ = nullptr;
  /*! \brief The variable that is being bound. */
  const Object* reader_ = nullptr;
  std::unordered_map<const Object*, BroadcastView> views_;
  std::unordered_map<const Object*, Link> links_;
  /*! \brief The variables of the views in the order of their bindings. */
  std::vector<const Object*> order_;
  std::unordered_map<const Object*, std::vector<const Object*>> readers_;
  std::unordered_map<const Object*, Matmul> matmuls_;
};

class Rewriter : public Mutator {
 public:
  Rewriter(const ObjectRef& mod, const Analysis& analysis) : Mutator(mod), analysis_(analysis) {}

 protected:
  void RewriteBinding(const BindingView& binding) override {
    const ObjectRef outer = std::exchange(bound_var_, binding.var());
    Mutator::RewriteBinding(binding);
    bound_var_ = outer;
    auto link = analysis_.links().find(binding.var().get());
    if (link != analysis_.links().end()) {
      sources_.insert_or_assign(link->first, SourceOf(link->second));
    }
  }

  ObjectRef RewriteValue(const ObjectRef& value) override {
    auto found = analysis_.matmuls().find(bound_var_.get());
    return found == analysis_.matmuls().end() ? value
                                              : Multiply(CallView(value.get()), found->second);
  }

 private:
  ObjectRef SourceOf(const Analysis::Link& link) {
    static const GlobalFunction permute_dims("relax.op.permute_dims");
    auto known = sources_.find(link.operand.get());
    const ObjectRef source = known == sources_.end() ? RewriteExpr(link.operand) : known->second;
    if (!link.permutation) return source;
    const Array<int64_t> axes(link.permutation->axes.begin(), link.permutation->axes.end());
    return Emit(permute_dims(View(source, link.permutation->shape), axes).cast<ObjectRef>());
  }

  ObjectRef Multiply(const CallView& call, const Analysis::Matmul& matmul) {
    static const GlobalFunction broadcast_to("relax.op.broadcast_to");
    const SmallMatmul& small = matmul.small;
    const ObjectRef lhs = small.reads_lhs_view ? sources_.at(matmul.lhs.get()) : call.args()[0];
    const ObjectRef rhs = small.reads_rhs_view ? sources_.at(matmul.rhs.get()) : call.args()[1];
    ObjectRef out =
        Normalize(builder(), MakeCall(call.op(), {View(lhs, small.lhs), View(rhs, small.rhs)},
                                      call.attrs(), call.ty_args(), nodes.expr.span(call.get())));
    // TVM may lose the shape if equal extents are written differently.
    if (!ShapeOf(out)) return call.ref();
    if (!StructuralEqual(small.parts, small.repeated)) {
      if (!IsBroadcastOf(*ShapeOf(out), small.parts)) out = Reshape(Emit(out), small.parts);
      out = Normalize(builder(),
                      broadcast_to(Emit(out), MakeShapeExpr(small.repeated)).cast<ObjectRef>());
    }
    return StructuralEqual(TypeOf(out), TypeOf(call.ref())) ? out : Reshape(Emit(out), small.shape);
  }

  /*! \brief Whether `shape` is `parts` up to leading axes of extent 1. */
  static bool IsBroadcastOf(const Array<ObjectRef>& shape, const Array<ObjectRef>& parts) {
    if (shape.size() > parts.size()) return false;
    const size_t added = parts.size() - shape.size();
    return std::all_of(parts.begin(), parts.begin() + added, IsOne) &&
           StructuralEqual(shape, Array<ObjectRef>(parts.begin() + added, parts.end()));
  }

  ObjectRef Reshape(const ObjectRef& data, const Array<ObjectRef>& shape) const {
    static const GlobalFunction reshape("relax.op.reshape");
    return Normalize(builder(), reshape(data, MakeShapeExpr(shape)).cast<ObjectRef>());
  }

  /*! \brief Reshape `data` and bind the result to a variable. */
  ObjectRef View(const ObjectRef& data, const Array<ObjectRef>& shape) {
    return StructuralEqual(*ShapeOf(data), shape) ? data : Emit(Reshape(data, shape));
  }

  const Analysis& analysis_;
  ObjectRef bound_var_;
  /*! \brief The small tensors, by the variables of their views. */
  std::unordered_map<const Object*, ObjectRef> sources_;
};

ObjectRef BroadcastFreeMatmul(const ObjectRef& function, const ObjectRef& mod) {
  const auto view = As<FunctionView>(function);
  if (!IsEnabled(kBroadcastFreeMatmulFix) || !view || IsKernel(*view)) return function;
  const auto symbol = FunctionAttr(view->attrs(), "global_symbol");
  const std::string name = symbol ? std::string(symbol->cast<String>()) : std::string("function");
  const Analysis analysis(function, name);
  if (analysis.matmuls().empty()) return function;
  NoteUse(kBroadcastFreeMatmulFix);
  return RemoveNewlyDead(Rewriter(mod, analysis).Rewrite(function), function, mod);
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.transform.BroadcastFreeMatmul", []() {
    return MakeFunctionPass(BroadcastFreeMatmul, kBroadcastFreeMatmul);
  });
}

}  // namespace
}  // namespace tvm_fixes
