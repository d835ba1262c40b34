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
 * \file src/relax/analysis/verifier/operators/elements.h
 * \brief Elements of small integer tensors that are computed from constants and shapes.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_VERIFIER_OPERATORS_ELEMENTS_H_
#define TVM_FIXES_RELAX_ANALYSIS_VERIFIER_OPERATORS_ELEMENTS_H_

#include <optional>
#include <vector>

#include "../verifier.h"

namespace tvm_fixes {
namespace verifier {

/*!
 * \brief The elements of a tensor or a shape in row-major order, as extents. Booleans are 0 and 1.
 *
 * An importer normalizes a negative index to where(i < 0, i + n, i), with n from the shape. For a
 * constant i, the result is known in terms of n.
 * \return std::nullopt if the elements are unknown or more than 1024.
 */
std::optional<std::vector<DimId>> ElementsOf(Verifier* verifier, const Object* expr);

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_OPERATORS_ELEMENTS_H_
