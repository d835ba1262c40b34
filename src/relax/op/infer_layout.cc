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
 * \file src/relax/op/infer_layout.cc
 * \brief Helpers for FRelaxInferLayout, which ConvertLayout calls for each operator.
 */
#include "infer_layout.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "../../ffi/registration.h"
#include "../ir/build.h"

namespace tvm_fixes {
namespace {

struct SLayoutNode : NodeLayout {
  SLayoutNode() : NodeLayout(Kind::kOther, {"s_tir.SLayout"}) {}
  Field<String> name{this, {"name"}};
};

struct LayoutDecisionNode : NodeLayout {
  LayoutDecisionNode() : NodeLayout(Kind::kOther, {"relax.transform.LayoutDecision"}) {}
  Field<ObjectRef> layout{this, {"layout"}};
  Field<bool> is_unknown_dim{this, {"is_unknown_dim"}};
};

/*! \brief The result of FRelaxInferLayout. */
struct InferLayoutOutputNode : NodeLayout {
  InferLayoutOutputNode() : NodeLayout(Kind::kOther, {"relax.transform.InferLayoutOutput"}) {}
  Field<ObjectRef> input_layouts{this, {"input_layouts"}};
  Field<ObjectRef> output_layouts{this, {"output_layouts"}};
  Field<ObjectRef> new_attrs{this, {"new_attrs"}};
  Field<ObjectRef> new_args{this, {"new_args"}};
};

SLayoutNode s_layout;
LayoutDecisionNode layout_decision;
InferLayoutOutputNode infer_layout_output;

// Unlike the C library's, these do not depend on the locale.
bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
char ToUpper(char c) { return IsLower(c) ? static_cast<char>(c - 'a' + 'A') : c; }
char ToLower(char c) { return static_cast<char>(c - 'A' + 'a'); }

ObjectRef MakeSLayout(const std::string& layout) {
  // TVM's constructor returns null for a scalar's layout, which its passes treat as unknown.
  if (layout.empty()) {
    return MakeByReflection(s_layout, {{"name", String()}, {"axes", Array<Any>()}});
  }
  static const GlobalFunction s_layout("s_tir.SLayout");
  static const GlobalFunction prim_type("ir.PrimType");
  return s_layout(layout, prim_type(tvm::ffi::StringToDLDataType("int32"))).cast<ObjectRef>();
}

ObjectRef MakeLayoutDecision(const std::optional<std::string>& layout) {
  return MakeByReflection(layout_decision,
                          {{"layout", layout ? MakeSLayout(*layout) : ObjectRef(nullptr)},
                           {"is_unknown_dim", !layout.has_value()}});
}

/*! \brief Apply `decide` to each non-tuple type, keeping the nesting. */
template <typename Decide>
Any NestedDecisions(const ObjectRef& type, const Decide& decide) {
  if (!nodes.tuple_type.IsInstance(type.get())) return decide(type);
  Array<Any> decisions;
  for (const ObjectRef& field : nodes.tuple_type.fields(type.get())) {
    decisions.push_back(NestedDecisions(field, decide));
  }
  return decisions;
}

std::optional<std::string> InitialLayoutOfType(const ObjectRef& type) {
  auto tensor = As<TensorTypeView>(type);
  if (!tensor || tensor->ndim() < 0) return std::nullopt;
  return InitialLayout(tensor->ndim());
}

/*! \brief Whether a layout has the axes A, B, … without gaps, and splits no others. */
bool IsComplete(const std::string& layout) {
  std::string capitals;
  std::copy_if(layout.begin(), layout.end(), std::back_inserter(capitals), IsUpper);
  const std::vector<LayoutAxis> axes = AxesOf(layout);
  return IsPermutation(capitals, capitals.size()) &&
         std::all_of(axes.begin(), axes.end(),
                     [&](const LayoutAxis& axis) { return axis.primal() < capitals.size(); });
}

/*!
 * \brief The layout of a LayoutDecision for a value of tensor type `type`.
 * \return std::nullopt for any other value, and for a layout that does not fit the type.
 */
std::optional<std::string> LayoutOfDecision(const Any& value, const ObjectRef& type) {
  auto decision = value.try_cast<ObjectRef>();
  if (!decision || !layout_decision.IsInstance(decision->get())) return std::nullopt;
  if (layout_decision.is_unknown_dim(decision->get())) return std::nullopt;
  const ObjectRef& layout = layout_decision.layout(decision->get());
  if (!s_layout.IsInstance(layout.get())) return std::nullopt;
  const std::string name = s_layout.name(layout.get());
  auto initial = InitialLayoutOfType(type);
  const bool fits = IsComplete(name) && (!initial || initial->size() == PrimalRank(name));
  return fits ? std::optional(name) : std::nullopt;
}

Any MakeInitialDecision(const ObjectRef& type) {
  return MakeLayoutDecision(InitialLayoutOfType(type));
}

/*! \brief The result of FRelaxInferLayout, with layouts nested like arguments and result. */
ObjectRef MakeNestedOutput(const Array<Any>& inputs, const Any& output, const ObjectRef& attrs,
                           const Map<ObjectRef, ObjectRef>& new_args = {}) {
  return MakeByReflection(infer_layout_output, {{"input_layouts", inputs},
                                                {"output_layouts", Array<Any>{output}},
                                                {"new_attrs", attrs},
                                                {"new_args", new_args}});
}

Array<Any> InitialDecisions(const CallView& call) {
  Array<Any> decisions;
  for (const ObjectRef& arg : call.args()) {
    decisions.push_back(NestedDecisions(TypeOf(arg), MakeInitialDecision));
  }
  return decisions;
}

}  // namespace

bool ChoosesLayouts(const char* fix_id) {
  static const GlobalFunction supported("tvm_fixes.target.supports_current");
  return IsEnabled(fix_id) && supported().cast<bool>();
}

std::string InitialLayout(int64_t ndim) {
  std::string layout;
  for (int64_t i = 0; i < ndim; ++i) layout.push_back(static_cast<char>('A' + i));
  return layout;
}

std::optional<std::string> InitialLayoutOf(const ObjectRef& expr) {
  return InitialLayoutOfType(TypeOf(expr));
}

std::optional<std::string> LayoutOf(const ObjectRef& arg, const VarLayouts& var_layouts) {
  auto known = var_layouts.find(arg);
  if (known == var_layouts.end()) return InitialLayoutOf(arg);
  return LayoutOfDecision((*known).second, TypeOf(arg));
}

std::optional<std::string> LayoutOfField(const ObjectRef& tuple, size_t index,
                                         const VarLayouts& var_layouts) {
  if (auto literal = As<TupleView>(tuple)) {
    if (index >= literal->fields().size()) return std::nullopt;
    return LayoutOf(literal->fields()[index], var_layouts);
  }
  const ObjectRef type = TypeOf(tuple);
  if (!nodes.tuple_type.IsInstance(type.get())) return std::nullopt;
  const Array<ObjectRef>& types = nodes.tuple_type.fields(type.get());
  if (index >= types.size()) return std::nullopt;
  auto known = var_layouts.find(tuple);
  if (known == var_layouts.end()) return InitialLayoutOfType(types[index]);
  auto decisions = (*known).second.try_cast<Array<Any>>();
  if (!decisions || index >= decisions->size()) return std::nullopt;
  return LayoutOfDecision((*decisions)[index], types[index]);
}

bool IsPermutation(const std::string& layout, int64_t ndim) {
  std::string sorted = layout;
  std::sort(sorted.begin(), sorted.end());
  return sorted == InitialLayout(ndim);
}

bool IsPacked(const std::string& layout) {
  return std::any_of(layout.begin(), layout.end(), IsLower);
}

size_t LayoutAxis::primal() const {
  return static_cast<size_t>(IsLower(letter) ? letter - 'a' : letter - 'A');
}

std::vector<LayoutAxis> AxesOf(const std::string& layout) {
  std::vector<LayoutAxis> axes;
  int64_t factor = 0;
  for (char c : layout) {
    if (IsDigit(c)) {
      factor = factor * 10 + (c - '0');
    } else {
      axes.push_back({c, std::exchange(factor, 0)});
    }
  }
  return axes;
}

size_t PrimalRank(const std::string& layout) {
  return std::count_if(layout.begin(), layout.end(), IsUpper);
}

std::optional<std::string> RelativeLayout(const std::string& from, const std::string& to) {
  constexpr size_t kMaxDigits = 9;
  if (IsPacked(from)) return std::nullopt;
  std::string layout;
  std::string factor;
  size_t capitals = 0;
  for (char c : to) {
    if (IsDigit(c)) {
      factor.push_back(c);
      if (factor.front() == '0' || factor.size() > kMaxDigits) return std::nullopt;
      continue;
    }
    const size_t axis = from.find(ToUpper(c));
    if (axis == std::string::npos || IsLower(c) == factor.empty()) return std::nullopt;
    const char letter = static_cast<char>((IsLower(c) ? 'a' : 'A') + axis);
    if (layout.find(letter) != std::string::npos) return std::nullopt;
    layout += std::exchange(factor, "") + letter;
    if (!IsLower(c)) ++capitals;
  }
  if (capitals != from.size() || !factor.empty()) return std::nullopt;
  return layout;
}

std::string ApplyLayout(const std::string& names, const std::string& layout) {
  std::string applied;
  for (char c : layout) {
    if (IsDigit(c)) {
      applied.push_back(c);
    } else {
      applied.push_back(IsLower(c) ? ToLower(names[c - 'a']) : names[c - 'A']);
    }
  }
  return applied;
}

std::optional<Array<ObjectRef>> ShapeInLayout(const Array<ObjectRef>& shape,
                                              const std::string& layout) {
  std::vector<int64_t> factors(shape.size(), 1);
  for (const LayoutAxis& axis : AxesOf(layout)) {
    if (axis.primal() >= shape.size()) return std::nullopt;
    if (axis.factor > 0) factors[axis.primal()] *= axis.factor;
  }
  Array<ObjectRef> converted;
  for (const LayoutAxis& axis : AxesOf(layout)) {
    const int64_t blocks = factors[axis.primal()];
    if (axis.factor > 0) {
      converted.push_back(MakeIntImm("int64", axis.factor));
    } else if (blocks == 1) {
      converted.push_back(shape[axis.primal()]);
    } else {
      auto extent = AsInt(shape[axis.primal()]);
      if (!extent || *extent % blocks != 0) return std::nullopt;
      converted.push_back(MakeIntImm("int64", *extent / blocks));
    }
  }
  return converted;
}

std::optional<int64_t> PositionOf(int64_t axis, const std::string& layout) {
  axis = NormalizeAxis(axis, PrimalRank(layout));
  const std::vector<LayoutAxis> axes = AxesOf(layout);
  std::optional<int64_t> position;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (static_cast<int64_t>(axes[i].primal()) != axis) continue;
    if (axes[i].factor > 0) return std::nullopt;
    position = i;
  }
  return position;
}

