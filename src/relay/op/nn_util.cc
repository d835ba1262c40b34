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
 * \file src/relay/op/nn_util.cc
 * \brief Layouts and windows, for the type relations of the nn operators.
 */
#include "nn_util.h"

#include <utility>

namespace tvm_fixes::relay {
namespace {

constexpr int64_t kMaxAttr = int64_t{1} << 31;

bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
char ToUpper(char c) { return IsLower(c) ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

std::string SpatialAxes(size_t count) { return std::string("DHW").substr(3 - count); }

Layout::Layout(const InferContext& context, const char* attr, const std::string& canonical)
    : Layout(context, attr, context.Str(attr), canonical) {}

Layout::Layout(const InferContext& context, const char* attr, const std::string& text,
               const std::string& canonical)
    : attr_(attr), canonical_(canonical) {
  std::string expected = "a layout of the axes " + canonical;
  std::string seen;
  int64_t factor = 0;
  for (char c : text) {
    if (c >= '0' && c <= '9') {
      factor = factor * 10 + (c - '0');
      if (factor > kMaxAttr) context.FailAttr(attr, expected);
      continue;
    }
    bool is_packed = IsLower(c);
    bool is_valid = (IsUpper(c) ? factor == 0 : is_packed && factor > 0) &&
                    canonical.find(ToUpper(c)) != std::string::npos;
    if (!is_valid) context.FailAttr(attr, expected);
    if (!is_packed && seen.find(c) != std::string::npos) context.FailAttr(attr, expected);
    if (!is_packed) seen += c;
    axes_.push_back({c, factor});
    factor = 0;
  }
  if (factor != 0 || seen.size() != canonical.size()) context.FailAttr(attr, expected);
}

int64_t Layout::Factor(char letter) const {
  int64_t product = 1;
  for (const Axis& axis : axes_) {
    if (axis.factor == 0 || ToUpper(axis.letter) != letter) continue;
    if (__builtin_mul_overflow(product, axis.factor, &product)) {
      ThrowRelayError("a packed axis of a layout is too long");
    }
  }
  return product;
}

Shape Layout::ToCanonical(const InferContext& context, int input, const Shape& shape) const {
  if (shape.size() != axes_.size()) {
    context.FailInput(input, "a tensor with " + std::to_string(axes_.size()) +
                                 " dimensions, as in '" + attr_ + "'");
  }
  Shape result;
  for (char letter : canonical_) {
    Dim dim = shape[IndexOf(letter)];
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (axes_[i].factor == 0 || ToUpper(axes_[i].letter) != letter) continue;
      if (!MayBeEqual(shape[i], axes_[i].factor)) {
        context.FailInput(input, std::string("the extents given by '") + attr_ + "'");
      }
      dim = MultiplyDim(dim, axes_[i].factor);
    }
    result.push_back(dim);
  }
  return result;
}

Shape Layout::FromCanonical(const InferContext& context, const Shape& shape) const {
  Shape result;
  for (const Axis& axis : axes_) {
    if (axis.factor != 0) {
      result.push_back(axis.factor);
      continue;
    }
    const Dim& dim = shape[canonical_.find(axis.letter)];
    int64_t factor = Factor(axis.letter);
    std::optional<int64_t> extent = StaticDim(dim);
    if (factor == 1) {
      result.push_back(dim);
    } else if (!extent) {
      result.push_back(AnyDim());
    } else {
      if (*extent % factor != 0) {
        context.FailAttr(attr_, "a layout whose packing divides the extent " +
                                    std::to_string(*extent) + " of axis " + axis.letter);
      }
      result.push_back(*extent / factor);
    }
  }
  return result;
}

size_t Layout::IndexOf(char letter) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].letter == letter) return i;
  }
  return axes_.size();
}

void Layout::CheckNotPacked(const InferContext& context, const std::string& letters) const {
  for (const Axis& axis : axes_) {
    if (axis.factor != 0 && letters.find(ToUpper(axis.letter)) != std::string::npos) {
      context.FailAttr(attr_,
                       std::string("a layout that does not pack axis ") + ToUpper(axis.letter));
    }
  }
}

