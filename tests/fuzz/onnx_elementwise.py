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
"""Elementwise operators, casts, reductions and normalizations of random ONNX graphs."""

from collections.abc import Callable

import numpy as np

from .onnx_graphs import Graph, Value, element
from .values import FLOATS, INTEGERS, SIGNED

NUMBERS = FLOATS + INTEGERS

# Unary operators: continuous ones, and ones with jumps, which only get exact operands.
_SMOOTH = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu HardSigmoid HardSwish "
    "LeakyRelu Log Mish Neg Reciprocal Relu Selu Shrink Sigmoid Sin Sinh Softplus Softsign Sqrt "
    "Swish Tan Tanh ThresholdedRelu Identity"
).split()
_EXACT_RESULTS = frozenset(("Abs", "Neg", "Relu", "Identity"))
_JUMPING = ("Ceil", "Floor", "Round", "Sign", "IsNaN", "IsInf")
_SINCE = {"Gelu": 20, "Mish": 18, "Swish": 24, "BitwiseAnd": 18, "RMSNormalization": 23}


def unary(graph: Graph) -> None:
    if graph.chance(0.2):
        name, exact = graph.choose(_JUMPING), True
        operand = graph.pick(FLOATS, exact=True)
    else:
        name, exact = graph.choose(_SMOOTH), False
        # Near a pole, a tangent amplifies the rounding of a sum.
        operand = graph.pick(FLOATS, exact=name == "Tan")
        if name in ("Abs", "Neg", "Relu", "Identity") and graph.chance(0.3):
            operand = graph.pick(NUMBERS)
    if operand is None or graph.opset < _SINCE.get(name, 0):
        return
    attributes: dict[str, object] = {}
    if graph.chance(0.5):
        attributes = _unary_attributes(graph, name)
    graph.add(name, [operand], exact=exact or name in _EXACT_RESULTS, **attributes)


def _unary_attributes(graph: Graph, name: str) -> dict[str, object]:
    number = float(graph.rng.uniform(0.1, 2.0))
    alpha = {"alpha": number}
    # The result jumps at this number; every dtype can represent it.
    bound = max(round(number * 32), 1) / 32
    return {
        "Celu": alpha,
        "Elu": alpha,
        "LeakyRelu": alpha,
        "ThresholdedRelu": {"alpha": bound},
        "Selu": {"alpha": number, "gamma": 1.5},
        "HardSigmoid": {"alpha": number, "beta": 0.25},
        "Shrink": {"lambd": bound, "bias": float(graph.choose((0.0, 0.5)))},
        "Gelu": {"approximate": "tanh"},
        "IsInf": {"detect_negative": graph.below(2), "detect_positive": graph.below(2)},
    }.get(name, {})


def partner(graph: Graph, value: Value, *, kind: str | None = None) -> Value | str:
    """A second operand of the dtype of `value`: one that broadcasts with it, or a new constant."""
    others = [v for v in graph.values if v.dtype == value.dtype and _broadcast(v, value)]
    if others and kind is None and graph.chance(0.6):
        return graph.choose(others)
    shape = [extent if graph.chance(0.5) else 1 for extent in value.shape]
    if graph.sizes:
        shape = [1] * value.rank
    cut = graph.below(len(shape) + 1)
    kind = kind or graph.choose(("exact", "normal", "special" if graph.chance(0.2) else "exact"))
    if value.exact and kind == "normal":
        kind = "exact"
    return graph.weight(value.dtype, shape[cut:], kind)


def _broadcast(a: Value, b: Value) -> bool:
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        return False
    return True


def _grows(value: Value, other: Value) -> bool:
    """Whether `value` is broadcast to the shape of `other`."""
    return np.broadcast_shapes(value.shape, other.shape) != tuple(value.shape)


