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
 * \file src/relay/json/node_builder_ir.cc
 * \brief Builds types, patterns and expressions.
 */
#include <string>

#include "../ir/shape.h"
#include "../op/old_calls.h"
#include "node_builder.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The kind of a TypeVar that stands for an extent. */
constexpr int64_t kShapeKind = 1;

template <typename Ref>
Any Place(Ref expr, const Span& span) {
  return WithSpan(std::move(expr), span);
}

template <typename T>
bool IsA(const Any& value) {
  if constexpr (std::is_same_v<T, ObjectRef>) {
    return value.as<TypeVarObj>() != nullptr || value.as<ShapeVarObj>() != nullptr;
  }
  return value != nullptr && value.as<T>().has_value();
}

}  // namespace

template <typename T>
Array<T> NodeBuilder::GetArray(size_t node, std::string_view field, const char* expected) {
  size_t index = table_.Reference(node, field);
  if (values_[index] == nullptr && table_.kind(index) == NodeKind::kNull) return {};
  if (table_.kind(index) != NodeKind::kArray) FailField(node, field, "an array", index);
  auto elements = values_[index].as<ObjectRef>();
  if (checked_.emplace(index, expected).second) {
    size_t position = 0;
    std::vector<size_t> indices = table_.Elements(index);
    for (const Any& element : *elements->as<tvm::ffi::ArrayObj>()) {
      if (!IsA<T>(element)) {
        table_.Fail(node, "field '" + std::string(field) + "', element " +
                              std::to_string(position) + ": expected " + expected + ", found " +
                              table_.Name(indices[position]));
      }
      ++position;
    }
  }
  return Array<T>(tvm::ffi::details::ObjectUnsafe::ObjectPtrFromObjectRef<Object>(*elements));
}

Type NodeBuilder::GetType(size_t node, std::string_view field) const {
  size_t index = table_.Reference(node, field);
  if (table_.kind(index) == NodeKind::kNull) return IncompleteType();
  return Get<Type>(node, field, "a type");
}

String NodeBuilder::TypeName(size_t node) const {
  if (table_.Field(node, "name_hint")) return NameOf(node, "name_hint");
  return NameOf(table_.Reference(node, "var"), "name");
}

Any NodeBuilder::BuildType(size_t node) {
  switch (table_.kind(node)) {
    case NodeKind::kTensorType:
      return BuildTensorType(node);
    case NodeKind::kTupleType:
      return TupleType(GetArray<Type>(node, "fields", "a type"));
    case NodeKind::kFuncType:
      return FuncType(GetArray<ObjectRef>(node, "type_params", "a type variable"),
                      GetArray<Type>(node, "arg_types", "a type"), GetType(node, "ret_type"));
    case NodeKind::kTypeVar:
      return BuildTypeVar(node);
    case NodeKind::kGlobalTypeVar:
      return GlobalTypeVar(TypeName(node));
    case NodeKind::kTypeCall:
      return TypeCall(Get<Type>(node, "func", "a type"), GetArray<Type>(node, "args", "a type"));
    case NodeKind::kRefType:
      return RefType(Get<Type>(node, "value", "a type"));
    case NodeKind::kTypeData: {
      auto constructors = GetArray<Constructor>(node, "constructors", "a constructor");
      bool is_extern = constructors.empty();
      return TypeData(Get<GlobalTypeVar>(node, "header", "a GlobalTypeVar"),
                      GetArray<TypeVar>(node, "type_vars", "a type variable"), constructors,
                      is_extern);
    }
    default:
      return IncompleteType();
  }
}

Any NodeBuilder::BuildTensorType(size_t node) {
  size_t array = table_.Reference(node, "shape");
  std::string text = table_.RequiredField(node, "dtype").String();
  std::optional<DLDataType> dtype = ParseDType(text);
  if (!dtype || dtype->lanes != 1) {
    table_.Fail(
        node, "field 'dtype': expected the dtype of a tensor, found '" + text.substr(0, 40) + "'");
  }
  auto known = shapes_.find(array);
  if (known == shapes_.end()) known = shapes_.emplace(array, BuildShape(node, array)).first;
  return TensorType(known->second, *dtype);
}

Shape NodeBuilder::BuildShape(size_t type, size_t array) {
  Shape shape;
  if (table_.kind(array) == NodeKind::kNull) return shape;
  if (table_.kind(array) != NodeKind::kArray) FailField(type, "shape", "an array", array);
  for (size_t index : table_.Elements(array)) {
    Any dim = values_[index];
    std::optional<int64_t> extent = StaticDim(dim);
    bool is_dim = extent || IsAnyDim(dim) || dim.as<ShapeVarObj>() != nullptr;
    if (!is_dim || (extent && *extent < 0)) {
      table_.Fail(type, "field 'shape': expected an extent, found " + table_.Name(index) +
                            (extent ? " with the value " + std::to_string(*extent) : ""));
    }
    shape.push_back(dim);
  }
  return shape;
}

