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
 * \file src/relax/analysis/verifier/operators/index.cc
 * \brief Obligations of operators that take indices, which TVM's kernels do not check.
 *
 * With the fix index-legalize, -1 is the last element for all of them. Without it, the rules follow
 * TVM 0.27: scatter_elements and index_put count from the end, the others read before the first
 * element.
 */
#include <algorithm>

#include "../../../../ffi/registration.h"
#include "../../../op/axis_attrs.h"
#include "../../../op/index_attrs.h"
#include "obligations.h"

namespace tvm_fixes {
namespace verifier {

namespace {

struct GatherNDAttrsNode : NodeLayout {
  GatherNDAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.GatherNDAttrs"}) {}
  Field<int64_t> batch_dims{this, {"batch_dims"}};
};

struct OneHotAttrsNode : AxisAttrsNode {
  OneHotAttrsNode() : AxisAttrsNode("relax.attrs.OneHotAttrs") {}
  Field<int32_t> depth{this, {"depth"}};
};

GatherNDAttrsNode gather_nd_attrs;
OneHotAttrsNode one_hot_attrs;

/*! \brief Whether the kernels of all operators count a negative index from the end. */
bool AllCountFromEnd() { return IsEnabled("index-legalize"); }

void Take(Obligations* obligations) {
  const TypeInfo* data = obligations->Tensor(0);
  if (data == nullptr) return;
  const Object* attrs = obligations->attrs();
  const auto attr = take_attrs.axis(attrs).try_cast<int64_t>();
  if (!attr && data->ndim != 1) {
    obligations->HasRank(0, 1, " (no axis is given)");
    return;
  }
  const auto axis = obligations->Axis(attr.value_or(0), data->ndim);
  // The other modes clip the index, wrap it, or return NaN.
  if (!axis || take_attrs.mode(attrs) != "fast") return;
  obligations->Indices(obligations->Dim(0, *axis), 1, -1, AllCountFromEnd());
}

/*! \brief Require that indices are not longer than the data, except along the indexed axis. */
void CheckElements(Obligations* obligations, int64_t attr, bool counts_from_end) {
  const TypeInfo* data = obligations->Tensor(0);
  const TypeInfo* indices = obligations->Tensor(1);
  if (data == nullptr || indices == nullptr) return;
  const auto axis = obligations->Axis(attr, data->ndim);
  if (!axis || !obligations->HasRank(1, data->ndim, " (the rank of argument 0)")) return;
  for (int i = 0; i < data->ndim; ++i) {
    if (i != *axis) obligations->AtLeast(obligations->Dim(0, i), obligations->Dim(1, i));
  }
  obligations->Indices(obligations->Dim(0, *axis), 1, -1, counts_from_end);
}

void GatherElements(Obligations* obligations) {
  CheckElements(obligations, gather_elements_attrs.axis(obligations->attrs()), AllCountFromEnd());
}

void ScatterElements(Obligations* obligations) {
  CheckElements(obligations, scatter_elements_attrs.axis(obligations->attrs()), true);
  const TypeInfo* indices = obligations->Tensor(1);
  if (indices == nullptr || obligations->Tensor(2) == nullptr) return;
  if (!obligations->HasRank(2, indices->ndim, " (the rank of argument 1)")) return;
  for (int axis = 0; axis < indices->ndim; ++axis) {
    obligations->Equal(obligations->Dim(2, axis), obligations->Dim(1, axis));
  }
}

/*!
 * \brief The last axis of argument 1 holds the coordinates of an element, or a slice, of argument
 * 0.
 * \return The number of coordinates, or std::nullopt if it is unknown or wrong.
 */
std::optional<int> CheckCoordinates(Obligations* obligations, int batch_dims) {
  const int data = obligations->Tensor(0)->ndim;
  const int indices = obligations->Tensor(1)->ndim;
  if (indices == 0) {
    obligations->Fail(1, "rank of argument 1: expected at least 1, got 0");
    return std::nullopt;
  }
  const Extent coordinates = obligations->Dim(1, indices - 1);
  const auto count = obligations->dims().AsInt(coordinates.dim);
  if (!count) return std::nullopt;
  if (*count > data - batch_dims) {
    obligations->Fail(1, coordinates.Text() + ": expected at most " +
                             std::to_string(data - batch_dims) + " (axes of argument 0), got " +
                             std::to_string(*count));
    return std::nullopt;
  }
  // If all indexed axes have the same extent, one range check covers all coordinates.
  bool are_alike = *count > 0;
  for (int i = 1; i < *count; ++i) {
    are_alike &= obligations->Dim(0, batch_dims + i).dim == obligations->Dim(0, batch_dims).dim;
  }
  if (are_alike) {
    obligations->Indices(obligations->Dim(0, batch_dims), 1, -1, AllCountFromEnd());
  }
  return static_cast<int>(*count);
}

void GatherND(Obligations* obligations) {
  const TypeInfo* data = obligations->Tensor(0);
  const TypeInfo* indices = obligations->Tensor(1);
  if (data == nullptr || indices == nullptr) return;
  const int64_t batch_dims = gather_nd_attrs.batch_dims(obligations->attrs());
  const int most = std::min(data->ndim, std::max(indices->ndim - 1, 0));
  if (batch_dims < 0 || batch_dims > most) {
    return obligations->Fail(-1, "batch_dims: expected 0 to " + std::to_string(most) + ", got " +
                                     std::to_string(batch_dims));
  }
  for (int axis = 0; axis < batch_dims; ++axis) {
    obligations->Equal(obligations->Dim(1, axis), obligations->Dim(0, axis));
  }
  CheckCoordinates(obligations, static_cast<int>(batch_dims));
}

void ScatterND(Obligations* obligations) {
  const TypeInfo* data = obligations->Tensor(0);
  const TypeInfo* indices = obligations->Tensor(1);
  if (data == nullptr || indices == nullptr) return;
  const auto count = CheckCoordinates(obligations, 0);
  if (!count) return;
  // Updates have the outer shape of the indices, followed by the data axes that are not indexed.
  const int outer = indices->ndim - 1;
  const int ndim = outer + data->ndim - *count;
  if (!obligations->HasRank(2, ndim) || obligations->Tensor(2) == nullptr) return;
  for (int axis = 0; axis < ndim; ++axis) {
    obligations->Equal(obligations->Dim(2, axis), axis < outer
                                                      ? obligations->Dim(1, axis)
                                                      : obligations->Dim(0, axis - outer + *count));
  }
}

std::vector<Extent> DimsOfField(Obligations* obligations, size_t arg, size_t field) {
  std::vector<Extent> dims;
  const int ndim = obligations->Tensor(arg, field)->ndim;
  for (int axis = 0; axis < ndim; ++axis) {
    dims.push_back(obligations->Dim(arg, static_cast<int>(field), axis));
  }
  return dims;
}

/*! \brief Require a tensor of indices for each of the first axes; their shapes must broadcast. */
void CheckIndexTuple(Obligations* obligations, bool counts_from_end) {
  const TypeInfo* data = obligations->Tensor(0);
  if (data == nullptr) return;
  const size_t count = obligations->NumFields(1);
  if (count > static_cast<size_t>(data->ndim)) {
    return obligations->Fail(1, "argument 1: expected at most " + Count(data->ndim, "field") +
                                    " (axes of argument 0), got " + std::to_string(count));
  }
  std::vector<Extent> all;
  for (size_t field = 0; field < count; ++field) {
    if (obligations->Tensor(1, field) == nullptr) continue;
    all = obligations->Broadcast(all, DimsOfField(obligations, 1, field));
    const DLDataType dtype = obligations->Tensor(1, field)->dtype;
    if (dtype.code != kDLInt && dtype.code != kDLUInt) continue;
    obligations->Indices(obligations->Dim(0, static_cast<int>(field)), 1, static_cast<int>(field),
                         counts_from_end);
  }
}

void IndexTensor(Obligations* obligations) { CheckIndexTuple(obligations, AllCountFromEnd()); }

void IndexPut(Obligations* obligations) { CheckIndexTuple(obligations, true); }

void OneHot(Obligations* obligations) {
  const Object* attrs = obligations->attrs();
  const int64_t depth = one_hot_attrs.depth(attrs);
  if (depth < 1) {
    obligations->Fail(-1, "depth: expected at least 1, got " + std::to_string(depth));
  }
  const TypeInfo* indices = obligations->Tensor(0);
  if (indices != nullptr) obligations->Axis(one_hot_attrs.axis(attrs), indices->ndim + 1);
}

TVM_FIXES_INIT_BLOCK() {
  RegisterObligations("op.index", Take, {"relax.take"});
  RegisterObligations("op.index", GatherElements, {"relax.gather_elements"});
  RegisterObligations("op.index", ScatterElements, {"relax.scatter_elements"});
  RegisterObligations("op.index", GatherND, {"relax.gather_nd"});
  RegisterObligations("op.index", ScatterND, {"relax.scatter_nd"});
  RegisterObligations("op.index", IndexTensor, {"relax.index_tensor"});
  RegisterObligations("op.index", IndexPut, {"relax.index_put"});
  RegisterObligations("op.index", OneHot, {"relax.one_hot"});
}

}  // namespace

}  // namespace verifier
}  // namespace tvm_fixes
