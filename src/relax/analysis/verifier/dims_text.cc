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
 * \file src/relax/analysis/verifier/dims_text.cc
 * \brief Conversion of extents to expressions and text.
 */
#include <tvm/ffi/cast.h>

#include <string>

#include "../../../ffi/registration.h"
#include "../../ir/build.h"
#include "../../ir/views.h"
#include "dims.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief An operand, parenthesized unless it is a name, a number or a call. */
std::string Parenthesized(const std::string& text) {
  int depth = 0;
  for (char c : text) {
    depth += (c == '(') - (c == ')');
    if (c == ' ' && depth == 0) return "(" + text + ")";
  }
  return text;
}

}  // namespace

ObjectRef DimTable::ToExpr(DimId dim) const {
  static const GlobalFunction add("prim._OpAdd");
  static const GlobalFunction multiply("prim._OpMul");
  static const GlobalFunction operations[] = {
      GlobalFunction("prim._OpFloorDiv"), GlobalFunction("prim._OpFloorMod"),
      GlobalFunction("prim._OpTruncDiv"), GlobalFunction("prim._OpTruncMod"),
      GlobalFunction("prim._OpMin"),      GlobalFunction("prim._OpMax")};
  ObjectRef sum = MakeIntImm("int64", 0);
  for (const auto& [monomial, factor] : dims_[dim].polynomial) {
    ObjectRef product = MakeIntImm("int64", factor);
    for (AtomId id : monomial) {
      const Atom& atom = atoms_[id];
      ObjectRef value;
      if (atom.node != nullptr) {
        value = tvm::ffi::GetRef<ObjectRef>(atom.node);
      } else if (atom.op == Op::kAdd || atom.op == Op::kMul) {
        const GlobalFunction& combine = atom.op == Op::kAdd ? add : multiply;
        value = combine(ToExpr(atom.lhs), ToExpr(atom.rhs), nullptr).cast<ObjectRef>();
      } else {
        const auto& combine =
            operations[static_cast<int>(atom.op) - static_cast<int>(Op::kFloorDiv)];
        value = combine(ToExpr(atom.lhs), ToExpr(atom.rhs), nullptr).cast<ObjectRef>();
      }
      product = multiply(product, value, nullptr).cast<ObjectRef>();
    }
    sum = add(sum, product, nullptr).cast<ObjectRef>();
  }
  return sum;
}

std::string DimTable::AtomText(AtomId id) const {
  const Atom& atom = atoms_[id];
  const std::string lhs = Text(atom.lhs);
  const std::string rhs = Text(atom.rhs);
  switch (atom.op) {
    case Op::kVar:
      return std::string(VarView(atom.node).name());
    case Op::kAdd:
      return Parenthesized(lhs + " + " + rhs);
    case Op::kMul:
      return Parenthesized(lhs) + " * " + Parenthesized(rhs);
    case Op::kFloorDiv:
      return Parenthesized(lhs) + " // " + Parenthesized(rhs);
    case Op::kFloorMod:
      return Parenthesized(lhs) + " % " + Parenthesized(rhs);
    case Op::kTruncDiv:
      return "T.truncdiv(" + lhs + ", " + rhs + ")";
    case Op::kTruncMod:
      return "T.truncmod(" + lhs + ", " + rhs + ")";
    case Op::kMin:
      return "T.min(" + lhs + ", " + rhs + ")";
    case Op::kMax:
      return "T.max(" + lhs + ", " + rhs + ")";
    default:
      return "…";
  }
}

std::string DimTable::Text(DimId dim) const {
  if (dim == kUnknownDim) return "?";
  const Polynomial& polynomial = dims_[dim].polynomial;
  if (polynomial.empty()) return "0";
  std::string text;
  auto append = [&](const Monomial& monomial, int64_t factor) {
    if (text.empty()) {
      if (factor < 0) text += "-";
    } else {
      text += factor < 0 ? " - " : " + ";
    }
    const std::string number = std::to_string(factor);
    const std::string size = factor < 0 ? number.substr(1) : number;
    std::string product = size == "1" && !monomial.empty() ? "" : size;
    for (AtomId atom : monomial) {
      const std::string factor_text = AtomText(atom);
      const bool is_alone = factor == 1 && monomial.size() == 1;
      product +=
          is_alone ? factor_text : (product.empty() ? "" : " * ") + Parenthesized(factor_text);
    }
    text += product;
  };
  for (const auto& [monomial, factor] : polynomial) {
    if (!monomial.empty()) append(monomial, factor);
  }
  // The constant term, the empty monomial, sorts first but is printed last.
  if (polynomial.begin()->first.empty()) append({}, polynomial.begin()->second);
  return text;
}

}  // namespace verifier
}  // namespace tvm_fixes