Any NodeBuilder::BuildTypeVar(size_t node) {
  bool is_extent = table_.Field(node, "kind") && table_.IntField(node, "kind") == kShapeKind;
  if (!is_extent) return TypeVar(TypeName(node));
  const Any& var = values_[table_.Reference(node, "var")];
  return var.as<ShapeVarObj>() != nullptr ? var : Any(ShapeVar(TypeName(node)));
}

Any NodeBuilder::BuildPattern(size_t node) {
  switch (table_.kind(node)) {
    case NodeKind::kPatternVar:
      return Pattern(make_object<PatternVarObj>(Get<Var>(node, "var", "a variable")));
    case NodeKind::kPatternConstructor:
      return Pattern(
          make_object<PatternConstructorObj>(Get<Constructor>(node, "constructor", "a constructor"),
                                             GetArray<Pattern>(node, "patterns", "a pattern")));
    case NodeKind::kPatternTuple:
      return Pattern(
          make_object<PatternTupleObj>(GetArray<Pattern>(node, "patterns", "a pattern")));
    default:
      return Pattern(make_object<PatternWildcardObj>());
  }
}

Any NodeBuilder::BuildVar(size_t node) {
  size_t id = table_.Reference(node, "vid");
  if (table_.kind(id) != NodeKind::kId) FailField(node, "vid", "a name", id);
  return Place(Var(values_[id].cast<String>(), GetType(node, "type_annotation")), SpanOf(node));
}

Any NodeBuilder::BuildCall(size_t node) {
  Call call = UpdateCall(Get<Expr>(node, "op", "an expression"),
                         GetArray<Expr>(node, "args", "an expression"), GetAttrs(node, "attrs"),
                         GetArray<Type>(node, "type_args", "a type"), table_.program_version());
  call->span = SpanOf(node);
  return ReturnsIndices(call->op) && HasInt64Type(node) ? WideIndices(call) : call;
}

/*! \brief Whether the type that TVM has inferred for a node is a tensor of int64. */
bool NodeBuilder::HasInt64Type(size_t node) const {
  std::optional<NodeTable::Value> type = table_.Field(node, "_checked_type_");
  std::optional<size_t> index = type ? table_.AsIndex(*type) : std::nullopt;
  if (!index || table_.kind(*index) != NodeKind::kTensorType) return false;
  std::optional<NodeTable::Value> dtype = table_.Field(*index, "dtype");
  return dtype && dtype->text() == "int64";
}

Any NodeBuilder::BuildFunction(size_t node) {
  return Place(Function(GetArray<Var>(node, "params", "a variable"),
                        Get<Expr>(node, "body", "an expression"), GetType(node, "ret_type"),
                        GetArray<ObjectRef>(node, "type_params", "a type variable"),
                        GetAttrs(node, "attrs")),
               SpanOf(node));
}

Any NodeBuilder::BuildExpr(size_t node) {
  auto get = [&](const char* field) { return Get<Expr>(node, field, "an expression"); };
  switch (table_.kind(node)) {
    case NodeKind::kOp:
      return Op::Get(table_.Text(node));
    case NodeKind::kVar:
      return BuildVar(node);
    case NodeKind::kGlobalVar:
      return GlobalVar(NameOf(node, "name_hint"));
    case NodeKind::kConstant:
      return Place(Constant(table_.TensorField(node, "data")), SpanOf(node));
    case NodeKind::kTuple:
      return Place(Tuple(GetArray<Expr>(node, "fields", "an expression")), SpanOf(node));
    case NodeKind::kTupleGetItem:
      return Place(TupleGetItem(get("tuple_value"), table_.IntField(node, "index")), SpanOf(node));
    case NodeKind::kCall:
      return BuildCall(node);
    case NodeKind::kLet:
      return Place(Let(Get<Var>(node, "var", "a variable"), get("value"), get("body")),
                   SpanOf(node));
    case NodeKind::kIf:
      return Place(If(get("cond"), get("true_branch"), get("false_branch")), SpanOf(node));
    case NodeKind::kFunction:
      return BuildFunction(node);
    case NodeKind::kRefCreate:
      return Place(RefCreate(get("value")), SpanOf(node));
    case NodeKind::kRefRead:
      return Place(RefRead(get("ref")), SpanOf(node));
    case NodeKind::kRefWrite:
      return Place(RefWrite(get("ref"), get("value")), SpanOf(node));
    case NodeKind::kConstructor:
      return Constructor(NameOf(node, "name_hint"), GetArray<Type>(node, "inputs", "a type"),
                         Get<GlobalTypeVar>(node, "belong_to", "a GlobalTypeVar"));
    case NodeKind::kMatch:
      return Place(Match(get("data"), GetArray<Clause>(node, "clauses", "a clause"),
                         table_.IntField(node, "complete") != 0),
                   SpanOf(node));
    default:
      return Clause(Get<Pattern>(node, "lhs", "a pattern"), get("rhs"));
  }
}

}  // namespace tvm_fixes::relay