def binary(graph: Graph) -> None:
    name = graph.choose(("Add", "Sub", "Mul", "Div", "Pow", "Mod", "PRelu", "Max", "Min", "Mean"))
    value = graph.pick(FLOATS if name in ("PRelu", "Mean", "Pow") else NUMBERS)
    if value is None:
        return
    whole = value.dtype in INTEGERS
    attributes: dict[str, object] = {}
    if name == "Mod":
        if not value.exact:
            return
        attributes = {"fmod": 1} if not whole or graph.chance(0.3) else {}
    # An integer division by zero crashes ONNX Runtime, too.
    divides = name in ("Div", "Mod")
    if divides and whole and bool((value.array == np.iinfo(value.dtype).min).any()):
        return
    other = partner(graph, value, kind="positive" if (divides and whole) or name == "Pow" else None)
    if name == "PRelu" and isinstance(other, Value) and _grows(value, other):
        return  # ONNX does not broadcast the data to the slopes; ONNX Runtime does.
    exact = name in ("Add", "Sub", "Mul", "Max", "Min")
    operands = [value, other]
    if graph.chance(0.3) and name in ("Add", "Mul", "Max", "Min", "Sub"):
        operands.reverse()
    graph.add(name, operands, exact=exact, **attributes)


def compare(graph: Graph) -> None:
    name = graph.choose(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"))
    value = graph.pick((*NUMBERS, "bool") if name == "Equal" else NUMBERS, exact=True)
    if value is not None:
        other = partner(graph, value)
        if isinstance(other, str) or other.exact:
            graph.add(name, [value, other])


def logical(graph: Graph) -> None:
    value = graph.pick(("bool",))
    if value is None:
        return
    if graph.chance(0.3):
        graph.add("Not", [value])
    else:
        graph.add(graph.choose(("And", "Or", "Xor")), [value, partner(graph, value)])


def bitwise(graph: Graph) -> None:
    value = graph.pick(INTEGERS)
    if value is None or graph.opset < 18:
        return
    if graph.chance(0.2):
        graph.add("BitwiseNot", [value])
    elif graph.chance(0.3) and value.dtype not in SIGNED:
        shift = graph.weight(value.dtype, [1] * value.rank, "positive")
        graph.add("BitShift", [value, shift], direction=graph.choose(("LEFT", "RIGHT")))
    else:
        name = graph.choose(("BitwiseAnd", "BitwiseOr", "BitwiseXor"))
        graph.add(name, [value, partner(graph, value)])


def where(graph: Graph) -> None:
    value, condition = graph.pick((*NUMBERS, "bool")), graph.pick(("bool",))
    if value is not None and condition is not None:
        graph.add("Where", [condition, value, partner(graph, value)], exact=True)


def clip(graph: Graph) -> None:
    value = graph.pick(NUMBERS)
    if value is None:
        return
    bounds = [
        graph.weight(value.dtype, [], "special" if graph.chance(0.2) else "exact") for _ in "ab"
    ]
    low, high = (name if graph.chance(0.8) else "" for name in bounds)
    graph.add("Clip", [value, low, high] if high else [value, low] if low else [value], exact=True)


def cast(graph: Graph) -> None:
    value = graph.pick((*NUMBERS, "bool"))
    if value is None:
        return
    to = str(graph.choose((*FLOATS, *FLOATS, *INTEGERS, "bool")))
    if to not in FLOATS and value.dtype in FLOATS:
        # Casts of values out of range are undefined.
        if any(spec.kind == "special" for spec in graph.inputs):
            return
        float64 = value.array.astype("float64")
        low = 0 if to == "bool" or np.iinfo(to).min == 0 else -100
        if not value.exact or not bool(((float64 >= low) & (float64 <= 100)).all()):
            return
    graph.add("Cast", [value], exact=True, to=element(to))


_REDUCTIONS = (
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare "
    "ReduceLogSum ReduceLogSumExp"
).split()


def axes_of(graph: Graph, value: Value) -> list[int]:
    """Some axes of `value`, nonnegative or negative."""
    count = graph.below(value.rank + 1)
    axes = graph.rng.permutation(value.rank)[:count]
    return [int(axis) - (value.rank if graph.chance(0.3) else 0) for axis in axes]


def reduce(graph: Graph) -> None:
    name = graph.choose(_REDUCTIONS)
    value = graph.pick(FLOATS if graph.chance(0.8) else ("int32", "int64"))
    if value is None:
        return
    # ONNX Runtime computes these in floats.
    in_floats = name in ("ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")
    if in_floats and value.dtype not in FLOATS:
        # Results out of range of the integers are undefined.
        if any(spec.kind == "special" for spec in graph.inputs) or "Log" in name:
            return
    axes = axes_of(graph, value)
    if graph.sizes or not value.array.size:
        # For empty data, ONNX Runtime reduces the wrong axes if they are negative.
        axes = [axis % value.rank for axis in axes]
    attributes: dict[str, object] = {"keepdims": graph.below(2)}
    operands: list[Value | str] = [value]
    if graph.opset >= 18 or name == "ReduceSum":
        attributes["noop_with_empty_axes"] = graph.below(2)
        if axes or graph.chance(0.5):
            operands.append(graph.constant(np.array(axes, "int64")))
    elif axes:
        attributes["axes"] = axes
    exact = name in ("ReduceSum", "ReduceMax", "ReduceMin")
    graph.add(name, operands, exact=exact, **attributes)


def arg_reduce(graph: Graph) -> None:
    value = graph.pick(NUMBERS, ranks=range(1, 6), exact=True)
    # An index of no elements does not exist; ONNX Runtime returns none.
    if value is not None and value.array.size:
        graph.add(
            graph.choose(("ArgMax", "ArgMin")),
            [value],
            axis=graph.below(2 * value.rank) - value.rank,
            keepdims=graph.below(2),
            select_last_index=graph.below(2),
        )


def cumulative_sum(graph: Graph) -> None:
    value = graph.pick((*FLOATS, "int32", "int64"), ranks=range(1, 5))
    if value is not None:
        axis = graph.constant(np.array(graph.below(2 * value.rank) - value.rank, "int64"))
        flags = {"exclusive": graph.below(2), "reverse": graph.below(2)}
        graph.add("CumSum", [value, axis], exact=True, **flags)


def softmax(graph: Graph) -> None:
    value = graph.pick(FLOATS, ranks=range(1, 5))
    if value is None:
        return
    axis = graph.below(2 * value.rank) - value.rank
    if value.exact and graph.chance(0.2):
        graph.add("Hardmax", [value], exact=True, axis=axis)
    else:
        graph.add(graph.choose(("Softmax", "LogSoftmax")), [value], axis=axis)


def normalize(graph: Graph) -> None:
    value = graph.pick(FLOATS, ranks=range(2, 5))
    if value is None:
        return
    dtype, channels = value.dtype, value.shape[1]
    kind = graph.below(7)
    # Before opset 17, LayerNormalization is ONNX Runtime's own operator.
    if kind == 0 and graph.opset >= 17:
        axis = graph.below(value.rank) if not graph.sizes else value.rank - 1
        shape = value.shape[axis:]
        operands = [value, graph.weight(dtype, shape), graph.weight(dtype, shape)]
        graph.add("LayerNormalization", operands[: 2 + graph.below(2)], axis=axis)
    elif kind == 1:
        pair = [graph.weight(dtype, [channels]) for _ in "ab"]
        moments = [graph.weight(dtype, [channels]), graph.weight(dtype, [channels], "positive")]
        graph.add("BatchNormalization", [value, *pair, *moments], epsilon=1e-3)
    elif kind == 2 and value.array.size:  # ONNX Runtime may crash without elements
        pair = [graph.weight(dtype, [channels]) for _ in "ab"]
        graph.add("InstanceNormalization", [value, *pair])
    elif kind == 3 and graph.opset >= 18:
        groups = int(graph.choose([g for g in (1, 2, 3, 4) if channels % g == 0]))
        extent = channels if graph.opset >= 21 else groups
        pair = [graph.weight(dtype, [extent]) for _ in "ab"]
        graph.add("GroupNormalization", [value, *pair], num_groups=groups)
    elif kind == 4:
        graph.add("LpNormalization", [value], axis=graph.below(value.rank), p=1 + graph.below(2))
    elif kind == 5:
        graph.add("LRN", [value], size=1 + 2 * graph.below(3), alpha=0.01, bias=1.5)
    elif graph.opset >= 23:
        graph.add("RMSNormalization", [value, graph.weight(dtype, value.shape[-1:])], axis=-1)


FAMILIES: tuple[tuple[Callable[[Graph], None], float], ...] = (
    (unary, 4),
    (binary, 4),
    (compare, 1),
    (logical, 0.7),
    (bitwise, 0.4),
    (where, 1),
    (clip, 0.7),
    (cast, 1.5),
    (reduce, 2),
    (arg_reduce, 0.7),
    (cumulative_sum, 0.5),
    (softmax, 1),
    (normalize, 1.2),
)
