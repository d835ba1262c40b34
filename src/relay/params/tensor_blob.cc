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
 * \file src/relay/params/tensor_blob.cc
 * \brief Tensors as TVM saves them, and base64.
 */
#include "tensor_blob.h"

#include <array>
#include <cstring>
#include <vector>

#include "../ir/tensor.h"

namespace tvm_fixes::relay {
namespace {

constexpr uint64_t kTensorMagic = 0xDD5E40F096B4A13F;
constexpr int kMaxDims = 64;

/*! \brief Reads numbers, which are stored little-endian. */
class ByteReader {
 public:
  explicit ByteReader(std::string_view data) : data_(data) {}

  template <typename T>
  T Read(const char* what) {
    T value;
    std::string_view bytes = Take(sizeof(T), what);
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  std::string_view Take(uint64_t size, const char* what) {
    if (size > data_.size() - position_) {
      ThrowRelayError("a saved tensor ends within its " + std::string(what) + ": expected " +
                      std::to_string(size) + " bytes, found " +
                      std::to_string(data_.size() - position_));
    }
    std::string_view bytes = data_.substr(position_, size);
    position_ += size;
    return bytes;
  }

  size_t position() const { return position_; }

 private:
  std::string_view data_;
  size_t position_ = 0;
};

/*! \brief The dtype of the elements; old files use uint1 for bool. */
DLDataType ReadDType(ByteReader* reader) {
  DLDataType dtype;
  dtype.code = reader->Read<uint8_t>("dtype");
  dtype.bits = reader->Read<uint8_t>("dtype");
  dtype.lanes = reader->Read<uint16_t>("dtype");
  bool is_bool = dtype.code == kDLUInt && dtype.bits == 1;
  if (is_bool) dtype = DLDataType{kDLBool, 8, dtype.lanes};
  bool is_known = dtype.code == kDLInt || dtype.code == kDLUInt || dtype.code == kDLFloat ||
                  dtype.code == kDLBfloat || is_bool;
  bool is_whole = dtype.bits == 8 || dtype.bits == 16 || dtype.bits == 32 || dtype.bits == 64;
  if (!is_known || !is_whole || dtype.lanes != 1) {
    ThrowRelayError("a saved tensor has an unknown dtype: code " + std::to_string(dtype.code) +
                    ", " + std::to_string(dtype.bits) + " bits, " + std::to_string(dtype.lanes) +
                    " lanes");
  }
  return dtype;
}

}  // namespace

Tensor ReadTensor(std::string_view data, size_t* used) {
  ByteReader reader(data);
  if (reader.Read<uint64_t>("header") != kTensorMagic) {
    ThrowRelayError("a saved tensor does not begin with TVM's magic number");
  }
  reader.Read<uint64_t>("header");
  reader.Take(8, "device");
  auto ndim = reader.Read<int32_t>("number of dimensions");
  if (ndim < 0 || ndim > kMaxDims) {
    ThrowRelayError("a saved tensor has " + std::to_string(ndim) + " dimensions: expected 0 to " +
                    std::to_string(kMaxDims));
  }
  DLDataType dtype = ReadDType(&reader);
  std::vector<int64_t> shape;
  int64_t size = dtype.bits / 8;
  for (int i = 0; i < ndim; ++i) {
    shape.push_back(reader.Read<int64_t>("shape"));
    if (shape.back() < 0 || __builtin_mul_overflow(size, shape.back(), &size)) {
      ThrowRelayError("a saved tensor has a dimension of extent " + std::to_string(shape.back()));
    }
  }
  auto declared = reader.Read<int64_t>("size");
  if (declared != size) {
    ThrowRelayError("a saved tensor declares " + std::to_string(declared) +
                    " bytes, but its shape and dtype have " + std::to_string(size));
  }
  std::string_view bytes = reader.Take(static_cast<uint64_t>(size), "elements");
  Tensor tensor = EmptyTensor(shape, dtype);
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  if (used != nullptr) *used = reader.position();
  return tensor;
}

void WriteTensor(const Tensor& tensor, std::string* out) {
  auto write = [out](const auto& value) {
    out->append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  write(kTensorMagic);
  write(uint64_t{0});
  write(int32_t{kDLCPU});
  write(int32_t{0});
  write(static_cast<int32_t>(tensor.ndim()));
  DLDataType dtype = tensor.dtype();
  if (dtype.code == kDLBool) dtype = DLDataType{kDLUInt, 1, dtype.lanes};
  write(dtype.code);
  write(dtype.bits);
  write(dtype.lanes);
  for (int i = 0; i < tensor.ndim(); ++i) write(static_cast<int64_t>(tensor.size(i)));
  auto size = static_cast<int64_t>(tvm::ffi::GetDataSize(tensor));
  write(size);
  out->append(static_cast<const char*>(tensor.data_ptr()), static_cast<size_t>(size));
}

namespace {

constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kInvalid = 255;
constexpr uint8_t kSpace = 254;
constexpr uint8_t kPadding = 253;

constexpr std::array<uint8_t, 256> MakeDecoder() {
  std::array<uint8_t, 256> table{};
  for (auto& entry : table) entry = kInvalid;
  for (uint8_t i = 0; i < 64; ++i) table[static_cast<uint8_t>(kAlphabet[i])] = i;
  for (char c : {' ', '\n', '\r', '\t'}) table[static_cast<uint8_t>(c)] = kSpace;
  table[static_cast<uint8_t>('=')] = kPadding;
  return table;
}

constexpr std::array<uint8_t, 256> kDecoder = MakeDecoder();

}  // namespace

std::string DecodeBase64(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  uint32_t buffer = 0;
  int bits = 0;
  bool ended = false;
  for (char c : text) {
    uint8_t value = kDecoder[static_cast<uint8_t>(c)];
    if (value == kSpace) continue;
    if (value == kPadding) {
      ended = true;
      continue;
    }
    if (value == kInvalid || ended) ThrowRelayError("a saved tensor is not valid base64");
    buffer = (buffer << 6) | value;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes += static_cast<char>((buffer >> bits) & 0xFF);
    }
  }
  if (bits == 6) ThrowRelayError("a saved tensor is not valid base64: it is truncated");
  return bytes;
}

std::string EncodeBase64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) {
      group = (group << 8) | (k < count ? static_cast<uint8_t>(bytes[i + k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += k <= count ? kAlphabet[(group >> (18 - 6 * k)) & 0x3F] : '=';
    }
  }
  return text;
}

}  // namespace tvm_fixes::relay
