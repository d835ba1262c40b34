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
 * \file src/artifact/elf.cc
 * \brief Reader of section headers and dynamic symbols of 64-bit little-endian ELF files.
 */
#include "elf.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

namespace tvm_fixes::artifact {
namespace {

// Longer than any section name a compiler emits.
constexpr uint64_t kMaxName = 256;

/*! \brief The structure at `offset` of `range`. */
template <typename T>
T ReadAt(const Range& range, uint64_t offset, const std::string& what) {
  T value;
  std::memcpy(&value, range.Part(offset, sizeof(T), what).data, sizeof(T));
  return value;
}

/*! \brief The zero-terminated string at `offset` of a string table. */
std::string ReadName(const Range& table, uint64_t offset) {
  const Range rest = table.Part(offset, table.size - std::min(offset, table.size), "section name");
  const uint64_t limit = std::min(rest.size, kMaxName);
  const void* end = std::memchr(rest.data, 0, limit);
  if (end == nullptr) {
    throw FormatError("section name at offset " + std::to_string(rest.offset) +
                      ": expected its end within " + std::to_string(limit) + " bytes");
  }
  return {reinterpret_cast<const char*>(rest.data), reinterpret_cast<const char*>(end)};
}

void CheckIdentification(const Range& bytes) {
  if (bytes.size < EI_NIDENT || std::memcmp(bytes.data, ELFMAG, SELFMAG) != 0) {
    throw FormatError("not an ELF file");
  }
  const int width = bytes.data[EI_CLASS];
  const int order = bytes.data[EI_DATA];
  if (width == ELFCLASS32) throw FormatError("expected a 64-bit ELF file, got a 32-bit one");
  if (order == ELFDATA2MSB)
    throw FormatError("expected a little-endian ELF file, got a big-endian one");
  if (width != ELFCLASS64 || order != ELFDATA2LSB) {
    throw FormatError("ELF file of unknown class " + std::to_string(width) + " or byte order " +
                      std::to_string(order));
  }
}

}  // namespace

uint64_t Section::file_size() const { return type == SHT_NOBITS ? 0 : size; }

ElfFile::ElfFile(Range bytes) : bytes_(bytes) {
  CheckIdentification(bytes_);
  const auto header = ReadAt<Elf64_Ehdr>(bytes_, 0, "ELF header");
  if (header.e_shoff == 0) throw FormatError("ELF file has no sections");
  if (header.e_shentsize != sizeof(Elf64_Shdr)) {
    throw FormatError("ELF header: expected section headers of " +
                      std::to_string(sizeof(Elf64_Shdr)) + " bytes, got " +
                      std::to_string(header.e_shentsize));
  }
  // Counts that do not fit in the ELF header are stored in the first section header.
  const auto first = ReadAt<Elf64_Shdr>(bytes_, header.e_shoff, "section headers");
  const uint64_t count = header.e_shnum != 0 ? header.e_shnum : first.sh_size;
  const uint64_t names = header.e_shstrndx != SHN_XINDEX ? header.e_shstrndx : first.sh_link;
  if (count > bytes_.size / sizeof(Elf64_Shdr)) {
    throw FormatError("section headers: expected at most " +
                      std::to_string(bytes_.size / sizeof(Elf64_Shdr)) + ", got " +
                      std::to_string(count));
  }
  const Range headers = bytes_.Part(header.e_shoff, count * sizeof(Elf64_Shdr), "section headers");
  if (names >= count) {
    throw FormatError("names of sections: expected one of " + std::to_string(count) +
                      " sections, got section " + std::to_string(names));
  }
  const auto table = ReadAt<Elf64_Shdr>(headers, names * sizeof(Elf64_Shdr), "names of sections");
  const Range texts = bytes_.Part(table.sh_offset, table.sh_size, "names of sections");
  for (uint64_t index = 0; index < count; ++index) {
    const auto entry = ReadAt<Elf64_Shdr>(headers, index * sizeof(Elf64_Shdr), "section header");
    if (entry.sh_type == SHT_NULL) {
      sections_.push_back({"", SHT_NULL, 0, 0, 0, 0});
      continue;
    }
    Section section{ReadName(texts, entry.sh_name),
                    entry.sh_type,
                    entry.sh_addr,
                    entry.sh_offset,
                    entry.sh_size,
                    entry.sh_link};
    bytes_.Part(section.offset, section.file_size(), "section " + section.name);
    sections_.push_back(std::move(section));
  }
}

Range ElfFile::BytesOf(const Section& section) const {
  return bytes_.Part(section.offset, section.file_size(), "section " + section.name);
}

std::optional<Range> ElfFile::FindData(std::string_view name) const {
  for (const Section& section : sections_) {
    if (section.type != SHT_DYNSYM) continue;
    const Range symbols = BytesOf(section);
    if (section.link >= sections_.size()) {
      throw FormatError("section " + section.name + ": expected names in one of " +
                        std::to_string(sections_.size()) + " sections, got section " +
                        std::to_string(section.link));
    }
    const Range names = BytesOf(sections_[section.link]);
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= symbols.size; at += sizeof(Elf64_Sym)) {
      const auto symbol = ReadAt<Elf64_Sym>(symbols, at, "symbol");
      const uint64_t left = names.size - std::min<uint64_t>(symbol.st_name, names.size);
      if (left <= name.size()) continue;
      const uint8_t* text = names.data + symbol.st_name;
      if (std::memcmp(text, name.data(), name.size()) != 0 || text[name.size()] != 0) continue;
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= sections_.size()) continue;
      const Section& home = sections_[symbol.st_shndx];
      if (symbol.st_value < home.address) {
        throw FormatError("symbol " + std::string(name) + ": expected an address from " +
                          std::to_string(home.address) + ", got " +
                          std::to_string(symbol.st_value));
      }
      return BytesOf(home).Part(symbol.st_value - home.address, symbol.st_size,
                                "symbol " + std::string(name));
    }
  }
  return std::nullopt;
}

}  // namespace tvm_fixes::artifact
