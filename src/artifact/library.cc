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
 * \file src/artifact/library.cc
 * \brief Reader of the modules and constants that TVM's ``export_library`` packs into a library.
 */
#include "library.h"

#include <tvm/ffi/c_api.h>

#include <cinttypes>
#include <cstdio>
#include <string_view>

namespace tvm_fixes::artifact {
namespace {

constexpr std::string_view kOwnCode = "_lib";
constexpr std::string_view kExecutable = "relax.VMExecutable";
constexpr std::string_view kExecutableVersion = "0.14";
constexpr uint64_t kExecutableMagic = 0xD225DE2F4214151D;
// This version also stores memory scopes.
constexpr uint64_t kExecutableMagic2 = 0xD225DE2F4214151E;
constexpr uint64_t kTensorMagic = 0xDD5E40F096B4A13F;
// Larger than any module kind in use, and than any rank written by hand.
constexpr uint64_t kMaxKind = 256;
constexpr int32_t kMaxRank = 64;

std::string Hex(uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof(text), "0x%016" PRIX64, value);
  return text;
}

/*! \brief The number of bytes in which TVM writes a tensor's elements. */
uint64_t CheckedBytes(const Constant& tensor, const std::string& what) {
  uint64_t bytes = (tensor.dtype.bits + 7U) / 8U;
  for (int64_t extent : tensor.shape) {
    if (extent < 0) {
      throw FormatError(what + ": expected non-negative extents, got " + std::to_string(extent));
    }
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) {
      throw FormatError(what + ": the size does not fit in 64 bits");
    }
  }
  return bytes;
}

std::vector<int64_t> ToShape(const Range& extents) {
  std::vector<int64_t> shape(extents.size / sizeof(int64_t));
  // A scalar has no extents, and the data pointers may be null.
  if (!shape.empty()) std::memcpy(shape.data(), extents.data, extents.size);
  return shape;
}

void ReadTensor(Reader* reader, const std::string& what, Constant* tensor) {
  const auto magic = reader->Read<uint64_t>("magic number of a tensor");
  if (magic != kTensorMagic) {
    throw FormatError(what + ": expected the magic number " + Hex(kTensorMagic) +
                      " of a tensor, got " + Hex(magic));
  }
  reader->Skip(sizeof(uint64_t), "reserved bytes of a tensor");
  const auto device = reader->Read<int32_t>("device of a tensor");
  if (device != kDLCPU) {
    throw FormatError(what + ": expected a tensor of device type " + std::to_string(kDLCPU) +
                      ", got " + std::to_string(device));
  }
  reader->Skip(sizeof(int32_t), "device number of a tensor");
  const auto rank = reader->Read<int32_t>("rank of a tensor");
  if (rank < 0 || rank > kMaxRank) {
    throw FormatError(what + ": expected a rank from 0 to " + std::to_string(kMaxRank) + ", got " +
                      std::to_string(rank));
  }
  tensor->dtype.code = reader->Read<uint8_t>("dtype of a tensor");
  tensor->dtype.bits = reader->Read<uint8_t>("dtype of a tensor");
  tensor->dtype.lanes = reader->Read<uint16_t>("dtype of a tensor");
  tensor->shape = ToShape(reader->Skip(rank * sizeof(int64_t), "shape of a tensor"));
  const uint64_t expected = CheckedBytes(*tensor, what);
  const auto bytes = reader->Read<uint64_t>("size of a tensor");
  if (bytes != expected) {
    throw FormatError(what + ": expected " + std::to_string(expected) +
                      " bytes by its shape, got " + std::to_string(bytes));
  }
  const Range data = reader->Skip(bytes, "elements of a tensor");
  tensor->offset = data.offset;
  tensor->size = data.size;
}

