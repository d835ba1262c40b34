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
 * \file src/relay/op/elementwise_einsum.cc
 * \brief Einstein summation.
 */
#include <map>

#include "registry.h"

namespace tvm_fixes::relay {
namespace {

/*! \brief Stands for the ellipsis in a term; it sorts before all letters. */
constexpr char kEllipsis = '.';

struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

/*! \brief The letters that occur once, in their order, after the ellipsis. */
std::string ImplicitOutput(const std::vector<std::string>& inputs) {
  std::map<char, int> counts;
  for (const std::string& term : inputs) {
    for (char label : term) ++counts[label];
  }
  std::string output;
  for (auto [label, count] : counts) {
    if (label == kEllipsis || count == 1) output += label;
  }
  return output;
}

/*! \brief Take an equation apart; an ellipsis becomes one character. */
Equation ParseEquation(const InferContext& context) {
  Equation equation;
  bool has_arrow = false;
  std::string text = context.Str("equation");
  std::string term;
  for (size_t i = 0; i < text.size(); ++i) {
    bool is_label = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z');
    if (text[i] == ' ') continue;
    if (is_label) {
      term += text[i];
    } else if (text[i] == ',' && !has_arrow) {
      equation.inputs.push_back(std::exchange(term, ""));
    } else if (text.compare(i, 2, "->") == 0 && !has_arrow) {
      equation.inputs.push_back(std::exchange(term, ""));
      has_arrow = true;
      ++i;
    } else if (text.compare(i, 3, "...") == 0 && term.find(kEllipsis) == std::string::npos) {
      term += kEllipsis;
      i += 2;
    } else {
      context.FailAttr("equation", "an equation such as \"ij,jk->ik\"");
    }
  }
  if (!has_arrow) equation.inputs.push_back(std::exchange(term, ""));
  equation.output = has_arrow ? term : ImplicitOutput(equation.inputs);
  return equation;
}

/*! \brief The extents of the labels, and the dimensions that the ellipsis stands for. */
struct Extents {
  std::map<char, Dim> labels;
  Shape ellipsis;
};

void AddTerm(const InferContext& context, const std::string& term, const Shape& shape,
             Extents* extents) {
  bool has_ellipsis = term.find(kEllipsis) != std::string::npos;
  size_t num_labels = term.size() - has_ellipsis;
  if (has_ellipsis ? shape.size() < num_labels : shape.size() != num_labels) {
    context.FailAttr("equation", "a term for an operand of shape " + ShapeText(shape));
  }
  size_t position = 0;
  for (char label : term) {
    if (label == kEllipsis) {
      Shape covered(shape.begin() + position, shape.begin() + position + shape.size() - num_labels);
      position += covered.size();
      extents->ellipsis = context.Broadcast(extents->ellipsis, covered);
      continue;
    }
    Dim dim = shape[position++];
    auto [found, is_new] = extents->labels.emplace(label, dim);
    if (is_new) continue;
    std::optional<Dim> common = BroadcastDim(found->second, dim);
    if (!common) {
      context.Fail("label '" + std::string(1, label) + "' has the extents " +
                   DimText(found->second) + " and " + DimText(dim));
    }
    found->second = *common;
  }
}

Type EinsumRelation(InferContext& context) {
  std::vector<TensorType> operands = context.TensorTuple(0);
  Equation equation = ParseEquation(context);
  if (operands.size() != equation.inputs.size()) {
    context.FailAttr("equation", std::to_string(operands.size()) + " terms before the arrow");
  }
  Extents extents;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!SameDType(operands[i]->dtype, operands[0]->dtype)) {
      context.FailInput(0, "tensors of one dtype");
    }
    AddTerm(context, equation.inputs[i], operands[i]->shape, &extents);
  }
  Shape shape;
  for (size_t i = 0; i < equation.output.size(); ++i) {
    char label = equation.output[i];
    bool is_ellipsis = label == kEllipsis;
    if (equation.output.find(label, i + 1) != std::string::npos ||
        (!is_ellipsis && extents.labels.count(label) == 0)) {
      context.FailAttr("equation", "a result whose labels occur in the operands, each once");
    }
    if (!is_ellipsis) {
      shape.push_back(extents.labels.at(label));
    } else {
      for (const Dim& dim : extents.ellipsis) shape.push_back(dim);
    }
  }
  return TensorType(shape, operands[0]->dtype);
}

RELAY_OP("einsum")
    .Inputs({"data"})
    .Attrs("relay.attrs.EinsumAttrs", {RequiredAttr("equation", AttrKind::kString)})
    .Relation(EinsumRelation);

}  // namespace
}  // namespace tvm_fixes::relay
