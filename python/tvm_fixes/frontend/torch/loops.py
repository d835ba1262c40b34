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

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    A program with one of these operators of ``torch.ops.higher_order``.
Symptom
    ``Unsupported function types ['while_loop']``.  A branch of ``cond`` that computes with sizes
    is rejected, or does not build.
Mechanism
    TVM has no converters for loops, and Relax has no loop.  In a branch, each extent of each
    operand is a symbol of its own.
How to remove
    See ``corrections``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import fx
from tvm import relax, tirx

from ...errors import OpNotImplemented
from ...fixes.torch_importer import LOOPS as FIX_ID
from ...support import switches
from ..extents import Extent, slice_at
from ..recursion import LoopTypeError, Step, call_of, scan
from .corrections import Converters
from .nested_graphs import Captured, NestedGraphs, Operand, is_number, nodes_of

__all__ = ["Loops"]

_NO_LIMIT = int(np.iinfo("int64").max)
"""The number of iterations of a loop that only its condition ends."""


class Loops(NestedGraphs):
    """The converters of operators that call graphs."""

    def looping_calls(self) -> Converters:
        """Return the converters, by the name of the operator."""
        return {
            "while_loop": self._while_loop,
            "scan": self._scan_call,
            "map_impl": self._map_call,
            "associative_scan": self._associative_scan,
            "cond": self._cond_call,
        }

    @staticmethod
    def _has_cond_op(nodes: Any) -> bool:
        """Whether the program has branches, which may not be in a dataflow block."""
        first = next(iter(nodes), None)
        module = None if first is None else first.graph.owning_module
        every = nodes if module is None else nodes_of(module)
        return any(n.op == "call_function" and n.target.__name__ == "cond" for n in every)

    def _while_loop(self, node: fx.Node) -> list[Operand]:
        switches.note(FIX_ID)
        condition, body, carried, others = self.retrieve_args(node)
        captured = Captured(self, (condition, body), others)
        recorded = [n.meta["val"] for n in _placeholders(body)[: len(carried)]]
        numbers = [is_number(value) for value in recorded]

        def tested(tensors: Sequence[relax.Expr], values: list[Operand]) -> list[relax.Expr]:
            """The carried tensors after whether to run the next iteration."""
            [holds] = self.convert_graph(condition, [*self._carried(tensors, numbers), *values])
            holds = self.block_builder.emit(relax.op.reshape(self.as_tensor(holds), []))
            return [holds, *tensors]

        def step(
            _builder: relax.BlockBuilder,
            _number: Extent,
            before: list[relax.Expr],
            invariant: list[relax.Expr],
        ) -> tuple[list[relax.Expr], list[relax.Expr]]:
            with captured.bound(invariant) as values:
                after = self.convert_graph(body, [*self._carried(before[1:], numbers), *values])
            with captured.bound(invariant) as values:
                return tested([self.as_tensor(value) for value in after], values), []

        with captured.bound(captured.operands) as values:
            initial = tested([self.as_tensor(value) for value in carried], values)
        after, _ = self._loop(node, _NO_LIMIT, initial, captured.operands, step, conditional=True)
        return self._carried(after[1:], numbers)

    def _carried(self, tensors: Sequence[relax.Expr], numbers: Sequence[bool]) -> list[Operand]:
        """The carried tensors, and the integers that are carried as tensors."""
        return [
            self.as_number(tensor) if is_number else tensor
            for tensor, is_number in zip(tensors, numbers, strict=True)
        ]

    def _scan_call(self, node: fx.Node) -> list[Operand]:
        combine, initial, rows, others = self.retrieve_args(node)
        return self._scanned(node, combine, initial, rows, others)

    def _map_call(self, node: fx.Node) -> list[Operand]:
        body, rows, others = self.retrieve_args(node)
        return self._scanned(node, body, [], rows, others)

    def _scanned(
        self,
        node: fx.Node,
        body: fx.GraphModule,
        initial: Sequence[Operand],
        rows: Sequence[relax.Expr],
        others: Sequence[Operand],
    ) -> list[Operand]:
        """Convert a loop over the rows of tensors, and return what it carries and the results."""
        switches.note(FIX_ID)
        captured = Captured(self, [body], others)
        numbers = [is_number(n.meta["val"]) for n in _placeholders(body)[: len(initial)]]

        def step(
            builder: relax.BlockBuilder,
            number: Extent,
            carried: list[relax.Expr],
            invariant: list[relax.Expr],
        ) -> tuple[list[relax.Expr], list[relax.Expr]]:
            parts = [slice_at(builder, tensor, 0, number) for tensor in invariant[: len(rows)]]
            with captured.bound(invariant[len(rows) :]) as values:
                before = self._carried(carried, numbers)
                results = self.convert_graph(body, [*before, *parts, *values])
                tensors = [self.as_tensor(value) for value in results]
            return tensors[: len(carried)], tensors[len(carried) :]

        carried = [self.as_tensor(value) for value in initial]
        rows = self._of_equal_length(rows)
        operands = [*rows, *captured.operands]
        after, results = self._loop(node, _length(rows[0]), carried, operands, step)
        return [*self._carried(after, numbers), *results]

    def _of_equal_length(self, rows: Sequence[relax.Expr]) -> list[relax.Expr]:
        """Cast tensors to the length of the first one where TVM cannot prove that it is equal."""
        count, result = _length(rows[0]), []
        for tensor in rows:
            if not self._symbols.equal(_length(tensor), count):
                shape = [count, *tensor.ty.shape.values[1:]]
                tensor = self.block_builder.match_cast(
                    tensor, relax.TensorType(shape, tensor.ty.dtype)
                )
            result.append(tensor)
        return result

    def _associative_scan(self, node: fx.Node) -> list[Operand]:
        """Convert a running combination of rows, one row after the other."""
        switches.note(FIX_ID)
        combine, rows, others = self.retrieve_args(node)
        captured = Captured(self, [combine], others)
        rows = self._of_equal_length(rows)
        count = _length(rows[0])

        def step(
            builder: relax.BlockBuilder,
            number: Extent,
            carried: list[relax.Expr],
            invariant: list[relax.Expr],
        ) -> tuple[list[relax.Expr], list[relax.Expr]]:
            parts = [slice_at(builder, t, 0, number) for t in invariant[: len(rows)]]
            with captured.bound(invariant[len(rows) :]) as values:
                combined = self.convert_graph(combine, [*carried, *parts, *values])
            place = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([number])))
            place = builder.emit(relax.op.reshape(place, []))
            is_first = builder.emit(relax.op.equal(place, relax.const(0, "int64")))
            results = [
                builder.emit(relax.op.where(is_first, part, result))
                for part, result in zip(parts, combined, strict=True)
            ]
            return results, list(results)

        # The first step combines the first row with itself, and returns the row.
        initial = [self._first_row(tensor) for tensor in rows]
        _, results = self._loop(node, count, initial, [*rows, *captured.operands], step)
        return list(results)

    def _first_row(self, tensor: relax.Expr) -> relax.Expr:
        """The first row, or zeros if the tensor has no rows."""
        emit = self.block_builder.emit
        if isinstance(_length(tensor), int) and _length(tensor) > 0:
            return slice_at(self.block_builder, tensor, 0, 0)
        shape = relax.ShapeExpr([1, *tensor.ty.shape.values[1:]])
        zeros = emit(relax.op.zeros(shape, tensor.ty.dtype))
        return slice_at(self.block_builder, emit(relax.op.concat([tensor, zeros], 0)), 0, 0)

    def _loop(
        self,
        node: fx.Node,
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
                *(self.block_builder, "loop", count, carried, invariant, step),
                conditional=conditional,
            )
        except LoopTypeError as error:
            raise OpNotImplemented(
                f"{node.target} {node.name!r}: tensor {error.position} of an iteration has type "
                f"{error.ty}; expected {error.expected}"
            ) from error

    def _cond_call(self, node: fx.Node) -> list[Operand]:
        switches.note(FIX_ID)
        holds, *graphs, operands = self.retrieve_args(node)
        captured = [Captured(self, [graph], operands) for graph in graphs]
        if isinstance(holds, bool | tirx.IntImm):
            taken = 0 if holds else 1
            with captured[taken].bound(captured[taken].operands) as values:
                return self.convert_graph(graphs[taken], values)

        def branch(index: int) -> relax.Call:
            def body(invariant: list[relax.Expr]) -> list[relax.Expr]:
                with captured[index].bound(invariant) as values:
                    results = self.convert_graph(graphs[index], values)
                    return [self.as_tensor(value) for value in results]

            return call_of(self.block_builder, "branch", captured[index].operands, body)

        emit = self.block_builder.emit
        condition = emit(relax.op.reshape(self.as_tensor(holds), []))
        result = emit(relax.If(condition, branch(0), branch(1)))
        recorded = node.meta["val"]
        fields = [emit(relax.TupleGetItem(result, index)) for index in range(len(recorded))]
        return self._carried(fields, [is_number(value) for value in recorded])


def _placeholders(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _length(tensor: relax.Expr) -> Extent:
    extent = tensor.ty.shape.values[0]
    return int(extent) if isinstance(extent, tirx.IntImm) else extent