Layout OutLayout(const InferContext& context, const std::string& canonical) {
  bool is_given = !context.Str("out_layout").empty();
  return Layout(context, is_given ? "out_layout" : "data_layout", canonical);
}

Windows::Windows(const InferContext& context, size_t num_axes)
    : strides(PositiveInts(context, "strides", num_axes)),
      dilation(PositiveInts(context, "dilation", num_axes)),
      padding(TotalPadding(context, num_axes)) {}

std::vector<int64_t> PositiveInts(const InferContext& context, const char* attr, size_t count) {
  std::vector<int64_t> values = context.Ints(attr, count);
  for (int64_t value : values) {
    if (value < 1 || value > kMaxAttr) context.FailAttr(attr, "positive ints");
  }
  return values;
}

std::vector<int64_t> TotalPadding(const InferContext& context, size_t num_axes) {
  std::vector<int64_t> values = context.Ints("padding");
  if (values.size() == 1) values.assign(2 * num_axes, values[0]);
  if (values.size() == num_axes) values.insert(values.end(), values.begin(), values.end());
  if (values.size() != 2 * num_axes) {
    std::string counts =
        num_axes == 1 ? "1 or 2"
                      : "1, " + std::to_string(num_axes) + " or " + std::to_string(2 * num_axes);
    context.FailAttr("padding", counts + " ints");
  }
  std::vector<int64_t> totals;
  for (size_t i = 0; i < num_axes; ++i) {
    for (int64_t value : {values[i], values[i + num_axes]}) {
      if (value < 0 || value > kMaxAttr) context.FailAttr("padding", "ints of at least 0");
    }
    totals.push_back(values[i] + values[i + num_axes]);
  }
  return totals;
}

Dim WindowCount(const InferContext& context, const Dim& extent, const Dim& kernel, int64_t dilation,
                int64_t padding, int64_t stride, bool ceil_mode) {
  std::optional<int64_t> length = StaticDim(extent);
  std::optional<int64_t> size = StaticDim(kernel);
  if (!length || !size) return AnyDim();
  int64_t span = *StaticDim(AddDim(MultiplyDim(*size - 1, dilation), 1));
  int64_t padded = *StaticDim(AddDim(*length, padding));
  if (*size < 1) context.Fail("a window has no elements");
  if (padded < span) {
    context.Fail("a window spans " + std::to_string(span) + " elements, but the padded data has " +
                 std::to_string(padded));
  }
  int64_t room = padded - span;
  return room / stride + (ceil_mode && room % stride != 0 ? 2 : 1);
}

void CheckNotRewritten(const InferContext& context) {
  if (!context.Str("auto_scheduler_rewritten_layout").empty()) {
    context.FailAttr("auto_scheduler_rewritten_layout", "weights that no schedule has rewritten");
  }
  if (context.Has("meta_schedule_original_shape") &&
      !context.Dims("meta_schedule_original_shape").empty()) {
    context.FailAttr("meta_schedule_original_shape", "weights that no schedule has rewritten");
  }
}

void ExpectInput(InferContext& context, int index, const Shape& shape, DLDataType dtype,
                 bool check_dtype) {
  if (!context.IsKnown(index)) {
    context.SetInput(index, TensorType(shape, dtype));
    return;
  }
  TensorType type = context.Tensor(index);
  bool fits = type->shape.size() == shape.size() && (!check_dtype || SameDType(type->dtype, dtype));
  for (size_t i = 0; fits && i < shape.size(); ++i) fits = MayBeEqual(type->shape[i], shape[i]);
  if (!fits) {
    context.FailInput(index, "Tensor[" + ShapeText(shape) + ", " +
                                 DTypeText(check_dtype ? dtype : type->dtype) + "]");
  }
}

}  // namespace tvm_fixes::relay
