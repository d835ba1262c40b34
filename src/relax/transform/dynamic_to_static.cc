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
 * \file src/relax/transform/dynamic_to_static.cc
 * \brief Replaces shapes that a model computes with tensors by expressions over the extents of its
 *        inputs.
 *
 * Trigger: a shape computed by operators (Shape, Gather, Concat, Equal, If in ONNX; x.shape in
 * PyTorch). Mechanism: type inference uses only literal shape expressions, and no pass tracks the
 * values of tensors.
 *
 * A rewrite relies only on facts that hold for all inputs. Everything else is left to run time:
 * unchanged, or checked by a match_cast.
 *
 * Removal: delete this file, and shape_resolution.* and shape_values* under analysis/, when TVM
 * propagates shapes through tensors of integers.
 */
#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "../../ffi/registration.h"
#include "../analysis/shape_resolution.h"
#include "../analysis/shape_values.h"
#include "../ir/build.h"
#include "../ir/dead_code.h"
#include "../ir/mutator.h"
#include "../ir/substitution.h"
#include "../ir/visitor.h"
#include "refresh_types.h"

namespace tvm_fixes {
namespace {

constexpr const char* kDynamicToStaticFix = "dynamic-to-static";
constexpr const char* kDynamicToStatic = "DynamicToStatic";

using Symbols = std::unordered_set<ObjectRef, ObjectPtrHash, ObjectPtrEqual>;

/*! \brief Collects the variables that are call arguments in a function. */
class Operands : public Visitor {
 public:
  explicit Operands(const ObjectRef& function) { VisitExpr(function); }

  bool Has(const ObjectRef& var) const { return operands_.count(var) != 0; }

 protected:
  void VisitCall(const CallView& call) override {
    if (call.args().defined()) {
      for (const ObjectRef& arg : call.args()) {
        operands_.insert(arg);
        if (auto tuple = As<TupleView>(arg); tuple && tuple->fields().defined()) {
          operands_.insert(tuple->fields().begin(), tuple->fields().end());
        }
      }
    }
    Visitor::VisitCall(call);
  }

 private:
  std::unordered_set<ObjectRef, ObjectPtrHash, ObjectPtrEqual> operands_;
};

/*! \brief Makes shapes of a function static. */
class ShapeResolver : public Mutator {
 public:
  ShapeResolver(const ObjectRef& mod, const FunctionView& function, const std::string& name)
      : Mutator(mod),
        name_(name),
        operands_(function.ref()),
        values_(&scalars_),
        substitution_([this](const ObjectRef& expr) { return scalars_.Simplify(expr); }) {
    static const GlobalFunction begin_scope("relax.BlockBuilderBeginScope");
    if (function.params().defined()) begin_scope(builder(), function.params());
  }

 protected:
  ObjectRef RewriteLeaf(const ObjectRef& leaf) override { return substitution_(leaf); }
  ObjectRef RewriteType(const ObjectRef& type) override { return substitution_(type); }

  /*! \brief Symbols defined in a branch or a local function go out of scope after it. */
  ObjectRef RewriteScope(const Array<ObjectRef>& params, const ObjectRef& body) override {
    const Symbols outer_defined = defined_;
    const Substitution outer_substitution = substitution_;
    const bool outer_renames = std::exchange(renames_, false);
    if (params.defined()) {
      for (const ObjectRef& param : params) DefineSymbolsOf(param);
    }
    ObjectRef rewritten = Mutator::RewriteScope(params, body);
    renames_ = outer_renames;
    substitution_ = outer_substitution;
    defined_ = outer_defined;
    return rewritten;
  }

  ObjectRef RewriteValue(const ObjectRef& value) override {
    auto call = As<CallView>(value);
    if (!call || !call->args().defined()) return value;
    if (auto shape = ResolveShape(values_, *call)) return MakeShapeExpr(*shape);
    if (auto resolved = ResolveReshape(values_, *call)) return Normalize(builder(), *resolved);
    if (auto resolved = ResolveSlice(values_, *call)) return Normalize(builder(), *resolved);
    return value;
  }

