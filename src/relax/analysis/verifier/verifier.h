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
 * \file src/relax/analysis/verifier/verifier.h
 * \brief State shared by the verifier's rules: the module, its types, the variables in scope, and
 *        the diagnostics.
 *
 * FunctionVerifier visits each binding once, infers the type of its value from the types of its
 * parts, and passes calls to the rules. A rule is a function of a call. A file of rules registers
 * each for its operators:
 *
 *     void CheckMatmul(Verifier* verifier, const Call& call) { … verifier->Error(…) … }
 *
 *     TVM_FIXES_INIT_BLOCK() { RegisterRule("relax.matmul", CheckMatmul); }
 */
#ifndef TVM_FIXES_RELAX_ANALYSIS_VERIFIER_VERIFIER_H_
#define TVM_FIXES_RELAX_ANALYSIS_VERIFIER_VERIFIER_H_

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../../ir/views.h"
#include "diagnostic.h"
#include "dims.h"
#include "prim_func.h"
#include "types.h"

namespace tvm_fixes {
namespace verifier {

class Verifier;
struct Call;

/*! \brief A rule for the calls of an operator. */
using Rule = void (*)(Verifier* verifier, const Call& call);

/*! \brief Run `rule` on every well-formed call of an operator. */
void RegisterRule(const char* op_name, Rule rule);

/*! \brief Properties of an operator. */
struct OpInfo {
  std::string name;
  /*! \brief The type key of its attributes; empty if it has none. */
  std::string attrs_type_key;
  int32_t attrs_type_index = -1;
  int32_t num_inputs = -1;
  bool is_pure = true;
  bool has_infer_type = false;
  /*! \brief Whether its result may alias its first argument after memory planning. */
  bool is_view = false;
  bool is_call_tir = false;
  std::vector<Rule> rules;
};

/*! \brief Whether a call has all inputs, and attributes of its operator's class without nulls. */
bool IsWellFormed(const CallView& call, const OpInfo& op);

/*! \brief A call of an operator, as a rule sees it. */
struct Call {
  CallView view;
  const OpInfo& op;
  Path path;
  /*! \brief The types of the arguments. */
  std::vector<TypeId> args;

  const Object* arg(size_t i) const { return view.args()[i].get(); }
  Path ArgPath(size_t i) const { return path.Attr("args").Item(i); }
};

/*! \brief A variable in scope. */
struct Variable {
  TypeId type = kUnknownType;
  /*! \brief The binding or the parameter. */
  KeptPath path;
  /*! \brief The bound value; null for a parameter and for a shape symbol. */
  const Object* value = nullptr;
  /*! \brief The variable whose memory it aliases; itself if it has its own. */
  const Object* memory = nullptr;
  /*! \brief Whether it was undefined. That is reported once; then it counts as defined. */
  bool is_poisoned = false;
  /*! \brief Whether it is a parameter that the function may overwrite. */
  bool is_updated = false;
};

/*! \brief The verification of one module. */
class Verifier {
 public:
  explicit Verifier(const ObjectRef& mod);

  /*! \brief Verify all functions. */
  void Run();

  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

  Diagnostic& Error(const char* rule, const Path& path, std::string message) {
    return Report(Severity::kError, rule, path, std::move(message));
  }
  Diagnostic& Warning(const char* rule, const Path& path, std::string message) {
    return Report(Severity::kWarning, rule, path, std::move(message));
  }
  /*! \brief Report an error if disproved, a warning if unknown; return null if proved. */
  Diagnostic* Check(Relation relation, const char* rule, const Path& path, std::string message);
  /*!
   * \brief Report a mismatch of two types.
   * \param what The start of the message: "argument 0 of `relu`".
   */
  Diagnostic* CheckFit(const Fit& fit, const char* rule, const Path& path, const std::string& what);

  DimTable& dims() { return dims_; }
  TypeTable& types() { return types_; }

