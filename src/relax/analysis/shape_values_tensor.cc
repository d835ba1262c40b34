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
 * \file src/relax/analysis/shape_values_tensor.cc
 * \brief Compile-time values of operators that move, select or create elements.
 */
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "../op/axis_attrs.h"
#include "../op/index_attrs.h"
#include "../op/manipulate_attrs.h"
#include "shape_values.h"
#include "shape_values_operands.h"

namespace tvm_fixes {

namespace {

WideAxisAttrsNode flip_attrs{"relax.attrs.FlipAttrs"};

using Value = std::optional<ShapeValue>;
using Fields = std::optional<std::vector<Value>>;
using Index = std::vector<int64_t>;

bool IsSmall(const Index& shape) { return NumElements(shape) <= ShapeValues::kMaxElements; }

Value Reshaped(Value value, const std::optional<Index>& shape) {
  if (!value || !shape) return std::nullopt;
  if (NumElements(*shape) != static_cast<int64_t>(value->elements.size())) return std::nullopt;
  value->shape = *shape;
  return value;
}

/*!
 * \brief Evaluate an operator that keeps the element order. The new shape comes from the result
 *        type.
 */
Value EvaluateReshape(const ShapeValues& values, const CallView& call) {
  return Reshaped(Operand(values, call, 0), StaticShapeOf(TypeOf(call.ref())));
}

Value EvaluateIdentity(const ShapeValues& values, const CallView& call) {
  return Operand(values, call, 0);
}

Value EvaluateShapeOf(const ShapeValues&, const CallView& call) {
  if (call.args().empty()) return std::nullopt;
  auto dims = ShapeOf(call.args()[0]);
  if (!dims) return std::nullopt;
  return ShapeValue{{static_cast<int64_t>(dims->size())}, {dims->begin(), dims->end()}};
}

Value EvaluateSize(const ShapeValues& values, const CallView& call) {
  auto dims = EvaluateShapeOf(values, call);
  if (!dims) return std::nullopt;
  ObjectRef product = Scalars::Int(1);
  for (const ObjectRef& dim : dims->elements) product = values.scalars().Multiply(product, dim);
  return ShapeValue{{}, {product}};
}

/*! \brief `shape` filled with one element. */
Value Filled(const std::optional<Index>& shape, const ObjectRef& element) {
  if (!shape || !IsSmall(*shape)) return std::nullopt;
  return ShapeValue{*shape, std::vector<ObjectRef>(NumElements(*shape), element)};
}

Value EvaluateFull(const ShapeValues& values, const CallView& call) {
  auto fill = Operand(values, call, 1);
  if (!fill) return std::nullopt;
  const ObjectRef type = TypeOf(call.ref());
  return Filled(StaticShapeOf(type), values.scalars().Cast(OnlyElement(*fill), DTypeOf(type)));
}

template <int64_t literal>
Value EvaluateConstant(const ShapeValues& values, const CallView& call) {
  const ObjectRef type = TypeOf(call.ref());
  return Filled(StaticShapeOf(type), values.scalars().Cast(Scalars::Int(literal), DTypeOf(type)));
}

Value EvaluateArange(const ShapeValues& values, const CallView& call) {
  std::vector<int64_t> arguments;
  for (size_t i = 0; i < 3; ++i) {
    auto value = Operand(values, call, i);
    auto literal = value ? AsInt(OnlyElement(*value)) : std::nullopt;
    if (!literal) return std::nullopt;
    arguments.push_back(*literal);
  }
  if (KindOfDType(DTypeOf(TypeOf(call.ref()))) != ScalarKind::kInt) return std::nullopt;
  const int64_t start = arguments[0], stop = arguments[1], step = arguments[2];
  auto is_before_stop = [&](int64_t i) { return step > 0 ? i < stop : i > stop; };
  ShapeValue result{{0}, {}};
  for (int64_t i = start; step != 0 && is_before_stop(i);) {
    if (++result.shape[0] > ShapeValues::kMaxElements) return std::nullopt;
    result.elements.push_back(Scalars::Int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (step == 0) return std::nullopt;
  return result;
}

Value EvaluatePermuteDims(const ShapeValues& values, const CallView& call) {
  auto value = Operand(values, call, 0);
  if (!value || !permute_dims_attrs.IsInstance(call.attrs().get())) return std::nullopt;
  const size_t ndim = value->shape.size();
  std::vector<size_t> axes(ndim);
  const Array<int64_t>& given = permute_dims_attrs.axes(call.attrs().get());
  if (given.defined() && given.size() != ndim) return std::nullopt;
  Index shape(ndim);
  for (size_t i = 0; i < ndim; ++i) {
    auto axis = given.defined() ? AxisOf(given[i], ndim) : ndim - 1 - i;
    if (!axis) return std::nullopt;
    axes[i] = *axis;
    shape[i] = value->shape[*axis];
  }
  if (!IsSmall(shape)) return std::nullopt;
  return Rearrange(*value, shape, [&](const Index& index) {
    Index source(ndim);
    for (size_t i = 0; i < ndim; ++i) source[axes[i]] = index[i];
    return source;
  });
}

Value EvaluateFlip(const ShapeValues& values, const CallView& call) {
  auto value = Operand(values, call, 0);
  if (!value || !flip_attrs.IsInstance(call.attrs().get())) return std::nullopt;
  const auto axis = AxisOf(flip_attrs.axis(call.attrs().get()), value->shape.size());
  if (!axis) return std::nullopt;
  return Rearrange(*value, value->shape, [&](Index index) {
    index[*axis] = value->shape[*axis] - 1 - index[*axis];
    return index;
  });
}

Value EvaluateBroadcastTo(const ShapeValues& values, const CallView& call) {
  auto value = Operand(values, call, 0);
  auto shape = StaticShapeOf(TypeOf(call.ref()));
  if (!value || !shape || !IsSmall(*shape) || shape->size() < value->shape.size()) {
    return std::nullopt;
  }
  const size_t missing = shape->size() - value->shape.size();
  for (size_t i = 0; i < value->shape.size(); ++i) {
    if (value->shape[i] != 1 && value->shape[i] != (*shape)[missing + i]) return std::nullopt;
  }
  return BroadcastTo(*value, *shape);
}

Value EvaluateTile(const ShapeValues& values, const CallView& call) {
  auto value = Operand(values, call, 0);
  auto shape = StaticShapeOf(TypeOf(call.ref()));
  if (!value || !shape || !IsSmall(*shape) || shape->size() < value->shape.size()) {
    return std::nullopt;
  }
  const auto missing = static_cast<int64_t>(shape->size() - value->shape.size());
  if (value->elements.empty() && NumElements(*shape) != 0) return std::nullopt;
  return Rearrange(*value, *shape, [&](const Index& index) {
    Index source(index.begin() + missing, index.end());
    for (size_t i = 0; i < source.size(); ++i) source[i] %= value->shape[i];
    return source;
  });
}

Value EvaluateRepeat(const ShapeValues& values, const CallView& call) {
  auto value = Operand(values, call, 0);
  if (!value || !repeat_attrs.IsInstance(call.attrs().get())) return std::nullopt;
  const int64_t repeats = repeat_attrs.repeats(call.attrs().get());
  const Any& attr = repeat_attrs.axis(call.attrs().get());
  std::optional<size_t> axis = 0;
  if (attr == nullptr) {
    value->shape = {static_cast<int64_t>(value->elements.size())};
  } else {
    axis = AxisOf(attr.try_cast<int64_t>().value_or(0), value->shape.size());
  }
  if (!axis || repeats < 1) return std::nullopt;
  Index shape = value->shape;
  if (__builtin_mul_overflow(shape[*axis], repeats, &shape[*axis])) return std::nullopt;
  if (!IsSmall(shape)) return std::nullopt;
  return Rearrange(*value, shape, [&](Index index) {
    index[*axis] /= repeats;
    return index;
  });
}

/*! \brief A position along an axis, or std::nullopt if it is invalid under `mode`. */
std::optional<int64_t> ResolveIndex(int64_t position, int64_t extent, const std::string& mode) {
  if (extent > 0 && mode == "clip") return std::clamp<int64_t>(position, 0, extent - 1);
  if (extent > 0 && mode == "wrap") return ((position % extent) + extent) % extent;
  if (position < 0 || position >= extent) return std::nullopt;
  return position;
}

Value EvaluateTake(const ShapeValues& values, const CallView& call) {
  auto value = Operand(values, call, 0), indices = Operand(values, call, 1);
  if (!value || !indices) return std::nullopt;
  const auto axis = AxisOrFlatten(take_attrs, call, &*value);
  if (!axis) return std::nullopt;
  const std::string mode(take_attrs.mode(call.attrs().get()));
  const auto split = static_cast<int64_t>(*axis);
  const auto num_axes = static_cast<int64_t>(indices->shape.size());
  ShapeValue result{{value->shape.begin(), value->shape.begin() + split}, {}};
  result.shape.insert(result.shape.end(), indices->shape.begin(), indices->shape.end());
  result.shape.insert(result.shape.end(), value->shape.begin() + split + 1, value->shape.end());
  if (!IsSmall(result.shape)) return std::nullopt;
  for (int64_t place = 0; place < NumElements(result.shape); ++place) {
    Index source = Unravel(place, result.shape);
    const Index which(source.begin() + split, source.begin() + split + num_axes);
    const auto position = AsInt(indices->elements[Ravel(which, indices->shape)]);
    const auto located =
        position ? ResolveIndex(*position, value->shape[*axis], mode) : std::optional<int64_t>();
    source.erase(source.begin() + split, source.begin() + split + num_axes);
    source.insert(source.begin() + split, located.value_or(0));
    result.elements.push_back(located ? value->elements[Ravel(source, value->shape)]
                                      : ObjectRef(nullptr));
  }
  return result;
}

Value EvaluateGatherElements(const ShapeValues& values, const CallView& call) {
  auto value = Operand(values, call, 0), indices = Operand(values, call, 1);
  const Object* attrs = call.attrs().get();
  if (!value || !indices || !gather_elements_attrs.IsInstance(attrs)) return std::nullopt;
  const auto axis = AxisOf(gather_elements_attrs.axis(attrs), value->shape.size());
  if (!axis || indices->shape.size() != value->shape.size()) return std::nullopt;
  ShapeValue result{indices->shape, {}};
  for (int64_t place = 0; place < NumElements(result.shape); ++place) {
    Index source = Unravel(place, result.shape);
    source[*axis] = AsInt(indices->elements[place]).value_or(-1);
    bool is_inside = true;
    for (size_t i = 0; i < source.size(); ++i) {
      is_inside &= 0 <= source[i] && source[i] < value->shape[i];
    }
    result.elements.push_back(is_inside ? value->elements[Ravel(source, value->shape)]
                                        : ObjectRef(nullptr));
  }
  return result;
}

Value EvaluateScatterElements(const ShapeValues& values, const CallView& call) {
  auto value = Operand(values, call, 0), indices = Operand(values, call, 1);
  auto updates = Operand(values, call, 2);
  const Object* attrs = call.attrs().get();
  if (!value || !indices || !updates) return std::nullopt;
  if (!scatter_elements_attrs.IsInstance(attrs) || updates->shape != indices->shape ||
      scatter_elements_attrs.reduction(attrs) != "update") {
    return std::nullopt;
  }
  const auto axis = AxisOf(scatter_elements_attrs.axis(attrs), value->shape.size());
  auto positions = indices->AsInts();
  if (!axis || !positions || indices->shape.size() != value->shape.size()) return std::nullopt;
  for (size_t place = 0; place < positions->size(); ++place) {
    Index target = Unravel(static_cast<int64_t>(place), indices->shape);
    target[*axis] = NormalizeAxis((*positions)[place], value->shape[*axis]);
    for (size_t i = 0; i < target.size(); ++i) {
      if (target[i] < 0 || target[i] >= value->shape[i]) return std::nullopt;
    }
    value->elements[Ravel(target, value->shape)] = updates->elements[place];
  }
  return value;
}

Value EvaluateConcat(const ShapeValues& values, const CallView& call) {
  if (call.args().empty()) return std::nullopt;
  const auto fields = values.FieldsOf(call.args()[0]);
  if (!fields || fields->empty()) return std::nullopt;
  std::vector<ShapeValue> parts;
  std::optional<size_t> axis;
  for (Value part : *fields) {
    if (!part) return std::nullopt;
    axis = AxisOrFlatten(concat_attrs, call, &*part);
    if (!axis) return std::nullopt;
    parts.push_back(*std::move(part));
  }
  Index shape = parts[0].shape;
  for (const ShapeValue& part : parts) {
    if (part.shape.size() != shape.size()) return std::nullopt;
  }
  shape[*axis] = 0;
  for (const ShapeValue& part : parts) {
    for (size_t i = 0; i < shape.size(); ++i) {
      if (i != *axis && part.shape[i] != shape[i]) return std::nullopt;
    }
    shape[*axis] += part.shape[*axis];
  }
  if (!IsSmall(shape)) return std::nullopt;
  ShapeValue result{shape, {}};
  for (int64_t place = 0; place < NumElements(shape); ++place) {
    Index source = Unravel(place, shape);
    size_t part = 0;
    while (source[*axis] >= parts[part].shape[*axis]) source[*axis] -= parts[part++].shape[*axis];
    result.elements.push_back(parts[part].elements[Ravel(source, parts[part].shape)]);
  }
  return result;
}

Value EvaluateStack(const ShapeValues& values, const CallView& call) {
  const Object* attrs = call.attrs().get();
  if (call.args().empty() || !stack_attrs.IsInstance(attrs)) return std::nullopt;
  const auto fields = values.FieldsOf(call.args()[0]);
  if (!fields || fields->empty() || !fields->front()) return std::nullopt;
  const Index part_shape = fields->front()->shape;
  const Any& attr = stack_attrs.axis(attrs);
  const auto axis =
      AxisOf(attr == nullptr ? 0 : attr.try_cast<int64_t>().value_or(0), part_shape.size() + 1);
  if (!axis) return std::nullopt;
  Index shape = part_shape;
  shape.insert(shape.begin() + static_cast<int64_t>(*axis), static_cast<int64_t>(fields->size()));
  if (!IsSmall(shape)) return std::nullopt;
  for (const Value& part : *fields) {
    if (!part || part->shape != part_shape) return std::nullopt;
  }
  ShapeValue result{shape, {}};
  for (int64_t place = 0; place < NumElements(shape); ++place) {
    Index source = Unravel(place, shape);
    const auto part = static_cast<size_t>(source[*axis]);
    source.erase(source.begin() + static_cast<int64_t>(*axis));
    result.elements.push_back((*fields)[part]->elements[Ravel(source, part_shape)]);
  }
  return result;
}

/*! \brief Every `step`-th element along an axis, `extent` in number, starting at `begin`. */
ShapeValue Slice(const ShapeValue& value, size_t axis, int64_t begin, int64_t extent,
                 int64_t step) {
  Index shape = value.shape;
  shape[axis] = extent;
  return Rearrange(value, shape, [&](Index index) {
    index[axis] = begin + index[axis] * step;
    return index;
  });
}

Value EvaluateStridedSlice(const ShapeValues& values, const CallView& call) {
  auto value = Operand(values, call, 0);
  if (!value || call.args().size() < 4) return std::nullopt;
  std::vector<std::vector<int64_t>> bounds;
  for (size_t i = 1; i < call.args().size(); ++i) {
    const auto fields = values.FieldsOf(call.args()[i]);
    if (!fields) return std::nullopt;
    bounds.emplace_back();
    for (const Value& field : *fields) {
      const auto literal = field ? AsInt(OnlyElement(*field)) : std::nullopt;
      if (!literal) return std::nullopt;
      bounds.back().push_back(*literal);
    }
    if (bounds.back().size() != bounds[0].size()) return std::nullopt;
  }
  for (size_t i = 0; i < bounds[0].size(); ++i) {
    const auto axis = AxisOf(bounds[0][i], value->shape.size());
    const int64_t step = bounds.size() > 3 ? bounds[3][i] : 1;
    if (!axis || step == 0 || step == std::numeric_limits<int64_t>::min()) return std::nullopt;
    const int64_t extent = value->shape[*axis];
    auto clamp = [&](int64_t bound) {
      const int64_t from_start = bound < 0 ? bound + extent : bound;
      return step < 0 ? std::clamp<int64_t>(from_start, -1, extent - 1)
                      : std::clamp<int64_t>(from_start, 0, extent);
    };
    const int64_t begin = clamp(bounds[1][i]), end = clamp(bounds[2][i]);
    const int64_t length = step < 0 ? begin - end : end - begin;
    const int64_t stride = std::abs(step);
    value = Slice(*value, *axis, begin, length <= 0 ? 0 : (length - 1) / stride + 1, step);
  }
  return value;
}

}  // namespace

Fields EvaluateSplit(const ShapeValues& values, const CallView& call) {
  auto value = Operand(values, call, 0);
  const Object* attrs = call.attrs().get();
  if (!value || !split_attrs.IsInstance(attrs)) return std::nullopt;
  const auto axis = AxisOf(split_attrs.axis(attrs), value->shape.size());
  if (!axis) return std::nullopt;
  const int64_t extent = value->shape[*axis];
  const ObjectRef& given = split_attrs.indices_or_sections(attrs);
  Index ends;
  if (auto sections = AsInt(given)) {
    if (*sections < 1 || *sections > ShapeValues::kMaxElements) return std::nullopt;
    const int64_t size = (extent + *sections - 1) / *sections;
    for (int64_t i = 1; i < *sections; ++i) ends.push_back(i * size);
  } else {
    auto indices = Any(given).try_cast<Array<ObjectRef>>();
    if (!indices) return std::nullopt;
    for (const ObjectRef& index : *indices) {
      auto literal = AsInt(index);
      if (!literal) return std::nullopt;
      ends.push_back(*literal);
    }
  }
  ends.push_back(extent);
  std::vector<Value> parts;
  int64_t begin = 0;
  for (int64_t given_end : ends) {
    const int64_t end = std::min(given_end, extent);
    if (end < begin) return std::nullopt;
    parts.emplace_back(Slice(*value, *axis, begin, end - begin, 1));
    begin = end;
  }
  return parts;
}

const std::unordered_map<std::string, ShapeEvaluator>& TensorEvaluators() {
  static const auto* evaluators = new std::unordered_map<std::string, ShapeEvaluator>{
      {"relax.shape_of", EvaluateShapeOf},
      {"relax.shape_to_tensor", EvaluateIdentity},
      {"relax.tensor_to_shape", EvaluateIdentity},
      {"relax.size", EvaluateSize},
      {"relax.full", EvaluateFull},
      {"relax.full_like", EvaluateFull},
      {"relax.ones", EvaluateConstant<1>},
      {"relax.ones_like", EvaluateConstant<1>},
      {"relax.zeros", EvaluateConstant<0>},
      {"relax.zeros_like", EvaluateConstant<0>},
      {"relax.arange", EvaluateArange},
      {"relax.reshape", EvaluateReshape},
      {"relax.expand_dims", EvaluateReshape},
      {"relax.squeeze", EvaluateReshape},
      {"relax.flatten", EvaluateReshape},
      {"relax.permute_dims", EvaluatePermuteDims},
      {"relax.flip", EvaluateFlip},
      {"relax.broadcast_to", EvaluateBroadcastTo},
      {"relax.tile", EvaluateTile},
      {"relax.repeat", EvaluateRepeat},
      {"relax.take", EvaluateTake},
      {"relax.gather_elements", EvaluateGatherElements},
      {"relax.scatter_elements", EvaluateScatterElements},
      {"relax.concat", EvaluateConcat},
      {"relax.stack", EvaluateStack},
      {"relax.strided_slice", EvaluateStridedSlice},
  };
  return *evaluators;
}

}  // namespace tvm_fixes