  ObjectRef InferCall(const CallView& original, const ObjectRef& call) override {
    try {
      return Mutator::InferCall(original, call);
    } catch (const tvm::ffi::Error& error) {
      if (!in_block()) throw;
      Log("TVM rejects the call with the inferred shapes: " + error.message());
    }
    try {
      return Mutator::InferCall(original, ForgetShapes(CallView(call.get())));
    } catch (const tvm::ffi::Error& error) {
      TVM_FFI_THROW(ValueError) << "`" << binding_ << "` in `" << name_
                                << "` is called with invalid shapes: " << error.message();
    }
    return call;
  }

  void RewriteBinding(const BindingView& binding) override {
    const std::string outer_binding =
        std::exchange(binding_, VarView::Is(binding.var().get())
                                    ? std::string(VarView(binding.var().get()).name())
                                    : std::string());
    if (binding.is_match_cast()) {
      RewriteMatchCast(binding);
    } else if (auto if_expr = As<IfView>(binding.value())) {
      RewriteIfBinding(binding, *if_expr);
    } else {
      CheckSqueeze(binding);
    }
    RecordValue(binding.var());
    binding_ = outer_binding;
  }

 private:
  void DefineSymbolsOf(const ObjectRef& param) {
    static const GlobalFunction vars_in_type("relax.analysis.TIRVarsInType");
    static const GlobalFunction non_negative("relax.analysis.CollectNonNegativeExpressions");
    defined_.insert(param);
    if (!TypeOf(param).defined()) return;
    const auto symbols = vars_in_type(TypeOf(param)).cast<Array<ObjectRef>>();
    defined_.insert(symbols.begin(), symbols.end());
    const auto extents = non_negative(TypeOf(param)).cast<Array<ObjectRef>>();
    for (const ObjectRef& extent : extents) scalars_.MarkNonNegative(extent);
  }

  /*! \brief Record the value of the variable just bound in place of `var`. */
  void RecordValue(const ObjectRef& var) {
    const ObjectRef rewritten = RewriteExpr(var);
    const ObjectRef value = BoundValue(rewritten);
    if (!value.defined()) return;
    if (ShapeExprView::Is(value.get())) {
      shape_vars_[var.get()] = rewritten;
      Replace(var, value);
      substitution_.Set(var, value);
    }
    values_.Bind(rewritten, value);
  }

  /*!
   * \brief The call with operands of known rank but unknown shape, since it may be a call that
   *        never runs.
   */
  ObjectRef ForgetShapes(const CallView& call) {
    static const GlobalFunction tensor_type("relax.TensorType");
    std::vector<ObjectRef> args(call.args().begin(), call.args().end());
    for (ObjectRef& arg : args) {
      auto tensor = As<TensorTypeView>(TypeOf(arg));
      if (!tensor) continue;
      const auto type =
          tensor_type(nullptr, tensor->dtype(), tensor->ndim(), tensor->vdevice(), nullptr)
              .cast<ObjectRef>();
      arg = EmitMatchCast(binding_, arg, type);
    }
    return MakeCall(call.op(), Array<ObjectRef>(args.begin(), args.end()), call.attrs(),
                    call.ty_args(), nodes.expr.span(call.get()));
  }

  void RewriteMatchCast(const BindingView& binding) {
    const ObjectRef value = RewriteExpr(binding.value());
    const auto pattern = DimsOfType(binding.cast_ty());
    const auto actual = DimsOf(value);
    const bool is_tensor = As<TensorTypeView>(binding.cast_ty()).has_value();
    const bool fits = pattern && actual && pattern->size() == actual->size();
    for (size_t i = 0; pattern && i < pattern->size(); ++i) {
      const ObjectRef& symbol = (*pattern)[i];
      if (!VarView::Is(symbol.get()) || defined_.count(symbol) != 0) continue;
      Define(symbol, fits ? (*actual)[i] : ObjectRef(nullptr), is_tensor);
    }
    const ObjectRef type = RewriteType(binding.cast_ty());
    if (!fits || !IsProved(*DimsOfType(type), *actual)) return KeepMatchCast(binding);
    if (is_tensor && !KeepsTensor(TensorTypeView(type.get()), TypeOf(value))) {
      return KeepMatchCast(binding);
    }
    EmitVarBinding(binding, is_tensor ? value : MakeShapeExpr(*actual));
  }

  /*! \brief Let a match_cast of a shape read the variable: TVM cannot lower one of expressions. */
  void KeepMatchCast(const BindingView& binding) {
    const ObjectRef original = binding.value();
    auto var = shape_vars_.find(original.get());
    if (var == shape_vars_.end()) return Mutator::RewriteBinding(binding);
    const ObjectRef shape = RewriteExpr(original);
    Replace(original, var->second);
    Mutator::RewriteBinding(binding);
    Replace(original, shape);
  }