std::optional<AxisPlace> PlaceOf(int64_t axis, const std::string& layout) {
  axis = NormalizeAxis(axis, PrimalRank(layout));
  const std::vector<LayoutAxis> axes = AxesOf(layout);
  std::optional<AxisPlace> place;
  int64_t elements = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (static_cast<int64_t>(axes[i].primal()) != axis) continue;
    if (axes[i].factor > 0) {
      elements *= axes[i].factor;
    } else {
      place = AxisPlace{static_cast<int64_t>(i), 1};
    }
  }
  if (place) place->elements = elements;
  return place;
}

std::optional<std::string> RenameAxes(const std::string& layout,
                                      const std::vector<std::string>& axes) {
  std::string renamed;
  for (const LayoutAxis& axis : AxesOf(layout)) {
    if (axis.primal() >= axes.size()) return std::nullopt;
    const std::string& becomes = axes[axis.primal()];
    if (axis.factor == 0) {
      renamed += becomes;
    } else if (becomes.size() == 1) {
      renamed += std::to_string(axis.factor) + ToLower(becomes[0]);
    } else {
      return std::nullopt;
    }
  }
  return renamed;
}

std::optional<std::string> LayoutOfLastAxes(const std::string& layout, size_t count) {
  const std::vector<LayoutAxis> axes = AxesOf(layout);
  const size_t ndim = PrimalRank(layout);
  if (count > ndim) return std::nullopt;
  std::vector<std::string> names(ndim);
  for (size_t axis = ndim - count; axis < ndim; ++axis) {
    names[axis] = InitialLayout(count)[axis - (ndim - count)];
  }
  for (size_t i = 0; i < ndim - count; ++i) {
    if (!names[axes[i].primal()].empty()) return std::nullopt;
  }
  return RenameAxes(layout, names);
}

