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
 * \file src/relay/parser/literal.cc
 * \brief Numbers of Relay text.
 */
#include "literal.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "../ir/tensor.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief The number of bits after the letter of the suffix, 32 if there is none. */
std::optional<int> Width(std::string_view digits) {
  if (digits.empty()) return 32;
  int width = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), width);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return width;
}

std::optional<Literal> ReadReal(std::string_view text, bool negative, int width,
                                std::string* problem) {
  if (width != 16 && width != 32 && width != 64) {
    *problem = "a float has 16, 32 or 64 bits";
    return std::nullopt;
  }
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    // A number that is too small becomes zero, as in C.
    value = std::strtod(std::string(text).c_str(), nullptr);
  } else if (error != std::errc() || end != text.data() + text.size()) {
    *problem = "it is not a number";
    return std::nullopt;
  }
  double limit = width == 16   ? 65504.0
                 : width == 32 ? static_cast<double>(std::numeric_limits<float>::max())
                               : std::numeric_limits<double>::max();
  bool is_named = text == "inf" || text == "nan";
  if (!is_named && value > limit) {
    *problem = "it exceeds the range of float" + std::to_string(width);
    return std::nullopt;
  }
  Literal literal{DLDataType{kDLFloat, static_cast<uint8_t>(width), 1}};
  literal.real = negative ? -value : value;
  return literal;
}

std::optional<Literal> ReadInteger(std::string_view text, bool negative, bool is_signed,
                                   std::optional<int> given_width, std::string* problem) {
  uint64_t magnitude = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), magnitude);
  uint64_t limit = uint64_t{1} << 63;
  if (error != std::errc() || end != text.data() + text.size() ||
      magnitude > (negative ? limit : limit - 1)) {
    *problem = "it exceeds the range of int64";
    return std::nullopt;
  }
  int64_t value = static_cast<int64_t>(negative ? ~magnitude + 1 : magnitude);
  bool fits_int32 = value >= INT32_MIN && value <= INT32_MAX;
  int width = given_width.value_or(fits_int32 ? 32 : 64);
  if (width != 8 && width != 16 && width != 32 && width != 64) {
    *problem = "an integer has 8, 16, 32 or 64 bits";
    return std::nullopt;
  }
  int64_t high = width == 64 ? INT64_MAX : (int64_t{1} << (width - (is_signed ? 1 : 0))) - 1;
  int64_t low = !is_signed ? 0 : -(int64_t{1} << (width - 1));
  if (width == 64 && is_signed) low = INT64_MIN;
  std::string name = (is_signed ? "int" : "uint") + std::to_string(width);
  if (value < low || value > high) {
    *problem = "it exceeds the range of " + name;
    return std::nullopt;
  }
  auto code = static_cast<uint8_t>(is_signed ? kDLInt : kDLUInt);
  Literal literal{DLDataType{code, static_cast<uint8_t>(width), 1}};
  literal.integer = value;
  return literal;
}

template <typename T>
T ValueOf(const Tensor& scalar) {
  T value;
  std::memcpy(&value, scalar.data_ptr(), sizeof(T));
  return value;
}

std::string WithSuffix(double value, const char* suffix) { return RealText(value) + suffix; }

/*! \brief Whether a value is a NaN other than the one that the parser reads from "nan". */
template <typename Real, typename Bits>
bool IsUnusualNan(Real value) {
  Real usual = std::numeric_limits<Real>::quiet_NaN();
  return std::isnan(value) && std::memcmp(&value, &usual, sizeof(Bits)) != 0;
}

}  // namespace

std::optional<Literal> ReadLiteral(std::string_view text, bool negative, std::string* problem) {
  size_t suffix = text.find_first_of("iuf", text[0] == 'i' ? 3 : 0);
  if (text.substr(0, 3) == "inf" || text.substr(0, 3) == "nan") suffix = text.find('f', 3);
  bool is_real = text.find_first_of(".eE") != std::string_view::npos;
  if (suffix == std::string_view::npos) {
    if (is_real) return ReadReal(text, negative, 32, problem);
    return ReadInteger(text, negative, true, std::nullopt, problem);
  }
  std::optional<int> width = Width(text.substr(suffix + 1));
  if (!width) {
    *problem = "its suffix is not valid";
    return std::nullopt;
  }
  std::string_view digits = text.substr(0, suffix);
  if (text[suffix] == 'f') return ReadReal(digits, negative, *width, problem);
  if (is_real) {
    *problem = "an integer has no fraction";
    return std::nullopt;
  }
  return ReadInteger(digits, negative, text[suffix] == 'i', width, problem);
}

Tensor ScalarTensor(const Literal& literal) {
  Tensor tensor = EmptyTensor({}, literal.dtype);
  size_t size = literal.dtype.bits / 8;
  if (literal.dtype.code != kDLFloat) {
    // Little-endian: the low bytes come first.
    std::memcpy(tensor.data_ptr(), &literal.integer, size);
  } else if (size == 8) {
    std::memcpy(tensor.data_ptr(), &literal.real, size);
  } else if (size == 4) {
    float value = static_cast<float>(literal.real);
    std::memcpy(tensor.data_ptr(), &value, size);
  } else {
    uint16_t value = HalfFromFloat(static_cast<float>(literal.real));
    std::memcpy(tensor.data_ptr(), &value, size);
  }
  return tensor;
}

std::string RealText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return error == std::errc() ? std::string(buffer, end) : std::string("0");
}

std::optional<std::string> LiteralText(const Tensor& scalar) {
  if (scalar.ndim() != 0 || scalar.dtype().lanes != 1) return std::nullopt;
  int bits = scalar.dtype().bits;
  switch (scalar.dtype().code) {
    case kDLBool:
      return ValueOf<uint8_t>(scalar) != 0 ? "True" : "False";
    case kDLInt:
      if (bits == 16) return std::to_string(ValueOf<int16_t>(scalar)) + "i16";
      if (bits == 32) return std::to_string(ValueOf<int32_t>(scalar));
      if (bits == 64) return std::to_string(ValueOf<int64_t>(scalar)) + "i64";
      return std::nullopt;
    case kDLFloat: {
      if (bits != 16 && bits != 32 && bits != 64) return std::nullopt;
      if (bits == 64) {
        double value = ValueOf<double>(scalar);
        if (IsUnusualNan<double, uint64_t>(value)) return std::nullopt;
        return WithSuffix(value, "f64");
      }
      if (bits == 16) {
        float value = FloatFromHalf(ValueOf<uint16_t>(scalar));
        if (std::isnan(value)) return std::nullopt;
        return WithSuffix(value, "f16");
      }
      float value = ValueOf<float>(scalar);
      if (IsUnusualNan<float, uint32_t>(value)) return std::nullopt;
      if (std::isnan(value) || std::isinf(value)) return WithSuffix(value, "f");
      char buffer[40];
      auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
      return std::string(buffer, result.ptr) + "f";
    }
  }
  return std::nullopt;
}

}  // namespace tvm_fixes::relay
