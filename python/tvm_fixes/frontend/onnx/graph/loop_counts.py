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
"""Loops that count: their condition compares a counter with a bound.

TensorFlow's layers over time become such Loops::

    body (i, cond, t, h, length, …) {
        next = Add (t, 1)
        …
        again = Less (Cast (next), Cast (length))    # the condition of the next iteration
    }

Such a Loop has ``length - t`` iterations, so it can have scan outputs.
"""

from collections.abc import Callable, Mapping

import onnx
from onnx import numpy_helper

from ..values.known import Element

__all__ = ["counts_up", "iterations_left"]

_COPIES = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that keep a condition, and the value of a scalar, except a Cast to a narrow dtype."""

_WIDE = frozenset(
    getattr(onnx.TensorProto, name)
    for name in ("INT32", "INT64", "UINT32", "UINT64", "FLOAT", "DOUBLE")
)
"""The dtypes that hold the counter of a Loop."""


def iterations_left(
    body: onnx.GraphProto, initial: Callable[[str], Element | None]
) -> list[Element] | None:
    """The advances of counters that are left before the condition of a Loop fails.

    Parameters
    ----------
    body : onnx.GraphProto
        The body of a Loop.
    initial : callable
        The known value, before the Loop, of an input of `body` or of a tensor from outside; else
        None.

    Returns
    -------
    list of Element or None
        The Loop has as many iterations as the smallest of them, and at least one if it begins.
        None if the condition is not a conjunction of comparisons of counters with known bounds.
    """
    body_of = _Body(body, initial)
    left: list[Element] = []
    pending = [body.output[0].name]
    while pending:
        node = body_of.producer(pending.pop())
        if node is None:
            return None
        if node.op_type == "And":
            pending += node.input
            continue
        less = {"Less": (0, 1), "Greater": (1, 0)}.get(node.op_type)
        bounds = None if less is None else body_of.counted(*(node.input[i] for i in less))
        if bounds is None:
            return None
        left.append(bounds[1] - bounds[0])
    return left


def counts_up(body: onnx.GraphProto, name: str, initial: Callable[[str], Element | None]) -> bool:
    """Whether a scalar in the body of a Loop grows by 1 in each iteration.

    Parameters
    ----------
    body, initial
        As for :func:`iterations_left`.
    name : str
        An input of the body, or a copy of one.
    """
    return _Body(body, initial).counts_up(name)


class _Body:
    def __init__(self, body: onnx.GraphProto, initial: Callable[[str], Element | None]) -> None:
        self._producers: Mapping[str, onnx.NodeProto] = {o: n for n in body.node for o in n.output}
        self._constants = {t.name: numpy_helper.to_array(t) for t in body.initializer}
        self._returned = {
            given.name: after.name
            for given, after in zip(body.input[1:], body.output, strict=False)
        }
        self._iteration = body.input[0].name
        self._initial = initial

    def producer(self, name: str) -> onnx.NodeProto | None:
        """The node that computes a condition; not one that copies it."""
        node = self._producers.get(name)
        while node is not None and node.op_type in _COPIES:
            node = self._producers.get(node.input[0])
        return node

    def counted(self, counter: str, bound: str) -> tuple[Element, Element] | None:
        """The values of a counter and its bound before the Loop, if they are such."""
        node = self._producers.get(self._source(counter))
        if node is None or node.op_type != "Add":
            return None
        operands = [self._source(name) for name in node.input]
        for before, step in (operands, operands[::-1]):
            if self._constant(step) != 1 or not self._advances(before, node):
                continue
            start = 0 if before == self._iteration else self._initial(before)
            limit = self._invariant(self._source(bound))
            return None if start is None or limit is None else (start, limit)
        return None

    def counts_up(self, name: str) -> bool:
        """Whether a scalar is the iteration number, or a counter."""
        name = self._source(name)
        if name == self._iteration:
            return True
        node = self._producers.get(self._source(self._returned.get(name, "")))
        if node is None or node.op_type != "Add":
            return False
        operands = [self._source(operand) for operand in node.input]
        return any(
            before == name and self._constant(step) == 1
            for before, step in (operands, operands[::-1])
        )

    def _source(self, name: str) -> str:
        """The tensor that a counter or a bound is a copy of."""
        while name in self._producers and _is_copy(self._producers[name]):
            name = self._producers[name].input[0]
        return name

    def _advances(self, name: str, node: onnx.NodeProto) -> bool:
        """Whether an input of the body becomes the result of `node` in the next iteration."""
        after = self._returned.get(name)
        return name == self._iteration or (
            after is not None and self._source(after) == node.output[0]
        )

    def _constant(self, name: str) -> Element | None:
        array = self._constants.get(name)
        node = self._producers.get(name)
        if node is not None and node.op_type == "Constant":
            tensors = [a.t for a in node.attribute if a.name == "value"]
            array = numpy_helper.to_array(tensors[0]) if tensors else None
        if array is not None:
            is_integer = array.size == 1 and array.dtype.kind in "iu"
            return int(array.item()) if is_integer else None
        varies = node is not None or name in self._returned or name == self._iteration
        return None if varies else self._initial(name)

    def _invariant(self, name: str) -> Element | None:
        """The value of a scalar that no iteration changes."""
        after = self._returned.get(name)
        if after is None:
            return self._constant(name)
        return self._initial(name) if self._source(after) == name else None


def _is_copy(node: onnx.NodeProto) -> bool:
    """Whether a node keeps the value of a counter or a bound."""
    is_wide = all(a.i in _WIDE for a in node.attribute if a.name == "to")
    return node.op_type in _COPIES and is_wide
