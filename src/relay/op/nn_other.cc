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
 * \file src/relay/op/nn_other.cc
 * \brief Losses, correlation and nn.fifo_buffer; operators that are rejected.
 */
#include "nn_util.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief Require two inputs to have shapes that may be equal. */
void CheckSameShape(const InferContext& context, int a, int b) {
  const Shape& left = context.Tensor(a)->shape;
  const Shape& right = context.Tensor(b)->shape;
  bool fits = left.size() == right.size();
  for (size_t i = 0; fits && i < left.size(); ++i) fits = MayBeEqual(left[i], right[i]);
  if (!fits) context.FailInput(b, "shape " + ShapeText(left));
}

Type CrossEntropyRelation(InferContext& context) {
  TensorType predictions = context.Tensor(0, 2);
  CheckSameShape(context, 0, 1);
  context.CheckSameDType(0, 1);
  return TensorType(Shape(), predictions->dtype);
}

Type NLLLossRelation(InferContext& context) {
  TensorType predictions = context.Tensor(0);
  TensorType targets = context.Tensor(1);
  TensorType weights = context.Tensor(2, 1);
  int64_t ndim = predictions->ndim();
  if (ndim < 2 || targets->ndim() != ndim - 1) {
    context.FailInput(1, "a tensor with one dimension fewer than input 0");
  }
  for (int64_t i = 0; i < targets->ndim(); ++i) {
    if (!MayBeEqual(targets->shape[i], predictions->shape[i == 0 ? 0 : i + 1])) {
      context.FailInput(1, "the shape of input 0 without its axis 1");
    }
  }
  if (!MayBeEqual(weights->shape[0], predictions->shape[1])) {
    context.FailInput(2, "as many weights as classes: " + DimText(predictions->shape[1]));
  }
  if (!IsFloat(predictions->dtype)) context.FailInput(0, "floats");
  context.CheckSameDType(0, 2);
  if (!IsInteger(targets->dtype)) context.FailInput(1, "ints");
  std::string reduction = context.Str("reduction");
  if (reduction != "mean" && reduction != "sum" && reduction != "none") {
    context.FailAttr("reduction", "\"mean\", \"sum\" or \"none\"");
  }
  return TensorType(reduction == "none" ? targets->shape : Shape(), predictions->dtype);
}

Type FIFOBufferRelation(InferContext& context) {
  TensorType data = context.Tensor(0);
  TensorType buffer = context.Tensor(1);
  context.CheckSameDType(0, 1);
  if (data->ndim() != buffer->ndim()) context.FailInput(1, "as many dimensions as input 0");
  int64_t axis = context.Axis("axis", buffer->ndim());
  for (int64_t i = 0; i < data->ndim(); ++i) {
    std::optional<int64_t> length = StaticDim(data->shape[i]);
    std::optional<int64_t> room = StaticDim(buffer->shape[i]);
    bool fits = !length || !room || (i == axis ? *length < *room : *length == *room);
    if (!fits) context.FailInput(1, "a buffer longer than input 0 only along attribute 'axis'");
  }
  return buffer;
}

Type CorrelationRelation(InferContext& context) {
  TensorType data = context.Tensor(0, 4);
  context.Tensor(1, 4);
  context.CheckSameDType(0, 1);
  CheckSameShape(context, 0, 1);
  if (context.Str("layout") != "NCHW") context.FailAttr("layout", "\"NCHW\"");
  for (const char* attr : {"kernel_size", "stride1", "stride2"}) {
    int64_t value = context.Int(attr);
    if (value < 1 || value > 1 << 20) context.FailAttr(attr, "positive int");
  }
  int64_t reach = context.Int("max_displacement");
  if (reach < 0 || reach > 1 << 20) context.FailAttr("max_displacement", "int of at least 0");
  if (context.Int("kernel_size") % 2 == 0) context.FailAttr("kernel_size", "odd int");
  int64_t border = reach + (context.Int("kernel_size") - 1) / 2;
  int64_t displacements = 2 * (reach / context.Int("stride2")) + 1;
  std::vector<int64_t> padding = TotalPadding(context, 2);
  Shape shape = {data->shape[0], displacements * displacements};
  for (size_t i = 0; i < 2; ++i) {
    shape.push_back(WindowCount(context, data->shape[2 + i], 2 * border + 1, 1, padding[i],
                                context.Int("stride1")));
  }
  return TensorType(shape, data->dtype);
}

RELAY_OP("nn.cross_entropy").Inputs({"x", "y"}).Relation(CrossEntropyRelation);
RELAY_OP("nn.cross_entropy_with_logits").Inputs({"x", "y"}).Relation(CrossEntropyRelation);

RELAY_OP("nn.nll_loss")
    .Inputs({"predictions", "targets", "weights"})
    .Attrs("relay.attrs.NLLLossAttrs",
           {StringAttr("reduction", "mean"), RequiredAttr("ignore_index", AttrKind::kInt)})
    .Relation(NLLLossRelation);

RELAY_OP("nn.fifo_buffer")
    .Inputs({"data", "buffer"})
    .Attrs("relay.attrs.FIFOBufferAttrs", {IntAttr("axis", 0)})
    .Relation(FIFOBufferRelation);

RELAY_OP("nn.correlation")
    .Inputs({"data1", "data2"})
    .Attrs("relay.attrs.CorrelationAttrs",
           {IntAttr("kernel_size", 1), IntAttr("max_displacement", 1), IntAttr("stride1", 1),
            IntAttr("stride2", 1), IntArrayAttr("padding", {0, 0}), BoolAttr("is_multiply", true),
            StringAttr("layout", "NCHW")})
    .Relation(CorrelationRelation);

RELAY_OP("nn.batch_flatten").Inputs({"data"}).Relation([](InferContext& context) -> Type {
  TensorType data = context.Tensor(0);
  if (data->ndim() == 0) context.FailInput(0, "at least 1 dimension");
  Dim features = int64_t{1};
  for (int64_t i = 1; i < data->ndim(); ++i) features = MultiplyDim(features, data->shape[i]);
  return TensorType({data->shape[0], features}, data->dtype);
});

void DeclareRejected(std::initializer_list<const char*> names, const char* reason) {
  for (const char* name : names) DeclareOp(name).Variadic().Rejected(reason);
}

[[maybe_unused]] const bool declared_rejected_nn =
    (DeclareRejected({"nn.contrib_conv2d_winograd_without_weight_transform",
                      "nn.contrib_conv2d_winograd_weight_transform",
                      "nn.contrib_conv2d_winograd_nnpack_without_weight_transform",
                      "nn.contrib_conv2d_winograd_nnpack_weight_transform",
                      "nn.contrib_conv3d_winograd_without_weight_transform",
                      "nn.contrib_conv3d_winograd_weight_transform",
                      "nn.contrib_conv2d_gemm_without_weight_transform",
                      "nn.contrib_conv2d_gemm_weight_transform", "nn.contrib_conv2d_NCHWc_int8"},
                     "the weights have the form that one target's schedule needs; save the "
                     "program before AlterOpLayout"),
     DeclareRejected({"nn.bitpack", "nn.bitserial_conv2d", "nn.bitserial_dense"},
                     "bit-serial arithmetic is not supported"),
     DeclareRejected({"nn.internal.sparse_dense_padded"},
                     "TVM makes it of nn.sparse_dense for a GPU; save the program before that"),
     DeclareRejected({"nn.sparse_conv2d"}, "sparse kernels are not supported; make them dense"),
     DeclareRejected({"nn.conv2d_backward_weight"}, "gradients are not supported"), true);

}  // namespace
}  // namespace tvm_fixes::relay
