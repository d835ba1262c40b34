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
 * \file src/relay/transform/partial_value.h
 * \brief Values of the partial evaluator, and the matching of patterns with them.
 */
#ifndef TVM_FIXES_RELAY_TRANSFORM_PARTIAL_VALUE_H_
#define TVM_FIXES_RELAY_TRANSFORM_PARTIAL_VALUE_H_

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../ir/visitor.h"

namespace tvm_fixes::relay {

/*! \brief A chain of bindings of the new program that is being written. */
struct PartialScope {
  bool is_open = true;
  std::vector<std::pair<Var, Expr>> bindings;
};

struct PartialValue;

/*! \brief The values of variables in one call of a function, and those around the function. */
struct PartialEnv {
  PartialEnv* parent = nullptr;
  std::unordered_map<const Object*, PartialValue*> values;
};

/*! \brief The part of a value that is known at compile time. */
struct PartialValue {
  enum class Kind { kDynamic, kTuple, kData, kClosure };

  Kind kind = Kind::kDynamic;
  /*! \brief The variable or constant that stands for the value in the new program, or null. */
  Expr expr;
  /*! \brief The scope that binds the variable; null if it is known everywhere. */
  PartialScope* scope = nullptr;
  std::vector<PartialValue*> fields;
  Constructor constructor;
  Function function;
  PartialEnv* env = nullptr;

  bool is_written() const { return expr.defined() && (scope == nullptr || scope->is_open); }
};

/*! \brief Owns values, so that long lists are released without recursion. */
class PartialArena {
 public:
  PartialValue* Dynamic(Expr expr);
  PartialValue* Tuple(std::vector<PartialValue*> fields);
  PartialValue* Data(Constructor constructor, std::vector<PartialValue*> fields);
  PartialValue* Closure(Function function, PartialEnv* env);
  PartialEnv* Env(PartialEnv* parent);
  PartialScope* Scope();

 private:
  PartialValue* Add(PartialValue::Kind kind);

  std::vector<std::unique_ptr<PartialValue>> values_;
  std::vector<std::unique_ptr<PartialEnv>> envs_;
  std::vector<std::unique_ptr<PartialScope>> scopes_;
};

enum class MatchResult { kYes, kNo, kUnknown };

/*! \brief Match a value; on kYes the variables of the pattern are bound. */
MatchResult MatchPattern(const Pattern& pattern, PartialValue* value, PartialEnv* env);

/*! \brief A copy of a pattern with new variables, which are bound to unknown values. */
Pattern CopyPattern(const Pattern& pattern, PartialEnv* env, PartialArena* arena);

/*! \brief Whether a type has no variables, so that it means the same everywhere. */
bool IsClosedType(const Type& type);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_TRANSFORM_PARTIAL_VALUE_H_
