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
 * \file src/relax/analysis/verifier/operators/elements.cc
 * \brief Evaluates the arithmetic that importers emit around constant indices.
 */
#include "elements.h"

#include <tvm/ffi/container/tensor.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

namespace tvm_fixes {
namespace verifier {

namespace {

using Elements = std::optional<std::vector<DimId>>;

constexpr size_t kMaxElements = 1024;
/*! \brief Longer chains of values are not evaluated. */
constexpr int kMaxChain = 50;

template <typename T>
std::vector<DimId> Read(const tvm::ffi::Tensor& tensor, DimTable* dims) {
  const char* data = static_cast<const char*>(tensor.data_ptr()) + tensor.byte_offset();
  const T* first = reinterpret_cast<const T*>(data);
  std::vector<DimId> elements;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    elements.push_back(dims->FromInt(static_cast<int64_t>(first[i])));
  }
  return elements;
}

Elements ReadConstant(const ConstantView& constant, DimTable* dims) {
  auto tensor = constant.value().try_cast<tvm::ffi::Tensor>();
  if (!tensor || tensor->device().device_type != kDLCPU || !tensor->IsContiguous() ||
      tensor->numel() > static_cast<int64_t>(kMaxElements)) {
    return std::nullopt;
  }
  const DLDataType dtype = tensor->dtype();
  if (dtype.lanes != 1) return std::nullopt;
  if (dtype.code == kDLBool && dtype.bits == 8) return Read<uint8_t>(*tensor, dims);
  if (dtype.code == kDLInt && dtype.bits == 32) return Read<int32_t>(*tensor, dims);
  if (dtype.code == kDLInt && dtype.bits == 64) return Read<int64_t>(*tensor, dims);
  return std::nullopt;
}

class Evaluator {
 public:
  explicit Evaluator(Verifier* verifier) : verifier_(verifier), dims_(verifier->dims()) {}

  Elements Of(const Object* expr, int depth) {
    expr = verifier_->ValueOf(expr);
    if (expr == nullptr || depth > kMaxChain) return std::nullopt;
    if (auto known = known_.find(expr); known != known_.end()) return known->second;
    Elements elements = Compute(expr, depth);
    if (elements && !HasSize(expr, elements->size())) elements.reset();
    known_.emplace(expr, elements);
    return elements;
  }

 private:
  using Operation = Elements (Evaluator::*)(const CallView& call, int depth);

  static const std::unordered_map<std::string, Operation>& Operations() {
    static const std::unordered_map<std::string, Operation> operations = {
        {"relax.shape_of", &Evaluator::ShapeOf},
        {"relax.shape_to_tensor", &Evaluator::Same},
        {"relax.reshape", &Evaluator::Same},
        {"relax.flatten", &Evaluator::Same},
        {"relax.squeeze", &Evaluator::Same},
        {"relax.expand_dims", &Evaluator::Same},
        {"relax.astype", &Evaluator::Cast},
        {"relax.add", &Evaluator::Arithmetic<&DimTable::Add>},
        {"relax.subtract", &Evaluator::Arithmetic<&DimTable::Subtract>},
        {"relax.multiply", &Evaluator::Arithmetic<&DimTable::Multiply>},
        {"relax.less", &Evaluator::Compare<false, true>},
        {"relax.less_equal", &Evaluator::Compare<false, false>},
        {"relax.greater", &Evaluator::Compare<true, true>},
        {"relax.greater_equal", &Evaluator::Compare<true, false>},
        {"relax.where", &Evaluator::Where},
        {"relax.take", &Evaluator::Take},
        {"relax.strided_slice", &Evaluator::Slice}};
    return operations;
  }

  Elements Compute(const Object* expr, int depth) {
    if (auto constant = As<ConstantView>(expr)) return ReadConstant(*constant, &dims_);
    if (auto shape = As<ShapeExprView>(expr)) {
      if (!shape->values().defined()) return std::nullopt;
      std::vector<DimId> elements;
      for (const ObjectRef& value : shape->values()) elements.push_back(dims_.Intern(value));
      return elements;
    }
    auto call = As<CallView>(expr);
    if (!call || !nodes.op.IsInstance(call->op().get())) {
      const DimId scalar = dims_.Intern(tvm::ffi::GetRef<ObjectRef>(expr));
      if (scalar == kUnknownDim) return std::nullopt;
      return std::vector<DimId>{scalar};
    }
    const OpInfo& op = verifier_->InfoOf(call->op().get());
    auto operation = Operations().find(op.name);
    if (operation == Operations().end() || !IsWellFormed(*call, op)) return std::nullopt;
    return (this->*operation->second)(*call, depth + 1);
  }

  /*! \brief Whether the number of elements matches the tensor's type. */
  bool HasSize(const Object* expr, size_t size) {
    const TypeInfo& info =
        verifier_->types()[verifier_->types().Intern(TypeOf(tvm::ffi::GetRef<ObjectRef>(expr)))];
    if (info.type_class != TypeClass::kTensor) return true;
    DimId product = dims_.FromInt(1);
    for (DimId dim : info.dims) product = dims_.Multiply(product, dim);
    return info.has_dims && dims_.AsInt(product) == static_cast<int64_t>(size);
  }

  const TypeInfo& TypeOfArg(const CallView& call, size_t i) {
    return verifier_->types()[verifier_->types().Intern(TypeOf(call.args()[i]))];
  }

  Elements Arg(const CallView& call, size_t i, int depth) {
    return Of(call.args()[i].get(), depth);
  }

