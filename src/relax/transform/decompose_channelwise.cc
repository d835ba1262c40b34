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
 * \file src/relax/transform/decompose_channelwise.cc
 * \brief Decomposes norms and PReLU into arithmetic, for layouts that split the channels.
 *
 * Trigger: ConvertLayout to a packed layout such as NCHW4c. Mechanism: they name a single channel
 * axis, but a packed layout splits it.
 *
 *     y = R.nn.instance_norm(x, gamma, beta,      mean = R.mean(x, [2, 3], keepdims=True)
 *             channel_axis=1, axes=[2, 3])   =>   centered = x - mean
 *                                                 variance = R.mean(centered * centered, …)
 *                                                 scale = rsqrt(variance + epsilon) * gamma
 *                                                 y = centered * scale + beta
 *
 * Only x, centered and y are large; all other values have an extent of 1 along the large axes. A
 * group norm also averages these over the channels of each group. The variance is computed from the
 * centered values, since a difference of two means would cancel.
 *
 * Removal: delete this file when TVM's rules and lowerings of these operators support packed
 * layouts.
 */
#include <tvm/ffi/reflection/registry.h>

#include <optional>
#include <vector>

#include "../../ffi/registration.h"
#include "../ir/build.h"
#include "../ir/mutator.h"
#include "../op/norm_attrs.h"
namespace tvm_fixes {
namespace {

constexpr const char* kDecomposeChannelwiseFix = "decompose-channelwise";

const GlobalFunction kGreater("relax.op.greater");
const GlobalFunction kWhere("relax.op.where");
const GlobalFunction kAdd("relax.op.add");
const GlobalFunction kSubtract("relax.op.subtract");
const GlobalFunction kMultiply("relax.op.multiply");
const GlobalFunction kRsqrt("relax.op.rsqrt");
const GlobalFunction kMean("relax.op.mean");
const GlobalFunction kReshape("relax.op.reshape");
const GlobalFunction kBroadcastTo("relax.op.broadcast_to");
const GlobalFunction kAstype("relax.op.astype");

/*! \brief Whether the shape and dtype of an expression are known. */
bool IsKnown(const ObjectRef& expr) {
  return ShapeOf(expr) &&
         nodes.prim_type.IsInstance(TensorTypeView(TypeOf(expr).get()).dtype().get());
}

/*! \brief The dtype of a tensor. Requires IsKnown. */
DLDataType DtypeOf(const ObjectRef& tensor) {
  const TensorTypeView type(TypeOf(tensor).get());
  return nodes.prim_type.dtype(type.dtype().get());
}

/*! \brief The data and attributes of a norm, with non-negative axes. */
struct Norm {
  ObjectRef data;
  Array<ObjectRef> shape;
  int64_t channel_axis;
  double epsilon;
  ObjectRef gamma;
  ObjectRef beta;

  /*! \brief The accumulation dtype: 16 bits are too few. */
  const char* wide() const { return DtypeOf(data).bits == 64 ? "float64" : "float32"; }
  bool is_wide() const { return DtypeOf(data).bits >= 32; }
};

class Decomposer : public Mutator {
 public:
  using Mutator::Mutator;

 protected:
  ObjectRef RewriteValue(const ObjectRef& value) override {
    auto call = As<CallView>(value);
    if (!call) return value;
    if (call->IsOp("relax.nn.prelu")) return DecomposePRelu(*call);
    if (call->IsOp("relax.nn.batch_norm")) return DecomposeBatchNorm(*call);
    if (call->IsOp("relax.nn.instance_norm")) {
      return DecomposeChannelNorm(*call, instance_norm_attrs, std::nullopt);
    }
    if (call->IsOp("relax.nn.group_norm") && group_norm_attrs.IsInstance(call->attrs().get())) {
      return DecomposeChannelNorm(*call, group_norm_attrs,
                                  group_norm_attrs.num_groups(call->attrs().get()));
    }
    return value;
  }

 private:
  /*! \brief `where(data > 0, data, data * alpha)`, which propagates NaN. */
  ObjectRef DecomposePRelu(const CallView& call) {
    if (!prelu_attrs.IsInstance(call.attrs().get()) || call.args().size() != 2) {
      return call.ref();
    }
    const ObjectRef& data = call.args()[0];
    auto slopes = ShapeOf(call.args()[1]);
    if (!IsKnown(data) || !slopes || slopes->size() != 1) return call.ref();
    const Array<ObjectRef> shape = *ShapeOf(data);
    const int64_t axis = NormalizeAxis(prelu_attrs.axis(call.attrs().get()), shape.size());
    // A single slope becomes a scalar, which fits every layout.
    const ObjectRef alpha = IsOne((*slopes)[0]) ? Apply(kReshape, call.args()[1], MakeShapeExpr({}))
                                                : PerChannel(shape, axis, call.args()[1]);
    const DLDataType dtype = DtypeOf(data);
    ObjectRef zero = MakeScalar(0, dtype.bits == 64 ? "float64" : "float32");
    if (dtype.bits < 32) zero = Apply(kAstype, zero, dtype);
    const ObjectRef positive = Apply(kGreater, data, zero);
    const ObjectRef scaled = Apply(kMultiply, data, alpha);
    return Normalize(builder(), kWhere(positive, data, scaled).cast<ObjectRef>());
  }

  ObjectRef DecomposeBatchNorm(const CallView& call) {
    const auto& attrs = batch_norm_attrs;
    const Object* node = call.attrs().get();
    if (!attrs.IsInstance(node) || attrs.training(node) || call.args().size() != 5) {
      return call.ref();
    }
    auto norm = NormOf(call, attrs, attrs.axis(node));
    if (!norm) return call.ref();
    const ObjectRef& mean = call.args()[3];
    const ObjectRef& variance = call.args()[4];
    const ObjectRef centered = Apply(kSubtract, Widen(*norm, norm->data), PerChannel(*norm, mean));
    const ObjectRef result = Emit(Scale(*norm, centered, PerChannel(*norm, variance)));
    return Normalize(builder(), MakeTuple({result, mean, variance}));
  }

