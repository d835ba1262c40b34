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
 * \brief The findings of the verifier, and their places in the module.
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
 * \brief A place in a module, as the steps from its root.
 *
 * Places share their first steps, and cost as much as a pointer until they are reported. A place is
 * valid until the visit of its binding ends; a KeptPath stays valid.
 */
class Path {
 public:
  static Path Root() { return Path(nullptr); }
  Path Attr(const char* name) const { return Path(Append({node_, name, -1, nullptr})); }
  Path Item(size_t index) const {
    return Path(Append({node_, nullptr, static_cast<int64_t>(index), nullptr}));
  }
  Path Key(const Object* key) const { return Path(Append({node_, nullptr, -1, key})); }

  /*! \brief The place in TVM's own terms. */
  tvm::ffi::reflection::AccessPath ToAccessPath() const;

  /*! \brief Where steps are kept while a module is verified; one at a time in a thread. */
  class Arena;
  /*! \brief Forgets the steps that are made meanwhile, up to those of the last KeptPath. */
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

/*! \brief A place that is valid as long as the arena. */
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
  /*! \brief How many of the steps some KeptPath may be made of. */
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

/*! \brief A number of things: "1 field", "2 fields". */
inline std::string Count(size_t number, const std::string& thing) {
  return std::to_string(number) + " " + thing + (number == 1 ? "" : "s");
}

enum class Severity : uint8_t { kError, kWarning, kNote };

/*! \brief One finding. */
struct Diagnostic {
  Severity severity;
  /*! \brief The id of the rule: "call_tir.arg". */
  const char* rule;
  /*! \brief The name of the function. */
  std::string function;
  KeptPath path;
  /*! \brief One line: what is wrong, expected and got. */
  std::string message;
  /*! \brief More lines: both sides of what disagrees, and where they come from. */
  std::vector<std::pair<std::string, std::optional<KeptPath>>> notes;
  /*! \brief What to do about it; may be empty. */
  std::string hint;

  Diagnostic& Note(std::string text, std::optional<KeptPath> where = std::nullopt) {
    notes.emplace_back(std::move(text), where);
    return *this;
  }
  Diagnostic& Hint(std::string text) {
    hint = std::move(text);
    return *this;
  }

  /*! \brief For Python: severity, rule, function, path, message, notes, hint by name. */
  Map<String, Any> ToMap() const;
};

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_DIAGNOSTIC_H_
