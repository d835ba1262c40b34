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
"""Evaluate ONNX operators on values that are known at import time; see ``known.py``."""

from collections.abc import Sequence
from typing import Any

from tvm import relax

from . import evaluate_elements, evaluate_shapes
from .known import KnownValues, Value
from .operation import Operation, UnknownError

__all__ = ["evaluate"]

_EVALUATORS = evaluate_elements.EVALUATORS | evaluate_shapes.EVALUATORS


def evaluate(
    operator: str,
    operands: Sequence[Value | relax.Expr | None],
    attributes: dict[str, Any],
    opset: int,
    known: KnownValues,
    outputs: int,
) -> list[Value] | None:
    """Evaluate a node; return the values of its outputs.

    Parameters
    ----------
    operator : str
        The operator of the node.
    operands : sequence
        Known values, tensors, and None for operands that are omitted.
    attributes : dict
        The attributes by name, in the form that TVM's converters get.
    opset : int
        The version of the default operator set.
    outputs : int
        The number of outputs.

    Returns
    -------
    list of Value or None
        None if an element of an output is unknown, or the node is invalid.
    """
    evaluator = _EVALUATORS.get(operator)
    if evaluator is None:
        return None
    try:
        values = evaluator(Operation(operands, attributes, opset, known, outputs))
    except (
        UnknownError,
        IndexError,
        KeyError,
        OverflowError,
        ValueError,
    ):  # the converter rejects an invalid node
        return None
    return values if isinstance(values, list) else [values]
