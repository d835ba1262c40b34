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

#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tvm_fixes::relay {

/*! \brief A table of names; what an inner scope hides comes back at its end. */
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

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_PARSER_SCOPE_H_
