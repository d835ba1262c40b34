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
 * \file src/relax/ir/rewrite_each.h
 * \brief Rewrites arrays of nodes.
 */
#ifndef TVM_FIXES_RELAX_IR_REWRITE_EACH_H_
#define TVM_FIXES_RELAX_IR_REWRITE_EACH_H_

#include <vector>

#include "../../ffi/node_layout.h"

namespace tvm_fixes {

/*! \brief Apply `rewrite` to each element. Returns the array itself if it is null or unchanged. */
template <typename Rewrite>
Array<ObjectRef> RewriteEach(const Array<ObjectRef>& elements, const Rewrite& rewrite) {
  if (!elements.defined()) return elements;
  std::vector<ObjectRef> rewritten;
  rewritten.reserve(elements.size());
  bool changed = false;
  for (const ObjectRef& element : elements) {
    rewritten.push_back(rewrite(element));
    changed |= !rewritten.back().same_as(element);
  }
  return changed ? Array<ObjectRef>(rewritten.begin(), rewritten.end()) : elements;
}

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_IR_REWRITE_EACH_H_
