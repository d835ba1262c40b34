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
 * \file src/relay/json/attr_schema.h
 * \brief How versions of TVM store the fields of an operator's attributes.
 *
 * The declaration of an operator gives the kind of each field. It does not say whether TVM's class
 * holds a number or a string by value, which JSON stores as text, or as a node, to which JSON
 * refers.
 */
#ifndef TVM_FIXES_RELAY_JSON_ATTR_SCHEMA_H_
#define TVM_FIXES_RELAY_JSON_ATTR_SCHEMA_H_

#include <optional>
#include <string>

#include "../op/registry.h"

namespace tvm_fixes::relay {

/*! \brief The version that GraphWriter writes: the last one with Relay. */
inline constexpr int kWrittenVersion = 19;

/*!
 * \brief The field that lists the fields which the program leaves out.
 *
 * TVM 0.19 requires a value for each field, and ignores this one. Without it, a program would
 * differ after it is read back.
 */
inline constexpr char kDefaultsField[] = "tvm_fixes.defaults";

/*! \brief Whether a version stores a number as a node. */
bool IsNumberNode(const std::string& key, const std::string& field, int version);

/*! \brief Whether kWrittenVersion stores a string as a node. */
bool IsStringNode(const std::string& key, const std::string& field);

/*! \brief Whether the class of kWrittenVersion lacks a field that older versions have. */
bool IsRemovedField(const std::string& key, const std::string& field);

/*!
 * \brief The kind of a field that only older versions have, which UpdateCall replaces; nothing for
 *        any other.
 */
std::optional<AttrKind> OldFieldKind(const std::string& key, const std::string& field);

/*! \brief Whether only older versions have the operator with this number of inputs. */
bool IsRemovedForm(const std::string& op, size_t num_inputs);

/*! \brief Whether kWrittenVersion lacks an operator that older versions have. */
bool IsRemovedOp(const std::string& name);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_JSON_ATTR_SCHEMA_H_
