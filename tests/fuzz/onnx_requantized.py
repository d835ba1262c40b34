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
"""Judges quantized results step by step, each from our own operands: a tie has two correct results.

A result that is rounded to integers may differ from an oracle's by one step if its exact value is
within rounding error of a tie; then all later results differ too. So each quantized result is
compared with a float64 run of its step, which begins with our earlier quantized results.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from . import onnx_oracle
from .tolerance import difference
from .values import FLOATS

Arrays = Mapping[str, np.ndarray]
Run = Callable[[dict[str, np.ndarray]], list[np.ndarray]]

_ROUNDING = ("DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QuantizeLinear")

# Kernels that ONNX Runtime lacks for float64; their error in float32 is a few units.
_IN_FLOAT32 = ("AveragePool", "GlobalAveragePool", "Resize")

_MOVED_RUNS = 3


def rounds(model: onnx.ModelProto) -> bool:
    """Whether any node of `model` rounds to integers."""
    return any(node.op_type in _ROUNDING for node in model.graph.node)


def with_steps(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` with its quantized intermediate results as further outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {output.name for output in model.graph.output}
    inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
    types = {value.name: value for value in inferred}
    for node in model.graph.node:
        if node.op_type in _ROUNDING:
            copy.graph.output.extend(types[n] for n in node.output if n in types.keys() - known)
    return copy


def problem_of(
    model: onnx.ModelProto, inputs: Arrays, got: list[np.ndarray], build: Callable[..., Run]
) -> str:
    """Describe the error of the outputs `got`; empty if each step to them is correct.

    Parameters
    ----------
    model : onnx.ModelProto
    inputs : mapping of str to numpy.ndarray
    got : list of numpy.ndarray
        The outputs of `model`, as it was built.
    build : callable
        Builds a model, here one that also returns the intermediate results.
    """
    more = with_steps(model)
    outputs = build(more)(dict(inputs))
    again = outputs[: len(got)]
    problem = difference(got, again, lambda: [again], "float32")
    if problem:
        return f"differs if intermediate results are outputs: {problem}"
    names = [output.name for output in more.graph.output]
    return _walk(model, inputs, dict(zip(names, outputs, strict=True)))


def _walk(model: onnx.ModelProto, inputs: Arrays, ours: Arrays) -> str:
    """The first problem of the steps of `model`; `ours` has results by name."""
    rng = np.random.default_rng(0)
    known = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer} | dict(inputs)
    # The first run is exact.  In the others, results move by a rounding.
    runs = [dict(known) for _ in range(1 + _MOVED_RUNS)]
    for node in model.graph.node:
        results = [_steps_of(node, run, ours, model.opset_import[0].version) for run in runs]
        is_rounding = node.op_type in _ROUNDING
        for name, (exact, *moved) in zip(node.output, zip(*results, strict=True), strict=False):
            judge = _problem_of_rounding if is_rounding else _difference
            problem = judge(ours[name], exact, moved) if is_rounding or name in ours else ""
            if problem:
                return f"{name} = {node.op_type} {node.name}: {problem}"
            for run, result in zip(runs, (exact, *moved), strict=True):
                is_exact = run is runs[0]
                result = result if is_exact else onnx_oracle.moved(result, "float32", rng)
                run[name] = ours[name] if is_rounding else result
    return ""


def _steps_of(node: onnx.NodeProto, known: Arrays, ours: Arrays, opset: int) -> list[np.ndarray]:
    """The results of a node in float64; if it rounds, before rounding."""
    operands = {name: known[name] for name in onnx_oracle.names_read(node) if name in known}
    if node.op_type in _ROUNDING:
        return list(_unrounded(node, operands, ours))
    return _evaluate(node, operands, opset)


def _difference(ours: np.ndarray, exact: np.ndarray, moved: Sequence[np.ndarray]) -> str:
    """The difference between a result and its value in float64."""
    theirs = exact.astype(ours.dtype) if ours.dtype.name in FLOATS else exact
    precision = ours.dtype.name if ours.dtype.name in FLOATS else "float32"
    return difference([ours], [theirs], lambda: [[run] for run in (exact, *moved)], precision)


def _evaluate(node: onnx.NodeProto, operands: Arrays, opset: int) -> list[np.ndarray]:
    """The results of a node that does not round to integers, in float64."""
    if node.op_type == "DequantizeLinear":
        return [_dequantized(node, operands)]
    narrow = node.op_type in _IN_FLOAT32
    evaluated = onnx_oracle.evaluate(
        node,
        {
            name: a.astype("float32" if narrow else "float64") if a.dtype.name in FLOATS else a
            for name, a in operands.items()
        },
        opset,
    )
    assert evaluated is not None, f"no oracle runs {node.op_type} in float64"
    return [a.astype("float64") if a.dtype.name in FLOATS else a for a in evaluated]


def _problem_of_rounding(ours: np.ndarray, exact: np.ndarray, moved: Sequence[np.ndarray]) -> str:
    """Describe the error of integers, or of dynamic quantization parameters; empty if correct."""
    if ours.shape != exact.shape:
        return f"expected the shape {exact.shape}, got {ours.shape}"
    if ours.dtype.name in FLOATS:
        return _difference(ours, exact, moved)
    limits = np.iinfo(ours.dtype)
    largest = np.abs(exact[np.isfinite(exact)]).max(initial=1.0)
    inside = np.clip(exact, limits.min, limits.max)
    with np.errstate(invalid="ignore"):
        sensitivity = sum(np.abs(np.clip(m, limits.min, limits.max) - inside) for m in moved)
    room = 0.5 + 1e-6 * min(largest, 1e4) + 4 * np.nan_to_num(sensitivity)
    apart = ~(np.abs(ours - inside) <= room) & ~np.isnan(exact)
    if not apart.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(apart)[0])
    count = f"{int(apart.sum())} of {apart.size}"
    return f"{count} elements are wrong; at {at} expected {inside[at]} rounded, got {ours[at]}"


def _unrounded(node: onnx.NodeProto, operands: Arrays, ours: Arrays) -> Iterable[np.ndarray]:
    """The results of a node in float64, before they are rounded and clipped."""
    arrays = [operands[name] if name else None for name in node.input]
    if node.op_type == "QuantizeLinear":
        data = arrays[0].astype("float64")
        scale, zero = _parameters(node, arrays)
        with np.errstate(all="ignore"):
            yield data / scale + zero
    elif node.op_type == "DynamicQuantizeLinear":
        data = arrays[0].astype("float64")
        low, high = min(data.min(), 0.0), max(data.max(), 0.0)
        scale = (high - low) / 255 or 1.0
        yield data / scale + ours[node.output[2]]
        yield from (np.asarray(scale), np.asarray(-low / scale))
    else:
        yield _product(node, arrays)


def _parameters(
    node: onnx.NodeProto, arrays: list[np.ndarray | None]
) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point of a node with data, in float64, in shapes that broadcast."""
    data, scale, *zeros = arrays
    assert data is not None and scale is not None
    zero = zeros[0] if zeros and zeros[0] is not None else np.zeros(scale.shape)
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    block = next((a.i for a in node.attribute if a.name == "block_size"), 0)
    if block:
        return _per_element(scale, data, axis, block), _per_element(zero, data, axis, block)
    shape = [1] * data.ndim
    if scale.size > 1 or (scale.ndim and data.ndim):
        shape[axis if scale.size > 1 else 0] = scale.size
    return scale.astype("float64").reshape(shape), zero.astype("float64").reshape(shape)


