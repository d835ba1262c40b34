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
 * \file src/relay/json/json_text.h
 * \brief JSON text as a flat list of values, read without recursion and without copying strings.
 */
#ifndef TVM_FIXES_RELAY_JSON_JSON_TEXT_H_
#define TVM_FIXES_RELAY_JSON_JSON_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tvm_fixes::relay {

enum class JsonKind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };

/*! \brief Whether bytes are UTF-8 text, the only encoding that Python reads. */
bool IsUtf8(std::string_view bytes);

/*! \brief The values of a text; the text must outlive it. */
class JsonText {
 private:
  struct Item {
    std::string_view text;
    /*! \brief The index of the value after this one. */
    uint32_t next = 0;
    uint32_t size = 0;
    JsonKind kind = JsonKind::kNull;
    bool has_escapes = false;
  };

 public:
  /*! \brief A value within a JsonText, which must outlive it. */
  class Value {
   public:
    Value(const JsonText* document, size_t index) : document_(document), index_(index) {}

    JsonKind kind() const { return item().kind; }
    /*! \brief The characters of a number, or of a string with its escapes. */
    std::string_view text() const { return item().text; }
    /*! \brief The characters of a string without its escapes. */
    std::string String() const;
    bool Bool() const { return item().text == "true"; }
    std::optional<int64_t> Int() const;
    /*! \brief The number of elements of an array, or of members of an object. */
    size_t size() const { return item().size; }
    /*! \brief The member of an object with this name, or std::nullopt. */
    std::optional<Value> Find(std::string_view name) const;
    /*! \brief Call a function on each element of an array. */
    template <typename F>
    void ForEachElement(F visit) const {
      size_t child = index_ + 1;
      for (size_t i = 0; i < item().size; ++i, child = document_->items_[child].next) {
        visit(Value(document_, child));
      }
    }
    /*! \brief Call a function on the name and value of each member of an object. */
    template <typename F>
    void ForEachMember(F visit) const {
      size_t child = index_ + 1;
      for (size_t i = 0; i < item().size; ++i) {
        visit(Value(document_, child), Value(document_, child + 1));
        child = document_->items_[child + 1].next;
      }
    }
    /*! \brief The offset in the text, for messages. */
    size_t offset() const;

   private:
    const Item& item() const { return document_->items_[index_]; }

    const JsonText* document_;
    size_t index_;
  };

  /*!
   * \brief Read a text, which must hold one value.
   * \throws RelayError with line and column.
   */
  explicit JsonText(std::string_view text);

  Value root() const { return Value(this, 0); }
  /*! \brief "line 3, column 4" of an offset. */
  std::string Place(size_t offset) const;

 private:
  friend class JsonReader;

  std::string_view text_;
  std::vector<Item> items_;
};

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_JSON_JSON_TEXT_H_
