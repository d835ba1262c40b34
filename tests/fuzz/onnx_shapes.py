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
"""Operators of random ONNX graphs that move, select and scatter elements."""

from collections.abc import Callable

import numpy as np

from .onnx_elementwise import NUMBERS, axes_of
from .onnx_graphs import Graph, Value, element
from .values import FLOATS

ANY = (*NUMBERS, "bool")


def _axis(graph: Graph, value: Value) -> int:
    return graph.below(2 * value.rank) - value.rank


def _ints(graph: Graph, *numbers: int, dtype: str = "int64") -> str:
    return graph.constant(np.array(numbers, dtype))


def reshape(graph: Graph) -> None:
    value = graph.pick(ANY)
    if value is None:
        return
    left = [int(extent) for extent in value.shape]
    shape: list[int] = []
    while left:
        extent = left.pop(0)
        if left and graph.chance(0.4):
            left[0] *= extent
        elif extent > 1 and graph.chance(0.3):
            factors = [f for f in range(1, extent + 1) if extent % f == 0]
            factor = int(graph.choose(factors))
            shape += [factor, extent // factor]
        else:
            shape.append(extent)
    if graph.chance(0.2):
        shape.insert(graph.below(len(shape) + 1), 1)
    if shape and (graph.sizes or graph.chance(0.4)) and 0 not in value.shape:
        shape[graph.below(len(shape))] = -1
    graph.add("Reshape", [value, _ints(graph, *shape)], exact=True)


def rearrange(graph: Graph) -> None:
    value = graph.pick(ANY)
    if value is None:
        return
    kind = graph.below(5)
    if kind == 0:
        order = [int(axis) for axis in graph.rng.permutation(value.rank)]
        graph.add("Transpose", [value], exact=True, **({"perm": order} if order else {}))
    elif kind == 1:
        graph.add("Flatten", [value], exact=True, axis=graph.below(value.rank + 1))
    elif kind == 2:
        ones = [axis for axis, extent in enumerate(value.shape) if extent == 1]
        chosen = [axis for axis in ones if graph.chance(0.7)]
        operands = [value, _ints(graph, *chosen)] if chosen else [value]
        graph.add("Squeeze", operands, exact=True)
    elif kind == 3:
        rank = value.rank + 1 + graph.below(2)
        axes = sorted(int(a) for a in graph.rng.permutation(rank)[: rank - value.rank])
        if graph.chance(0.3):
            axes = [axis - rank for axis in axes]
        graph.add("Unsqueeze", [value, _ints(graph, *axes)], exact=True)
    else:
        graph.add("Identity", [value], exact=True)


def concatenate(graph: Graph) -> None:
    value = graph.pick(ANY, ranks=range(1, 6))
    if value is None:
        return
    axis = graph.below(value.rank)
    rest = lambda v: (*v.shape[:axis], *v.shape[axis + 1 :])  # noqa: E731
    same = [
        v
        for v in graph.values
        if v.dtype == value.dtype and v.rank == value.rank and rest(v) == rest(value)
    ]
    operands = [graph.choose(same) for _ in range(1 + graph.below(3))]
    graph.add("Concat", [value, *operands], exact=True, axis=axis - value.rank * graph.below(2))


def split(graph: Graph) -> None:
    value = graph.pick(ANY, ranks=range(1, 6))
    if value is None:
        return
    axis = graph.below(value.rank)
    extent = value.shape[axis]
    if graph.opset >= 18 and graph.chance(0.5):
        count = 1 + graph.below(3)
        graph.add("Split", [value], outputs=count, exact=True, axis=axis, num_outputs=count)
        return
    cut = graph.below(extent + 1)
    sizes = _ints(graph, cut, extent - cut)
    graph.add("Split", [value, sizes], outputs=2, exact=True, axis=axis)


def slice_(graph: Graph) -> None:
    value = graph.pick(ANY, ranks=range(1, 6))
    if value is None:
        return
    axes = axes_of(graph, value) or [0]
    starts, ends, steps = [], [], []
    for axis in axes:
        extent = value.shape[axis]
        step = int(graph.choose((1, 1, 2, 3, -1, -2)))
        bounds = sorted(int(b) for b in graph.rng.integers(-extent - 2, extent + 3, 2))
        if graph.chance(0.2):
            bounds[1] = np.iinfo("int64").max
        starts.append(bounds[0] if step > 0 else bounds[1])
        ends.append(bounds[1] if step > 0 else bounds[0])
        if step < 0 and graph.chance(0.3):
            ends[-1] = np.iinfo("int64").min
        steps.append(step)
    dtype = (
        "int64"
        if any(abs(e) > 2**31 - 2 for e in (*starts, *ends))
        else graph.choose(("int64", "int32"))
    )
    operands = [_ints(graph, *numbers, dtype=dtype) for numbers in (starts, ends, axes, steps)]
    graph.add("Slice", [value, *operands], exact=True)


def _indices(graph: Graph, extent: int, shape: tuple[int, ...]) -> str:
    low = -extent if graph.chance(0.5) else 0
    dtype = graph.choose(("int64", "int32"))
    return graph.constant(graph.rng.integers(low, extent, shape).astype(dtype))


def _small_shape(graph: Graph, rank: int) -> tuple[int, ...]:
    return tuple(int(e) for e in graph.rng.integers(0 if graph.chance(0.1) else 1, 5, rank))


def gather(graph: Graph) -> None:
    value = graph.pick(ANY, ranks=range(1, 5), nonempty=True)
    if value is None:
        return
    axis = _axis(graph, value)
    extent = value.shape[axis]
    kind = graph.below(4)
    if kind == 0:
        found = graph.pick(("int64", "int32"), ranks=range(3))
        if found is not None and bool(((found.array >= -extent) & (found.array < extent)).all()):
            graph.add("Gather", [value, found], exact=True, axis=axis)
    elif kind == 1:
        indices = _indices(graph, extent, _small_shape(graph, graph.below(3)))
        graph.add("Gather", [value, indices], exact=True, axis=axis)
    elif kind == 2:
        shape = [min(1 + graph.below(e), e) for e in value.shape]
        shape[axis] = 1 + graph.below(4)
        graph.add(
            "GatherElements", [value, _indices(graph, extent, tuple(shape))], exact=True, axis=axis
        )
    else:
        depth = 1 + graph.below(value.rank)
        shape = _small_shape(graph, graph.below(3))
        columns = [graph.rng.integers(-e, e, shape) for e in value.shape[:depth]]
        graph.add("GatherND", [value, graph.constant(np.stack(columns, -1))], exact=True)


def scatter(graph: Graph) -> None:
    value = graph.pick(
        ("float32", "float64", "float16", "int64", "int32", "bool"),
        ranks=range(1, 5),
        nonempty=True,
    )
    if value is None:
        return
    # Without a reduction, the order of duplicate indices is undefined.
    with_reductions = graph.opset >= 16 and value.dtype != "bool"
    reductions = ["none", "add", "mul"] if with_reductions else ["none"]
    if graph.opset >= 18 and value.dtype != "bool":
        reductions += ["max", "min"]
    reduction = str(graph.choose(reductions))
    attributes: dict[str, object] = {} if reduction == "none" else {"reduction": reduction}
    kind = "exact" if value.exact else "normal"
    exact = reduction != "mul"
    if graph.chance(0.5):
        axis = graph.below(value.rank)
        extent = value.shape[axis]
        shape = [1 + graph.below(e) for e in value.shape]
        lines = graph.rng.random(tuple(shape))
        if reduction == "none":
            indices = np.argsort(lines, axis=axis)
        else:
            indices = (lines * extent).astype("int64")
        if graph.chance(0.5):
            indices = indices - extent
        updates = graph.weight(value.dtype, shape, kind)
        operands = [value, graph.constant(indices), updates]
        graph.add("ScatterElements", operands, exact=exact, axis=axis, **attributes)
        return
    depth = 1 + graph.below(value.rank)
    count = int(np.prod(value.shape[:depth]))
    flat = graph.rng.permutation(count)[: 1 + graph.below(count)]
    if reduction != "none":
        flat = graph.rng.integers(0, count, len(flat))
    indices = np.stack(np.unravel_index(flat, value.shape[:depth]), -1).astype("int64")
    updates = graph.weight(value.dtype, (len(flat), *value.shape[depth:]), kind)
    graph.add("ScatterND", [value, graph.constant(indices), updates], exact=exact, **attributes)


def grow(graph: Graph) -> None:
    value = graph.pick(ANY, ranks=range(1, 5))
    if value is None:
        return
    kind = graph.below(3)
    if kind == 0:
        shape = [
            3 if e == 1 and graph.chance(0.5) else 1 if graph.sizes else e for e in value.shape
        ]
        if graph.chance(0.3):
            shape.insert(0, 2)
        graph.add("Expand", [value, _ints(graph, *shape)], exact=True, limit=4096)
    elif kind == 1:
        repeats = [graph.below(3) if graph.chance(0.2) else 1 + graph.below(2) for _ in value.shape]
        graph.add("Tile", [value, _ints(graph, *repeats)], exact=True, limit=4096)
    else:
        pad(graph, value)


def pad(graph: Graph, value: Value) -> None:
    mode = str(graph.choose(("constant", "reflect", "edge", "wrap")))
    if mode == "wrap" and graph.opset < 19:
        return
    low = -1 if mode == "constant" and graph.chance(0.3) else 0
    pads = [int(p) for p in graph.rng.integers(low, 3, 2 * value.rank)]
    operands: list[Value | str] = [value, _ints(graph, *pads)]
    if mode == "constant" and graph.chance(0.5):
        operands.append(graph.weight(value.dtype, [], "exact"))
    graph.add("Pad", operands, exact=True, limit=4096, mode=mode)


def choose(graph: Graph) -> None:
    """Operators whose results are positions, counts or selected elements."""
    value = graph.pick(ANY, ranks=range(1, 5))
    if value is None:
        return
    kind = graph.below(8)
    if kind == 0 and value.exact:
        graph.add("NonZero", [value])
    elif kind == 1:
        bounds = {"start": graph.below(3) - 1, "end": graph.below(4)} if graph.chance(0.5) else {}
        graph.add("Shape", [value], **bounds)
    elif kind == 2:
        graph.add("Size", [value])
    elif kind == 3:
        axis = graph.below(value.rank)
        # ONNX Runtime ignores a condition beyond the axis; onnx's reference rejects it.
        most = min(value.shape[axis], 1) if graph.sizes else value.shape[axis]
        condition = graph.weight("bool", [graph.below(most + 1)])
        graph.add("Compress", [value, condition], exact=True, axis=axis)
    elif kind == 4 and value.rank >= 2:
        attributes = {"upper": graph.below(2)}
        graph.add(
            "Trilu", [value, graph.constant(np.array(graph.below(5) - 2))], exact=True, **attributes
        )
    elif kind == 5 and value.dtype in NUMBERS and value.exact:
        axis = _axis(graph, value)
        count = _ints(graph, graph.below(value.shape[axis] + 1))
        flags = {"largest": graph.below(2), "sorted": 1}
        graph.add("TopK", [value, count], outputs=2, exact=True, axis=axis, **flags)
    elif kind == 6 and value.rank >= 2:
        lengths = graph.rng.integers(0, value.shape[0] + 1, value.shape[1])
        axes = {"time_axis": 0, "batch_axis": 1}
        graph.add("ReverseSequence", [value, graph.constant(lengths)], exact=True, **axes)
    elif value.rank == 2:
        graph.add("EyeLike", [value], k=graph.below(3) - 1, dtype=element("float32"))


def create(graph: Graph) -> None:
    kind = graph.below(3)
    if kind == 0:
        dtype = str(graph.choose(("float32", "int64", "int32", "float64")))
        start, step = graph.below(5) - 2, int(graph.choose((1, 2, -1, -3)))
        numbers = (start, start + graph.below(9) * (1 if step > 0 else -1), step)
        graph.add("Range", [graph.constant(np.array(n, dtype)) for n in numbers], exact=True)
    elif kind == 1:
        indices = graph.pick(("int64", "int32"), ranks=range(3))
        if indices is not None:
            depth = graph.constant(np.array(1 + graph.below(5), "int64"))
            pair = graph.weight(str(graph.choose(("float32", "int64"))), [2], "exact")
            axis = graph.below(indices.rank + 1)
            graph.add("OneHot", [indices, depth, pair], exact=True, axis=axis)
    else:
        shape = graph.pick(("int64",), ranks=(1,))
        if shape is not None and bool(((shape.array >= 0) & (shape.array < 9)).all()):
            graph.add("ConstantOfShape", [shape], exact=True, limit=4096)


def blocks(graph: Graph) -> None:
    value = graph.pick(FLOATS, ranks=(4,))
    if value is None:
        return
    if graph.chance(0.5):
        mode = graph.choose(("DCR", "CRD"))
        graph.add("DepthToSpace", [value], exact=True, blocksize=2, mode=mode)
    else:
        graph.add("SpaceToDepth", [value], exact=True, blocksize=1 + graph.below(2))


FAMILIES: tuple[tuple[Callable[[Graph], None], float], ...] = (
    (reshape, 1.5),
    (rearrange, 2.5),
    (concatenate, 1),
    (split, 0.7),
    (slice_, 1.2),
    (gather, 1.5),
    (scatter, 1),
    (grow, 1.5),
    (choose, 1.5),
    (create, 0.7),
    (blocks, 0.3),
)
