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
 * \file src/relax/transform/fold_layout_into_conv.cc
 * \brief Folds layout transforms before and after convolutions into their layouts.
 *
 * Trigger: ConvertLayout at the ends of a model and wherever it leaves a layout. Mechanism:
 * ConvertLayout uses the same layout for the data and output of a convolution, and inserts
 * transforms where needed. But a convolution accesses data and output by index, and data_layout
 * and out_layout may differ.
 *
 *     lv = R.permute_dims(x, [0, 2, 3, 1])
 *     lv1 = R.nn.conv2d(lv, w,               =>  lv1 = R.nn.conv2d(x, w,
 *             data_layout="NHWC", …)                     data_layout="NCHW", …)
 *
 * TVM cannot lower a convolution with different layouts, so this pass requires the lowerings of
 * this project. There the data layout determines how a grouped convolution is vectorized, so
 * grouped convolutions are not changed.
 *
 * Removal: delete this file when ConvertLayout chooses the layouts of data and output separately.
 */
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../../ffi/registration.h"
#include "../analysis/rearrangement.h"
#include "../ir/build.h"
#include "../ir/mutator.h"
#include "../ir/visitor.h"
#include "../op/conv_attrs.h"
#include "../op/infer_layout.h"

namespace tvm_fixes {
namespace {

constexpr const char* kFoldLayoutIntoConvFix = "fold-layout-into-conv";

char Capital(char letter) {
  return letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
}

/*! \brief A convolution with a lowering for any layouts. */
struct LayoutFreeConvolution {
  std::string data_layout;
  std::string out_layout;
  /*! \brief The number of data channels. */
  int64_t channels;
};

const ConvAttrsNode* ConvAttrsOf(const CallView& call) {
  for (size_t i = 0; i < 3; ++i) {
    const std::string op = "relax.nn.conv" + std::to_string(i + 1) + "d";
    const ConvAttrsNode& forward = conv_attrs[i];
    const ConvAttrsNode& transposed = conv_transpose_attrs[i];
    if (call.IsOp(op.c_str()) && IsEnabled("conv-legalize")) return &forward;
    if (call.IsOp((op + "_transpose").c_str()) && IsEnabled("conv-transpose-legalize")) {
      return &transposed;
    }
  }
  return nullptr;
}

std::optional<LayoutFreeConvolution> AsConvolution(const CallView& call) {
  const ConvAttrsNode* fields = ConvAttrsOf(call);
  const Object* attrs = call.attrs().get();
  if (fields == nullptr || !fields->IsInstance(attrs) || call.args().size() != 2 ||
      fields->groups(attrs) != 1) {
    return std::nullopt;
  }
  auto data = ShapeOf(call.args()[0]);
  auto kernel = ShapeOf(call.args()[1]);
  const auto is_static = [](const ObjectRef& dim) { return AsInt(dim).has_value(); };
  if (!data || !kernel || !ShapeOf(call.ref()) ||
      !std::all_of(kernel->begin(), kernel->end(), is_static)) {
    return std::nullopt;
  }
  LayoutFreeConvolution convolution{fields->data_layout(attrs), fields->out_layout(attrs), 1};
  const std::vector<LayoutAxis> axes = AxesOf(convolution.data_layout);
  if (axes.size() != data->size()) return std::nullopt;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (Capital(axes[i].letter) != 'C') continue;
    auto extent = AsInt((*data)[i]);
    if (!extent) return std::nullopt;
    convolution.channels *= *extent;
  }
  return convolution;
}

/*! \brief A permute or layout_transform, and the atoms of its argument and of its result. */
struct Move {
  Rearrangement order;
  Rearrangement::AtomsByAxis argument;
  Rearrangement::AtomsByAxis result;
};

std::optional<Move> AsMove(const CallView& call) {
  auto permutation = AsAxisPermutation(call);
  auto result = ShapeOf(call.ref());
  if (!permutation || !result) return std::nullopt;
  Rearrangement order(call.args()[0]);
  // The identity permute splits atoms until each axis of the result is a product of atoms.
  AxisPermutation identity{*result, std::vector<int64_t>(result->size())};
  std::iota(identity.axes.begin(), identity.axes.end(), 0);
  if (!order.Permute(*permutation, *result) || !order.Permute(identity, *result)) {
    return std::nullopt;
  }
  auto atoms = order.AtomsOfResult(*result);
  if (!atoms) return std::nullopt;
  auto argument = order.AtomsOfSource();
  return Move{std::move(order), std::move(argument), std::move(*atoms)};
}

/*! \brief Maps axis names from one side of a move to the other. */
class AxisNames {
 public:
  /*! \param layout The layout of the axes with the atoms `atoms`. */
  AxisNames(const std::string& layout, const Rearrangement::AtomsByAxis& atoms,
            const Rearrangement& order)
      : order_(order) {
    const std::vector<LayoutAxis> axes = AxesOf(layout);
    is_valid_ = axes.size() == atoms.size();
    // The outer part of a split axis is the block index, the inner part the position within a
    // block.
    for (const bool inner : {false, true}) {
      for (size_t i = 0; is_valid_ && i < axes.size(); ++i) {
        if ((axes[i].factor > 0) != inner) continue;
        auto& all = AtomsOf(Capital(axes[i].letter));
        all.insert(all.end(), atoms[i].begin(), atoms[i].end());
      }
    }
  }