  Elements ShapeOf(const CallView& call, int) {
    const TypeInfo& info = TypeOfArg(call, 0);
    if (!info.has_dims) return std::nullopt;
    return info.dims;
  }

  Elements Same(const CallView& call, int depth) { return Arg(call, 0, depth); }

  Elements Cast(const CallView& call, int depth) {
    const TypeInfo& to = verifier_->types()[verifier_->types().Intern(TypeOf(call.ref()))];
    if (to.dtype.code != kDLInt || to.dtype.bits < 32) return std::nullopt;
    return Arg(call, 0, depth);
  }

  /*!
   * \brief Combine two operands element by element. Shapes must be equal, or one operand a single
   *        element.
   */
  template <typename F>
  Elements Zip(const CallView& call, size_t first, int depth, F combine) {
    const Elements lhs = Arg(call, first, depth);
    const Elements rhs = lhs ? Arg(call, first + 1, depth) : std::nullopt;
    if (!lhs || !rhs || lhs->empty() || rhs->empty()) return std::nullopt;
    const bool are_alike = TypeOfArg(call, first).dims == TypeOfArg(call, first + 1).dims;
    if (lhs->size() != 1 && rhs->size() != 1 && !(are_alike && lhs->size() == rhs->size())) {
      return std::nullopt;
    }
    std::vector<DimId> elements;
    for (size_t i = 0; i < std::max(lhs->size(), rhs->size()); ++i) {
      const DimId element =
          combine((*lhs)[lhs->size() == 1 ? 0 : i], (*rhs)[rhs->size() == 1 ? 0 : i]);
      if (element == kUnknownDim) return std::nullopt;
      elements.push_back(element);
    }
    return elements;
  }

  template <DimId (DimTable::*operation)(DimId, DimId)>
  Elements Arithmetic(const CallView& call, int depth) {
    return Zip(call, 0, depth, [this](DimId a, DimId b) { return (dims_.*operation)(a, b); });
  }

  template <bool is_greater, bool is_strict>
  Elements Compare(const CallView& call, int depth) {
    return Zip(call, 0, depth, [this](DimId a, DimId b) {
      const DimId difference = is_greater ? dims_.Subtract(a, b) : dims_.Subtract(b, a);
      const Relation relation = dims_.AtLeast(difference, is_strict ? 1 : 0);
      if (relation == Relation::kUnknown) return kUnknownDim;
      return dims_.FromInt(relation == Relation::kProved ? 1 : 0);
    });
  }

  Elements Where(const CallView& call, int depth) {
    const Elements condition = Arg(call, 0, depth);
    if (!condition) return std::nullopt;
    // Pairs of both operands; the first is selected where the condition holds.
    std::vector<std::pair<DimId, DimId>> pairs;
    const Elements any = Zip(call, 1, depth, [&](DimId a, DimId b) {
      pairs.emplace_back(a, b);
      return a;
    });
    if (!any || (pairs.size() != 1 && pairs.size() != condition->size())) return std::nullopt;
    std::vector<DimId> elements;
    for (size_t i = 0; i < condition->size(); ++i) {
      const auto& [if_true, if_false] = pairs[pairs.size() == 1 ? 0 : i];
      elements.push_back(dims_.AsInt((*condition)[i]) == 0 ? if_false : if_true);
    }
    return elements;
  }

  /*! \brief Selected elements of a vector. */
  Elements Take(const CallView& call, int depth) {
    const Elements data = TypeOfArg(call, 0).ndim == 1 ? Arg(call, 0, depth) : std::nullopt;
    const Elements indices = data ? Arg(call, 1, depth) : std::nullopt;
    if (!indices) return std::nullopt;
    std::vector<DimId> elements;
    for (DimId index : *indices) {
      const auto at = dims_.AsInt(index);
      if (!at || *at < 0 || *at >= static_cast<int64_t>(data->size())) return std::nullopt;
      elements.push_back((*data)[*at]);
    }
    return elements;
  }

  /*! \brief A slice of a vector with stride 1. */
  Elements Slice(const CallView& call, int depth) {
    const Elements data = TypeOfArg(call, 0).ndim == 1 ? Arg(call, 0, depth) : std::nullopt;
    if (!data || call.args().size() < 4) return std::nullopt;
    std::vector<int64_t> bounds;
    for (size_t i = 1; i < call.args().size(); ++i) {
      auto tuple = As<TupleView>(verifier_->ValueOf(call.args()[i].get()));
      if (!tuple || !tuple->fields().defined() || tuple->fields().size() != 1) return std::nullopt;
      const auto value = AsInt(tuple->fields()[0]);
      if (!value) return std::nullopt;
      bounds.push_back(*value);
    }
    const int64_t size = static_cast<int64_t>(data->size());
    if (bounds[1] < 0 || bounds[1] > bounds[2] || bounds[2] > size) return std::nullopt;
    if (bounds.size() > 3 && bounds[3] != 1) return std::nullopt;
    return std::vector<DimId>(data->begin() + bounds[1], data->begin() + bounds[2]);
  }

  Verifier* verifier_;
  DimTable& dims_;
  std::unordered_map<const Object*, Elements> known_;
};

}  // namespace

std::optional<std::vector<DimId>> ElementsOf(Verifier* verifier, const Object* expr) {
  return Evaluator(verifier).Of(expr, 0);
}

}  // namespace verifier
}  // namespace tvm_fixes
