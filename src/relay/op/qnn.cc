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
 * \file src/relay/op/qnn.cc
 * \brief The elementwise operators of the QNN dialect, and qnn.concatenate and qnn.softmax.
 */
#include "qnn.h"

#include <algorithm>

#include "registry.h"

namespace tvm_fixes::relay {

void CheckInputDType(InferContext& context, int index, const std::vector<const char*>& names) {
  std::string actual = DTypeText(context.Tensor(index)->dtype);
  std::string expected;
  for (const char* name : names) {
    if (actual == name) return;
    expected += (expected.empty() ? "" : " or ") + std::string(name);
  }
  context.FailInput(index, "a tensor of dtype " + expected);
}

void CheckParameter(InferContext& context, int index, DLDataType dtype, const Dim& extent) {
  TensorType type = context.Tensor(index);
  bool fits = SameDType(type->dtype, dtype);
  if (type->ndim() == 1) {
    fits = fits && (MayBeEqual(type->shape[0], extent) || StaticDim(type->shape[0]) == 1);
  } else {
    fits = fits && type->ndim() == 0;
  }
  if (fits) return;
  context.FailInput(index, "a scalar or a vector of length " + DimText(extent) + ", of dtype " +
                               DTypeText(dtype));
}

void CheckScalarParameter(InferContext& context, int index, DLDataType dtype) {
  TensorType type = context.Tensor(index);
  if (type->ndim() == 0 && SameDType(type->dtype, dtype)) return;
  context.FailInput(index, "a scalar of dtype " + DTypeText(dtype));
}

void CheckScalarParameters(InferContext& context, int first, int last) {
  for (int i = first; i <= last; ++i) {
    CheckScalarParameter(context, i, (i - first) % 2 == 0 ? kFloat32 : kInt32);
  }
}

DLDataType CheckedDType(InferContext& context, const char* attr,
                        const std::vector<const char*>& names) {
  DLDataType dtype = context.DType(attr);
  std::string expected;
  for (const char* name : names) {
    if (DTypeText(dtype) == name) return dtype;
    expected += (expected.empty() ? "" : " or ") + std::string(name);
  }
  context.FailAttr(attr, expected);
}

namespace {

/*!
 * \brief The extent of the channel axis, along which scale and zero-point vectors run; 1 if each
 *        of them has one element, or if the data is a scalar.
 */
Dim ChannelExtent(InferContext& context, const TensorType& data, const char* attr, int first,
                  int last) {
  bool scalar = true;
  for (int i = first; i <= last; ++i) {
    TensorType type = context.Tensor(i);
    scalar = scalar && (type->ndim() == 0 || StaticDim(NumElements(type->shape)) == 1);
  }
  if (scalar || data->ndim() == 0) return int64_t{1};
  return data->shape[context.Axis(attr, data->ndim())];
}

Type QuantizeRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  CheckInputDType(context, 0, {"float32"});
  Dim extent = ChannelExtent(context, data, "axis", 1, 2);
  CheckParameter(context, 1, kFloat32, extent);
  CheckParameter(context, 2, kInt32, extent);
  return TensorType(data->shape, CheckedDType(context, "out_dtype",
                                              {"int8", "uint8", "int16", "uint16", "int32"}));
}

Type DequantizeRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  CheckInputDType(context, 0, {"int8", "uint8", "int16", "uint16", "int32"});
  Dim extent = ChannelExtent(context, data, "axis", 1, 2);
  CheckParameter(context, 1, kFloat32, extent);
  CheckParameter(context, 2, kInt32, extent);
  return TensorType(data->shape, CheckedDType(context, "out_dtype", {"float16", "float32"}));
}

