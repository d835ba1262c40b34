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
"""Oracles for ONNX models: ONNX Runtime, onnx's reference, and a run in float64."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tvm_fixes.frontend.onnx.graph.liveness import names_read

from .values import FLOATS

Arrays = Mapping[str, np.ndarray]

_FLOAT_TYPES = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)

onnxruntime.set_default_logger_severity(4)


class Unsupported(Exception):
    """ONNX Runtime has no kernel, or its Python interface no dtype, for a valid model."""


def by_onnx_runtime(model: onnx.ModelProto, inputs: Arrays) -> list[np.ndarray] | None:
    """The outputs in ONNX Runtime without optimization; None if it rejects model or inputs.

    Raises
    ------
    Unsupported
        If it has no kernel, or one whose constants are rounded to float32.
    """
    if _rounds_constants(model):
        raise Unsupported
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # Otherwise, products of 8-bit integers saturate on CPUs without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if any(array.dtype.name == "bfloat16" for array in inputs.values()):
        raise Unsupported
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return [np.asarray(output) for output in session.run(None, dict(inputs))]
    except Exception as error:  # its exceptions have no common base class
        if type(error).__name__ == "NotImplemented" or "bfloat16" in str(error).lower():
            raise Unsupported from None
        return None


def by_reference(model: onnx.ModelProto, inputs: Arrays) -> list[np.ndarray] | None:
    """The outputs of onnx's reference implementation; None if it rejects model or inputs."""
    try:
        with np.errstate(all="ignore"):
            outputs = ReferenceEvaluator(model).run(None, dict(inputs))
        return [np.asarray(output) for output in outputs]
    except Exception:  # its NumPy code may raise anything
        return None


def outputs(model: onnx.ModelProto, inputs: Arrays) -> list[np.ndarray] | None:
    """The outputs in ONNX Runtime, or node by node if it lacks a kernel; None if one rejects them.

    onnx's reference has bugs, so it runs only single nodes.
    """
    try:
        return by_onnx_runtime(model, inputs)
    except Unsupported:
        return by_nodes(model, inputs)


def by_nodes(
    model: onnx.ModelProto,
    inputs: Arrays,
    *,
    reference_first: bool = False,
    rounded: Callable[[np.ndarray], np.ndarray] = np.asarray,
    may_narrow: bool = False,
) -> list[np.ndarray] | None:
    """The outputs; the first oracle that accepts a node runs it.  None if both reject a node.

    Nodes read results after `rounded` was applied to them.  If `may_narrow`, a node in float64 that
    both reject runs in float32.
    """
    known = _given(model, inputs)
    evaluated = steps(
        model, inputs, reference_first=reference_first, rounded=rounded, may_narrow=may_narrow
    )
    for node, _, results in evaluated:
        known.update(zip(node.output, results, strict=True))
    names = [output.name for output in model.graph.output]
    return [known[name] for name in names] if all(name in known for name in names) else None


def steps(
    model: onnx.ModelProto,
    inputs: Arrays,
    *,
    reference_first: bool = False,
    rounded: Callable[[np.ndarray], np.ndarray] = np.asarray,
    may_narrow: bool = False,
) -> Iterator[tuple[onnx.NodeProto, Arrays, list[np.ndarray]]]:
    """Yield nodes with operands and results, up to the first node that both oracles reject."""
    known = _given(model, inputs)
    opset = model.opset_import[0].version
    for node in model.graph.node:
        operands = {name: known[name] for name in sorted(names_read(node) & known.keys())}
        if node.op_type in _CENTERED:
            data = node.input[0]
            operands[data] = _with_rounded_sums(operands[data], rounded)
        results = None
        if reference_first:
            results = by_reference(_node_model(node, operands, opset), operands)
        if results is None:
            results = evaluate(node, operands, opset)
        if results is None and may_narrow:
            results = _in_float32(node, operands, opset)
        if results is None:
            return
        results = [rounded(result) for result in results]
        yield node, operands, results
        known.update(zip(node.output, results, strict=True))


# These subtract a mean; its error scales with the largest element, not with the difference.
_CENTERED = ("GroupNormalization", "InstanceNormalization", "LayerNormalization")


def _with_rounded_sums(data: np.ndarray, rounded: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """`data`, with each element moved by the rounding error of its sample's largest element."""
    if data.dtype != np.float64 or not data.size:
        return data
    axes = tuple(range(min(1, data.ndim - 1), data.ndim))
    magnitude = np.where(np.isfinite(data), np.abs(data), 0)
    # `rounded` does not change integers.
    largest = np.broadcast_to(magnitude.max(axes, keepdims=True) + 1 / 3, data.shape)
    return np.asarray(data + (rounded(largest) - largest))


def _given(model: onnx.ModelProto, inputs: Arrays) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer} | dict(inputs)


