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
 * \file src/relay/op/infer_context.h
 * \brief The view of a call that the type relation of an operator gets.
 */
#ifndef TVM_FIXES_RELAY_OP_INFER_CONTEXT_H_
#define TVM_FIXES_RELAY_OP_INFER_CONTEXT_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "../ir/expr.h"
#include "../ir/shape.h"
#include "../ir/type_text.h"

namespace tvm_fixes::relay {

/*! \brief "nn.conv2d at 3:14", or without a place if it is unknown. */
std::string CallText(const CallObj* call);

/*!
 * \brief The inputs' types and the attributes of one call of an operator.
 *
 * Every accessor throws RelayError, which names operator, place, attribute or input, and the
 * expected and actual value.
 */
class InferContext {
 public:
  InferContext(const CallObj* call, Array<Type> input_types);

  const CallObj* call() const { return call_; }
  int num_inputs() const { return static_cast<int>(input_types_.size()); }

  /*! \brief The type of an input, of whatever class. */
  Type Input(int index) const;
  /*! \brief The tensor type of an input. */
  TensorType Tensor(int index) const;
  /*! \brief The tensor type of an input with this number of dimensions. */
  TensorType Tensor(int index, int ndim) const;
  /*! \brief The fields of an input that is a tuple of tensors. */
  std::vector<TensorType> TensorTuple(int index) const;
  /*! \brief Whether the type of an input is known; always so without InfersInputs. */
  bool IsKnown(int index) const;
  /*! \brief Give an input its type; only for an input that is not known. */
  void SetInput(int index, Type type);
  const Array<Type>& input_types() const { return input_types_; }
  /*! \brief The value of an input that is a constant, else null. */
  const ConstantObj* ConstantInput(int index) const;
  /*! \brief The elements of an input that is an integer constant, else std::nullopt. */
  std::optional<std::vector<int64_t>> ConstantInts(int index) const;

  /*! \brief Whether the attribute has a value, given or default. */
  bool Has(const char* attr) const;
  Any Attr(const char* attr) const;
  int64_t Int(const char* attr) const;
  double Float(const char* attr) const;
  bool Bool(const char* attr) const;
  std::string Str(const char* attr) const;
  /*! \brief A dtype, or the fallback if the attribute has no value. */
  DLDataType DType(const char* attr, std::optional<DLDataType> fallback = std::nullopt) const;
  std::vector<int64_t> Ints(const char* attr) const;
  /*! \brief Ints whose number must be `count`; a single one applies to all. */
  std::vector<int64_t> Ints(const char* attr, size_t count) const;
  /*! \brief Dimensions: ints or `?`. */
  Shape Dims(const char* attr) const;
  /*! \brief An axis in [-ndim, ndim), made non-negative. */
  int64_t Axis(const char* attr, int64_t ndim) const;
  int64_t CheckAxis(const char* attr, int64_t axis, int64_t ndim) const;

  /*! \brief Broadcast shapes of two inputs. */
  Shape Broadcast(const Shape& a, const Shape& b) const;
  void CheckSameDType(int a, int b) const;

  [[noreturn]] void Fail(const std::string& message) const;
  [[noreturn]] void FailInput(int index, const std::string& expected) const;
  [[noreturn]] void FailAttr(const char* attr, const std::string& expected) const;

 private:
  const CallObj* call_;
  Array<Type> input_types_;
  Attrs attrs_;
};

/*! \brief Computes the type of a call. */
using TypeRelation = std::function<Type(InferContext&)>;

/*! \brief Relations that many operators share. */
Type IdentityRelation(InferContext& context);
/*! \brief Like IdentityRelation; the attribute "axis" must name an axis. */
Type AxisRelation(InferContext& context);
Type BroadcastRelation(InferContext& context);
/*! \brief Like BroadcastRelation, with a bool result. */
Type CompareRelation(InferContext& context);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_OP_INFER_CONTEXT_H_
