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
 * \file src/relax/analysis/integer_division.h
 * \brief Floor division of int64 that never traps.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_INTEGER_DIVISION_H_
#define TVM_FIXES_RELAX_ANALYSIS_INTEGER_DIVISION_H_

#include <cstdint>

namespace tvm_fixes {

/*!
 * \brief Whether the division is defined: processors trap on division by 0 and on INT64_MIN / -1.
 */
inline bool CanDivide(int64_t lhs, int64_t rhs) {
  return rhs != 0 && !(rhs == -1 && lhs == INT64_MIN);
}

/*! \brief The quotient, rounded down. Requires CanDivide. */
inline int64_t FloorQuotient(int64_t lhs, int64_t rhs) {
  const int64_t quotient = lhs / rhs;
  return lhs % rhs != 0 && (lhs < 0) != (rhs < 0) ? quotient - 1 : quotient;
}

/*!
 * \brief The remainder of FloorQuotient. Requires CanDivide. Not computed from the quotient, since
 *        the product with the divisor may overflow.
 */
inline int64_t FloorRemainder(int64_t lhs, int64_t rhs) {
  const int64_t remainder = lhs % rhs;
  return remainder != 0 && (lhs < 0) != (rhs < 0) ? remainder + rhs : remainder;
}

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_INTEGER_DIVISION_H_
