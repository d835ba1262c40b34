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
 * \file src/relay/parser/metadata.h
 * \brief The metadata section of Relay text.
 */
#ifndef TVM_FIXES_RELAY_PARSER_METADATA_H_
#define TVM_FIXES_RELAY_PARSER_METADATA_H_

#include <cstddef>
#include <optional>
#include <string_view>

#include "../ir/module.h"

namespace tvm_fixes::relay {

/*! \brief A program and its metadata section, both parts of one text. */
struct SplitText {
  std::string_view program;
  std::string_view metadata;
  bool has_metadata = false;
  ptrdiff_t metadata_line = 0;
};

/*! \brief The values that `meta[key][index]` refers to. */
class Metadata {
 public:
  /*!
   * \brief Read the section of a text, if it has one.
   * \throws RelayError if the section is malformed.
   */
  explicit Metadata(const SplitText& parts);

  /*! \brief Whether the text has a section. */
  bool present() const { return present_; }
  /*! \brief A value, None if Relay has no use for it, or std::nullopt if the section lacks it. */
  std::optional<Any> Find(std::string_view key, uint64_t index) const;

 private:
  bool present_ = false;
  Map<String, Any> values_;
};

SplitText SplitMetadata(std::string_view text);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_PARSER_METADATA_H_
