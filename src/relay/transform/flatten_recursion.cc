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
 * \file src/relay/transform/flatten_recursion.cc
 * \brief Limits the nesting of the calls of a tail-recursive function to log n.
 */
#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"
#include "../ir/tensor.h"
#include "call_graph.h"
#include "infer_type.h"
#include "recursion.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The maximum nesting of branches; MapEnds recurses into them. */
constexpr int kMaxBranchDepth = 200;

/*! \brief A function of the module that calls itself in tail position only. */
class TailRecursion {
 public:
  TailRecursion(const std::string& name, const Function& function)
      : name_(name), function_(function) {
    if (!function->type_params.empty() || !IsFirstOrder(function->body)) return;
    if (function->attrs.count(kFlattened) != 0) return;
    for (const Var& param : function->params) {
      if (!IsFirstOrder(param)) return;
    }
    MarkTail(function->body);
    is_valid_ = calls_itself_ && !is_deep_ && OnlyInTail();
  }

  /*! \brief Whether each call of the function itself is a tail call. */
  bool is_valid() const { return is_valid_; }

  /*! \brief Add the functions that run the loop, and replace the function by one that does. */
  void Flatten(Map<String, Function>* functions) {
    GlobalVar step = Declare(functions, "_step");
    GlobalVar many = Declare(functions, "_steps");
    GlobalVar search = Declare(functions, "_loop");
    functions->Set(step->name, MakeStep());
    functions->Set(many->name, MakeMany(step, many));
    functions->Set(search->name, MakeSearch(many, search));
    functions->Set(name_, MakeWhole(search));
  }

 private:
  bool IsSelf(const Expr& expr) const {
    const auto* global = expr.as<GlobalVarObj>();
    return global != nullptr && global->name == name_;
  }

  bool IsSelfCall(const Expr& expr) const {
    const auto* call = expr.as<CallObj>();
    return call != nullptr && IsSelf(call->op);
  }

  /*! \brief Find the nodes whose value is the function's result, from the top. */
  void MarkTail(const Expr& body) {
    std::vector<std::pair<Expr, int>> stack = {{body, 0}};
    while (!stack.empty()) {
      auto [expr, depth] = std::move(stack.back());
      stack.pop_back();
      if (!tail_.insert(expr.get()).second) continue;
      calls_itself_ = calls_itself_ || IsSelfCall(expr);
      is_deep_ = is_deep_ || depth > kMaxBranchDepth;
      if (const auto* let = expr.as<LetObj>()) stack.emplace_back(let->body, depth);
      if (const auto* branch = expr.as<IfObj>()) {
        stack.emplace_back(branch->true_branch, depth + 1);
        stack.emplace_back(branch->false_branch, depth + 1);
      }
    }
  }

  bool OnlyInTail() const {
    bool valid = true;
    PostOrder(function_->body, [&](const Expr& expr) {
      bool in_tail = tail_.count(expr.get()) != 0;
      const auto* let = expr.as<LetObj>();
      const auto* branch = expr.as<IfObj>();
      bool first = true;
      ForEachChild(expr, [&](const Expr& child) {
        // The first child of a let and an if is an operand, as are all children of other nodes.
        bool stays = in_tail && (let != nullptr || branch != nullptr) && !first;
        bool is_op = first && expr.as<CallObj>() != nullptr;
        first = false;
        if (IsSelf(child)) valid = valid && is_op;
        if (stays) return;
        bool is_tail = tail_.count(child.get()) != 0;
        bool is_leaf = child.as<LetObj>() == nullptr && child.as<IfObj>() == nullptr;
        if (IsSelfCall(child) || (is_tail && !is_leaf)) valid = false;
      });
    });
    return valid;
  }

  /*! \brief The body with another expression in place of each end. */
  template <typename F>
  std::optional<Expr> MapEnds(const Expr& expr, F end) const {
    std::vector<std::pair<Var, Expr>> bindings;
    Expr current = expr;
    while (const auto* let = current.as<LetObj>()) {
      bindings.emplace_back(let->var, let->value);
      current = let->body;
    }
    std::optional<Expr> result;
    if (const auto* branch = current.as<IfObj>()) {
      std::optional<Expr> yes = MapEnds(branch->true_branch, end);
      std::optional<Expr> no = MapEnds(branch->false_branch, end);
      if (yes && no) {
        result = WithSpan(If(branch->cond, *yes, *no), branch->span);
      } else {
        // A branch that has no end is not taken.
        result = yes ? yes : no;
      }
    } else {
      result = end(current);
    }
    if (!result) return std::nullopt;
    return MakeLets(bindings, *result);
  }

  static DLDataType Bool() { return {kDLBool, 8, 1}; }
  static DLDataType Int32() { return {kDLInt, 32, 1}; }
  static Expr Number(int64_t value, DLDataType dtype = Int32()) {
    return Constant(IntScalar(value, dtype));
  }

  GlobalVar Declare(Map<String, Function>* functions, const char* suffix) const {
    GlobalVar global(UnusedName(*functions, name_ + suffix));
    functions->Set(global->name, function_);
    return global;
  }

  std::vector<Var> NewParams() const {
    std::vector<Var> params;
    for (const Var& param : function_->params) params.push_back(NewVar(param->name, param));
    return params;
  }

  /*! \brief Whether the loop is done, then the arguments of the next iteration. */
  Type StateType() const {
    Array<Type> fields = {TensorType({}, Bool())};
    for (const Var& param : function_->params) fields.push_back(param->checked_type);
    return TupleType(fields);
  }

