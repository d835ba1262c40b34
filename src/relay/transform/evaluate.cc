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
 * \file src/relay/transform/evaluate.cc
 * \brief Computes calls of operators on small constants.
 */
#include "evaluate.h"

#include <tvm/ffi/error.h>

namespace tvm_fixes::relay {

std::vector<int64_t> Unravel(int64_t index, const std::vector<int64_t>& shape) {
  std::vector<int64_t> coordinates(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    coordinates[i] = index % shape[i];
    index /= shape[i];
  }
  return coordinates;
}

int64_t Ravel(const std::vector<int64_t>& coordinates, const std::vector<int64_t>& shape) {
  int64_t index = 0;
  for (size_t i = 0; i < shape.size(); ++i) index = index * shape[i] + coordinates[i];
  return index;
}

bool Broadcasts(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  if (from.size() > to.size()) return false;
  size_t gap = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1 && from[i] != to[gap + i]) return false;
  }
  return true;
}

int64_t BroadcastIndex(int64_t index, const std::vector<int64_t>& shape,
                       const std::vector<int64_t>& input_shape) {
  std::vector<int64_t> coordinates = Unravel(index, shape);
  coordinates.erase(coordinates.begin(), coordinates.end() - input_shape.size());
  for (size_t i = 0; i < input_shape.size(); ++i) {
    if (input_shape[i] == 1) coordinates[i] = 0;
  }
  return Ravel(coordinates, input_shape);
}

Type KnownType(const Expr& expr) {
  if (!IsMissing(expr->checked_type)) return expr->checked_type;
  if (const auto* var = expr.as<VarObj>()) return var->type_annotation;
  if (const auto* constant = expr.as<ConstantObj>()) {
    std::vector<int64_t> shape(constant->data.shape().begin(), constant->data.shape().end());
    return TensorType(MakeShape(shape), constant->data.dtype());
  }
  const auto* tuple = expr.as<TupleObj>();
  if (tuple == nullptr) return Type();
  Array<Type> fields;
  for (const Expr& field : tuple->fields) {
    bool is_leaf = field.as<ConstantObj>() || field.as<VarObj>();
    Type type = is_leaf ? KnownType(field) : field->checked_type;
    if (IsMissing(type)) return Type();
    fields.push_back(type);
  }
  return TupleType(fields);
}

Type RelationType(const CallObj* call, const Array<Type>& arg_types) {
  const auto* op = call->op.as<OpObj>();
  if (op == nullptr || op->decl == nullptr || arg_types.size() != call->args.size()) return Type();
  for (const Type& type : arg_types) {
    if (IsMissing(type)) return Type();
  }
  if (!op->decl->relation) {
    bool is_annotation = op->decl->effect == OpEffect::kAnnotation && !arg_types.empty();
    return is_annotation ? arg_types[0] : Type();
  }
  try {
    InferContext context(call, arg_types);
    return op->decl->relation(context);
  } catch (const tvm::ffi::Error&) {
    return Type();
  }
}

namespace {

bool AddInput(const Expr& arg, std::vector<ConstValue>* inputs) {
  if (const auto* constant = arg.as<ConstantObj>()) {
    std::optional<ConstValue> value = LoadValue(constant->data);
    if (!value) return false;
    inputs->push_back(std::move(*value));
    return true;
  }
  const auto* tuple = arg.as<TupleObj>();
  if (tuple == nullptr) return false;
  for (const Expr& field : tuple->fields) {
    if (field.as<ConstantObj>() == nullptr || !AddInput(field, inputs)) return false;
  }
  return true;
}

Evaluator FindEvaluator(const std::string& name) {
  for (const EvaluatorTable* table : {&ArithmeticEvaluators(), &MovementEvaluators()}) {
    auto found = table->find(name);
    if (found != table->end()) return found->second;
  }
  return nullptr;
}

}  // namespace

Expr ConstantFolder::Finish(const ConstValue& value, const Call& call, const Type& type) {
  budget_ -= value.size() + 1;
  if (budget_ < 0) return Expr();
  Constant constant(StoreValue(value));
  constant->checked_type = type;
  return WithSpan(constant, call->span);
}

Expr ConstantFolder::FoldShape(const Call& call, const InferContext& context) {
  const auto* data = context.Input(0).as<TensorTypeObj>();
  if (data == nullptr) return Expr();
  std::optional<std::vector<int64_t>> shape = StaticShape(data->shape);
  if (!shape) return Expr();
  ConstValue value;
  value.dtype = context.DType("dtype", kInt32);
  if (!IsInteger(value.dtype)) return Expr();
  if (call->op.as<OpObj>()->decl->name == "ndarray_size") {
    std::optional<int64_t> size = StaticDim(NumElements(data->shape));
    if (!size) return Expr();
    value.elements = {{*size, 0}};
  } else {
    value.shape = {static_cast<int64_t>(shape->size())};
    for (int64_t dim : *shape) value.elements.push_back({dim, 0});
  }
  for (const Scalar& element : value.elements) {
    if (WrapInt(element.i, value.dtype) != element.i) return Expr();
  }
  return Finish(value, call, TensorType(MakeShape(value.shape), value.dtype));
}

Expr ConstantFolder::Fold(const Call& call, const Array<Type>& arg_types) {
  const auto* op = call->op.as<OpObj>();
  if (op == nullptr || op->decl == nullptr || budget_ <= 0) return Expr();
  const std::string& name = op->decl->name;
  try {
    if ((name == "shape_of" || name == "ndarray_size") && call->args.size() == 1) {
      return FoldShape(call, InferContext(call.get(), arg_types));
    }
    if (op->decl->effect == OpEffect::kAnnotation && !call->args.empty()) {
      return call->args[0].as<ConstantObj>() ? call->args[0] : Expr();
    }
    Evaluator evaluator = FindEvaluator(name);
    if (evaluator == nullptr) return Expr();
    std::vector<ConstValue> inputs;
    for (const Expr& arg : call->args) {
      if (!AddInput(arg, &inputs)) return Expr();
    }
    auto type = RelationType(call.get(), arg_types).as<TensorType>();
    if (!type) return Expr();
    std::optional<std::vector<int64_t>> shape = StaticShape((*type)->shape);
    if (!shape || !SmallSize(*shape) || !IsFoldable((*type)->dtype)) return Expr();
    InferContext context(call.get(), arg_types);
    Evaluation evaluation{context, std::move(inputs), {*shape, (*type)->dtype, {}}};
    evaluation.result.elements.resize(*SmallSize(*shape));
    if (!evaluator(evaluation)) return Expr();
    return Finish(evaluation.result, call, *type);
  } catch (const tvm::ffi::Error&) {
    // Attributes that do not fit: type inference reports them.
    return Expr();
  }
}

std::optional<bool> ConstantFolder::KnownCondition(const Expr& expr) {
  const auto* constant = expr.as<ConstantObj>();
  if (constant == nullptr || constant->data.numel() != 1) return std::nullopt;
  if (!IsBool(constant->data.dtype()) && !IsInteger(constant->data.dtype())) return std::nullopt;
  return IntsOf(constant->data)[0] != 0;
}

}  // namespace tvm_fixes::relay
