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
 * \file src/relay/transform/inline.cc
 * \brief Inlines functions into their callers.
 */
#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"
#include "call_graph.h"
#include "normal_form.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The maximum number of nodes that copies of function bodies may add to a module. */
constexpr int64_t kMaxCopiedNodes = 200000;

bool IsSet(const Attrs& attrs, const char* name) {
  auto value = attrs.Get(name);
  if (!value) return false;
  if (auto number = value->as<int64_t>()) return *number != 0;
  if (auto flag = value->as<bool>()) return *flag;
  return true;
}

/*! \brief Drops annotations that mention the type parameters of a function. */
class TypeParamDropper : public ExprMutator {
 public:
  explicit TypeParamDropper(const Function& function) {
    for (const ObjectRef& param : function->type_params) params_.insert(param.get());
  }

 protected:
  Var MutateVar(const Var& var) override {
    if (!Mentions(var->type_annotation)) return var;
    return WithSpan(Var(var->name, IncompleteType()), var->span);
  }

  Expr Rewrite(const Expr&, const Expr& rebuilt) override {
    if (const auto* call = rebuilt.as<CallObj>()) {
      for (const Type& type : call->type_args) {
        if (Mentions(type)) return WithSpan(Call(call->op, call->args, call->attrs), call->span);
      }
    }
    const auto* function = rebuilt.as<FunctionObj>();
    if (function == nullptr || !Mentions(function->ret_type)) return rebuilt;
    return WithSpan(Function(function->params, function->body, IncompleteType(),
                             function->type_params, function->attrs),
                    function->span);
  }

 private:
  bool Mentions(const Type& root) const {
    std::vector<Type> stack = {root};
    while (!stack.empty()) {
      Type type = std::move(stack.back());
      stack.pop_back();
      if (params_.count(type.get()) != 0) return true;
      if (const auto* tensor = type.as<TensorTypeObj>()) {
        for (const Dim& dim : tensor->shape) {
          auto var = dim.as<ShapeVar>();
          if (var && params_.count(var->get()) != 0) return true;
        }
      }
      auto add = [&](const Array<Type>& types) {
        stack.insert(stack.end(), types.begin(), types.end());
      };
      if (const auto* tuple = type.as<TupleTypeObj>()) add(tuple->fields);
      if (const auto* call = type.as<TypeCallObj>()) add(call->args);
      if (const auto* reference = type.as<RefTypeObj>()) stack.push_back(reference->value);
      if (const auto* function = type.as<FuncTypeObj>()) {
        add(function->arg_types);
        stack.push_back(function->ret_type);
      }
    }
    return false;
  }

  std::unordered_set<const Object*> params_;
};

/*! \brief Replaces the calls in one function. */
class CallReplacer : public ExprMutator {
 public:
  CallReplacer(CallGraph* graph, const std::unordered_set<std::string>& inlined, int64_t* budget)
      : graph_(graph), inlined_(inlined), budget_(budget) {}

  int64_t added() const { return added_; }

 protected:
  Expr Rewrite(const Expr&, const Expr& rebuilt) override {
    const auto* call = rebuilt.as<CallObj>();
    const auto* global = call == nullptr ? nullptr : call->op.as<GlobalVarObj>();
    if (global == nullptr || inlined_.count(global->name) == 0) return rebuilt;
    const CallGraph::Node& callee = graph_->At(global->name);
    if (callee.function->params.size() != call->args.size()) return rebuilt;
    bool is_copied = graph_->References(global->name) > 1;
    if (is_copied && callee.size > *budget_) return rebuilt;
    Function function = callee.function;
    if (!function->type_params.empty()) {
      function = TypeParamDropper(function).MutateFunction(function);
    }
    if (is_copied) {
      *budget_ -= callee.size;
      function = CopyWithNewVars(function).as<Function>().value();
    }
    added_ += callee.size;
    std::vector<std::pair<Var, Expr>> bindings;
    for (size_t i = 0; i < call->args.size(); ++i) {
      bindings.emplace_back(function->params[i], call->args[i]);
    }
    return MakeLets(bindings, function->body);
  }

 private:
  CallGraph* graph_;
  const std::unordered_set<std::string>& inlined_;
  int64_t* budget_;
  int64_t added_ = 0;
};

bool MayInline(const CallGraph& graph, const std::string& name) {
  const CallGraph::Node* node = graph.Find(name);
  const Attrs& attrs = node->function->attrs;
  if (node->is_recursive || attrs.count("Compiler") != 0 || IsSet(attrs, "Extern")) return false;
  if (IsSet(attrs, "Inline") || IsSet(attrs, "inline")) return true;
  return graph.References(name) == 1 && graph.IsOnlyCalled(name);
}

/*!
 * \brief Inline functions that are marked Inline=1 or called once.
 *
 * Before, `@main` calls `@f(%y)`. After, `let %x = %y;` and the body of `@f` replace the call, and
 * `@f` is removed; recursive functions are kept.
 */
IRModule Inline(const IRModule& module) {
  CallGraph graph(module);
  std::unordered_set<std::string> inlined;
  int64_t budget = kMaxCopiedNodes;
  bool changed = false;
  for (const std::string& name : graph.order()) {
    CallGraph::Node& node = graph.At(name);
    CallReplacer replacer(&graph, inlined, &budget);
    Function result = replacer.MutateFunction(node.function);
    changed = changed || !result.same_as(node.function);
    node.function = result;
    node.size += replacer.added();
    if (MayInline(graph, name)) inlined.insert(name);
  }
  if (!changed) return module;
  // An inlined function may still be referenced: as a value, or where the budget ended.
  std::unordered_set<std::string> kept;
  std::vector<std::string> stack;
  for (const std::string& name : graph.order()) {
    if (graph.References(name) == 0 || inlined.count(name) == 0) stack.push_back(name);
  }
  while (!stack.empty()) {
    std::string name = std::move(stack.back());
    stack.pop_back();
    if (graph.Find(name) == nullptr || !kept.insert(name).second) continue;
    PostOrder(graph.At(name).function, [&](const Expr& expr) {
      if (const auto* global = expr.as<GlobalVarObj>()) stack.push_back(global->name);
    });
  }
  Map<String, Function> functions;
  for (const auto& [name, function] : module->functions) {
    if (kept.count(name) != 0) functions.Set(name, graph.At(name).function);
  }
  return IRModule(std::move(functions), module->type_definitions, module->attrs);
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.relay.transform.Inline", Inline);
}

}  // namespace
}  // namespace tvm_fixes::relay
