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
"""The campaign ``slices``: ONNX graphs and PyTorch programs whose slices end far out of range.

Exporters write 10**9, 2**31 - 1 or 2**63 - 1 for the end of an axis.  Here the bounds are also
negative, out of range on either side, computed from shapes, or inputs; the axes are static or
symbolic.  Other operators read the slices.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from . import onnx_models
from .onnx_graphs import DIMS, Graph, Input, Value
from .targets import target_for
from .torch_slices import run_case as run_torch_case

_OPSETS = (7, 9, 10, 11, 13, 17, 21, 23)
_DTYPES = ("float32",) * 5 + ("int64", "float16", "bool", "int32")
_HUGE = (10**9, 2**31 - 1, 2**31, 2**32 + 1, 2**62, 2**63 - 2, 2**63 - 1)
_STEPS = (1, 1, 1, 1, 1, 2, 3, -1, -1, -2, 7)
_TORCH_EACH = 5
_UNEQUAL = "shapes of the operands: expected equal extents on all axes but"
"""In the message about operands of a Concat that ONNX does not allow."""
_MAX_SUM = 2**62
"""Sums of shapes must not overflow: to a compiler, a size has no limit."""


@dataclass(frozen=True)
class Bounds(Input):
    """An input of bounds of slices."""

    def array(self, rng: np.random.Generator, sizes: dict[str, int]) -> np.ndarray:
        [count] = self.dims
        return np.array([_bound(rng, 4) for _ in range(int(count))], self.dtype)


def _bound(rng: np.random.Generator, extent: int) -> int:
    """A bound of a slice of an axis: in range, just out of range, or huge."""
    if rng.random() < 0.55:
        return int(rng.integers(-extent - 2, extent + 3))
    huge = int(rng.choice(_HUGE))
    return huge if rng.random() < 0.6 else -huge - int(rng.integers(2))


def make_graph(seed: int) -> Graph:
    """The graph of `seed`."""
    rng = np.random.default_rng([9, seed])
    sizes = {name: int(rng.integers(2, 7)) for name in DIMS} if rng.random() < 0.7 else {}
    graph = Graph(rng, int(rng.choice(_OPSETS)), sizes)
    for _ in range(1 + graph.below(2)):
        dims = [graph.choose((1, 3, 5, 17, *sizes, *sizes)) for _ in range(1 + graph.below(4))]
        graph.add_input(str(graph.choose(_DTYPES)), dims, "exact")
    goal = 2 + graph.below(7)
    _slice(graph)
    for _ in range(40):
        if len(graph.nodes) >= goal:
            break
        (_slice if graph.chance(0.5) else graph.choose(_READERS))(graph)
    return graph


def run_case(seed: int) -> str | None:
    """Build and compare the case of `seed`; see :class:`tests.fuzz.campaign.Campaign`."""
    if seed % _TORCH_EACH == 0:
        return run_torch_case(seed)
    graph = make_graph(seed)
    if not graph.nodes:
        return None
    cases = onnx_models.cases_of(graph, seed)
    try:
        return onnx_models.check(graph.model(), cases, target_for(seed))
    except AssertionError as error:
        # ONNX Runtime skips operands without elements, whatever their other extents are.
        if _UNEQUAL in str(error):
            return str(error)
        raise


def reproduce(seed: int) -> str:
    """A small model with the fault of the case of `seed`, if it is a graph."""
    return "" if seed % _TORCH_EACH == 0 else onnx_models.reproduce(seed, make_graph)


def _slice(graph: Graph) -> None:
    value = graph.pick(_DTYPES, ranks=range(1, 5))
    if value is None:
        return
    axes = [axis for axis in range(value.rank) if graph.chance(0.5)] or [graph.below(value.rank)]
    if graph.chance(0.2):
        axes = axes[::-1]
    starts, ends = ([_bound(graph.rng, value.shape[axis]) for axis in axes] for _ in range(2))
    if graph.chance(0.5):  # as exporters do
        starts = [0 if graph.chance(0.5) else min(start, 2) for start in starts]
        ends = [int(graph.choose(_HUGE)) for _ in ends]
    written = [axis - value.rank if graph.chance(0.3) else axis for axis in axes]
    has_axes = axes != list(range(len(axes))) or graph.chance(0.7)
    if graph.opset < 10:
        attributes = {"axes": written} if has_axes else {}
        graph.add("Slice", [value], exact=True, starts=starts, ends=ends, **attributes)
        return
    operands: list[Value | str] = [_numbers(graph, starts), _numbers(graph, ends)]
    steps = [int(graph.choose(_STEPS)) for _ in axes]
    if graph.chance(0.05):
        steps = [int(graph.choose((2**31, 2**63 - 1, -(2**31), -(2**63) + 1))) for _ in axes]
    has_steps = set(steps) != {1} or graph.chance(0.3)
    if has_axes or has_steps:
        operands.append(_numbers(graph, written, known=0.9) if has_axes else "")
    if has_steps:
        operands.append(_numbers(graph, steps, known=0.9))
    graph.add("Slice", [value, *operands], exact=True)


def _numbers(graph: Graph, numbers: list[int], known: float = 0.5) -> Value | str:
    """A tensor of `numbers`, or of others from the shape of a value or from an input."""
    array = np.array(numbers, "int64")
    small = np.iinfo("int32")
    if all(small.min <= number <= small.max for number in numbers) and graph.chance(0.15):
        return graph.constant(array.astype("int32"))
    if graph.chance(known) or not graph.sizes:
        return graph.constant(array)
    if graph.chance(0.4) and known < 0.9:
        spec = Bounds(f"x{len(graph.inputs)}", "int64", (len(numbers),), "exact")
        graph.inputs.append(spec)
        graph.values.append(Value(spec.name, spec.array(graph.rng, graph.sizes), True))
        return graph.values[-1]
    extent, size = _extent(graph)
    if extent is None:
        return graph.constant(array)
    # From a shape: to the optimizer unknown, but the same for this size.
    array = np.clip(array, -_MAX_SUM, _MAX_SUM)
    rest = graph.constant(array - size if graph.chance(0.6) else array)
    bound = graph.add("Add", [extent, rest])
    if bound and abs(bound[0].array).max() < 1000 and graph.chance(0.3):
        bound = graph.add("Mul", [bound[0], graph.constant(np.array([10**9], "int64"))])
    return bound[0] if bound else graph.constant(array)


def _extent(graph: Graph) -> tuple[Value | None, np.ndarray]:
    value = graph.pick(_DTYPES, ranks=range(1, 5))
    shape = graph.add("Shape", [value]) if value is not None else []
    if value is None or not shape:
        return None, np.zeros(1, "int64")
    axis = graph.constant(np.array([graph.below(value.rank)], "int64"))
    extent = graph.add("Gather", [shape[0], axis], axis=0)
    return (extent[0], extent[0].array) if extent else (None, np.zeros(1, "int64"))


def _concat(graph: Graph) -> None:
    value = graph.pick(_DTYPES, ranks=range(1, 5))
    if value is None:
        return
    axis = graph.below(value.rank)
    rest = lambda v: (*v.shape[:axis], *v.shape[axis + 1 :])  # noqa: E731
    same = [
        v
        for v in graph.values
        if v.dtype == value.dtype and v.rank == value.rank and rest(v) == rest(value)
    ]
    graph.add("Concat", [value, graph.choose(same)], exact=True, axis=axis)


def _shape(graph: Graph) -> None:
    value = graph.pick(_DTYPES, ranks=range(1, 5))
    if value is None:
        return
    [shape] = graph.add("Shape", [value])
    if graph.chance(0.5):
        graph.add("Cast", [shape], exact=True, to=int(TensorProto.FLOAT))
    if value.dtype != "bool" and graph.chance(0.5):
        graph.add("Reshape", [value, graph.constant(np.array([-1], "int64"))], exact=True)
    elif graph.opset >= 8:
        one = graph.constant(np.ones((1,) * value.rank, value.dtype))
        graph.add("Expand", [one, shape], exact=True)


def _matmul(graph: Graph) -> None:
    value = graph.pick(("float32",), ranks=(2, 3, 4))
    if value is None:
        return
    order = [*range(value.rank - 2), value.rank - 1, value.rank - 2]
    [turned] = graph.add("Transpose", [value], exact=True, perm=order) or [None]
    if turned is not None:
        graph.add("MatMul", [value, turned] if graph.chance(0.5) else [turned, value])


def _arithmetic(graph: Graph) -> None:
    value = graph.pick(("float32", "float16", "int64", "int32"), ranks=range(1, 5))
    if value is None:
        return
    same = [
        v
        for v in graph.values
        if v.dtype == value.dtype
        and v.rank == value.rank
        and all(a == b or 1 in (a, b) for a, b in zip(v.shape, value.shape, strict=True))
    ]
    operator = str(graph.choose(("Add", "Sub", "Mul")))
    if value.dtype == "float32" and graph.chance(0.3):
        graph.add("Softmax", [value], axis=value.rank - 1)
    elif value.dtype in ("float32", "int32") and graph.chance(0.3):
        graph.add("ReduceMax", [value], exact=True, nonempty=True, keepdims=graph.below(2))
    else:
        graph.add(operator, [value, graph.choose(same)], exact=operator != "Mul")


_READERS: tuple[Callable[[Graph], None], ...] = (_concat, _concat, _shape, _matmul, _arithmetic)
