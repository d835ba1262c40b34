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
 * \file src/relax/analysis/verifier/diagnostic.h
 * \brief Diagnostics of the verifier, and their paths in the module.
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_VERIFIER_DIAGNOSTIC_H_
#define TVM_FIXES_RELAX_ANALYSIS_VERIFIER_DIAGNOSTIC_H_

#include <tvm/ffi/reflection/access_path.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../../../ffi/node_layout.h"

namespace tvm_fixes {
namespace verifier {

/*!
 * \brief A path to a node, as steps from the module's root.
 *
 * Paths share their prefixes and are as cheap as a pointer until they are reported. A path is valid
 * until the visit of its binding ends; a KeptPath stays valid.
 */
class Path {
 public:
  static Path Root() { return Path(nullptr); }
  Path Attr(const char* name) const { return Path(Append({node_, name, -1, nullptr})); }
  Path Item(size_t index) const {
    return Path(Append({node_, nullptr, static_cast<int64_t>(index), nullptr}));
  }
  Path Key(const Object* key) const { return Path(Append({node_, nullptr, -1, key})); }

  /*! \brief The path as TVM's AccessPath. */
  tvm::ffi::reflection::AccessPath ToAccessPath() const;

  /*! \brief Storage for steps during verification; at most one per thread. */
  class Arena;
  /*! \brief On destruction, frees the steps added in its scope, except those of KeptPaths. */
  class Scratch;

 protected:
  struct Node {
    const Node* parent;
    const char* attr;
    int64_t index;
    const Object* key;
  };
  explicit Path(const Node* node) : node_(node) {}
  static const Node* Append(Node node);

  const Node* node_;
};

/*! \brief A path that is valid as long as the arena. */
class KeptPath : public Path {
 public:
  /*! \brief The root. */
  KeptPath() : Path(Root()) {}
  KeptPath(const Path& path);
};

class Path::Arena {
 public:
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

 private:
  friend class Path;
  friend class KeptPath;
  std::vector<std::unique_ptr<Node[]>> chunks_;
  size_t size_ = 0;
  /*! \brief The number of steps that a KeptPath may use. */
  size_t num_kept_ = 0;
  Arena* previous_;
};

class Path::Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

 private:
  size_t begin_;
};

/*! \brief A count with its noun: "1 field", "2 fields". */
inline std::string Count(size_t number, const std::string& thing) {
  return std::to_string(number) + " " + thing + (number == 1 ? "" : "s");
}

enum class Severity : uint8_t { kError, kWarning, kNote };

/*! \brief One diagnostic. */
struct Diagnostic {
  Severity severity;
  /*! \brief The id of the rule: "call_tir.arg". */
  const char* rule;
  /*! \brief The name of the function. */
  std::string function;
  KeptPath path;
  /*! \brief One line: the problem, the expected and the actual value. */
  std::string message;
  /*! \brief Additional lines: both sides of a mismatch, and where they come from. */
  std::vector<std::pair<std::string, std::optional<KeptPath>>> notes;
  /*! \brief The remedy; may be empty. */
  std::string hint;

  Diagnostic& Note(std::string text, std::optional<KeptPath> where = std::nullopt) {
    notes.emplace_back(std::move(text), where);
    return *this;
  }
  Diagnostic& Hint(std::string text) {
    hint = std::move(text);
    return *this;
  }

  /*! \brief The fields by name, for Python. */
  Map<String, Any> ToMap() const;
};

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_DIAGNOSTIC_H_