Constant ReadConstant(Reader* reader, const std::string& what) {
  Constant constant{"", {0, 0, 0}, {}, 0, 0};
  const auto type = reader->Read<int32_t>("type of a constant");
  Range value;
  switch (type) {
    case kTVMFFITensor:
      constant.kind = "tensor";
      ReadTensor(reader, what, &constant);
      return constant;
    case kTVMFFIShape: {
      constant.kind = "shape";
      value = reader->SkipArray(sizeof(int64_t), "extents of a shape");
      if (value.size > kMaxRank * sizeof(int64_t)) {
        throw FormatError(what + ": expected a shape of at most " + std::to_string(kMaxRank) +
                          " extents, got " + std::to_string(value.size / sizeof(int64_t)));
      }
      constant.shape = ToShape(value);
      break;
    }
    case kTVMFFIStr:
      constant.kind = "string";
      value = reader->SkipArray(1, "characters of a string");
      break;
    case kTVMFFIInt:
      constant.kind = "int";
      value = reader->Skip(sizeof(int64_t), "integer");
      break;
    case kTVMFFIFloat:
      constant.kind = "float";
      value = reader->Skip(sizeof(double), "number");
      break;
    case kTVMFFIDataType:
      constant.kind = "dtype";
      value = reader->Skip(sizeof(DLDataType), "dtype");
      break;
    default:
      throw FormatError(what + ": unknown type " + std::to_string(type) + " at offset " +
                        std::to_string(reader->offset() - sizeof(type)));
  }
  constant.offset = value.offset;
  constant.size = value.size;
  return constant;
}

/*! \brief Skip the function table: kinds, names, extents and parameters. */
void SkipFunctions(Reader* reader) {
  const auto count = reader->Read<uint64_t>("number of functions");
  for (uint64_t index = 0; index < count; ++index) {
    reader->Skip(sizeof(int32_t), "kind of a function");
    reader->SkipArray(1, "name of a function");
    reader->Skip(4 * sizeof(int64_t), "extent of a function");
    const auto params = reader->Read<uint64_t>("number of parameters");
    for (uint64_t param = 0; param < params; ++param) {
      reader->SkipArray(1, "name of a parameter");
    }
  }
}

/*! \brief Read a VM executable and append its constants to `constants`. */
void ReadExecutable(Range bytes, std::vector<Constant>* constants) {
  Reader reader(bytes, "Relax VM executable");
  const auto magic = reader.Read<uint64_t>("magic number");
  if (magic != kExecutableMagic && magic != kExecutableMagic2) {
    throw FormatError("Relax VM executable: expected the magic number " + Hex(kExecutableMagic2) +
                      ", got " + Hex(magic));
  }
  const std::string_view version = reader.ReadString("version");
  if (version != kExecutableVersion) {
    throw FormatError("Relax VM executable: expected version " + std::string(kExecutableVersion) +
                      ", got a different one of " + std::to_string(version.size()) + " characters");
  }
  SkipFunctions(&reader);
  if (magic == kExecutableMagic2) {
    const auto scopes = reader.Read<uint64_t>("number of memory scopes");
    for (uint64_t index = 0; index < scopes; ++index) {
      reader.Skip(sizeof(int64_t), "constant of a memory scope");
      reader.SkipArray(1, "name of a memory scope");
    }
  }
  const auto count = reader.Read<uint64_t>("number of constants");
  for (uint64_t index = 0; index < count; ++index) {
    constants->push_back(ReadConstant(&reader, "constant " + std::to_string(index)));
  }
  reader.SkipArray(sizeof(int64_t), "offsets of the instructions");
  reader.SkipArray(sizeof(int64_t), "instructions");
  reader.Finish();
}

}  // namespace

Contents ReadContents(Range symbol) {
  Reader whole(symbol, "packed modules");
  const auto size = whole.Read<uint64_t>("size");
  Reader reader(whole.Skip(size, "bytes"), "packed modules");
  const uint64_t begins = reader.SkipArray(sizeof(uint64_t), "import tree").size / sizeof(uint64_t);
  reader.SkipArray(sizeof(uint64_t), "import tree");
  if (begins == 0) throw FormatError("packed modules: expected an import tree, got an empty one");
  Contents contents;
  for (uint64_t index = 0; index + 1 < begins; ++index) {
    const std::string_view kind = reader.ReadString("kind of a module");
    if (kind.size() > kMaxKind) {
      throw FormatError("packed modules: expected a kind of at most " + std::to_string(kMaxKind) +
                        " characters, got " + std::to_string(kind.size()));
    }
    Range bytes{nullptr, reader.offset(), 0};
    if (kind != kOwnCode) bytes = reader.SkipArray(1, "bytes of a module");
    contents.modules.push_back({std::string(kind), bytes.offset, bytes.size});
    if (kind == kExecutable) ReadExecutable(bytes, &contents.constants);
  }
  reader.Finish();
  return contents;
}

}  // namespace tvm_fixes::artifact
