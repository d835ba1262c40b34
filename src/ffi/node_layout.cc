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
 * \file src/ffi/node_layout.cc
 * \brief Looks up field offsets by name.
 */
#include "node_layout.h"

#include <tvm/ffi/reflection/accessor.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace tvm_fixes {

namespace refl = tvm::ffi::reflection;

std::vector<Kind> kind_of_type_index;

namespace {

/*!
 * \brief All layouts. A function-local static, because the layouts register in static initializers.
 */
std::vector<NodeLayout*>& AllLayouts() {
  static std::vector<NodeLayout*> layouts;
  return layouts;
}

std::string Join(const std::vector<const char*>& names) {
  std::string text;
  for (const char* name : names) {
    if (!text.empty()) text += " or ";
    text += name;
  }
  return text;
}

const TVMFFIFieldInfo* FindField(const TVMFFITypeInfo* info, std::string_view name) {
  const TVMFFIFieldInfo* found = nullptr;
  refl::ForEachFieldInfoWithEarlyStop(info, [&](const TVMFFIFieldInfo* field) {
    if (std::string_view(field->name.data, field->name.size) != name) return false;
    found = field;
    return true;
  });
  return found;
}

/*! \brief Whether TVM declares the field with an object type. */
bool IsDeclaredAsObject(const TVMFFIFieldInfo* field) {
  return field->field_static_type_index >= kTVMFFIStaticObjectBegin;
}

}  // namespace

std::string TypeKeyOf(const Object* node) {
  if (node == nullptr) return "null";
  const TVMFFIByteArray& key = TVMFFIGetTypeInfo(node->type_index())->type_key;
  return std::string(key.data, key.size);
}

FieldLayout::FieldLayout(NodeLayout* owner, std::vector<const char*> names, int64_t size,
                         bool is_object)
    : names_(std::move(names)), size_(size), is_object_(is_object) {
  owner->fields_.push_back(this);
}

std::string FieldLayout::Bind(const TVMFFITypeInfo* info, int64_t size_of_tvm_override) {
  const TVMFFIFieldInfo* field = nullptr;
  for (const char* name : names_) {
    field = FindField(info, name);
    if (field != nullptr) break;
  }
  if (field == nullptr) return "no such field";
  const int64_t found_size = size_of_tvm_override >= 0 ? size_of_tvm_override : field->size;
  if (found_size != size_) {
    return "expected " + std::to_string(size_) + " bytes, got " + std::to_string(found_size);
  }
  // A field declared as Optional or Variant has the type index of Any.
  const bool may_be_object = IsDeclaredAsObject(field) || field->field_static_type_index < 0;
  if (is_object_ && !may_be_object) return "expected an object, got a plain value";
  if (!is_object_ && size_ <= 8 && IsDeclaredAsObject(field)) {
    return "expected a plain value, got an object";
  }
  offset_ = static_cast<int32_t>(field->offset);
  return "";
}

NodeLayout::NodeLayout(Kind kind, std::vector<const char*> type_keys)
    : kind_(kind), type_keys_(std::move(type_keys)) {
  AllLayouts().push_back(this);
}

bool NodeLayout::IsInstance(const Object* node) const {
  if (node == nullptr) return false;
  if (node->type_index() == info_->type_index) return true;
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(node->type_index());
  return info->type_depth > info_->type_depth && info->type_ancestors[info_->type_depth] == info_;
}

bool NodeLayout::BindType() {
  for (const char* key : type_keys_) {
    TVMFFIByteArray key_array{key, std::char_traits<char>::length(key)};
    int32_t index = 0;
    if (TVMFFITypeKeyToIndex(&key_array, &index) != 0) {
      // Looking up an unknown name sets an error; clear it.
      TVMFFIObjectHandle error = nullptr;
      TVMFFIErrorMoveFromRaised(&error);
      TVMFFIObjectDecRef(error);
      continue;
    }
    info_ = TVMFFIGetTypeInfo(index);
    type_key_ = key;
    return true;
  }
  return false;
}

std::vector<std::string> NodeLayout::Bind(const Map<String, int64_t>& size_overrides) {
  std::vector<std::string> problems;
  for (NodeLayout* layout : AllLayouts()) {
    if (!layout->BindType()) {
      problems.push_back(Join(layout->type_keys_) + ": no such type");
      continue;
    }
    for (FieldLayout* field : layout->fields_) {
      const std::string path = layout->type_key_ + "." + field->names_.front();
      auto override_size = size_overrides.find(String(path));
      const std::string problem = field->Bind(
          layout->info_, override_size == size_overrides.end() ? -1 : (*override_size).second);
      if (!problem.empty()) {
        problems.push_back(layout->type_key_ + "." + Join(field->names_) + ": " + problem);
      }
    }
  }
  if (!problems.empty()) return problems;

  std::vector<Kind> kinds;
  for (const NodeLayout* layout : AllLayouts()) {
    if (layout->kind_ == Kind::kOther) continue;
    const auto index = static_cast<size_t>(layout->info_->type_index);
    if (index >= kinds.size()) kinds.resize(index + 1, Kind::kOther);
    kinds[index] = layout->kind_;
  }
  kind_of_type_index = std::move(kinds);
  return problems;
}

Array<Array<Any>> NodeLayout::Describe() {
  Array<Array<Any>> rows;
  for (const NodeLayout* layout : AllLayouts()) {
    for (const FieldLayout* field : layout->fields_) {
      rows.push_back(Array<Any>{String(layout->type_key_), String(field->names_.front()),
                                static_cast<int64_t>(field->offset_), field->size_});
    }
  }
  return rows;
}

}  // namespace tvm_fixes
