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
 * \file src/relax/analysis/verifier/prim_func.h
 * \brief What the accesses of a PrimFunc reach, in its buffers and in the domains of its blocks.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_VERIFIER_PRIM_FUNC_H_
#define TVM_FIXES_RELAX_ANALYSIS_VERIFIER_PRIM_FUNC_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "diagnostic.h"
#include "dims.h"
#include "prim_func_access.h"

namespace tvm_fixes {
namespace verifier {

class Verifier;

/*!
 * \brief The values that an index of a buffer takes, or the value of a block's iterator.
 *
 * What stands under a condition is held in the rounds of the loops in which that is met; where it
 * asks for data, it is said that it may be reached.
 */
struct Reach {
  enum class Kind : uint8_t { kLoad, kStore, kIterator };

  Kind kind;
  /*! \brief The buffer, or the iterator. */
  const Object* var;
  /*! \brief The value of an iterator counts as its only index, the extent of its domain as that
   * of the axis. */
  IndexReach index;
  KeptPath path;
  /*! \brief Whether it is reached whatever the data are, which conditions may ask. */
  bool is_certain = true;
};

/*! \brief The accesses of a PrimFunc that go outside of their buffers. */
struct PrimFuncReaches {
  /*! \brief Outside whatever the symbols are that have no value. */
  std::vector<Reach> outside;
  /*! \brief The symbols of the buffers, and the scalar parameters. */
  std::vector<const Object*> symbols;
  /*! \brief Whether some of these are scalar parameters, which may be any number. */
  bool has_scalars = false;
  /*! \brief Whether more may be known where symbols have values. */
  bool may_vary = false;
  /*! \brief Which are outside, of others than the above, by the values of the symbols at a call. */
  std::map<std::vector<DimId>, std::vector<Reach>> outside_at;
};

/*! \param values What symbols of the function are taken to be; those without stand for all. */
PrimFuncReaches FindReaches(DimTable* dims, const Object* function, const Path& path,
                            const DimTable::Substitution& values);

/*! \brief Report the accesses of a PrimFunc that are outside at every call. */
void CheckReaches(Verifier* verifier, const Object* global_var);

/*!
 * \brief Report, at a call, the accesses of the callee that its shapes make go outside.
 * \param symbols The values of the callee's symbols and scalar parameters.
 */
void CheckReachesAt(Verifier* verifier, const Object* global_var,
                    const DimTable::Substitution& symbols, const Path& call);

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_PRIM_FUNC_H_