  /*!
   * \brief Record a symbol that a match_cast defines as `value`, or null if that is unknown.
   *
   * An expression that would be duplicated at each use stays a symbol.
   */
  void Define(const ObjectRef& symbol, const ObjectRef& value, bool is_extent) {
    ObjectRef own = symbol;
    const bool is_known = value.defined() && Scalars::IsRepeatable(value);
    if (is_known && !scalars_.ProvesNegative(value)) {
      substitution_.Set(symbol, value);
    } else if (renames_) {
      // The spliced branch of an If may follow code that defines the same symbol.
      own = MakeVar(VarView(symbol.get()).name(), TypeOf(symbol), false);
      substitution_.Set(symbol, own);
      Log("the symbol " + Name(symbol) + " is known only at run time");
    }
    defined_.insert(symbol);
    defined_.insert(own);
    if (is_extent) scalars_.MarkNonNegative(own);
  }

  std::optional<Array<ObjectRef>> DimsOf(const ObjectRef& value) {
    if (IsTensorOrTuple(TypeOf(value))) return ShapeOf(value);
    auto known = values_.ValueOf(value);
    if (!known || known->shape.size() != 1) return std::nullopt;
    return Array<ObjectRef>(known->elements.begin(), known->elements.end());
  }

  bool IsProved(const Array<ObjectRef>& lhs, const Array<ObjectRef>& rhs) const {
    return std::equal(
        lhs.begin(), lhs.end(), rhs.begin(), rhs.end(),
        [this](const ObjectRef& x, const ObjectRef& y) { return scalars_.ProvesEqual(x, y); });
  }

  /*! \brief Whether a match_cast of a tensor checks only its shape. */
  static bool KeepsTensor(const TensorTypeView& checked, const ObjectRef& type) {
    auto tensor = As<TensorTypeView>(type);
    if (!tensor) return false;
    auto keeps = [](const ObjectRef& expected, const ObjectRef& actual) {
      return !expected.defined() || (actual.defined() && StructuralEqual(expected, actual));
    };
    return keeps(checked.dtype(), tensor->dtype()) && keeps(checked.vdevice(), tensor->vdevice());
  }

  void RewriteIfBinding(const BindingView& binding, const IfView& if_expr) {
    const auto condition = values_.ValueOf(RewriteExpr(if_expr.cond()));
    const auto taken = condition && condition->elements.size() == 1
                           ? scalars_.Decide(condition->elements[0])
                           : std::nullopt;
    if (!taken || in_dataflow_block()) {
      Log("the condition is known only at run time");
      Mutator::RewriteBinding(binding);
      return Join(binding.var());
    }
    const Symbols outer_defined = defined_;
    const Substitution outer_substitution = substitution_;
    const bool outer_renames = std::exchange(renames_, true);
    const ObjectRef result = Splice(*taken ? if_expr.true_branch() : if_expr.false_branch());
    renames_ = outer_renames;
    substitution_ = outer_substitution;
    defined_ = outer_defined;
    EmitVarBinding(binding, result);
  }

  /*! \brief Give the result of an If a symbolic shape, since TVM keeps only its rank. */
  void Join(const ObjectRef& var) {
    const ObjectRef joined = RewriteExpr(var);
    auto tensor = As<TensorTypeView>(TypeOf(joined));
    auto if_expr = As<IfView>(BoundValue(joined));
    if (!tensor || tensor->shape().defined() || !if_expr || !operands_.Has(var)) return;
    auto lhs = ShapeOf(if_expr->true_branch()), rhs = ShapeOf(if_expr->false_branch());
    if (!lhs || !rhs || lhs->size() != rhs->size() || lhs->empty()) {
      return Log("the branches have different ranks");
    }
    std::vector<ObjectRef> dims;
    for (size_t i = 0; i < lhs->size(); ++i) {
      const bool agree = scalars_.ProvesEqual((*lhs)[i], (*rhs)[i]) && IsInScope((*lhs)[i]);
      dims.push_back(agree ? (*lhs)[i] : NewSymbol(binding_ + "_" + std::to_string(i)));
    }
    const ObjectRef type = MakeTensorType(Array<ObjectRef>(dims.begin(), dims.end()), *tensor);
    Replace(var, EmitMatchCast(VarView(joined.get()).name(), joined, type));
  }