def evaluate(node: onnx.NodeProto, operands: Arrays, opset: int) -> list[np.ndarray] | None:
    """The results of one node; None if both oracles reject it.

    16-bit floats without an ONNX Runtime kernel are computed in float32 and rounded once.  A Pad of
    16-bit integers runs in int32: onnx's reference would reflect beyond the data.
    """
    model = _node_model(node, operands, opset)
    try:
        return by_onnx_runtime(model, operands)
    except Unsupported:
        pass
    wider = _WIDER | (_WIDER_PADS if node.op_type == "Pad" else {})
    narrow = {a.dtype for a in operands.values() if a.dtype.name in wider}
    if len(narrow) == 1 and node.op_type not in _NAMES_A_DTYPE:
        [dtype] = narrow
        wide_dtype = wider[dtype.name]
        widened = {
            name: a.astype(wide_dtype) if a.dtype == dtype else a for name, a in operands.items()
        }
        with suppress(Unsupported):
            outputs = by_onnx_runtime(_node_model(node, widened, opset), widened)
            if outputs is None:
                return None
            with np.errstate(over="ignore", invalid="ignore"):
                return [a.astype(dtype) if a.dtype == wide_dtype else a for a in outputs]
    if node.op_type in _CORRECTED:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        arrays = [operands[name] for name in node.input if name]
        try:
            return [_CORRECTED[node.op_type](*arrays, **attributes)]
        except (RuntimeError, ValueError):
            # PyTorch rejects windows larger than the data, NumPy operands that do not broadcast.
            return None
    if node.op_type in _CHANNELWISE:
        data, *parameters = (operands[name] for name in node.input if name)
        if any(data.shape[1:2] != parameter.shape for parameter in parameters):
            return None
    return by_reference(model, operands)


def _in_float32(node: onnx.NodeProto, operands: Arrays, opset: int) -> list[np.ndarray] | None:
    narrow = {
        name: a.astype("float32") if a.dtype == np.float64 else a for name, a in operands.items()
    }
    found = evaluate(node, narrow, opset)
    return found and [a.astype("float64") if a.dtype == np.float32 else a for a in found]


# onnx's reference broadcasts operands that must have one element per channel.
_CHANNELWISE = ("BatchNormalization", "InstanceNormalization")


def _rounds_constants(model: onnx.ModelProto) -> bool:
    """Whether a float64 node is expanded as onnx defines it, with float32 constants."""
    values = (value.type.tensor_type.elem_type for value in model.graph.input)
    types = {*values, *(tensor.data_type for tensor in model.graph.initializer)}
    operators = {node.op_type for node in model.graph.node}
    return TensorProto.DOUBLE in types and bool(operators & {"Gelu", "HardSwish"})


def _erf(data: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=["float64"])(data).astype(data.dtype)


def _gelu(data: np.ndarray, approximate: bytes = b"none") -> np.ndarray:
    if approximate == b"tanh":
        return data / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (data + 0.044715 * data**3)))
    return data / 2 * (1 + _erf(data / math.sqrt(2)))


