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
 * \file src/relax/op/conv.cc
 * \brief Layout rules of relax.nn.conv1d, conv2d, conv3d and their transposes.
 *
 * Trigger, of ConvertLayout, and its error:
 *
 * - to a packed layout: "Layouts must have the same size" from conv2d_transpose and
 *   conv3d_transpose, "Axis swap only" from the operators of one spatial axis and from conv3d;
 * - of a model in which a packed value reaches a convolution without desired layouts: "Layouts must
 *   have the same size";
 * - of conv2d to a packed result with channels that are not a multiple of the block: the result has
 *   more channels, "should not rewrite or delete any global-scope Var";
 * - of conv2d to blocks with channels of two groups, such as any depthwise convolution: "Divide by
 *   zero" from TVM's Adreno lowering.
 *
 * Mechanism: each operator has its own rule. Those of the transposes compare the desired primal
 * rank with the current rank, so that 4 equals 4 although the packed layout has five axes. The rule
 * of conv2d checks only the extents of data and kernel.
 *
 * Here one rule serves all six: it packs if the blocks of data, kernel and result divide the
 * channels of a group, and uses a plain layout otherwise. On a CPU, this project lowers every
 * combination of layouts, so the result is packed even if the data, such as an image, cannot be;
 * and data and result of a depthwise convolution are packed together, but not its kernel.
 */
#include <string>

#include "../../ffi/registration.h"
#include "../ir/build.h"
#include "conv_attrs.h"
#include "infer_layout.h"
#include "op_attr.h"

namespace tvm_fixes {
namespace {

struct Convolution {
  StockOpAttr stock;
  int spatial_axes;
  bool transposed;