bool IsConvertible(const ObjectRef& arg, const std::string& layout, const VarLayouts& var_layouts) {
  auto present = LayoutOf(arg, var_layouts);
  return present && IsConvertible(TypeOf(arg), *present, layout);
}

bool IsConvertible(const ObjectRef& type, const std::string& present, const std::string& layout) {
  if (PrimalRank(present) != PrimalRank(layout)) return false;
  if (present == layout || (!IsPacked(present) && !IsPacked(layout))) return true;
  auto shape = ShapeOfType(type);
  return shape && IsPacked(present) != IsPacked(layout) && ShapeInLayout(*shape, present) &&
         ShapeInLayout(*shape, layout);
}

ObjectRef MakeInferLayoutOutput(const std::vector<std::optional<std::string>>& inputs,
                                const std::string& output, const ObjectRef& attrs) {
  Array<Any> decisions;
  for (const std::optional<std::string>& layout : inputs) {
    decisions.push_back(MakeLayoutDecision(layout));
  }
  return MakeNestedOutput(decisions, MakeLayoutDecision(output), attrs);
}

ObjectRef FollowData(const CallView& call, const std::string& data, const std::string& out,
                     const ObjectRef& attrs, const Map<ObjectRef, ObjectRef>& new_args) {
  const auto nested = [](const ObjectRef& type, const std::string& layout) {
    return NestedDecisions(type, [&](const auto&) { return Any(MakeLayoutDecision(layout)); });
  };
  Array<Any> inputs = InitialDecisions(call);
  inputs.Set(0, nested(TypeOf(call.args()[0]), data));
  return MakeNestedOutput(inputs, nested(TypeOf(call.ref()), out), attrs, new_args);
}

ObjectRef RestoreLayouts(const CallView& call) {
  return MakeNestedOutput(InitialDecisions(call),
                          NestedDecisions(TypeOf(call.ref()), MakeInitialDecision), call.attrs());
}

}  // namespace tvm_fixes
