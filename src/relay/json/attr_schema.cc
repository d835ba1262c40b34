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
 * \file src/relay/json/attr_schema.cc
 * \brief The fields whose form differs from what their kind suggests.
 */
#include "attr_schema.h"

#include <algorithm>
#include <iterator>

namespace tvm_fixes::relay {
namespace {

/*!
 * \brief The fields that hold a number but are stored as a node; of two versions, the field is a
 *        node from the given one on. "*" stands for any type of attributes.
 */
struct NumberField {
  const char* attrs;
  const char* field;
  int since;
};

constexpr NumberField kNumberNodes[] = {{"*", "channels", 6},
                                        {"*", "units", 6},
                                        {"*", "repeats", 6},
                                        {"*", "seq_axis", 6},
                                        {"*", "batch_axis", 6},
                                        {"*", "lhs_end", 6},
                                        {"*", "rhs_end", 6},
                                        {"*", "batch_dims", 6},
                                        {"*", "index_rank", 6},
                                        {"*", "exclusive", 6},
                                        {"*", "num_samples", 6},
                                        {"*", "inverse", 6},
                                        {"*", "indices_or_sections", 6},
                                        {"*", "const_shape", 6},
                                        {"ArangeAttrs", "start", 6},
                                        {"ArangeAttrs", "stop", 6},
                                        {"ArangeAttrs", "step", 6},
                                        {"YoloReorgAttrs", "stride", 6},
                                        {"TopkAttrs", "k", 7},
                                        {"NonMaximumSuppressionAttrs", "max_output_size", 7},
                                        {"GetValidCountsAttrs", "score_threshold", 8},
                                        {"TakeAttrs", "axis", 6},
                                        {"StackAttrs", "axis", 6},
                                        {"RepeatAttrs", "axis", 6},
                                        {"ReverseAttrs", "axis", 6},
                                        {"ScatterAttrs", "axis", 6},
                                        {"ScatterAddAttrs", "axis", 6},
                                        {"ScatterElementsAttrs", "axis", 6},
                                        {"GatherAttrs", "axis", 6},
                                        {"ScanopAttrs", "axis", 6}};

/*! \brief A field of one type of attributes, or of any ("*"). */
struct FieldName {
  const char* attrs;
  const char* field;
};

constexpr FieldName kStringNodes[] = {{"AdaptivePool1DAttrs", "out_layout"},
                                      {"AdaptivePool2DAttrs", "out_layout"},
                                      {"AdaptivePool3DAttrs", "out_layout"},
                                      {"AvgPool1DAttrs", "out_layout"},
                                      {"AvgPool2DAttrs", "layout"},
                                      {"AvgPool2DAttrs", "out_layout"},
                                      {"AvgPool3DAttrs", "out_layout"},
                                      {"Conv1DAttrs", "data_layout"},
                                      {"Conv1DAttrs", "kernel_layout"},
                                      {"Conv1DAttrs", "out_layout"},
                                      {"Conv2DAttrs", "data_layout"},
                                      {"Conv2DAttrs", "kernel_layout"},
                                      {"Conv2DAttrs", "out_layout"},
                                      {"Conv3DAttrs", "data_layout"},
                                      {"Conv3DAttrs", "kernel_layout"},
                                      {"Conv3DAttrs", "out_layout"},
                                      {"Conv3DTransposeAttrs", "data_layout"},
                                      {"Conv3DTransposeAttrs", "kernel_layout"},
                                      {"Conv3DTransposeAttrs", "out_layout"},
                                      {"CorrelationAttrs", "layout"},
                                      {"DensePackAttrs", "weight_layout"},
                                      {"EinsumAttrs", "equation"},
                                      {"GlobalPool2DAttrs", "layout"},
                                      {"GlobalPool2DAttrs", "out_layout"},
                                      {"GridSampleAttrs", "layout"},
                                      {"GridSampleAttrs", "method"},
                                      {"GridSampleAttrs", "padding_mode"},
                                      {"MaxPool1DAttrs", "out_layout"},
                                      {"MaxPool2DAttrs", "layout"},
                                      {"MaxPool2DAttrs", "out_layout"},
                                      {"MaxPool3DAttrs", "out_layout"},
                                      {"PadAttrs", "pad_mode"},
                                      {"ScatterElementsAttrs", "reduction"},
                                      {"ScatterNDAttrs", "mode"},
                                      {"StridedSliceAttrs", "slice_mode"},
                                      {"TakeAttrs", "mode"},
                                      {"UpSamplingAttrs", "layout"},
                                      {"UpSamplingAttrs", "method"}};

constexpr FieldName kRemovedFields[] = {{"*", "auto_scheduler_rewritten_layout"},
                                        {"*", "meta_schedule_original_shape"},
                                        {"DeviceCopyAttrs", "src_dev_type"},
                                        {"DeviceCopyAttrs", "dst_dev_type"},
                                        {"NonMaximumSuppressionAttrs", "iou_threshold"},
                                        {"NonMaximumSuppressionAttrs", "max_output_size"},
                                        {"OnDeviceAttrs", "device_type"},
                                        {"OnDeviceAttrs", "is_fixed"},
                                        {"PadAttrs", "pad_value"},
                                        {"ReshapeAttrs", "reverse"}};

constexpr const char* kRemovedOps[] = {"contrib.ethosu.binary_elementwise",
                                       "contrib.ethosu.conv2d",
                                       "contrib.ethosu.depthwise_conv2d",
                                       "contrib.ethosu.identity",
                                       "contrib.ethosu.pooling",
                                       "contrib.ethosu.unary_elementwise",
                                       "memory.invoke_tvm_op",
                                       "memory.shape_func",
                                       "nn.contrib_conv2d_NCHWc_int8",
                                       "nn.contrib_conv2d_winograd_nnpack_without_weight_transform",
                                       "scatter",
                                       "scatter_add",
                                       "vm.shape_func"};

struct OldField {
  const char* attrs;
  const char* field;
  AttrKind kind;
};

constexpr OldField kOldFields[] = {
    {"*", "input_scale", AttrKind::kFloat},
    {"*", "kernel_scale", AttrKind::kFloat},
    {"*", "lhs_scale", AttrKind::kFloat},
    {"*", "rhs_scale", AttrKind::kFloat},
    {"*", "output_scale", AttrKind::kFloat},
    {"*", "input_scales", AttrKind::kFloatArray},
    {"*", "input_zero_point", AttrKind::kInt},
    {"*", "kernel_zero_point", AttrKind::kInt},
    {"*", "lhs_zero_point", AttrKind::kInt},
    {"*", "rhs_zero_point", AttrKind::kInt},
    {"*", "output_zero_point", AttrKind::kInt},
    {"*", "input_zero_points", AttrKind::kIntArray},
    {"ResizeAttrs", "size", AttrKind::kIntArray},
    {"ResizeAttrs", "layout", AttrKind::kString},
    {"ResizeAttrs", "method", AttrKind::kString},
    {"ResizeAttrs", "align_corners", AttrKind::kBool},
    {"ResizeAttrs", "coordinate_transformation_mode", AttrKind::kString},
    {"ResizeAttrs", "out_dtype", AttrKind::kDType}};

template <typename Entry>
bool Matches(const Entry& entry, const std::string& key, const std::string& field) {
  if (field != entry.field) return false;
  return entry.attrs[0] == '*' || key == std::string("relay.attrs.") + entry.attrs;
}

template <size_t size>
bool Contains(const FieldName (&table)[size], const std::string& key, const std::string& field) {
  return std::any_of(std::begin(table), std::end(table),
                     [&](const FieldName& entry) { return Matches(entry, key, field); });
}

}  // namespace

bool IsNumberNode(const std::string& key, const std::string& field, int version) {
  return std::any_of(std::begin(kNumberNodes), std::end(kNumberNodes), [&](const auto& entry) {
    return version >= entry.since && Matches(entry, key, field);
  });
}

bool IsStringNode(const std::string& key, const std::string& field) {
  return Contains(kStringNodes, key, field);
}

bool IsRemovedField(const std::string& key, const std::string& field) {
  return Contains(kRemovedFields, key, field);
}

std::optional<AttrKind> OldFieldKind(const std::string& key, const std::string& field) {
  for (const OldField& entry : kOldFields) {
    if (Matches(entry, key, field)) return entry.kind;
  }
  return std::nullopt;
}

bool IsRemovedForm(const std::string& op, size_t num_inputs) {
  return op == "vision.non_max_suppression" && num_inputs == 2;
}

bool IsRemovedOp(const std::string& name) {
  return std::any_of(std::begin(kRemovedOps), std::end(kRemovedOps),
                     [&](const char* removed) { return name == removed; });
}

}  // namespace tvm_fixes::relay
