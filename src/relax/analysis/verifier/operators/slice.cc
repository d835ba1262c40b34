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
 * \file src/relax/analysis/verifier/operators/slice.cc
 * \brief Obligations of slices, whose bounds are arguments.
 */
#include <algorithm>

#include "../../../op/index_attrs.h"
#include "obligations.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief The fields of a literal tuple argument; null for any other argument. */
const Array<ObjectRef>* FieldsOf(Obligations* obligations, size_t arg) {
  if (arg >= obligations->call().args.size()) return nullptr;
  auto tuple = As<TupleView>(obligations->call().arg(arg));
  return tuple && tuple->fields().defined() ? &tuple->fields() : nullptr;
}

/*! \brief Require that begins and ends are within the axis, as assume_inbound promises. */
void CheckInbound(Obligations* obligations, const Array<ObjectRef>& bounds, size_t arg,
                  const std::vector<int>& axes) {
  const Extent zero = obligations->Attribute(0, "since assume_inbound is set");
  for (size_t i = 0; i < axes.size(); ++i) {
    const Extent bound = {obligations->dims().Intern(bounds[i]), static_cast<int>(arg),
                          static_cast<int>(i), -1, "the bound"};
    obligations->AtLeast(bound, zero);
    obligations->AtLeast(obligations->Dim(0, axes[i]), bound);
  }
}

/*! \brief Axes, begins, ends and optional strides are tuples with one scalar per axis. */
void StridedSlice(Obligations* obligations) {
  const TypeInfo* data = obligations->Tensor(0);
  const Array<ObjectRef>* fields = FieldsOf(obligations, 1);
  if (data == nullptr || fields == nullptr) return;
  const std::string count = Count(fields->size(), "field");
  for (size_t arg = 2; arg < obligations->call().args.size(); ++arg) {
    const size_t size = obligations->NumFields(arg);
    if (obligations->type(obligations->call().args[arg]).type_class != TypeClass::kTuple) return;
    if (size == fields->size()) continue;
    return obligations->Fail(static_cast<int>(arg),
                             "argument " + std::to_string(arg) + ": expected " + count +
                                 " (as in argument 1), got " + std::to_string(size));
  }
  Array<int64_t> values;
  for (const ObjectRef& field : *fields) {
    const auto value = AsInt(field);
    if (!value) return;
    values.push_back(*value);
  }
  const auto axes = obligations->Axes(values, data->ndim);
  if (!axes) return;
  if (const auto* strides = FieldsOf(obligations, 4)) {
    for (const ObjectRef& stride : *strides) {
      if (AsInt(stride) == 0)
        return obligations->Fail(4, "strides: expected nonzero strides, got 0");
    }
  }
  if (!strided_slice_attrs.IsInstance(obligations->attrs()) ||
      !strided_slice_attrs.assume_inbound(obligations->attrs())) {
    return;
  }
  for (size_t arg : {2, 3}) {
    if (const auto* bounds = FieldsOf(obligations, arg)) {
      CheckInbound(obligations, *bounds, arg, *axes);
    }
  }
}

/*! \brief Begins, ends and strides are tensors with one element per axis of argument 0. */
void DynamicStridedSlice(Obligations* obligations) {
  const TypeInfo* data = obligations->Tensor(0);
  if (data == nullptr) return;
  const Extent rank = obligations->Attribute(data->ndim, "the rank of argument 0");
  for (size_t arg = 1; arg < obligations->call().args.size(); ++arg) {
    if (!obligations->HasRank(arg, 1) || obligations->Tensor(arg) == nullptr) continue;
    obligations->Equal(obligations->Dim(arg, 0), rank);
  }
}

TVM_FIXES_INIT_BLOCK() {
  RegisterObligations("op.slice", StridedSlice, {"relax.strided_slice"});
  RegisterObligations("op.slice", DynamicStridedSlice, {"relax.dynamic_strided_slice"});
}

}  // namespace

}  // namespace verifier
}  // namespace tvm_fixes
