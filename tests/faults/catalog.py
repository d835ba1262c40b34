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
        Where the fault is: an importer, a pass, a kernel, the runtime, threads, sizes, dtypes,
        control flow, complex numbers or the reference.
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


def graph(
    inputs: str, outputs: str, nodes: str, *, opset: int = 18, **constants: np.ndarray
) -> Callable[[Path], str]:
    """Return a function that writes a model of nodes in ONNX's text format."""
    text = f"""<ir_version: 9, opset_import: ["" : {opset}]>
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


def module(parameters: str, statements: str) -> Callable[[Path], str]:
    """Return a function that writes a Relax module in TVMScript, whose result is ``y``."""
    text = f"""from tvm.script import ir as I
from tvm.script import relax as R


@I.ir_module
class Module:
    @R.function
    def main({parameters}):
        with R.dataflow():
            {statements}
            R.output(y)
        return y
"""

    def write(folder: Path) -> str:
        (folder / "module.py").write_text(text)
        return "module.py"

    return write


def relay(parameters: str, expression: str) -> Callable[[Path], str]:
    """Return a function that writes a Relay program."""
    text = f"""#[version = "0.0.5"]
def @main({parameters}) {{
  {expression}
}}
"""

    def write(folder: Path) -> str:
        (folder / "program.relay").write_text(text)
        return "program.relay"

    return write


OF_A_RELAY_PROGRAM = ("compile {model}", "bisect {model} --fails", "reduce {model} --fails -o out")
"""The commands for a Relay program, which has no reference."""

OF_A_MODULE = ("bisect {model}", "reduce {model} -o reduced")
"""The commands for a Relax module, whose reference is TVM's own pipeline."""

