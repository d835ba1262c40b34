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
"""Graphs of opsets 7 to 12, whose operators have other attributes and operands than later ones."""

import functools
from collections.abc import Callable

import numpy as np
from onnx import helper

from . import onnx_models
from .onnx_graphs import Graph, Value, element
from .onnx_old_layers import LAYERS
from .values import FLOATS

_OPSETS = (7, 8, 9, 10, 11, 12)
_NUMBERS = ("float32", "float32", "float64", "int32", "int64")

_UNARY: dict[str, tuple[int, Callable[[Graph], dict[str, object]] | None]] = {
    **dict.fromkeys(
        "Abs Neg Exp Log Sqrt Reciprocal Sigmoid Tanh Relu Softplus Softsign Sin Cos Tan Asin "
        "Acos Atan Identity".split(),
        (7, None),
    ),
    **dict.fromkeys("Sinh Cosh Asinh Acosh Atanh Erf".split(), (9, None)),
    "LeakyRelu": (7, lambda graph: {"alpha": _number(graph)}),
    "Elu": (7, lambda graph: {"alpha": _number(graph)}),
    "Selu": (7, lambda graph: {"alpha": _number(graph), "gamma": 1.5}),
    "HardSigmoid": (7, lambda graph: {"alpha": _number(graph), "beta": 0.25}),
    "Celu": (12, lambda graph: {"alpha": _number(graph)}),
}
"""For each operator without jumps, the opset that adds it, and random attributes."""

_JUMPING = {"Ceil": 7, "Floor": 7, "Sign": 9, "IsNaN": 9, "Round": 11, "IsInf": 10}


def _number(graph: Graph) -> float:
    return round(float(graph.rng.uniform(0.1, 2.0)) * 32) / 32


def _signed_axis(graph: Graph, rank: int) -> int:
    """An axis, from opset 11 on perhaps a negative one."""
    return graph.below(rank) - (rank if graph.opset >= 11 and graph.chance(0.5) else 0)


def _some_axes(graph: Graph, rank: int) -> list[int]:
    axes = [int(axis) for axis in graph.rng.permutation(rank)[: 1 + graph.below(rank)]]
    return [a - rank if graph.opset >= 11 and graph.chance(0.3) else a for a in axes]


def _ints(graph: Graph, *numbers: int, dtype: str = "int64") -> str:
    return graph.constant(np.array(numbers, dtype))


def unary(graph: Graph) -> None:
    if graph.chance(0.2):
        name = graph.choose([n for n, since in _JUMPING.items() if since <= graph.opset])
        operand = graph.pick(("float32",), exact=True)
        attributes: dict[str, object] = {}
    else:
        name = graph.choose([n for n, (since, _) in _UNARY.items() if since <= graph.opset])
        make = _UNARY[name][1]
        operand = graph.pick(("float32", "float64"), exact=name == "Tan")
        attributes = make(graph) if make is not None and graph.chance(0.7) else {}
    if operand is not None:
        graph.add(name, [operand], exact=name in ("Abs", "Neg", "Relu", "Identity"), **attributes)


def _partner(graph: Graph, value: Value, kind: str = "exact") -> str:
    shape = [1 if graph.sizes or graph.chance(0.4) else extent for extent in value.shape]
    return graph.weight(value.dtype, shape[graph.below(len(shape) + 1) :], kind)


def binary(graph: Graph) -> None:
    names = ["Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Max", "Min", "Sum", "Mean"]
    names += ["Mod"] if graph.opset >= 10 else []
    name = graph.choose(names)
    value = graph.pick(_NUMBERS, exact=name == "Mod")
    if value is None:
        return
    floats = value.dtype in FLOATS
    kind = "positive" if name in ("Div", "Mod", "Pow") else "exact"
    attributes = {"fmod": 1} if name == "Mod" and (floats or graph.chance(0.3)) else {}
    operands = [value, _partner(graph, value, kind)]
    if name in ("Max", "Min", "Sum", "Mean") and graph.chance(0.4):
        operands.append(_partner(graph, value))
    graph.add(name, operands, exact=name in ("Add", "Sub", "Mul", "Max", "Min"), **attributes)


def compare(graph: Graph) -> None:
    names = ["Equal", "Greater", "Less"]
    names += ["GreaterOrEqual", "LessOrEqual"] if graph.opset >= 12 else []
    value = graph.pick(_NUMBERS, exact=True)
    if value is None:
        return
    compared = graph.add(graph.choose(names), [value, _partner(graph, value)], exact=True)
    if compared and graph.chance(0.5):
        if graph.chance(0.5):
            graph.add("Not", compared, exact=True)
        else:
            name = graph.choose(("And", "Or", "Xor"))
            graph.add(name, [compared[0], graph.weight("bool", compared[0].shape[-1:])], exact=True)
    elif compared and graph.opset >= 9:
        graph.add("Where", [compared[0], value, _partner(graph, value)], exact=True)