  ObjectRef NewSymbol(const std::string& name) {
    static const GlobalFunction prim_type("ir.PrimType");
    const ObjectRef symbol =
        MakeVar(name, prim_type(DLDataType{kDLInt, 64, 1}).cast<ObjectRef>(), false);
    defined_.insert(symbol);
    scalars_.MarkNonNegative(symbol);
    return symbol;
  }

  bool IsInScope(const ObjectRef& dim) const {
    static const GlobalFunction vars_in_type("relax.analysis.TIRVarsInType");
    static const GlobalFunction shape_type("relax.ShapeType");
    const Array<ObjectRef> dims = {dim};
    for (const ObjectRef& var :
         vars_in_type(shape_type(dims, -1, nullptr)).cast<Array<ObjectRef>>()) {
      if (defined_.count(var) == 0) return false;
    }
    return true;
  }

  /*! \brief Rewrite a binding. Before a squeeze of extents that may not be 1, insert a check. */
  void CheckSqueeze(const BindingView& binding) {
    auto call = As<CallView>(binding.value());
    if (!call || !call->IsOp("relax.squeeze") || !call->args().defined()) {
      return Mutator::RewriteBinding(binding);
    }
    const ObjectRef data = RewriteExpr(call->args()[0]);
    if (auto dims = ShapeOfSqueezed(scalars_, data, call->attrs());
        dims && VarView::Is(data.get())) {
      const ObjectRef type = MakeTensorType(*dims, TensorTypeView(TypeOf(data).get()));
      const ObjectRef original = call->args()[0];
      // For this binding only, since the extent may differ elsewhere.
      Replace(original, EmitMatchCast(String(binding_ + "_squeezed"), data, type));
      Mutator::RewriteBinding(binding);
      return Replace(original, data);
    }
    Mutator::RewriteBinding(binding);
  }

  static std::string Name(const ObjectRef& var) { return std::string(VarView(var.get()).name()); }

  void Log(const std::string& text) const {
    if (LogsDebug(kDynamicToStatic))
      LogDebug(kDynamicToStatic, name_ + ": `" + binding_ + "`: " + text);
  }

  std::string name_;
  Scalars scalars_;
  Operands operands_;
  ShapeValues values_;
  /*! \brief The original shape variables and their replacements. */
  std::unordered_map<const Object*, ObjectRef> shape_vars_;
  /*! \brief The symbols in scope. */
  Symbols defined_;
  Substitution substitution_;
  /*! \brief Whether symbols defined here are renamed. */
  bool renames_ = false;
  /*! \brief The name of the variable that is being bound. */
  std::string binding_;
};

/*! \brief Update the result type of a function if the type of its body changed. */
ObjectRef RefineResult(const ObjectRef& function, const ObjectRef& original) {
  const FunctionView view(function.get());
  const ObjectRef& body = FunctionView(original.get()).body();
  if (StructuralEqual(TypeOf(view.body()), TypeOf(body))) return function;
  return MakeFunction(view, view.params(), view.body(), ObjectRef(nullptr));
}

ObjectRef DynamicToStatic(const ObjectRef& mod) {
  if (!IsEnabled(kDynamicToStaticFix)) return mod;
  Map<ObjectRef, ObjectRef> functions;
  bool changed = false;
  for (const auto& [global_var, function] : nodes.module.functions(mod.get())) {
    ObjectRef resolved = function;
    if (auto view = As<FunctionView>(function); view && !IsKernel(*view)) {
      const std::string name(nodes.global_var.name_hint(global_var.get()));
      resolved = ShapeResolver(mod, *view, name).Rewrite(function);
      resolved = RemoveNewlyDead(resolved, function, mod);
      if (!resolved.same_as(function)) resolved = RefineResult(resolved, function);
    }
    changed |= !resolved.same_as(function);
    functions.Set(global_var, resolved);
  }
  if (!changed) return mod;
  NoteUse(kDynamicToStaticFix);
  return RefreshTypes(WithFields(mod, {{"functions", functions}}));
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.transform.DynamicToStatic", []() {
    return MakeModulePass(DynamicToStatic, kDynamicToStatic);
  });
}

}  // namespace
}  // namespace tvm_fixes
