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
 * \file src/relax/analysis/verifier/operators/layouts.h
 * \brief Tensor extents by axis name, for layouts such as "NCHW4c".
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_VERIFIER_OPERATORS_LAYOUTS_H_
#define TVM_FIXES_RELAX_ANALYSIS_VERIFIER_OPERATORS_LAYOUTS_H_

#include <optional>
#include <string>
#include <vector>

#include "../../../op/infer_layout.h"
#include "obligations.h"

namespace tvm_fixes {
namespace verifier {

/*! \brief The axes of a tensor, by name. */
struct Layout {
  std::string name;
  std::vector<LayoutAxis> axes;

  /*!
   * \brief Parse a layout. Each axis may be split in blocks.
   * \param letters The required axes, such as "NCHW", in any order.
   * \return std::nullopt if `name` is not such a layout.
   */
  static std::optional<Layout> Parse(const std::string& name, const std::string& letters);
};

/*! \brief Require that an argument has the rank of its layout. */
bool HasRankOf(Obligations* obligations, size_t arg, const Layout& layout);

/*! \brief The extent of an argument along an axis of a layout, including its blocks. */
Extent ExtentOf(Obligations* obligations, size_t arg, const Layout& layout, char axis,
                const char* what);

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_OPERATORS_LAYOUTS_H_
