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
 * \brief Bounds of the accesses of a PrimFunc, in its buffers and the domains of its blocks.
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
 * \brief The range of a buffer index, or of a block iterator's value.
 *
 * A conditional access counts only in the iterations that meet the condition. If the condition
 * depends on data, the access is not certain.
 */
struct Reach {
  enum class Kind : uint8_t { kLoad, kStore, kIterator };

  Kind kind;
  /*! \brief The buffer, or the iterator. */
  const Object* var;
  /*! \brief An iterator has one index, its value, and its domain is the axis. */
  IndexReach index;
  KeptPath path;
  /*! \brief Whether the access runs for all data. */
  bool is_certain = true;
};

/*! \brief The out-of-bounds accesses of a PrimFunc. */
struct PrimFuncReaches {
  /*! \brief Out of bounds for all values of the unbound symbols. */
  std::vector<Reach> outside;
  /*! \brief The symbols of the buffers, and the scalar parameters. */
  std::vector<const Object*> symbols;
  /*! \brief Whether some symbols are scalar parameters, which may have any value. */
  bool has_scalars = false;
  /*! \brief Whether binding symbols may reveal more. */
  bool may_vary = false;
  /*! \brief The other out-of-bounds accesses, by the values of the symbols at a call. */
  std::map<std::vector<DimId>, std::vector<Reach>> outside_at;
};

/*! \param values The values of bound symbols; other symbols may take any value. */
PrimFuncReaches FindReaches(DimTable* dims, const Object* function, const Path& path,
                            const DimTable::Substitution& values);

/*! \brief Report the accesses of a PrimFunc that are out of bounds at every call. */
void CheckReaches(Verifier* verifier, const Object* global_var);

/*!
 * \brief Report, at a call, the accesses of the callee that are out of bounds for its shapes.
 * \param symbols The values of the callee's symbols and scalar parameters.
 */
void CheckReachesAt(Verifier* verifier, const Object* global_var,
                    const DimTable::Substitution& symbols, const Path& call);

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_PRIM_FUNC_H_
