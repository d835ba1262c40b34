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
 * \file src/artifact/mapped_file.h
 * \brief Read-only memory mapping of a file.
 */
#ifndef TVM_FIXES_ARTIFACT_MAPPED_FILE_H_
#define TVM_FIXES_ARTIFACT_MAPPED_FILE_H_

#include <string>

#include "reader.h"

namespace tvm_fixes::artifact {

/*! \brief A regular file, mapped read-only for the lifetime of this object. */
class MappedFile {
 public:
  /*!
   * \brief Map the file `path`.
   * \throws std::system_error if the file cannot be opened or mapped.
   * \throws FormatError if the file is empty or not a regular file.
   */
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /*! \brief The contents of the file. */
  const Range& bytes() const { return bytes_; }

 private:
  Range bytes_;
};

}  // namespace tvm_fixes::artifact

#endif  // TVM_FIXES_ARTIFACT_MAPPED_FILE_H_
