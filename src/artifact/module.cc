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
 * \file src/artifact/module.cc
 * \brief The Python module ``_artifact``: the layout of an exported library.
 *
 * It returns offsets and sizes; a caller that needs the bytes of a tensor maps the file.
 */
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "elf.h"
#include "library.h"
#include "mapped_file.h"

namespace py = pybind11;

namespace tvm_fixes::artifact {
namespace {

py::bytes Name(const std::string& name) { return py::bytes(name); }

py::list Sections(const ElfFile& elf) {
  py::list rows;
  for (const Section& section : elf.sections()) {
    rows.append(py::make_tuple(Name(section.name), section.offset, section.file_size()));
  }
  return rows;
}

py::list Modules(const Contents& contents) {
  py::list rows;
  for (const PackedModule& module : contents.modules) {
    rows.append(py::make_tuple(Name(module.kind), module.offset, module.size));
  }
  return rows;
}

py::list Constants(const Contents& contents) {
  py::list rows;
  for (const Constant& constant : contents.constants) {
    const DLDataType& dtype = constant.dtype;
    rows.append(py::make_tuple(constant.kind, py::make_tuple(dtype.code, dtype.bits, dtype.lanes),
                               py::tuple(py::cast(constant.shape)), constant.offset,
                               constant.size));
  }
  return rows;
}

py::tuple ReadLibrary(const std::string& path) {
  std::unique_ptr<MappedFile> file;
  std::optional<ElfFile> elf;
  Contents contents;
  {
    const py::gil_scoped_release released;
    file = std::make_unique<MappedFile>(path);
    elf.emplace(file->bytes());
    const std::optional<Range> packed = elf->FindData(kPackedSymbol);
    if (!packed.has_value()) {
      throw FormatError(std::string("not a library exported by TVM: missing symbol ") +
                        kPackedSymbol);
    }
    contents = ReadContents(*packed);
  }
  return py::make_tuple(file->bytes().size, Sections(*elf), Modules(contents), Constants(contents));
}

}  // namespace
}  // namespace tvm_fixes::artifact

PYBIND11_MODULE(_artifact, module) {
  using tvm_fixes::artifact::FormatError;
  // pybind11 tries the newest translator first; other exceptions fall through to the older ones.
  py::register_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised) std::rethrow_exception(raised);
    } catch (const FormatError& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const std::system_error& error) {
      errno = error.code().value();
      PyErr_SetFromErrno(PyExc_OSError);
    }
  });
  module.doc() = "The layout of a library that TVM exported.";
  module.def("read_library", &tvm_fixes::artifact::ReadLibrary, py::arg("path"),
             R"(Read the headers of a library that TVM exported.

The file is mapped, and its tensors are not read.

Parameters
----------
path : str
    The library, a 64-bit little-endian ELF file.

Returns
-------
size : int
    Of the file, in bytes.
sections : list of (bytes, int, int)
    Name, offset and size in the file of each ELF section.
modules : list of (bytes, int, int)
    Kind, offset and size of each packed module; ``b"_lib"`` is the library's own code.
constants : list of (str, (int, int, int), tuple of int, int, int)
    Kind (``"tensor"``, ``"shape"``, ``"string"``, ``"int"``, ``"float"``, ``"dtype"``), DLPack's
    code, bits and lanes of a tensor's dtype, shape, offset and size of each constant of the virtual
    machine.

Raises
------
OSError
    If it cannot be opened.
ValueError
    If it is no such library, or not a whole one.)");
}