def _lrn(
    data: np.ndarray, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> np.ndarray:
    if not data.size:
        return data
    before, after = (size - 1) // 2, size // 2
    squares = [
        np.square(data[:, max(c - before, 0) : c + after + 1]).sum(1) for c in range(data.shape[1])
    ]
    return np.asarray(data / (bias + alpha / size * np.stack(squares, 1)) ** beta)


def convolve(
    data: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    transposed: bool = False,
    auto_pad: bytes = b"NOTSET",
    dilations: Sequence[int] = (),
    group: int = 1,
    kernel_shape: Sequence[int] = (),
    output_padding: Sequence[int] = (),
    pads: Sequence[int] = (),
    strides: Sequence[int] = (),
) -> np.ndarray:
    """A convolution by PyTorch.  PyTorch pads both ends equally, so pad the data here."""
    rank = data.ndim - 2
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    more = output_padding or [0] * rank
    begins, ends = list(pads or [0] * 2 * rank)[:rank], list(pads or [0] * 2 * rank)[rank:]
    for axis in range(rank) if auto_pad.startswith(b"SAME") else ():
        extent, stride = data.shape[2 + axis], strides[axis]
        window = (weight.shape[2 + axis] - 1) * dilations[axis] + 1
        if transposed:
            total = (extent - 1) * stride + more[axis] + window - extent * stride
        else:
            total = (-(-extent // stride) - 1) * stride + window - extent
        half = max(total, 0) // 2
        upper = auto_pad == b"SAME_UPPER"
        begins[axis], ends[axis] = (half, max(total, 0) - half)[:: 1 if upper else -1]
    x, w = torch.from_numpy(data.copy()), torch.from_numpy(weight.copy())
    if transposed:
        function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        y = function(x, w, stride=strides, groups=group, dilation=dilations)
        firsts = [-begin for begin in begins]
        lasts = [extra - end for extra, end in zip(more, ends, strict=True)]
        y = F.pad(y, _pairs(firsts, lasts))
    else:
        function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
        y = function(
            F.pad(x, _pairs(begins, ends)), w, stride=strides, groups=group, dilation=dilations
        )
    y = y.numpy()
    return y if bias is None else np.asarray(y + bias.reshape(-1, *[1] * rank))


def _pairs(begins: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The padding of the axes in PyTorch's order: the last axis first."""
    return [number for pair in reversed([*zip(begins, ends, strict=True)]) for number in pair]


# onnx's reference reduces the first of these over two axes for any rank, computes Erf in float32,
# LRN without the last channel of a window, PRelu of 0 as a product, some convolutions wrongly, and
# the others with constants rounded to float32.
_CORRECTED: dict[str, Callable[..., np.ndarray]] = {
    "GlobalMaxPool": lambda data: data.max(tuple(range(2, data.ndim)), keepdims=True),
    "Conv": convolve,
    "ConvTranspose": functools.partial(convolve, transposed=True),
    "Erf": _erf,
    "Gelu": _gelu,
    "HardSwish": lambda data: data * np.clip(data / 6 + 0.5, 0, 1),
    "LRN": _lrn,
    "PRelu": lambda data, slope: np.where(data < 0, data * slope, data),
}


_WIDER = {"float16": "float32", "bfloat16": "float32"}
_WIDER_PADS = {"int16": "int32", "uint16": "int32"}
_NAMES_A_DTYPE = ("Cast", "CastLike", "EyeLike", "QuantizeLinear", "DequantizeLinear")


def _node_model(node: onnx.NodeProto, operands: Arrays, opset: int) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node],
        "node",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in operands.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in node.output],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 10
    return model


def in_float64(
    model: onnx.ModelProto, inputs: Arrays, precision: str, rng: np.random.Generator
) -> list[Sequence[np.ndarray]]:
    """The outputs of `model` in float64: unchanged, then with different rounding.

    Parameters
    ----------
    precision : str
        From the second run on, inputs, initializers and results move by a rounding of this dtype.

    Raises
    ------
    AssertionError
        If neither oracle runs it.
    """
    in_float64 = _widened(model)
    exact = {name: _wide(array) for name, array in inputs.items()}
    weights = [numpy_helper.to_array(tensor) for tensor in in_float64.graph.initializer]
    runs = []
    for is_moved in (False, True, True, True):
        arrays = {name: moved(a, precision, rng) if is_moved else a for name, a in exact.items()}
        if is_moved:
            for tensor, weight in zip(in_float64.graph.initializer, weights, strict=True):
                tensor.CopyFrom(numpy_helper.from_array(moved(weight, precision, rng), tensor.name))
        found = None if is_moved else outputs(in_float64, arrays)
        if found is None:
            rounded = (lambda a: moved(a, precision, rng)) if is_moved else np.asarray
            found = by_nodes(in_float64, arrays, rounded=rounded, may_narrow=True)
        if found is None:
            found = runs[0] if runs else outputs(model, inputs)
        assert found is not None, "no oracle runs the model in float64"
        runs.append(found)
    return runs


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype("float64") if array.dtype.name in FLOATS else array


def moved(array: np.ndarray, precision: str, rng: np.random.Generator) -> np.ndarray:
    """The array with its elements moved by a rounding to `precision`."""
    if array.dtype != np.float64:
        return array
    unit = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11}.get(precision, 2.0**-8)
    near = array * (1 + unit * rng.uniform(-1, 1, array.shape))
    with np.errstate(invalid="ignore"):
        return np.where(array == np.rint(array), array, near)  # no rounding makes an integer


def _widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` with float64 in place of every other float dtype."""
    in_float64 = onnx.ModelProto()
    in_float64.CopyFrom(model)
    _widen_graph(in_float64.graph, model.opset_import[0].version)
    return in_float64


def _widen_graph(graph: onnx.GraphProto, opset: int) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.tensor_type
        if kind.elem_type in _FLOAT_TYPES:
            kind.elem_type = TensorProto.DOUBLE
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        if "stash_type" in onnx.defs.get_schema(node.op_type, opset, node.domain).attributes:
            # By default, a norm computes in float32.
            node.attribute.append(helper.make_attribute("stash_type", TensorProto.DOUBLE))
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _widen_graph(attribute.g, opset)
            elif attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.name in ("to", "dtype") and attribute.i in _FLOAT_TYPES:
                attribute.i = TensorProto.DOUBLE


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _FLOAT_TYPES:
        tensor.CopyFrom(numpy_helper.from_array(_wide(numpy_helper.to_array(tensor)), tensor.name))
