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
 * \file src/relax/analysis/verifier/type_fit.cc
 * \brief Matching of types, and binding of symbols.
 */
#include <algorithm>
#include <string>
#include <utility>

#include "diagnostic.h"
#include "types.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief Record a mismatch of part of two types. */
void Note(Fit* fit, Relation relation, const std::string& where, const std::string& reason) {
  if (relation == Relation::kProved) return;
  // Proven mismatches replace unknown ones.
  if (relation == Relation::kDisproved && fit->relation == Relation::kUnknown) fit->reasons.clear();
  const bool is_told = relation == Relation::kDisproved || fit->relation != Relation::kDisproved;
  fit->relation = Both(fit->relation, relation);
  if (is_told) fit->reasons.push_back(where + reason);
}

}  // namespace

Fit TypeTable::Compare(TypeId expected, TypeId actual) {
  Fit fit;
  if (expected == actual) return fit;
  Match(expected, actual, "", nullptr, &fit);
  return fit;
}

Fit TypeTable::Match(TypeId expected, TypeId actual, DimTable::Substitution* values) {
  Fit fit;
  Match(expected, actual, "", values, &fit);
  return fit;
}

void TypeTable::Match(TypeId expected_id, TypeId actual_id, const std::string& where,
                      DimTable::Substitution* values, Fit* fit) {
  if (expected_id == kUnknownType || actual_id == kUnknownType) return;
  const TypeInfo& expected = types_[expected_id];
  const TypeInfo& actual = types_[actual_id];
  if (expected.type_class == TypeClass::kAny) return;
  if (actual.type_class == TypeClass::kAny) {
    fit->narrows = true;
    return Note(fit, Relation::kUnknown, where,
                "expected " + Text(expected_id) + ", got " + Text(actual_id));
  }
  if (expected.type_class != actual.type_class) {
    return Note(fit, Relation::kDisproved, where,
                "expected " + Text(expected_id) + ", got " + Text(actual_id));
  }
  switch (expected.type_class) {
    case TypeClass::kTensor:
      return MatchTensor(expected, actual, where, values, fit);
    case TypeClass::kShape:
      return MatchDims(expected, actual, where, values, fit);
    case TypeClass::kPrim:
      if (!SameDtype(expected.dtype, actual.dtype)) {
        Note(fit, Relation::kDisproved, where,
             "dtype: " + DtypeText(actual.dtype) + " != " + DtypeText(expected.dtype));
      }
      return;
    case TypeClass::kTuple:
      if (expected.fields.size() != actual.fields.size()) {
        return Note(fit, Relation::kDisproved, where,
                    "a tuple of " + Count(actual.fields.size(), "field") + ", expected " +
                        std::to_string(expected.fields.size()));
      }
      for (size_t i = 0; i < expected.fields.size(); ++i) {
        Match(expected.fields[i], actual.fields[i], where + "field " + std::to_string(i) + ", ",
              values, fit);
      }
      return;
    case TypeClass::kFunction: {
      if (expected.is_pure && !actual.is_pure) {
        Note(fit, Relation::kDisproved, where, "expected a pure function, got an impure one");
      }
      if (!expected.has_params || !actual.has_params) return;
      if (expected.fields.size() != actual.fields.size()) {
        return Note(fit, Relation::kDisproved, where,
                    Count(actual.fields.size(), "parameter") + ", expected " +
                        std::to_string(expected.fields.size()));
      }
      // The parameters bind the symbols of a function type.
      DimTable::Substitution symbols;
      for (size_t i = 0; i < expected.fields.size(); ++i) {
        Match(actual.fields[i], expected.fields[i], where + "parameter " + std::to_string(i) + ", ",
              &symbols, fit);
      }
      return Match(expected.ret, Substitute(actual.ret, symbols), where + "result, ", nullptr, fit);
    }
    default:
      return;
  }
}