  ObjectRef DecomposeChannelNorm(const CallView& call, const ChannelNormAttrsNode& attrs,
                                 std::optional<int64_t> num_groups) {
    const Object* node = call.attrs().get();
    if (!attrs.IsInstance(node) || call.args().size() != 3) return call.ref();
    auto norm = NormOf(call, attrs, attrs.channel_axis(node));
    if (!norm) return call.ref();
    auto channels = AsInt(norm->shape[norm->channel_axis]);
    if (num_groups && (!channels || *num_groups <= 0 || *channels % *num_groups != 0)) {
      return call.ref();
    }
    auto mean = [&](const ObjectRef& values) {
      const ObjectRef per_channel = Apply(kMean, values, attrs.axes(node), true);
      return num_groups ? MeanOfGroups(*norm, per_channel, *num_groups) : per_channel;
    };
    const ObjectRef data = Widen(*norm, norm->data);
    const ObjectRef centered = Apply(kSubtract, data, mean(data));
    return Scale(*norm, centered, mean(Apply(kMultiply, centered, centered)));
  }

  /*! \brief The norm of a call with gamma, beta and data of known shape. */
  template <typename Attrs>
  std::optional<Norm> NormOf(const CallView& call, const Attrs& attrs, int64_t channel_axis) {
    const Object* node = call.attrs().get();
    // TVM's lowerings disagree about disabled gamma and beta.
    if (!IsKnown(call.args()[0]) || !attrs.center(node) || !attrs.scale(node)) return std::nullopt;
    const Array<ObjectRef> shape = *ShapeOf(call.args()[0]);
    return Norm{call.args()[0],      shape,          NormalizeAxis(channel_axis, shape.size()),
                attrs.epsilon(node), call.args()[1], call.args()[2]};
  }

  template <typename... Args>
  ObjectRef Apply(const GlobalFunction& op, const Args&... args) {
    return Emit(op(args...).template cast<ObjectRef>());
  }

  /*! \brief `values` in the accumulation dtype. */
  ObjectRef Widen(const Norm& norm, const ObjectRef& values) {
    if (norm.is_wide()) return values;
    return Apply(kAstype, values, tvm::ffi::StringToDLDataType(norm.wide()));
  }

  /*! \brief A vector with one element per channel, reshaped to broadcast to `shape`. */
  ObjectRef PerChannel(const Array<ObjectRef>& shape, int64_t channel_axis,
                       const ObjectRef& vector) {
    std::vector<ObjectRef> dims(shape.size(), MakeIntImm("int64", 1));
    dims[channel_axis] = shape[channel_axis];
    return Apply(kReshape, vector, MakeShapeExpr(Array<ObjectRef>(dims.begin(), dims.end())));
  }

  ObjectRef PerChannel(const Norm& norm, const ObjectRef& vector) {
    return Widen(norm, PerChannel(norm.shape, norm.channel_axis, vector));
  }

  /*! \brief The mean over the channels of each group, repeated for each channel. */
  ObjectRef MeanOfGroups(const Norm& norm, const ObjectRef& per_channel, int64_t num_groups) {
    const Array<ObjectRef> shape = *ShapeOf(per_channel);
    const auto axis = static_cast<size_t>(norm.channel_axis);
    std::vector<ObjectRef> dims(shape.begin(), shape.end());
    dims[axis] = MakeIntImm("int64", num_groups);
    dims.insert(dims.begin() + axis + 1, MakeIntImm("int64", *AsInt(shape[axis]) / num_groups));
    const ObjectRef split = MakeShapeExpr(Array<ObjectRef>(dims.begin(), dims.end()));
    const ObjectRef grouped = Apply(kReshape, per_channel, split);
    const ObjectRef mean = Apply(kMean, grouped, Array<int64_t>{norm.channel_axis + 1}, true);
    return Apply(kReshape, Apply(kBroadcastTo, mean, split), MakeShapeExpr(shape));
  }

  /*! \brief `centered / sqrt(variance + epsilon) * gamma + beta` in the dtype of the data. */
  ObjectRef Scale(const Norm& norm, const ObjectRef& centered, const ObjectRef& variance) {
    const ObjectRef epsilon = MakeScalar(norm.epsilon, norm.wide());
    const ObjectRef deviation = Apply(kRsqrt, Apply(kAdd, variance, epsilon));
    const ObjectRef scale = Apply(kMultiply, deviation, PerChannel(norm, norm.gamma));
    const ObjectRef scaled = Apply(kMultiply, centered, scale);
    ObjectRef result = kAdd(scaled, PerChannel(norm, norm.beta)).cast<ObjectRef>();
    if (!norm.is_wide()) result = kAstype(Emit(result), DtypeOf(norm.data)).cast<ObjectRef>();
    return Normalize(builder(), result);
  }
};

ObjectRef DecomposeChannelwise(const ObjectRef& function, const ObjectRef& mod) {
  if (!IsEnabled(kDecomposeChannelwiseFix)) return function;
  const ObjectRef decomposed = Decomposer(mod).Rewrite(function);
  if (!decomposed.same_as(function)) NoteUse(kDecomposeChannelwiseFix);
  return decomposed;
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.transform.DecomposeChannelwise", []() {
    return MakeFunctionPass(DecomposeChannelwise, "DecomposeChannelwise");
  });
}

}  // namespace
}  // namespace tvm_fixes