def clip(graph: Graph) -> None:
    value = graph.pick(("float32",) if graph.opset < 12 else _NUMBERS)
    if value is None:
        return
    bounds = {
        name: number
        for name, number in (("min", -1.0), ("max", float(graph.below(3))))
        if graph.chance(0.7)
    }
    if graph.opset < 11:
        graph.add("Clip", [value], exact=True, **bounds)
        return
    scalars = [
        graph.constant(np.array(bounds[name], value.dtype)) if name in bounds else ""
        for name in ("min", "max")
    ]
    graph.add("Clip", [value, *scalars], exact=True)


def normalize(graph: Graph) -> None:
    """Up to opset 12, a softmax is over all axes from `axis` on."""
    # onnx's reference, for dtypes that ONNX Runtime lacks, has the meaning of later opsets.
    value = graph.pick(("float32",), ranks=range(1, 5), nonempty=True)
    if value is None:
        return
    name = graph.choose(("Softmax", "LogSoftmax", "Hardmax"))
    if name == "Hardmax" and not value.exact:
        return
    attributes = {"axis": _signed_axis(graph, value.rank)} if graph.chance(0.8) else {}
    graph.add(name, [value], exact=name == "Hardmax", **attributes)


def cast(graph: Graph) -> None:
    value = graph.pick((*_NUMBERS, "bool"), exact=True)
    if value is None or not np.isfinite(value.array.astype("float64")).all():
        return
    to = str(graph.choose(("float32", "float64", "float16", "int64", "int32", "bool", "int8")))
    graph.add("Cast", [value], exact=True, to=element(to))


def reduce(graph: Graph) -> None:
    names = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    name = f"Reduce{graph.choose(names)}"
    value = graph.pick(("float32", "float32", "int32"), ranks=range(1, 5), nonempty=True)
    if value is None:
        return
    attributes: dict[str, object] = {"keepdims": graph.below(2)} if graph.chance(0.7) else {}
    if graph.chance(0.8):
        attributes["axes"] = _some_axes(graph, value.rank)
    graph.add(name, [value], exact=name in ("ReduceMax", "ReduceMin", "ReduceSum"), **attributes)


def select(graph: Graph) -> None:
    name = graph.choose(("ArgMax", "ArgMin", "TopK"))
    value = graph.pick(("float32",), ranks=range(1, 5), exact=True, nonempty=True)
    if value is None or np.isnan(value.array).any():
        return
    axis = _signed_axis(graph, value.rank)
    if name != "TopK":
        attributes: dict[str, object] = {"axis": axis, "keepdims": graph.below(2)}
        if graph.opset >= 12 and graph.chance(0.5):
            attributes["select_last_index"] = 1
        graph.add(name, [value], exact=True, **attributes)
        return
    count = 1 + graph.below(max(min(value.shape[axis], 2 if graph.sizes else 9), 1))
    attributes = {"axis": axis}
    if graph.opset >= 11:
        attributes |= {"largest": graph.below(2), "sorted": 1}
    if graph.opset < 10:
        graph.add("TopK", [value], outputs=2, exact=True, k=count, **attributes)
    else:
        graph.add("TopK", [value, _ints(graph, count)], outputs=2, exact=True, **attributes)


def slices(graph: Graph) -> None:
    value = graph.pick((*_NUMBERS, "bool"), ranks=range(1, 5))
    if value is None:
        return
    axes = [int(axis) for axis in graph.rng.permutation(value.rank)[: 1 + graph.below(value.rank)]]
    bounds = (-(2**31), -100, -3, -2, -1, 0, 1, 2, 3, 5, 100, 10**9, 2**31 - 1, 2**63 - 1)
    starts = [int(graph.choose(bounds[2:9])) for _ in axes]
    ends = [int(graph.choose(bounds)) for _ in axes]
    named = graph.chance(0.7)
    if not named:
        axes = list(range(len(axes)))
    if graph.opset < 10:
        attributes = {"axes": axes} if named else {}
        graph.add("Slice", [value], exact=True, starts=starts, ends=ends, **attributes)
        return
    dtype = graph.choose(("int64", "int32"))
    ends = [min(end, 2**31 - 1) for end in ends] if dtype == "int32" else ends
    operands = [value, _ints(graph, *starts, dtype=dtype), _ints(graph, *ends, dtype=dtype)]
    if named:
        operands.append(_ints(graph, *axes, dtype=dtype))
        if graph.chance(0.5):
            steps = [int(graph.choose((1, 2, 3, -1, -2))) for _ in axes]
            operands.append(_ints(graph, *steps, dtype=dtype))
    graph.add("Slice", operands, exact=True)


