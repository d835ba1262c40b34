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
 * \file old_calls.cc
 * \brief One function for each operator whose calls had another form.
 */
#include "old_calls.h"

#include <cctype>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../ir/shape.h"
#include "../ir/tensor.h"

namespace tvm_fixes::relay {
namespace {

struct OldCall {
  Expr op;
  Array<Expr> args;
  Attrs attrs;
  ProgramVersion version;

  size_t num_args() const { return args.size(); }
  Any Value(const char* attr) const { return attrs.Get(attr).value_or(nullptr); }
  bool Has(const char* attr) const { return Value(attr) != nullptr; }
  bool HasNumber(const char* attr) const {
    return Has(attr) && Value(attr).try_cast<double>().has_value();
  }
  void Rename(const char* name) { op = Op::Get(name); }

  /*! \brief An attribute that is a string, or the fallback. */
  std::string Text(const char* attr, const char* fallback) const {
    std::optional<String> text = Value(attr).as<String>();
    return text ? std::string(*text) : std::string(fallback);
  }

  /*! \brief Remove an attribute and return its number, or the fallback if it has none. */
  double TakeNumber(const char* attr, double fallback) {
    double number = HasNumber(attr) ? *Value(attr).try_cast<double>() : fallback;
    attrs.erase(attr);
    return number;
  }
};

Constant FloatConstant(double value) {
  Tensor tensor = EmptyTensor({}, kFloat32);
  auto narrow = static_cast<float>(value);
  std::memcpy(tensor.data_ptr(), &narrow, sizeof(narrow));
  return Constant(tensor);
}

Constant IntConstant(double value) {
  return Constant(IntScalar(static_cast<int64_t>(value), kInt32));
}

/*! \brief A scale, or a zero point, as Relay tells them apart by dtype. */
Constant QuantizationConstant(std::string_view attr, double value) {
  bool is_scale = attr.find("scale") != std::string_view::npos;
  return is_scale ? FloatConstant(value) : IntConstant(value);
}

// Quantization: TVM 0.6 has scales and zero points as attributes ---------------------------------

void TakeParameters(OldCall* call, size_t num_inputs, std::initializer_list<const char*> attrs) {
  if (call->num_args() != num_inputs) return;
  for (const char* attr : attrs) {
    if (!call->HasNumber(attr)) return;
  }
  for (const char* attr : attrs) {
    call->args.push_back(QuantizationConstant(attr, call->TakeNumber(attr, 1.0)));
  }
}

void UpdateQuantize(OldCall* call) {
  TakeParameters(call, 1, {"output_scale", "output_zero_point"});
}

void UpdateDequantize(OldCall* call) {
  TakeParameters(call, 1, {"input_scale", "input_zero_point"});
}

void UpdateRequantize(OldCall* call) {
  TakeParameters(call, 1, {"input_scale", "input_zero_point", "output_scale", "output_zero_point"});
}

void UpdateQnnProduct(OldCall* call) {
  TakeParameters(call, 2, {"input_zero_point", "kernel_zero_point", "input_scale", "kernel_scale"});
}

void UpdateQnnBinary(OldCall* call) {
  TakeParameters(call, 2,
                 {"lhs_scale", "lhs_zero_point", "rhs_scale", "rhs_zero_point", "output_scale",
                  "output_zero_point"});
}

void UpdateQnnConcatenate(OldCall* call) {
  if (call->num_args() != 1) return;
  std::vector<Expr> lists;
  for (const char* attr : {"input_scales", "input_zero_points"}) {
    auto values = call->Value(attr).as<Array<Any>>();
    if (!values) return;
    Array<Expr> fields;
    for (const Any& value : *values) {
      std::optional<double> number = value.try_cast<double>();
      if (!number) return;
      fields.push_back(QuantizationConstant(attr, *number));
    }
    lists.push_back(Tuple(fields));
  }
  for (const char* attr : {"output_scale", "output_zero_point"}) {
    if (!call->HasNumber(attr)) return;
  }
  for (const char* attr : {"input_scales", "input_zero_points"}) call->attrs.erase(attr);
  for (const Expr& list : lists) call->args.push_back(list);
  for (const char* attr : {"output_scale", "output_zero_point"}) {
    call->args.push_back(QuantizationConstant(attr, call->TakeNumber(attr, 1.0)));
  }
}

/*! \brief TVM 0.9 has one scale and zero point, for the input and the result. */
void UpdateQnnLeakyRelu(OldCall* call) {
  if (call->num_args() != 3) return;
  for (int i : {1, 2}) call->args.push_back(call->args[i]);
}

// Boxes: the thresholds of TVM 0.7 are attributes ------------------------------------------------

void UpdateValidCounts(OldCall* call) {
  if (call->num_args() != 1) return;
  call->args.push_back(FloatConstant(call->TakeNumber("score_threshold", 0.0)));
}

void UpdateSuppression(OldCall* call) {
  if (call->num_args() != 4) return;
  call->attrs.erase("max_output_size");
  call->args.push_back(FloatConstant(call->TakeNumber("iou_threshold", 0.5)));
}

// Resizing: image.resize became image.resize2d in TVM 0.8 ----------------------------------------

/*! \brief The pixel below, or the nearest if corners are aligned; half_pixel did not move it. */
void UpdateNearest(OldCall* call) {
  if (call->Text("method", "") != "nearest_neighbor") return;
  std::string mode = call->Text("coordinate_transformation_mode", "half_pixel");
  if (mode == "half_pixel") {
    call->attrs.Set("coordinate_transformation_mode", String("asymmetric"));
  }
  call->attrs.Set("rounding_method", String(mode == "align_corners" ? "round" : "floor"));
}

void UpdateResize(OldCall* call) {
  const char* mode = "coordinate_transformation_mode";
  bool is_first = call->version.minor == 6 || call->Has("align_corners");
  if (is_first && !call->Has(mode)) {
    bool aligned = call->TakeNumber("align_corners", 1.0) != 0.0;
    call->attrs.Set(mode, String(aligned ? "align_corners" : "asymmetric"));
  }
  std::string method = call->Text("method", "bilinear");
  for (char& letter : method) letter = static_cast<char>(std::tolower(letter));
  if (method == "bilinear") method = "linear";
  if (method == "bicubic") {
    method = "cubic";
    call->attrs.Set("cubic_alpha", -0.5);
  }
  call->attrs.Set("method", String(method));
  UpdateNearest(call);
}

void UpdateResize2D(OldCall* call) {
  UpdateResize(call);
  call->Rename("image.resize2d");
}

Constant WholeImage() {
  Tensor roi = EmptyTensor({4}, kFloat32);
  std::memset(roi.data_ptr(), 0, 4 * sizeof(float));
  return Constant(roi);
}

/*! \brief The region is a new input in TVM 0.9. */
void UpdateDynResize2D(OldCall* call) {
  if (call->num_args() == 2) call->args.push_back(WholeImage());
}

void UpdateDynResize(OldCall* call) {
  UpdateResize(call);
  UpdateDynResize2D(call);
  call->Rename("dyn.image.resize2d");
}

void UpdateResize3D(OldCall* call) {
  bool is_old = call->version.IsBefore(8) || call->Text("method", "") == "trilinear";
  if (!is_old) return;
  if (call->Text("method", "trilinear") == "trilinear") {
    call->attrs.Set("method", String("linear"));
  }
  UpdateNearest(call);
}

// Products and convolutions ----------------------------------------------------------------------

/*! \brief Before TVM 0.8, batch_matmul had no such attribute and transposed its second operand. */
void UpdateBatchMatmul(OldCall* call) {
  if (call->version.IsBefore(9) && !call->Has("transpose_b")) {
    call->attrs.Set("transpose_b", true);
  }
}

/*! \brief Exchange the names of the input and output channels of a kernel. */
void ExchangeChannels(OldCall* call) {
  if (!call->Has("kernel_layout")) return;
  std::string layout = call->Text("kernel_layout", "");
  for (char& axis : layout) axis = axis == 'O' ? 'I' : axis == 'I' ? 'O' : axis;
  call->attrs.Set("kernel_layout", String(layout));
}

/*! \brief The kernel of a transposed convolution named the input channels O before TVM 0.12. */
void UpdateConvTranspose(OldCall* call) {
  if (call->version.IsBefore(12)) ExchangeChannels(call);
}

/*! \brief In two dimensions, before TVM 0.8; its development then used the default. */
void UpdateConv2DTranspose(OldCall* call) {
  bool is_old = call->version.IsBefore(8);
  bool is_between = call->version.minor == 8 && call->version.is_unreleased;
  if (is_old || (is_between && call->Text("kernel_layout", "") == "OIHW")) ExchangeChannels(call);
}

/*! \brief The calls of this version are those of TVM 0.19. */
constexpr int kFirstWithoutUpdates = 12;

using Update = void (*)(OldCall*);

const std::unordered_map<std::string_view, Update>& Updates() {
  static const auto* table = new std::unordered_map<std::string_view, Update>{
      {"qnn.quantize", UpdateQuantize},
      {"qnn.dequantize", UpdateDequantize},
      {"qnn.requantize", UpdateRequantize},
      {"qnn.conv2d", UpdateQnnProduct},
      {"qnn.dense", UpdateQnnProduct},
      {"qnn.add", UpdateQnnBinary},
      {"qnn.mul", UpdateQnnBinary},
      {"qnn.concatenate", UpdateQnnConcatenate},
      {"qnn.leaky_relu", UpdateQnnLeakyRelu},
      {"vision.get_valid_counts", UpdateValidCounts},
      {"vision.non_max_suppression", UpdateSuppression},
      {"image.resize", UpdateResize2D},
      {"image.resize3d", UpdateResize3D},
      {"dyn.image.resize", UpdateDynResize},
      {"dyn.image.resize2d", UpdateDynResize2D},
      {"nn.batch_matmul", UpdateBatchMatmul},
      {"nn.conv1d_transpose", UpdateConvTranspose},
      {"nn.conv2d_transpose", UpdateConv2DTranspose},
      {"nn.conv3d_transpose", UpdateConvTranspose},
      {"qnn.conv2d_transpose", UpdateConv2DTranspose}};
  return *table;
}

}  // namespace

Call UpdateCall(Expr op, Array<Expr> args, Attrs attrs, Array<Type> type_args,
                const ProgramVersion& version) {
  const auto* named = op.as<OpObj>();
  if (named != nullptr && version.minor < kFirstWithoutUpdates) {
    auto update = Updates().find(std::string_view(named->name.data(), named->name.size()));
    if (update != Updates().end()) {
      OldCall call{std::move(op), std::move(args), std::move(attrs), version};
      update->second(&call);
      return Call(call.op, call.args, call.attrs, std::move(type_args));
    }
  }
  return Call(std::move(op), std::move(args), std::move(attrs), std::move(type_args));
}

bool ReturnsIndices(const Expr& op) {
  const auto* named = op.as<OpObj>();
  return named != nullptr && (named->name == "argmax" || named->name == "argmin");
}

Call WideIndices(const Call& call) {
  return WithSpan(Call(Op::Get("cast"), {call}, {{"dtype", String("int64")}}, {}), call->span);
}

}  // namespace tvm_fixes::relay
