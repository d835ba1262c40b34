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
 * \file src/relay/transform/dynamic_to_static.cc
 * \brief Replaces dyn.* operators whose shape operands are constants.
 */
#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"
#include "dead_code.h"
#include "dynamic_rules.h"
#include "fold_constant.h"
#include "infer_type.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The maximum number of rounds; types that still change afterwards are kept. */
constexpr int kMaxRounds = 64;

class StaticMaker : public Folder {
 public:
  using Folder::Folder;

 protected:
  Expr RewriteOperator(const Call& call, const Array<Type>& arg_types) override {
    return MakeStatic(call, arg_types);
  }
};

bool MentionsAny(const Type& root) {
  std::vector<Type> stack = {root};
  while (!stack.empty()) {
    Type type = std::move(stack.back());
    stack.pop_back();
    if (const auto* tensor = type.as<TensorTypeObj>()) {
      for (const Dim& dim : tensor->shape) {
        if (IsAnyDim(dim)) return true;
      }
    } else if (const auto* tuple = type.as<TupleTypeObj>()) {
      stack.insert(stack.end(), tuple->fields.begin(), tuple->fields.end());
    }
  }
  return false;
}

/*! \brief Drops annotations with `?` from let variables, so that inference may find extents. */
class AnnotationDropper : public ExprMutator {
 public:
  explicit AnnotationDropper(const Function& function) {
    PostOrder(function, [this](const Expr& expr) {
      const auto* let = expr.as<LetObj>();
      if (let == nullptr || let->value.as<FunctionObj>()) return;
      if (MentionsAny(let->var->type_annotation)) dropped_.insert(let->var.get());
    });
  }

 protected:
  Var MutateVar(const Var& var) override {
    if (dropped_.count(var.get()) == 0) return var;
    return WithSpan(Var(var->name, IncompleteType()), var->span);
  }

 private:
  std::unordered_set<const Object*> dropped_;
};

std::unordered_set<std::string> CalledFunctions(const IRModule& module) {
  std::unordered_set<std::string> called;
  for (const auto& [name, function] : module->functions) {
    PostOrder(function, [&](const Expr& expr) {
      if (const auto* global = expr.as<GlobalVarObj>()) called.insert(global->name);
    });
  }
  return called;
}

IRModule DropAnnotations(const IRModule& module) {
  std::unordered_set<std::string> called = CalledFunctions(module);
  Map<String, Function> functions;
  for (const auto& [name, function] : module->functions) {
    Function result = AnnotationDropper(function).MutateFunction(function);
    // The result type of a function that others call is part of their types.
    if (called.count(name) == 0 && MentionsAny(result->ret_type)) {
      result = WithSpan(Function(result->params, result->body, IncompleteType(),
                                 result->type_params, result->attrs),
                        result->span);
    }
    functions.Set(name, result);
  }
  return IRModule(std::move(functions), module->type_definitions, module->attrs);
}

IRModule MakeStaticOnce(const IRModule& module) {
  return MapFunctions(module, [](const Function& function) {
    return StaticMaker(function).MutateFunction(function);
  });
}

/*!
 * \brief Replace each dyn.* operator whose shape operands are constants by its static operator.
 *
 * Before, `dyn.squeeze(%x, [0])` of a tensor (1, 3) has the type Tensor[(?), float32]. After,
 * `squeeze(%x, axis=[0])` has Tensor[(3), float32]; operands are folded with FoldConstant.
 */
IRModule DynamicToStatic(const IRModule& module) {
  IRModule current = module;
  try {
    current = InferType(module);
  } catch (const tvm::ffi::Error&) {
    // Some relations need static shapes; the declared types may suffice to make operands static.
    IRModule next = MakeStaticOnce(module);
    current = InferType(next);
  }
  for (int round = 0; round < kMaxRounds; ++round) {
    IRModule next = MakeStaticOnce(current);
    if (next.same_as(current)) break;
    if (round == 0) next = DropAnnotations(next);
    current = InferType(next);
  }
  if (current.same_as(module)) return module;
  return InferType(RemoveUnusedConstants(current));
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.relay.transform.DynamicToStatic",
                                        DynamicToStatic);
}

}  // namespace
}  // namespace tvm_fixes::relay
