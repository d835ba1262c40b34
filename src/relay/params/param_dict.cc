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
 * \file src/relay/params/param_dict.cc
 * \brief Reads and writes the format: magic number, reserved number, names, tensors; little-endian.
 */
#include "param_dict.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>

#include <cstring>
#include <vector>

#include "../../ffi/registration.h"
#include "../json/json_text.h"
#include "tensor_blob.h"

namespace tvm_fixes::relay {
namespace {

constexpr uint64_t kParamsMagic = 0xF7E58D4F05049CB7;
constexpr size_t kWord = sizeof(uint64_t);

/*! \brief Reads a file of parameters from the beginning. */
class ParamReader {
 public:
  explicit ParamReader(std::string_view data) : data_(data) {}

  Map<String, Tensor> Read() {
    if (Word("the magic number") != kParamsMagic) {
      Fail(0,
           "the magic number of a file of parameters is missing: expected what "
           "relay.save_param_dict wrote");
    }
    Word("the header");
    std::vector<String> names = ReadNames();
    size_t place = position_;
    uint64_t count = Word("the number of tensors");
    if (count != names.size()) {
      Fail(place, "expected as many tensors as names, found " + std::to_string(names.size()) +
                      " names and " + std::to_string(count) + " tensors");
    }
    Map<String, Tensor> result;
    for (const String& name : names) {
      if (result.count(name) != 0) Fail(place, "'" + std::string(name) + "' occurs twice");
      result.Set(name, ReadNext(name));
    }
    if (position_ != data_.size()) {
      Fail(position_, std::to_string(data_.size() - position_) + " bytes follow the last tensor");
    }
    return result;
  }

 private:
  [[noreturn]] static void Fail(size_t position, const std::string& message) {
    ThrowRelayError("parameters, byte " + std::to_string(position) + ": " + message);
  }

  uint64_t Word(const char* what) {
    if (data_.size() - position_ < kWord) {
      Fail(position_, "the file ends within " + std::string(what) + ": expected 8 bytes, found " +
                          std::to_string(data_.size() - position_));
    }
    uint64_t value;
    std::memcpy(&value, data_.data() + position_, kWord);
    position_ += kWord;
    return value;
  }

  std::vector<String> ReadNames() {
    size_t place = position_;
    uint64_t count = Word("the number of names");
    // A name has at least its length.
    if (count > (data_.size() - position_) / kWord) {
      Fail(place, "the file declares " + std::to_string(count) + " names, but only " +
                      std::to_string(data_.size() - position_) + " bytes follow");
    }
    std::vector<String> names;
    for (uint64_t i = 0; i < count; ++i) {
      place = position_;
      uint64_t size = Word("the length of a name");
      if (size > data_.size() - position_) {
        Fail(place, "name " + std::to_string(i) + " declares " + std::to_string(size) +
                        " bytes, but only " + std::to_string(data_.size() - position_) + " follow");
      }
      std::string_view name = data_.substr(position_, size);
      if (!IsUtf8(name)) Fail(position_, "name " + std::to_string(i) + " is not text in UTF-8");
      names.emplace_back(name.data(), size);
      position_ += size;
    }
    return names;
  }

  Tensor ReadNext(const String& name) {
    try {
      size_t used = 0;
      Tensor tensor = ReadTensor(data_.substr(position_), &used);
      position_ += used;
      return tensor;
    } catch (const tvm::ffi::Error& error) {
      Fail(position_, "'" + std::string(name) + "': " + error.message());
    }
  }

  std::string_view data_;
  size_t position_ = 0;
};

}  // namespace

Map<String, Tensor> ReadParams(std::string_view data) { return ParamReader(data).Read(); }

std::string WriteParams(const Map<String, Tensor>& params) {
  std::string out;
  auto write = [&out](uint64_t value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  write(kParamsMagic);
  write(0);
  write(params.size());
  for (const auto& [name, tensor] : params) {
    write(name.size());
    out.append(name.data(), name.size());
  }
  write(params.size());
  for (const auto& [name, tensor] : params) WriteTensor(tensor, &out);
  return out;
}

namespace {

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("tvm_fixes.relay.ReadParams",
           [](const tvm::ffi::Bytes& data) {
             return ReadParams(std::string_view(data.data(), data.size()));
           })
      .def("tvm_fixes.relay.WriteParams",
           [](const Map<String, Tensor>& params) { return tvm::ffi::Bytes(WriteParams(params)); });
}

}  // namespace
}  // namespace tvm_fixes::relay
