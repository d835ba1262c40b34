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
 * \file src/relax/analysis/verifier/operators/reshape.cc
 * \brief Obligations of operators that change the shape of a tensor but not its elements.
 */
#include <algorithm>

#include "../../../op/manipulate_attrs.h"
#include "obligations.h"

namespace tvm_fixes {
namespace verifier {

namespace {

struct ExpandDimsAttrsNode : NodeLayout {
  ExpandDimsAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.ExpandDimsAttrs"}) {}
  /*! \brief The positions of the new axes in the result; they may be negative. */
  Field<Array<int64_t>> axis{this, {"axis"}};
};

ExpandDimsAttrsNode expand_dims_attrs;

/*! \brief The number of elements of an argument: a tensor, or the shape of one. */
Extent ElementCount(Obligations* obligations, size_t arg, const char* what) {
  const TypeInfo& info = obligations->type(obligations->call().args[arg]);
  const bool is_shaped =
      info.type_class == TypeClass::kTensor || info.type_class == TypeClass::kShape;
  DimTable& dims = obligations->dims();
  DimId product = is_shaped && info.has_dims ? dims.FromInt(1) : kUnknownDim;
  if (product != kUnknownDim) {
    for (DimId dim : info.dims) product = dims.Multiply(product, dim);
  }
  return {product, static_cast<int>(arg), -1, -1, what};
}

void Reshape(Obligations* obligations) {
  obligations->Equal(ElementCount(obligations, 1, "the product of the extents"),
                     ElementCount(obligations, 0, "the number of elements"));
}

void PermuteDims(Obligations* obligations) {
  const Array<int64_t>& axes = permute_dims_attrs.axes(obligations->attrs());
  const TypeInfo* data = obligations->Tensor(0);
  if (!axes.defined() || data == nullptr) return;
  if (static_cast<int32_t>(axes.size()) != data->ndim) {
    return obligations->Fail(-1, "axes: expected " + std::to_string(data->ndim) +
                                     " axes (the rank of argument 0), got " +
                                     std::to_string(axes.size()));
  }
  obligations->Axes(axes, data->ndim);
}

/*!
 * \brief Require that a symbolic squeezed extent is 1: TVM would silently truncate that axis to one
 *        element. TVM keeps an axis whose static extent is not 1, so it needs no check.
 */
void Squeeze(Obligations* obligations) {
  const Array<int64_t>& attr = squeeze_attrs.axis(obligations->attrs());
  const TypeInfo* data = obligations->Tensor(0);
  if (!attr.defined() || data == nullptr) return;
  const auto axes = obligations->Axes(attr, data->ndim, "axis");
  if (!axes) return;
  for (int axis : *axes) {
    const Extent extent = obligations->Dim(0, axis);
    if (obligations->dims().AsInt(extent.dim)) continue;
    obligations->Equal(extent, obligations->Attribute(1, ""));
  }
}

void ExpandDims(Obligations* obligations) {
  const Array<int64_t>& axes = expand_dims_attrs.axis(obligations->attrs());
  const TypeInfo* data = obligations->Tensor(0);
  if (data != nullptr) {
    obligations->Axes(axes, data->ndim + static_cast<int32_t>(axes.size()), "axis");
  }
}

TVM_FIXES_INIT_BLOCK() {
  RegisterObligations("op.reshape", Reshape, {"relax.reshape"});
  RegisterObligations("op.axes", PermuteDims, {"relax.permute_dims"});
  RegisterObligations("op.axes", Squeeze, {"relax.squeeze"});
  RegisterObligations("op.axes", ExpandDims, {"relax.expand_dims"});
}

}  // namespace

}  // namespace verifier
}  // namespace tvm_fixes
