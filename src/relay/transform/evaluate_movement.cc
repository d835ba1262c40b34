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
 * \file src/relay/transform/evaluate_movement.cc
 * \brief Operators that move or create elements, on small constants.
 */
#include <algorithm>
#include <cmath>

#include "evaluate.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The same elements under another shape. */
bool Reshape(Evaluation& e) {
  if (e.inputs.empty() || e.inputs[0].size() != e.result.size()) return false;
  e.result.elements = e.inputs[0].elements;
  return true;
}

bool Where(Evaluation& e) {
  if (e.inputs.size() != 3) return false;
  for (const ConstValue& input : e.inputs) {
    if (!Broadcasts(input.shape, e.result.shape)) return false;
  }
  for (int64_t i = 0; i < e.result.size(); ++i) {
    auto element = [&](int input) {
      const ConstValue& value = e.inputs[input];
      return value.elements[BroadcastIndex(i, e.result.shape, value.shape)];
    };
    const ConstValue& cond = e.inputs[0];
    // A vector may select along the first axis, in old versions.
    if (cond.ndim() == 1 && e.result.ndim() > 1) return false;
    bool is_true = cond.is_float() ? element(0).f != 0 : element(0).i != 0;
    e.result.elements[i] = element(is_true ? 1 : 2);
  }
  return true;
}

/*! \brief An index into `extent` elements by the mode of take, or -1. */
int64_t TakeIndex(int64_t index, int64_t extent, const std::string& mode) {
  if (extent == 0) return -1;
  if (mode == "clip") return std::clamp<int64_t>(index, 0, extent - 1);
  if (mode == "wrap") return (index % extent + extent) % extent;
  return index < 0 || index >= extent ? -1 : index;
}

bool Take(Evaluation& e) {
  if (e.inputs.size() != 2 || e.inputs[1].is_float()) return false;
  if (e.call.Has("batch_dims") && e.call.Int("batch_dims") != 0) return false;
  const ConstValue& data = e.inputs[0];
  const ConstValue& indices = e.inputs[1];
  std::string mode = e.call.Has("mode") ? e.call.Str("mode") : "clip";
  if (!e.call.Has("axis")) {
    if (indices.size() != e.result.size()) return false;
    for (int64_t i = 0; i < e.result.size(); ++i) {
      int64_t index = TakeIndex(indices.elements[i].i, data.size(), mode);
      if (index < 0) return false;
      e.result.elements[i] = data.elements[index];
    }
    return true;
  }
  int64_t axis = e.call.Axis("axis", data.ndim());
  if (e.result.ndim() != data.ndim() - 1 + indices.ndim()) return false;
  for (int64_t i = 0; i < e.result.size(); ++i) {
    std::vector<int64_t> at = Unravel(i, e.result.shape);
    auto first = at.begin() + axis;
    std::vector<int64_t> index_at(first, first + indices.ndim());
    std::vector<int64_t> source(at.begin(), first);
    int64_t index = indices.elements[Ravel(index_at, indices.shape)].i;
    source.push_back(TakeIndex(index, data.shape[axis], mode));
    if (source.back() < 0) return false;
    source.insert(source.end(), first + indices.ndim(), at.end());
    e.result.elements[i] = data.elements[Ravel(source, data.shape)];
  }
  return true;
}

bool Gather(Evaluation& e) {
  if (e.inputs.size() != 2 || e.inputs[1].is_float()) return false;
  const ConstValue& data = e.inputs[0];
  int64_t axis = e.call.Axis("axis", data.ndim());
  if (e.inputs[1].shape != e.result.shape || e.result.ndim() != data.ndim()) return false;
  for (int64_t i = 0; i < e.result.size(); ++i) {
    std::vector<int64_t> at = Unravel(i, e.result.shape);
    at[axis] = e.inputs[1].elements[i].i;
    for (int64_t d = 0; d < data.ndim(); ++d) {
      if (at[d] < 0 || at[d] >= data.shape[d]) return false;
    }
    e.result.elements[i] = data.elements[Ravel(at, data.shape)];
  }
  return true;
}

