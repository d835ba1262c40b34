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
 * \file src/runtime/compile_cuda_module.cc
 * \brief Compiles CUDA source at build time where TVM has no CUDA runtime.
 *
 * TVM: seen in 0.27. Trigger: relax.build for CUDA on a machine without a GPU driver, such as a
 * build server or `docker build`. Symptom: the library contains CUDA source, which is compiled at
 * every load and needs a CUDA compiler there. Mechanism: without libtvm_runtime_cuda.so, TVM's code
 * generator wraps the source in a placeholder module that cannot compile.
 *
 * A CUDA module is serialized as a format, the signatures of its kernels, and code. This file
 * replaces the format and the code, and copies the bytes of the signatures.
 *
 * Removal: delete this file, and its caller python/tvm_fixes/target/cuda.py, once TVM's placeholder
 * compiles.
 */
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "../ffi/registration.h"

namespace tvm_fixes {
namespace {

using tvm::ffi::Bytes;
using tvm::ffi::Module;
using tvm::ffi::ModuleObj;
using tvm::ffi::Optional;
using tvm::ffi::String;

constexpr std::string_view kSource = "cuda";

template <typename Text>
std::string_view View(const Text& text) {
  return {text.data(), text.size()};
}

/*! \brief A string in TVM's stream format: its size in eight bytes, then its characters. */
std::string Framed(std::string_view text) {
  const uint64_t size = text.size();
  std::string framed(sizeof(size), '\0');
  std::memcpy(framed.data(), &size, sizeof(size));
  return framed.append(text);
}

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool EndsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

/*! \brief A serializable module of compiled kernels, which TVM's CUDA runtime can load. */
class CompiledCudaModule : public ModuleObj {
 public:
  CompiledCudaModule(std::string bytes, String source)
      : bytes_(std::move(bytes)), source_(std::move(source)) {}

  const char* kind() const final { return "cuda"; }
  int GetPropertyMask() const final { return Module::kBinarySerializable; }
  Bytes SaveToBytes() const final { return Bytes(bytes_.data(), bytes_.size()); }
  String InspectSource(const String& format) const final {
    return format.empty() || View(format) == kSource ? source_ : String();
  }
  Optional<Function> GetFunction(const String& name) final {
    TVM_FFI_THROW(RuntimeError) << "the CUDA kernel " << std::string(name)
                                << " cannot run: TVM's CUDA runtime is not loaded";
    TVM_FFI_UNREACHABLE();
  }

 private:
  std::string bytes_;
  String source_;
};

/*!
 * \brief Compile a module that holds CUDA source.
 * \param module A module of kind "cuda".
 * \param format The format of the compiled code, such as "cubin".
 * \param compile Compiles source to code.
 * \return A module with the compiled kernels, or `module` itself if it contains no source.
 * \throws ValueError if `module` is not a serialized CUDA module.
 */
Module CompileCudaModule(const Module& module, const String& format,
                         const tvm::ffi::TypedFunction<Bytes(String)>& compile) {
  const Bytes saved = module->SaveToBytes();
  const std::string_view bytes = View(saved);
  const String source = module->InspectSource(String(std::string(kSource)));
  const std::string head = Framed(kSource);
  const std::string tail = Framed(View(source));
  if (std::string_view(module->kind()) != kSource ||
      (StartsWith(bytes, head) &&
       (!EndsWith(bytes, tail) || bytes.size() < head.size() + tail.size()))) {
    TVM_FFI_THROW(ValueError) << "expected a CUDA module as serialized by TVM 0.27, got kind "
                              << module->kind() << " in " << bytes.size() << " bytes";
  }
  if (!StartsWith(bytes, head)) return module;
  const Bytes code = compile(source);
  std::string compiled = Framed(View(format));
  compiled += bytes.substr(head.size(), bytes.size() - head.size() - tail.size());
  compiled += Framed(View(code));
  return Module(tvm::ffi::make_object<CompiledCudaModule>(std::move(compiled), source));
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.runtime.CompileCudaModule", CompileCudaModule);
}

}  // namespace
}  // namespace tvm_fixes
