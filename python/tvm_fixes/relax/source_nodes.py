# Licensed to the Apache Software Foundation (ASF) under one or more contributor license
# agreements.  See the NOTICE file distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
# Version 2.0 (the "License"); you may not use this file except in compliance with the
# License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the
# License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
# either express or implied.  See the License for the specific language governing permissions
# and limitations under the License.
"""Which nodes of the original model a binding computes.

The nodes are stored in the span of the bound variable.  TVM's passes keep a variable, or copy its
span, where they keep what it stands for, and structural equality ignores spans.  A variable that a
pass adds has no span; :func:`spread` gives it the nodes of the variables around it.
"""

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any

import tvm
from tvm import relax

from .analysis import bindings
from .ir import is_primitive, leaves, relax_functions, variables


@dataclass(frozen=True)
class SourceNode:
    """A node of the original model.

    Attributes
    ----------
    name : str
        The name of the ONNX node, or of its first output; or that of the PyTorch node.
    operator : str
        Such as ``Conv`` or ``aten.linear.default``.
    path : str
        The path of the PyTorch module that the node belongs to; otherwise empty.
    """

    name: str
    operator: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.operator} {self.path or self.name}"


def span_of(nodes: Iterable[SourceNode]) -> tvm.ir.Span:
    """The span that stands for `nodes`."""
    texts = [json.dumps(astuple(node)) for node in nodes]
    spans = [tvm.ir.Span(tvm.ir.SourceName(text), 0, 0, 0, 0) for text in texts]
    return spans[0] if len(spans) == 1 else tvm.ir.SequentialSpan(spans)


def nodes_of(expr: relax.Expr) -> tuple[SourceNode, ...]:
    """The nodes that the span of a variable or a call stands for."""
    return tuple(dict.fromkeys(nodes_in(expr.span)))


def names_of(var: relax.Var) -> str:
    """The nodes of the model that a variable stands for, as text; its name if unknown."""
    nodes = nodes_of(var)
    return ", ".join(map(str, nodes)) if nodes else str(var.name)


def mark(expr: Any, node: SourceNode) -> None:
    """Record `node` as the origin of its result, a variable or a call, unless it has another."""
    for part in expr.fields if isinstance(expr, relax.Tuple) else [expr]:
        if isinstance(part, relax.Var | relax.Call) and not _has_nodes(part.span):
            _set_span(part, span_of([node]))


def give_nodes(var: relax.Var, nodes: Iterable[SourceNode]) -> None:
    """Record all nodes that a variable stands for, instead of its own."""
    every = list(nodes)
    if every:
        _set_span(var, span_of(every))


_REASON = "reason: "
"""The start of the name of a span that holds the reason of a check."""


def mark_check(var: relax.Var, node: SourceNode, reason: str) -> None:
    """Record `node` as the origin of a ``match_cast``, and what it requires."""
    text = tvm.ir.Span(tvm.ir.SourceName(f"{_REASON}{reason}"), 0, 0, 0, 0)
    _set_span(var, tvm.ir.SequentialSpan([span_of([node]), text]))


def check_of(var: relax.Var) -> str:
    """The requirement of a ``match_cast``, with its node; empty if unknown."""
    nodes = nodes_of(var)
    if not nodes:
        return ""
    spans = var.span.spans if isinstance(var.span, tvm.ir.SequentialSpan) else []
    names = [str(span.source_name.name) for span in spans if isinstance(span, tvm.ir.Span)]
    reasons = [name.removeprefix(_REASON) for name in names if name.startswith(_REASON)]
    origin = f"{nodes[0].operator} {(nodes[0].path or nodes[0].name)!r}"
    return ": ".join([origin, *reasons[:1]])


def mark_calls(mod: tvm.IRModule) -> None:
    """Give each call the nodes of the variable that is bound to it."""
    for binding in _bindings_of(mod):
        value = binding.value
        if isinstance(value, relax.Call) and _has_nodes(binding.var.span):
            _set_span(value, binding.var.span)


