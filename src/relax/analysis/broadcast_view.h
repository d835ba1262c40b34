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
 * \file src/relax/analysis/broadcast_view.h
 * \brief A tensor as broadcasts, repetitions, permutes and reshapes of a smaller one.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_BROADCAST_VIEW_H_
#define TVM_FIXES_RELAX_ANALYSIS_BROADCAST_VIEW_H_

#include <optional>
#include <vector>

#include "../ir/views.h"
#include "axis_permutation.h"
#include "scalars.h"

namespace tvm_fixes {

/*! \brief A factor of an axis, other than 1, along which the elements either vary or repeat. */
struct AxisPart {
  ObjectRef extent;
  bool is_repeated;
};
using AxisParts = std::vector<AxisPart>;

/*!
 * \brief The axes of a value in terms of a smaller tensor, its source.
 *
 * The parts that are not repeated, outermost first, enumerate the elements of the source in order.
 */
struct BroadcastView {
  std::vector<AxisParts> axes;

  /*! \brief The extents of the parts that vary, in order. */
  Array<ObjectRef> SourceShape() const;
  bool IsRepeated() const;
};

bool IsRepeated(const AxisParts& parts);

/*! \brief The effect of one operator on a view. */
struct BroadcastStep {
  BroadcastView view;
  /*! \brief The permutation that the source needs, or std::nullopt if its order is kept. */
  std::optional<AxisPermutation> permutation;
};

/*! \brief A tensor of this shape as a view of itself. */
BroadcastView ViewOfShape(const Array<ObjectRef>& shape);

/*! \brief Merge adjacent parts of one kind. If one part is left, its extent is `whole`. */
AxisParts MergeParts(const Scalars& scalars, const AxisParts& parts, const ObjectRef& whole);

/*! \brief Whether a call only moves or repeats the elements of its first operand. */
bool IsBroadcastStep(const CallView& call);

/*!
 * \brief The result of a call whose first argument is the view `operand`.
 * \return std::nullopt if the result is not a view, or symbolic extents leave that undecided.
 */
std::optional<BroadcastStep> FollowStep(const Scalars& scalars, const BroadcastView& operand,
                                        const CallView& call);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_BROADCAST_VIEW_H_