def reshape(graph: Graph) -> None:
    value = graph.pick((*_NUMBERS, "bool"))
    if value is None:
        return
    kind = graph.below(6)
    if kind == 0:
        shape = [-1] if graph.chance(0.5) else [0, -1][: max(value.rank, 1)]
        graph.add("Reshape", [value, _ints(graph, *shape)], exact=True, nonempty=True)
    elif kind == 1:
        low = -value.rank if graph.opset >= 11 else 0
        axis = low + graph.below(value.rank - low + 1)
        graph.add("Flatten", [value], exact=True, **({"axis": axis} if graph.chance(0.8) else {}))
    elif kind == 2:
        ones = [axis for axis, extent in enumerate(value.shape) if extent == 1]
        if graph.sizes or (ones and graph.chance(0.7)):
            graph.add("Squeeze", [value], exact=True, **({"axes": ones} if ones else {}))
        else:
            graph.add("Squeeze", [value], exact=True)
    elif kind == 3:
        rank = value.rank + 1 + graph.below(2)
        axes = sorted(int(a) for a in graph.rng.permutation(rank)[: rank - value.rank])
        if graph.opset >= 11 and graph.chance(0.4):
            axes = [axis - rank for axis in axes]
        graph.add("Unsqueeze", [value], exact=True, axes=axes)
    elif kind == 4:
        order = [int(axis) for axis in graph.rng.permutation(value.rank)]
        graph.add("Transpose", [value], exact=True, **({"perm": order} if order else {}))
    else:
        graph.add(graph.choose(("Shape", "Size")), [value], exact=True)


def join(graph: Graph) -> None:
    value = graph.pick((*_NUMBERS, "bool"), ranks=range(1, 5))
    if value is None:
        return
    axis = _signed_axis(graph, value.rank)
    kind = graph.below(4)
    if kind == 0:
        graph.add("Concat", [value, value], exact=True, axis=axis)
    elif kind == 1 and value.shape[axis] > 1 and not graph.sizes:
        first = 1 + graph.below(value.shape[axis] - 1)
        sizes = {"split": [first, value.shape[axis] - first]} if graph.chance(0.7) else {}
        graph.add("Split", [value], outputs=2, exact=True, axis=axis, **sizes)
    elif kind == 2:
        repeats = [1 + graph.below(3) for _ in value.shape]
        graph.add("Tile", [value, _ints(graph, *repeats)], exact=True)
    elif graph.opset >= 8:
        shape = [2, *[1] * value.rank]
        graph.add("Expand", [value, _ints(graph, *shape)], exact=True)


def pad(graph: Graph) -> None:
    value = graph.pick(("float32", "float64"), ranks=range(1, 5), nonempty=True)
    if value is None:
        return
    mode = str(graph.choose(("constant", "reflect", "edge")))
    low = -1 if mode == "constant" else 0
    pads = [low + graph.below(3) for _ in range(2 * value.rank)]
    if mode == "reflect":
        limits = [min(extent, 2) - 1 for extent in value.shape] * 2
        pads = [min(width, limit) for width, limit in zip(pads, limits, strict=True)]
    number = float(graph.below(5) - 2)
    if graph.opset >= 11:
        operands = [value, _ints(graph, *pads)]
        if graph.chance(0.5) and mode == "constant":
            operands.append(graph.constant(np.array(number, value.dtype)))
        graph.add("Pad", operands, exact=True, mode=mode)
    else:
        more = {"value": number} if graph.chance(0.5) else {}
        graph.add("Pad", [value], exact=True, mode=mode, pads=pads, **more)


