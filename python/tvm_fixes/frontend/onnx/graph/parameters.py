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
"""Initializers that are inputs of the function, with ``keep_params_in_input=True``.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    A file of IR version 3, whose initializers are also inputs; an initializer as the shape of an
    Expand; the initializers ``w`` and ``onnx::w``; an initializer ``a_b`` beside an input ``a.b``.
Symptom
    A function with two parameters of one name, or without a parameter; a result of a wrong shape;
    an input whose value is ignored, silently.
Mechanism
    TVM's importer lists the initializers after all inputs of the graph, and looks their values up
    by the name of the variable.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its tests
    and ``KnownValues.array``'s case of a variable.
"""

from collections.abc import Iterator, Sequence

import onnx
from tvm import relax

from ..values.known import KnownValues

__all__ = ["constant_operands", "parameter_names"]

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

_CONSTANT_OPERANDS = {
    "AffineGrid": {1},
    "BlackmanWindow": {0},
    "CenterCropPad": {1},
    "Col2Im": {1, 2},
    "ConstantOfShape": {0},
    "CumSum": {1},
    "DFT": {1, 2},
    "Dropout": {1, 2},
    "Expand": {1},
    "HammingWindow": {0},
    "HannWindow": {0},
    "MaxUnpool": {2},
    "MelWeightMatrix": {0, 1, 2, 3, 4},
    "NonMaxSuppression": {2, 3, 4},
    "OneHot": {1},
    "Pad": {1, 2, 3},
    "Range": {0, 1, 2},
    "Reshape": {1},
    "Resize": {1, 2, 3},
    "STFT": {1, 3},
    "SequenceAt": {1},
    "SequenceErase": {1},
    "SequenceInsert": {2},
    "Slice": {1, 2, 3, 4},
    "Split": {1},
    "SplitToSequence": {1},
    "Squeeze": {1},
    "Tile": {1, 2},
    "TopK": {1},
    "Trilu": {1},
    "Unsqueeze": {1},
    "Upsample": {1},
} | {f"Reduce{name}": {1} for name in _REDUCTIONS}
"""The operands that determine the shape of a result, or that act as an attribute."""


def constant_operands(
    operator: str, operands: Sequence[relax.Expr | None], known: KnownValues
) -> Iterator[relax.Expr | None]:
    """The operands of a node, with those that must be constants replaced by their values.

    The value of a parameter that determines a shape is that at import.
    """
    places = _CONSTANT_OPERANDS.get(operator, ())
    for index, operand in enumerate(operands):
        value = known.of(operand) if index in places and isinstance(operand, relax.Var) else None
        is_constant = value is not None and value.is_static
        yield relax.const(value.array(), value.dtype) if value and is_constant else operand


def parameter_names(graph: onnx.GraphProto) -> dict[str, str]:
    """The names of the parameters of the function by those of the initializers.

    PyTorch's exporter writes the prefix ``onnx::``, which is removed unless that makes two names
    equal.
    """
    names = {tensor.name: tensor.name.removeprefix("onnx::") for tensor in graph.initializer}
    others = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    taken = list(names.values())
    return {
        name: name if short != name and (short in others or taken.count(short) > 1) else short
        for name, short in names.items()
    }
