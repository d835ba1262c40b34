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
"""Quantized operators of the domain com.microsoft, computed in float32.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    QLinearAdd, QLinearAveragePool, QLinearConcat, QLinearGlobalAveragePool, QLinearLeakyRelu,
    QLinearMul, QLinearReduceMean, QLinearSigmoid, QLinearSoftmax and QLinearWhere, which ONNX
    Runtime's quantizer and optimizer write.
Symptom
    ``OpNotImplemented``.
Mechanism
    TVM has no converter for them.
How to remove
    Together with the fix ``onnx-quantized``.

Each operator dequantizes its operands, computes, and quantizes the result.  ONNX Runtime combines
the scales of QLinearAdd first, so that sums halfway between two integers may differ by one step.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from tvm import relax

from ...fixes.onnx_importer import QUANTIZED
from ...support import switches
from ..dtypes import dtype_of
from .activations import of_last_axes
from .broadcast import convert_broadcasting
from .node import Converter, Node
from .pooling import convert_pool
from .quantization import check_dtype, check_scalars, dequantize, named_operands, quantize
from .variadic import convert_concat

__all__ = ["QUANTIZED_STEPS", "convert_qlinear_concat", "convert_quantized_step"]

Compute: TypeAlias = Callable[[Node, Converter], relax.Expr]
"""Converts a node with float32 operands."""


def _to_channels_first(node: Node) -> tuple[Node, int]:
    """The node with its data in channels-first order if its channels are last; the data's rank."""
    data = node.operands[0]
    rank = data.ty.ndim
    if node.attributes.get("channels_last", 0):
        data = node.emit(relax.op.permute_dims(data, [0, rank - 1, *range(1, rank - 1)]))
    return node.with_operands(data), rank


def _average_pool(node: Node, convert: Converter) -> relax.Expr:
    moved, rank = _to_channels_first(node)
    pool = replace(moved, operator="AveragePool").with_attributes(removed=("channels_last",))
    out = convert_pool(pool, convert)
    if node.attributes.get("channels_last", 0):
        out = relax.op.permute_dims(node.emit(out), [0, *range(2, rank), 1])
    return out


def _global_average_pool(node: Node, convert: Converter) -> relax.Expr:
    rank = node.operands[0].ty.ndim
    first = 1 if node.attributes.get("channels_last", 0) else 2
    return relax.op.mean(node.operands[0], list(range(first, first + rank - 2)), keepdims=True)


def _leaky_relu(node: Node, convert: Converter) -> relax.Expr:
    return relax.op.nn.leakyrelu(node.operands[0], node.attributes.get("alpha", 0.01))


def _reduce_mean(node: Node, convert: Converter) -> relax.Expr:
    axes = list(node.attributes.get("axes", ())) or None
    return relax.op.mean(node.operands[0], axes, keepdims=bool(node.attributes.get("keepdims", 1)))


def _sigmoid(node: Node, convert: Converter) -> relax.Expr:
    return relax.op.sigmoid(node.operands[0])


def _softmax(node: Node, convert: Converter) -> relax.Expr:
    """A Softmax of the opset that the attribute names; its axis has the default of that opset."""
    opset = node.attributes.get("opset", 13)
    axis = node.attributes.get("axis", -1 if opset >= 13 else 1)
    data = node.operands[0]
    rank = data.ty.ndim
    if not -rank <= axis < rank:
        raise node.invalid("attribute axis", axis, f"expected {-rank} to {rank - 1}")
    if opset >= 13:
        return relax.op.nn.softmax(data, axis)
    extents = node.known.extents(data)
    if extents is None:
        raise node.invalid("shape of X", data.ty, "expected a known shape")
    # Before opset 13, a Softmax normalizes over all axes from `axis` on.
    return of_last_axes(node, data, axis % rank, relax.op.nn.softmax)


def _broadcasting(operator: str) -> Compute:
    return lambda node, convert: convert_broadcasting(replace(node, operator=operator), convert)


_ONE = ("X", "X_scale", "X_zero_point", "Y_scale", "Y_zero_point")
_TWO = ("A", "A_scale", "A_zero_point", "B", "B_scale", "B_zero_point", "C_scale", "C_zero_point")
_CHOICE = ("condition", "X", "X_scale", "X_zero_point", "Y", "Y_scale", "Y_zero_point")

