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
 * \file src/relay/transform/type_unifier.cc
 * \brief Unification of types with holes.
 */
#include "type_unifier.h"

#include <unordered_set>

#include "../ir/shape.h"

namespace tvm_fixes::relay {
namespace {

constexpr int kMaxTypeDepth = 500;

/*! \brief Throws if functions that walk over a type nest too deeply. */
class DepthGuard {
 public:
  explicit DepthGuard(int* depth) : depth_(depth) {
    if (*depth >= kMaxTypeDepth) {
      ThrowRelayError("a type nests deeper than " + std::to_string(kMaxTypeDepth) + " levels");
    }
    ++*depth_;
  }
  ~DepthGuard() { --*depth_; }

 private:
  int* depth_;
};

/*!
 * \brief Apply a function to the component types of a type; return the same type if none changes.
 */
template <typename F>
Type MapParts(const Type& type, F transform) {
  bool changed = false;
  auto map = [&](const Type& part) {
    Type result = transform(part);
    changed = changed || !result.same_as(part);
    return result;
  };
  auto map_all = [&](const Array<Type>& parts) {
    Array<Type> results;
    for (const Type& part : parts) results.push_back(map(part));
    return results;
  };
  if (const auto* tuple = type.as<TupleTypeObj>()) {
    Array<Type> fields = map_all(tuple->fields);
    return changed ? Type(TupleType(fields)) : type;
  }
  if (const auto* function = type.as<FuncTypeObj>()) {
    Array<Type> args = map_all(function->arg_types);
    Type result = map(function->ret_type);
    return changed ? Type(FuncType(function->type_params, args, result)) : type;
  }
  if (const auto* call = type.as<TypeCallObj>()) {
    Type func = map(call->func);
    Array<Type> args = map_all(call->args);
    return changed ? Type(TypeCall(func, args)) : type;
  }
  if (const auto* ref = type.as<RefTypeObj>()) {
    Type value = map(ref->value);
    return changed ? Type(RefType(value)) : type;
  }
  return type;
}

/*! \brief Whether a predicate holds for a type or a part of it. */
template <typename F>
bool AnyPart(const Type& root, F test) {
  if (root.as<TensorTypeObj>()) return test(root);
  std::vector<Type> stack = {root};
  std::unordered_set<const Object*> seen;
  while (!stack.empty()) {
    Type type = std::move(stack.back());
    stack.pop_back();
    if (!seen.insert(type.get()).second) continue;
    if (test(type)) return true;
    MapParts(type, [&](const Type& part) {
      stack.push_back(part);
      return part;
    });
  }
  return false;
}

/*! \brief The name and the arguments of an algebraic data type; a bare name has none. */
struct Adt {
  Type head;
  Array<Type> args;
};

std::optional<Adt> AsAdt(const Type& type) {
  if (type.as<GlobalTypeVarObj>()) return Adt{type, {}};
  if (const auto* call = type.as<TypeCallObj>()) return Adt{call->func, call->args};
  return std::nullopt;
}

bool SameHead(const Type& a, const Type& b) {
  const auto* left = a.as<GlobalTypeVarObj>();
  const auto* right = b.as<GlobalTypeVarObj>();
  return left != nullptr && right != nullptr ? left->name == right->name : a.same_as(b);
}

}  // namespace

Type TypeUnifier::Head(const Type& type) const {
  Type current = type;
  while (true) {
    auto found = filled_.find(current.get());
    if (found == filled_.end()) return current;
    current = found->second;
  }
}

bool TypeUnifier::HasHoles(const Type& type) const {
  return AnyPart(type, [](const Type& part) { return IsMissing(part); });
}

bool TypeUnifier::IsPoisoned(const Type& type) const {
  return AnyPart(type, [this](const Type& part) { return Head(part).same_as(poison_); });
}

Type TypeUnifier::Resolve(const Type& type) const {
  Type head = Head(type);
  if (head.as<TensorTypeObj>()) return head;
  Resolved resolved;
  return ResolveParts(head, &resolved);
}

Type TypeUnifier::ResolveParts(const Type& type, Resolved* resolved) const {
  DepthGuard guard(&depth_);
  Type head = Head(type);
  if (head.as<TensorTypeObj>()) return head;
  auto found = resolved->find(head.get());
  if (found != resolved->end()) return found->second;
  Type result = MapParts(head, [&](const Type& part) { return ResolveParts(part, resolved); });
  resolved->emplace(head.get(), result);
  return result;
}

bool TypeUnifier::Occurs(const Object* hole, const Type& type) const {
  if (type.as<TensorTypeObj>()) return false;
  return AnyPart(Resolve(type), [hole](const Type& part) { return part.get() == hole; });
}

Type TypeUnifier::Annotation(const Type& type) const {
  DepthGuard guard(&depth_);
  if (IsMissing(type)) return NewHole();
  if (type.as<TensorTypeObj>()) return type;
  return MapParts(type, [this](const Type& part) { return Annotation(part); });
}

namespace {

using Replacements = std::unordered_map<const Object*, ObjectRef>;

Type ReplaceParams(const Type& type, const Replacements& replacements, int* depth) {
  DepthGuard guard(depth);
  auto found = replacements.find(type.get());
  if (found != replacements.end()) return found->second.as<Type>().value();
  if (const auto* tensor = type.as<TensorTypeObj>()) {
    Shape shape;
    bool changed = false;
    for (const Dim& dim : tensor->shape) {
      const auto* var = dim.as<ShapeVarObj>();
      bool replaced = var != nullptr && replacements.count(var) != 0;
      shape.push_back(replaced ? AnyDim() : dim);
      changed = changed || replaced;
    }
    return changed ? Type(TensorType(shape, tensor->dtype)) : type;
  }
  return MapParts(type, [&](const Type& part) { return ReplaceParams(part, replacements, depth); });
}

}  // namespace

FuncType TypeUnifier::Instantiate(const FuncType& type, const Array<Type>& type_args) {
  if (type->type_params.empty()) return type;
  Replacements replacements;
  bool given = type_args.size() == type->type_params.size();
  for (size_t i = 0; i < type->type_params.size(); ++i) {
    const ObjectRef& param = type->type_params[i];
    // The extent of a named dimension is not tracked through a call.
    replacements[param.get()] = given ? ObjectRef(Annotation(type_args[i])) : ObjectRef(NewHole());
  }
  Array<Type> args;
  for (const Type& arg : type->arg_types) args.push_back(ReplaceParams(arg, replacements, &depth_));
  return FuncType({}, args, ReplaceParams(type->ret_type, replacements, &depth_));
}

std::optional<Type> TypeUnifier::UnifyHole(const Type& hole, const Type& type) {
  if (hole.same_as(type)) return type;
  if (hole.same_as(poison_) || type.same_as(poison_)) return poison_;
  if (Occurs(hole.get(), type)) return std::nullopt;
  holes_.push_back(hole);
  filled_[hole.get()] = type;
  return type;
}

std::optional<Type> TypeUnifier::UnifyTensors(const TensorType& a, const TensorType& b) {
  if (a->shape.size() != b->shape.size() || !SameDType(a->dtype, b->dtype)) return std::nullopt;
  Shape shape;
  bool changed = false;
  for (size_t i = 0; i < a->shape.size(); ++i) {
    Dim left = a->shape[i];
    Dim right = b->shape[i];
    if (!MayBeEqual(left, right)) return std::nullopt;
    bool same = SameDim(left, right);
    changed = changed || (!same && !IsAnyDim(left));
    shape.push_back(same ? left : AnyDim());
  }
  return changed ? TensorType(shape, a->dtype) : a;
}

std::optional<Array<Type>> TypeUnifier::UnifyAll(const Array<Type>& a, const Array<Type>& b) {
  if (a.size() != b.size()) return std::nullopt;
  Array<Type> result;
  for (size_t i = 0; i < a.size(); ++i) {
    std::optional<Type> type = Unify(a[i], b[i]);
    if (!type) return std::nullopt;
    result.push_back(*type);
  }
  return result;
}

std::optional<Type> TypeUnifier::UnifyFunctions(const FuncType& a, const FuncType& b) {
  FuncType left = Instantiate(a, {});
  FuncType right = Instantiate(b, {});
  std::optional<Array<Type>> args = UnifyAll(left->arg_types, right->arg_types);
  std::optional<Type> result = args ? Unify(left->ret_type, right->ret_type) : std::nullopt;
  if (!result) return std::nullopt;
  return FuncType({}, *args, *result);
}

void TypeUnifier::Refill(const Type& type, const Type& content) {
  auto found = filled_.find(type.get());
  if (found == filled_.end()) return;
  while (true) {
    auto next = filled_.find(found->second.get());
    if (next == filled_.end()) break;
    found = next;
  }
  found->second = content;
}

std::optional<Type> TypeUnifier::Unify(const Type& first, const Type& second) {
  DepthGuard guard(&depth_);
  Type a = Head(first);
  Type b = Head(second);
  if (a.same_as(b)) return a;
  if (IsMissing(a)) return UnifyHole(a, b);
  if (IsMissing(b)) return UnifyHole(b, a);
  if (auto left = a.as<TensorType>(), right = b.as<TensorType>(); left && right) {
    std::optional<Type> merged = UnifyTensors(*left, *right);
    if (!merged) return std::nullopt;
    // A hole that has held an extent must forget it.
    if (!merged->same_as(a)) Refill(first, *merged);
    if (!merged->same_as(b)) Refill(second, *merged);
    return merged;
  }
  if (auto left = a.as<TupleType>(), right = b.as<TupleType>(); left && right) {
    std::optional<Array<Type>> fields = UnifyAll((*left)->fields, (*right)->fields);
    return fields ? std::optional<Type>(TupleType(*fields)) : std::nullopt;
  }
  if (auto left = a.as<FuncType>(), right = b.as<FuncType>(); left && right) {
    return UnifyFunctions(*left, *right);
  }
  if (auto left = a.as<RefType>(), right = b.as<RefType>(); left && right) {
    std::optional<Type> value = Unify((*left)->value, (*right)->value);
    return value ? std::optional<Type>(RefType(*value)) : std::nullopt;
  }
  std::optional<Adt> left = AsAdt(a);
  std::optional<Adt> right = AsAdt(b);
  if (left && right && SameHead(Head(left->head), Head(right->head))) {
    std::optional<Array<Type>> args = UnifyAll(left->args, right->args);
    return args ? std::optional<Type>(TypeCall(left->head, *args)) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace tvm_fixes::relay
