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
 * \file src/relay/op/nn_pool.cc
 * \brief Pooling.
 */
#include "nn_util.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The layout, with checks that the input has it and that no spatial axis is packed. */
Layout PoolLayout(const InferContext& context, const TensorType& data, size_t num_axes) {
  std::string spatial = SpatialAxes(num_axes);
  Layout layout(context, "layout", "NC" + spatial);
  layout.CheckNotPacked(context, spatial);
  layout.ToCanonical(context, 0, data->shape);
  return layout;
}

template <size_t num_axes>
Type PoolRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  Layout layout = PoolLayout(context, data, num_axes);
  std::vector<int64_t> size = PositiveInts(context, "pool_size", num_axes);
  Windows windows(context, num_axes);
  Shape shape = data->shape;
  for (size_t i = 0; i < num_axes; ++i) {
    size_t axis = layout.IndexOf(SpatialAxes(num_axes)[i]);
    shape.Set(axis, WindowCount(context, shape[axis], size[i], windows.dilation[i],
                                windows.padding[i], windows.strides[i], context.Bool("ceil_mode")));
  }
  return TensorType(shape, data->dtype);
}

Type GlobalPoolRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  Layout layout = PoolLayout(context, data, 2);
  Shape shape = data->shape;
  for (char letter : SpatialAxes(2)) shape.Set(layout.IndexOf(letter), int64_t{1});
  return TensorType(shape, data->dtype);
}

template <size_t num_axes>
Type AdaptivePoolRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  Layout layout = PoolLayout(context, data, num_axes);
  Shape shape = data->shape;
  if (context.Dims("output_size").empty()) return data;
  std::vector<int64_t> size = PositiveInts(context, "output_size", num_axes);
  for (size_t i = 0; i < num_axes; ++i) {
    shape.Set(layout.IndexOf(SpatialAxes(num_axes)[i]), size[i]);
  }
  return TensorType(shape, data->dtype);
}

Type PoolGradRelation(InferContext& context) {
  TensorType grad = context.Tensor(0);
  TensorType data = context.Tensor(1);
  if (grad->ndim() != data->ndim()) context.FailInput(0, "as many dimensions as input 1 has");
  context.CheckSameDType(0, 1);
  return data;
}

using IntList = std::initializer_list<int64_t>;

std::vector<AttrField> PoolAttrs(const char* layout, IntList ones, IntList zeros, bool is_average) {
  std::vector<AttrField> fields = {
      RequiredAttr("pool_size", AttrKind::kIntArray),
      IntArrayAttr("strides", ones),
      IntArrayAttr("dilation", ones),
      IntArrayAttr("padding", zeros),
      StringAttr("layout", layout),
      StringAttr("out_layout", ""),
      BoolAttr("ceil_mode", false),
  };
  if (is_average) fields.push_back(BoolAttr("count_include_pad", false));
  return fields;
}

void DeclarePool(const char* suffix, const char* layout, IntList ones, IntList zeros,
                 TypeRelation relation) {
  for (bool is_average : {false, true}) {
    std::string name = std::string("nn.") + (is_average ? "avg" : "max") + "_pool" + suffix;
    std::string attrs =
        std::string("relay.attrs.") + (is_average ? "Avg" : "Max") + "Pool" + suffix[0] + "DAttrs";
    DeclareOp(name.c_str())
        .Inputs({"data"})
        .Attrs(attrs, PoolAttrs(layout, ones, zeros, is_average))
        .Relation(relation);
  }
}

void DeclareAdaptivePool(const char* suffix, const char* layout, TypeRelation relation) {
  for (const char* kind : {"avg", "max"}) {
    std::string name = std::string("nn.adaptive_") + kind + "_pool" + suffix;
    OpDecl& decl = DeclareOp(name.c_str());
    decl.Inputs({"data"})
        .Attrs(std::string("relay.attrs.AdaptivePool") + suffix[0] + "DAttrs",
               {IntArrayAttr("output_size", {}), StringAttr("layout", layout),
                StringAttr("out_layout", "")})
        .Relation(relation);
    if (suffix[0] == '2') decl.Alias(std::string("contrib.adaptive_") + kind + "_pool2d");
  }
}

void DeclareGlobalPool() {
  for (const char* name : {"nn.global_avg_pool2d", "nn.global_max_pool2d"}) {
    DeclareOp(name)
        .Inputs({"data"})
        .Attrs("relay.attrs.GlobalPool2DAttrs",
               {StringAttr("layout", "NCHW"), StringAttr("out_layout", "")})
        .Relation(GlobalPoolRelation);
  }
}

void DeclarePoolGrad() {
  for (bool is_average : {false, true}) {
    DeclareOp(is_average ? "nn.avg_pool2d_grad" : "nn.max_pool2d_grad")
        .Inputs({"grad", "data"})
        .Attrs(is_average ? "relay.attrs.AvgPool2DAttrs" : "relay.attrs.MaxPool2DAttrs",
               PoolAttrs("NCHW", {1, 1}, {0, 0}, is_average))
        .Relation(PoolGradRelation)
        .Rejected("gradients are not supported");
  }
}

[[maybe_unused]] const bool declared_pools =
    (DeclarePool("1d", "NCW", {1}, {0}, PoolRelation<1>),
     DeclarePool("2d", "NCHW", {1, 1}, {0, 0}, PoolRelation<2>),
     DeclarePool("3d", "NCDHW", {1, 1, 1}, {0, 0, 0}, PoolRelation<3>),
     DeclareAdaptivePool("1d", "NCW", AdaptivePoolRelation<1>),
     DeclareAdaptivePool("2d", "NCHW", AdaptivePoolRelation<2>),
     DeclareAdaptivePool("3d", "NCDHW", AdaptivePoolRelation<3>), DeclareGlobalPool(),
     DeclarePoolGrad(), true);

}  // namespace
}  // namespace tvm_fixes::relay
