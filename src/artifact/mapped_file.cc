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
 * \file src/artifact/mapped_file.cc
 * \brief Read-only memory mapping of a file.
 */
#include "mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace tvm_fixes::artifact {
namespace {

/*! \brief A file descriptor that is closed at the end of its scope. */
struct Descriptor {
  int number;
  ~Descriptor() { ::close(number); }
};

[[noreturn]] void Fail(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  // Without O_NONBLOCK, opening a named pipe would block.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) Fail("open");
  struct stat status;
  if (::fstat(file.number, &status) != 0) Fail("fstat");
  if (!S_ISREG(status.st_mode)) throw FormatError("not a regular file");
  if (status.st_size == 0) throw FormatError("empty");
  const auto size = static_cast<uint64_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (data == MAP_FAILED) Fail("mmap");
  bytes_ = {static_cast<const uint8_t*>(data), 0, size};
}

MappedFile::~MappedFile() { ::munmap(const_cast<uint8_t*>(bytes_.data), bytes_.size); }

}  // namespace tvm_fixes::artifact
