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
 * \file src/relax/transform/insert_runtime_checks.cc
 * \brief Inserts runtime checks for operator requirements that the verifier can neither prove nor
 *        disprove.
 *
 * It also checks provably wrong indices, which would otherwise be read silently. A check of extents
 * that are known on entry is placed at the start of the function, once; any other check precedes
 * its call. A failing check raises an AssertionError that names the call and both values.
 *
 *     lv = R.matmul(x, w)           R.assert_op(k == j, k, j, format="`lv` = R.matmul: … {} … {}")
 *     # x: (4, k), w: (j, 4)   =>   lv = R.matmul(x, w)
 */
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/rvalue_ref.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../../ffi/registration.h"
#include "../analysis/verifier/operators/obligations.h"
#include "../ir/build.h"
#include "../ir/mutator.h"
#include "../ir/visitor.h"

namespace tvm_fixes {
namespace {

constexpr const char* kRuntimeChecksFix = "runtime-checks";

using verifier::Call;
using verifier::DimId;
using verifier::Obligation;
using verifier::Requirement;
using verifier::Verifier;

/*! \brief A check and its call. */
struct RuntimeCheck {
  Obligation obligation;
  /*! \brief The checked call, which outlives the check. */
  const Object* call;
  /*! \brief The message: "`lv` = relax.matmul: … expected {}, got {}". */
  std::string format;
};

/*! \brief Escape a text for use in a format string. */
std::string Escape(const std::string& text) {
  std::string escaped;
  for (char c : text) escaped.append(c == '{' || c == '}' ? 2 : 1, c);
  return escaped;
}

std::string ExpectedFormat(const Obligation& obligation, bool is_scalar) {
  switch (obligation.requirement) {
    case Requirement::kBroadcast:
    case Requirement::kBroadcastTo:
      return "{} or 1, got {}";
    case Requirement::kAtLeast:
      return "at least {}, got {}";
    case Requirement::kMultipleOf:
      return "a multiple of {}, got {}";
    case Requirement::kIndicesOf:
      return is_scalar ? "less than {}, got {}" : "less than {}, got {} to {}";
    default:
      return "{}, got {}";
  }
}

/*! \brief The checks of a function: at its start, and before bindings. */
struct RuntimeChecks {
  std::vector<RuntimeCheck> at_begin;
  std::unordered_map<const Object*, std::vector<RuntimeCheck>> before;

  bool empty() const { return at_begin.empty() && before.empty(); }
};

/*! \brief Collects the required checks of a function. */
class CheckCollector : public Visitor {
 public:
  CheckCollector(Verifier* verifier, const FunctionView& function) : verifier_(verifier) {
    for (const ObjectRef& param : function.params()) {
      for (const Object* symbol : verifier->types().Vars(verifier->types().Intern(TypeOf(param)))) {
        known_at_begin_.insert(symbol);
      }
    }
    VisitExpr(function.body());
  }

  RuntimeChecks checks;

 protected:
  void VisitIf(const IfView& if_expr) override {
    ++num_ifs_;
    Visitor::VisitIf(if_expr);
    --num_ifs_;
  }

  /*! \brief Local functions are handled after they are lifted. */
  void VisitFunction(const FunctionView& /*function*/) override {}

  void VisitBinding(const BindingView& binding) override {
    auto call = As<CallView>(binding.value());
    if (call && call->IsOp("relax.assert_op")) {
      CollectAssertion(*call);
    } else if (call && nodes.op.IsInstance(call->op().get()) && As<VarView>(binding.var())) {
      Collect(VarView(binding.var().get()), *call);
    }
    if (As<VarView>(binding.var())) {
      verifier_->Bind(binding.var().get(), binding.value().get());
    }
    Visitor::VisitBinding(binding);
  }

