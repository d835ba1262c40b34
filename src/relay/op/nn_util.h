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
 * \file src/relay/op/nn_util.h
 * \brief Layouts and windows, for the type relations of the nn operators.
 */
#ifndef TVM_FIXES_RELAY_OP_NN_UTIL_H_
#define TVM_FIXES_RELAY_OP_NN_UTIL_H_

#include <string>
#include <vector>

#include "registry.h"

namespace tvm_fixes::relay {

/*! \brief A layout such as NCHW or NCHW4c. */
class Layout {
 public:
  /*! \brief Read a layout from an attribute; its axes must be those of `canonical`. */
  Layout(const InferContext& context, const char* attr, const std::string& canonical);
  /*! \brief Read a layout from text, which stems from this attribute. */
  Layout(const InferContext& context, const char* attr, const std::string& text,
         const std::string& canonical);

  /*! \brief The shape of an input in canonical order, with packed axes joined. */
  Shape ToCanonical(const InferContext& context, int input, const Shape& shape) const;
  /*! \brief The shape of a tensor in this layout. */
  Shape FromCanonical(const InferContext& context, const Shape& shape) const;
  /*! \brief The position of an axis. */
  size_t IndexOf(char letter) const;
  /*! \brief Fail if one of these axes is packed. */
  void CheckNotPacked(const InferContext& context, const std::string& letters) const;

 private:
  struct Axis {
    char letter;
    /*! \brief The extent of the packed part, or 0 for the axis itself. */
    int64_t factor;
  };

  int64_t Factor(char letter) const;

  const char* attr_;
  std::string canonical_;
  std::vector<Axis> axes_;
};

/*! \brief The letters of the last `count` of the spatial axes D, H and W. */
std::string SpatialAxes(size_t count);

/*! \brief The layout of the result: out_layout, or data_layout if it is empty. */
Layout OutLayout(const InferContext& context, const std::string& canonical);

/*! \brief Strides, dilation and the sum of both paddings of each spatial axis. */
struct Windows {
  Windows(const InferContext& context, size_t num_axes);

  std::vector<int64_t> strides;
  std::vector<int64_t> dilation;
  std::vector<int64_t> padding;
};

/*! \brief An array of `count` ints between 1 and 2^31. */
std::vector<int64_t> PositiveInts(const InferContext& context, const char* attr, size_t count);

/*! \brief For each axis the sum of the padding before and after it. */
std::vector<int64_t> TotalPadding(const InferContext& context, size_t num_axes);

/*! \brief (extent + padding - ((kernel - 1) * dilation + 1)) / stride + 1. */
Dim WindowCount(const InferContext& context, const Dim& extent, const Dim& kernel, int64_t dilation,
                int64_t padding, int64_t stride, bool ceil_mode = false);

/*! \brief Reject weights that a schedule has rewritten. */
void CheckNotRewritten(const InferContext& context);

/*! \brief Require an input of this shape, and give it this type if it has none. */
void ExpectInput(InferContext& context, int index, const Shape& shape, DLDataType dtype,
                 bool check_dtype = true);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_OP_NN_UTIL_H_
