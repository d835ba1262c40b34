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
 * \file src/relay/transform/type_unifier.h
 * \brief Unification of types with holes.
 */
#ifndef TVM_FIXES_RELAY_TRANSFORM_TYPE_UNIFIER_H_
#define TVM_FIXES_RELAY_TRANSFORM_TYPE_UNIFIER_H_

#include <optional>
#include <unordered_map>
#include <vector>

#include "../ir/module.h"

namespace tvm_fixes::relay {

/*!
 * \brief Makes types equal by filling their holes.
 *
 * A hole is an IncompleteType; each call of NewHole returns a new unknown. A dimension `?`
 * is equal to any other.
 */
class TypeUnifier {
 public:
  TypeUnifier() : poison_(NewHole()) {}

  Type NewHole() const { return IncompleteType(); }
  /*! \brief The type of an expression with an error: it is equal to any other. */
  const Type& poison() const { return poison_; }

  /*! \brief The content of a hole if it is known, else the type itself. */
  Type Head(const Type& type) const;
  /*! \brief The type with all known holes filled. */
  Type Resolve(const Type& type) const;
  /*! \brief Whether a resolved type still has holes. */
  bool HasHoles(const Type& type) const;
  bool IsPoisoned(const Type& type) const;

  /*!
   * \brief Make two types equal.
   * \return The common type, with `?` where only one of the two has an extent; std::nullopt if they
   *         cannot be equal.
   */
  std::optional<Type> Unify(const Type& a, const Type& b);

  /*! \brief Replace each missing type by a new hole. */
  Type Annotation(const Type& type) const;
  /*! \brief The type of a polymorphic function with holes in place of its type parameters. */
  FuncType Instantiate(const FuncType& type, const Array<Type>& type_args);

 private:
  using Resolved = std::unordered_map<const Object*, Type>;

  Type ResolveParts(const Type& type, Resolved* resolved) const;
  std::optional<Type> UnifyHole(const Type& hole, const Type& type);
  std::optional<Type> UnifyTensors(const TensorType& a, const TensorType& b);
  std::optional<Type> UnifyFunctions(const FuncType& a, const FuncType& b);
  std::optional<Array<Type>> UnifyAll(const Array<Type>& a, const Array<Type>& b);
  /*! \brief Replace the content of a hole that is filled. */
  void Refill(const Type& type, const Type& content);
  bool Occurs(const Object* hole, const Type& type) const;

  Type poison_;
  std::unordered_map<const Object*, Type> filled_;
  /*! \brief Keeps the keys alive. */
  std::vector<Type> holes_;
  mutable int depth_ = 0;
};

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_TRANSFORM_TYPE_UNIFIER_H_
