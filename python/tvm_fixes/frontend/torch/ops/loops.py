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
"""Loops and branches: ``while_loop``, ``scan``, ``map``, ``associative_scan`` and ``cond``.

Mechanism
    TVM has no converters for loops, and Relax has no loop.  In a branch, each extent of each
    operand is a symbol of its own.
"""

from collections.abc import Sequence

import numpy as np
from torch import fx
from tvm import relax, tirx
from tvm.ir import PrimType

from ....errors import OpNotImplemented
from ....fixes.torch_importer import LOOPS as FIX_ID
from ...extents import Extent, slice_at
from ...recursion import LoopTypeError, Step, call_of, scan
from ..call import Call, converts
from ..graph.nested_graphs import Captured, Operand, convert_graph, is_number

_NO_LIMIT = int(np.iinfo("int64").max)
"""The number of iterations of a loop that only its condition ends."""


@converts("while_loop", fix=FIX_ID, noted=True)
def convert_while_loop(call: Call) -> list[Operand]:
    """Convert a loop with a condition; it carries the result of the condition, too."""
    condition, body, carried, others = call.operands
    captured = Captured(call.context, (condition, body), others)
    recorded = [n.meta["val"] for n in _placeholders(body)[: len(carried)]]
    numbers = [is_number(value) for value in recorded]

    def tested(tensors: Sequence[relax.Expr], values: list[Operand]) -> list[relax.Expr]:
        """The carried tensors after whether to run the next iteration."""
        [holds] = convert_graph(
            call.context, condition, [*_carried(call, tensors, numbers), *values]
        )
        holds = call.emit(relax.op.reshape(_as_tensor(call, holds), []))
        return [holds, *tensors]

    def step(
        _builder: relax.BlockBuilder,
        _number: Extent,
        before: list[relax.Expr],
        invariant: list[relax.Expr],
    ) -> tuple[list[relax.Expr], list[relax.Expr]]:
        with captured.bound(invariant) as values:
            after = convert_graph(
                call.context, body, [*_carried(call, before[1:], numbers), *values]
            )
        with captured.bound(invariant) as values:
            return tested([_as_tensor(call, value) for value in after], values), []

    with captured.bound(captured.operands) as values:
        initial = tested([_as_tensor(call, value) for value in carried], values)
    after, _ = _loop(call, _NO_LIMIT, initial, captured.operands, step, conditional=True)
    return _carried(call, after[1:], numbers)


def _carried(call: Call, tensors: Sequence[relax.Expr], numbers: Sequence[bool]) -> list[Operand]:
    """The carried tensors, and the integers that are carried as tensors."""
    return [
        _as_number(call, tensor) if is_number else tensor
        for tensor, is_number in zip(tensors, numbers, strict=True)
    ]


@converts("scan", fix=FIX_ID, noted=True)
def convert_scan(call: Call) -> list[Operand]:
    """Convert a loop over the rows of tensors that carries tensors."""
    combine, initial, rows, others = call.operands
    return _scanned(call, combine, initial, rows, others)


@converts("map_impl", fix=FIX_ID, noted=True)
def convert_map(call: Call) -> list[Operand]:
    """Convert a loop over the rows of tensors."""
    body, rows, others = call.operands
    return _scanned(call, body, [], rows, others)


def _scanned(
    call: Call,
    body: fx.GraphModule,
    initial: Sequence[Operand],
    rows: Sequence[relax.Expr],
    others: Sequence[Operand],
) -> list[Operand]:
    """Emit a loop over the rows of tensors; return what it carries, and its results."""
    captured = Captured(call.context, [body], others)
    numbers = [is_number(n.meta["val"]) for n in _placeholders(body)[: len(initial)]]

    def step(
        builder: relax.BlockBuilder,
        number: Extent,
        carried: list[relax.Expr],
        invariant: list[relax.Expr],
    ) -> tuple[list[relax.Expr], list[relax.Expr]]:
        parts = [slice_at(builder, tensor, 0, number) for tensor in invariant[: len(rows)]]
        with captured.bound(invariant[len(rows) :]) as values:
            before = _carried(call, carried, numbers)
            results = convert_graph(call.context, body, [*before, *parts, *values])
            tensors = [_as_tensor(call, value) for value in results]
        return tensors[: len(carried)], tensors[len(carried) :]

    carried = [_as_tensor(call, value) for value in initial]
    rows = _of_equal_length(call, rows)
    operands = [*rows, *captured.operands]
    after, results = _loop(call, _length(rows[0]), carried, operands, step)
    return [*_carried(call, after, numbers), *results]


def _of_equal_length(call: Call, rows: Sequence[relax.Expr]) -> list[relax.Expr]:
    """Cast tensors to the length of the first one where TVM cannot prove that it is equal."""
    count, result = _length(rows[0]), []
    for tensor in rows:
        if not call.symbols.equal(_length(tensor), count):
            shape = [count, *tensor.ty.shape.values[1:]]
            tensor = call.builder.match_cast(tensor, relax.TensorType(shape, tensor.ty.dtype))
        result.append(tensor)
    return result


