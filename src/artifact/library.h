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
 * \file src/artifact/library.h
 * \brief What TVM's ``export_library`` packs into a library: modules, and their constants.
 */
#ifndef TVM_FIXES_ARTIFACT_LIBRARY_H_
#define TVM_FIXES_ARTIFACT_LIBRARY_H_

#include <dlpack/dlpack.h>

#include <string>
#include <vector>

#include "reader.h"

namespace tvm_fixes::artifact {

/*! \brief A module that is serialized within the library. */
struct PackedModule {
  /*! \brief Such as ``relax.VMExecutable``; ``_lib``, the library's own code, has no bytes. */
  std::string kind;
  uint64_t offset;
  uint64_t size;
};

/*! \brief A constant of the Relax virtual machine. */
struct Constant {
  /*! \brief ``tensor``, ``shape``, ``string``, ``int``, ``float`` or ``dtype``. */
  const char* kind;
  /*! \brief The type of a tensor's elements. */
  DLDataType dtype;
  /*! \brief The extents of a tensor, or of a shape. */
  std::vector<int64_t> shape;
  /*! \brief Where its value lies in the file. */
  uint64_t offset;
  uint64_t size;
};

/*! \brief The contents of the symbol that holds the packed modules. */
struct Contents {
  std::vector<PackedModule> modules;
  /*! \brief In the order of the virtual machine's pool, executable by executable. */
  std::vector<Constant> constants;
};

/*! \brief The symbol that holds the packed modules. */
inline constexpr const char* kPackedSymbol = "__tvm_ffi__library_bin";

/*!
 * \brief Read what the symbol ``kPackedSymbol`` holds.
 *
 * Its format: the size of what follows, as 8 bytes; the import tree, as two arrays of 8-byte
 * indices (the children of module i are ``children[begin[i]]`` to ``children[begin[i + 1]]``, the
 * last one not among them); then for each module its kind and, unless that is ``_lib``, its bytes.
 * An array or a string is its length, as 8 bytes, and its elements.  All numbers are little-endian.
 *
 * \throws FormatError if it is not in this format, or a virtual machine's executable in it is not
 *         of a version that is known.
 */
Contents ReadContents(Range symbol);

}  // namespace tvm_fixes::artifact

#endif  // TVM_FIXES_ARTIFACT_LIBRARY_H_