def spread(mod: tvm.IRModule) -> None:
    """Give each variable without nodes those of its first reader, else of its operands.

    A pass that replaces a call binds the last of the new calls to the old variable, so that a new
    variable belongs to its reader.
    """
    _spread_in(list(_bindings_of(mod)))


def _bindings_of(mod: tvm.IRModule) -> Iterator[relax.Binding]:
    for function in relax_functions(mod).values():
        yield from bindings(function)


def _operands(value: relax.Expr) -> list[relax.Var]:
    """The variables that a value reads; of a branch, only the condition."""
    return variables(value.cond if isinstance(value, relax.If) else value)


def _spread_in(every: list[relax.Binding]) -> None:
    for binding in every:
        span = getattr(binding.value, "span", None)
        if _has_nodes(span) and not _has_nodes(binding.var.span):
            _set_span(binding.var, span)
    readers: dict[relax.Var, tvm.ir.Span] = {}
    for binding in reversed(every):
        var = binding.var
        if var in readers and not _has_nodes(var.span):
            _set_span(var, readers[var])
        if _has_nodes(var.span):
            readers.update((operand, var.span) for operand in _operands(binding.value))
    for binding in every:
        if not _has_nodes(binding.var.span):
            spans = (var.span for var in _operands(binding.value))
            span = next(filter(_has_nodes, spans), None)
            if span is not None:
                _set_span(binding.var, span)


def inherit(
    before: relax.Function, after: relax.Function, replaced: Mapping[relax.Var, relax.Expr]
) -> None:
    """Give variables with new values the nodes of the bindings that these values stand for.

    Parameters
    ----------
    before, after : relax.Function
        The function before and after the variables in `replaced` got new values.
    replaced : mapping of relax.Var to relax.Expr
        The new values.  The bindings of a SeqExpr belong to its variable, too.
    """
    left = {binding.var for binding in bindings(after)}
    values = {binding.var: binding.value for binding in bindings(before)}

    def is_dead(var: relax.Var) -> bool:
        return var in values and var not in left and var not in replaced

    for var, value in replaced.items():
        computed = dict.fromkeys([var])
        stack = [var] if var in values else []
        while stack:
            operands = variables(values[stack.pop()])
            dead = [operand for operand in operands if is_dead(operand) and operand not in computed]
            computed.update(dict.fromkeys(dead))
            stack += dead
        nodes = dict.fromkeys(node for part in reversed(computed) for node in nodes_of(part))
        if not nodes:
            continue
        span = span_of(nodes)
        _set_span(var, span)
        if isinstance(value, relax.SeqExpr):
            for binding in (binding for block in value.blocks for binding in block.bindings):
                _set_span(binding.var, span)


def inherit_vanished(before: tvm.IRModule, after: tvm.IRModule) -> None:
    """Give the nodes that no variable of `after` has to the variables of the nodes that read them.

    A pass that merges operators may keep only the variable of the last one.
    """
    spread(after)
    left = {node for binding in _bindings_of(after) for node in nodes_of(binding.var)}
    readers: dict[relax.Var, dict[SourceNode, None]] = defaultdict(dict)
    merged: dict[SourceNode, dict[SourceNode, None]] = defaultdict(dict)
    for binding in reversed(list(_bindings_of(before))):
        own = dict.fromkeys(nodes_of(binding.var))
        kept = {node: None for node in own if node in left}
        read_by = kept or readers[binding.var]
        for node in own.keys() - kept:
            for reader in read_by:
                merged[reader].setdefault(node)
        for operand in _operands(binding.value):
            readers[operand].update(read_by)
    if not merged:
        return
    for binding in _bindings_of(after):
        nodes = nodes_of(binding.var)
        added = dict.fromkeys(part for node in nodes for part in reversed(merged.get(node, {})))
        if added:
            _set_span(binding.var, span_of([*added, *nodes]))


def join_fused(before: tvm.IRModule, after: tvm.IRModule) -> None:
    """Give the variables of calls that ``FuseOps`` made the nodes of all bindings they stand for.

    ``FuseOps`` calls one function for equal groups of bindings, so that the bindings in it are
    those of only one of the groups.
    """
    for global_var, function in relax_functions(before).items():
        if global_var in after.functions:
            _Numbering(function).join(after[global_var], after)


