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
 * \file src/relay/ir/structural.cc
 * \brief Structural equality and hashing of deep programs without deep recursion.
 *
 * tvm-ffi compares the fields of a node recursively, but remembers the nodes that it has compared.
 * Functions therefore pass their nodes to it operands first: each comparison ends after one step.
 */
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <unordered_set>
#include <vector>

#include "../../ffi/registration.h"
#include "module.h"

namespace tvm_fixes::relay {
namespace {

namespace refl = tvm::ffi::reflection;

using Callback = tvm::ffi::Function;

/*! \brief A child of a node, and how variables in it are treated. */
struct Child {
  ObjectRef node;
  TVMFFIDefRegionKind region = kTVMFFIDefRegionKindNone;
};

/*! \brief Whether the walk stops at this node: its parent compares it. */
bool IsLeaf(const ObjectRef& node) {
  return node.as<VarObj>() || node.as<GlobalVarObj>() || node.as<OpObj>() ||
         node.as<ConstantObj>() || node.as<ConstructorObj>();
}

void AddAll(const Array<Expr>& exprs, std::vector<Child>* out) {
  for (const Expr& expr : exprs) out->push_back({expr});
}

void AddFunction(const FunctionObj* function, std::vector<Child>* out) {
  for (const ObjectRef& param : function->type_params) {
    out->push_back({param, kTVMFFIDefRegionKindPattern});
  }
  for (const Var& param : function->params) out->push_back({param, kTVMFFIDefRegionKindPattern});
  out->push_back({function->body});
}

/*! \brief The parts of a node in the order in which their variables are bound. */
std::vector<Child> ChildrenOf(const ObjectRef& node) {
  std::vector<Child> children;
  if (const auto* call = node.as<CallObj>()) {
    children.push_back({call->op});
    AddAll(call->args, &children);
  } else if (const auto* tuple = node.as<TupleObj>()) {
    AddAll(tuple->fields, &children);
  } else if (const auto* item = node.as<TupleGetItemObj>()) {
    children.push_back({item->tuple});
  } else if (const auto* let = node.as<LetObj>()) {
    // A function may call itself through the variable.
    if (let->value.as<FunctionObj>()) children.push_back({let->var, kTVMFFIDefRegionKindSimple});
    children.push_back({let->value});
    children.push_back({let->var, kTVMFFIDefRegionKindSimple});
    children.push_back({let->body});
  } else if (const auto* branch = node.as<IfObj>()) {
    children = {{branch->cond}, {branch->true_branch}, {branch->false_branch}};
  } else if (const auto* function = node.as<FunctionObj>()) {
    AddFunction(function, &children);
  } else if (const auto* create = node.as<RefCreateObj>()) {
    children.push_back({create->value});
  } else if (const auto* read = node.as<RefReadObj>()) {
    children.push_back({read->ref});
  } else if (const auto* write = node.as<RefWriteObj>()) {
    children = {{write->ref}, {write->value}};
  } else if (const auto* match = node.as<MatchObj>()) {
    children.push_back({match->data});
    for (const Clause& clause : match->clauses) {
      children.push_back({clause->lhs, kTVMFFIDefRegionKindPattern});
      children.push_back({clause->rhs});
    }
  }
  return children;
}

/*! \brief Set while a function is walked: functions inside it are part of the same walk. */
thread_local bool walking = false;

struct WalkScope {
  WalkScope() { walking = true; }
  ~WalkScope() { walking = false; }
};

struct EqualStep {
  Child lhs;
  ObjectRef rhs;
  bool expanded;
};

/*! \brief Compare all parts of two functions, operands first. */
bool WalkEqual(const Function& lhs, const Function& rhs, const Callback& equal) {
  std::vector<EqualStep> stack;
  std::unordered_set<const Object*> visited;
  auto expand = [&](const ObjectRef& left, const ObjectRef& right) {
    std::vector<Child> lefts = ChildrenOf(left);
    std::vector<Child> rights = ChildrenOf(right);
    if (lefts.size() != rights.size()) return false;
    for (size_t i = lefts.size(); i-- > 0;) stack.push_back({lefts[i], rights[i].node, false});
    return true;
  };
  if (!expand(lhs, rhs)) return false;
  while (!stack.empty()) {
    EqualStep step = stack.back();
    stack.pop_back();
    const ObjectRef& left = step.lhs.node;
    bool defines = step.lhs.region != kTVMFFIDefRegionKindNone;
    if (!left.defined() || !step.rhs.defined()) {
      if (left.defined() || step.rhs.defined()) return false;
      continue;
    }
    if (!step.expanded && !defines) {
      if (IsLeaf(left) || !visited.insert(left.get()).second) continue;
      if (left->type_index() != step.rhs->type_index()) return false;
      stack.push_back({step.lhs, step.rhs, true});
      if (!expand(left, step.rhs)) return false;
      continue;
    }
    if (!equal(left, step.rhs, static_cast<int>(step.lhs.region), "body").cast<bool>())
      return false;
  }
  return true;
}

bool FunctionEqual(const Function& lhs, const Function& rhs, const Callback& equal) {
  if (lhs->type_params.size() != rhs->type_params.size() ||
      lhs->params.size() != rhs->params.size()) {
    return false;
  }
  if (!walking) {
    WalkScope scope;
    if (!WalkEqual(lhs, rhs, equal)) return false;
  }
  int pattern = kTVMFFIDefRegionKindPattern;
  return equal(lhs->type_params, rhs->type_params, pattern, "type_params").cast<bool>() &&
         equal(lhs->params, rhs->params, pattern, "params").cast<bool>() &&
         equal(lhs->ret_type, rhs->ret_type, 0, "ret_type").cast<bool>() &&
         equal(lhs->body, rhs->body, 0, "body").cast<bool>() &&
         equal(lhs->attrs, rhs->attrs, 0, "attrs").cast<bool>();
}

/*! \brief Hash all parts of a function, operands first. */
int64_t WalkHash(const Function& function, int64_t hash, const Callback& combine) {
  std::vector<std::pair<Child, bool>> stack;
  std::unordered_set<const Object*> visited;
  auto expand = [&](const ObjectRef& node) {
    std::vector<Child> children = ChildrenOf(node);
    for (size_t i = children.size(); i-- > 0;) stack.push_back({children[i], false});
  };
  expand(function);
  while (!stack.empty()) {
    auto [child, expanded] = stack.back();
    stack.pop_back();
    if (!child.node.defined()) continue;
    if (!expanded && child.region == kTVMFFIDefRegionKindNone) {
      if (IsLeaf(child.node) || !visited.insert(child.node.get()).second) continue;
      stack.push_back({child, true});
      expand(child.node);
      continue;
    }
    hash = combine(child.node, hash, static_cast<int>(child.region)).cast<int64_t>();
  }
  return hash;
}

int64_t FunctionHash(const Function& function, int64_t hash, const Callback& combine) {
  if (!walking) {
    WalkScope scope;
    hash = WalkHash(function, hash, combine);
  }
  int pattern = kTVMFFIDefRegionKindPattern;
  hash = combine(function->type_params, hash, pattern).cast<int64_t>();
  hash = combine(function->params, hash, pattern).cast<int64_t>();
  hash = combine(function->ret_type, hash, 0).cast<int64_t>();
  hash = combine(function->body, hash, 0).cast<int64_t>();
  return combine(function->attrs, hash, 0).cast<int64_t>();
}

bool TypeDataEqual(const TypeData& lhs, const TypeData& rhs, const Callback& equal) {
  if (lhs->is_extern != rhs->is_extern) return false;
  if (!equal(lhs->header, rhs->header, 0, "header").cast<bool>() ||
      !equal(lhs->type_vars, rhs->type_vars, static_cast<int>(kTVMFFIDefRegionKindPattern),
             "type_vars")
           .cast<bool>() ||
      !equal(lhs->constructors, rhs->constructors, 0, "constructors").cast<bool>()) {
    return false;
  }
  for (size_t i = 0; i < lhs->constructors.size(); ++i) {
    if (!equal(lhs->constructors[i]->inputs, rhs->constructors[i]->inputs, 0, "inputs")
             .cast<bool>()) {
      return false;
    }
  }
  return true;
}

int64_t TypeDataHash(const TypeData& data, int64_t hash, const Callback& combine) {
  hash = combine(data->header, hash, 0).cast<int64_t>();
  hash =
      combine(data->type_vars, hash, static_cast<int>(kTVMFFIDefRegionKindPattern)).cast<int64_t>();
  hash = combine(data->constructors, hash, 0).cast<int64_t>();
  for (const Constructor& constructor : data->constructors) {
    hash = combine(constructor->inputs, hash, 0).cast<int64_t>();
  }
  return hash;
}

TVM_FIXES_INIT_BLOCK() {
  refl::TypeAttrDef<FunctionObj>()
      .def(refl::type_attr::kSEqual, FunctionEqual)
      .def(refl::type_attr::kSHash, FunctionHash);
  refl::TypeAttrDef<TypeDataObj>()
      .def(refl::type_attr::kSEqual, TypeDataEqual)
      .def(refl::type_attr::kSHash, TypeDataHash);
}

}  // namespace
}  // namespace tvm_fixes::relay