bool Concatenate(Evaluation& e) {
  int64_t axis = e.call.Axis("axis", e.result.ndim());
  int64_t offset = 0;
  for (const ConstValue& input : e.inputs) {
    std::vector<int64_t> rest = input.shape;
    if (input.ndim() != e.result.ndim()) return false;
    rest[axis] = e.result.shape[axis];
    if (rest != e.result.shape || offset + input.shape[axis] > rest[axis]) return false;
    for (int64_t i = 0; i < input.size(); ++i) {
      std::vector<int64_t> at = Unravel(i, input.shape);
      at[axis] += offset;
      e.result.elements[Ravel(at, e.result.shape)] = input.elements[i];
    }
    offset += input.shape[axis];
  }
  return offset == e.result.shape[axis];
}

bool Stack(Evaluation& e) {
  int64_t axis = e.call.Axis("axis", e.result.ndim());
  if (static_cast<size_t>(e.result.shape[axis]) != e.inputs.size()) return false;
  for (size_t k = 0; k < e.inputs.size(); ++k) {
    const ConstValue& input = e.inputs[k];
    std::vector<int64_t> shape = input.shape;
    if (input.ndim() + 1 != e.result.ndim()) return false;
    shape.insert(shape.begin() + axis, e.result.shape[axis]);
    if (shape != e.result.shape) return false;
    for (int64_t i = 0; i < input.size(); ++i) {
      std::vector<int64_t> at = Unravel(i, input.shape);
      at.insert(at.begin() + axis, static_cast<int64_t>(k));
      e.result.elements[Ravel(at, e.result.shape)] = input.elements[i];
    }
  }
  return true;
}

bool Transpose(Evaluation& e) {
  if (e.inputs.size() != 1) return false;
  const ConstValue& data = e.inputs[0];
  std::vector<int64_t> axes;
  if (e.call.Has("axes")) axes = e.call.Ints("axes");
  // By default, the axes are reversed.
  if (axes.empty()) {
    for (int64_t i = data.ndim(); i-- > 0;) axes.push_back(i);
  }
  if (static_cast<int64_t>(axes.size()) != data.ndim()) return false;
  if (e.result.ndim() != data.ndim()) return false;
  for (int64_t i = 0; i < e.result.size(); ++i) {
    std::vector<int64_t> at = Unravel(i, e.result.shape);
    std::vector<int64_t> source(at.size());
    for (size_t k = 0; k < axes.size(); ++k) {
      source[e.call.CheckAxis("axes", axes[k], data.ndim())] = at[k];
    }
    e.result.elements[i] = data.elements[Ravel(source, data.shape)];
  }
  return true;
}

/*! \brief Where a slice begins, as an index that exists if the slice is not empty. */
int64_t SliceBegin(int64_t begin, int64_t extent, int64_t stride) {
  if (begin < 0) begin += extent;
  return stride < 0 ? std::clamp<int64_t>(begin, -1, extent - 1)
                    : std::clamp<int64_t>(begin, 0, extent);
}

bool StridedSlice(Evaluation& e) {
  if (e.inputs.size() != 1) return false;
  const ConstValue& data = e.inputs[0];
  std::vector<int64_t> begin = e.call.Ints("begin");
  std::vector<int64_t> strides =
      e.call.Has("strides") ? e.call.Ints("strides") : std::vector<int64_t>{1};
  bool by_size = e.call.Has("slice_mode") && e.call.Str("slice_mode") == "size";
  std::vector<int64_t> axes;
  if (e.call.Has("axes")) axes = e.call.Ints("axes");
  bool named = !axes.empty();
  std::vector<int64_t> first(data.ndim(), 0);
  std::vector<int64_t> step(data.ndim(), 1);
  for (size_t i = 0; i < begin.size(); ++i) {
    if (named && i >= axes.size()) return false;
    if (!named && static_cast<int64_t>(i) >= data.ndim()) return false;
    int64_t axis = named ? e.call.CheckAxis("axes", axes[i], data.ndim()) : i;
    int64_t stride = strides.size() == 1 ? strides[0] : (i < strides.size() ? strides[i] : 1);
    step[axis] = by_size ? 1 : stride;
    first[axis] = SliceBegin(begin[i], data.shape[axis], step[axis]);
  }
  if (e.result.ndim() != data.ndim()) return false;
  for (int64_t i = 0; i < e.result.size(); ++i) {
    std::vector<int64_t> at = Unravel(i, e.result.shape);
    for (int64_t d = 0; d < data.ndim(); ++d) {
      if (step[d] == 0) return false;
      at[d] = first[d] + at[d] * step[d];
      if (at[d] < 0 || at[d] >= data.shape[d]) return false;
    }
    e.result.elements[i] = data.elements[Ravel(at, data.shape)];
  }
  return true;
}

