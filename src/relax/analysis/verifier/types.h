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
 * \file src/relax/analysis/verifier/types.h
 * \brief The interned types of a module, and their comparison.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_VERIFIER_TYPES_H_
#define TVM_FIXES_RELAX_ANALYSIS_VERIFIER_TYPES_H_

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "dims.h"

namespace tvm_fixes {
namespace verifier {

inline bool SameDtype(DLDataType lhs, DLDataType rhs) {
  return lhs.code == rhs.code && lhs.bits == rhs.bits && lhs.lanes == rhs.lanes;
}

/*! \brief Whether a dtype is known. */
inline bool IsKnown(DLDataType dtype) { return dtype.bits != 0; }

/*! \brief A type; equal ids are equal types. */
using TypeId = uint32_t;
/*! \brief A missing or malformed type. Comparisons with it report nothing. */
constexpr TypeId kUnknownType = 0;

enum class TypeClass : uint8_t {
  kUnknown,
  kAny,
  kTensor,
  kShape,
  kPrim,
  kTuple,
  kFunction,
  kOther
};

/*! \brief The contents of a type. Fields that do not apply to its class are empty. */
struct TypeInfo {
  TypeClass type_class = TypeClass::kUnknown;
  /*! \brief The dtype of a tensor or a scalar; its bits are 0 if unknown. */
  DLDataType dtype = {0, 0, 0};
  /*! \brief The rank of a tensor or a shape, -1 if unknown. */
  int32_t ndim = -1;
  /*! \brief Whether each extent is known. */
  bool has_dims = false;
  /*! \brief The extents of a tensor or a shape. */
  std::vector<DimId> dims;
  /*! \brief The device of a tensor; null if unknown. */
  const Object* vdevice = nullptr;
  /*! \brief The variable that stands for the shape of a tensor; null if there is none. */
  const Object* shape_var = nullptr;
  /*! \brief The fields of a tuple, the parameters of a function. */
  std::vector<TypeId> fields;
  /*! \brief Whether the parameters of a function are known. */
  bool has_params = false;
  TypeId ret = kUnknownType;
  bool is_pure = false;
  /*! \brief A type of an unknown class. */
  const Object* other = nullptr;
  /*! \brief The nesting depth, and the number of nested types including itself. */
  int depth = 0;
  size_t size = 1;

  bool operator==(const TypeInfo& that) const;
};

/*! \brief A defect of a type itself. */
struct TypeProblem {
  const char* rule;
  std::string message;

  bool operator==(const TypeProblem& that) const { return message == that.message; }
};

/*! \brief The result of comparing two types. */
struct Fit {
  Relation relation = Relation::kProved;
  /*!
   * \brief One line for each disproved part or, if there is none, each unknown part: "dim 0: 1 !=
   *        64".
   */
  std::vector<std::string> reasons;
  /*! \brief Whether the expected type states what the actual one leaves open. */
  bool narrows = false;
};

/*! \brief The types of a module. The nodes must outlive the table. */
class TypeTable {
 public:
  explicit TypeTable(DimTable* dims);

  /*! \brief The id of a type; kUnknownType for a null, missing or malformed type. */
  TypeId Intern(const ObjectRef& type) { return Intern(type, 0); }
  TypeId Intern(TypeInfo info);
  TypeId Tuple(std::vector<TypeId> fields);
  TypeId Shape(std::vector<DimId> dims);

  /*! \brief The defects of a type, and of its parts, for which Intern returned kUnknownType. */
  const std::vector<TypeProblem>& Problems(const ObjectRef& type) const;

  const TypeInfo& operator[](TypeId id) const { return types_[id]; }

  /*! \brief Whether a type is known and, for a tuple, the types of all fields. */
  bool IsComplete(TypeId id) const;

  /*!
   * \brief Whether a value of type `actual` can be used where `expected` is required.
   *
   * Every part is compared, even if others are unknown. A part that `expected` leaves open
   * fits; one that it states and `actual` leaves open is unknown.
   */
  Fit Compare(TypeId expected, TypeId actual);

  /*! \brief Like Compare, but bind the unbound symbols of the expected type. */
  Fit Match(TypeId expected, TypeId actual, DimTable::Substitution* values);

  /*!
   * \brief Bind the symbols that are whole extents of the expected type.
   *
   * An extent such as n * m may precede those that define n and m.
   */
  void Bind(TypeId expected, TypeId actual, DimTable::Substitution* values);

  /*! \brief Substitute symbols in a type. Parts with an unbound symbol become unknown. */
  TypeId Substitute(TypeId type, const DimTable::Substitution& values);

  /*! \brief The variables in the extents of a type, including tuple fields. */
  std::vector<const Object*> Vars(TypeId type) const;

  /*! \brief The text as in TVMScript. */
  std::string Text(TypeId id) const;

  DimTable& dims() const { return *dims_; }

 private:
  TypeId Intern(const ObjectRef& type, int depth);
  TypeId Read(const ObjectRef& type, int depth, std::vector<TypeProblem>* problems);
  TypeId ReadTensor(const Object* node, std::vector<TypeProblem>* problems);
  TypeId ReadBuffer(const Object* node, std::vector<TypeProblem>* problems);
  bool ReadDims(const Array<ObjectRef>& values, const char* what, std::vector<DimId>* dims,
                std::vector<TypeProblem>* problems);
  TypeId ReadShape(const Object* node, std::vector<TypeProblem>* problems);
  TypeId ReadFunction(const Object* node, int depth, std::vector<TypeProblem>* problems);
  /*! \brief Read a part of a type and append its problems. */
  TypeId ReadPart(const ObjectRef& part, int depth, std::vector<TypeProblem>* problems);
  TypeId ReadFields(const ObjectRef& fields, int depth, TypeInfo info,
                    std::vector<TypeProblem>* problems);
  void Match(TypeId expected, TypeId actual, const std::string& where,
             DimTable::Substitution* values, Fit* fit);
  void MatchTensor(const TypeInfo& expected, const TypeInfo& actual, const std::string& where,
                   DimTable::Substitution* values, Fit* fit);
  void MatchDims(const TypeInfo& expected, const TypeInfo& actual, const std::string& where,
                 DimTable::Substitution* values, Fit* fit);

  struct Hash {
    size_t operator()(const TypeInfo& info) const;
  };

  DimTable* dims_;
  /*! \brief A deque, so that references stay valid when elements are added. */
  std::deque<TypeInfo> types_;
  std::unordered_map<TypeInfo, TypeId, Hash> id_of_type_;
  std::unordered_map<const Object*, TypeId> id_of_node_;
  std::unordered_map<const Object*, std::vector<TypeProblem>> problems_;
};

/*! \brief The dtype as in TVMScript: "float32", "bool". */
std::string DtypeText(DLDataType dtype);

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_TYPES_H_
