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
 * \file old_calls.h
 * \brief Calls as older versions of TVM write them.
 */
#ifndef TVM_FIXES_RELAY_OP_OLD_CALLS_H_
#define TVM_FIXES_RELAY_OP_OLD_CALLS_H_

#include "../ir/expr.h"

namespace tvm_fixes::relay {

/*! \brief The TVM that wrote a program. */
struct ProgramVersion {
  /*! \brief 6 to 19; 0 if the program does not say. */
  int minor = 0;
  /*! \brief Whether it is a state of the sources before the release. */
  bool is_unreleased = false;

  bool IsBefore(int other) const { return minor != 0 && minor < other; }
};

/*!
 * \brief A call in the form of TVM 0.19.
 *
 * Inputs that were attributes, or that are new, become constants. What an operator of the same
 * form means is decided by the version, and is that of TVM 0.19 if the program does not say it.
 */
Call UpdateCall(Expr op, Array<Expr> args, Attrs attrs, Array<Type> type_args,
                const ProgramVersion& version);

/*!
 * \brief Whether a call returns indices in the dtype of its operand's extents.
 *
 * In rare programs that is int64. Here, extents have no dtype and such calls return int32.
 */
bool ReturnsIndices(const Expr& op);

/*! \brief Such a call of a program that says its type is int64. */
Call WideIndices(const Call& call);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_OP_OLD_CALLS_H_
