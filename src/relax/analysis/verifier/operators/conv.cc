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
 * \file src/relax/analysis/verifier/operators/conv.cc
 * \brief Obligations of convolutions: channels, groups and kernel size.
 */
#include <algorithm>
#include <cctype>

#include "../../../op/conv_attrs.h"
#include "layouts.h"

namespace tvm_fixes {
namespace verifier {

namespace {

struct Conv {
  const ConvAttrsNode* layout;
  size_t num_spatial;
  bool is_transposed;
};

/*! \brief The layout of a convolution's attributes, or std::nullopt for other attributes. */
std::optional<Conv> ConvOf(const Object* attrs) {
  for (size_t i = 0; i < 3; ++i) {
    if (conv_attrs[i].IsInstance(attrs)) return Conv{&conv_attrs[i], i + 1, false};
    if (conv_transpose_attrs[i].IsInstance(attrs)) {
      return Conv{&conv_transpose_attrs[i], i + 1, true};
    }
  }
  return std::nullopt;
}

bool HaveLength(Obligations* obligations, const Array<int64_t>& values, size_t size,
                const char* name) {
  if (values.size() == size) return true;
  obligations->Fail(-1, std::string(name) + ": expected " + std::to_string(size) + " values, got " +
                            std::to_string(values.size()));
  return false;
}

/*! \brief Require a value of each attribute for every spatial axis. */
bool HaveSpatialAttrs(Obligations* obligations, const Conv& conv) {
  const Object* attrs = obligations->attrs();
  bool are_sound =
      HaveLength(obligations, conv.layout->strides(attrs), conv.num_spatial, "strides");
  are_sound &=
      HaveLength(obligations, conv.layout->padding(attrs), 2 * conv.num_spatial, "padding");
  are_sound &= HaveLength(obligations, conv.layout->dilation(attrs), conv.num_spatial, "dilation");
  if (!are_sound) return false;
  for (size_t i = 0; i < conv.num_spatial; ++i) {
    const std::pair<const char*, int64_t> factors[] = {
        {"strides", conv.layout->strides(attrs)[i]}, {"dilation", conv.layout->dilation(attrs)[i]}};
    for (const auto& [name, value] : factors) {
      if (value > 0) continue;
      obligations->Fail(-1,
                        std::string(name) + ": expected at least 1, got " + std::to_string(value));
      are_sound = false;
    }
  }
  return are_sound;
}

/*! \brief The padded data must be at least as large as the dilated kernel. */
void CheckKernelFits(Obligations* obligations, const Conv& conv, const Layout& data,
                     const Layout& kernel) {
  const Object* attrs = obligations->attrs();
  static constexpr char kSpatial[] = "DHW";
  for (size_t i = 0; i < conv.num_spatial; ++i) {
    const char axis = kSpatial[3 - conv.num_spatial + i];
    const DimId size = ExtentOf(obligations, 0, data, axis, "").dim;
    const DimId reach = ExtentOf(obligations, 1, kernel, axis, "").dim;
    const auto& padding = conv.layout->padding(attrs);
    DimTable& dims = obligations->dims();
    const DimId padded = dims.Add(
        size, dims.Add(dims.FromInt(padding[i]), dims.FromInt(padding[i + conv.num_spatial])));
    const DimId steps = dims.Subtract(reach, dims.FromInt(1));
    const DimId needed = dims.Add(
        dims.Multiply(dims.FromInt(conv.layout->dilation(attrs)[i]), steps), dims.FromInt(1));
    // Data of unknown size is accepted.
    if (dims.AtLeast(dims.Subtract(padded, needed), 0) != Relation::kDisproved) continue;
    obligations->Fail(0, std::string("axis ") + axis + " of argument 0, with its padding: " +
                             "expected at least " + dims.Text(needed) +
                             " (the extent of the dilated kernel), got " + dims.Text(padded));
  }
}

void CheckConv(Obligations* obligations) {
  const auto conv = ConvOf(obligations->attrs());
  if (!conv) return;
  const Object* attrs = obligations->attrs();
  const std::string spatial = std::string("DHW").substr(3 - conv->num_spatial);
  const auto data = Layout::Parse(conv->layout->data_layout(attrs), "NC" + spatial);
  const auto kernel = Layout::Parse(conv->layout->kernel_layout(attrs), "OI" + spatial);
  // TVM itself rejects an invalid layout.
  if (!data || !kernel) return;
  const bool has_ranks = HasRankOf(obligations, 0, *data) & HasRankOf(obligations, 1, *kernel);
  const bool has_attrs = HaveSpatialAttrs(obligations, *conv);
  const int64_t groups = conv->layout->groups(attrs);
  if (groups < 1) {
    return obligations->Fail(-1, "groups: expected at least 1, got " + std::to_string(groups));
  }
  if (!has_ranks || !has_attrs) return;
  if (obligations->Tensor(0) == nullptr || obligations->Tensor(1) == nullptr) return;
  const Extent channels = ExtentOf(obligations, 0, *data, 'C', "the channels");
  Extent inputs = ExtentOf(obligations, 1, *kernel, 'I', "the input channels");
  const Extent outputs = ExtentOf(obligations, 1, *kernel, 'O', "the output channels");
  const Extent group_count = obligations->Attribute(groups, "groups");
  if (conv->is_transposed) {
    obligations->Equal(channels, inputs);
    if (groups > 1) obligations->MultipleOf(inputs, group_count);
    return;
  }
  if (groups > 1) {
    inputs.dim = obligations->dims().Multiply(inputs.dim, group_count.dim);
    inputs.axis = -1;
    inputs.what = "groups times the input channels";
  }
  obligations->Equal(channels, inputs);
  if (groups > 1) obligations->MultipleOf(outputs, group_count);
  CheckKernelFits(obligations, *conv, *data, *kernel);
}

TVM_FIXES_INIT_BLOCK() {
  RegisterObligations(
      "op.conv", CheckConv,
      {"relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d", "relax.nn.conv1d_transpose",
       "relax.nn.conv2d_transpose", "relax.nn.conv3d_transpose"});
}

}  // namespace

}  // namespace verifier
}  // namespace tvm_fixes
