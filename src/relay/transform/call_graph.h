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
 * \file src/relay/transform/call_graph.h
 * \brief The calls between the functions of a module.
 */
#ifndef TVM_FIXES_RELAY_TRANSFORM_CALL_GRAPH_H_
#define TVM_FIXES_RELAY_TRANSFORM_CALL_GRAPH_H_

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../ir/visitor.h"

namespace tvm_fixes::relay {

/*! \brief The callers and callees of functions, by name. */
class CallGraph {
 public:
  explicit CallGraph(const IRModule& module) {
    for (const auto& [name, function] : module->functions) {
      Node& node = nodes_[name];
      node.function = function;
      PostOrder(function, [&](const Expr& expr) {
        ++node.size;
        const auto* call = expr.as<CallObj>();
        const auto* callee = call == nullptr ? nullptr : call->op.as<GlobalVarObj>();
        if (callee != nullptr) ++calls_[callee->name];
        ForEachChild(expr, [&](const Expr& child) {
          const auto* global = child.as<GlobalVarObj>();
          if (global == nullptr) return;
          ++references_[global->name];
          node.callees.insert(global->name);
        });
      });
    }
    FindOrder();
  }

  struct Node {
    Function function;
    int64_t size = 0;
    std::unordered_set<std::string> callees;
    /*! \brief Whether it calls itself, directly or through others. */
    bool is_recursive = false;
    /*! \brief Whether it calls itself through others. */
    bool is_in_cycle = false;
    int index = -1;
    int low = -1;
    bool on_stack = false;
  };

  /*! \brief The names, each after those that it calls unless they call each other. */
  const std::vector<std::string>& order() const { return order_; }
  const Node* Find(const std::string& name) const {
    auto found = nodes_.find(name);
    return found == nodes_.end() ? nullptr : &found->second;
  }
  Node& At(const std::string& name) { return nodes_.at(name); }
  int References(const std::string& name) const { return Count(references_, name); }
  /*! \brief Whether each reference is a call. */
  bool IsOnlyCalled(const std::string& name) const {
    return Count(calls_, name) == References(name);
  }

 private:
  using Counts = std::unordered_map<std::string, int>;
  static int Count(const Counts& counts, const std::string& name) {
    auto found = counts.find(name);
    return found == counts.end() ? 0 : found->second;
  }

  struct Visit {
    std::string name;
    std::vector<std::string> callees;
    size_t next = 0;
  };

  /*! \brief Tarjan's algorithm: the strongly connected components, callees first. */
  void FindOrder() {
    for (const auto& [name, node] : nodes_) {
      if (node.index < 0) FindFrom(name);
    }
  }

  void Open(const std::string& name) {
    Node& node = nodes_.at(name);
    node.index = node.low = counter_++;
    node.on_stack = true;
    component_.push_back(name);
    visits_.push_back({name, {node.callees.begin(), node.callees.end()}});
  }

  void FindFrom(const std::string& root) {
    Open(root);
    while (!visits_.empty()) {
      Visit& visit = visits_.back();
      Node& node = nodes_.at(visit.name);
      if (visit.next < visit.callees.size()) {
        auto callee = nodes_.find(visit.callees[visit.next++]);
        if (callee == nodes_.end()) continue;
        if (callee->second.index < 0) {
          Open(callee->first);
        } else if (callee->second.on_stack) {
          node.low = std::min(node.low, callee->second.index);
        }
        continue;
      }
      std::string name = visit.name;
      visits_.pop_back();
      if (!visits_.empty()) {
        Node& caller = nodes_.at(visits_.back().name);
        caller.low = std::min(caller.low, node.low);
      }
      if (node.low == node.index) Close(name);
    }
  }

  void Close(const std::string& root) {
    bool is_alone = component_.back() == root;
    std::string name;
    do {
      name = component_.back();
      component_.pop_back();
      Node& node = nodes_.at(name);
      node.on_stack = false;
      node.is_in_cycle = !is_alone;
      node.is_recursive = !is_alone || node.callees.count(name) != 0;
      order_.push_back(name);
    } while (name != root);
  }

  std::map<std::string, Node> nodes_;
  Counts references_;
  Counts calls_;
  std::vector<std::string> order_;
  std::vector<std::string> component_;
  std::vector<Visit> visits_;
  int counter_ = 0;
};

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_TRANSFORM_CALL_GRAPH_H_