class _Numbering:
    """Finds the binding in a function that computes a value of another version of it."""

    def __init__(self, function: relax.Function) -> None:
        self._bound: dict[Any, deque[relax.Var]] = defaultdict(deque)
        self._same: dict[relax.Var, Any] = {}
        for binding in bindings(function):
            self._bound[self._key(binding.value, {})].append(binding.var)

    def join(self, function: relax.Function, mod: tvm.IRModule) -> None:
        for binding in bindings(function):
            value = binding.value
            callee = value.op if isinstance(value, relax.Call) else None
            if not isinstance(callee, tvm.ir.GlobalVar) or not is_primitive(mod[callee]):
                self._same[binding.var] = self._find(value, self._same)
                # A later pass removes one of the two variables.
                if isinstance(value, relax.Var) and _has_nodes(value.span):
                    _set_span(binding.var, value.span)
                continue
            fused = mod[callee]
            inner: dict[relax.Var, Any] = {
                param: self._same.get(arg, arg) if isinstance(arg, relax.Var) else arg
                for param, arg in zip(fused.params, value.args, strict=True)
            }
            nodes: list[SourceNode] = []
            for part in bindings(fused):
                source = self._find(part.value, inner)
                inner[part.var] = source
                if isinstance(source, relax.Var):
                    nodes.extend(nodes_of(source))
            self._same[binding.var] = _result(fused.body.body, inner)
            if nodes:
                _set_span(binding.var, span_of(dict.fromkeys(nodes)))

    def _find(self, value: relax.Expr, same: Mapping[relax.Var, Any]) -> Any:
        """The variable of the other version that is bound to `value`."""
        if isinstance(value, relax.TupleGetItem):
            whole = same.get(value.tuple_value)
            if isinstance(whole, tuple):
                return whole[value.index]
        bound = self._bound.get(self._key(value, same))
        return bound.popleft() if bound else None

    def _key(self, value: relax.Expr, same: Mapping[relax.Var, Any]) -> Any:
        return (
            type(value).__name__,
            getattr(value, "index", None),
            tuple(self._leaf_key(leaf, same) for leaf in leaves(value)),
        )

    def _leaf_key(self, leaf: relax.Expr, same: Mapping[relax.Var, Any]) -> Any:
        if isinstance(leaf, relax.Var):
            leaf = same.get(leaf, leaf)
        if isinstance(leaf, tvm.ir.GlobalVar):
            return str(leaf.name_hint)
        # Constants and variables by identity; shapes are copied.
        return hash(leaf) if isinstance(leaf, relax.Var | tvm.ir.GenericConst | tvm.ir.Op) else None


def nodes_in(span: tvm.ir.Span | None) -> Iterator[SourceNode]:
    """The nodes that a span stands for."""
    if isinstance(span, tvm.ir.SequentialSpan):
        for part in span.spans:
            yield from nodes_in(part)
    elif span is not None and _has_nodes(span):
        yield SourceNode(*json.loads(str(span.source_name.name)))


def _has_nodes(span: tvm.ir.Span | None) -> bool:
    """Whether a span stands for nodes; TVMScript's parser sets spans, too: places in a file."""
    if span is None or isinstance(span, tvm.ir.SequentialSpan):
        return span is not None
    return str(span.source_name.name).startswith("[")


def _result(body: relax.Expr, same: Mapping[relax.Var, Any]) -> Any:
    """The results of a function in the terms of its caller; a tuple for several."""
    if isinstance(body, relax.Tuple):
        return tuple(same.get(field) for field in body.fields)
    return same.get(body)


def _span_setter() -> Any:
    """Sets the span of a node in place, as TVM sets its type: spans are not part of its value."""
    info = tvm.ir.Expr.__tvm_ffi_type_info__
    return next(field.setter for field in info.fields if field.name == "span")


_set_span = _span_setter()