 private:
  void Collect(const VarView& var, const CallView& view) {
    Call call{view, verifier_->InfoOf(view.op().get()), verifier::Path::Root(), {}};
    if (!verifier::IsWellFormed(view, call.op)) return;
    for (const ObjectRef& arg : view.args()) {
      call.args.push_back(verifier_->types().Intern(TypeOf(arg)));
    }
    for (Obligation& obligation : verifier::ObligationsOf(verifier_, call)) {
      if (!NeedsRuntimeCheck(obligation) || !IsExpressible(obligation)) continue;
      const bool is_early = num_ifs_ == 0 && IsKnownAtBegin(obligation);
      const auto key =
          std::make_tuple(obligation.requirement, obligation.actual.dim, obligation.expected.dim);
      if (is_early && !checked_at_begin_.insert(key).second) continue;
      std::string format = FormatOf(var, call, obligation);
      if (IsAlreadyInserted(obligation, format)) continue;
      RuntimeCheck check{std::move(obligation), view.get(), std::move(format)};
      (is_early ? checks.at_begin : checks.before[var.get()]).push_back(std::move(check));
    }
  }

  std::string FormatOf(const VarView& var, const Call& call, const Obligation& obligation) const {
    const bool is_scalar =
        obligation.actual.arg >= 0 && obligation.actual.field < 0 &&
        verifier_->dims().Intern(call.view.args()[obligation.actual.arg]) != verifier::kUnknownDim;
    return Escape(verifier::Quote(std::string(var.name())) + " = " + call.op.name + ": " +
                  obligation.actual.Text()) +
           ": expected " + ExpectedFormat(obligation, is_scalar);
  }

  /*! \brief The text of a check without the variable name, which passes may change. */
  static std::string WithoutName(const std::string& format) {
    const size_t end = format.find("` = ");
    return end == std::string::npos ? format : format.substr(end);
  }

  /*! \brief Record a check that is already in the function. */
  void CollectAssertion(const CallView& call) {
    const Array<ObjectRef>& args = call.args();
    if (!args.defined() || args.size() < 4 || !nodes.string_imm.IsInstance(args[1].get())) return;
    const std::string format = nodes.string_imm.value(args[1].get());
    const DimId expected = verifier_->dims().Intern(args[2]);
    const DimId actual = verifier_->dims().Intern(args[3]);
    existing_checks_.insert({WithoutName(format), expected, actual});
  }

  /*! \brief Whether the function already has a check. Indices are checked before each call. */
  bool IsAlreadyInserted(const Obligation& obligation, const std::string& format) {
    const std::string text = WithoutName(format);
    if (obligation.requirement != Requirement::kIndicesOf) {
      return existing_checks_.count({text, obligation.expected.dim, obligation.actual.dim}) != 0;
    }
    auto found = existing_checks_.lower_bound({text, 0, 0});
    if (found == existing_checks_.end() || std::get<0>(*found) != text) return false;
    existing_checks_.erase(found);
    return true;
  }

  /*!
   * \brief Whether to check at run time: unproven obligations, and wrong indices, which would be
   *        read silently.
   */
  static bool NeedsRuntimeCheck(const Obligation& obligation) {
    return obligation.relation == verifier::Relation::kUnknown ||
           (obligation.relation == verifier::Relation::kDisproved &&
            obligation.requirement == Requirement::kIndicesOf);
  }

  /*!
   * \brief Whether TVM accepts both extents as arguments; a T.if_then_else, which is a call, is not
   *        accepted.
   */
  bool IsExpressible(const Obligation& obligation) const {
    return verifier_->dims().IsRead(obligation.actual.dim) &&
           verifier_->dims().IsRead(obligation.expected.dim);
  }

  bool IsKnownAtBegin(const Obligation& obligation) const {
    if (obligation.requirement == Requirement::kIndicesOf) return false;
    for (DimId dim : {obligation.actual.dim, obligation.expected.dim}) {
      for (const Object* symbol : verifier_->dims().Vars(dim)) {
        if (known_at_begin_.count(symbol) == 0) return false;
      }
    }
    return true;
  }

  Verifier* verifier_;
  std::set<const Object*> known_at_begin_;
  std::set<std::tuple<Requirement, DimId, DimId>> checked_at_begin_;
  /*! \brief The checks already in the function: format, expected, actual. */
  std::multiset<std::tuple<std::string, DimId, DimId>> existing_checks_;
  int num_ifs_ = 0;
};

/*! \brief Inserts checks into a function. */
class CheckInserter : public Mutator {
 public:
  CheckInserter(const ObjectRef& mod, Verifier* verifier, RuntimeChecks checks)
      : Mutator(mod), verifier_(verifier), checks_(std::move(checks)) {}

