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
 * \file src/ffi/node_layout.h
 * \brief Field offsets of TVM's node classes, looked up by name when the library is loaded.
 *
 * The TVM wheel ships no compiler headers, but its reflection tables give the offset and size of
 * every field by name. With them, reading a field is one load and does not depend on the field
 * order. Any file may declare the fields it needs as a class with one global instance, which
 * registers itself when the library is loaded:
 *
 *     struct PadAttrsNode : NodeLayout {
 *       PadAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.PadAttrs"}) {}
 *       Field<Array<int64_t>> pad_width{this, {"pad_width"}};
 *     };
 *
 *     inline PadAttrsNode pad_attrs;
 *
 * `init` calls NodeLayout::Bind before it registers anything with TVM. Bind fills in the offsets of
 * all layouts, or reports which class or field does not match. The names in a list are aliases: the
 * first one that TVM knows is used.
 */
#ifndef TVM_FIXES_FFI_NODE_LAYOUT_H_
#define TVM_FIXES_FFI_NODE_LAYOUT_H_

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace tvm_fixes {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Map;
using tvm::ffi::Object;
using tvm::ffi::ObjectRef;
using tvm::ffi::String;

/*! \brief The kind of a node, for table dispatch instead of a chain of type tests. */
enum class Kind : uint8_t {
  kOther,
  kVar,
  kDataflowVar,
  kConstant,
  kShapeExpr,
  kTuple,
  kTupleGetItem,
  kCall,
  kIf,
  kSeqExpr,
  kFunction,
  kBindingBlock,
  kDataflowBlock,
  kVarBinding,
  kMatchCast,
  kGlobalVar,
  kExternFunc,
  kOp,
};

class NodeLayout;

/*!
 * \brief A field of a node class: its aliases, its expected size and kind, and, once bound, its
 *        offset.
 */
class FieldLayout {
 public:
  FieldLayout(const FieldLayout&) = delete;
  FieldLayout& operator=(const FieldLayout&) = delete;

  const std::vector<const char*>& names() const { return names_; }
  int64_t size() const { return size_; }
  int32_t offset() const { return offset_; }

 protected:
  FieldLayout(NodeLayout* owner, std::vector<const char*> names, int64_t size, bool is_object);

  const void* Address(const Object* node) const {
    return reinterpret_cast<const char*>(node) + offset_;
  }

 private:
  friend class NodeLayout;

  /*!
   * \brief Look up the field in TVM's reflection table. Returns an error message, empty on success.
   */
  std::string Bind(const TVMFFITypeInfo* info, int64_t size_of_tvm_override);

  std::vector<const char*> names_;
  int64_t size_;
  bool is_object_;
  int32_t offset_ = -1;
};

/*!
 * \brief A field of type T. Reading it is one load without reference counting.
 * \tparam T An ObjectRef, String, Any, DLDataType or number. Its size is checked at load time.
 */
template <typename T>
class Field : public FieldLayout {
 public:
  Field(NodeLayout* owner, std::vector<const char*> names)
      : FieldLayout(owner, std::move(names), sizeof(T), std::is_base_of_v<ObjectRef, T>) {}

  const T& operator()(const Object* node) const { return *static_cast<const T*>(Address(node)); }
};

/*!
 * \brief The layout of one node class of TVM.
 *
 * Instances are non-const globals: an instance created after Bind, such as a function-local static,
 * is never bound.
 */
class NodeLayout {
 public:
  NodeLayout(const NodeLayout&) = delete;
  NodeLayout& operator=(const NodeLayout&) = delete;

  /*! \brief Whether `node` is of this class or of one derived from it; false for null. */
  bool IsInstance(const Object* node) const;

  /*! \brief The type key in the loaded TVM. */
  const std::string& type_key() const { return type_key_; }
  const TVMFFITypeInfo* type_info() const { return info_; }

  /*!
   * \brief Bind all layouts of the library.
   * \param size_overrides Sizes to use instead of TVM's own, by "type_key.field", to test a layout
   *        mismatch.
   * \return One message per class or field that does not match; empty on success.
   */
  static std::vector<std::string> Bind(const Map<String, int64_t>& size_overrides);

  /*! \brief A row [type key, field, offset, size] for each bound field. */
  static Array<Array<Any>> Describe();

 protected:
  NodeLayout(Kind kind, std::vector<const char*> type_keys);

 private:
  friend class FieldLayout;

  /*! \brief Bind to the first alias that TVM knows; false if there is none. */
  bool BindType();

  Kind kind_;
  std::vector<const char*> type_keys_;
  std::vector<FieldLayout*> fields_;
  std::string type_key_;
  const TVMFFITypeInfo* info_ = nullptr;
};

/*! \brief The type key of a node, "null" for null. */
std::string TypeKeyOf(const Object* node);

/*! \brief The kind by type index; empty until the layouts are bound. */
extern std::vector<Kind> kind_of_type_index;

/*! \brief The kind of `node`; kOther for null and for a class that no layout describes. */
inline Kind KindOf(const Object* node) {
  if (node == nullptr) return Kind::kOther;
  const auto index = static_cast<size_t>(node->type_index());
  return index < kind_of_type_index.size() ? kind_of_type_index[index] : Kind::kOther;
}

}  // namespace tvm_fixes

#endif  // TVM_FIXES_FFI_NODE_LAYOUT_H_
