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
 * \file src/relay/json/graph_writer_ir.cc
 * \brief Writes types, patterns and expressions.
 */
#include <algorithm>

#include "../ir/shape.h"
#include "attr_schema.h"
#include "graph_writer.h"

namespace tvm_fixes::relay {
namespace {

constexpr size_t kNull = 0;

/*! \brief The kinds of TypeVars: of a type, and of an extent. */
constexpr char kTypeKind[] = "0";
constexpr char kShapeKindText[] = "1";
constexpr char kDataKind[] = "5";

/*! \brief Finish an expression, without its place and its inferred type. */
std::string FinishExpr(NodeText* node) {
  node->Field("virtual_device_", kNull);
  return node->Field("span", kNull).Field("_checked_type_", kNull).Finish();
}

std::string FinishType(NodeText* node) { return node->Field("span", kNull).Finish(); }

}  // namespace

size_t GraphWriter::IndexOfGiven(const Type& type) {
  return IsMissing(type) ? kNull : IndexOf(type);
}

size_t GraphWriter::IndexOfTypeParams(const Array<ObjectRef>& params) {
  auto is_extent = [](const ObjectRef& param) { return param.as<ShapeVarObj>() != nullptr; };
  if (std::none_of(params.begin(), params.end(), is_extent)) return IndexOf(params);
  std::vector<size_t> elements;
  for (const ObjectRef& param : params) {
    const auto* var = param.as<ShapeVarObj>();
    if (var == nullptr) {
      elements.push_back(IndexOf(param));
      continue;
    }
    NodeText node("TypeVar");
    node.Field("name_hint", IndexOfName(var->name)).Field("kind", kShapeKindText);
    // TVM 0.19 ignores "var", which holds the dimension of the parameter.
    elements.push_back(AddLeaf(&node.Field("span", kNull).Field("var", IndexOf(param))));
  }
  NodeText array("Array");
  return Add(&array.Elements(elements));
}

std::string GraphWriter::WriteType(const ObjectRef& type) {
  if (const auto* tensor = type.as<TensorTypeObj>()) {
    NodeText node("relay.TensorType");
    node.Field("shape", IndexOf(tensor->shape)).Field("dtype", DTypeText(tensor->dtype));
    return FinishType(&node);
  }
  if (const auto* tuple = type.as<TupleTypeObj>()) {
    NodeText node("TupleType");
    return FinishType(&node.Field("fields", IndexOf(tuple->fields)));
  }
  if (const auto* function = type.as<FuncTypeObj>()) {
    NodeText node("FuncType");
    node.Field("arg_types", IndexOf(function->arg_types));
    node.Field("ret_type", IndexOf(function->ret_type));
    node.Field("type_params", IndexOfTypeParams(function->type_params));
    node.Field("type_constraints", IndexOf(EmptyArray()));
    return FinishType(&node);
  }
  if (const auto* var = type.as<TypeVarObj>()) {
    NodeText node("TypeVar");
    return FinishType(&node.Field("name_hint", IndexOfName(var->name)).Field("kind", kTypeKind));
  }
  if (const auto* global = type.as<GlobalTypeVarObj>()) {
    NodeText node("GlobalTypeVar");
    return node.Field("name_hint", IndexOfName(global->name)).Field("kind", kDataKind).Finish();
  }
  if (const auto* call = type.as<TypeCallObj>()) {
    NodeText node("TypeCall");
    node.Field("func", IndexOf(call->func)).Field("args", IndexOf(call->args));
    return FinishType(&node);
  }
  if (const auto* reference = type.as<RefTypeObj>()) {
    NodeText node("relay.RefType");
    return FinishType(&node.Field("value", IndexOf(reference->value)));
  }
  if (const auto* data = type.as<TypeDataObj>()) return WriteTypeData(data);
  NodeText node("IncompleteType");
  return FinishType(&node.Field("kind", kTypeKind));
}

std::string GraphWriter::WriteTypeData(const TypeDataObj* data) {
  if (data->is_extern != data->constructors.empty()) {
    ThrowRelayError("type '" + std::string(data->header->name) +
                    "': in JSON, a type is extern if it has no constructors, and only then");
  }
  NodeText node("relay.TypeData");
  node.Field("header", IndexOf(data->header)).Field("type_vars", IndexOf(data->type_vars));
  return FinishType(&node.Field("constructors", IndexOf(data->constructors)));
}

std::string GraphWriter::WritePattern(const ObjectRef& pattern) {
  if (const auto* var = pattern.as<PatternVarObj>()) {
    NodeText node("relay.PatternVar");
    return FinishType(&node.Field("var", IndexOf(var->var)));
  }
  if (const auto* made = pattern.as<PatternConstructorObj>()) {
    NodeText node("relay.PatternConstructor");
    node.Field("constructor", IndexOf(made->constructor));
    return FinishType(&node.Field("patterns", IndexOf(made->patterns)));
  }
  if (const auto* tuple = pattern.as<PatternTupleObj>()) {
    NodeText node("relay.PatternTuple");
    return FinishType(&node.Field("patterns", IndexOf(tuple->patterns)));
  }
  NodeText node("relay.PatternWildcard");
  return FinishType(&node);
}

std::string GraphWriter::WriteExpr(const ObjectRef& expr) {
  if (auto call = expr.as<Call>()) {
    NodeText node("relay.Call");
    node.Field("op", IndexOf((*call)->op)).Field("args", IndexOf((*call)->args));
    node.Field("attrs", CallAttrs(*call)).Field("type_args", IndexOf((*call)->type_args));
    return FinishExpr(&node);
  }
  if (const auto* var = expr.as<VarObj>()) {
    NodeText id("relay.Id");
    id.Field("name_hint", IndexOfName(var->name));
    NodeText node("relay.Var");
    node.Field("vid", Add(&id)).Field("type_annotation", IndexOfGiven(var->type_annotation));
    return FinishExpr(&node);
  }
  if (const auto* constant = expr.as<ConstantObj>()) {
    NodeText node("relay.Constant");
    return FinishExpr(&node.Field("data", IndexOfTensor(constant->data)));
  }
  if (const auto* tuple = expr.as<TupleObj>()) {
    NodeText node("relay.Tuple");
    return FinishExpr(&node.Field("fields", IndexOf(tuple->fields)));
  }
  if (const auto* item = expr.as<TupleGetItemObj>()) {
    NodeText node("relay.TupleGetItem");
    node.Field("tuple_value", IndexOf(item->tuple));
    return FinishExpr(&node.Field("index", std::to_string(item->index)));
  }
  if (const auto* global = expr.as<GlobalVarObj>()) {
    NodeText node("GlobalVar");
    node.Field("name_hint", IndexOfName(global->name)).Field("struct_info_", kNull);
    return FinishExpr(&node);
  }
  if (const auto* op = expr.as<OpObj>()) return WriteOp(op);
  if (auto function = expr.as<Function>()) return WriteFunction(*function);
  if (const auto* constructor = expr.as<ConstructorObj>()) return WriteConstructor(constructor);
  return WriteControl(expr);
}

std::string GraphWriter::WriteControl(const ObjectRef& expr) {
  if (const auto* let = expr.as<LetObj>()) {
    NodeText node("relay.Let");
    node.Field("var", IndexOf(let->var)).Field("value", IndexOf(let->value));
    return FinishExpr(&node.Field("body", IndexOf(let->body)));
  }
  if (const auto* branch = expr.as<IfObj>()) {
    NodeText node("relay.If");
    node.Field("cond", IndexOf(branch->cond));
    node.Field("true_branch", IndexOf(branch->true_branch));
    return FinishExpr(&node.Field("false_branch", IndexOf(branch->false_branch)));
  }
  if (const auto* match = expr.as<MatchObj>()) {
    NodeText node("relay.Match");
    node.Field("data", IndexOf(match->data)).Field("clauses", IndexOf(match->clauses));
    return FinishExpr(&node.Field("complete", match->complete ? "1" : "0"));
  }
  if (const auto* create = expr.as<RefCreateObj>()) {
    NodeText node("relay.RefCreate");
    return FinishExpr(&node.Field("value", IndexOf(create->value)));
  }
  if (const auto* read = expr.as<RefReadObj>()) {
    NodeText node("relay.RefRead");
    return FinishExpr(&node.Field("ref", IndexOf(read->ref)));
  }
  if (const auto* write = expr.as<RefWriteObj>()) {
    NodeText node("relay.RefWrite");
    node.Field("ref", IndexOf(write->ref));
    return FinishExpr(&node.Field("value", IndexOf(write->value)));
  }
  ThrowRelayError("an expression of class " + expr->GetTypeKey() + " has no form in JSON");
}

std::string GraphWriter::WriteFunction(const Function& function) {
  NodeText node("relay.Function");
  node.Field("params", IndexOf(function->params)).Field("body", IndexOf(function->body));
  node.Field("ret_type", IndexOfGiven(function->ret_type));
  node.Field("type_params", IndexOfTypeParams(function->type_params));
  node.Field("attrs", Dictionary(function->attrs, function));
  return FinishExpr(&node);
}

std::string GraphWriter::WriteConstructor(const ConstructorObj* constructor) {
  auto tag = tags_.find(constructor);
  NodeText node("relay.Constructor");
  node.Field("name_hint", IndexOfName(constructor->name));
  node.Field("inputs", IndexOf(constructor->inputs));
  node.Field("belong_to", IndexOf(constructor->belong_to));
  node.Field("tag", std::to_string(tag == tags_.end() ? -1 : tag->second));
  return node.Field("span", kNull).Field("_checked_type_", kNull).Finish();
}

std::string GraphWriter::WriteOp(const OpObj* op) {
  if (IsRemovedOp(op->name)) {
    ThrowRelayError("operator '" + std::string(op->name) + "': TVM 0.19 has no such operator");
  }
  return NodeText("Op").Characters(std::string_view(op->name.data(), op->name.size())).Finish();
}

}  // namespace tvm_fixes::relay