  const char* fix_id() const {
    return transposed ? "conv-transpose-infer-layout" : "conv-infer-layout";
  }
  const char* legalize_fix_id() const {
    return transposed ? "conv-transpose-legalize" : "conv-legalize";
  }
  const ConvAttrsNode& attrs() const {
    return transposed ? conv_transpose_attrs[spatial_axes - 1] : conv_attrs[spatial_axes - 1];
  }
  /*! \brief The kernel axis with the channels of all groups. */
  char kernel_channels() const { return transposed ? 'I' : 'O'; }
};

Convolution convolutions[] = {
    {{"relax.nn.conv1d", kInferLayout}, 1, false},
    {{"relax.nn.conv2d", kInferLayout}, 2, false},
    {{"relax.nn.conv3d", kInferLayout}, 3, false},
    {{"relax.nn.conv1d_transpose", kInferLayout}, 1, true},
    {{"relax.nn.conv2d_transpose", kInferLayout}, 2, true},
    {{"relax.nn.conv3d_transpose", kInferLayout}, 3, true},
};

/*! \brief Layouts of data, kernel and result, by axis names (NCHW) or relative (ABCD). */
struct Layouts {
  std::string data;
  std::string kernel;
  std::string out;
};

/*!
 * \brief The desired layouts, relative to the current ones.
 * \return std::nullopt if the operator is not listed.
 * \throws ValueError if the number of layouts is not two or three, or their axes are not the
 *        operator's.
 */
std::optional<Layouts> Desired(const char* op_name, const Layouts& present,
                               const DesiredLayouts& desired_layouts) {
  auto it = desired_layouts.find(op_name);
  if (it == desired_layouts.end()) return std::nullopt;
  const Array<String> layouts = (*it).second;
  if (layouts.size() != 2 && layouts.size() != 3) {
    TVM_FFI_THROW(ValueError) << op_name << ": expected two or three desired layouts (data, kernel "
                              << "and optionally out), got " << layouts.size();
  }
  auto relative = [&](const char* of, const std::string& names, const String& desired) {
    auto layout = RelativeLayout(names, desired);
    if (!layout) {
      TVM_FFI_THROW(ValueError) << op_name << ": expected a " << of << " layout with the axes of "
                                << names << ", in any order and optionally split as in 4c, got \""
                                << desired << '"';
    }
    return *layout;
  };
  return Layouts{relative("data", present.data, layouts[0]),
                 relative("kernel", present.kernel, layouts[1]),
                 relative("out", present.out, layouts.size() == 3 ? layouts[2] : layouts[0])};
}

/*!
 * \brief Whether a layout's blocks divide the axes that they split, and each lies in one group.
 * \param channels The axis with the channels of all groups.
 */
bool BlocksDivide(const ObjectRef& tensor, const std::string& names, char channels, int64_t groups,
                  const std::string& layout) {
  if (!IsPacked(layout)) return true;
  auto shape = ShapeOf(tensor);
  const size_t axis = names.find(channels);
  if (!shape || axis >= shape->size() || groups < 1) return false;
  if (auto extent = AsInt((*shape)[axis])) {
    shape->Set(axis, MakeIntImm("int64", *extent / groups));
  }
  return ShapeInLayout(*shape, layout).has_value();
}

/*! \brief Whether each output channel of a forward convolution reads one data channel. */
bool IsDepthwise(const Convolution& conv, const ObjectRef& kernel, const std::string& names,
                 int64_t groups) {
  auto shape = ShapeOf(kernel);
  if (!shape || conv.transposed || groups == 1) return false;
  return AsInt((*shape)[names.find('I')]) == 1 && AsInt((*shape)[names.find('O')]) == groups;
}

/*! \brief Accept the current layouts of data and kernel, unless they split axes. */
Layouts FollowInputs(const Layouts& present, const CallView& call, const VarLayouts& var_layouts) {
  auto follow = [&](const ObjectRef& arg, size_t ndim) {
    auto layout = LayoutOf(arg, var_layouts);
    return layout && IsPermutation(*layout, ndim) ? *layout : InitialLayout(ndim);
  };
  const std::string data = follow(call.args()[0], present.data.size());
  return {data, follow(call.args()[1], present.kernel.size()),
          present.out == present.data ? data : InitialLayout(present.out.size())};
}

/*! \brief Whether this project lowers calls on a CPU in any layouts. */
bool IsLoweredInAnyLayouts(const Convolution& conv) {
  static const GlobalFunction current("target.TargetCurrent");
  static const GlobalFunction device_type("target.TargetGetDeviceType");
  const auto target = current(true).cast<tvm::ffi::Optional<ObjectRef>>();
  return target.has_value() && device_type(target.value()).cast<int>() == kDLCPU &&
         ChoosesLayouts(conv.legalize_fix_id());
}

ObjectRef InferLayout(const Convolution& conv, const ObjectRef& call_ref,
                      const DesiredLayouts& desired_layouts, const VarLayouts& var_layouts) {
  auto call = As<CallView>(call_ref);
  const ConvAttrsNode& fields = conv.attrs();
  const bool usable = call && fields.IsInstance(call->attrs().get()) && call->args().size() == 2;
  if (!usable || !IsEnabled(conv.fix_id())) {
    return conv.stock(call_ref, desired_layouts, var_layouts);
  }
  NoteUse(conv.fix_id(), call_ref);
  const Object* attrs = call->attrs().get();
  const ObjectRef& data = call->args()[0];
  const ObjectRef& kernel = call->args()[1];
  const Layouts present{fields.data_layout(attrs), fields.kernel_layout(attrs),
                        fields.out_layout(attrs)};
  if (IsPacked(present.data) || IsPacked(present.kernel) || IsPacked(present.out)) {
    return RestoreLayouts(*call);
  }
  const int64_t groups = fields.groups(attrs);
  auto can_have = [&](const Layouts& wanted) {
    return IsConvertible(data, wanted.data, var_layouts) &&
           IsConvertible(kernel, wanted.kernel, var_layouts) &&
           BlocksDivide(data, present.data, 'C', groups, wanted.data) &&
           BlocksDivide(kernel, present.kernel, conv.kernel_channels(), groups, wanted.kernel) &&
           BlocksDivide(call_ref, present.out, 'C', groups, wanted.out);
  };
  auto decision = Desired(conv.stock.op_name(), present, desired_layouts);
  if (!decision || !can_have(*decision)) {
    const Layouts plain = FollowInputs(present, *call, var_layouts);
    const bool lowers = decision && IsPacked(decision->out) && IsLoweredInAnyLayouts(conv);
    if (lowers && IsDepthwise(conv, kernel, present.kernel, groups) &&
        IsConvertible(data, decision->data, var_layouts) &&
        BlocksDivide(data, present.data, 'C', 1, decision->data) &&
        BlocksDivide(call_ref, present.out, 'C', 1, decision->out)) {
      decision = {decision->data, plain.kernel, decision->out};
    } else {
      // The data layout determines how a grouped convolution is vectorized.
      const bool packs_out =
          lowers && groups == 1 && BlocksDivide(call_ref, present.out, 'C', groups, decision->out);
      decision = {plain.data, plain.kernel, packs_out ? decision->out : plain.out};
    }
  }
  const ObjectRef new_attrs = WithFields(
      call->attrs(), {{"data_layout", String(ApplyLayout(present.data, decision->data))},
                      {"kernel_layout", String(ApplyLayout(present.kernel, decision->kernel))},
                      {"out_layout", String(ApplyLayout(present.out, decision->out))}});
  return MakeInferLayoutOutput({decision->data, decision->kernel}, decision->out, new_attrs);
}

TVM_FIXES_INIT_BLOCK() {
  for (const Convolution& conv : convolutions) {
    auto infer_layout = [&conv](const ObjectRef& call, const DesiredLayouts& desired_layouts,
                                const VarLayouts& var_layouts) {
      return InferLayout(conv, call, desired_layouts, var_layouts);
    };
    OverrideOpAttr(conv.stock.op_name(), conv.stock.key(), Function::FromTyped(infer_layout));
  }
}

}  // namespace
}  // namespace tvm_fixes