bool Reverse(Evaluation& e) {
  if (e.inputs.size() != 1 || e.inputs[0].shape != e.result.shape) return false;
  const std::vector<int64_t>& shape = e.result.shape;
  int64_t axis = e.call.Axis("axis", e.result.ndim());
  for (int64_t i = 0; i < e.result.size(); ++i) {
    std::vector<int64_t> at = Unravel(i, shape);
    at[axis] = shape[axis] - 1 - at[axis];
    e.result.elements[i] = e.inputs[0].elements[Ravel(at, shape)];
  }
  return true;
}

bool Fill(Evaluation& e, const Scalar& scalar) {
  std::fill(e.result.elements.begin(), e.result.elements.end(), scalar);
  return true;
}

bool Zeros(Evaluation& e) { return Fill(e, {0, 0}); }

bool Ones(Evaluation& e) { return Fill(e, {1, 1}); }

bool Full(Evaluation& e) {
  if (e.inputs.empty() || e.inputs[0].size() != 1) return false;
  if (!SameDType(e.inputs[0].dtype, e.result.dtype)) return false;
  return Fill(e, e.inputs[0].elements[0]);
}

bool BroadcastTo(Evaluation& e) {
  if (e.inputs.empty() || !SameDType(e.inputs[0].dtype, e.result.dtype)) return false;
  const ConstValue& data = e.inputs[0];
  if (!Broadcasts(data.shape, e.result.shape)) return false;
  for (int64_t i = 0; i < e.result.size(); ++i) {
    e.result.elements[i] = data.elements[BroadcastIndex(i, e.result.shape, data.shape)];
  }
  return true;
}

/*! \brief Only integers: the rounding of floats depends on the compiled operator. */
bool Arange(Evaluation& e) {
  if (e.inputs.size() != 3 || e.result.is_float()) return false;
  for (const ConstValue& input : e.inputs) {
    if (input.size() != 1 || input.is_float()) return false;
  }
  int64_t start = e.inputs[0].elements[0].i;
  int64_t step = e.inputs[2].elements[0].i;
  for (int64_t i = 0; i < e.result.size(); ++i) {
    auto value = static_cast<int64_t>(static_cast<uint64_t>(start) +
                                      static_cast<uint64_t>(i) * static_cast<uint64_t>(step));
    e.result.elements[i].i = WrapInt(value, e.result.dtype);
  }
  return true;
}

bool Tile(Evaluation& e) {
  if (e.inputs.size() != 1 || e.inputs[0].size() == 0) return false;
  const ConstValue& data = e.inputs[0];
  if (data.ndim() > e.result.ndim()) return false;
  for (int64_t i = 0; i < e.result.size(); ++i) {
    std::vector<int64_t> at = Unravel(i, e.result.shape);
    at.erase(at.begin(), at.end() - data.ndim());
    for (int64_t d = 0; d < data.ndim(); ++d) at[d] %= data.shape[d];
    e.result.elements[i] = data.elements[Ravel(at, data.shape)];
  }
  return true;
}

}  // namespace

const EvaluatorTable& MovementEvaluators() {
  static const EvaluatorTable table = {
      {"reshape", Reshape},
      {"reshape_like", Reshape},
      {"contrib_reverse_reshape", Reshape},
      {"squeeze", Reshape},
      {"expand_dims", Reshape},
      {"copy", Reshape},
      {"where", Where},
      {"take", Take},
      {"gather", Gather},
      {"concatenate", Concatenate},
      {"stack", Stack},
      {"transpose", Transpose},
      {"strided_slice", StridedSlice},
      {"reverse", Reverse},
      {"zeros", Zeros},
      {"ones", Ones},
      {"zeros_like", Zeros},
      {"ones_like", Ones},
      {"full", Full},
      {"broadcast_to", BroadcastTo},
      {"arange", Arange},
      {"tile", Tile},
  };
  return table;
}

}  // namespace tvm_fixes::relay