def _per_element(parameter: np.ndarray, data: np.ndarray, axis: int, block: int) -> np.ndarray:
    """Repeat the parameters of blocks for each element; the last block may be shorter."""
    repeated = np.repeat(parameter.astype("float64"), block, axis)
    return repeated.take(np.arange(data.shape[axis]), axis)


def _dequantized(node: onnx.NodeProto, operands: Arrays) -> np.ndarray:
    arrays = [operands[name] if name else None for name in node.input]
    scale, zero = _parameters(node, arrays)
    assert arrays[0] is not None
    return np.asarray((arrays[0].astype("float64") - zero) * scale)


def _product(node: onnx.NodeProto, arrays: list[np.ndarray | None]) -> np.ndarray:
    """A QLinearConv or QLinearMatMul before rounding."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = (
        array if array is None else array.astype("float64") for array in arrays
    )
    spread = [-1, *[1] * (x.ndim - 2)] if node.op_type == "QLinearConv" else [-1]
    if node.op_type == "QLinearMatMul":
        total = (x - x_zero) @ (w - w_zero)
    else:
        shifted = w - w_zero.reshape([-1, *[1] * (w.ndim - 1)])
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        total = onnx_oracle.convolve(x - x_zero, shifted, *bias, **attributes)
    factor = x_scale * (w_scale.reshape(spread) if w_scale.ndim else w_scale)
    return np.asarray(total * factor / y_scale + y_zero)
