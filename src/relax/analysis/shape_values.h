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
 * \file src/relax/analysis/shape_values.h
 * \brief The compile-time values of small tensors that shapes are computed from.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_SHAPE_VALUES_H_
#define TVM_FIXES_RELAX_ANALYSIS_SHAPE_VALUES_H_

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "../ir/views.h"
#include "scalars.h"

namespace tvm_fixes {

/*! \brief The elements of a tensor or of a shape, in row-major order. */
struct ShapeValue {
  std::vector<int64_t> shape;
  /*! \brief Null for an element that is not known. */
  std::vector<ObjectRef> elements;

  /*! \brief The elements as integers, nothing unless each is a literal. */
  std::optional<std::vector<int64_t>> AsInts() const;
  bool IsKnown() const;
};

/*! \brief The number of elements of a shape. */
int64_t NumElements(const std::vector<int64_t>& shape);

/*!
 * \brief The values of the variables of a function: of tensors of integers, booleans and floats
 *        with few elements, and of shapes.
 *
 * An element is an expression over the symbols that are in scope where the variable is bound, or a
 * literal: integers of any width are held as int64, floats in double precision. Floats are
 * followed only as literals.
 */
class ShapeValues {
 public:
  /*! \brief Tensors of more elements are not followed. */
  static constexpr int64_t kMaxElements = 256;

  /*! \param scalars What decides about scalars; it outlives this object. */
  explicit ShapeValues(const Scalars* scalars) : scalars_(scalars) {}

  /*!
   * \brief The value of a variable, a constant, a shape or a scalar; of a call, if it is an
   *        operator that is followed.
   * \return Nothing for what has no static shape, or more than kMaxElements elements.
   */
  std::optional<ShapeValue> ValueOf(const ObjectRef& expr) const;

  /*! \brief The values of the fields of a tuple, nothing where the fields are not known. */
  std::optional<std::vector<std::optional<ShapeValue>>> FieldsOf(const ObjectRef& tuple) const;

  /*! \brief Record that `var` is bound to `value`. */
  void Bind(const ObjectRef& var, const ObjectRef& value);

  const Scalars& scalars() const { return *scalars_; }

 private:
  std::optional<ShapeValue> ValueOfCall(const CallView& call) const;

  const Scalars* scalars_;
  std::unordered_map<const Object*, ShapeValue> values_;
  std::unordered_map<const Object*, std::vector<std::optional<ShapeValue>>> fields_;
};

/*! \brief The value of a call of an operator; nothing if it is unknown. */
using ShapeEvaluator = std::optional<ShapeValue> (*)(const ShapeValues& values,
                                                     const CallView& call);

/*! \brief The evaluators of operators that compute each element from those at the same index. */
const std::unordered_map<std::string, ShapeEvaluator>& ElementwiseEvaluators();

/*! \brief The evaluators of reductions, of scans, and of nonzero. */
const std::unordered_map<std::string, ShapeEvaluator>& ReductionEvaluators();

/*! \brief The evaluators of operators that move, select or make elements. */
const std::unordered_map<std::string, ShapeEvaluator>& TensorEvaluators();

/*! \brief The parts of a split; nothing if they are unknown. */
std::optional<std::vector<std::optional<ShapeValue>>> EvaluateSplit(const ShapeValues& values,
                                                                    const CallView& call);

/*! \brief The static shape of a type, nothing where an extent is not a literal. */
std::optional<std::vector<int64_t>> StaticShapeOf(const ObjectRef& type);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_SHAPE_VALUES_H_
