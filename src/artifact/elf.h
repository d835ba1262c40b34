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
 * \file src/artifact/elf.h
 * \brief Reader of section headers and dynamic symbols of 64-bit little-endian ELF files.
 */
#ifndef TVM_FIXES_ARTIFACT_ELF_H_
#define TVM_FIXES_ARTIFACT_ELF_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reader.h"

namespace tvm_fixes::artifact {

/*! \brief A section of an ELF file. */
struct Section {
  std::string name;
  uint32_t type;
  /*! \brief The load address, or 0 if the section is not loaded. */
  uint64_t address;
  uint64_t offset;
  /*! \brief The size in memory. */
  uint64_t size;
  /*! \brief The index of the linked section: for a symbol table, its string table. */
  uint32_t link;

  /*! \brief The number of bytes in the file: 0 for a zero-initialized section. */
  uint64_t file_size() const;
};

/*! \brief A 64-bit little-endian ELF file. */
class ElfFile {
 public:
  /*!
   * \brief Read the section headers.
   * \param bytes The file, which must outlive this object.
   * \throws FormatError if the file is truncated or not a 64-bit little-endian ELF file.
   */
  explicit ElfFile(Range bytes);

  const std::vector<Section>& sections() const { return sections_; }

  /*!
   * \brief The bytes of a dynamic data symbol, or std::nullopt if no symbol has this name.
   * \throws FormatError if the symbol's address or size is outside the file.
   */
  std::optional<Range> FindData(std::string_view name) const;

 private:
  Range BytesOf(const Section& section) const;

  Range bytes_;
  std::vector<Section> sections_;
};

}  // namespace tvm_fixes::artifact

#endif  // TVM_FIXES_ARTIFACT_ELF_H_
