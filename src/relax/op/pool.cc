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
 * \file src/relax/op/pool.cc
 * \brief Type inference of relax.nn.max_pool1d, 2d and 3d, and avg_pool1d, 2d and 3d.
 *
 * Trigger: ceil_mode along a symbolic extent, where the last window may begin beyond the data, for
 * example windows of 2 elements with a stride of 3. Mechanism: the rules exclude such a window
 * with if_then_else, which Relax treats as a Relax operator.
 */
#include <algorithm>

#include "../ir/build.h"
#include "op_attr.h"
#include "pool_attrs.h"

namespace tvm_fixes {
namespace {

/*! \brief The attributes of a windowed pooling. */
struct PoolWindowAttrsNode : PoolAttrsNode {
  using PoolAttrsNode::PoolAttrsNode;
  Field<Array<int64_t>> pool_size{this, {"pool_size"}};
  Field<Array<int64_t>> strides{this, {"strides"}};
  /*! \brief The padding before each spatial axis, then after each. */
  Field<Array<int64_t>> padding{this, {"padding"}};
  Field<Array<int64_t>> dilation{this, {"dilation"}};
  Field<bool> ceil_mode{this, {"ceil_mode"}};
};

/*! \brief Indexed by the number of spatial axes minus one. */
PoolWindowAttrsNode pool_window_attrs[3] = {"relax.attrs.Pool1DAttrs", "relax.attrs.Pool2DAttrs",
                                            "relax.attrs.Pool3DAttrs"};

constexpr const char* kCeilModeFix = "pool-ceil-mode";

/*! \brief TVM's rules for max and average pooling, by the number of spatial axes minus one. */
StockOpAttr stock_pool_rules[2][3] = {{{"relax.nn.max_pool1d", kInferType},
                                       {"relax.nn.max_pool2d", kInferType},
                                       {"relax.nn.max_pool3d", kInferType}},
                                      {{"relax.nn.avg_pool1d", kInferType},
                                       {"relax.nn.avg_pool2d", kInferType},
                                       {"relax.nn.avg_pool3d", kInferType}}};

/*! \brief Whether an extent of a tensor type is a call. */
bool HasCall(const ObjectRef& type) {
  auto dims = ShapeOfType(type);
  return dims && std::any_of(dims->begin(), dims->end(),
                             [](const ObjectRef& dim) { return nodes.call.IsInstance(dim.get()); });
}

/*!
 * \brief The attributes of an equivalent pooling without ceil_mode; null if the padding exceeds the
 *        window.
 *
 * ceil_mode gives the same windows as floor mode with stride - 1 more padding at the end. The
 * padding is capped at the dilated window minus 1, so that each window begins in the data.
 */
ObjectRef RoundedDown(const ObjectRef& attrs, const PoolWindowAttrsNode& fields, size_t axes) {
  const Array<int64_t>& sizes = fields.pool_size(attrs.get());
  const Array<int64_t>& strides = fields.strides(attrs.get());
  const Array<int64_t>& dilation = fields.dilation(attrs.get());
  Array<int64_t> padding = fields.padding(attrs.get());
  if (sizes.size() != axes || strides.size() != axes || dilation.size() != axes ||
      padding.size() != 2 * axes) {
    return ObjectRef(nullptr);
  }
  for (size_t axis = 0; axis < axes; ++axis) {
    const int64_t reach = dilation[axis] * (sizes[axis] - 1);
    const int64_t end = padding[axis + axes];
    if (end > reach) return ObjectRef(nullptr);
    padding.Set(axis + axes, std::min(end + strides[axis] - 1, reach));
  }
  return WithFields(attrs, {{"padding", padding}, {"ceil_mode", false}});
}

ObjectRef InferType(const StockOpAttr& rule, size_t axes, const ObjectRef& call_ref,
                    const ObjectRef& builder) {
  const ObjectRef type = rule(call_ref, builder);
  auto call = As<CallView>(call_ref);
  const PoolWindowAttrsNode& fields = pool_window_attrs[axes - 1];
  if (!call || !fields.IsInstance(call->attrs().get()) || !HasCall(type)) return type;
  if (!fields.ceil_mode(call->attrs().get()) || !IsEnabled(kCeilModeFix)) return type;
  const ObjectRef attrs = RoundedDown(call->attrs(), fields, axes);
  if (!attrs.defined()) return type;
  NoteUse(kCeilModeFix, call_ref);
  return rule(
      MakeCall(call->op(), call->args(), attrs, call->ty_args(), nodes.expr.span(call_ref.get())),
      builder);
}

TVM_FIXES_INIT_BLOCK() {
  for (const auto& rules : stock_pool_rules) {
    for (size_t axes = 1; axes <= 3; ++axes) {
      const StockOpAttr* rule = &rules[axes - 1];
      auto infer_type = [rule, axes](const ObjectRef& call, const ObjectRef& builder) {
        return InferType(*rule, axes, call, builder);
      };
      OverrideOpAttr(rule->op_name(), kInferType, Function::FromTyped(infer_type));
    }
  }
}

}  // namespace
}  // namespace tvm_fixes
