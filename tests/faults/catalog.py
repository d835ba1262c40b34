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
    """

    name: str
    kind: str
    file: str
    right: str
    wrong: str
    model: Callable[[Path], str]
    words: tuple[str, ...]
    commands: tuple[str, ...] = ("compare {model}", "bisect {model}")


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


def program(text: str) -> Callable[[Path], str]:
    """Return a function that writes a Python file with a function ``make`` of a PyTorch model."""

    def write(folder: Path) -> str:
        (folder / "model.py").write_text("import torch\n\n\n" + text)
        return "model:make"

    return write


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
    Fault(
        "constants merged although only their shapes are equal",
        "pass",
        "tvm_fixes/relax/transform/merge_equal_constants.py",
        """key_of(data))
        for first in self._known.setdefault(key, []):
            if have_equal_bytes(raw_bytes(tensor_of(first)), data):
                return first""",
        """0)
        for first in self._known.setdefault(key, []):
            if raw_bytes(tensor_of(first)).size == data.size:
                return first""",
        graph(
            "float[4,64] x",
            "float[4,64] y",
            "a = MatMul(x, v) b = Tanh(a) c = MatMul(b, w) y = Relu(c)",
            v=weights(64, 64),
            w=weights(64, 64)[::-1].copy(),
        ),
        ("MatMul", "MergeEqualConstants"),
    ),
    Fault(
        "a row that is updated although it is read again",
        "pass",
        "tvm_fixes/relax/transform/update_in_place.py",
        "while reads[var] == 1 and var in readers:",
        "while reads[var] >= 1 and var in readers:",
        program("""class Cache(torch.nn.Module):
    def forward(self, cache, at, row):
        old = torch.tanh(cache)
        cache.index_copy_(0, at, row)
        return old.sum(0) + cache.relu().sum(0)


def make():
    return Cache().eval(), (torch.randn(8, 16), torch.tensor([3]), torch.randn(1, 16))
"""),
        ("update-in-place",),
    ),
    Fault(
        "a bilinear resize by the ratio of the last elements",
        "kernel",
        "tvm_fixes/relax/legalize/resize.py",
        "centered = (at + half) * scale - half\n",
        "centered = (at + half) * last / steps - half\n",
        program("""class Enlarge(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.interpolate(x.relu(), (12, 12), mode="bilinear").tanh()


def make():
    return Enlarge().eval(), (torch.randn(1, 2, 8, 8),)
"""),
        ("upsample_bilinear2d", "resize"),
    ),
    Fault(
        "an adaptive pool whose windows end too early",
        "kernel",
        "tvm_fixes/relax/legalize/average_pool.py",
        "tirx.ceildiv((index + 1) * data.shape[axis], count) - begin",
        "tirx.floordiv((index + 1) * data.shape[axis], count) - begin",
        program("""class Pool(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.adaptive_avg_pool2d(x.relu(), (3, 5)).tanh()


def make():
    return Pool().eval(), (torch.randn(1, 2, 8, 8),)
"""),
        ("adaptive_avg_pool2d", "average-pool"),
    ),
    Fault(
        "the last columns of a tile, counted from a tile too far",
        "kernel",
        "tvm_fixes/tirx/last_tile.py",
        "last = tirx.IfThenElse(rest > columns, with_new_variables(last), small)",
        "last = tirx.IfThenElse(rest >= size, with_new_variables(last), small)",
        graph(
            "float[1,32,9,13] x",
            "float[1,32,9,13] y",
            "a = Relu(x) c = Conv<pads = [1, 1, 1, 1]>(a, w) y = Tanh(c)",
            w=weights(32, 32, 3, 3),
        ),
        ("Conv", "conv"),
    ),
    Fault(
        "updates of one element by several threads",
        "threads",
        "tvm_fixes/relax/legalize/scatter.py",
        "return _for_each(lines, lambda line: _loop(steps, lambda step: update(line, step)[1]))",
        "return _for_each(steps, lambda step: _loop(lines, lambda line: update(line, step)[1]))",
        graph(
            "float[16,4] x, int64[65536,4] at, float[65536,4] v",
            "float[16,4] y",
            """zero = Constant<value_int = 0>() sixteen = Constant<value_int = 16>()
               i = Mod(at, sixteen) j = Abs(i) s = ScatterElements<axis = 0, reduction = "add">(x, j, v)
               y = Identity(s)""",
        ),
        ("ScatterElements", "differ from run to run"),
        ("compare {model}", "compare {model} --repeat 5"),
    ),
    Fault(
        "a norm of order 3 whose root is of order 4",
        "importer",
        "tvm_fixes/frontend/torch/ops/reductions.py",
        "relax.const(1 / order, inner)",
        "relax.const(1 / (order + 1), inner)",
        program("""class Norm(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.vector_norm(x.tanh(), 3, dim=1).exp()


def make():
    return Norm().eval(), (torch.randn(4, 16),)
"""),
        ("linalg_vector_norm", "torch-reductions"),
    ),
    Fault(
        "the approximation of a GELU where the exact one is meant",
        "importer",
        "tvm_fixes/frontend/torch/ops/activations.py",
        'relax.op.nn.gelu_tanh if approximate == "tanh" else relax.op.nn.gelu',
        "relax.op.nn.gelu_tanh if approximate else relax.op.nn.gelu",
        program("""def make():
    torch.manual_seed(0)
    layers = torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)
    return torch.nn.Sequential(*layers).eval(), (torch.randn(4, 16),)
"""),
        ("gelu", "torch-activations"),
    ),
    Fault(
        "the slopes of a PReLU along the last axis",
        "importer",
        "tvm_fixes/frontend/torch/ops/activations.py",
        "axis = min(x.ty.ndim - 1, 1)",
        "axis = x.ty.ndim - 1",
        program("""def make():
    torch.manual_seed(0)
    prelu = torch.nn.PReLU(8)
    torch.nn.init.uniform_(prelu.weight)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 1), prelu).eval(), (torch.randn(1, 3, 8, 8),)
