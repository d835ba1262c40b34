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
 * \file src/relay/ir/adt.cc
 * \brief Constructors and reflection of the classes for algebraic data types.
 */
#include "adt.h"

#include <tvm/ffi/reflection/registry.h>

#include "../../ffi/registration.h"

namespace tvm_fixes::relay {

Constructor::Constructor(String name, Array<Type> inputs, GlobalTypeVar belong_to)
    : Constructor(
          make_object<ConstructorObj>(std::move(name), std::move(inputs), std::move(belong_to))) {}

TypeData::TypeData(GlobalTypeVar header, Array<TypeVar> type_vars, Array<Constructor> constructors,
                   bool is_extern)
    : TypeData(make_object<TypeDataObj>(std::move(header), std::move(type_vars),
                                        std::move(constructors), is_extern)) {}

Clause::Clause(Pattern lhs, Expr rhs)
    : Clause(make_object<ClauseObj>(std::move(lhs), std::move(rhs))) {}

Match::Match(Expr data, Array<Clause> clauses, bool complete)
    : Match(make_object<MatchObj>(std::move(data), std::move(clauses), complete)) {}

namespace {

namespace refl = tvm::ffi::reflection;

TVM_FIXES_INIT_BLOCK() {
  const auto defines = refl::AttachFieldFlag::SEqHashDefPattern();
  refl::ObjectDef<ConstructorObj>()
      .def(refl::init<String, Array<Type>, GlobalTypeVar>())
      .def_ro("name", &ConstructorObj::name)
      // The definition of the type holds the inputs, and binds their type variables.
      .def_ro("inputs", &ConstructorObj::inputs, refl::AttachFieldFlag::SEqHashIgnore())
      .def_ro("belong_to", &ConstructorObj::belong_to);
  refl::ObjectDef<TypeDataObj>()
      .def(refl::init<GlobalTypeVar, Array<TypeVar>, Array<Constructor>, bool>())
      .def_ro("header", &TypeDataObj::header)
      .def_ro("type_vars", &TypeDataObj::type_vars, defines)
      .def_ro("constructors", &TypeDataObj::constructors)
      .def_ro("is_extern", &TypeDataObj::is_extern);
  refl::ObjectDef<PatternObj>(refl::init(false));
  refl::ObjectDef<PatternWildcardObj>().def(refl::init<>());
  refl::ObjectDef<PatternVarObj>()
      .def(refl::init<Var>())
      .def_ro("var", &PatternVarObj::var, defines);
  refl::ObjectDef<PatternConstructorObj>()
      .def(refl::init<Constructor, Array<Pattern>>())
      .def_ro("constructor", &PatternConstructorObj::constructor)
      .def_ro("patterns", &PatternConstructorObj::patterns);
  refl::ObjectDef<PatternTupleObj>()
      .def(refl::init<Array<Pattern>>())
      .def_ro("patterns", &PatternTupleObj::patterns);
  refl::ObjectDef<ClauseObj>()
      .def(refl::init<Pattern, Expr>())
      .def_ro("lhs", &ClauseObj::lhs)
      .def_ro("rhs", &ClauseObj::rhs);
  refl::ObjectDef<MatchObj>()
      .def(refl::init<Expr, Array<Clause>, bool>())
      .def_ro("data", &MatchObj::data)
      .def_ro("clauses", &MatchObj::clauses)
      .def_ro("complete", &MatchObj::complete);
}

}  // namespace
}  // namespace tvm_fixes::relay
