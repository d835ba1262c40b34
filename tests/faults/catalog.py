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
"""The faults that ``make check-faults`` plants."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

__all__ = ["FAULTS", "Fault"]


@dataclass(frozen=True)
class Fault:
    """A change of the package that makes a model wrong.

    Attributes
    ----------
    name : str
    kind : str
        Where the fault is: an importer, a pass, a kernel, the runtime, threads, sizes, dtypes or
        the reference.
    file : str
        The changed file, below ``python``.
    right, wrong : str
        What is changed, and into what.
    model : callable
        Writes the model into a folder, and returns its file name.
    words : tuple of str
        What the tools must print: the node, and what is at fault.
    commands : tuple of str
        The commands of docs/debugging.md, in the order in which a user would try them.
    exits_zero : bool
        Whether the commands succeed, as those that only show something do.
    """

    name: str
    kind: str
    file: str
    right: str
    wrong: str
    model: Callable[[Path], str]
    words: tuple[str, ...]
    commands: tuple[str, ...] = ("compare {model}", "bisect {model}")
    exits_zero: bool = False


def graph(inputs: str, outputs: str, nodes: str, **constants: np.ndarray) -> Callable[[Path], str]:
    """Return a function that writes a model of nodes in ONNX's text format."""
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
        model ({inputs}) => ({outputs}) {{ {nodes} }}"""

    def write(folder: Path) -> str:
        model = parser.parse_model(text)
        for name, array in constants.items():
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        onnx.save(model, folder / "model.onnx")
        return "model.onnx"

    return write


def weights(*shape: int) -> np.ndarray:
    """Random float32 weights."""
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


FAULTS = (
    Fault(
        "an epsilon that a norm adds twice",
        "kernel",
        "tvm_fixes/relax/legalize/norms.py",
        "variance + tirx.const(epsilon, mean.dtype)",
        "variance + tirx.const(epsilon + epsilon, mean.dtype)",
        graph(
            "float[4,16] x",
            "float[4,16] y",
            "t = Tanh(x) n = LayerNormalization<epsilon = 0.1>(t, s) y = Sigmoid(n)",
            s=weights(16),
        ),
        ("LayerNormalization", "norm-variance"),
    ),
    Fault(
        "a Slice whose steps start at the extent",
        "importer",
        "tvm_fixes/frontend/onnx/ops/slice.py",
        "ranges = [\n        slice_range(call.known, extents[axis], start, end, step)",
        "ranges = [\n        slice_range(call.known, extents[axis], start + (step < 0), end, step)",
        graph(
            "float[4,16] x",
            "float[4,4] y",
            "t = Tanh(x) c = Slice(t, b, e, a, m) y = Sigmoid(c)",
            b=np.array([12]),
            e=np.array([0]),
            a=np.array([1]),
            m=np.array([-3]),
        ),
        ("Slice", "onnx-slice"),
    ),
)
