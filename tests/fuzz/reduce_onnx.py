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
"""Reduces an ONNX model with a fault to a small model with the same fault."""

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import numpy_helper, printer

from tvm_fixes.search.literals import MAX_LITERAL, literal
from tvm_fixes.search.onnx_parts import OnnxCandidate, OnnxParts
from tvm_fixes.search.parts import smallest

from . import onnx_oracle

Arrays = Mapping[str, np.ndarray]
Fails = Callable[[onnx.ModelProto, Arrays], bool]


def reduce(model: onnx.ModelProto, inputs: Arrays, fails: Fails) -> tuple[onnx.ModelProto, Arrays]:
    """A part of `model` that still fails, with its inputs.

    Parameters
    ----------
    model : onnx.ModelProto
    inputs : mapping of str to numpy.ndarray
    fails : callable
        Whether a model with its inputs has the fault.

    Notes
    -----
    The values at a cut are the oracle's.
    """
    parts = OnnxParts(model, inputs, onnx_oracle.outputs)
    found = smallest(parts, lambda one: fails(one.model(), one.inputs))
    return (found.proto, found.inputs) if isinstance(found, OnnxCandidate) else (model, inputs)


def as_test(model: onnx.ModelProto, inputs: Arrays, message: str) -> str:
    """The source of a test that fails like `model`."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    constants = {t.name: numpy_helper.to_array(t) for t in bare.graph.initializer}
    # The text form of initializers cannot express special values; the test adds initializers.
    del bare.graph.initializer[:]
    lines = [f"# {line}" for line in message.splitlines()[:3]]
    lines += ["model = onnx.parser.parse_model(", f'    """{printer.to_text(bare)}"""', ")"]
    for name, array in constants.items():
        lines.append(f"add_initializer(model, {name!r}, {_short(array)})")
    pairs = ", ".join(f"{name!r}: {_short(array)}" for name, array in inputs.items())
    lines.append(f"assert check(model, [{{{pairs}}}], TARGET) is None")
    return "\n".join(lines)


def _short(array: np.ndarray) -> str:
    if array.size <= MAX_LITERAL:
        return literal(array)
    return f"random({array.dtype.name!r}, {array.shape})  # such as {array.ravel()[:4]}"
