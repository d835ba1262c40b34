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
 * \brief Compile-time values of small tensors that shapes are computed from.
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
  /*! \brief Null for an unknown element. */
  std::vector<ObjectRef> elements;

  /*! \brief The elements as integers, or std::nullopt unless each is a literal. */
  std::optional<std::vector<int64_t>> AsInts() const;
  bool IsKnown() const;
};

/*! \brief The number of elements of a shape. */
int64_t NumElements(const std::vector<int64_t>& shape);

/*!
 * \brief The values of a function's variables: shapes, and small tensors of integers, booleans and
 *        floats.
 *
 * An element is a literal, or an expression over the symbols in scope where the variable is bound.
 * Integers of any width are stored as int64, floats as double. Floats are tracked only as literals.
 */
class ShapeValues {
 public:
  /*! \brief Larger tensors are not tracked. */
  static constexpr int64_t kMaxElements = 256;

  /*! \param scalars The scalar arithmetic; must outlive this object. */
  explicit ShapeValues(const Scalars* scalars) : scalars_(scalars) {}

  /*!
   * \brief The value of a variable, constant, shape or scalar, or of a call of a tracked operator.
   * \return std::nullopt if the shape is not static, or has more than kMaxElements elements.
   */
  std::optional<ShapeValue> ValueOf(const ObjectRef& expr) const;

  /*! \brief The values of a tuple's fields, or std::nullopt if the fields are unknown. */
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

/*! \brief Computes the value of a call, or returns std::nullopt if it is unknown. */
using ShapeEvaluator = std::optional<ShapeValue> (*)(const ShapeValues& values,
                                                     const CallView& call);

/*! \brief Evaluators of operators that are element-wise. */
const std::unordered_map<std::string, ShapeEvaluator>& ElementwiseEvaluators();

/*! \brief Evaluators of reductions, of scans, and of nonzero. */
const std::unordered_map<std::string, ShapeEvaluator>& ReductionEvaluators();

/*! \brief Evaluators of operators that move, select or create elements. */
const std::unordered_map<std::string, ShapeEvaluator>& TensorEvaluators();

/*! \brief The parts of a split, or std::nullopt if they are unknown. */
std::optional<std::vector<std::optional<ShapeValue>>> EvaluateSplit(const ShapeValues& values,
                                                                    const CallView& call);

/*! \brief The static shape of a type, or std::nullopt if an extent is not a literal. */
std::optional<std::vector<int64_t>> StaticShapeOf(const ObjectRef& type);

}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_SHAPE_VALUES_H_
