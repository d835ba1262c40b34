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
 * \file src/relax/analysis/shape_resolution.cc
 * \brief Resolves the shape of a single reshape, slice or squeeze from compile-time values.
 */
#include "shape_resolution.h"

#include <algorithm>
#include <vector>

#include "../../ffi/registration.h"
#include "../ir/build.h"
#include "../op/index_attrs.h"
#include "../op/manipulate_attrs.h"
namespace tvm_fixes {

namespace {

using Dims = std::optional<Array<ObjectRef>>;

/*! \brief A bound greater than any extent. Exporters use larger ones for "to the end". */
constexpr int64_t kMaxBound = Scalars::kMaxLiteral;

ObjectRef MakeOpCall(const char* name, const Array<ObjectRef>& args, const ObjectRef& attrs,
                     const CallView& like) {
  static const GlobalFunction get_op("ir.GetOp");
  return MakeCall(get_op(name).cast<ObjectRef>(), args, attrs, {}, nodes.expr.span(like.get()));
}

/*! \brief A slice along one axis. */
struct AxisSlice {
  size_t axis;
  /*! \brief The bound as given, or null if unknown. */
  ObjectRef begin;
  ObjectRef end;
  int64_t step;
  /*! \brief The extent of the operand. */
  ObjectRef extent;
  /*! \brief The number of elements. */
  ObjectRef length;
};

/*!
 * \brief Normalize a bound and clamp it to its axis: to [0, extent], or to [-1, extent - 1] for
 *        negative steps. Null if min and max over the symbols cannot express the result.
 */
ObjectRef Clamp(const Scalars& scalars, const ObjectRef& bound, const ObjectRef& extent,
                bool is_backwards) {
  if (!bound.defined()) return bound;
  const ObjectRef least = Scalars::Int(is_backwards ? -1 : 0);
  const ObjectRef greatest = is_backwards ? scalars.Subtract(extent, Scalars::Int(1)) : extent;
  if (auto literal = AsInt(bound)) {
    if (*literal >= kMaxBound) return greatest;
    if (*literal <= -kMaxBound) return least;
  }
  ObjectRef from_start = bound;
  if (scalars.ProvesNegative(bound)) {
    from_start = scalars.Add(bound, extent);
  } else if (!scalars.ProvesAtLeast(bound, 0)) {
    // If the bound can be negative only when it also reaches past the start, it then means the
    // start.
    const ObjectRef from_end = scalars.Add(bound, extent);
    const ObjectRef is_negative = scalars.Less(bound, Scalars::Int(0));
    if (!scalars.ProvesUnder(is_negative, scalars.LessEqual(from_end, least))) {
      return ObjectRef(nullptr);
    }
  }
  return scalars.Minimum(scalars.Maximum(from_start, least), greatest);
}

/*! \brief Fill in the length, and the bounds of a forward slice; false if they are unknown. */
bool Resolve(const Scalars& scalars, AxisSlice* slice) {
  const bool is_backwards = slice->step < 0;
  const ObjectRef begin = Clamp(scalars, slice->begin, slice->extent, is_backwards);
  const ObjectRef end = Clamp(scalars, slice->end, slice->extent, is_backwards);
  const ObjectRef zero = Scalars::Int(0);
  const ObjectRef span = is_backwards ? scalars.Subtract(begin, end) : scalars.Subtract(end, begin);
  const ObjectRef distance = scalars.Maximum(span, zero);
  const int64_t stride = std::abs(slice->step);
  slice->length =
      scalars.FloorDivide(scalars.Add(distance, Scalars::Int(stride - 1)), Scalars::Int(stride));
  if (!slice->length.defined()) return false;
  // TVM computes the length of a backward slice as if its bounds never crossed.
  if (is_backwards && !AsInt(slice->length) && !scalars.ProvesAtLeast(span, 0)) return false;
  if (AsInt(slice->length) == 0) {
    slice->begin = slice->end = zero;
  } else if (!is_backwards) {
    slice->begin = begin;
    slice->end = scalars.Maximum(begin, end);
  }
  return slice->end.defined();
}

/*! \brief The slices of a call by axis, with bounds as given. */
std::optional<std::vector<AxisSlice>> SlicesOf(const ShapeValues& values, const CallView& call) {
  const bool is_dynamic = call.IsOp("relax.dynamic_strided_slice");
  if (!is_dynamic && !call.IsOp("relax.strided_slice")) return std::nullopt;
  const size_t first = is_dynamic ? 0 : 1;
  if (call.args().size() < first + 3) return std::nullopt;
  const Dims shape = ShapeOf(call.args()[0]);
  if (!shape) return std::nullopt;
  std::vector<std::vector<ObjectRef>> operands;
  for (size_t i = 1; i < call.args().size(); ++i) {
    operands.emplace_back();
    if (is_dynamic) {
      auto value = values.ValueOf(call.args()[i]);
      if (!value || value->shape.size() != 1) return std::nullopt;
      operands.back() = value->elements;
    } else {
      auto fields = values.FieldsOf(call.args()[i]);
      if (!fields) return std::nullopt;
      for (const auto& field : *fields) {
        if (!field || field->elements.size() != 1) return std::nullopt;
        operands.back().push_back(field->elements[0]);
      }
    }
    if (operands.back().size() != operands.front().size()) return std::nullopt;
  }
  if (is_dynamic && operands.front().size() != shape->size()) return std::nullopt;
  std::vector<AxisSlice> slices;
  for (size_t i = 0; i < operands.front().size(); ++i) {
    const auto given = is_dynamic ? static_cast<int64_t>(i) : AsInt(operands[0][i]);
    const auto step = operands.size() > first + 2 ? AsInt(operands[first + 2][i]) : int64_t{1};
    if (!given || !step || *step == 0 || *step >= kMaxBound || *step <= -kMaxBound)
      return std::nullopt;
    const int64_t axis = NormalizeAxis(*given, shape->size());
    if (axis < 0 || axis >= static_cast<int64_t>(shape->size())) return std::nullopt;
    slices.push_back({static_cast<size_t>(axis), operands[first][i], operands[first + 1][i], *step,
                      (*shape)[axis], ObjectRef(nullptr)});
  }
  return slices;
}

/*! \brief Whether assume_inbound is proven false. */
bool IsProvablyOutOfBounds(const Scalars& scalars, const std::vector<AxisSlice>& slices) {
  return std::any_of(slices.begin(), slices.end(), [&](const AxisSlice& slice) {
    auto is_outside = [&](const ObjectRef& bound) {
      return scalars.ProvesNegative(bound) || scalars.Proves(scalars.Less(slice.extent, bound));
    };
    return slice.step > 0 && (is_outside(slice.begin) || is_outside(slice.end));
  });
}

/*! \brief The slices with their lengths, or std::nullopt if the call must stay unchanged. */
std::optional<std::vector<AxisSlice>> ResolveSlices(const ShapeValues& values,
                                                    const CallView& call) {
  auto slices = SlicesOf(values, call);
  if (!slices) return std::nullopt;
  const Scalars& scalars = values.scalars();
  const Object* attrs = call.attrs().get();
  if (strided_slice_attrs.IsInstance(attrs) && strided_slice_attrs.assume_inbound(attrs) &&
      !IsProvablyOutOfBounds(scalars, *slices)) {
    return std::nullopt;
  }
  const Dims inferred = ShapeOf(call.ref());
  bool is_right = inferred.has_value();
  for (AxisSlice& slice : *slices) {
    if (!Resolve(scalars, &slice)) return std::nullopt;
    if (inferred && scalars.ProvesEqual((*inferred)[slice.axis], slice.length)) continue;
    // Rewriting the bounds of a backward slice gains nothing.
    if (inferred && slice.step < 0 && !AsInt(slice.length)) return std::nullopt;
    is_right = false;
  }
  return is_right ? std::nullopt : slices;
}

bool IsLiteral(const Array<ObjectRef>& exprs) {
  return std::all_of(exprs.begin(), exprs.end(),
                     [](const ObjectRef& expr) { return AsInt(expr).has_value(); });
}

}  // namespace

Dims DimsOfType(const ObjectRef& type) {
  if (!nodes.shape_type.IsInstance(type.get())) return ShapeOfType(type);
  auto dims = Any(nodes.shape_type.values(type.get())).try_cast<Array<ObjectRef>>();
  return dims && dims->defined() ? Dims(*dims) : std::nullopt;
}

Dims ResolveShape(const ShapeValues& values, const CallView& call) {
  static constexpr const char* kBuiltin = "vm.builtin.tensor_to_shape";
  const Array<ObjectRef>& args = call.args();
  std::optional<ShapeValue> value;
  if (call.IsOp("relax.shape_of") || call.IsOp("relax.tensor_to_shape")) {
    value = values.ValueOf(call.ref());
  } else if (call.IsOp("relax.call_pure_packed") && args.size() == 2 &&
             nodes.extern_func.IsInstance(args[0].get()) &&
             nodes.extern_func.global_symbol(args[0].get()) == kBuiltin) {
    value = values.ValueOf(args[1]);
  }
  if (!value || value->shape.size() != 1 || !value->IsKnown()) return std::nullopt;
  for (const ObjectRef& dim : value->elements) {
    // Not an extent: only the reader of the shape knows its meaning.
    if (values.scalars().ProvesNegative(dim)) return std::nullopt;
  }
  return Array<ObjectRef>(value->elements.begin(), value->elements.end());
}

std::optional<ObjectRef> ResolveReshape(const ShapeValues& values, const CallView& call) {
  static const GlobalFunction reshape("relax.op.reshape");
  if (!call.IsOp("relax.reshape") || call.args().size() != 2) return std::nullopt;
  if (!VarView::Is(call.args()[1].get()) || !ShapeOf(call.args()[0])) return std::nullopt;
  const auto shape = values.ValueOf(call.args()[1]);
  if (!shape || shape->shape.size() != 1 || !shape->IsKnown()) return std::nullopt;
  int num_open = 0;
  for (const ObjectRef& dim : shape->elements) {
    // In relax.reshape, a literal 0 means the extent of the operand.
    if (AsInt(dim) == 0) return std::nullopt;
    if (!values.scalars().ProvesNegative(dim)) continue;
    if (AsInt(dim) != -1) return std::nullopt;
    ++num_open;
  }
  if (num_open != 1) return std::nullopt;
  const Array<ObjectRef> dims(shape->elements.begin(), shape->elements.end());
  return reshape(call.args()[0], dims).cast<ObjectRef>();
}

std::optional<ObjectRef> ResolveSlice(const ShapeValues& values, const CallView& call) {
  auto slices = ResolveSlices(values, call);
  if (!slices) return std::nullopt;
  Array<ObjectRef> axes, begins, ends, steps;
  bool is_forwards = true;
  for (const AxisSlice& slice : *slices) {
    axes.push_back(Scalars::Int(static_cast<int64_t>(slice.axis)));
    begins.push_back(slice.begin);
    ends.push_back(slice.end);
    steps.push_back(Scalars::Int(slice.step));
    is_forwards &= slice.step > 0;
  }
  // With literal bounds, TVM computes the same result, and only its clamping can express -1.
  const bool is_static =
      IsLiteral(begins) && IsLiteral(ends) && IsLiteral(*ShapeOf(call.args()[0]));
  const ObjectRef attrs =
      MakeByReflection(strided_slice_attrs, {{"assume_inbound", is_forwards && !is_static}});
  return MakeOpCall(
      "relax.strided_slice",
      {call.args()[0], MakeTuple(axes), MakeTuple(begins), MakeTuple(ends), MakeTuple(steps)},
      attrs, call);
}

Dims ShapeOfSqueezed(const Scalars& scalars, const ObjectRef& data, const ObjectRef& attrs) {
  const Dims shape = ShapeOf(data);
  if (!shape || !squeeze_attrs.IsInstance(attrs.get())) return std::nullopt;
  const Array<int64_t>& axes = squeeze_attrs.axis(attrs.get());
  if (!axes.defined()) return std::nullopt;
  std::vector<ObjectRef> dims(shape->begin(), shape->end());
  bool is_proved = true;
  for (int64_t given : axes) {
    const int64_t axis = NormalizeAxis(given, dims.size());
    if (axis < 0 || axis >= static_cast<int64_t>(dims.size())) return std::nullopt;
    // As in PyTorch, a literal extent other than 1 is kept.
    if (AsInt(dims[axis])) continue;
    is_proved &= scalars.ProvesEqual(dims[axis], Scalars::Int(1));
    dims[axis] = Scalars::Int(1);
  }
  if (is_proved) return std::nullopt;
  return Array<ObjectRef>(dims.begin(), dims.end());
}

}  // namespace tvm_fixes
