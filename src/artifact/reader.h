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
 * \file src/artifact/reader.h
 * \brief Reading of untrusted bytes, in order and with every step checked.
 */
#ifndef TVM_FIXES_ARTIFACT_READER_H_
#define TVM_FIXES_ARTIFACT_READER_H_

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tvm_fixes::artifact {

/*! \brief A file is not what it should be; the message says what was expected where. */
class FormatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/*! \brief Bytes of a file, which the caller keeps mapped, and where in it they lie. */
struct Range {
  const uint8_t* data = nullptr;
  uint64_t offset = 0;
  uint64_t size = 0;

  /*!
   * \brief A part of these bytes.
   * \param begin Its distance from the first of them.
   * \param length Its size.
   * \param what What it is, for the message.
   * \throws FormatError if they do not hold it.
   */
  Range Part(uint64_t begin, uint64_t length, const std::string& what) const {
    if (begin > size || length > size - begin) {
      throw FormatError(what + ": expected " + std::to_string(length) + " bytes at offset " +
                        std::to_string(offset) + " + " + std::to_string(begin) + ", got " +
                        std::to_string(begin > size ? 0 : size - begin));
    }
    return {data + begin, offset + begin, length};
  }
};

/*!
 * \brief Reads little-endian values one after the other.
 *
 * A size in the file never allocates memory before it is compared with the number of bytes left.
 */
class Reader {
 public:
  Reader(Range range, std::string what) : range_(range), what_(std::move(what)) {}

  /*!
   * \brief The next number.
   * \param what What it is, for the message.
   * \throws FormatError if the bytes end before it does.
   */
  template <typename T>
  T Read(const char* what) {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    std::memcpy(&value, Skip(sizeof(T), what).data, sizeof(T));
    return value;
  }

  /*! \brief Pass over `size` bytes, and return them. */
  Range Skip(uint64_t size, const char* what) {
    Range part = range_.Part(position_, size, what_ + ": " + what);
    position_ += size;
    return part;
  }

  /*! \brief Pass over a number of elements and the elements, of `item` bytes each; return them. */
  Range SkipArray(uint64_t item, const char* what) {
    const auto count = Read<uint64_t>(what);
    if (count > left() / item) {
      throw FormatError(what_ + ": " + what + ": expected at most " +
                        std::to_string(left() / item) + " elements at offset " +
                        std::to_string(offset()) + ", got " + std::to_string(count));
    }
    return Skip(count * item, what);
  }

  /*! \brief The next string, which lies in the file. */
  std::string_view ReadString(const char* what) {
    const Range characters = SkipArray(1, what);
    return {reinterpret_cast<const char*>(characters.data), characters.size};
  }

  /*! \brief How many bytes are left. */
  uint64_t left() const { return range_.size - position_; }
  /*! \brief Where in the file the next byte lies. */
  uint64_t offset() const { return range_.offset + position_; }

  /*! \brief Make sure that nothing is left. */
  void Finish() const {
    if (left() != 0) {
      throw FormatError(what_ + ": expected its end at offset " + std::to_string(offset()) +
                        ", got " + std::to_string(left()) + " bytes more");
    }
  }

 private:
  Range range_;
  uint64_t position_ = 0;
  std::string what_;
};

}  // namespace tvm_fixes::artifact

#endif  // TVM_FIXES_ARTIFACT_READER_H_