Type RequantizeRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  CheckInputDType(context, 0, {"int8", "uint8", "int16", "int32", "int64"});
  Dim extent = ChannelExtent(context, data, "axis", 1, 2);
  CheckParameter(context, 1, kFloat32, extent);
  CheckParameter(context, 2, kInt32, extent);
  CheckScalarParameters(context, 3, 4);
  std::string rounding = context.Str("rounding");
  if (rounding != "None" && rounding != "UPWARD" && rounding != "TONEAREST") {
    context.FailAttr("rounding", "UPWARD or TONEAREST");
  }
  std::string compute = context.Str("compute_dtype");
  if (compute != "None" && compute != "int64" && compute != "float32" && compute != "float64") {
    context.FailAttr("compute_dtype", "int64, float32 or float64");
  }
  return TensorType(data->shape,
                    CheckedDType(context, "out_dtype", {"int8", "uint8", "int16", "int32"}));
}

Type SimulatedRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  CheckInputDType(context, 0, {"float32"});
  CheckScalarParameter(context, 1, kInt32);
  Dim extent = ChannelExtent(context, data, "axis", 2, 3);
  CheckParameter(context, 2, kFloat32, extent);
  CheckParameter(context, 3, kInt32, extent);
  return data;
}

Type QuantizedBinaryRelation(InferContext& context) {
  CheckInputDType(context, 0, {"int8", "uint8", "int16", "uint16", "int32"});
  Dim lhs = ChannelExtent(context, context.Tensor(0), "lhs_axis", 2, 3);
  CheckParameter(context, 2, kFloat32, lhs);
  CheckParameter(context, 3, kInt32, lhs);
  Dim rhs = ChannelExtent(context, context.Tensor(1), "rhs_axis", 4, 5);
  CheckParameter(context, 4, kFloat32, rhs);
  CheckParameter(context, 5, kInt32, rhs);
  CheckScalarParameters(context, 6, 7);
  return BroadcastRelation(context);
}

Type QuantizedUnaryRelation(InferContext& context) {
  CheckInputDType(context, 0, {"int8", "uint8"});
  CheckScalarParameters(context, 1, 4);
  return context.Tensor(0);
}

Type QuantizedSoftmaxRelation(InferContext& context) {
  CheckInputDType(context, 0, {"int8"});
  CheckScalarParameters(context, 1, 4);
  context.Axis("axis", context.Tensor(0)->ndim());
  return context.Tensor(0);
}

void CheckTupleParameters(InferContext& context, int index, DLDataType dtype, size_t count) {
  std::vector<TensorType> fields = context.TensorTuple(index);
  bool fits = fields.size() == count;
  for (const TensorType& field : fields) {
    fits = fits && field->ndim() == 0 && SameDType(field->dtype, dtype);
  }
  if (fits) return;
  context.FailInput(index, "a tuple of " + std::to_string(count) + " " + DTypeText(dtype) +
                               " scalars, one for each tensor");
}

Type QuantizedConcatenateRelation(InferContext& context) {
  std::vector<TensorType> fields = context.TensorTuple(0);
  if (fields.empty()) context.FailInput(0, "a tuple of at least 1 tensor");
  CheckTupleParameters(context, 1, kFloat32, fields.size());
  CheckTupleParameters(context, 2, kInt32, fields.size());
  CheckScalarParameters(context, 3, 4);
  TensorType first = fields[0];
  if (first->ndim() == 0) context.FailInput(0, "a tuple of tensors of rank at least 1");
  int64_t axis = context.Axis("axis", first->ndim());
  std::vector<Dim> shape(first->shape.begin(), first->shape.end());
  for (size_t i = 1; i < fields.size(); ++i) {
    const TensorType& field = fields[i];
    bool fits = field->ndim() == first->ndim() && SameDType(field->dtype, first->dtype);
    for (int64_t j = 0; fits && j < first->ndim(); ++j) {
      if (j == axis) {
        shape[j] = AddDim(shape[j], field->shape[j]);
      } else {
        fits = MayBeEqual(shape[j], field->shape[j]);
        shape[j] = MoreStatic(shape[j], field->shape[j]);
      }
    }
    if (!fits) {
      context.FailInput(
          0, "a tuple of tensors of the same dtype, and of the same shape except along 'axis'");
    }
  }
  return TensorType(Shape(shape.begin(), shape.end()), first->dtype);
}