 protected:
  void RewriteBinding(const BindingView& binding) override {
    for (const RuntimeCheck& check : std::exchange(checks_.at_begin, {})) EmitCheck(check);
    if (auto found = checks_.before.find(binding.var().get()); found != checks_.before.end()) {
      for (const RuntimeCheck& check : found->second) EmitCheck(check);
    }
    Mutator::RewriteBinding(binding);
  }

 private:
  ObjectRef EmitOp(const char* name, const Array<ObjectRef>& args) {
    static const GlobalFunction get_op("ir.GetOp");
    const ObjectRef op = get_op(name).cast<ObjectRef>();
    return Emit(MakeCall(op, args, ObjectRef(nullptr), {}, ObjectRef(nullptr)));
  }

  void EmitAssert(const ObjectRef& cond, const std::string& format,
                  const std::vector<ObjectRef>& values) {
    static const GlobalFunction string_imm("ir.StringImm");
    std::vector<ObjectRef> args = {cond, string_imm(String(format), nullptr).cast<ObjectRef>()};
    args.insert(args.end(), values.begin(), values.end());
    EmitOp("relax.assert_op", Array<ObjectRef>(args.begin(), args.end()));
  }

  void EmitCheck(const RuntimeCheck& check) {
    const Obligation& obligation = check.obligation;
    if (obligation.requirement == Requirement::kIndicesOf) return EmitIndexCheck(check);
    const ObjectRef actual = verifier_->dims().ToExpr(obligation.actual.dim);
    const ObjectRef expected = verifier_->dims().ToExpr(obligation.expected.dim);
    EmitAssert(Condition(obligation.requirement, actual, expected), check.format,
               {expected, actual});
  }

  /*! \brief Emit a comparison of the smallest and the largest index with the extent of the axis. */
  void EmitIndexCheck(const RuntimeCheck& check) {
    static const GlobalFunction min("relax.op.min");
    static const GlobalFunction max("relax.op.max");
    static const GlobalFunction astype("relax.op.astype");
    const Obligation& obligation = check.obligation;
    ObjectRef indices = CallView(check.call).args()[obligation.actual.arg];
    if (obligation.actual.field >= 0) {
      indices = Emit(MakeTupleGetItem(RewriteExpr(indices), obligation.actual.field));
    }
    indices = RewriteExpr(indices);
    const DimId scalar = verifier_->dims().Intern(indices);
    if (scalar != verifier::kUnknownDim) return EmitScalarIndexCheck(check, indices);
    const ObjectRef extent = EmitScalar(obligation.expected.dim);
    auto bound = [&](const GlobalFunction& reduce) {
      const ObjectRef reduced = Emit(reduce(indices, Any(nullptr), false).cast<ObjectRef>());
      return Emit(astype(reduced, DLDataType{kDLInt, 64, 1}).cast<ObjectRef>());
    };
    const ObjectRef least = bound(min);
    const ObjectRef greatest = bound(max);
    const ObjectRef is_in_range =
        EmitOp("relax.logical_and",
               {EmitOp("relax.greater_equal", {least, EmitScalar(LeastIndex(obligation))}),
                EmitOp("relax.less", {greatest, extent})});
    EmitAssert(is_in_range, check.format, {extent, least, greatest});
  }

  void EmitScalarIndexCheck(const RuntimeCheck& check, const ObjectRef& index) {
    static const GlobalFunction at_least("prim._OpGE");
    static const GlobalFunction less("prim._OpLT");
    static const GlobalFunction both("prim._OpAnd");
    const Obligation& obligation = check.obligation;
    const ObjectRef extent = verifier_->dims().ToExpr(obligation.expected.dim);
    const ObjectRef least = verifier_->dims().ToExpr(LeastIndex(obligation));
    const ObjectRef value = verifier_->dims().ToExpr(verifier_->dims().Intern(index));
    EmitAssert(both(at_least(value, least, nullptr), less(value, extent, nullptr), nullptr)
                   .cast<ObjectRef>(),
               check.format, {extent, value});
  }

  DimId LeastIndex(const Obligation& obligation) {
    verifier::DimTable& dims = verifier_->dims();
    if (!obligation.counts_from_end) return dims.FromInt(0);
    return dims.Subtract(dims.FromInt(0), obligation.expected.dim);
  }