def gather(graph: Graph) -> None:
    value = graph.pick(_NUMBERS, ranks=range(1, 4), nonempty=True)
    if value is None:
        return
    axis = _signed_axis(graph, value.rank)
    most = 1 if graph.sizes else value.shape[axis]
    low = -most if graph.opset >= 11 else 0
    dtype = graph.choose(("int64", "int32"))
    choices = ["Gather", "Gather"]
    choices += ["Scatter", "OneHot", "Compress"] if graph.opset >= 9 else []
    choices += ["GatherElements", "ScatterElements", "GatherND"] if graph.opset >= 11 else []
    name = graph.choose(choices)
    if name == "Gather":
        shape = [1 + graph.below(3) for _ in range(graph.below(3))]
        places = graph.constant(np.array(graph.rng.integers(low, most, shape), dtype))
        graph.add("Gather", [value, places], exact=True, axis=axis)
    elif name in ("Scatter", "ScatterElements", "GatherElements") and not graph.sizes:
        places = (
            np.argsort(graph.rng.random(value.shape), axis)[..., :1]
            if axis in (-1, value.rank - 1)
            else np.zeros(value.shape, int)[:1]
        )
        operands = [value, graph.constant(places.astype(dtype))]
        if name != "GatherElements":
            operands.append(graph.weight(value.dtype, places.shape, "exact"))
        graph.add(name, operands, exact=True, axis=axis)
    elif name == "GatherND":
        graph.add(name, [value, graph.constant(np.zeros((2, 1), "int64"))], exact=True)
    elif name == "Compress":
        mask = graph.constant(graph.rng.integers(0, 2, max(most, 1)).astype(bool))
        graph.add(name, [value, mask], exact=True, axis=axis)
    elif name == "OneHot":
        indices = graph.pick(("int64", "int32"), exact=True)
        if indices is not None:
            depth, limits = _ints(graph, 3), graph.constant(np.array([0.0, 1.0], "float32"))
            graph.add(name, [indices, depth, limits], exact=True, axis=graph.below(2) - 1)


def make(graph: Graph) -> None:
    choices = (
        ["ConstantOfShape", "EyeLike", "NonZero", "Constant"] if graph.opset >= 9 else ["Constant"]
    )
    choices += ["Range", "CumSum"] if graph.opset >= 11 else []
    name = graph.choose(choices)
    dtype = str(graph.choose(("float32", "int64", "int32")))
    if name == "Constant":
        tensor = helper.make_tensor("value", element(dtype), [2], [1, 3])
        graph.add("Constant", [], exact=True, value=tensor)
    elif name == "ConstantOfShape":
        value = graph.pick(_NUMBERS, ranks=range(1, 4))
        tensor = helper.make_tensor("value", element(dtype), [1], [graph.below(4)])
        if value is not None:
            shape = graph.add("Shape", [value], exact=True)
            if shape:
                graph.add(
                    name, shape, exact=True, **({"value": tensor} if graph.chance(0.7) else {})
                )
    elif name == "EyeLike":
        value = graph.pick(_NUMBERS, ranks=(2,))
        if value is not None:
            more = {"dtype": element(dtype)} if graph.chance(0.5) else {}
            graph.add(name, [value], exact=True, k=graph.below(3) - 1, **more)
    elif name == "Range":
        numbers = [graph.constant(np.array(n, dtype)) for n in (graph.below(3), 9, 2)]
        graph.add(name, numbers, exact=True)
    else:
        value = graph.pick(("float32", "int32", "int64"), ranks=range(1, 4), exact=True)
        if value is None:
            return
        if name == "NonZero":
            graph.add(name, [value], exact=True)
        else:
            flags = {"exclusive": graph.below(2), "reverse": graph.below(2)}
            axis = graph.constant(np.array(graph.below(value.rank), "int64"))
            graph.add(name, [value, axis], exact=True, **flags)


_FAMILIES = (
    *(unary, binary, compare, clip, normalize, cast, reduce, select, slices, reshape),
    *(join, pad, gather, make),
    *LAYERS,
)


def make_graph(seed: int) -> Graph:
    """The graph of `seed`."""
    rng = np.random.default_rng([5, seed])
    sizes = {"n": 3, "m": 4, "k": 2} if rng.random() < 0.35 else {}
    graph = Graph(rng, int(rng.choice(_OPSETS)), sizes)
    for _ in range(1 + graph.below(2)):
        dims = [int(graph.choose((1, 2, 3, 4, 6))) for _ in range(1 + graph.below(4))]
        named = [graph.choose(list(sizes)) if sizes and graph.chance(0.5) else d for d in dims]
        kind = str(graph.choose(("exact", "normal")))
        graph.add_input(str(graph.choose(_NUMBERS)), named, kind)
    for _ in range(40):
        if len(graph.nodes) >= 1 + graph.below(6):
            break
        graph.choose(_FAMILIES)(graph)
    return graph


def run_case(seed: int) -> str | None:
    """Build and compare the graph of `seed`; see :class:`tests.fuzz.campaign.Campaign`."""
    return onnx_models.check_graph(make_graph(seed), seed)


reproduce = functools.partial(onnx_models.reproduce, make=make_graph)