_STEPS: dict[str, tuple[tuple[str, ...], Compute]] = {
    "QLinearAdd": (_TWO, _broadcasting("Add")),
    "QLinearAveragePool": (_ONE, _average_pool),
    "QLinearGlobalAveragePool": (_ONE, _global_average_pool),
    "QLinearLeakyRelu": (_ONE, _leaky_relu),
    "QLinearMul": (_TWO, _broadcasting("Mul")),
    "QLinearReduceMean": (_ONE, _reduce_mean),
    "QLinearSigmoid": (_ONE, _sigmoid),
    "QLinearSoftmax": (_ONE, _softmax),
    "QLinearWhere": ((*_CHOICE, "Z_scale", "Z_zero_point"), _broadcasting("Where")),
}
"""For each operator, the names of its operands, and its computation."""

QUANTIZED_STEPS = tuple(f"com.microsoft.{operator}" for operator in _STEPS)
"""The operators that :func:`convert_quantized_step` converts."""


def convert_quantized_step(node: Node, convert: Converter) -> relax.Expr:
    """Convert one of :data:`QUANTIZED_STEPS`.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an operand is missing, differs in dtype from its zero point, or is quantized per axis.
    """
    switches.note(QUANTIZED)
    names, compute = _STEPS[node.operator.rpartition(".")[2]]
    required = [name for name in names if not name.endswith("_zero_point")]
    given = named_operands(node, " ".join(names), required)
    quantized = [name for name in required if f"{name}_scale" in names]
    check_dtype(node, quantized[0], given[quantized[0]], "int8", "uint8")
    dtype = dtype_of(given[quantized[0]])
    operands = [] if quantized[0] == names[0] else [given[names[0]]]
    operands += [_dequantized(node, given, name, dtype) for name in quantized]
    out = node.emit(node.builder.normalize(compute(node.with_operands(*operands), convert)))
    result = names[-1].removesuffix("_zero_point")
    return _quantized(node, given, out, result, dtype)


def convert_qlinear_concat(node: Node, convert: Converter) -> relax.Expr:
    """Convert a QLinearConcat, whose operands follow the parameters of its result.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an operand is missing, differs in dtype from its zero point, or is quantized per axis.
    """
    switches.note(QUANTIZED)
    count = (len(node.operands) - 2) // 3
    if count < 1 or len(node.operands) != 3 * count + 2:
        reason = "expected 2, and 3 for each tensor"
        raise node.invalid("number of operands", len(node.operands), reason)
    names = ["Y_scale", "Y_zero_point"]
    for index in range(count):
        names += [f"input_{index}", f"input_{index}_scale", f"input_{index}_zero_point"]
    given = named_operands(node, " ".join(names), names)
    check_dtype(node, "input_0", given["input_0"], "int8", "uint8")
    dtype = dtype_of(given["input_0"])
    operands = [_dequantized(node, given, f"input_{index}", dtype) for index in range(count)]
    concat = replace(node, operator="Concat", operands=tuple(operands))
    out = node.emit(node.builder.normalize(convert_concat(concat, convert)))
    return _quantized(node, given, out, "Y", dtype)


def _dequantized(node: Node, given: dict[str, Any], name: str, dtype: str) -> relax.Expr:
    """The operand `name` in float32."""
    value, scale, zero = (given[name + suffix] for suffix in ("", "_scale", "_zero_point"))
    check_scalars(node, given, f"{name}_scale", f"{name}_zero_point")
    check_dtype(node, name, value, dtype)
    check_dtype(node, f"{name}_zero_point", zero, dtype)
    return dequantize(node, value, scale, zero)


def _quantized(
    node: Node, given: dict[str, Any], value: relax.Expr, name: str, dtype: str
) -> relax.Expr:
    """`value` with the parameters of the result `name`."""
    check_scalars(node, given, f"{name}_scale", f"{name}_zero_point")
    check_dtype(node, f"{name}_zero_point", given[f"{name}_zero_point"], dtype)
    return quantize(node, value, given[f"{name}_scale"], given[f"{name}_zero_point"], dtype)