  /*! \brief A function with new parameters instead of the old ones. */
  Function WithNewParams(const Expr& body, const Type& result) const {
    std::vector<Var> params = NewParams();
    std::unordered_map<const Object*, Expr> replacements;
    for (size_t i = 0; i < params.size(); ++i) {
      replacements.emplace(function_->params[i].get(), params[i]);
    }
    Expr copy = CopyWithNewVars(Substitute(body, replacements));
    return Function(Array<Var>(params.begin(), params.end()), copy, result);
  }

  Function MakeStep() const {
    auto body = MapEnds(function_->body, [&](const Expr& end) -> std::optional<Expr> {
      bool goes_on = IsSelfCall(end);
      Array<Expr> fields = {Number(!goes_on, Bool())};
      if (goes_on) {
        for (const Expr& arg : end.as<CallObj>()->args) fields.push_back(arg);
      } else {
        for (const Var& param : function_->params) fields.push_back(param);
      }
      return WithSpan(Tuple(fields), end->span);
    });
    return WithNewParams(*body, StateType());
  }

  /*! \brief A call with a number and the arguments in a state. */
  Expr CallNext(const GlobalVar& function, const Expr& number, const Expr& state) const {
    Array<Expr> args = {number};
    for (size_t i = 0; i < function_->params.size(); ++i) {
      args.push_back(TupleGetItem(state, static_cast<int64_t>(i) + 1));
    }
    return Call(function, args);
  }

  /*! \brief At most 2^k iterations. */
  Function MakeMany(const GlobalVar& step, const GlobalVar& many) const {
    Var k("k", TensorType({}, Int32()));
    std::vector<Var> params = NewParams();
    Array<Var> all = {k};
    Array<Expr> args;
    Expr fewer = Call(Op::Get("subtract"), {k, Number(1)});
    Array<Expr> half_args = {fewer};
    for (const Var& param : params) {
      all.push_back(param);
      args.push_back(param);
      half_args.push_back(param);
    }
    Var half("half", StateType());
    Expr rest = If(TupleGetItem(half, 0), half, CallNext(many, fewer, half));
    Expr both = Let(half, Call(many, half_args), rest);
    Expr is_one = Call(Op::Get("equal"), {k, Number(0)});
    return Function(all, If(is_one, Call(step, args), both), StateType(), EmptyArray(),
                    {{kFlattened, 1}});
  }

  /*! \brief Iterations until the loop is done, twice as many each time. */
  Function MakeSearch(const GlobalVar& many, const GlobalVar& search) const {
    Var k("k", TensorType({}, Int32()));
    Array<Var> all = {k};
    Array<Expr> args = {k};
    for (const Var& param : NewParams()) {
      all.push_back(param);
      args.push_back(param);
    }
    Var state("state", StateType());
    Expr more = CallNext(search, Call(Op::Get("add"), {k, Number(1)}), state);
    Expr body = Let(state, Call(many, args), If(TupleGetItem(state, 0), state, more));
    return Function(all, body, StateType(), EmptyArray(), {{kFlattened, 1}});
  }

  /*! \brief The loop, and then the end that the last iteration reached. */
  Function MakeWhole(const GlobalVar& search) const {
    auto body = MapEnds(function_->body, [&](const Expr& end) -> std::optional<Expr> {
      if (IsSelfCall(end)) return std::nullopt;
      return end;
    });
    if (!body) ThrowRelayError("function '" + name_ + "' calls itself on each path");
    Var state("state", StateType());
    std::vector<std::pair<Var, Expr>> bindings;
    Array<Expr> args = {Number(0)};
    for (const Var& param : function_->params) args.push_back(param);
    bindings.emplace_back(state, Call(search, args));
    std::unordered_map<const Object*, Expr> last;
    for (size_t i = 0; i < function_->params.size(); ++i) {
      const Var& param = function_->params[i];
      Var var = NewVar(param->name, param);
      bindings.emplace_back(var, TupleGetItem(state, static_cast<int64_t>(i) + 1));
      last.emplace(param.get(), var);
    }
    Expr whole = MakeLets(bindings, CopyWithNewVars(Substitute(*body, last)));
    return Function(function_->params, whole, function_->body->checked_type, EmptyArray(),
                    function_->attrs);
  }

  std::string name_;
  Function function_;
  std::unordered_set<const Object*> tail_;
  bool calls_itself_ = false;
  bool is_deep_ = false;
  bool is_valid_ = false;
};

IRModule FlattenRecursion(const IRModule& module) {
  Map<String, Function> functions = module->functions;
  for (const auto& [name, function] : module->functions) {
    TailRecursion recursion(name, function);
    if (recursion.is_valid()) recursion.Flatten(&functions);
  }
  if (functions.size() == module->functions.size()) return module;
  return InferType(IRModule(std::move(functions), module->type_definitions, module->attrs));
}

/*! \brief The functions whose calls of themselves nest, by name. */
Array<String> RecursiveFunctions(const IRModule& module) {
  CallGraph graph(module);
  Array<String> names;
  for (const std::string& name : graph.order()) {
    const CallGraph::Node& node = graph.At(name);
    bool is_flat = node.function->attrs.count(kFlattened) != 0;
    if (node.is_in_cycle || (node.is_recursive && !is_flat)) names.push_back(name);
  }
  return names;
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("tvm_fixes.relay.transform.FlattenRecursion", FlattenRecursion)
      .def("tvm_fixes.relay.RecursiveFunctions", RecursiveFunctions);
}

}  // namespace
}  // namespace tvm_fixes::relay