void TypeTable::MatchTensor(const TypeInfo& expected, const TypeInfo& actual,
                            const std::string& where, DimTable::Substitution* values, Fit* fit) {
  if (IsKnown(expected.dtype) && !SameDtype(expected.dtype, actual.dtype)) {
    fit->narrows |= !IsKnown(actual.dtype);
    Note(fit, IsKnown(actual.dtype) ? Relation::kDisproved : Relation::kUnknown, where,
         "dtype: " + DtypeText(actual.dtype) + " != " + DtypeText(expected.dtype));
  }
  if (expected.vdevice != nullptr && actual.vdevice != nullptr &&
      expected.vdevice != actual.vdevice) {
    Note(fit, Relation::kDisproved, where, "different vdevice");
  }
  if (expected.shape_var != nullptr && expected.shape_var == actual.shape_var) return;
  MatchDims(expected, actual, where, values, fit);
}

void TypeTable::MatchDims(const TypeInfo& expected, const TypeInfo& actual,
                          const std::string& where, DimTable::Substitution* values, Fit* fit) {
  if (expected.ndim < 0) return;
  if (actual.ndim < 0) {
    fit->narrows = true;
    return Note(fit, Relation::kUnknown, where,
                "rank: unknown, expected " + std::to_string(expected.ndim));
  }
  if (expected.ndim != actual.ndim) {
    return Note(fit, Relation::kDisproved, where,
                "rank: " + std::to_string(actual.ndim) + " != " + std::to_string(expected.ndim));
  }
  if (!expected.has_dims) return;
  fit->narrows |= !actual.has_dims && !expected.dims.empty();
  for (size_t i = 0; i < expected.dims.size(); ++i) {
    const DimId wanted = expected.dims[i];
    const DimId found = actual.has_dims ? actual.dims[i] : kUnknownDim;
    const Relation relation =
        values != nullptr ? dims_->Solve(wanted, found, values) : dims_->Equal(found, wanted);
    if (relation == Relation::kProved) continue;
    std::string wanted_text = dims_->Text(wanted);
    if (values != nullptr) {
      auto known = dims_->Substitute(wanted, *values);
      if (known && *known != wanted) wanted_text = dims_->Text(*known) + " (" + wanted_text + ")";
    }
    Note(fit, relation, where,
         "dim " + std::to_string(i) + ": " + dims_->Text(found) + " != " + wanted_text);
  }
}

void TypeTable::Bind(TypeId expected_id, TypeId actual_id, DimTable::Substitution* values) {
  const TypeInfo& expected = types_[expected_id];
  const TypeInfo& actual = types_[actual_id];
  if (expected.type_class != actual.type_class || expected.type_class == TypeClass::kFunction) {
    return;
  }
  for (size_t i = 0; i < std::min(expected.dims.size(), actual.dims.size()); ++i) {
    const Object* symbol = dims_->AsVar(expected.dims[i]);
    if (symbol != nullptr && actual.dims[i] != kUnknownDim) values->emplace(symbol, actual.dims[i]);
  }
  for (size_t i = 0; i < std::min(expected.fields.size(), actual.fields.size()); ++i) {
    Bind(expected.fields[i], actual.fields[i], values);
  }
}

TypeId TypeTable::Substitute(TypeId id, const DimTable::Substitution& values) {
  TypeInfo info = types_[id];
  if (id == kUnknownType || info.type_class == TypeClass::kFunction) return id;
  bool is_open = false;
  for (DimId& dim : info.dims) {
    auto value = dims_->Substitute(dim, values);
    is_open |= !value;
    dim = value.value_or(kUnknownDim);
  }
  if (is_open) {
    info.dims.clear();
    info.has_dims = false;
  }
  info.shape_var = nullptr;
  for (TypeId& field : info.fields) field = Substitute(field, values);
  return Intern(std::move(info));
}

}  // namespace verifier
}  // namespace tvm_fixes
