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
"""Reduces a failing Relax module."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tvm_fixes.relax.ir import map_leaves

from .relax_oracle import Interpreter, Tensor, Unsupported, from_numpy, to_numpy
from .values import literal


@dataclass
class Case:
    """A module, and the inputs of its ``main``."""

    mod: tvm.IRModule
    inputs: Sequence[np.ndarray]


def reduce(case: Case, fails: Callable[[Case], bool]) -> Case:
    """A smaller module that still fails.

    Parameters
    ----------
    case : Case
    fails : callable
        Whether a case has the fault; called on invalid modules, too.

    Notes
    -----
    Replaces symbols by their sizes, drops results, turns bindings into parameters with the
    interpreter's values, and shrinks extents.  Keeps each step that preserves the fault.
    """
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(case):
            if fails(candidate):
                case, smaller = candidate, True
                break
    return case


def as_test(case: Case, message: str) -> str:
    """The case as TVMScript and inputs, for a test."""
    lines = [f"# {line}" for line in message.splitlines()[:3]]
    lines += [case.mod.script(show_meta=True), "inputs = ["]
    return "\n".join([*lines, *(f"    {literal(one)}," for one in case.inputs), "]"])


def _candidates(case: Case) -> Iterator[Case]:
    for make in (_with_sizes, _with_one_result, _without_bindings, _with_smaller_extents):
        try:
            yield from make(case)
        except Exception:
            # TVM or the interpreter rejects this candidate.
            continue


def _replaced(case: Case, function: relax.Function, inputs: Sequence[np.ndarray]) -> Case:
    """The case with another ``main``, without unused parameters and functions."""
    mod = tvm.IRModule({**dict(case.mod.functions_items())})
    mod["main"] = function.with_attr("global_symbol", "main")
    mod = relax.transform.DeadCodeElimination(["main"])(mod)
    function = mod["main"]
    used = set(relax.analysis.all_vars(function.body))
    symbols = {symbol for param in function.params if param in used for symbol in _symbols(param)}
    kept = [
        i
        for i, param in enumerate(function.params)
        if param in used or any(one not in symbols for one in _symbols(param))
    ]
    smaller = relax.Function([function.params[i] for i in kept], function.body, function.ret_ty)
    mod["main"] = smaller.with_attr("global_symbol", "main")
    return Case(mod, [inputs[i] for i in kept])


def _symbols(param: relax.Var) -> set[tirx.Var]:
    """The symbols that a parameter binds."""
    shape = getattr(param.ty, "shape", None)
    extents = shape.values if isinstance(shape, relax.ShapeExpr) else []
    return {one for one in extents if isinstance(one, tirx.Var)}


def _with_sizes(case: Case) -> Iterator[Case]:
    function = case.mod["main"]
    sizes: dict[tirx.Var, int] = {}
    for param, array in zip(function.params, case.inputs, strict=True):
        shape = getattr(param.ty, "shape", None)
        if isinstance(shape, relax.ShapeExpr):
            pairs = zip(shape.values, array.shape, strict=True)
            sizes |= {one: size for one, size in pairs if isinstance(one, tirx.Var)}
    if sizes:
        yield Case(relax.transform.BindSymbolicVars(sizes, "main")(case.mod), case.inputs)


def _with_body(function: relax.Function, body: relax.SeqExpr) -> relax.Function:
    return relax.Function(function.params, relax.BlockBuilder().normalize(body))


def _with_one_result(case: Case) -> Iterator[Case]:
    function = case.mod["main"]
    body, result = function.body, function.body.body
    bound = {binding.var: binding.value for block in body.blocks for binding in block.bindings}
    fields = bound.get(result)
    if isinstance(fields, relax.Tuple):
        for field in fields.fields:
            # In the tuple's block, which can read the variables of a dataflow block.
            out = relax.VarBinding(relax.Var("out", field.ty), field)
            last = type(body.blocks[-1])([*body.blocks[-1].bindings, out])
            seq = relax.SeqExpr([*body.blocks[:-1], last], out.var)
            yield _replaced(case, _with_body(function, seq), case.inputs)


def _without_bindings(case: Case) -> Iterator[Case]:
    """Turn one binding at a time into a parameter."""
    function = case.mod["main"]
    inter = Interpreter(case.mod)
    for param, array in zip(function.params, case.inputs, strict=True):
        inter.values[param] = from_numpy(array)
        inter.bind_type(param.ty, inter.values[param], False)
    inter.evaluate(function.body)
    for block in reversed(list(function.body.blocks)):
        for binding in reversed(list(block.bindings)):
            value = inter.values.get(binding.var)
            if isinstance(value, Tensor) and isinstance(binding.var.ty.shape, relax.ShapeExpr):
                yield _cut(case, binding.var, to_numpy(value))


def _cut(case: Case, var: relax.Var, array: np.ndarray) -> Case:
    function = case.mod["main"]
    param = relax.Var(f"{var.name}_", var.ty)
    renamed: dict[relax.Var, relax.Expr] = {var: param}
    blocks = _rebuilt(function.body, renamed, lambda binding: binding.var.same_as(var))
    result = renamed.get(function.body.body, function.body.body)
    seq = relax.BlockBuilder().normalize(relax.SeqExpr(blocks, result))
    smaller = relax.Function([*function.params, param], seq)
    return _replaced(case, smaller, [*case.inputs, array])


def _rebuilt(
    body: relax.SeqExpr,
    renamed: dict[relax.Var, relax.Expr],
    is_dropped: Callable[[relax.Binding], bool],
) -> list[relax.BindingBlock]:
    """The bindings with new variables and newly inferred types."""
    builder, blocks = relax.BlockBuilder(), []
    for block in body.blocks:
        bindings: list[relax.Binding] = []
        for binding in block.bindings:
            if is_dropped(binding):
                continue
            if isinstance(binding.value, relax.If):
                bindings.append(_kept(binding, renamed))
                continue
            value = map_leaves(binding.value, lambda leaf: renamed.get(leaf, leaf))
            if isinstance(binding, relax.MatchCast):
                cast = type(binding.var)(binding.var.name, binding.ty)
                renamed[binding.var] = cast
                bindings.append(relax.MatchCast(cast, value, binding.ty))
                continue
            value = builder.normalize(value)
            var = type(binding.var)(binding.var.name, value.ty)
            renamed[binding.var] = var
            bindings.append(relax.VarBinding(var, value))
        if bindings:
            blocks.append(type(block)(bindings))
    return blocks


def _kept(binding: relax.Binding, renamed: dict[relax.Var, relax.Expr]) -> relax.Binding:
    """Keep a branch or a cast; a renamed variable gets its old name."""
    body = binding.value
    for var in relax.analysis.free_vars(body):
        if var in renamed:
            raise Unsupported("a branch or a cast that reads a changed variable")
    return binding


def _with_smaller_extents(case: Case) -> Iterator[Case]:
    function = case.mod["main"]
    extents: list[int] = sorted(
        {size for array in case.inputs for size in array.shape if size > 1}, reverse=True
    )
    for size in extents:
        for new in {1, size // 2, size - 1} - {0}:
            with_new = _shrunk(case, function, size, new)
            if with_new is not None:
                yield with_new


def _shrunk(case: Case, function: relax.Function, size: int, new: int) -> Case | None:
    """Replace every extent `size` by `new` in all parameters."""
    renamed: dict[relax.Var, relax.Expr] = {}
    params, inputs = [], []
    for param, array in zip(function.params, case.inputs, strict=True):
        if not isinstance(getattr(param.ty, "shape", None), relax.ShapeExpr):
            return None
        shape = [new if one == size else one for one in array.shape]
        dims: list[Any] = [
            one if isinstance(one, tirx.Var) else extent
            for one, extent in zip(param.ty.shape.values, shape, strict=True)
        ]
        params.append(relax.Var(param.name, relax.TensorType(dims, param.ty.dtype)))
        renamed[param] = params[-1]
        inputs.append(array[tuple(slice(extent) for extent in shape)])
    try:
        blocks = _rebuilt(function.body, renamed, lambda _: False)
        result = renamed.get(function.body.body, function.body.body)
        seq = relax.BlockBuilder().normalize(relax.SeqExpr(blocks, result))
        return _replaced(case, relax.Function(params, seq), inputs)
    except Exception:
        return None