@converts("associative_scan", fix=FIX_ID, noted=True)
def convert_associative_scan(call: Call) -> list[Operand]:
    """Convert a running combination of rows, one row after the other."""
    combine, rows, others = call.operands
    captured = Captured(call.context, [combine], others)
    rows = _of_equal_length(call, rows)
    count = _length(rows[0])

    def step(
        builder: relax.BlockBuilder,
        number: Extent,
        carried: list[relax.Expr],
        invariant: list[relax.Expr],
    ) -> tuple[list[relax.Expr], list[relax.Expr]]:
        parts = [slice_at(builder, t, 0, number) for t in invariant[: len(rows)]]
        with captured.bound(invariant[len(rows) :]) as values:
            combined = convert_graph(call.context, combine, [*carried, *parts, *values])
        place = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([number])))
        place = builder.emit(relax.op.reshape(place, []))
        is_first = builder.emit(relax.op.equal(place, relax.const(0, "int64")))
        results = [
            builder.emit(relax.op.where(is_first, part, result))
            for part, result in zip(parts, combined, strict=True)
        ]
        return results, list(results)

    # The first step combines the first row with itself, and returns the row.
    initial = [_first_row(call, tensor) for tensor in rows]
    _, results = _loop(call, count, initial, [*rows, *captured.operands], step)
    return list(results)


def _first_row(call: Call, tensor: relax.Expr) -> relax.Expr:
    """The first row, or zeros if the tensor has no rows."""
    emit = call.emit
    if isinstance(_length(tensor), int) and _length(tensor) > 0:
        return slice_at(call.builder, tensor, 0, 0)
    shape = relax.ShapeExpr([1, *tensor.ty.shape.values[1:]])
    zeros = emit(relax.op.zeros(shape, tensor.ty.dtype))
    return slice_at(call.builder, emit(relax.op.concat([tensor, zeros], 0)), 0, 0)


def _loop(
    call: Call,
    count: Extent,
    carried: Sequence[relax.Expr],
    invariant: Sequence[relax.Expr],
    step: Step,
    *,
    conditional: bool = False,
) -> tuple[list[relax.Expr], list[relax.Expr]]:
    """Emit a loop; an error names the node."""
    try:
        return scan(
            *(call.builder, "loop", count, carried, invariant, step),
            conditional=conditional,
        )
    except LoopTypeError as error:
        raise OpNotImplemented(
            f"{call.where}: tensor {error.position} of an iteration has type "
            f"{error.ty}; expected {error.expected}"
        ) from error


@converts("cond", fix=FIX_ID, noted=True)
def convert_cond(call: Call) -> list[Operand]:
    """Convert a choice between two graphs."""
    holds, *graphs, operands = call.operands
    captured = [Captured(call.context, [graph], operands) for graph in graphs]
    if isinstance(holds, bool | tirx.IntImm):
        taken = 0 if holds else 1
        with captured[taken].bound(captured[taken].operands) as values:
            return convert_graph(call.context, graphs[taken], values)

    def branch(index: int) -> relax.Call:
        def body(invariant: list[relax.Expr]) -> list[relax.Expr]:
            with captured[index].bound(invariant) as values:
                results = convert_graph(call.context, graphs[index], values)
                return [_as_tensor(call, value) for value in results]

        return call_of(call.builder, "branch", captured[index].operands, body)

    emit = call.emit
    condition = emit(relax.op.reshape(_as_tensor(call, holds), []))
    result = emit(relax.If(condition, branch(0), branch(1)))
    recorded = call.recorded
    fields = [emit(relax.TupleGetItem(result, index)) for index in range(len(recorded))]
    return _carried(call, fields, [is_number(value) for value in recorded])


def _as_tensor(call: Call, value: Operand) -> relax.Expr:
    """A tensor of rank 0 for a number, of dtype int64 or bool; a tensor itself."""
    if isinstance(value, bool | int):
        return relax.const(value, "bool" if isinstance(value, bool) else "int64")
    if isinstance(getattr(value, "ty", None), PrimType):
        dtype = str(value.ty)
        return call.context.scalar_tensor(value, dtype)
    return value


def _as_number(call: Call, tensor: relax.Expr) -> tirx.Var:
    """The number in an int64 tensor of rank 0."""
    emit = call.emit
    row = emit(relax.op.reshape(tensor, [1]))
    number = tirx.Var("number", "int64")
    shape = emit(relax.op.tensor_to_shape(row))
    call.builder.match_cast(shape, relax.ShapeType([number]))
    return number


def _placeholders(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _length(tensor: relax.Expr) -> Extent:
    extent = tensor.ty.shape.values[0]
    return int(extent) if isinstance(extent, tirx.IntImm) else extent
