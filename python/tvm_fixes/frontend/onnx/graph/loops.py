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
"""Loop and Scan: unrolled, or as functions that call themselves, since Relax has no loop."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import onnx
import tvm
from tvm import relax, tirx

from ....errors import OpAttributeInvalid
from ....fixes.onnx_importer import LOOPS
from ....support import switches
from ...extents import Extent, extents_of, slice_at
from ...recursion import LoopTypeError, scan
from ..call import invalid_value
from ..values.known import Element, Value
from .batched_scan import batched_body
from .interface import GraphWalk
from .loop_counts import iterations_left
from .loop_invariants import unchanged, with_row_products, without_inputs
from .order import outer_names

__all__ = ["convert_loop", "convert_scan", "has_branches"]

Operand: TypeAlias = relax.Expr | Value

MAX_UNROLLED_ITERATIONS = 64
"""The maximum number of iterations of an unrolled Loop.  Unrolling needs a known condition; known
values of carried tensors may then differ between iterations."""

_NO_LIMIT = np.iinfo("int64").max
"""The trip count of a Loop that omits it."""


def convert_loop(
    walk: GraphWalk,
    name: str,
    operands: Sequence[Operand | None],
    body: onnx.GraphProto,
) -> list[Operand]:
    """Convert a Loop.

    A Loop of at most :data:`MAX_UNROLLED_ITERATIONS` iterations is unrolled if the trip count, or
    the condition of every iteration, is known; otherwise it becomes a :func:`~...recursion.scan`.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If it is not unrolled and a carried tensor changes its type between iterations, or if it has
        scan outputs and a computed condition that compares no counter.
    """
    switches.note(LOOPS)
    loop = _Loop(walk, name, body, *operands)
    unrolled = loop.unroll()
    return loop.recursive() if unrolled is None else unrolled


class _Loop:
    """A Loop that is being converted."""

    def __init__(
        self,
        walk: GraphWalk,
        name: str,
        body: onnx.GraphProto,
        trip_count: Operand | None,
        condition: Operand | None = None,
        *initial: Operand,
    ) -> None:
        self.walk = walk
        self.name = name
        self.body = body
        self.trip_count = trip_count
        self.condition = condition
        self.initial = list(initial)

    def invalid(self, subject: str, value: object, reason: str) -> OpAttributeInvalid:
        return invalid_value("Loop", self.name, subject, value, reason)

    def _known(self, operand: Operand | None, missing: int) -> Any:
        """The element of a scalar operand; `missing` if it is omitted, None if it is unknown."""
        if operand is None:
            return missing
        value = operand if isinstance(operand, Value) else self.walk.known.of(operand)
        return None if value is None else value.elements.item()

    def unroll(self) -> list[Operand] | None:
        """The outputs of the unrolled Loop, or None if it cannot be unrolled."""
        trip_count = self._known(self.trip_count, _NO_LIMIT)
        carried, scanned = self.initial, []
        condition = self.condition
        if not isinstance(trip_count, int):
            return None
        if trip_count > MAX_UNROLLED_ITERATIONS and self._runs_all_iterations():
            return None
        for iteration in range(trip_count):
            known = self._known(condition, True)
            if known is None or (known and iteration == MAX_UNROLLED_ITERATIONS):
                return None
            if not known:
                break
            condition, carried, given = self._iteration(_scalar(iteration), condition, carried)
            scanned.append(given)
        if not scanned and len(self.body.output) > 1 + len(self.initial):
            return None
        results = [self._stacked(given) for given in zip(*scanned, strict=True)]
        return [*carried, *results]

    def _stacked(self, given: Sequence[Operand]) -> relax.Expr:
        builder = self.walk.builder
        return builder.emit(relax.op.stack([self.walk.as_tensor(g) for g in given], 0))

    def _iteration(
        self, iteration: Operand, condition: Operand | None, carried: Sequence[Operand]
    ) -> tuple[Operand, list[Operand], list[Operand]]:
        """Convert an iteration; return its condition, carried tensors and scan outputs."""
        if condition is None:
            condition = _scalar(True, "bool")
        inputs = dict(
            zip(_names_of(self.body.input), [iteration, condition, *carried], strict=True)
        )
        condition, *outputs = self.walk.convert_branch(self.body, inputs)
        return condition, outputs[: len(carried)], outputs[len(carried) :]

    def _runs_all_iterations(self) -> bool:
        """Whether no iteration ends the Loop: the body returns its condition input, or true."""
        producers = {name: node for node in self.body.node for name in node.output}
        name = self.body.output[0].name
        while name in producers and producers[name].op_type in ("Identity", "Cast"):
            name = producers[name].input[0]
        if name == self.body.input[1].name:
            return True
        constants = {tensor.name: tensor for tensor in self.body.initializer}
        if name in producers and producers[name].op_type == "Constant":
            [attribute] = producers[name].attribute
            constants[name] = attribute.t if attribute.name == "value" else None
        tensor = constants.get(name)
        return tensor is not None and bool(onnx.numpy_helper.to_array(tensor).all())

    def recursive(self) -> list[Operand]:
        """Convert the Loop to recursive functions; return its outputs."""
        walk = self.walk
        runs_all_iterations = (
            self._runs_all_iterations() or self._known(self.condition, True) is False
        )
        if not runs_all_iterations:
            runs_all_iterations = self._counts()
        scans = len(self.body.output) - 1 - len(self.initial)
        if scans and not runs_all_iterations:
            reason = (
                "expected none if the condition is computed and compares no counter with a known "
                "bound"
            )
            raise self.invalid("number of scan outputs", scans, reason)
        constant = unchanged(self.body)
        outer = {self.body.input[2 + place].name: self.initial[place] for place in constant}
        self.body = without_inputs(self.body, constant)
        kept = [self.initial[place] for place in constant]
        self.initial = [
            operand for place, operand in enumerate(self.initial) if place not in constant
        ]
        with walk.bound(outer):
            if runs_all_iterations:
                walk.bind(self._multiply_rows())
            after = self._scan(runs_all_iterations)
        for place, operand in zip(constant, kept, strict=True):
            after.insert(place, operand)
        return after

    def _multiply_rows(self) -> dict[str, Operand]:
        """Multiply all rows of tensors at once that the body multiplies one by one."""
        walk = self.walk

        def is_product(rows: str, weight: str) -> bool:
            operands = [walk.operand(name) for name in (rows, weight)]
            # A table has more rows than there are iterations.
            return (
                not any(isinstance(operand, Value) for operand in operands)
                and not isinstance(operands[0], tvm.ir.GenericConst)
                and operands[0].ty.ndim in (2, 3)
                and operands[1].ty.ndim == 2
            )

        self.body, products = with_row_products(self.body, self._initial_of(), is_product)
        return {
            product.name: walk.builder.emit(
                relax.op.matmul(walk.operand(product.rows), walk.operand(product.weight))
            )
            for product in products
        }

    def _scan(self, runs_all_iterations: bool) -> list[Operand]:
        """Convert the Loop to recursive functions; return its outputs."""
        walk, builder = self.walk, self.walk.builder
        captured = _Captured(walk, self.body)
        carried = [walk.as_tensor(operand) for operand in self.initial]
        if not runs_all_iterations:
            started = _scalar(True, "bool") if self.condition is None else self.condition
            condition = walk.as_tensor(started)
            carried.insert(0, builder.emit(relax.op.reshape(condition, [])))
        for tensor in [*carried, *captured.operands]:
            if not isinstance(tensor, relax.ShapeExpr) and extents_of(tensor) is None:
                reason = "expected a known shape in a Loop that is not unrolled"
                raise self.invalid(f"operand {tensor}", f"of type {tensor.ty}", reason)

        def step(
            builder: relax.BlockBuilder,
            number: Extent,
            carried: list[relax.Expr],
            invariant: list[relax.Expr],
        ) -> tuple[list[relax.Expr], list[relax.Expr]]:
            condition = None if runs_all_iterations else carried[0]
            own = carried if runs_all_iterations else carried[1:]
            with captured.bound(invariant):
                condition, own, given = self._iteration(_scalar(number), condition, own)
                tensors = [walk.as_tensor(operand) for operand in [*own, *given]]
                if not runs_all_iterations:
                    condition = walk.as_tensor(condition)
                    tensors.insert(0, builder.emit(relax.op.reshape(condition, [])))
            return tensors[: len(carried)], tensors[len(carried) :]

        try:
            after, results = scan(
                builder,
                "loop",
                self._count(runs_all_iterations),
                carried,
                captured.operands,
                step,
                conditional=not runs_all_iterations,
            )
        except LoopTypeError as error:
            name = self.body.output[error.position + runs_all_iterations].name
            reason = f"expected {error.expected} in a Loop that is not unrolled"
            raise self.invalid(f"output {name}", f"of type {error.ty}", reason) from error
        return [*(after if runs_all_iterations else after[1:]), *results]

    def _initial_of(self) -> Callable[[str], Element | None]:
        """The known values of scalars before the Loop, by their names in the body."""
        inputs = dict(zip(_names_of(self.body.input)[2:], self.initial, strict=True))
        known = self.walk.known

        def initial(name: str) -> Element | None:
            operand = inputs[name] if name in inputs else self.walk.operand(name)
            value = operand if isinstance(operand, Value) else known.of(operand)
            if value is None or value.elements.size != 1 or "int" not in value.dtype:
                return None
            return value.elements.item()

        return initial

    def _counts(self) -> bool:
        """Set the trip count of a Loop whose condition compares counters with known bounds."""
        trip_count = self._known(self.trip_count, _NO_LIMIT)
        known = self.walk.known
        left = iterations_left(self.body, self._initial_of())
        if left is None or trip_count is None:
            return False
        count = left[0]
        for other in left[1:]:
            count = _least(count, other)
        # Its first iteration does not depend on the counters.
        count = tirx.max(count, 1) if isinstance(count, tirx.Expr) else max(count, 1)
        if trip_count != _NO_LIMIT:
            count = _least(count, trip_count)
        self.trip_count = _scalar(known.simplify(count))
        return True

    def _count(self, runs_all_iterations: bool) -> Extent:
        """The number of iterations; a maximum unless the Loop `runs_all_iterations`."""
        trip_count, start = (
            self._known(self.trip_count, _NO_LIMIT),
            self._known(self.condition, True),
        )
        if start is False:
            return 0
        if start or not runs_all_iterations:
            if isinstance(trip_count, int):
                return max(trip_count, 0)
            if trip_count is not None:
                return self.walk.known.simplify(tirx.Max(trip_count, tirx.const(0, "int64")))
        builder = self.walk.builder
        limit = _scalar(_NO_LIMIT) if self.trip_count is None else self.trip_count
        count = builder.emit(relax.op.reshape(self.walk.as_tensor(limit), [1]))
        count = builder.emit(relax.op.maximum(count, relax.const(0, "int64")))
        if not start and runs_all_iterations:
            started = relax.op.astype(self.walk.as_tensor(self.condition), "int64")
            count = builder.emit(relax.op.multiply(count, builder.emit(started)))
        shape = builder.emit(relax.op.tensor_to_shape(count))
        symbol = tirx.Var("trips", "int64")
        builder.match_cast(shape, relax.ShapeType([symbol]))
        return symbol


def convert_scan(
    walk: GraphWalk,
    name: str,
    operands: Sequence[Operand | None],
    attributes: Mapping[str, Any],
) -> list[Operand]:
    """Convert a Scan to a :func:`~...recursion.scan`; in opset 8, nested in one over the batch.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an attribute or a shape violates the ONNX specification, or sequence_lens is given.
    """
    switches.note(LOOPS)
    node = _Scan(walk, name, attributes)
    if walk.opset >= 9:
        return node.convert([walk.as_tensor(operand) for operand in operands])
    lengths, *others = operands
    if lengths is not None:
        raise node.invalid("operand sequence_lens", lengths, "expected none")
    return node.convert_batch([walk.as_tensor(operand) for operand in others])


class _Scan:
    """A Scan that is being converted."""

    def __init__(self, walk: GraphWalk, name: str, attributes: Mapping[str, Any]) -> None:
        self.walk = walk
        self.name = name
        self.body: onnx.GraphProto = attributes["body"]
        self.attributes = attributes
        self.states = len(self.body.input) - attributes["num_scan_inputs"]
        inputs, outputs = len(self.body.input), len(self.body.output)
        if not 0 <= self.states <= min(inputs, outputs):
            count = attributes["num_scan_inputs"]
            reason = f"expected at most the {inputs} inputs of the body"
            raise self.invalid("attribute num_scan_inputs", count, reason)

    def invalid(self, subject: str, value: object, reason: str) -> OpAttributeInvalid:
        return invalid_value("Scan", self.name, subject, value, reason)

    def _numbers_per_tensor(self, attribute: str, count: int) -> list[int]:
        """An attribute with one number for each of `count` tensors; zeros if it is omitted."""
        numbers = list(self.attributes.get(attribute, [0] * count))
        if len(numbers) != count:
            raise self.invalid(f"attribute {attribute}", numbers, f"expected {count} numbers")
        return numbers

    def _axes(self, attribute: str, ranks: Sequence[int]) -> list[int]:
        axes = self._numbers_per_tensor(attribute, len(ranks))
        if any(not -rank <= axis < rank for axis, rank in zip(axes, ranks, strict=True)):
            raise self.invalid(f"attribute {attribute}", axes, f"expected axes of {list(ranks)}")
        return [axis % rank for axis, rank in zip(axes, ranks, strict=True)]

    def _extents(self, tensor: relax.Expr) -> list[Extent]:
        extents = extents_of(tensor)
        if extents is None:
            reason = "expected a tensor of known shape"
            raise self.invalid(f"type of {tensor}", tensor.ty, reason)
        return extents

    def convert_batch(self, operands: list[relax.Expr]) -> list[relax.Expr]:
        """Convert a Scan of opset 8, which runs once for each element of a leading batch axis."""
        captured = _Captured(self.walk, self.body)
        count = self._extents(operands[-1])[0]

        def step(
            builder: relax.BlockBuilder,
            number: Extent,
            carried: list[relax.Expr],
            invariant: list[relax.Expr],
        ) -> tuple[list[relax.Expr], list[relax.Expr]]:
            rows = [slice_at(builder, tensor, 0, number) for tensor in invariant[: len(operands)]]
            with captured.bound(invariant[len(operands) :]):
                return [], self.convert(rows, "directions")

        invariant = [*operands, *captured.operands]
        return scan(self.walk.builder, "scan_batch", count, [], invariant, step)[1]

    def convert(
        self, operands: list[relax.Expr], directions: str = "scan_input_directions"
    ) -> list[relax.Expr]:
        walk, builder = self.walk, self.walk.builder
        states, rows = operands[: self.states], operands[self.states :]
        axes = self._axes("scan_input_axes", [len(self._extents(tensor)) for tensor in rows])
        reversed_inputs = self._numbers_per_tensor(directions, len(rows))
        counts = [self._extents(row)[axis] for row, axis in zip(rows, axes, strict=True)]
        count = next((count for count in counts if isinstance(count, int)), counts[0])
        for index, own in enumerate(counts):
            if isinstance(own, int) and own != count:
                reason = f"expected equal extents on the scanned axes {axes}"
                raise self.invalid("extents of the scan inputs", counts, reason)
            shape = self._extents(rows[index])
            shape[axes[index]] = count
            if own is not count:
                ty = relax.TensorType(shape, rows[index].ty.dtype)
                rows[index] = builder.match_cast(rows[index], ty)
        batched = self._batched(states, rows)
        if batched is not None:
            return [
                *states,
                *self._at_axes(self._at_once(batched, states, rows, axes, reversed_inputs)),
            ]
        captured = _Captured(walk, self.body)

        def step(
            builder: relax.BlockBuilder,
            number: Extent,
            carried: list[relax.Expr],
            invariant: list[relax.Expr],
        ) -> tuple[list[relax.Expr], list[relax.Expr]]:
            parts = []
            for tensor, axis, is_reversed in zip(invariant, axes, reversed_inputs, strict=False):
                last = self._extents(tensor)[axis] - 1
                parts.append(
                    slice_at(builder, tensor, axis, last - number if is_reversed else number)
                )
            inputs = dict(zip(_names_of(self.body.input), [*carried, *parts], strict=True))
            with captured.bound(invariant[len(rows) :]):
                outputs = walk.convert_branch(self.body, inputs)
                tensors = [walk.as_tensor(output) for output in outputs]
            return tensors[: len(carried)], tensors[len(carried) :]

        try:
            after, results = scan(builder, "scan", count, states, [*rows, *captured.operands], step)
        except LoopTypeError as error:
            name = self.body.output[error.position].name
            raise self.invalid(
                f"output {name}", f"of type {error.ty}", f"expected {error.expected}"
            ) from error
        return [*after, *self._at_axes(results)]

    def _batched(
        self, states: Sequence[relax.Expr], rows: Sequence[relax.Expr]
    ) -> onnx.GraphProto | None:
        """The body for all rows at once, or None if it has a recurrence."""
        names = _names_of(self.body.input)
        ranks = {name: state.ty.ndim for name, state in zip(names, states, strict=False)}
        for name, row in zip(names[self.states :], rows, strict=True):
            ranks[name] = row.ty.ndim - 1
        for name in outer_names(self.body):
            operand = self.walk.operand(name)
            ranks[name] = len(operand.shape) if isinstance(operand, Value) else operand.ty.ndim
        if min(ranks.values(), default=0) < 0:
            return None  # an unknown rank
        return batched_body(self.body, self.states, ranks, self.walk.opset)

    def _at_once(
        self,
        body: onnx.GraphProto,
        states: Sequence[relax.Expr],
        rows: Sequence[relax.Expr],
        axes: Sequence[int],
        reversed_inputs: Sequence[int],
    ) -> list[relax.Expr]:
        """The scan outputs of a body for all rows at once, with the iterations as first axis."""
        builder, leading = self.walk.builder, []
        for row, axis, is_reversed in zip(rows, axes, reversed_inputs, strict=True):
            if axis:
                order = [axis, *(other for other in range(row.ty.ndim) if other != axis)]
                row = builder.emit(relax.op.permute_dims(row, order))
            leading.append(builder.emit(relax.op.flip(row, 0)) if is_reversed else row)
        inputs = dict(zip(_names_of(body.input), [*states, *leading], strict=True))
        outputs = self.walk.convert_branch(body, inputs, as_tensors=True)
        return outputs[self.states :]

    def _at_axes(self, results: list[relax.Expr]) -> list[relax.Expr]:
        """Move the first axis of scan outputs to its place, in its direction."""
        builder = self.walk.builder
        axes = self._axes("scan_output_axes", [result.ty.ndim for result in results])
        flipped = self._numbers_per_tensor("scan_output_directions", len(results))
        for index, (axis, is_flipped) in enumerate(zip(axes, flipped, strict=True)):
            if is_flipped:
                results[index] = builder.emit(relax.op.flip(results[index], 0))
            if axis:
                order = list(range(1, results[index].ty.ndim))
                order.insert(axis, 0)
                results[index] = builder.emit(relax.op.permute_dims(results[index], order))
        return results


class _Captured:
    """The non-constant values that a body reads from enclosing graphs.

    Attributes
    ----------
    operands : list of relax.Expr
        Tensors, and values as shape expressions of their elements.
    """

    def __init__(self, walk: GraphWalk, body: onnx.GraphProto) -> None:
        self._walk = walk
        self._constant: dict[str, Value] = {}
        self._values: dict[str, Value] = {}
        captured: dict[str, relax.Expr] = {}
        for name in dict.fromkeys(outer_names(body)):
            operand = walk.operand(name)
            value = operand if isinstance(operand, Value) else walk.known.of(operand)
            if value is not None and value.is_static:
                self._constant[name] = value
            elif value is not None:
                self._values[name] = value
                captured[name] = relax.ShapeExpr(value.extents())
            elif not isinstance(operand, tvm.ir.GenericConst):
                captured[name] = operand
        self._names = list(captured)
        self.operands = list(captured.values())

    @contextmanager
    def bound(self, operands: Sequence[relax.Expr]) -> Iterator[None]:
        """Bind the captured names to `operands` until exit."""
        shapes = dict(zip(self._names, operands, strict=True))
        inner: dict[str, Operand] = dict(shapes)
        for name, value in self._values.items():
            elements = np.empty(value.shape, object)
            for index, element in enumerate(shapes[name].values):
                elements.flat[index] = self._walk.known.simplify(element)
            inner[name] = Value(elements, value.dtype)
        with self._walk.known.scope(), self._walk.bound(self._constant | inner):
            yield


def has_branches(graph: onnx.GraphProto) -> bool:
    """Whether a graph nested in `graph` contains an If."""
    bodies = [
        attribute.g
        for node in graph.node
        for attribute in node.attribute
        if attribute.type == onnx.AttributeProto.GRAPH
    ]
    return any(
        has_branches(body) or any(node.op_type == "If" for node in body.node) for body in bodies
    )


def _names_of(values: Iterable[onnx.ValueInfoProto]) -> list[str]:
    return [value.name for value in values]


def _least(a: Element, b: Element) -> Element:
    return tirx.min(a, b) if isinstance(a, tirx.Expr) or isinstance(b, tirx.Expr) else min(a, b)


def _scalar(element: Element, dtype: str = "int64") -> Value:
    elements = np.empty((), object)
    elements[()] = element
    return Value(elements, dtype)