  /*! \brief An extent as a tensor of rank 0. */
  ObjectRef EmitScalar(DimId dim) {
    static const GlobalFunction squeeze("relax.op.squeeze");
    if (auto value = verifier_->dims().AsInt(dim)) return MakeInt64Scalar(*value);
    const ObjectRef shape = MakeShapeExpr({verifier_->dims().ToExpr(dim)});
    const ObjectRef tensor = EmitOp("relax.shape_to_tensor", {shape});
    return Emit(squeeze(tensor, Array<int64_t>{0}).cast<ObjectRef>());
  }

  static ObjectRef Condition(Requirement requirement, const ObjectRef& actual,
                             const ObjectRef& expected) {
    static const GlobalFunction equal("prim._OpEQ");
    static const GlobalFunction at_least("prim._OpGE");
    static const GlobalFunction modulo("prim._OpFloorMod");
    static const GlobalFunction either("prim._OpOr");
    auto is = [](const ObjectRef& lhs, const ObjectRef& rhs) {
      return equal(lhs, rhs, nullptr).cast<ObjectRef>();
    };
    const ObjectRef one = MakeIntImm("int64", 1);
    ObjectRef condition = is(actual, expected);
    switch (requirement) {
      case Requirement::kBroadcast:
        condition = either(condition, is(expected, one), nullptr).cast<ObjectRef>();
        [[fallthrough]];
      case Requirement::kBroadcastTo:
        return either(condition, is(actual, one), nullptr).cast<ObjectRef>();
      case Requirement::kAtLeast:
        return at_least(actual, expected, nullptr).cast<ObjectRef>();
      case Requirement::kMultipleOf:
        return is(modulo(actual, expected, nullptr).cast<ObjectRef>(), MakeIntImm("int64", 0));
      default:
        return condition;
    }
  }

  Verifier* verifier_;
  RuntimeChecks checks_;
};

/*! \brief Insert checks into a function. Returns the function itself if it needs no check. */
ObjectRef InsertChecks(const ObjectRef& function, const ObjectRef& mod, Verifier* verifier) {
  static const GlobalFunction with_attr("ir.BaseFuncWithAttr");
  auto view = As<FunctionView>(function);
  if (!view || !view->params().defined() || IsKernel(*view)) return function;
  CheckCollector collector(verifier, *view);
  if (collector.checks.empty()) return function;
  ObjectRef checked = CheckInserter(mod, verifier, std::move(collector.checks)).Rewrite(function);
  // An assertion is a side effect, but callers need not know.
  if (!view->is_pure()) return checked;
  return with_attr(tvm::ffi::RValueRef<ObjectRef>(std::move(checked)), String("relax.force_pure"),
                   true)
      .cast<ObjectRef>();
}

ObjectRef RunPass(const ObjectRef& pass, const ObjectRef& mod) {
  static const GlobalFunction run("transform.RunPass");
  return run(pass, mod).cast<ObjectRef>();
}

ObjectRef InsertRuntimeChecks(const ObjectRef& mod) {
  static const GlobalFunction to_non_dataflow("relax.transform.ToNonDataflow");
  static const GlobalFunction convert_to_dataflow("relax.transform.ConvertToDataflow");
  if (!IsEnabled(kRuntimeChecksFix)) return mod;
  // Checks have side effects, so they go between dataflow blocks, which are rebuilt around them.
  const ObjectRef plain = RunPass(to_non_dataflow().cast<ObjectRef>(), mod);
  Verifier verifier(plain);
  Map<ObjectRef, ObjectRef> functions;
  bool changed = false;
  for (const auto& [global_var, function] : nodes.module.functions(plain.get())) {
    const ObjectRef checked = InsertChecks(function, plain, &verifier);
    changed |= !checked.same_as(function);
    functions.Set(global_var, checked);
  }
  if (!changed) return mod;
  NoteUse(kRuntimeChecksFix);
  const ObjectRef result = WithFields(plain, {{"functions", functions}});
  return RunPass(convert_to_dataflow(1).cast<ObjectRef>(), result);
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.transform.InsertRuntimeChecks", []() {
    return MakeModulePass(InsertRuntimeChecks, "InsertRuntimeChecks");
  });
}

}  // namespace
}  // namespace tvm_fixes
