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
 * \file src/relax/analysis/verifier/operators/obligations.cc
 * \brief Decides obligations and reports those that are not proved.
 */
#include "obligations.h"

#include <tvm/ffi/container/tensor.h>

#include <algorithm>
#include <utility>

#include "elements.h"

namespace tvm_fixes {
namespace verifier {

namespace {

struct Family {
  const char* rule;
  Collector collector;
};

std::unordered_map<std::string, Family>& Families() {
  static std::unordered_map<std::string, Family> families;
  return families;
}

std::string ExpectedText(Requirement requirement, const std::string& value) {
  switch (requirement) {
    case Requirement::kBroadcast:
    case Requirement::kBroadcastTo:
      return value == "1" ? value : value + " or 1";
    case Requirement::kAtLeast:
      return "at least " + value;
    case Requirement::kMultipleOf:
      return "a multiple of " + value;
    default:
      return value;
  }
}

/*!
 * \brief The smallest and largest element of an integer tensor, or std::nullopt for other tensors.
 */
std::optional<std::pair<int64_t, int64_t>> RangeOf(const tvm::ffi::Tensor& tensor) {
  const DLDataType dtype = tensor.dtype();
  const bool is_signed = dtype.code == kDLInt;
  if ((!is_signed && dtype.code != kDLUInt) || dtype.lanes != 1) return std::nullopt;
  if (tensor.device().device_type != kDLCPU || !tensor.IsContiguous()) return std::nullopt;
  const int64_t size = tensor.numel();
  if (size == 0) return std::nullopt;
  const char* data = static_cast<const char*>(tensor.data_ptr()) + tensor.byte_offset();
  auto range = [data, size](auto type) {
    const auto* first = reinterpret_cast<const decltype(type)*>(data);
    const auto [low, high] = std::minmax_element(first, first + size);
    return std::make_pair(static_cast<int64_t>(*low), static_cast<int64_t>(*high));
  };
  switch (dtype.bits) {
    case 8:
      return is_signed ? range(int8_t()) : range(uint8_t());
    case 16:
      return is_signed ? range(int16_t()) : range(uint16_t());
    case 32:
      return is_signed ? range(int32_t()) : range(uint32_t());
    case 64:
      return is_signed ? range(int64_t()) : range(uint64_t());
    default:
      return std::nullopt;
  }
}

/*! \brief The smallest and largest index in an expression, if it is a literal. */
std::optional<std::pair<int64_t, int64_t>> RangeOf(const Object* expr) {
  if (auto constant = As<ConstantView>(expr)) {
    auto tensor = constant->value().try_cast<tvm::ffi::Tensor>();
    if (tensor) return RangeOf(*tensor);
  } else if (expr != nullptr) {
    auto value = AsInt(tvm::ffi::GetRef<ObjectRef>(expr));
    if (value) return std::make_pair(*value, *value);
  }
  return std::nullopt;
}

/*! \brief The smallest and largest number of a list of dims, or std::nullopt if one is symbolic. */
std::optional<std::pair<int64_t, int64_t>> RangeOf(const std::vector<DimId>& elements,
                                                   const DimTable& dims) {
  std::optional<std::pair<int64_t, int64_t>> range;
  for (DimId element : elements) {
    const auto value = dims.AsInt(element);
    if (!value) return std::nullopt;
    if (!range) range = {*value, *value};
    range = {std::min(range->first, *value), std::max(range->second, *value)};
  }
  return range;
}

Path PathOf(const Call& call, const Extent& extent) {
  if (extent.arg < 0) return call.path;
  const Path path = call.ArgPath(extent.arg);
  if (extent.field < 0 || !As<TupleView>(call.arg(extent.arg))) return path;
  return path.Attr("fields").Item(extent.field);
}

void Report(Verifier* verifier, const Call& call) {
  const std::vector<Obligation> found = ObligationsOf(verifier, call);
  if (found.empty()) return;
  const bool is_wrong = std::any_of(found.begin(), found.end(), [](const Obligation& obligation) {
    return obligation.relation == Relation::kDisproved;
  });
  const Relation worst = is_wrong ? Relation::kDisproved : Relation::kUnknown;
  std::string message;
  const Obligation* first = nullptr;
  for (const Obligation& obligation : found) {
    if (obligation.relation != worst) continue;
    // Most indices depend on data, so unknown indices are not worth a warning.
    if (!is_wrong && obligation.requirement == Requirement::kIndicesOf) continue;
    message += (first == nullptr ? ": " : "; ") + obligation.text;
    if (first == nullptr) first = &obligation;
  }
  if (first == nullptr) return;
  const Extent& subject = first->actual.arg >= 0 ? first->actual : first->expected;
  Diagnostic* diagnostic = verifier->Check(worst, Families().at(call.op.name).rule,
                                           PathOf(call, subject), Quote(call.op.name) + message);
  for (const ObjectRef& arg : call.view.args()) verifier->NoteOrigin(diagnostic, arg.get());
}

}  // namespace

void RegisterObligations(const char* rule, Collector collector,
                         std::initializer_list<const char*> op_names) {
  for (const char* op_name : op_names) {
    Families()[op_name] = {rule, collector};
    RegisterRule(op_name, Report);
  }
}

std::vector<Obligation> ObligationsOf(Verifier* verifier, const Call& call) {
  auto family = Families().find(call.op.name);
  if (family == Families().end()) return {};
  Obligations obligations(verifier, call);
  family->second.collector(&obligations);
  return std::move(obligations.found());
}

std::string Extent::Text() const {
  std::string text = axis >= 0 ? "dim " + std::to_string(axis) : what;
  if (field >= 0) text += " of field " + std::to_string(field);
  if (arg >= 0) text += " of argument " + std::to_string(arg);
  return text;
}

const TypeInfo* Obligations::Tensor(size_t arg) const {
  if (arg >= call_.args.size()) return nullptr;
  const TypeInfo& info = type(call_.args[arg]);
  return info.type_class == TypeClass::kTensor && info.ndim >= 0 ? &info : nullptr;
}

const TypeInfo* Obligations::Tensor(size_t arg, size_t field) const {
  if (field >= NumFields(arg)) return nullptr;
  const TypeInfo& info = type(type(call_.args[arg]).fields[field]);
  return info.type_class == TypeClass::kTensor && info.ndim >= 0 ? &info : nullptr;
}

size_t Obligations::NumFields(size_t arg) const {
  if (arg >= call_.args.size()) return 0;
  const TypeInfo& info = type(call_.args[arg]);
  return info.type_class == TypeClass::kTuple ? info.fields.size() : 0;
}

Extent Obligations::Dim(size_t arg, int axis) const { return Dim(arg, -1, axis); }

Extent Obligations::Dim(size_t arg, int field, int axis) const {
  const TypeInfo& argument = type(call_.args[arg]);
  const TypeInfo& info = field < 0 ? argument : type(argument.fields[field]);
  const DimId dim = info.has_dims ? info.dims[axis] : kUnknownDim;
  return {dim, static_cast<int>(arg), field, axis, ""};
}

Relation Obligations::Decide(Requirement requirement, DimId actual, DimId expected) {
  const DimId one = dims().FromInt(1);
  auto or_one = [&](Relation relation, DimId dim) {
    const Relation is_one = dims().Equal(dim, one);
    if (relation == Relation::kProved || is_one == Relation::kProved) return Relation::kProved;
    return relation == is_one ? relation : Relation::kUnknown;
  };
  switch (requirement) {
    case Requirement::kEqual:
      return dims().Equal(actual, expected);
    case Requirement::kBroadcastTo:
      return or_one(dims().Equal(actual, expected), actual);
    case Requirement::kBroadcast:
      return or_one(or_one(dims().Equal(actual, expected), actual), expected);
    case Requirement::kAtLeast:
      return dims().AtLeast(dims().Subtract(actual, expected), 0);
    case Requirement::kMultipleOf: {
      auto divisor = dims().AsInt(expected);
      if (!divisor || *divisor <= 0) return Relation::kUnknown;
      return dims().Equal(actual, dims().Multiply(dims().FloorDivide(actual, *divisor), expected));
    }
    default:
      return Relation::kUnknown;
  }
}

void Obligations::Require(Requirement requirement, const Extent& actual, const Extent& expected) {
  // Unknown extents were reported before.
  if (actual.dim == kUnknownDim || expected.dim == kUnknownDim || actual.dim == expected.dim)
    return;
  const Relation relation = Decide(requirement, actual.dim, expected.dim);
  if (relation == Relation::kProved) return;
  const std::string wanted = ExpectedText(requirement, dims().Text(expected.dim));
  const std::string source =
      *expected.what == '\0' && expected.axis < 0 ? std::string() : " (" + expected.Text() + ")";
  const std::string got = dims().Text(actual.dim);
  std::string text = actual.Text() + ": ";
  text += relation == Relation::kDisproved ? "expected " + wanted + source + ", got " + got
                                           : "cannot prove that " + got + " is " + wanted + source;
  found_.push_back({requirement, relation, actual, expected, false, std::move(text)});
}

std::vector<Extent> Obligations::Broadcast(const std::vector<Extent>& lhs,
                                           const std::vector<Extent>& rhs) {
  const std::vector<Extent>& longer = lhs.size() >= rhs.size() ? lhs : rhs;
  const std::vector<Extent>& shorter = lhs.size() >= rhs.size() ? rhs : lhs;
  std::vector<Extent> both = longer;
  const DimId one = dims().FromInt(1);
  const size_t offset = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    const Extent& left = &longer == &lhs ? longer[offset + i] : shorter[i];
    const Extent& right = &longer == &lhs ? shorter[i] : longer[offset + i];
    Require(Requirement::kBroadcast, right, left);
    both[offset + i] = left.dim == one ? right : left;
  }
  return both;
}

void Obligations::Indices(const Extent& indexed, size_t arg, int field, bool counts_from_end) {
  if (indexed.dim == kUnknownDim) return;
  const Object* expr = verifier_->ValueOf(call_.arg(arg));
  if (field >= 0) {
    auto tuple = As<TupleView>(expr);
    expr = tuple && field < static_cast<int>(tuple->fields().size())
               ? verifier_->ValueOf(tuple->fields()[field].get())
               : nullptr;
  }
  const Extent indices = {kUnknownDim, static_cast<int>(arg), field, -1, "the indices"};
  auto range = RangeOf(expr);
  const auto elements = range ? std::nullopt : ElementsOf(verifier_, expr);
  if (elements) range = RangeOf(*elements, dims());
  Relation relation = Relation::kUnknown;
  std::string got;
  if (range) {
    got = std::to_string(range->first);
    if (range->first != range->second) got += " to " + std::to_string(range->second);
  }
  if (elements && !range) {
    const DimId least =
        counts_from_end ? dims().Subtract(dims().FromInt(0), indexed.dim) : dims().FromInt(0);
    relation = Relation::kProved;
    for (DimId element : *elements) {
      const Relation is_inside = Both(dims().AtLeast(dims().Subtract(element, least), 0),
                                      dims().AtLeast(dims().Subtract(indexed.dim, element), 1));
      if (is_inside == Relation::kDisproved && got.empty()) got = dims().Text(element);
      relation = Both(relation, is_inside);
    }
  } else if (range && range->first < 0 && !counts_from_end) {
    relation = Relation::kDisproved;
  } else if (range) {
    const int64_t needed =
        std::max(std::min(range->second, INT64_MAX - 1) + 1, -std::max(range->first, -INT64_MAX));
    relation = dims().AtLeast(indexed.dim, needed);
    // Do not warn that an axis may be empty: it rarely is.
    if (relation == Relation::kUnknown && needed > 1) {
      return AtLeast(indexed,
                     {dims().FromInt(needed), static_cast<int>(arg), field, -1, "for the indices"});
    }
  }
  if (relation == Relation::kProved) return;
  const std::string extent = dims().Text(indexed.dim);
  std::string text = indices.Text() + ": expected " + (counts_from_end ? "-" + extent : "0") +
                     " to " + dims().Text(dims().Subtract(indexed.dim, dims().FromInt(1))) + " (" +
                     indexed.Text() + " is " + extent + ")";
  if (!got.empty()) text += ", got " + got;
  found_.push_back(
      {Requirement::kIndicesOf, relation, indices, indexed, counts_from_end, std::move(text)});
}

void Obligations::Fail(int arg, std::string text, int field) {
  found_.push_back({Requirement::kNone,
                    Relation::kDisproved,
                    {kUnknownDim, arg, field, -1, ""},
                    {},
                    false,
                    std::move(text)});
}

bool Obligations::HasRank(size_t arg, int32_t ndim, const char* why) {
  const TypeInfo* tensor = Tensor(arg);
  if (tensor == nullptr || tensor->ndim == ndim) return true;
  Fail(arg, "rank of argument " + std::to_string(arg) + ": expected " + std::to_string(ndim) + why +
                ", got " + std::to_string(tensor->ndim));
  return false;
}

bool Obligations::HasExtents(size_t arg) {
  const TypeInfo& info = type(call_.args[arg]);
  if (info.type_class != TypeClass::kTensor || info.has_dims) return true;
  Fail(static_cast<int>(arg), "argument " + std::to_string(arg) +
                                  ": expected a tensor of known shape, got " +
                                  verifier_->types().Text(call_.args[arg]));
  return false;
}

std::optional<int> Obligations::Axis(int64_t axis, int32_t ndim, const char* name) {
  if (axis >= -ndim && axis < ndim) return static_cast<int>(NormalizeAxis(axis, ndim));
  const std::string range = ndim == 0 ? "none (the rank is 0)"
                                      : std::to_string(-ndim) + " to " + std::to_string(ndim - 1);
  Fail(-1, std::string(name) + ": expected " + range + ", got " + std::to_string(axis));
  return std::nullopt;
}

std::optional<std::vector<int>> Obligations::Axes(const Array<int64_t>& axes, int32_t ndim,
                                                  const char* name) {
  std::vector<int> from_start;
  for (int64_t value : axes) {
    auto axis = Axis(value, ndim, name);
    if (!axis) return std::nullopt;
    if (std::find(from_start.begin(), from_start.end(), *axis) != from_start.end()) {
      Fail(-1, std::string(name) + ": " + std::to_string(value) + " is repeated");
      return std::nullopt;
    }
    from_start.push_back(*axis);
  }
  return from_start;
}

}  // namespace verifier
}  // namespace tvm_fixes
