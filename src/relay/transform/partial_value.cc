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
 * \file src/relay/transform/partial_value.cc
 * \brief Values of the partial evaluator, and the matching of patterns with them.
 */
#include "partial_value.h"

namespace tvm_fixes::relay {

PartialValue* PartialArena::Add(PartialValue::Kind kind) {
  values_.push_back(std::make_unique<PartialValue>());
  values_.back()->kind = kind;
  return values_.back().get();
}

PartialValue* PartialArena::Dynamic(Expr expr) {
  PartialValue* value = Add(PartialValue::Kind::kDynamic);
  value->expr = std::move(expr);
  return value;
}

PartialValue* PartialArena::Tuple(std::vector<PartialValue*> fields) {
  PartialValue* value = Add(PartialValue::Kind::kTuple);
  value->fields = std::move(fields);
  return value;
}

PartialValue* PartialArena::Data(Constructor constructor, std::vector<PartialValue*> fields) {
  PartialValue* value = Add(PartialValue::Kind::kData);
  value->constructor = std::move(constructor);
  value->fields = std::move(fields);
  return value;
}

PartialValue* PartialArena::Closure(Function function, PartialEnv* env) {
  PartialValue* value = Add(PartialValue::Kind::kClosure);
  value->function = std::move(function);
  value->env = env;
  return value;
}

PartialEnv* PartialArena::Env(PartialEnv* parent) {
  envs_.push_back(std::make_unique<PartialEnv>());
  envs_.back()->parent = parent;
  return envs_.back().get();
}

PartialScope* PartialArena::Scope() {
  scopes_.push_back(std::make_unique<PartialScope>());
  return scopes_.back().get();
}

MatchResult MatchPattern(const Pattern& root, PartialValue* root_value, PartialEnv* env) {
  using Kind = PartialValue::Kind;
  std::vector<std::pair<Pattern, PartialValue*>> stack = {{root, root_value}};
  std::vector<std::pair<const Object*, PartialValue*>> bound;
  bool is_known = true;
  while (!stack.empty()) {
    auto [pattern, value] = std::move(stack.back());
    stack.pop_back();
    Array<Pattern> parts;
    if (const auto* var = pattern.as<PatternVarObj>()) {
      bound.emplace_back(var->var.get(), value);
      continue;
    }
    if (const auto* made = pattern.as<PatternConstructorObj>()) {
      if (value->kind == Kind::kData) {
        const Constructor& actual = value->constructor;
        if (actual->name != made->constructor->name) return MatchResult::kNo;
      } else {
        is_known = false;
      }
      parts = made->patterns;
    } else if (const auto* tuple = pattern.as<PatternTupleObj>()) {
      if (value->kind != Kind::kTuple) is_known = false;
      parts = tuple->patterns;
    }
    if (value->fields.size() != parts.size()) {
      if (!parts.empty()) is_known = false;
      continue;
    }
    for (size_t i = parts.size(); i-- > 0;) stack.emplace_back(parts[i], value->fields[i]);
  }
  if (!is_known) return MatchResult::kUnknown;
  for (const auto& [var, value] : bound) env->values[var] = value;
  return MatchResult::kYes;
}

Pattern CopyPattern(const Pattern& pattern, PartialEnv* env, PartialArena* arena) {
  if (const auto* old = pattern.as<PatternVarObj>()) {
    Var var = WithSpan(Var(old->var->name, IncompleteType()), old->var->span);
    env->values[old->var.get()] = arena->Dynamic(var);
    return Pattern(make_object<PatternVarObj>(var));
  }
  auto copy = [&](const Array<Pattern>& parts) {
    Array<Pattern> copies;
    for (const Pattern& part : parts) copies.push_back(CopyPattern(part, env, arena));
    return copies;
  };
  if (const auto* tuple = pattern.as<PatternTupleObj>()) {
    return Pattern(make_object<PatternTupleObj>(copy(tuple->patterns)));
  }
  if (const auto* made = pattern.as<PatternConstructorObj>()) {
    return Pattern(make_object<PatternConstructorObj>(made->constructor, copy(made->patterns)));
  }
  return pattern;
}

bool IsClosedType(const Type& root) {
  std::vector<Type> stack = {root};
  while (!stack.empty()) {
    Type type = std::move(stack.back());
    stack.pop_back();
    if (IsMissing(type) || type.as<TypeVarObj>()) return false;
    auto add = [&](const Array<Type>& types) {
      stack.insert(stack.end(), types.begin(), types.end());
    };
    if (const auto* tensor = type.as<TensorTypeObj>()) {
      for (const Dim& dim : tensor->shape) {
        if (dim.as<ShapeVar>()) return false;
      }
    } else if (const auto* tuple = type.as<TupleTypeObj>()) {
      add(tuple->fields);
    } else if (const auto* call = type.as<TypeCallObj>()) {
      add(call->args);
    } else if (const auto* reference = type.as<RefTypeObj>()) {
      stack.push_back(reference->value);
    } else if (const auto* function = type.as<FuncTypeObj>()) {
      if (!function->type_params.empty()) return false;
      add(function->arg_types);
      stack.push_back(function->ret_type);
    }
  }
  return true;
}

}  // namespace tvm_fixes::relay
