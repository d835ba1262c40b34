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
 * \file src/relay/parser/literal.h
 * \brief Numbers of Relay text.
 */
#ifndef TVM_FIXES_RELAY_PARSER_LITERAL_H_
#define TVM_FIXES_RELAY_PARSER_LITERAL_H_

#include <optional>
#include <string>
#include <string_view>

#include "../ir/expr.h"

namespace tvm_fixes::relay {

/*! \brief A number as written. */
struct Literal {
  DLDataType dtype;
  int64_t integer = 0;
  double real = 0;
};

/*!
 * \brief Read a number such as 3, 3i64, 5f, 1.0f16 or inff.
 * \param text The number without a sign.
 * \param negative Whether a minus sign precedes it.
 * \param problem Why there is no result.
 */
std::optional<Literal> ReadLiteral(std::string_view text, bool negative, std::string* problem);

/*! \brief A tensor without dimensions. */
Tensor ScalarTensor(const Literal& literal);

/*! \brief A scalar in the form that the parser reads, or std::nullopt if it has none. */
std::optional<std::string> LiteralText(const Tensor& scalar);

/*! \brief The shortest text that yields the same double, such as 1e-05; no suffix. */
std::string RealText(double value);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_PARSER_LITERAL_H_
