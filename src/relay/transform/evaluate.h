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
 * \file src/relay/transform/evaluate.h
 * \brief Computes calls of operators on small constants.
 */
#ifndef TVM_FIXES_RELAY_TRANSFORM_EVALUATE_H_
#define TVM_FIXES_RELAY_TRANSFORM_EVALUATE_H_

#include <map>
#include <string>
#include <vector>

#include "../op/registry.h"
#include "const_value.h"

namespace tvm_fixes::relay {

/*! \brief A call that is computed: its attributes, inputs and the type of its result. */
struct Evaluation {
  const InferContext& call;
  /*! \brief The inputs; a tuple contributes each of its fields. */
  std::vector<ConstValue> inputs;
  /*! \brief The result: shape and dtype are set, the elements are not. */
  ConstValue result;
};

/*! \brief Computes the elements of the result; false if it cannot. */
using Evaluator = bool (*)(Evaluation&);
using EvaluatorTable = std::map<std::string, Evaluator>;

/*! \brief Operators that work on each element, and reductions. */
const EvaluatorTable& ArithmeticEvaluators();
/*! \brief Operators that only move elements. */
const EvaluatorTable& MovementEvaluators();

/*! \brief Coordinates of an element, and the element at coordinates, in row-major order. */
std::vector<int64_t> Unravel(int64_t index, const std::vector<int64_t>& shape);
int64_t Ravel(const std::vector<int64_t>& coordinates, const std::vector<int64_t>& shape);

/*! \brief Whether a shape broadcasts to another. */
bool Broadcasts(const std::vector<int64_t>& from, const std::vector<int64_t>& to);

/*! \brief The index of the input element that is broadcast to an index of the result. */
int64_t BroadcastIndex(int64_t index, const std::vector<int64_t>& shape,
                       const std::vector<int64_t>& input_shape);

/*!
 * \brief The type of a call of an operator by its type relation.
 * \return Null if the types of the arguments are insufficient or do not fit.
 */
Type RelationType(const CallObj* call, const Array<Type>& arg_types);

/*! \brief The checked type; constants and annotated variables have one before inference. */
Type KnownType(const Expr& expr);

/*! \brief Folds calls; the total size of all results is bounded. */
class ConstantFolder {
 public:
  /*!
   * \brief The value of a call of an operator whose arguments are constants or tuples of them.
   * \param call The call.
   * \param arg_types The types of its arguments, null where unknown. They suffice for shape_of.
   * \return A Constant, or null if the call cannot be folded.
   */
  Expr Fold(const Call& call, const Array<Type>& arg_types);

  /*! \brief The value of a scalar bool constant. */
  static std::optional<bool> KnownCondition(const Expr& expr);

 private:
  Expr Finish(const ConstValue& value, const Call& call, const Type& type);
  Expr FoldShape(const Call& call, const InferContext& context);

  int64_t budget_ = int64_t{1} << 22;
};

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_TRANSFORM_EVALUATE_H_
