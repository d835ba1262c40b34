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
 * \file src/relay/ir/adt.h
 * \brief Algebraic data types: definitions, constructors, patterns and Match.
 */
#ifndef TVM_FIXES_RELAY_IR_ADT_H_
#define TVM_FIXES_RELAY_IR_ADT_H_

#include "expr.h"

namespace tvm_fixes::relay {

class ConstructorObj : public ExprObj {
 public:
  String name;
  Array<Type> inputs;
  GlobalTypeVar belong_to;

  ConstructorObj(String name, Array<Type> inputs, GlobalTypeVar belong_to)
      : name(std::move(name)), inputs(std::move(inputs)), belong_to(std::move(belong_to)) {}
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.Constructor", ConstructorObj, ExprObj);
};

class Constructor : public Expr {
 public:
  Constructor(String name, Array<Type> inputs, GlobalTypeVar belong_to);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Constructor, Expr, ConstructorObj);
};

/*! \brief The definition of an algebraic data type; an extern type has no constructors. */
class TypeDataObj : public TypeObj {
 public:
  GlobalTypeVar header;
  Array<TypeVar> type_vars;
  Array<Constructor> constructors;
  bool is_extern;

  TypeDataObj(GlobalTypeVar header, Array<TypeVar> type_vars, Array<Constructor> constructors,
              bool is_extern)
      : header(std::move(header)),
        type_vars(std::move(type_vars)),
        constructors(std::move(constructors)),
        is_extern(is_extern) {}
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.TypeData", TypeDataObj, TypeObj);
};

class TypeData : public Type {
 public:
  TypeData(GlobalTypeVar header, Array<TypeVar> type_vars, Array<Constructor> constructors,
           bool is_extern = false);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(TypeData, Type, TypeDataObj);
};

/*! \brief Base class of the patterns of Match. */
class PatternObj : public Object {
 public:
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  static constexpr uint32_t _type_child_slots = 4;
  TVM_FFI_DECLARE_OBJECT_INFO("tvm_fixes.relay.Pattern", PatternObj, Object);
};

class Pattern : public ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Pattern, ObjectRef, PatternObj);
};

class PatternWildcardObj : public PatternObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.PatternWildcard", PatternWildcardObj,
                                    PatternObj);
};

class PatternVarObj : public PatternObj {
 public:
  Var var;

  explicit PatternVarObj(Var var) : var(std::move(var)) {}
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.PatternVar", PatternVarObj, PatternObj);
};

class PatternConstructorObj : public PatternObj {
 public:
  Constructor constructor;
  Array<Pattern> patterns;

  PatternConstructorObj(Constructor constructor, Array<Pattern> patterns)
      : constructor(std::move(constructor)), patterns(std::move(patterns)) {}
  ~PatternConstructorObj() { ReleaseFields(patterns); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.PatternConstructor", PatternConstructorObj,
                                    PatternObj);
};

class PatternTupleObj : public PatternObj {
 public:
  Array<Pattern> patterns;

  explicit PatternTupleObj(Array<Pattern> patterns) : patterns(std::move(patterns)) {}
  ~PatternTupleObj() { ReleaseFields(patterns); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.PatternTuple", PatternTupleObj, PatternObj);
};

class ClauseObj : public Object {
 public:
  Pattern lhs;
  Expr rhs;

  ClauseObj(Pattern lhs, Expr rhs) : lhs(std::move(lhs)), rhs(std::move(rhs)) {}
  ~ClauseObj() { ReleaseFields(rhs); }
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.Clause", ClauseObj, Object);
};

class Clause : public ObjectRef {
 public:
  Clause(Pattern lhs, Expr rhs);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Clause, ObjectRef, ClauseObj);
};

class MatchObj : public ExprObj {
 public:
  Expr data;
  Array<Clause> clauses;
  /*! \brief Whether the clauses must cover all cases: `match`, not `match?`. */
  bool complete;

  MatchObj(Expr data, Array<Clause> clauses, bool complete)
      : data(std::move(data)), clauses(std::move(clauses)), complete(complete) {}
  ~MatchObj() { ReleaseFields(data, clauses); }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("tvm_fixes.relay.Match", MatchObj, ExprObj);
};

class Match : public Expr {
 public:
  Match(Expr data, Array<Clause> clauses, bool complete);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Match, Expr, MatchObj);
};

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_IR_ADT_H_