SCAN = graph(
    "float[100,4] x, float[4] s",
    "float[4] y, float[100,4] z",
    """a = Tanh(x)
       y, z = Scan<
         num_scan_inputs = 1,
         body = step (float[4] h, float[4] r) => (float[4] n, float[4] o)
           { q = Mul(h, h) k = Add(q, r) n = Tanh(k) o = Identity(n) }
       >(s, a)""",
)

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
        "updates of one element by several threads",
        "threads",
        "tvm_fixes/relax/legalize/scatter.py",
        "return _for_each(lines, lambda line: _loop(steps, lambda step: update(line, step)[1]))",
        "return _for_each(steps, lambda step: _loop(lines, lambda line: update(line, step)[1]))",
        graph(
            "float[16,4] x, int64[262144,4] at, float[262144,4] v",
            "float[16,4] y",
            """zero = Constant<value_int = 0>() sixteen = Constant<value_int = 16>()
               i = Mod(at, sixteen) j = Abs(i)
               s = ScatterElements<axis = 0, reduction = "add">(x, j, v) y = Identity(s)""",
        ),
        ("ScatterElements", "index-legalize"),
        ("compare {model}", "bisect {model}", "compare {model} --repeat 10"),
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
        "a MaxPool whose margins are swapped",
        "kernel",
        "tvm_fixes/relax/legalize/max_pool.py",
        "before[along.axis], after[along.axis] = along.before, along.after",
        "before[along.axis], after[along.axis] = along.after, along.before",
        graph(
            "float[1,3,8,8] x",
            "float[1,3,7,7] y",
            "a = Tanh(x) m = MaxPool<kernel_shape = [3, 3], pads = [0, 0, 1, 1]>(a) y = Neg(m)",
        ),
        ("MaxPool", "reduction-legalize"),
    ),
    Fault(
        "a Selu without its scale",
        "kernel",
        "tvm_fixes/relax/legalize/arithmetic.py",
        "alpha * less, scale * x(*at))",
        "alpha * less, x(*at))",
        module(
            "x: R.Tensor((4, 16), 'float32')",
            "a = R.tanh(x); b = R.nn.selu(a); y = R.negative(b)",
        ),
        ("selu", "arithmetic-legalize"),
        OF_A_MODULE,
    ),
    Fault(
        "a Mish whose exponential overflows",
        "dtypes",
        "tvm_fixes/frontend/onnx/ops/elementwise.py",
        'relax.op.minimum(wide, relax.const(20, "float32"))',
        'relax.op.minimum(wide, relax.const(200, "float32"))',
        graph(
            "float[4,16] x",
            "float[4,16] y",
            "m = Mul(x, s) h = Mish(m) y = Neg(h)",
            s=np.full((), 50, "float32"),
        ),
        ("Mish", "onnx-elementwise"),
    ),
    Fault(
        "a norm of large integers in float32",
        "dtypes",
        "tvm_fixes/frontend/onnx/ops/reductions.py",
        '"float64" if "int" in dtype else "float32"',
        '"float32"',
        graph(
            "int64[4,16] x",
            "int64[4,1] y",
            "a = Mul(x, s) n = ReduceL2(a) y = Neg(n)",
            s=np.array(100_000_007),
        ),
        ("ReduceL2", "onnx-reductions"),
    ),
    Fault(
        "a shift by all bits but one that is one by too many",
        "dtypes",
        "tvm_fixes/frontend/torch/ops/integers.py",
        "most = relax.const(bits - 1, dtype)",
        "most = relax.const(bits - 2, dtype)",
        program("""class Shift(torch.nn.Module):
    def forward(self, x, count):
        return torch.bitwise_left_shift(x, count) + 1


def make():
    x, count = torch.randint(0, 1 << 40, (4, 256)), torch.arange(256) % 64
    return Shift().eval(), (x, count)
"""),
        ("bitwise_left_shift", "torch-decompositions"),
    ),
    Fault(
        "a kernel that is cut at the wrong end",
        "pass",
        "tvm_fixes/relax/transform/trim_conv_kernel.py",
        "for a, b in zip(first, last, strict=True)",
        "for a, b in zip(last, first, strict=True)",
        graph(
            "float[1,3,1,8] x",
            "float[1,8,1,8] y",
            "a = Relu(x) c = Conv<pads = [1, 1, 0, 1]>(a, w) y = Tanh(c)",
            w=weights(8, 3, 2, 3),
        ),
        ("Conv", "TrimConvKernel"),
    ),
    Fault(
        "a pad of ones that becomes one of zeros",
        "pass",
        "tvm_fixes/relax/transform/fold_pad_into_conv.py",
        """"constant" or float(pad.attrs.pad_value) != 0 or min(widths) < 0""",
        """"constant" or min(widths) < 0""",
        graph(
            "float[1,3,8,8] x",
            "float[1,8,8,8] y",
            "a = Relu(x) p = Pad(a, q, v) c = Conv(p, w) y = Tanh(c)",
            q=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
            v=np.ones((), "float32"),
            w=weights(8, 3, 3, 3),
        ),
        ("Conv", "FoldPadIntoConv"),
    ),
    Fault(
        "a slice that leaves out a last element",
        "sizes",
        "tvm_fixes/frontend/torch/ops/slices.py",
        "count = (last - first + step - 1) // step",
        "count = (last - first) // step",
        program("""class Every(torch.nn.Module):
    def forward(self, x):
        return x.relu()[::2].tanh()


def make():
    n = torch.export.Dim("n", min=3)
    return torch.export.export(Every(), (torch.randn(6, 4),), dynamic_shapes=({0: n},))
"""),
        ("slice",),
    ),
    Fault(
        "results of which a later run overwrites the memory",
        "runtime",
        "tvm_fixes/runtime/input_buffers.py",
        "return [array.copy() for array in self._arrays]",
        "return list(self._arrays)",
        graph("float[2,4] x", "float[2,4] y", "a = Tanh(x) y = Relu(a)"),
        ("CompiledModel.run", "a later run"),
    ),
    Fault(
        "a reference that reads inputs in half precision",
        "reference",
        "tvm_fixes/observe/reference_process.py",
        "run = partial(reference, list(inputs))",
        "run = partial(reference, [v.astype('float16').astype(v.dtype) for v in inputs])",
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
    Fault(
        "a softmax whose axis differs from its mask's",
        "pass",
        "tvm_fixes/relax/transform/fuse_safe_softmax.py",
        "axes == [last] and int(softmax[0].attrs.axis) % (last + 1) == last",
        "axes == [last]",
        module(
            "x: R.Tensor((2, 8, 8), 'float32')",
            """a = R.nn.softmax(x, axis=-2)
            b = R.equal(x, R.const(float("-inf"), "float32"))
            c = R.astype(R.min(R.astype(b, "int8"), axis=[-1], keepdims=True), "bool")
            y = R.where(c, R.const(0, "float32"), a)""",
        ),
        ("softmax", "FuseSafeSoftmax"),
        # It runs on GPUs only, and with a user's pipeline.
        (
            "bisect {model} --pass tvm_fixes.transform:FuseSafeSoftmax@before=Legalize",
            "reduce {model} --pass tvm_fixes.transform:FuseSafeSoftmax@before=Legalize -o reduced",
        ),
    ),
    Fault(
        "a pixel shuffle of columns and rows",
        "kernel",
        "tvm_fixes/relax/legalize/pixel_shuffle.py",
        "channel = (c * factor + row) * factor + column",
        "channel = (c * factor + column) * factor + row",
        module(
            "x: R.Tensor((1, 8, 4, 4), 'float32')",
            "a = R.tanh(x); b = R.nn.pixel_shuffle(a, 2); y = R.negative(b)",
        ),
        ("pixel_shuffle", "pixel-shuffle"),
        OF_A_MODULE,
    ),
    Fault(
        "a Softplus that ignores the factor of its result",
        "kernel",
        "tvm_fixes/relax/legalize/arithmetic.py",
        "(tirx.Select(scaled < zero, zero, scaled) + logarithm) / factor",
        "(tirx.Select(scaled < zero, zero, scaled) + logarithm)",
        module(
            "x: R.Tensor((4, 16), 'float32')",
            "a = R.tanh(x); b = R.nn.softplus(a, beta=2.0); y = R.negative(b)",
        ),
        ("softplus", "arithmetic-legalize"),
        OF_A_MODULE,
    ),
    Fault(
        "a bilinear resize by the ratio of the last elements",
        "kernel",
        "tvm_fixes/relax/legalize/resize.py",
        "centered = (at + half) * scale - half\n",
        "centered = (at + half) * last / steps - half\n",
        module(
            "x: R.Tensor((1, 2, 'h', 'w'), 'float32')",
            """a = R.tanh(x)
            b = R.image.resize2d(a, (12, 12), method="linear")
            y = R.negative(b)""",
        ),
        ("resize2d", "resize-legalize"),
        OF_A_MODULE,
    ),
    Fault(
        "the last columns of a tile, counted from a tile too far",
        "sizes",
        "tvm_fixes/tirx/last_tile.py",
        "last = tirx.IfThenElse(rest > columns, with_new_variables(last), small)",
        "last = tirx.IfThenElse(rest >= size, with_new_variables(last), small)",
        graph(
            "float[1,32,H,W] x",
            "float[1,32,H,W] y",
            "a = Relu(x) c = Conv<pads = [1, 1, 1, 1]>(a, w) y = Tanh(c)",
            w=weights(32, 32, 3, 3),
        ),
        ("Conv", "KeepTilesOnStack"),
    ),
    Fault(
        "a pad and a padding of which only the larger counts",
        "pass",
        "tvm_fixes/relax/transform/fold_pad_into_conv.py",
        "before = [width + pad_of[axis][0] for",
        "before = [max(width, pad_of[axis][0]) for",
        graph(
            "float[1,3,8,8] x",
            "float[1,4,9,9] y",
            "a = Relu(x) p = Pad(a, pads) y = Conv<pads=[1,1,1,1]>(p, w)",
            pads=np.array([0, 0, 1, 1, 0, 0, 0, 0]),
            w=weights(4, 3, 3, 3),
        ),
        ("Conv", "FoldPadIntoConv"),
    ),
    Fault(
        "the last five rows, from a negative index",
        "sizes",
        "tvm_fixes/frontend/torch/ops/slices.py",
        "begin = _from_front(call, 0 if start is None else start, extent)",
        "begin = 0 if start is None else start",
        program("""class Last(torch.nn.Module):
    def forward(self, x):
        return x.relu()[-5:].tanh()


def make():
    n = torch.export.Dim("n", min=5)
    return torch.export.export(Last(), (torch.randn(7, 4),), dynamic_shapes=({0: n},))
"""),
        ("slice", "torch-dynamic-shapes"),
        ("compare {model}", "bisect {model} --fails"),
    ),
    Fault(
        "inputs of which the first keeps the values of the first run",
        "runtime",
        "tvm_fixes/runtime/input_buffers.py",
        "for place, memory in self._copied:",
        "for place, memory in self._copied[1:]:",
        graph("float[2,4] x, float[2,4] z", "float[2,4] y", "a = Tanh(x) y = Sub(a, z)"),
        ("CompiledModel.run", "other inputs"),
    ),
    Fault(
        "updated inputs that all get the first new value",
        "runtime",
        "tvm_fixes/runtime/results.py",
        "assign(value, fields[index])",
        "assign(value, fields[number])",
        program("""class Caches(torch.nn.Module):
    def forward(self, x, keys, values):
        keys.copy_(keys + x)
        values.copy_(values * x)
        return keys.tanh() + values


def make():
    return Caches().eval(), tuple(torch.randn(4, 8) for _ in range(3))
"""),
        ("CompiledModel.run",),
    ),
    Fault(
        "a loop whose last part no thread computes",
        "threads",
        "tvm_fixes/tirx/transform/schedule_elementwise.py",
        "parts = tirx.ceildiv(extent, part)",
        "parts = tirx.floordiv(extent, part)",
        graph("float[100003] x", "float[100003] y", "a = Tanh(x) b = Exp(a) y = Neg(b)"),
        ("elementwise-schedule",),
    ),
    Fault(
        "a scan whose steps run in several threads",
        "threads",
        "tvm_fixes/relax/transform/lower_scan.py",
        """tirx.ForKind.SERIAL, element)
        is_small = not is_worth_threads(count_of(shape))
        kind = tirx.ForKind.SERIAL if is_small else tirx.ForKind.PARALLEL
        return tirx.For(lines, zero, count_of(others), kind, inner)""",
        """tirx.ForKind.PARALLEL, element)
        return tirx.For(lines, zero, count_of(others), tirx.ForKind.SERIAL, inner)""",
        graph(
            "float[2097152] x",
            "float[2097152] y",
            "a = Tanh(x) c = CumSum(a, axis) y = Neg(c)",
            axis=np.array(0),
        ),
        ("CumSum", "LowerScan"),
        ("compare {model}", "bisect {model}", "compare {model} --repeat 10"),
    ),
    Fault(
        "a sum of an unknown number of rows without the last",
        "sizes",
        "tvm_fixes/tirx/partial_sums.py",
        "stmts.append(sum_of(parts * length, left))",
        "stmts.append(sum_of(parts * length, left - 1))",
        graph(
            "float[N,64] x",
            "float[64] y",
            "a = Tanh(x) s = ReduceSum<keepdims = 0>(a, axes) y = Neg(s)",
            axes=np.array([0]),
        ),
        ("ReduceSum", "reduction-schedule"),
    ),
    Fault(
        "a quantization that rounds halves up",
        "dtypes",
        "tvm_fixes/frontend/onnx/ops/quantized/steps.py",
        "rounded = call.emit(relax.op.round(scaled))",
        "rounded = call.emit(relax.op.floor(relax.op.add(scaled, relax.const(0.5, 'float32'))))",
        graph(
            "int32[4,16] x",
            "uint8[4,16] y",
            """f = Cast<to = 1>(x) h = Mul(f, half)
               q = QuantizeLinear<axis = 1, block_size = 8>(h, s, z) y = Identity(q)""",
            opset=21,
            half=np.full((), 0.5, "float32"),
            s=np.ones((4, 2), "float32"),
            z=np.full((4, 2), 10, "uint8"),
        ),
        ("QuantizeLinear", "onnx-quantized"),
    ),
    Fault(
        "a reference that reads inputs in the order of their names",
        "reference",
        "tvm_fixes/source/onnx.py",
        "list(self.output_names), dict(zip(names, inputs, strict=True))",
        "list(self.output_names), dict(zip(sorted(names), inputs, strict=True))",
        graph("float[2,4] b, float[2,4] a", "float[2,4] y", "t = Tanh(a) y = Sub(b, t)"),
        ("the float64 run agrees with ours",),
    ),
    Fault(
        "an einsum that sums over two axes in another order",
        "pass",
        "tvm_fixes/relax/transform/decompose_einsum.py",
        "lhs = self._arranged(emit, self.lhs, of_lhs, (self.rows, depth))",
        "lhs = self._arranged(emit, self.lhs, of_lhs, (self.rows, self.depth))",
        graph(
            "float[5,3,4] x, float[4,3,6] z",
            "float[5,6] y",
            'a = Tanh(x) e = Einsum<equation = "abc,cbd->ad">(a, z) y = Relu(e)',
        ),
        ("Einsum", "DecomposeEinsum"),
    ),
    Fault(
        "a sum over all axes but one, over that one",
        "Relay importer",
        "tvm_fixes/frontend/relay/ops/reduce.py",
        "if not axes or (axis in axes) != exclude]",
        "if not axes or axis in axes]",
        relay("%x: Tensor[(2, 3, 4), float32]", "sum(tanh(%x), axis=[1], exclude=True)"),
        ("sum", "program.relay"),
        OF_A_RELAY_PROGRAM,
    ),
    Fault(
        "an instance norm over the samples of a batch",
        "Relay importer",
        "tvm_fixes/frontend/relay/ops/nn/norm.py",
        "channel_axis=axis, axes=_others(call, 0, axis), **_options(call)",
        "channel_axis=axis, axes=_others(call, axis), **_options(call)",
        relay(
            "%x: Tensor[(2, 3, 8, 8), float32], %g: Tensor[(3), float32], %b: Tensor[(3), float32]",
            "nn.instance_norm(tanh(%x), %g, %b)",
        ),
        ("nn.instance_norm",),
        OF_A_RELAY_PROGRAM,
    ),
    Fault(
        "a scan whose second half runs first",
        "control flow",
        "tvm_fixes/frontend/recursion.py",
        "order = (high, low) if self._backwards else (low, high)",
        "order = (low, high) if self._backwards else (high, low)",
        SCAN,
        ("Scan",),
    ),
    Fault(
        "a scan that never ends",
        "control flow",
        "tvm_fixes/frontend/recursion.py",
        "is_done, is_single = fewer_than(1), fewer_than(2)",
        "is_done, is_single = fewer_than(1), fewer_than(1)",
        SCAN,
        ("Scan",),
        ("compare {model}", "bisect {model} --crashes"),
    ),
    Fault(
        "an orthonormal transform with the scale of an inverse one",
        "complex numbers",
        "tvm_fixes/frontend/torch/ops/fourier.py",
        "factor = 1 / (math.sqrt(count) if mode == 1 else count)",
        "factor = 1 / (math.sqrt(count) if mode == 2 else count)",
        program("""class Spectrum(torch.nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x.tanh(), norm="ortho").abs()


def make():
    return Spectrum().eval(), (torch.randn(4, 16),)
"""),
        ("fft_rfft",),
    ),
    Fault(
        "a conjugate that is the number itself, where only magnitudes are returned",
        "complex numbers",
        "tvm_fixes/frontend/torch/ops/complex_numbers.py",
        "return Pair(pair.real, call.emit(relax.op.negative(pair.imaginary)))",
        "return Pair(pair.real, pair.imaginary)",
        program("""class Spectrum(torch.nn.Module):
    def forward(self, x):
        return (torch.fft.rfft(x).conj() * 1j).abs()


def make():
    return Spectrum().eval(), (torch.randn(4, 16),)
"""),
        ("_conj", "torch-decompositions"),
    ),
)