  /*! \brief The function that a GlobalVar names, null if the module has none. */
  const Object* FindFunction(const Object* global_var) const;
  /*! \brief The type of a function, from its parameters and its result. */
  TypeInfo SignatureOf(const FunctionView& function);
  /*! \brief The same for a PrimFunc, whose parameters are buffers and scalars. */
  TypeInfo SignatureOfPrimFunc(const Object* function);
  /*! \brief Check that the type of a GlobalVar matches its function. */
  void CheckGlobalVarType(const ObjectRef& global_var, const TypeInfo& signature, const Path& path);
  /*! \brief A variable in scope, null for any other expression. */
  Variable* FindVariable(const Object* var);
  /*! \brief Record what a variable is bound to, in a function that is not verified. */
  void Bind(const Object* var, const Object* value) { variables_[var].value = value; }
  /*! \brief The value of an expression, looking through variables. */
  const Object* ValueOf(const Object* expr);
  /*! \brief Add a note on where the value of `expr` comes from. */
  void NoteOrigin(Diagnostic* diagnostic, const Object* expr);

  /*! \brief The out-of-bounds accesses of the PrimFunc that a GlobalVar names. */
  PrimFuncReaches& ReachesOf(const Object* global_var);
  /*! \brief The same for given values of the PrimFunc's symbols. */
  PrimFuncReaches FindReachesAt(const Object* global_var, const DimTable::Substitution& values);

  /*! \brief A call that overwrites memory. */
  struct Overwritten {
    KeptPath path;
    /*! \brief Whether it always overwrites, or only under a condition. */
    bool is_certain = true;
  };
  /*! \brief Record that a call writes its result over the memory of a variable. */
  void Overwrite(const Object* var, const Path& path);
  /*! \brief The call that overwrote the memory of a variable, or of a tuple field. */
  std::optional<Overwritten> OverwrittenAt(const Object* var);

  /*! \brief The keys of calls that a rule has accepted. */
  std::unordered_set<std::string>& sound_calls() { return sound_calls_; }

  /*! \brief Properties of an operator. */
  const OpInfo& InfoOf(const Object* op);

  /*! \brief The type that TVM infers for a call, from the types of its arguments. */
  struct Inferred {
    TypeId type = kUnknownType;
    /*! \brief Why there is no type; empty if there is one. */
    std::string problem;
  };
  const Inferred& InferType(const Call& call);

 private:
  friend class FunctionVerifier;

  Diagnostic& Report(Severity severity, const char* rule, const Path& path, std::string message);
  void VerifySymbols();
  /*! \brief The representative of all structurally equal attributes. */
  const Object* CanonicalAttrs(const Object* attrs);

  ObjectRef mod_;
  Path::Arena arena_;
  DimTable dims_;
  TypeTable types_;
  std::vector<Diagnostic> diagnostics_;
  /*! \brief The name of the visited function. */
  std::string function_;
  std::unordered_map<const Object*, const Object*> functions_;
  std::unordered_map<const Object*, Variable> variables_;
  /*! \brief The calls that have overwritten memory, by the variable whose memory it was. */
  std::unordered_map<const Object*, Overwritten> overwritten_;
  /*! \brief The memory that the result of an If may alias, by bound variable. */
  std::unordered_map<const Object*, std::vector<const Object*>> choices_;
  /*! \brief The function that a parameter or symbol belongs to. */
  std::unordered_map<const Object*, std::string> owner_;
  std::unordered_map<const Object*, PrimFuncReaches> reaches_;
  std::unordered_set<std::string> sound_calls_;
  std::unordered_map<const Object*, OpInfo> ops_;
  std::unordered_map<std::string, Inferred> inferred_;
  std::unordered_map<const Object*, const Object*> canonical_attrs_;
  std::unordered_map<uint64_t, std::vector<const Object*>> attrs_of_hash_;
  /*! \brief Keeps new nodes alive as long as the tables that hold their addresses. */
  std::vector<ObjectRef> kept_;
};

/*! \brief Append the bytes of a value to a table key. */
template <typename T>
void AppendBytes(T value, std::string* key) {
  key->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/*! \brief A name in backticks, as in messages. */
inline std::string Quote(const std::string& name) { return "`" + name + "`"; }
/*! \brief The quoted name of a variable; the type key of anything else. */
inline std::string NameOf(const Object* var) {
  return As<VarView>(var) ? Quote(std::string(VarView(var).name())) : TypeKeyOf(var);
}

}  // namespace verifier
}  // namespace tvm_fixes

#endif  // TVM_FIXES_RELAX_ANALYSIS_VERIFIER_VERIFIER_H_
