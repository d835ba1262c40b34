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
 * \file src/relax/analysis/verifier/types.cc
 * \brief Reading and comparison of types.
 */
#include "types.h"

#include <tvm/ffi/cast.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/reflection/accessor.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "../../../ffi/tir_nodes.h"
#include "../../ir/views.h"
#include "diagnostic.h"

namespace tvm_fixes {
namespace verifier {

namespace {

/*! \brief Types nested deeper count as malformed, to protect the stack. */
constexpr int kMaxTypeDepth = 200;
/*! \brief Larger types count as malformed, too. Shared parts can make a type grow exponentially. */
constexpr size_t kMaxTypeSize = 100000;

/*! \brief Whether the derive_func of an opaque function type is null. */
bool HasNullDeriveFunc(const Object* func_type) {
  bool is_null = false;
  auto read = [](const TVMFFIFieldInfo* field, const Object* node) {
    return tvm::ffi::reflection::FieldGetter(field)(node).try_cast<ObjectRef>().value_or(
        ObjectRef(nullptr));
  };
  auto named = [](const TVMFFIFieldInfo* field, const char* name) {
    return std::string(field->name.data, field->name.size) == name;
  };
  tvm::ffi::reflection::ForEachFieldInfo(
      TVMFFIGetTypeInfo(func_type->type_index()), [&](const TVMFFIFieldInfo* field) {
        if (!named(field, "derive_func")) return;
        const ObjectRef derivation = read(field, func_type);
        if (!derivation.defined()) return;
        tvm::ffi::reflection::ForEachFieldInfo(
            TVMFFIGetTypeInfo(derivation->type_index()), [&](const TVMFFIFieldInfo* inner) {
              is_null |= named(inner, "func") && !read(inner, derivation.get()).defined();
            });
      });
  return is_null;
}

}  // namespace

std::string DtypeText(DLDataType dtype) {
  if (!IsKnown(dtype)) return "?";
  return std::string(tvm::ffi::DLDataTypeToString(dtype));
}

bool TypeInfo::operator==(const TypeInfo& that) const {
  return type_class == that.type_class && SameDtype(dtype, that.dtype) && ndim == that.ndim &&
         has_dims == that.has_dims && dims == that.dims && vdevice == that.vdevice &&
         shape_var == that.shape_var && fields == that.fields && has_params == that.has_params &&
         ret == that.ret && is_pure == that.is_pure && other == that.other;
}

size_t TypeTable::Hash::operator()(const TypeInfo& info) const {
  size_t hash = static_cast<size_t>(info.type_class);
  auto mix = [&hash](size_t value) {
    hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  };
  mix((size_t{info.dtype.code} << 24) | (size_t{info.dtype.bits} << 16) | info.dtype.lanes);
  mix(static_cast<size_t>(info.ndim));
  for (DimId dim : info.dims) mix(dim);
  for (TypeId field : info.fields) mix(field);
  mix(reinterpret_cast<size_t>(info.vdevice));
  mix(reinterpret_cast<size_t>(info.shape_var));
  mix(reinterpret_cast<size_t>(info.other));
  mix(info.ret);
  return hash;
}

TypeTable::TypeTable(DimTable* dims) : dims_(dims) {
  types_.emplace_back();  // kUnknownType
}

TypeId TypeTable::Intern(TypeInfo info) {
  auto add = [this, &info](TypeId part) {
    info.depth = std::max(info.depth, types_[part].depth + 1);
    info.size += types_[part].size;
  };
  for (TypeId field : info.fields) add(field);
  add(info.ret);
  if (info.depth > kMaxTypeDepth || info.size > kMaxTypeSize) return kUnknownType;
  auto [it, is_new] = id_of_type_.try_emplace(std::move(info), kUnknownType);
  if (is_new) {
    types_.push_back(it->first);
    it->second = static_cast<TypeId>(types_.size() - 1);
  }
  return it->second;
}

TypeId TypeTable::Tuple(std::vector<TypeId> fields) {
  TypeInfo info;
  info.type_class = TypeClass::kTuple;
  info.fields = std::move(fields);
  return Intern(std::move(info));
}

TypeId TypeTable::Shape(std::vector<DimId> dims) {
  TypeInfo info;
  info.type_class = TypeClass::kShape;
  info.ndim = static_cast<int32_t>(dims.size());
  info.has_dims = true;
  info.dims = std::move(dims);
  return Intern(std::move(info));
}

TypeId TypeTable::Intern(const ObjectRef& type, int depth) {
  const Object* node = type.get();
  if (node == nullptr) return kUnknownType;
  if (auto known = id_of_node_.find(node); known != id_of_node_.end()) return known->second;
  std::vector<TypeProblem> problems;
  const TypeId id = Read(type, depth, &problems);
  id_of_node_.emplace(node, id);
  if (!problems.empty()) problems_.emplace(node, std::move(problems));
  return id;
}

const std::vector<TypeProblem>& TypeTable::Problems(const ObjectRef& type) const {
  static const std::vector<TypeProblem> none;
  auto found = problems_.find(type.get());
  return found == problems_.end() ? none : found->second;
}

TypeId TypeTable::Read(const ObjectRef& type, int depth, std::vector<TypeProblem>* problems) {
  const Object* node = type.get();
  if (depth > kMaxTypeDepth) {
    problems->push_back({"ir.malformed", "the type is nested more than 200 deep"});
    return kUnknownType;
  }
  if (nodes.tensor_type.IsInstance(node)) return ReadTensor(node, problems);
  if (nodes.d_tensor_type.IsInstance(node)) {
    const ObjectRef& tensor = nodes.d_tensor_type.tensor_ty(node);
    if (nodes.tensor_type.IsInstance(tensor.get())) return ReadTensor(tensor.get(), problems);
  }
  if (tir_nodes.buffer_type.IsInstance(node)) return ReadBuffer(node, problems);
  if (nodes.shape_type.IsInstance(node)) return ReadShape(node, problems);
  if (nodes.func_type.IsInstance(node)) return ReadFunction(node, depth, problems);
  TypeInfo info;
  if (nodes.tuple_type.IsInstance(node)) {
    info.type_class = TypeClass::kTuple;
    return ReadFields(nodes.tuple_type.fields(node), depth, std::move(info), problems);
  }
  if (nodes.prim_type.IsInstance(node)) {
    info.type_class = TypeClass::kPrim;
    info.dtype = nodes.prim_type.dtype(node);
    return Intern(std::move(info));
  }
  if (nodes.any_type.IsInstance(node)) {
    info.type_class = TypeClass::kAny;
    return Intern(std::move(info));
  }
  if (!nodes.type.IsInstance(node)) {
    problems->push_back({"ir.malformed", "expected a type, got " + TypeKeyOf(node)});
    return kUnknownType;
  }
  // The base class stands for a missing type.
  if (node->type_index() == nodes.type.type_info()->type_index) return kUnknownType;
  info.type_class = TypeClass::kOther;
  info.other = node;
  return Intern(std::move(info));
}

TypeId TypeTable::ReadShape(const Object* node, std::vector<TypeProblem>* problems) {
  TypeInfo info;
  info.type_class = TypeClass::kShape;
  info.ndim = nodes.shape_type.ndim(node);
  const ObjectRef& values = nodes.shape_type.values(node);
  if (!values.defined()) return Intern(std::move(info));
  auto dims = values.as<Array<ObjectRef>>();
  if (!dims || !ReadDims(*dims, "a shape", &info.dims, problems)) return kUnknownType;
  info.has_dims = true;
  if (info.ndim != static_cast<int32_t>(info.dims.size())) {
    problems->push_back({"ir.malformed", "a shape with " + Count(info.dims.size(), "extent") +
                                             " has rank " + std::to_string(info.ndim)});
    return kUnknownType;
  }
  return Intern(std::move(info));
}

TypeId TypeTable::ReadFunction(const Object* node, int depth, std::vector<TypeProblem>* problems) {
  TypeInfo info;
  info.type_class = TypeClass::kFunction;
  info.is_pure = nodes.func_type.purity(node);
  if (HasNullDeriveFunc(node)) {
    problems->push_back({"ir.malformed", "the derive_func of a function type is null"});
    return kUnknownType;
  }
  info.ret = ReadPart(nodes.func_type.ret(node), depth, problems);
  const ObjectRef& params = nodes.func_type.params(node);
  info.has_params = params.defined();
  if (!info.has_params) return Intern(std::move(info));
  return ReadFields(params, depth, std::move(info), problems);
}

TypeId TypeTable::ReadPart(const ObjectRef& part, int depth, std::vector<TypeProblem>* problems) {
  const TypeId id = Intern(part, depth + 1);
  for (const TypeProblem& problem : Problems(part)) {
    // The same type may be several parts; report its problems once.
    const bool is_new = std::none_of(problems->begin(), problems->end(),
                                     [&](const TypeProblem& other) { return other == problem; });
    if (is_new) problems->push_back(problem);
  }
  return id;
}

TypeId TypeTable::ReadFields(const ObjectRef& fields, int depth, TypeInfo info,
                             std::vector<TypeProblem>* problems) {
  auto array = fields.as<Array<ObjectRef>>();
  if (!fields.defined() || !array) {
    problems->push_back({"ir.malformed", "the fields of a type are " + TypeKeyOf(fields.get())});
    return kUnknownType;
  }
  for (const ObjectRef& field : *array) {
    info.fields.push_back(ReadPart(field, depth, problems));
    if (!field.defined()) problems->push_back({"ir.malformed", "a field of a type is null"});
  }
  const TypeId id = Intern(std::move(info));
  if (id == kUnknownType && problems->empty()) {
    problems->push_back(
        {"ir.malformed", "the type is nested more than 200 deep, or has more than " +
                             std::to_string(kMaxTypeSize) + " parts"});
  }
  return id;
}

bool TypeTable::ReadDims(const Array<ObjectRef>& values, const char* what, std::vector<DimId>* dims,
                         std::vector<TypeProblem>* problems) {
  if (!values.defined()) {
    problems->push_back({"ir.malformed", std::string("the extents of ") + what + " are null"});
    return false;
  }
  const size_t problems_before = problems->size();
  for (size_t i = 0; i < values.size(); ++i) {
    const ObjectRef& value = values[i];
    const DimId dim = dims_->Intern(value);
    dims_->MarkExtent(dim);
    const std::string where = "dim " + std::to_string(i) + " of " + what;
    if (dim == kUnknownDim) {
      problems->push_back({"ir.malformed", where + ": expected an integer expression, got " +
                                               TypeKeyOf(value.get())});
    } else if (dims_->AtLeast(dim, 0) == Relation::kDisproved) {
      problems->push_back({"shape.negative", where + " is " + dims_->Text(dim)});
    }
    dims->push_back(dim);
  }
  return problems->size() == problems_before;
}

TypeId TypeTable::ReadTensor(const Object* node, std::vector<TypeProblem>* problems) {
  TypeInfo info;
  info.type_class = TypeClass::kTensor;
  info.ndim = nodes.tensor_type.ndim(node);
  info.vdevice = nodes.tensor_type.vdevice(node).get();
  const ObjectRef& dtype = nodes.tensor_type.dtype(node);
  if (nodes.prim_type.IsInstance(dtype.get())) {
    info.dtype = nodes.prim_type.dtype(dtype.get());
  } else if (dtype.defined()) {
    problems->push_back({"ir.malformed", "the dtype of a tensor is " + TypeKeyOf(dtype.get())});
    return kUnknownType;
  }
  if (info.ndim < -1) {
    problems->push_back({"ir.malformed", "a tensor has rank " + std::to_string(info.ndim)});
    return kUnknownType;
  }
  const ObjectRef& shape = nodes.tensor_type.shape(node);
  if (auto known = As<ShapeExprView>(shape)) {
    if (!ReadDims(known->values(), "a tensor", &info.dims, problems)) return kUnknownType;
    info.has_dims = true;
    if (info.ndim != static_cast<int32_t>(info.dims.size())) {
      problems->push_back({"ir.malformed", "a tensor of rank " + std::to_string(info.ndim) +
                                               " has a shape with " +
                                               Count(info.dims.size(), "extent")});
      return kUnknownType;
    }
  } else if (As<VarView>(shape)) {
    info.shape_var = shape.get();
    const TypeId type = Intern(TypeOf(shape));
    if (types_[type].type_class != TypeClass::kShape) {
      problems->push_back(
          {"ir.malformed", "the shape of a tensor is a variable of type " + Text(type)});
      return kUnknownType;
    }
  } else if (shape.defined()) {
    problems->push_back({"ir.malformed", "the shape of a tensor is " + TypeKeyOf(shape.get())});
    return kUnknownType;
  }
  return Intern(std::move(info));
}

TypeId TypeTable::ReadBuffer(const Object* node, std::vector<TypeProblem>* problems) {
  TypeInfo info;
  info.type_class = TypeClass::kTensor;
  const ObjectRef& dtype = tir_nodes.buffer_type.dtype(node);
  const Array<ObjectRef>& shape = tir_nodes.buffer_type.shape(node);
  if (!nodes.prim_type.IsInstance(dtype.get()) || !shape.defined()) {
    problems->push_back({"ir.malformed", "a buffer is_null its dtype or its shape"});
    return kUnknownType;
  }
  info.dtype = nodes.prim_type.dtype(dtype.get());
  info.ndim = static_cast<int32_t>(shape.size());
  info.has_dims = true;
  if (!ReadDims(shape, "a buffer", &info.dims, problems)) return kUnknownType;
  return Intern(std::move(info));
}

bool TypeTable::IsComplete(TypeId id) const {
  const TypeInfo& info = types_[id];
  if (info.type_class != TypeClass::kTuple) return id != kUnknownType;
  return std::all_of(info.fields.begin(), info.fields.end(),
                     [this](TypeId field) { return IsComplete(field); });
}

std::vector<const Object*> TypeTable::Vars(TypeId id) const {
  std::vector<const Object*> vars;
  const TypeInfo& info = types_[id];
  if (info.type_class == TypeClass::kFunction) return vars;
  if (info.shape_var != nullptr) vars.push_back(info.shape_var);
  auto append = [&vars](const std::vector<const Object*>& more) {
    vars.insert(vars.end(), more.begin(), more.end());
  };
  for (DimId dim : info.dims) append(dims_->Vars(dim));
  for (TypeId field : info.fields) append(Vars(field));
  return vars;
}

std::string TypeTable::Text(TypeId id) const {
  const TypeInfo& info = types_[id];
  auto list = [](size_t size, const std::function<std::string(size_t)>& item) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text += (i == 0 ? "" : ", ") + item(i);
    return text;
  };
  auto dims = [&] {
    std::string text = list(info.dims.size(), [&](size_t i) { return dims_->Text(info.dims[i]); });
    return text;
  };
  auto fields = [&] {
    return list(info.fields.size(), [&](size_t i) { return Text(info.fields[i]); });
  };
  switch (info.type_class) {
    case TypeClass::kUnknown:
      return "an unknown type";
    case TypeClass::kAny:
      return "R.Any";
    case TypeClass::kTensor: {
      std::string text = "R.Tensor(";
      if (info.has_dims) {
        text += "(" + dims() + (info.dims.size() == 1 ? ",)" : ")");
      } else if (info.shape_var != nullptr) {
        text += std::string(VarView(info.shape_var).name());
      }
      if (IsKnown(info.dtype)) {
        text += (text.back() == '(' ? "dtype=\"" : ", \"") + DtypeText(info.dtype) + "\"";
      }
      if (!info.has_dims && info.shape_var == nullptr && info.ndim >= 0) {
        text += (text.back() == '(' ? "ndim=" : ", ndim=") + std::to_string(info.ndim);
      }
      return text + ")";
    }
    case TypeClass::kShape:
      if (info.has_dims) return "R.Shape([" + dims() + "])";
      return "R.Shape(ndim=" + std::to_string(info.ndim) + ")";
    case TypeClass::kPrim:
      return "R.Prim(\"" + DtypeText(info.dtype) + "\")";
    case TypeClass::kTuple:
      return "R.Tuple(" + fields() + ")";
    case TypeClass::kFunction:
      return info.has_params ? "R.Callable((" + fields() + "), " + Text(info.ret) + ")"
                             : "R.Callable";
    default:
      return TypeKeyOf(info.other);
  }
}

}  // namespace verifier
}  // namespace tvm_fixes