"""),
        ("prelu", "torch-prelu"),
    ),
    Fault(
        "a mean that counts the element that it starts from",
        "importer",
        "tvm_fixes/frontend/torch/ops/scattering.py",
        "relax.const(1 if include_self else 0, dtype)",
        "relax.const(1, dtype)",
        program("""class Mean(torch.nn.Module):
    def forward(self, x, at, values):
        mean = torch.scatter_reduce(x, 0, at, values.relu(), "mean", include_self=False)
        return mean.tanh()


def make():
    at = torch.tensor([[0, 1, 2, 2], [0, 0, 1, 2]])
    return Mean().eval(), (torch.randn(3, 4), at, torch.randn(2, 4))
"""),
        ("scatter_reduce", "torch-indexing"),
    ),
    Fault(
        "a Pad that reflects its first element, too",
        "importer",
        "tvm_fixes/frontend/onnx/ops/pad.py",
        "        first * 2 - position,",
        "        first * 2 - position - 1,",
        graph(
            "float[4,8] x, int64[4] p",
            "float[4,n] y",
            'a = Tanh(x) r = Pad<mode = "reflect">(a, p) y = Relu(r)',
        ),
        ("Pad", "onnx-pad"),
    ),
    Fault(
        "a OneHot that counts negative indices from the first element",
        "importer",
        "tvm_fixes/frontend/onnx/ops/topk_onehot_cumsum.py",
        "index + shape[axis].astype(dtype) == place",
        "index + shape[axis].astype(dtype) - 1 == place",
        graph(
            "int64[6] x",
            "float[6,5] y",
            """three = Constant<value_int = 3>() m = Mod(x, three) two = Constant<value_int = 2>()
               i = Sub(m, two) h = OneHot(i, d, v) y = Abs(h)""",
            d=np.array(5),
            v=np.array([0, 1], "float32"),
        ),
        ("OneHot", "onnx-parameters"),
    ),
    Fault(
        "the largest index of a uint64 TopK, read as signed",
        "dtypes",
        "tvm_fixes/frontend/onnx/ops/topk_onehot_cumsum.py",
        'bit = tirx.const(1 << 63, "uint64")',
        'bit = tirx.const(0, "uint64")',
        graph(
            "uint64[4,9] x",
            "uint64[4,3] y, int64[4,3] at",
            "z = Identity(x) y, at = TopK(z, k)",
            k=np.array([3]),
        ),
        ("TopK", "onnx-parameters"),
    ),
    Fault(
        "results of which a later run overwrites the memory",
        "runtime",
        "tvm_fixes/runtime/input_buffers.py",
        "return [array.copy() for array in self._arrays]",
        "return list(self._arrays)",
        graph("float[2,4] x", "float[2,4] y", "a = Tanh(x) y = Relu(a)"),
        ("memory",),
        ("compare {model}", "compare {model} --repeat 5"),
    ),
    Fault(
        "a reference that reads inputs in half precision",
        "reference",
        "tvm_fixes/observe/reference_process.py",
        "run = partial(reference, list(inputs))",
        "run = partial(reference, [value.astype('float16').astype(value.dtype) for value in inputs])",
        graph("float[2,4] x", "float[2,4] y", "a = Tanh(x) y = Relu(a)"),
        ("the float64 run agrees with ours",),
    ),
    Fault(
        "a reference whose second output overwrites the first",
        "reference",
        "tvm_fixes/observe/reference_process.py",
        "begin = -(-end // _ALIGNMENT) * _ALIGNMENT",
        "begin = end // _ALIGNMENT * _ALIGNMENT",
        graph("float[2,9] x", "float[2,9] y, float[2,9] z", "a = Tanh(x) y = Relu(a) z = Abs(a)"),
        ("the float64 run agrees with ours",),
    ),
)
