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
 * \brief Where the fields of TVM's node classes lie, found by name when the library is loaded.
 *
 * The wheel of TVM ships no compiler headers. But its reflection tables give the offset and
 * the size of every field by name, so that a node can be read with one load and no assumption
 * about the order of its fields. A class declares what it needs, in any file of the library, and a
 * global of that class, which registers itself when the library is loaded:
 *
 *     struct PadAttrsNode : NodeLayout {
 *       PadAttrsNode() : NodeLayout(Kind::kOther, {"relax.attrs.PadAttrs"}) {}
 *       Field<Array<int64_t>> pad_width{this, {"pad_width"}};
 *     };
 *
 *     inline PadAttrsNode pad_attrs;
 *
 * `init` calls NodeLayout::Bind before it registers anything with TVM. Bind fills in the offsets of
 * all layouts, or says which class or field does not fit. The names in a list are aliases: the
 * first one that TVM knows is taken.
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

/*! \brief What a node is, for dispatch by table instead of a chain of type tests. */
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

/*! \brief A field of a node class: its names, what it must be, and, once bound, its offset. */
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

  /*! \brief Find the field in TVM's reflection table; an empty string, or what does not fit. */
  std::string Bind(const TVMFFITypeInfo* info, int64_t size_of_tvm_override);

  std::vector<const char*> names_;
  int64_t size_;
  bool is_object_;
  int32_t offset_ = -1;
};

/*!
 * \brief A field of type T. Reading it is one load: no reference is counted.
 * \tparam T An ObjectRef, String, Any, DLDataType or number, whose size is checked at load.
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
 * Instances are globals and not const: one that is made after Bind, such as a static of a function,
 * is never bound.
 */
class NodeLayout {
 public:
  NodeLayout(const NodeLayout&) = delete;
  NodeLayout& operator=(const NodeLayout&) = delete;

  /*! \brief Whether `node` is of this class or of one derived from it; false for null. */
  bool IsInstance(const Object* node) const;

  /*! \brief The name of the class in the loaded TVM. */
  const std::string& type_key() const { return type_key_; }
  const TVMFFITypeInfo* type_info() const { return info_; }

  /*!
   * \brief Bind all layouts of the library.
   * \param size_overrides Sizes to use instead of TVM's own, by "type_key.field", for tests of a
   * TVM that does not fit.
   * \return What does not fit, one entry per class or field; empty if everything fits.
   */
  static std::vector<std::string> Bind(const Map<String, int64_t>& size_overrides);

  /*! \brief A row [type key, field, offset, size] for every field that is bound. */
  static Array<Array<Any>> Describe();

 protected:
  NodeLayout(Kind kind, std::vector<const char*> type_keys);

 private:
  friend class FieldLayout;

  /*! \brief Take the first alias that TVM knows; false if it knows none. */
  bool BindType();

  Kind kind_;
  std::vector<const char*> type_keys_;
  std::vector<FieldLayout*> fields_;
  std::string type_key_;
  const TVMFFITypeInfo* info_ = nullptr;
};

/*! \brief The name of a node's class, "null" for null. */
std::string TypeKeyOf(const Object* node);

/*! \brief The kind of every type index that has one; empty until the layouts are bound. */
extern std::vector<Kind> kind_of_type_index;

/*! \brief The kind of `node`; kOther for null and for a class that no layout describes. */
inline Kind KindOf(const Object* node) {
  if (node == nullptr) return Kind::kOther;
  const auto index = static_cast<size_t>(node->type_index());
  return index < kind_of_type_index.size() ? kind_of_type_index[index] : Kind::kOther;
}

}  // namespace tvm_fixes

#endif  // TVM_FIXES_FFI_NODE_LAYOUT_H_
