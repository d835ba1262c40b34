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
 * \file src/relay/ir/shape.h
 * \brief Dimensions, dtypes and broadcasting.
 */
#ifndef TVM_FIXES_RELAY_IR_SHAPE_H_
#define TVM_FIXES_RELAY_IR_SHAPE_H_

#include <optional>
#include <string>
#include <vector>

#include "type.h"

namespace tvm_fixes::relay {

/*! \brief The dimension `?`. */
Dim AnyDim();

bool IsAnyDim(const Dim& dim);

/*! \brief The extent, or std::nullopt for `?` and a ShapeVar. */
std::optional<int64_t> StaticDim(const Dim& dim);

/*! \brief All extents, or std::nullopt if one is not static. */
std::optional<std::vector<int64_t>> StaticShape(const Shape& shape);

Shape MakeShape(const std::vector<int64_t>& dims);

/*! \brief Whether both are the same extent or the same ShapeVar; `?` differs from everything. */
bool SameDim(const Dim& a, const Dim& b);

/*! \brief Whether both may be equal at run time; false only for two different static extents. */
bool MayBeEqual(const Dim& a, const Dim& b);

/*! \brief The more specific of two dimensions that must be equal. */
Dim MoreStatic(const Dim& a, const Dim& b);

/*!
 * \brief The result of broadcasting, or std::nullopt if the dimensions are incompatible.
 *
 * `?` with an extent above 1 gives the extent; `?` with 1 or `?` gives `?`.
 */
std::optional<Dim> BroadcastDim(const Dim& a, const Dim& b);
std::optional<Shape> BroadcastShape(const Shape& a, const Shape& b);

/*!
 * \brief a + b; `?` if one is not static, except that adding 0 returns the other.
 * \throws RelayError If the sum exceeds int64.
 */
Dim AddDim(const Dim& a, const Dim& b);

/*!
 * \brief a * b; `?` if one is not static, except for a factor 0 or 1.
 * \throws RelayError If the product exceeds int64.
 */
Dim MultiplyDim(const Dim& a, const Dim& b);
/*! \brief The number of elements. */
Dim NumElements(const Shape& shape);

/*! \brief The text of a shape, such as "(1, ?, n)". */
std::string ShapeText(const Shape& shape);
std::string DimText(const Dim& dim);

/*! \brief The name of a dtype in the text format, such as "float32". */
std::string DTypeText(DLDataType dtype);
/*! \brief The dtype of this name, or std::nullopt if there is no such dtype. */
std::optional<DLDataType> ParseDType(const std::string& text);

bool SameDType(DLDataType a, DLDataType b);
bool IsFloat(DLDataType dtype);
/*! \brief Signed or unsigned integers, not bool. */
bool IsInteger(DLDataType dtype);
bool IsBool(DLDataType dtype);

inline constexpr DLDataType kFloat32{kDLFloat, 32, 1};
inline constexpr DLDataType kInt32{kDLInt, 32, 1};
inline constexpr DLDataType kInt64{kDLInt, 64, 1};
inline constexpr DLDataType kInt8{kDLInt, 8, 1};
inline constexpr DLDataType kUInt8{kDLUInt, 8, 1};
inline constexpr DLDataType kBool{kDLBool, 8, 1};

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_IR_SHAPE_H_
