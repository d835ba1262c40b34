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
 * \file src/relax/analysis/shape_values.cc
 * \brief Compile-time values of small tensors that shapes are computed from.
 */
#include "shape_values.h"

#include <tvm/ffi/container/tensor.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "../ir/build.h"

namespace tvm_fixes {

namespace {

/*! \brief The elements of a constant with element type T, converted by `make`. */
template <typename T, typename Make>
std::vector<ObjectRef> ReadAs(const tvm::ffi::Tensor& tensor, Make make) {
  const auto* data = reinterpret_cast<const T*>(static_cast<const char*>(tensor.data_ptr()) +
                                                tensor.GetDLTensorPtr()->byte_offset);
  std::vector<ObjectRef> elements;
  for (int64_t i = 0; i < tensor.numel(); ++i) elements.push_back(make(data[i]));
  return elements;
}

ObjectRef FromUnsigned(uint64_t value) {
  const bool fits = value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return fits ? Scalars::Int(static_cast<int64_t>(value)) : ObjectRef(nullptr);
}

std::optional<std::vector<ObjectRef>> ReadInts(const tvm::ffi::Tensor& tensor) {
  const DLDataType dtype = tensor.dtype();
  const bool is_signed = dtype.code == kDLInt;
  switch (dtype.bits) {
    case 8:
      return is_signed ? ReadAs<int8_t>(tensor, Scalars::Int)
                       : ReadAs<uint8_t>(tensor, Scalars::Int);
    case 16:
      return is_signed ? ReadAs<int16_t>(tensor, Scalars::Int)
                       : ReadAs<uint16_t>(tensor, Scalars::Int);
    case 32:
      return is_signed ? ReadAs<int32_t>(tensor, Scalars::Int)
                       : ReadAs<uint32_t>(tensor, Scalars::Int);
    case 64:
      return is_signed ? ReadAs<int64_t>(tensor, Scalars::Int)
                       : ReadAs<uint64_t>(tensor, FromUnsigned);
    default:
      return std::nullopt;
  }
}

std::optional<std::vector<ObjectRef>> ReadElements(const tvm::ffi::Tensor& tensor) {
  const DLDataType dtype = tensor.dtype();
  switch (KindOfDType(dtype)) {
    case ScalarKind::kBool:
      return ReadAs<uint8_t>(tensor, [](uint8_t value) { return Scalars::Bool(value != 0); });
    case ScalarKind::kInt:
      return ReadInts(tensor);
    case ScalarKind::kFloat: {
      auto convert = [&](double value) {
        return Scalars::IfRepresentable(Scalars::Float(value), dtype);
      };
      return dtype.bits == 32 ? ReadAs<float>(tensor, convert) : ReadAs<double>(tensor, convert);
    }
    default:
      return std::nullopt;
  }
}

std::optional<ShapeValue> ReadConstant(const ConstantView& constant) {
  const auto tensor = constant.value().try_cast<tvm::ffi::Tensor>();
  if (!tensor || !tensor->defined() || !tensor->IsContiguous()) return std::nullopt;
  if (tensor->device().device_type != kDLCPU || tensor->numel() > ShapeValues::kMaxElements) {
    return std::nullopt;
  }
  auto elements = ReadElements(*tensor);
  if (!elements) return std::nullopt;
  return ShapeValue{{tensor->shape().begin(), tensor->shape().end()}, *std::move(elements)};
}

ShapeValue OfDims(const Array<ObjectRef>& dims) {
  return {{static_cast<int64_t>(dims.size())}, {dims.begin(), dims.end()}};
}

/*! \brief A tensor of unknown elements, or std::nullopt if the type is not tracked. */
std::optional<ShapeValue> UnknownOf(const ObjectRef& type) {
  auto shape = StaticShapeOf(type);
  if (!shape || KindOfDType(DTypeOf(type)) == ScalarKind::kOther) return std::nullopt;
  const int64_t num_elements = NumElements(*shape);
  if (num_elements > ShapeValues::kMaxElements) return std::nullopt;
  return ShapeValue{*std::move(shape), std::vector<ObjectRef>(num_elements, ObjectRef(nullptr))};
}

/*! \brief The value that a type implies. */
std::optional<ShapeValue> ValueOfType(const ObjectRef& type) {
  if (!nodes.shape_type.IsInstance(type.get())) return UnknownOf(type);
  const auto dims = Any(nodes.shape_type.values(type.get())).try_cast<Array<ObjectRef>>();
  if (!dims || !dims->defined()) return std::nullopt;
  return OfDims(*dims);
}

}  // namespace

std::optional<std::vector<int64_t>> ShapeValue::AsInts() const {
  std::vector<int64_t> ints;
  for (const ObjectRef& element : elements) {
    auto value = AsInt(element);
    if (!value) return std::nullopt;
    ints.push_back(*value);
  }
  return ints;
}

bool ShapeValue::IsKnown() const {
  return std::all_of(elements.begin(), elements.end(),
                     [](const ObjectRef& element) { return element.defined(); });
}

int64_t NumElements(const std::vector<int64_t>& shape) {
  constexpr int64_t kMany = std::numeric_limits<int64_t>::max();
  int64_t product = 1;
  for (int64_t extent : shape) {
    if (extent < 0) return kMany;
    if (__builtin_mul_overflow(product, extent, &product)) return kMany;
  }
  return product;
}

std::optional<std::vector<int64_t>> StaticShapeOf(const ObjectRef& type) {
  auto dims = ShapeOfType(type);
  if (!dims) return std::nullopt;
  std::vector<int64_t> shape;
  for (const ObjectRef& dim : *dims) {
    auto extent = AsInt(dim);
    if (!extent) return std::nullopt;
    shape.push_back(*extent);
  }
  return shape;
}

std::optional<ShapeValue> ShapeValues::ValueOf(const ObjectRef& expr) const {
  switch (KindOf(expr.get())) {
    case Kind::kVar:
    case Kind::kDataflowVar: {
      auto it = values_.find(expr.get());
      if (it != values_.end()) return it->second;
      break;
    }
    case Kind::kConstant:
      return ReadConstant(ConstantView(expr.get()));
    case Kind::kShapeExpr:
      return OfDims(ShapeExprView(expr.get()).values());
    case Kind::kCall:
      return ValueOfCall(CallView(expr.get()));
    case Kind::kTupleGetItem: {
      const TupleGetItemView get_item(expr.get());
      const auto fields = FieldsOf(get_item.tuple_value());
      const auto index = static_cast<size_t>(get_item.index());
      if (fields && index < fields->size()) return (*fields)[index];
      break;
    }
    default:
      break;
  }
  const ObjectRef type = TypeOf(expr);
  // A scalar: a symbolic variable, a literal or an expression.
  if (nodes.prim_type.IsInstance(type.get())) {
    if (auto value = AsFloat(expr))
      return ShapeValue{{}, {Scalars::IfRepresentable(expr, DTypeOf(type))}};
    if (auto value = AsInt(expr)) return ShapeValue{{}, {scalars_->Cast(expr, DTypeOf(type))}};
    return ShapeValue{{}, {Scalars::IfRepresentable(expr, DTypeOf(type))}};
  }
  return ValueOfType(type);
}

std::optional<ShapeValue> ShapeValues::ValueOfCall(const CallView& call) const {
  const ObjectRef type = TypeOf(call.ref());
  const bool is_shape = nodes.shape_type.IsInstance(type.get());
  const auto unknown = ValueOfType(type);
  if (!nodes.op.IsInstance(call.op().get()) || !call.args().defined()) return unknown;
  // Tracked operators do not return tensors of unknown type or of too many elements.
  const DLDataType dtype = DTypeOf(type);
  if (!is_shape && KindOfDType(dtype) == ScalarKind::kOther) return unknown;
  if (auto shape = StaticShapeOf(type); shape && NumElements(*shape) > kMaxElements) return unknown;
  const std::string name(nodes.op.name(call.op().get()));
  for (const auto* evaluators :
       {&ElementwiseEvaluators(), &ReductionEvaluators(), &TensorEvaluators()}) {
    auto found = evaluators->find(name);
    if (found == evaluators->end()) continue;
    auto value = found->second(*this, call);
    if (!value || (!is_shape && unknown && unknown->shape != value->shape)) return unknown;
    if (NumElements(value->shape) > kMaxElements) return unknown;
    if (is_shape) return value;
    for (ObjectRef& element : value->elements) element = Scalars::IfRepresentable(element, dtype);
    return value;
  }
  return unknown;
}

std::optional<std::vector<std::optional<ShapeValue>>> ShapeValues::FieldsOf(
    const ObjectRef& tuple) const {
  if (auto view = As<TupleView>(tuple)) {
    std::vector<std::optional<ShapeValue>> fields;
    if (!view->fields().defined()) return std::nullopt;
    for (const ObjectRef& field : view->fields()) fields.push_back(ValueOf(field));
    return fields;
  }
  if (auto call = As<CallView>(tuple); call && call->IsOp("relax.split")) {
    return EvaluateSplit(*this, *call);
  }
  auto it = fields_.find(tuple.get());
  if (it == fields_.end()) return std::nullopt;
  return it->second;
}

void ShapeValues::Bind(const ObjectRef& var, const ObjectRef& value) {
  if (nodes.tuple_type.IsInstance(TypeOf(var).get())) {
    if (auto fields = FieldsOf(value)) fields_.insert_or_assign(var.get(), *std::move(fields));
  } else if (auto known = ValueOf(value)) {
    values_.insert_or_assign(var.get(), *std::move(known));
  }
}

}  // namespace tvm_fixes
