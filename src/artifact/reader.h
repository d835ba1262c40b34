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
 * \brief Bounds-checked sequential reader of untrusted bytes.
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

/*! \brief Error for a malformed file; the message names the offset and the expected content. */
class FormatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/*! \brief A byte range of a mapped file and its offset. The caller keeps the file mapped. */
struct Range {
  const uint8_t* data = nullptr;
  uint64_t offset = 0;
  uint64_t size = 0;

  /*!
   * \brief A subrange of this range.
   * \param begin The offset from the start of this range.
   * \param length The size in bytes.
   * \param what The name to use in an error message.
   * \throws FormatError if it exceeds this range.
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
 * \brief Sequential reader of little-endian values.
 *
 * A size read from the file is compared with the number of bytes left before memory is allocated.
 */
class Reader {
 public:
  Reader(Range range, std::string what) : range_(range), what_(std::move(what)) {}

  /*!
   * \brief Read the next number.
   * \param what The name to use in an error message.
   * \throws FormatError if too few bytes are left.
   */
  template <typename T>
  T Read(const char* what) {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    std::memcpy(&value, Skip(sizeof(T), what).data, sizeof(T));
    return value;
  }

  /*! \brief Skip `size` bytes and return them. */
  Range Skip(uint64_t size, const char* what) {
    Range part = range_.Part(position_, size, what_ + ": " + what);
    position_ += size;
    return part;
  }

  /*!
   * \brief Skip an array: its length, then its elements of `item` bytes each. Returns the elements.
   */
  Range SkipArray(uint64_t item, const char* what) {
    const auto count = Read<uint64_t>(what);
    if (count > left() / item) {
      throw FormatError(what_ + ": " + what + ": expected at most " +
                        std::to_string(left() / item) + " elements at offset " +
                        std::to_string(offset()) + ", got " + std::to_string(count));
    }
    return Skip(count * item, what);
  }

  /*! \brief Read the next string, as a view of the mapped file. */
  std::string_view ReadString(const char* what) {
    const Range characters = SkipArray(1, what);
    return {reinterpret_cast<const char*>(characters.data), characters.size};
  }

  /*! \brief The number of bytes left. */
  uint64_t left() const { return range_.size - position_; }
  /*! \brief The file offset of the next byte. */
  uint64_t offset() const { return range_.offset + position_; }

  /*! \brief Check that no bytes are left. */
  void Finish() const {
    if (left() != 0) {
      throw FormatError(what_ + ": " + std::to_string(left()) +
                        " bytes left at the expected end, offset " + std::to_string(offset()));
    }
  }

 private:
  Range range_;
  uint64_t position_ = 0;
  std::string what_;
};

}  // namespace tvm_fixes::artifact

#endif  // TVM_FIXES_ARTIFACT_READER_H_