  /*!
   * \brief The layout of the axes with the atoms `atoms`.
   * \return std::nullopt unless each axis is a whole axis, its block index, or the position within
   *         a block.
   */
  std::optional<std::string> Name(const Rearrangement::AtomsByAxis& atoms) const {
    if (!is_valid_) return std::nullopt;
    std::vector<std::string> names;
    std::string used;
    for (const std::vector<size_t>& axis : atoms) {
      names.push_back(axis.empty() ? "" : NameOf(axis));
      if (names.back().empty() != axis.empty()) return std::nullopt;
      if (axis.empty()) continue;
      if (used.find(names.back().back()) != std::string::npos) return std::nullopt;
      used.push_back(names.back().back());
    }
    // Axes of extent 1 can be anywhere.
    auto one = names.begin();
    for (const auto& [letter, all] : atoms_of_) {
      if (!all.empty()) continue;
      one = std::find(one, names.end(), "");
      if (one == names.end()) return std::nullopt;
      *one = letter;
    }
    one = std::find(one, names.end(), "");
    if (one != names.end() && !NameSingleBlock(names, *one, atoms)) return std::nullopt;
    if (std::count(names.begin(), names.end(), "") > 0) return std::nullopt;
    return std::accumulate(names.begin(), names.end(), std::string());
  }

 private:
  std::vector<size_t>& AtomsOf(char letter) {
    for (auto& [name, all] : atoms_of_) {
      if (name == letter) return all;
    }
    return atoms_of_.emplace_back(letter, std::vector<size_t>()).second;
  }

  /*! \brief The name of the axis with these atoms, empty if there is none. */
  std::string NameOf(const std::vector<size_t>& atoms) const {
    for (const auto& [letter, all] : atoms_of_) {
      const auto first = std::find(all.begin(), all.end(), atoms[0]);
      if (first == all.end()) continue;
      if (static_cast<size_t>(all.end() - first) < atoms.size() ||
          !std::equal(atoms.begin(), atoms.end(), first)) {
        return "";
      }
      if (first == all.begin()) return std::string(1, letter);
      // Blocks of a spatial axis would need divisions to address adjacent elements.
      return letter == 'C' ? ChannelBlock(atoms) : "";
    }
    return "";
  }

  /*! \brief The name of a block, such as "4c"; empty if the extent is symbolic, or 1. */
  std::string ChannelBlock(const std::vector<size_t>& atoms) const {
    int64_t extent = 1;
    for (size_t atom : atoms) {
      auto factor = AsInt(order_.extent(atom));
      if (!factor) return "";
      extent *= *factor;
    }
    return extent == 1 ? "" : std::to_string(extent) + 'c';
  }

  /*!
   * \brief If the channels are a single block, use the axis `one`, of extent 1, as their block
   *        index.
   */
  bool NameSingleBlock(std::vector<std::string>& names, std::string& one,
                       const Rearrangement::AtomsByAxis& atoms) const {
    auto channels = std::find(names.begin(), names.end(), "C");
    if (channels == names.end() || std::any_of(names.begin(), names.end(), IsPacked)) return false;
    const std::string block = ChannelBlock(atoms[channels - names.begin()]);
    if (block.empty()) return false;
    *channels = block;
    one = "C";
    return true;
  }

