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
"""Reductions.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    A reduction of no elements; ReduceMax and ReduceMin of booleans; axes that are computed.
Symptom
    Whatever was in the memory, silently; an error when the program is built; an AssertionError
    that names no node.
Mechanism
    The lowered loop sets its result where it begins, and a loop over no elements does not begin;
    booleans have no least and largest value in TIR.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and the fix id ``onnx-reductions``.
"""

import numpy as np
from tvm import relax

from ... import switches
from ..dtypes import dtype_of
from .node import Converter, Node, extents_of

__all__ = ["REDUCED", "REDUCTIONS", "convert_reduction"]

REDUCTIONS = "onnx-reductions"

REDUCED = {
    "ReduceL1": 0,
    "ReduceL2": 0,
    "ReduceLogSum": -np.inf,
    "ReduceLogSumExp": -np.inf,
    "ReduceMax": -np.inf,
    "ReduceMean": np.nan,
    "ReduceMin": np.inf,
    "ReduceProd": 1,
    "ReduceSum": 0,
    "ReduceSumSquare": 0,
}
"""The operators, and their results over no elements; infinite is the end of an integer's range."""


def convert_reduction(node: Node, convert: Converter) -> relax.Expr:
    """Convert one of :data:`REDUCED`.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If axes can't be known, or are none of the data's.
    """
    data = node.operands[0]
    axes = node.attributes.get("axes")
    if node.operand(1) is not None:
        constant = node.constant(1)
        if constant is None:
            raise node.invalid("operand axes", node.operand(1), "expected a constant")
        axes = constant.ravel().tolist()
    if not axes and node.attributes.get("noop_with_empty_axes", 0):
        return convert(node)
    dtype = dtype_of(data)
    extents = extents_of(data)
    if extents is not None:
        rank = len(extents)
        axes = axes or range(rank)
        if not all(-rank <= axis < rank for axis in axes):
            raise node.invalid("axes", list(axes), f"expected axes of X, of rank {rank}")
        reduced = {axis % rank for axis in axes}
        keeps = node.attributes.get("keepdims", 1)
        if any(extents[axis] == 0 for axis in reduced if isinstance(extents[axis], int)):
            switches.note(REDUCTIONS)
            shape = [
                1 if axis in reduced else extent
                for axis, extent in enumerate(extents)
                if keeps or axis not in reduced
            ]
            # TVM does not lower a full of infinities.
            return relax.op.broadcast_to(relax.const(_of_none(node, dtype), dtype), shape)
    if dtype == "bool":
        switches.note(REDUCTIONS)
        wide = node.emit(relax.op.astype(data, "uint8"))
        return relax.op.astype(convert(node.with_operands(wide, *node.operands[1:])), "bool")
    return convert(node)


def _of_none(node: Node, dtype: str) -> float | int:
    value = REDUCED[node.operator]
    if dtype.startswith(("float", "bfloat")):
        return value
    if dtype == "bool":
        return bool(value > 0)
    if np.isnan(value):
        raise node.invalid("dtype of X", dtype, "expected a float: there is no mean of no elements")
    if np.isinf(value):
        limits = np.iinfo(dtype)
        return int(limits.max if value > 0 else limits.min)
    return value
