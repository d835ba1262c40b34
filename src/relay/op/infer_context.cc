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
 * \file src/relay/op/infer_context.cc
 * \brief Access to inputs and attributes, with errors that name the input or attribute at fault.
 */
#include "infer_context.h"

#include <cstring>

#include "../ir/tensor.h"
#include "registry.h"

namespace tvm_fixes::relay {

std::string CallText(const CallObj* call) {
  std::string text = "call";
  if (const auto* op = call->op.as<OpObj>()) text = op->name;
  if (const auto* global = call->op.as<GlobalVarObj>()) text = "@" + std::string(global->name);
  if (call->span.defined()) text += " at " + call->span.str();
  return text;
}

InferContext::InferContext(const CallObj* call, Array<Type> input_types)
    : call_(call), input_types_(std::move(input_types)), attrs_(CompleteAttrs(call)) {}

void InferContext::Fail(const std::string& message) const {
  ThrowRelayError(CallText(call_) + ": " + message);
}

void InferContext::FailInput(int index, const std::string& expected) const {
  std::string label = "input " + std::to_string(index);
  const auto* op = call_->op.as<OpObj>();
  if (op != nullptr && op->decl != nullptr &&
      static_cast<size_t>(index) < op->decl->input_names.size()) {
    label += " (" + op->decl->input_names[index] + ")";
  }
  Fail(label + ": expected " + expected + ", found " + TypeText(Input(index)));
}

void InferContext::FailAttr(const char* attr, const std::string& expected) const {
  Fail("attribute '" + std::string(attr) + "': expected " + expected + ", found " +
       AttrValueText(Attr(attr)));
}

Type InferContext::Input(int index) const {
  if (index < 0 || index >= num_inputs()) return IncompleteType();
  return input_types_[index];
}

TensorType InferContext::Tensor(int index) const {
  auto type = Input(index).as<TensorType>();
  if (!type) FailInput(index, "a tensor");
  return *type;
}

TensorType InferContext::Tensor(int index, int ndim) const {
  TensorType type = Tensor(index);
  if (type->ndim() != ndim) {
    FailInput(index, "a tensor with " + std::to_string(ndim) + " dimensions");
  }
  return type;
}

std::vector<TensorType> InferContext::TensorTuple(int index) const {
  const auto* tuple = Input(index).as<TupleTypeObj>();
  if (tuple == nullptr) FailInput(index, "a tuple of tensors");
  std::vector<TensorType> tensors;
  for (const Type& field : tuple->fields) {
    auto type = field.as<TensorType>();
    if (!type) FailInput(index, "a tuple of tensors");
    tensors.push_back(*type);
  }
  return tensors;
}

bool InferContext::IsKnown(int index) const { return !IsMissing(Input(index)); }

void InferContext::SetInput(int index, Type type) { input_types_.Set(index, std::move(type)); }

const ConstantObj* InferContext::ConstantInput(int index) const {
  if (index < 0 || static_cast<size_t>(index) >= call_->args.size()) return nullptr;
  return call_->args[index].as<ConstantObj>();
}

std::optional<std::vector<int64_t>> InferContext::ConstantInts(int index) const {
  const ConstantObj* constant = ConstantInput(index);
  if (constant == nullptr || !IsInteger(constant->data.dtype())) return std::nullopt;
  return IntsOf(constant->data);
}

Any InferContext::Attr(const char* attr) const { return attrs_.Get(attr).value_or(nullptr); }

bool InferContext::Has(const char* attr) const { return Attr(attr) != nullptr; }

int64_t InferContext::Int(const char* attr) const {
  if (!Has(attr)) FailAttr(attr, "int");
  return Attr(attr).cast<int64_t>();
}

double InferContext::Float(const char* attr) const {
  if (!Has(attr)) FailAttr(attr, "float");
  return Attr(attr).cast<double>();
}

bool InferContext::Bool(const char* attr) const {
  if (!Has(attr)) FailAttr(attr, "bool");
  return Attr(attr).cast<bool>();
}

std::string InferContext::Str(const char* attr) const {
  if (!Has(attr)) FailAttr(attr, "string");
  return Attr(attr).cast<String>();
}

DLDataType InferContext::DType(const char* attr, std::optional<DLDataType> fallback) const {
  if (!Has(attr)) {
    if (!fallback) FailAttr(attr, "dtype");
    return *fallback;
  }
  std::optional<DLDataType> dtype = ParseDType(Attr(attr).cast<String>());
  if (!dtype) FailAttr(attr, "dtype");
  return *dtype;
}

std::vector<int64_t> InferContext::Ints(const char* attr) const {
  if (!Has(attr)) FailAttr(attr, "array of ints");
  std::vector<int64_t> values;
  for (const Any& element : Attr(attr).cast<Array<Any>>()) {
    std::optional<int64_t> value = StaticDim(element);
    if (!value) FailAttr(attr, "array of ints");
    values.push_back(*value);
  }
  return values;
}

std::vector<int64_t> InferContext::Ints(const char* attr, size_t count) const {
  std::vector<int64_t> values = Ints(attr);
  if (values.size() == 1 && count > 1) values.assign(count, values[0]);
  if (values.size() != count) FailAttr(attr, std::to_string(count) + " ints");
  return values;
}

Shape InferContext::Dims(const char* attr) const {
  if (!Has(attr)) FailAttr(attr, "array of dimensions");
  return Attr(attr).cast<Shape>();
}

int64_t InferContext::Axis(const char* attr, int64_t ndim) const {
  return CheckAxis(attr, Int(attr), ndim);
}

int64_t InferContext::CheckAxis(const char* attr, int64_t axis, int64_t ndim) const {
  if (axis < -ndim || axis >= ndim) {
    FailAttr(attr, "axis in [" + std::to_string(-ndim) + ", " + std::to_string(ndim) + ")");
  }
  return axis < 0 ? axis + ndim : axis;
}

Shape InferContext::Broadcast(const Shape& a, const Shape& b) const {
  std::optional<Shape> shape = BroadcastShape(a, b);
  if (!shape) {
    Fail("shapes " + ShapeText(a) + " and " + ShapeText(b) + " cannot be broadcast together");
  }
  return *shape;
}

void InferContext::CheckSameDType(int a, int b) const {
  if (SameDType(Tensor(a)->dtype, Tensor(b)->dtype)) return;
  FailInput(b, "dtype " + DTypeText(Tensor(a)->dtype));
}

Type IdentityRelation(InferContext& context) { return context.Tensor(0); }

Type AxisRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  context.Axis("axis", data->ndim());
  return data;
}

Type BroadcastRelation(InferContext& context) {
  TensorType lhs = context.Tensor(0);
  TensorType rhs = context.Tensor(1);
  context.CheckSameDType(0, 1);
  return TensorType(context.Broadcast(lhs->shape, rhs->shape), lhs->dtype);
}

Type CompareRelation(InferContext& context) {
  Type type = BroadcastRelation(context);
  return TensorType(type.as<TensorTypeObj>()->shape, kBool);
}

}  // namespace tvm_fixes::relay
