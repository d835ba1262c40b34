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
 * \file src/relax/analysis/verifier/operators/non_max_suppression.cc
 * \brief Obligations of all_class_non_max_suppression.
 */
#include "obligations.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief Boxes (batch, boxes, 4) and scores (batch, classes, boxes). */
void AllClassNonMaxSuppression(Obligations* obligations) {
  for (size_t arg : {0, 1}) {
    if (!obligations->HasRank(arg, 3) || !obligations->HasExtents(arg)) return;
    if (obligations->Tensor(arg) == nullptr) return;
  }
  obligations->Equal(obligations->Dim(0, 2), obligations->Attribute(4, "corners of a box"));
  obligations->Equal(obligations->Dim(1, 0), obligations->Dim(0, 0));
  obligations->Equal(obligations->Dim(1, 2), obligations->Dim(0, 1));
}

TVM_FIXES_INIT_BLOCK() {
  RegisterObligations("op.boxes", AllClassNonMaxSuppression,
                      {"relax.vision.all_class_non_max_suppression"});
}

}  // namespace

}  // namespace verifier
}  // namespace tvm_fixes
