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
 * \file src/relay/parser/scope.h
 * \brief Names that are visible in nested scopes.
 */
#ifndef TVM_FIXES_RELAY_PARSER_SCOPE_H_
#define TVM_FIXES_RELAY_PARSER_SCOPE_H_

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../ir/expr.h"

namespace tvm_fixes::relay {

/*! \brief A table of names; the end of an inner scope restores the names that it hides. */
template <typename Value>
class ScopedTable {
 public:
  /*! \brief The value of a name; null if it is not visible. */
  Value Find(std::string_view name) const {
    auto found = values_.find(name);
    return found == values_.end() ? Value() : found->second;
  }

  void Bind(std::string_view name, Value value) {
    Value& slot = values_[name];
    hidden_.emplace_back(name, std::move(slot));
    slot = std::move(value);
  }

  /*! \brief Begin a scope. */
  size_t Mark() const { return hidden_.size(); }

  /*! \brief End the scopes that began at or after a mark. */
  void Leave(size_t mark) {
    while (hidden_.size() > mark) {
      values_[hidden_.back().first] = std::move(hidden_.back().second);
      hidden_.pop_back();
    }
  }

 private:
  std::unordered_map<std::string_view, Value> values_;
  std::vector<std::pair<std::string_view, Value>> hidden_;
};

/*! \brief Expressions by number; numbers mostly begin at 0 and have no gaps. */
class NumberedTable {
 public:
  Expr Find(std::string_view number) const {
    size_t index = Index(number);
    if (index < dense_.size() && dense_[index].defined()) return dense_[index];
    auto found = sparse_.find(number);
    return found == sparse_.end() ? Expr() : found->second;
  }

  void Bind(std::string_view number, Expr expr) {
    size_t index = Index(number);
    if (index >= dense_.size() + kMaxGap) {
      sparse_[number] = std::move(expr);
      return;
    }
    if (index >= dense_.size()) dense_.resize(index + 1);
    dense_[index] = std::move(expr);
  }

 private:
  /*! \brief The index that the digits denote; SIZE_MAX if it is long or has leading zeros. */
  static size_t Index(std::string_view number) {
    if (number.size() > 9 || (number.size() > 1 && number[0] == '0')) return SIZE_MAX;
    size_t index = 0;
    for (char digit : number) index = index * 10 + static_cast<size_t>(digit - '0');
    return index;
  }

  static constexpr size_t kMaxGap = 1024;

  std::vector<Expr> dense_;
  std::unordered_map<std::string_view, Expr> sparse_;
};

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_PARSER_SCOPE_H_
