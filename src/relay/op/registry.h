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
 * \file src/relay/op/registry.h
 * \brief The declarations of the operators: inputs, attributes, type relation.
 *
 * An operator is declared once, in the file of its family:
 *
 *     RELAY_OP("nn.softmax")
 *         .Inputs({"data"})
 *         .Attrs("relay.attrs.SoftmaxAttrs", {IntAttr("axis", -1)})
 *         .Relation(SoftmaxRelation);
 */
#ifndef TVM_FIXES_RELAY_OP_REGISTRY_H_
#define TVM_FIXES_RELAY_OP_REGISTRY_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../../ffi/registration.h"
#include "infer_context.h"

namespace tvm_fixes::relay {

enum class AttrKind : int {
  kInt,
  kFloat,
  kBool,
  kString,
  /*! \brief A dtype's name; an empty string counts as not given. */
  kDType,
  /*! \brief Ints or `?`; a single int counts as an array of one. */
  kIntArray,
  kFloatArray,
  /*! \brief An array of arrays of ints; a missing depth is not filled up. */
  kNestedIntArray,
  kStringArray,
  kAny,
};

/*! \brief "int", "array of ints" and so on. */
const char* AttrKindText(AttrKind kind);

/*! \brief One attribute of an operator. */
struct AttrField {
  std::string name;
  AttrKind kind;
  /*! \brief Null (None) means that the attribute may be absent. */
  Any default_value;
  bool required = false;
};

inline AttrField IntAttr(std::string name, int64_t value) {
  return {std::move(name), AttrKind::kInt, value};
}
inline AttrField FloatAttr(std::string name, double value) {
  return {std::move(name), AttrKind::kFloat, value};
}
inline AttrField BoolAttr(std::string name, bool value) {
  return {std::move(name), AttrKind::kBool, value};
}
inline AttrField StringAttr(std::string name, const char* value) {
  return {std::move(name), AttrKind::kString, String(value)};
}
/*! \brief A dtype whose default, if nullptr, the operator derives, mostly from its input. */
inline AttrField DTypeAttr(std::string name, const char* value = nullptr) {
  return {std::move(name), AttrKind::kDType, value == nullptr ? Any(nullptr) : Any(String(value))};
}
inline AttrField IntArrayAttr(std::string name, std::initializer_list<int64_t> value) {
  return {std::move(name), AttrKind::kIntArray, Array<Any>(value.begin(), value.end())};
}
/*! \brief An attribute that is None unless given. */
inline AttrField OptionalAttr(std::string name, AttrKind kind) {
  return {std::move(name), kind, nullptr};
}
inline AttrField RequiredAttr(std::string name, AttrKind kind) {
  return {std::move(name), kind, nullptr, true};
}

enum class OpEffect : int {
  kComputes,
  /*! \brief Returns its first input, as far as results are concerned: it is dropped. */
  kAnnotation,
  /*! \brief Belongs to a dialect after lowering (memory, vm); rejected with a reason. */
  kRejected,
};

/*! \brief The declaration of an operator. */
class OpDecl {
 public:
  explicit OpDecl(std::string name) : name(std::move(name)) {}

  /*! \brief The names of the inputs; their number is checked. */
  OpDecl& Inputs(std::vector<std::string> names);
  /*! \brief At least `minimum` inputs; no maximum. */
  OpDecl& Variadic(int minimum = 0);
  /*! \brief The last inputs are optional: at least `minimum` of those named are required. */
  OpDecl& MinInputs(int minimum);
  /*!
   * \brief The attributes.
   * \param key The type key of the attributes in saved JSON.
   */
  OpDecl& Attrs(std::string key, std::vector<AttrField> fields);
  OpDecl& Relation(TypeRelation relation);
  /*! \brief The relation is called even if inputs lack a type, and may give them one. */
  OpDecl& InfersInputs();
  OpDecl& Annotation();
  OpDecl& Rejected(std::string reason);
  /*! \brief A name by which older versions knew the operator. */
  OpDecl& Alias(const std::string& other_name);

  /*! \brief The attribute of this name, or null. */
  const AttrField* FindAttr(const std::string& attr) const;

  std::string name;
  std::vector<std::string> input_names;
  int min_inputs = 0;
  /*! \brief -1: no maximum. */
  int max_inputs = 0;
  std::string attrs_key;
  std::vector<AttrField> attr_fields;
  TypeRelation relation;
  bool infers_inputs = false;
  OpEffect effect = OpEffect::kComputes;
  std::string rejection;
};

/*! \brief Add an operator to the table; a second declaration ends the load of the library. */
OpDecl& DeclareOp(const char* name);

/*! \brief The declaration of an operator by its name or alias, or null. */
const OpDecl* FindOp(const std::string& name);

/*! \brief All operators by name, without aliases. */
const std::map<std::string, OpDecl*>& AllOps();

/*!
 * \brief The attributes of a call: the given ones, converted to the declared kinds, and the
 * defaults.
 * \throws RelayError that names the operator, the attribute, and its expected and actual value.
 */
Attrs CompleteAttrs(const CallObj* call);

/*! \brief The value of an attribute, for an error message. */
std::string AttrValueText(const Any& value);

#define RELAY_OP(name)                                                                           \
  [[maybe_unused]] static ::tvm_fixes::relay::OpDecl& TVM_FIXES_CONCAT(relay_op_, __COUNTER__) = \
      ::tvm_fixes::relay::DeclareOp(name)

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_OP_REGISTRY_H_
