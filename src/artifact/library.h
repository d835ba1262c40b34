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
 * \brief Reader of the modules and constants that TVM's ``export_library`` packs into a library.
 */
#ifndef TVM_FIXES_ARTIFACT_LIBRARY_H_
#define TVM_FIXES_ARTIFACT_LIBRARY_H_

#include <dlpack/dlpack.h>

#include <string>
#include <vector>

#include "reader.h"

namespace tvm_fixes::artifact {

/*! \brief A module serialized in the library. */
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
  /*! \brief The offset of its value in the file. */
  uint64_t offset;
  uint64_t size;
};

/*! \brief The packed modules and their constants. */
struct Contents {
  std::vector<PackedModule> modules;
  /*! \brief In constant pool order, executable by executable. */
  std::vector<Constant> constants;
};

/*! \brief The symbol that holds the packed modules. */
inline constexpr const char* kPackedSymbol = "__tvm_ffi__library_bin";

/*!
 * \brief Read the contents of the symbol ``kPackedSymbol``.
 *
 * The symbol starts with its size in 8 bytes. The import tree follows as two arrays of 8-byte
 * indices: the children of module i are ``children[begin[i]:begin[i + 1]]``. Then come the kind of
 * each module and, unless the kind is ``_lib``, its bytes. An array or a string is its length in 8
 * bytes, followed by its elements.  All numbers are little-endian.
 *
 * \throws FormatError if the symbol is not in this format, or holds a VM executable of an unknown
 *        version.
 */
Contents ReadContents(Range symbol);

}  // namespace tvm_fixes::artifact

#endif  // TVM_FIXES_ARTIFACT_LIBRARY_H_
