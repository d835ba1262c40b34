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
 * \file src/relay/printer/printer.h
 * \brief Writes Relay programs as text of version 0.0.5.
 */
#ifndef TVM_FIXES_RELAY_PRINTER_PRINTER_H_
#define TVM_FIXES_RELAY_PRINTER_PRINTER_H_

#include <string>
#include <unordered_map>
#include <vector>

#include "../ir/module.h"

namespace tvm_fixes::relay {

struct PrintOptions {
  /*! \brief Whether to write the metadata section, without which constants are lost. */
  bool show_metadata = true;
  /*! \brief Whether inferred types follow the expressions, as comments. */
  bool show_types = true;
};

/*!
 * \brief Write a module so that the parser reads an equal one.
 * \throws RelayError if it has something that the format cannot express.
 */
std::string PrintModule(const IRModule& module, const PrintOptions& options);

/*! \brief Write one expression; variables that it does not bind are declared first. */
std::string PrintExpr(const Expr& expr, const PrintOptions& options);

/*! \brief Writes programs; each node that is not a leaf is written once and bound to a number. */
class Printer {
 public:
  explicit Printer(const PrintOptions& options) : options_(options) {}

  std::string Module(const IRModule& module);
  std::string Expression(const Expr& expr);

 private:
  void CountUses(const Expr& root);
  void AddTypeData(const TypeData& data);
  /*! \brief The bindings and the result of a body. */
  void AddScope(const Expr& root);
  /*! \brief A body in braces. */
  std::string Block(const Expr& root);
  /*! \brief The text of an expression, after its operands are bound. */
  std::string Materialize(const Expr& root);
  void PushOperands(const Expr& expr, std::vector<std::pair<Expr, bool>>* stack) const;

  std::string NodeText(const Expr& expr);
  std::string CallNodeText(const CallObj* call);
  std::string FunctionText(const FunctionObj* function);
  std::string MatchText(const MatchObj* match);
  std::string PatternText(const Pattern& pattern);
  std::string ConstantText(const Constant& constant, bool always_meta);
  std::string Field(const TupleGetItemObj* item) const;
  std::string List(const Array<Expr>& exprs) const;
  /*! \brief The text by which other expressions refer to a node. */
  const std::string& TextOf(const Expr& expr) const { return texts_.at(expr.get()); }
  bool StaysInline(const Expr& expr, const std::string& text) const;

  std::string NewName(const Var& var);
  std::string Binder(const Var& var);
  std::string VarText(const Var& var);
  std::string TypeComment(const Expr& expr) const;
  void AddAttrs(const Attrs& attrs, std::vector<std::string>* items);
  std::string AttrText(const Any& value, int depth);
  void AddLine(const std::string& line);
  std::string MetadataSection() const;

  PrintOptions options_;
  std::string out_;
  int indent_ = 0;
  int depth_ = 0;
  size_t next_number_ = 0;
  std::unordered_map<const Object*, size_t> uses_;
  std::unordered_map<const Object*, std::string> texts_;
  std::unordered_map<const Object*, std::string> var_names_;
  /*! \brief The number of requests for each name. */
  std::unordered_map<std::string, size_t> names_;
  /*! \brief Whether a name may be mistaken for a field of a tuple, as in %a.0. */
  bool has_joined_names_ = false;
  std::vector<Var> free_vars_;
  std::unordered_map<const Object*, size_t> constant_indices_;
  std::vector<Constant> constants_;
};

/*! \brief A name after its prefix, in quotes if it needs them. */
std::string NameText(char prefix, const std::string& name);

/*! \brief A name of an operator, a type or a constructor. */
std::string WordText(const std::string& name);

/*! \brief A string with quotes; the parser reads it back. */
std::string Quote(const std::string& text);

}  // namespace tvm_fixes::relay

#endif  // TVM_FIXES_RELAY_PRINTER_PRINTER_H_