  const Rearrangement& order_;
  bool is_valid_;
  /*! \brief The atoms by axis name, outermost first. */
  std::vector<std::pair<char, std::vector<size_t>>> atoms_of_;
};

/*! \brief Whether this project lowers these layouts. TVM's lowering would be unscheduled. */
bool IsLoweredHere(const std::string& data, const std::string& out) {
  return data != out || IsPacked(data);
}

/*!
 * \brief Whether reading data in a layout is as fast as after a transform.
 *
 * The lowering reduces over the channels innermost. If they are not innermost in memory, each is in
 * its own cache line, often at power-of-two strides, of which a cache holds only about eight.
 */
bool IsReadFast(const std::string& layout, int64_t channels) {
  constexpr int64_t kFewChannels = 8;
  return Capital(layout.back()) == 'C' || channels <= kFewChannels;
}

/*! \brief The data layout with which a convolution can read the argument of a move directly. */
std::optional<std::string> FoldedDataLayout(const CallView& call, const CallView& move) {
  auto convolution = AsConvolution(call);
  auto moved = convolution ? AsMove(move) : std::nullopt;
  if (!moved) return std::nullopt;
  auto layout =
      AxisNames(convolution->data_layout, moved->result, moved->order).Name(moved->argument);
  const bool pays = layout && IsLoweredHere(*layout, convolution->out_layout) &&
                    IsReadFast(*layout, convolution->channels);
  return pays ? layout : std::nullopt;
}

/*! \brief The output layout with which a convolution can write the result of a following move. */
std::optional<std::string> FoldedOutLayout(const CallView& call, const CallView& move) {
  auto convolution = AsConvolution(call);
  auto moved = convolution ? AsMove(move) : std::nullopt;
  if (!moved) return std::nullopt;
  auto layout =
      AxisNames(convolution->out_layout, moved->argument, moved->order).Name(moved->result);
  const bool pays = layout && IsLoweredHere(convolution->data_layout, *layout);
  return pays ? layout : std::nullopt;
}

/*! \brief Counts the readers of each variable. */
class Readers : public Visitor {
 public:
  explicit Readers(const ObjectRef& function) { VisitExpr(function); }

  bool IsReadOnce(const ObjectRef& var) const { return Count(reads_, var) == 1; }

  /*! \brief Whether all readers of a move's result are convolutions that can absorb the move. */
  bool AllReadersCanFold(const ObjectRef& var) const {
    return Count(reads_, var) == Count(foldable_reads_, var);
  }

 protected:
  void VisitVarUse(const VarView& var) override { ++reads_[var.get()]; }

  void VisitBinding(const BindingView& binding) override {
    if (!binding.is_match_cast()) values_.insert_or_assign(binding.var().get(), binding.value());
    Visitor::VisitBinding(binding);
  }

  void VisitCall(const CallView& call) override {
    Visitor::VisitCall(call);
    const auto value = call.args().empty() ? values_.end() : values_.find(call.args()[0].get());
    auto move = value == values_.end() ? std::nullopt : As<CallView>(value->second);
    if (move && FoldedDataLayout(call, *move)) ++foldable_reads_[value->first];
  }

 private:
  using Counts = std::unordered_map<const Object*, size_t>;

  static size_t Count(const Counts& counts, const ObjectRef& var) {
    const auto found = counts.find(var.get());
    return found == counts.end() ? 0 : found->second;
  }

  std::unordered_map<const Object*, ObjectRef> values_;
  Counts reads_;
  Counts foldable_reads_;
};

class Folder : public Mutator {
 public:
  Folder(const ObjectRef& mod, const ObjectRef& function) : Mutator(mod), readers_(function) {}

 protected:
  ObjectRef RewriteValue(const ObjectRef& value) override {
    auto call = As<CallView>(value);
    if (!call || call->args().empty()) return value;
    const ObjectRef& read = call->args()[0];
    auto before = As<CallView>(ValueInScope(read));
    if (!before) return value;
    if (readers_.IsReadOnce(read)) {
      if (auto layout = FoldedOutLayout(*before, *call)) {
        return ReplaceByConv(value, *before, before->args()[0], "out_layout", *layout);
      }
    }
    if (readers_.AllReadersCanFold(read)) {
      if (auto layout = FoldedDataLayout(*call, *before)) {
        return ReplaceByConv(value, *call, before->args()[0], "data_layout", *layout);
      }
    }
    return value;
  }

 private:
  /*! \brief A convolution of `data` with another layout, if its type is that of `value`. */
  ObjectRef ReplaceByConv(const ObjectRef& value, const CallView& convolution,
                          const ObjectRef& data, const char* attribute,
                          const std::string& layout) const {
    const ObjectRef attrs = WithFields(convolution.attrs(), {{attribute, String(layout)}});
    const ObjectRef folded =
        Normalize(builder(), MakeCall(convolution.op(), {data, convolution.args()[1]}, attrs,
                                      convolution.ty_args(), nodes.expr.span(convolution.get())));
    return StructuralEqual(TypeOf(folded), TypeOf(value)) ? folded : value;
  }

  Readers readers_;
};

ObjectRef FoldLayoutIntoConv(const ObjectRef& function, const ObjectRef& mod) {
  if (!IsEnabled(kFoldLayoutIntoConvFix)) return function;
  const ObjectRef folded = Folder(mod, function).Rewrite(function);
  if (!folded.same_as(function)) NoteUse(kFoldLayoutIntoConvFix);
  return folded;
}

TVM_FIXES_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("tvm_fixes.transform.FoldLayoutIntoConv", []() {
    return MakeFunctionPass(FoldLayoutIntoConv, "FoldLayoutIntoConv");
  });
}

}  // namespace
}  // namespace tvm_fixes
