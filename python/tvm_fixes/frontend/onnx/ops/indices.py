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
"""Gather, GatherElements, GatherND, Scatter and ScatterND: kernels wrap negative indices.

Trigger
    Indices that the model computes, or that are out of range; a Scatter of dynamic indices; a
    ScatterElements of opset 16 with the reduction max or min, which opset 18 adds: PyTorch writes
    it, and ONNX Runtime accepts it.
Mechanism
    The converters add the extent to negative indices, and keep indices that are still negative.
"""

from collections.abc import Callable

from tvm import ir, relax
from tvm.relax import op

from ....fixes.elements import INDEX_LEGALIZE as FIX_ID
from ....support import switches
from ..call import Call, converts
from .large_constants import taken_rows


def _reduction(call: Call) -> str:
    reduction = call.text("reduction", "none")
    return "update" if reduction == "none" else reduction


def _scatter_elements(call: Call, *operands: relax.Expr) -> relax.Expr:
    return op.scatter_elements(*operands, _axis(call), _reduction(call))


def _scatter_nd(call: Call, *operands: relax.Expr) -> relax.Expr:
    return op.scatter_nd(*operands, _reduction(call))


def _axis(call: Call) -> int:
    return int(call.attributes.get("axis", 0))


INDEXED: dict[str, Callable[..., relax.Expr]] = {
    "Gather": lambda call, data, i: op.take(data, i, _axis(call)),
    "GatherElements": lambda call, data, i: op.gather_elements(data, i, _axis(call)),
    "GatherND": lambda call, data, i: op.gather_nd(data, i, call.attributes.get("batch_dims", 0)),
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
"""For each operator, a function that builds its Relax call."""


def _check_indices(call: Call) -> None:
    """Reject constant indices beyond axes of static extent, as the verifier would.

    The extents may follow from nodes that came before, whatever the dims of an input are named.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an index is out of range.
    """
    indices, extents = call.constant(1), call.known.extents(call.operands[0])
    if indices is None or extents is None or not indices.size:
        return
    first = call.attributes.get("batch_dims", 0) if call.operator == "GatherND" else 0
    if call.operator.endswith("ND"):
        columns = [indices[..., column] for column in range(indices.shape[-1])]
        of_axes = list(zip(columns, extents[first:], strict=False))
    else:
        of_axes = [(indices, extents[_axis(call)])] if extents else []
    for column, extent in of_axes:
        low, high = int(column.min()), int(column.max())
        if isinstance(extent, int) and not -extent <= low <= high < extent:
            reason = f"expected {-extent} to {extent - 1} for an axis of extent {extent}"
            raise call.invalid("indices", f"{low} to {high}", reason)


@converts(*INDEXED, fix=FIX_ID)
def convert_indexed(call: Call) -> relax.Expr:
    """Convert an operator to a Relax call; let TVM convert constants and shapes.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If a constant index is out of range.
    """
    operands = list(call.operands)
    are_tensors = all(isinstance(getattr(e, "ty", None), relax.TensorType) for e in operands)
    are_constants = all(isinstance(e, ir.GenericConst) for e in operands)
    if not are_tensors or (are_constants and call.operator != "ScatterElements"):
        return call.proceed()
    reductions = ("none", "add", "mul", "min", "max", b"none", b"add", b"mul", b"min", b"max")
    if call.attributes.get("reduction", "none") not in reductions:
        return call.proceed()
    _check_indices(call)
    switches.note(FIX_ID)
    if call.operator == "Gather" and _axis(call) == 0:
        rows = taken_rows(call, *operands)
        if rows is not None:
            return rows
    return INDEXED[call.operator](call, *operands)
