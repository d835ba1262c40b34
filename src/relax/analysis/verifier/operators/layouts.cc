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
 * \file src/relax/analysis/verifier/operators/layouts.cc
 * \brief Obligations of operators with a layout attribute.
 */
#include "layouts.h"

#include <algorithm>
#include <cctype>

#include "../../../op/pixel_shuffle_attrs.h"
#include "../../../op/pool_attrs.h"

namespace tvm_fixes {
namespace verifier {

std::optional<Layout> Layout::Parse(const std::string& name, const std::string& letters) {
  // Longer than any valid layout.
  constexpr size_t kMaxLength = 64;
  if (name.size() > kMaxLength) return std::nullopt;
  size_t num_digits = 0;
  for (char c : name) {
    num_digits = std::isdigit(static_cast<unsigned char>(c)) ? num_digits + 1 : 0;
    if (num_digits > 9) return std::nullopt;
  }
  if (num_digits != 0) return std::nullopt;
  Layout layout{name, AxesOf(name)};
  std::string seen;
  for (const LayoutAxis& axis : layout.axes) {
    const char capital = static_cast<char>(std::toupper(static_cast<unsigned char>(axis.letter)));
    if (letters.find(capital) == std::string::npos) return std::nullopt;
    const bool is_block = axis.letter != capital;
    if (is_block != (axis.factor > 0)) return std::nullopt;
    if (!is_block) seen += capital;
  }
  std::string wanted = letters;
  std::sort(wanted.begin(), wanted.end());
  std::sort(seen.begin(), seen.end());
  if (seen != wanted) return std::nullopt;
  return layout;
}

bool HasRankOf(Obligations* obligations, size_t arg, const Layout& layout) {
  return obligations->HasRank(arg, static_cast<int32_t>(layout.axes.size()),
                              (" (" + layout.name + ")").c_str());
}

Extent ExtentOf(Obligations* obligations, size_t arg, const Layout& layout, char axis,
                const char* what) {
  Extent extent;
  for (size_t i = 0; i < layout.axes.size(); ++i) {
    if (layout.axes[i].letter == axis) extent = obligations->Dim(arg, static_cast<int>(i));
  }
  for (const LayoutAxis& part : layout.axes) {
    if (part.letter != std::tolower(axis)) continue;
    extent.dim = obligations->dims().Multiply(extent.dim, obligations->dims().FromInt(part.factor));
    extent.axis = -1;
    extent.what = what;
  }
  return extent;
}

namespace {

/*! \brief The layout attribute of an operator. */
std::optional<Layout> LayoutOfAttrs(const Object* attrs) {
  static const char* const letters[] = {"NCW", "NCHW", "NCDHW"};
  for (size_t i = 0; i < std::size(pool_attrs); ++i) {
    if (!pool_attrs[i].IsInstance(attrs)) continue;
    return Layout::Parse(pool_attrs[i].layout(attrs), letters[i % 3]);
  }
  if (resize2d_attrs.IsInstance(attrs)) {
    return Layout::Parse(resize2d_attrs.layout(attrs), letters[1]);
  }
  if (resize3d_attrs.IsInstance(attrs)) {
    return Layout::Parse(resize3d_attrs.layout(attrs), letters[2]);
  }
  return std::nullopt;
}

void CheckLayout(Obligations* obligations) {
  const auto layout = LayoutOfAttrs(obligations->attrs());
  if (layout) HasRankOf(obligations, 0, *layout);
}

/*! \brief (…, c r r, h, w) to (…, c, h r, w r). */
void PixelShuffle(Obligations* obligations) {
  const int64_t factor = pixel_shuffle_attrs.upscale_factor(obligations->attrs());
  if (factor < 1) {
    return obligations->Fail(-1,
                             "upscale_factor: expected at least 1, got " + std::to_string(factor));
  }
  const TypeInfo* data = obligations->Tensor(0);
  if (data == nullptr) return;
  if (data->ndim < 3) {
    return obligations->Fail(
        0, "rank of argument 0: expected at least 3, got " + std::to_string(data->ndim));
  }
  if (data->shape_var != nullptr && !obligations->HasExtents(0)) return;
  const Extent channels = obligations->Dim(0, data->ndim - 3);
  // TVM's inference aborts the process if the number of channels is symbolic.
  if (data->has_dims && !obligations->dims().AsInt(channels.dim)) {
    return obligations->Fail(0, channels.Text() + ": expected a static extent, got " +
                                    obligations->dims().Text(channels.dim));
  }
  obligations->MultipleOf(channels,
                          obligations->Attribute(factor * factor, "the square of upscale_factor"));
}

TVM_FIXES_INIT_BLOCK() {
  RegisterObligations(
      "op.layout", CheckLayout,
      {"relax.nn.max_pool1d", "relax.nn.max_pool2d", "relax.nn.max_pool3d", "relax.nn.avg_pool1d",
       "relax.nn.avg_pool2d", "relax.nn.avg_pool3d", "relax.nn.adaptive_avg_pool1d",
       "relax.nn.adaptive_avg_pool2d", "relax.nn.adaptive_avg_pool3d", "relax.image.resize2d",
       "relax.image.resize3d"});
  RegisterObligations("op.layout", PixelShuffle, {"relax.nn.pixel_shuffle"});
}

}  // namespace

}  // namespace verifier
}  // namespace tvm_fixes