void DeclareQuantized() {
  for (const char* name : {"qnn.add", "qnn.subtract", "qnn.mul"}) {
    DeclareOp(name)
        .Inputs({"lhs", "rhs", "lhs_scale", "lhs_zero_point", "rhs_scale", "rhs_zero_point",
                 "output_scale", "output_zero_point"})
        .Attrs("relay.attrs.BroadcastAttrs", {IntAttr("lhs_axis", -1), IntAttr("rhs_axis", -1)})
        .Relation(QuantizedBinaryRelation);
  }
  for (const char* name : {"qnn.abs", "qnn.erf", "qnn.exp", "qnn.hardswish", "qnn.log", "qnn.rsqrt",
                           "qnn.sigmoid", "qnn.sqrt", "qnn.tanh"}) {
    DeclareOp(name)
        .Inputs({"x", "scale", "zero_point", "output_scale", "output_zero_point"})
        .Relation(QuantizedUnaryRelation);
  }
}

[[maybe_unused]] const bool declared_quantized = (DeclareQuantized(), true);

RELAY_OP("qnn.quantize")
    .Inputs({"data", "output_scale", "output_zero_point"})
    .Attrs("relay.attrs.QuantizeAttrs",
           {RequiredAttr("out_dtype", AttrKind::kDType), IntAttr("axis", -1)})
    .Relation(QuantizeRelation);

RELAY_OP("qnn.dequantize")
    .Inputs({"data", "input_scale", "input_zero_point"})
    .Attrs("relay.attrs.DequantizeAttrs", {DTypeAttr("out_dtype", "float32"), IntAttr("axis", -1)})
    .Relation(DequantizeRelation);

RELAY_OP("qnn.requantize")
    .Inputs({"data", "input_scale", "input_zero_point", "output_scale", "output_zero_point"})
    .Attrs("relay.attrs.RequantizeAttrs",
           {IntAttr("axis", -1), StringAttr("rounding", "None"),
            StringAttr("compute_dtype", "None"), DTypeAttr("out_dtype")})
    .Relation(RequantizeRelation);

RELAY_OP("qnn.simulated_quantize")
    .Inputs({"data", "out_dtype", "output_scale", "output_zero_point"})
    .Attrs("relay.attrs.SimulatedQuantizeAttrs", {IntAttr("axis", -1)})
    .Relation(SimulatedRelation);

RELAY_OP("qnn.simulated_dequantize")
    .Inputs({"data", "in_dtype", "input_scale", "input_zero_point"})
    .Attrs("relay.attrs.DequantizeAttrs", {DTypeAttr("out_dtype"), IntAttr("axis", -1)})
    .Relation(SimulatedRelation);

RELAY_OP("qnn.leaky_relu")
    .Inputs({"data", "input_scale", "input_zero_point", "output_scale", "output_zero_point"})
    .Attrs("relay.attrs.LeakyReluAttrs", {FloatAttr("alpha", 0.25)})
    .Relation(QuantizedUnaryRelation);

RELAY_OP("qnn.softmax")
    .Inputs({"data", "scale", "zero_point", "output_scale", "output_zero_point"})
    .Attrs("relay.attrs.SoftmaxAttrs", {IntAttr("axis", -1)})
    .Relation(QuantizedSoftmaxRelation);

RELAY_OP("qnn.concatenate")
    .Inputs({"data", "input_scales", "input_zero_points", "output_scale", "output_zero_point"})
    .Attrs("relay.attrs.ConcatenateAttrs", {IntAttr("axis", 0)})
    .Relation(QuantizedConcatenateRelation);

}  // namespace
}  // namespace tvm_fixes::relay
