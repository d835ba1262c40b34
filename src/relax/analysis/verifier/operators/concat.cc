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
 * \file src/relax/analysis/verifier/operators/concat.cc
 * \brief Obligations of concat, stack and split.
 */
#include <algorithm>

#include "../../../op/manipulate_attrs.h"
#include "obligations.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief The first field of argument 0 with a known rank, or -1 if there is none. */
int FirstTensor(Obligations* obligations) {
  const size_t count = obligations->NumFields(0);
  for (size_t field = 0; field < count; ++field) {
    if (obligations->Tensor(0, field) != nullptr) return static_cast<int>(field);
  }
  return -1;
}

/*! \brief Require that the fields of argument 0 agree in rank and in all axes but `joined`. */
void CheckAgree(Obligations* obligations, int first, std::optional<int> joined) {
  const int ndim = obligations->Tensor(0, first)->ndim;
  const int count = static_cast<int>(obligations->NumFields(0));
  for (int field = first + 1; field < count; ++field) {
    const TypeInfo* tensor = obligations->Tensor(0, field);
    if (tensor == nullptr) continue;
    if (tensor->ndim != ndim) {
      obligations->Fail(0,
                        "rank of field " + std::to_string(field) + " of argument 0: expected " +
                            std::to_string(ndim) + " (as field " + std::to_string(first) +
                            "), got " + std::to_string(tensor->ndim),
                        field);
      continue;
    }
    for (int axis = 0; axis < ndim; ++axis) {
      if (joined == axis) continue;
      obligations->Equal(obligations->Dim(0, field, axis), obligations->Dim(0, first, axis));
    }
  }
}

void Concat(Obligations* obligations) {
  const int first = FirstTensor(obligations);
  if (first < 0) return;
  const auto attr = concat_attrs.axis(obligations->attrs()).try_cast<int64_t>();
  const int ndim = obligations->Tensor(0, first)->ndim;
  const auto axis = obligations->Axis(attr.value_or(0), ndim);
  if (axis) CheckAgree(obligations, first, axis);
}

void Stack(Obligations* obligations) {
  const int first = FirstTensor(obligations);
  if (first < 0) return;
  const auto attr = stack_attrs.axis(obligations->attrs()).try_cast<int64_t>();
  if (!obligations->Axis(attr.value_or(0), obligations->Tensor(0, first)->ndim + 1)) return;
  CheckAgree(obligations, first, std::nullopt);
}

/*! \brief Require that the extent splits into `count` sections of the quotient, rounded up. */
void CheckSections(Obligations* obligations, const Extent& extent, int64_t count) {
  if (count < 1) {
    return obligations->Fail(
        -1, "indices_or_sections: expected at least 1, got " + std::to_string(count));
  }
  const auto size = obligations->dims().AsInt(extent.dim);
  if (!size || *size < 0) return;
  const int64_t length = *size / count + (*size % count != 0 ? 1 : 0);
  if (length == 0 || *size / length >= count - 1) return;
  obligations->Fail(0, extent.Text() + ": " + "cannot split " + std::to_string(*size) +
                           " elements into " + std::to_string(count) + " parts of " +
                           std::to_string(length));
}

void CheckSplitPoints(Obligations* obligations, const Extent& extent,
                      const Array<ObjectRef>& points) {
  int64_t last = 0;
  for (const ObjectRef& point : points) {
    const auto value = AsInt(point);
    if (!value) return;
    if (*value < last) {
      return obligations->Fail(-1, "indices_or_sections: expected at least " +
                                       std::to_string(last) + ", got " + std::to_string(*value));
    }
    last = *value;
  }
  obligations->AtLeast(extent, obligations->Attribute(last, "the last of indices_or_sections"));
}

void Split(Obligations* obligations) {
  const TypeInfo* data = obligations->Tensor(0);
  if (data == nullptr) return;
  const Object* attrs = obligations->attrs();
  const auto axis = obligations->Axis(split_attrs.axis(attrs), data->ndim);
  if (!axis) return;
  const Extent extent = obligations->Dim(0, *axis);
  const ObjectRef& parts = split_attrs.indices_or_sections(attrs);
  if (auto count = AsInt(parts)) return CheckSections(obligations, extent, *count);
  const Any value = parts;
  if (auto points = value.try_cast<Array<ObjectRef>>()) {
    CheckSplitPoints(obligations, extent, *points);
  }
}

TVM_FIXES_INIT_BLOCK() {
  RegisterObligations("op.concat", Concat, {"relax.concat"});
  RegisterObligations("op.concat", Stack, {"relax.stack"});
  RegisterObligations("op.concat", Split, {"relax.split"});
}

}  // namespace

}  // namespace verifier
}  // namespace tvm_fixes
