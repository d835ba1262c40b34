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
"""Problems, each with the commands that find it: what they print must show it again."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from helpers.planted_faults import graph

PASSES = """
import os

import tvm
from tvm import relax, tirx
from tvm.relax.op import abs, greater, max, min, subtract, where

from helpers.planted_faults import (
    _crash, _rough_in_float16, _with_large_constants, after_call, as_pass, in_kernels, rewriting
)
from tvm_ffi import structural_map


def swapped_if(test):
    def change(call):
        a, b = call.args
        return where(test(a), subtract(b, a), call)

    return rewriting("relax.subtract", change)


def larger_than(limit):
    return lambda a: greater(max(a), relax.const(limit))


def is_positive(a):
    return greater(min(a), relax.const(-1e-9))


def swap(call):
    return subtract(*reversed(call.args))


def swap_static(call):
    shape = call.args[0].ty.shape
    return swap(call) if all(isinstance(dim, tirx.IntImm) for dim in shape) else call


def swap_for_skylake(call):
    target = tvm.target.Target.current()
    return swap(call) if "skylake" in str(target.attrs.get("mcpu", "")) else call


def double_nhwc(call):
    is_last = call.attrs.out_layout == "NHWC"
    return relax.op.add(call, call) if is_last else call


def fail(call):
    raise ValueError("no exponent of (1, 2)")


def kernel(change):
    return in_kernels("subtract", change)


def changed_subtractions(make):
    def change(function):
        dims = [dim for param in function.params for dim in getattr(param, "shape", ())]

        def new(node):
            return make(node, dims) if "float" in str(node.a.ty) else node

        return structural_map(function, (tirx.Sub, new))

    return kernel(change)


def above_40(node, dims):
    rows = next(dim for dim in dims if isinstance(dim, tirx.Var))
    return tirx.Select(rows > 40, tirx.Sub(node.b, node.a), node)


def drawn(node, dims):
    number = tirx.call_extern("int32", "rand")
    return tirx.Add(node, tirx.Cast("float32", number))


def calling(name, *args):
    return kernel(lambda function: after_call(function, tirx.call_extern("int32", name, *args)))


def nudge(call):
    scale = relax.const(1.00001, call.args[0].ty.dtype)
    return relax.op.multiply(call, scale)


Swap = as_pass("Swap", rewriting("relax.subtract", swap))
Nudge = as_pass("Nudge", rewriting("relax.subtract", nudge))
SwapStatic = as_pass("SwapStatic", rewriting("relax.subtract", swap_static))
SwapSkylake = as_pass("SwapSkylake", rewriting("relax.subtract", swap_for_skylake))
SwapRare = as_pass("SwapRare", swapped_if(larger_than(2.5)))
SwapHuge = as_pass("SwapHuge", swapped_if(larger_than(50.0)))
SwapPositive = as_pass("SwapPositive", swapped_if(is_positive))
SwapLarge = as_pass("SwapLarge", changed_subtractions(above_40))
DoubleLast = as_pass("DoubleLast", rewriting("relax.nn.conv2d", double_nhwc))
WithoutAbs = as_pass("WithoutAbs", rewriting("relax.abs", lambda call: call.args[0]))
Rough = as_pass("Rough", rewriting("relax.exp", _rough_in_float16))
Bloat = as_pass("Bloat", rewriting("relax.exp", _with_large_constants))
Raising = as_pass("Raising", rewriting("relax.exp", fail))
Crash = as_pass("Crash", rewriting("relax.exp", _crash))
Drawn = as_pass("Drawn", changed_subtractions(drawn))
Slow = as_pass("Slow", calling("usleep", 20_000))
Hang = as_pass("Hang", calling("pause"))
"""

_NETS = """
import torch

EXAMPLE = torch.arange(32.0).reshape(4, 8) / 32


class Net(torch.nn.Module):
    def forward(self, x, y):
        return (x - y).exp().relu()


def make(**options):
    return Net().eval(), tuple(x.to(**options) for x in (EXAMPLE, 2 * EXAMPLE))


def make_bfloat16():
    return make(dtype=torch.bfloat16)


def make_dynamic():
    rows = torch.export.Dim("rows")
    return *make(), {}, ({0: rows}, {0: rows})
"""

MODULE = """
from tvm.script import ir as I
from tvm.script import relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            d = R.subtract(x, y)
            out = R.exp(d)
            R.output(out)
        return out
"""


_CHECK = """#!/bin/sh
[ "$1" = it ] && [ -e "$2" ] && [ -z "$TVM_FIXES_DISABLE" ]
"""


def _subtracting(dtype: str = "float", rows: str = "4") -> onnx.ModelProto:
    nodes = "d = Sub (x, y) e = Exp (d) r = Relu (e)"
    return graph(f"{dtype}[{rows},8] x, {dtype}[{rows},8] y", f"{dtype}[{rows},8] r", nodes)


def _convolution() -> onnx.ModelProto:
    weight = np.random.default_rng(0).standard_normal((4, 4, 1, 1)).astype("float32")
    nodes = "c = Conv (x, w) r = Relu (c)"
    return graph("float[1,4,6,6] x", "float[1,4,6,6] r", nodes, w=weight)


def _resize() -> onnx.ModelProto:
    scales = np.array([1, 1, 0.6, 0.6], "float32")
    nodes = 'e = Exp (x) r = Resize<mode = "linear"> (e, , scales)'
    return graph("float[1,4,32,32] x", "float[1,4,19,19] r", nodes, scales=scales)


def _average() -> onnx.ModelProto:
    gain = np.full(1, 1000, "float16")
    nodes = "g = Mul (x, gain) a = Abs (g) r = AveragePool<kernel_shape = [14, 14]> (a)"
    return graph("float16[1,3,14,14] x", "float16[1,3,1,1] r", nodes, gain=gain)


def _infinite() -> onnx.ModelProto:
    large = np.full(8, 1e38, "float32")
    large[3] = np.inf
    nodes = "d = Sub (x, y) m = Mul (d, large) r = Relu (m)"
    return graph("float[4,8] x, float[4,8] y", "float[4,8] r", nodes, large=large)


def _masked_nan() -> onnx.ModelProto:
    nodes = "a = Abs (x) s = Sqrt (a) p = Less (x, zero) r = Where (p, zero, s)"
    zero = np.zeros(1, "float32")
    return graph("float[4,8] x", "float[4,8] r", nodes, zero=zero)


def _masked_positive() -> onnx.ModelProto:
    nodes = "d = Sub (x, y) z = Mul (d, zero) l = Log (x) r = Add (z, l)"
    zero = np.zeros(1, "float32")
    return graph("float[4,8] x, float[4,8] y", "float[4,8] r", nodes, zero=zero)


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "the model.onnx": _subtracting,
    "dynamic.onnx": lambda: _subtracting(rows="N"),
    "half.onnx": lambda: _subtracting("float16"),
    "conv.onnx": _convolution,
    "resize.onnx": _resize,
    "infinite.onnx": _infinite,
    "average.onnx": _average,
    "masked.onnx": _masked_nan,
    "positive.onnx": _masked_positive,
}


def write_files(folder: Path) -> None:
    """Write what the scenarios need to a folder."""
    for name, make in MODELS.items():
        onnx.save(make(), folder / name)
    for name in ("my pass.py", "passes.py"):
        (folder / name).write_text(PASSES)
    (folder / "check").write_text(_CHECK)
    (folder / "check").chmod(0o755)
    (folder / "nets.py").write_text(_NETS)
    (folder / "module.py").write_text(MODULE)
    large = np.linspace(1, 100, 32, dtype="float32").reshape(4, 8)
    np.savez(folder / "some inputs.npz", x=large, y=large + 1)


@dataclass(frozen=True)
class Scenario:
    """A command, and what shows its problem.

    Attributes
    ----------
    command : str
    finding : str
        A pattern for what ``compile``, ``bisect`` and ``reduce`` print.
    place : str
        A pattern for what ``compare`` prints.
    printed : str
        The commands that are printed in turn; ``script`` is that of ``reduce``.
    error : str
        A pattern for the end of what the script prints.
    is_quick : bool
        Whether it runs below the full tier.
    """

    command: str
    finding: str
    place: str = ""
    printed: str = "bisect compare reduce script"
    error: str = "Not equal to tolerance"
    is_quick: bool = False


def _pass(name: str, place: str = "") -> str:
    return f"--pass 'my pass.py:{name}{place}'"


_KERNELS = "@after=ScheduleReductions"
_WRONG = r"32 of 32 elements differ"
_AT_SUB = r"first difference +Sub d"
_SEARCHES = "bisect reduce script"

SCENARIOS = {
    "wrong": Scenario(f"compile 'the model.onnx' {_pass('Swap')}", _WRONG, _AT_SUB, is_quick=True),
    "a fix that is off": Scenario(
        "TVM_FIXES_DISABLE=onnx-resize tvm-fixes inspect resize.onnx",
        r"\d+ of 1444 elements differ|nodes +2: Exp 1, Resize 1",
        r"first difference +Resize r",
        "bisect compare compile reduce script",
        is_quick=True,
    ),
    "hidden by a fix": Scenario(
        "bisect average.onnx --over fixes",
        "without average-pool, the model shows|not finite and differ",
        "first difference +AveragePool r",
        "bisect compare compile reduce script",
    ),
    "no tolerance": Scenario(
        f"compile 'the model.onnx' --rtol 1e-9 --atol 1e-9 {_pass('Nudge')}",
        r"elements differ",
        _AT_SUB,
    ),
    "large": Scenario(
        f"compile dynamic.onnx {_pass('SwapLarge', _KERNELS)} --size N=50",
        r"400 of 400 elements differ",
        _AT_SUB,
    ),
    "static": Scenario(
        f"compile dynamic.onnx --static --shape x=4,8 --shape y=4,8 {_pass('SwapStatic')}",
        _WRONG,
        _AT_SUB,
    ),
    "a static program": Scenario(
        f"compile nets.py:make_dynamic --static {_pass('SwapStatic')}",
        _WRONG,
        "first difference +aten.sub",
    ),
    "masked": Scenario(
        f"compare masked.onnx {_pass('WithoutAbs')}",
        r"a: \d+ of 32 elements",
        r"first difference +Abs a",
        _SEARCHES,
    ),
    "masked, with positive inputs": Scenario(
        f"compare positive.onnx {_pass('SwapPositive')}", _WRONG, _AT_SUB, _SEARCHES, is_quick=True
    ),
    "error": Scenario(
        f"compare 'the model.onnx' {_pass('Raising')}",
        r"no exponent of \(1, 2\)",
        r"first failure +Exp e",
        _SEARCHES,
        r"no exponent of \(1, 2\)",
        is_quick=True,
    ),
    "crash": Scenario(
        f"compare 'the model.onnx' {_pass('Crash')}",
        r"crashes: (yes; )?SIG|whole model: SIG",
        r"first failure +Exp e",
        _SEARCHES,
        "SIGSEGV",
    ),
    "hang": Scenario(
        f"compare 'the model.onnx' --timeout 5 {_pass('Hang', _KERNELS)}",
        r"timed out after 5 s",
        r"first failure +Sub d",
        _SEARCHES,
        "timed out",
    ),
    "slow": Scenario(
        f"bisect 'the model.onnx' --slower-than 100 {_pass('Slow', _KERNELS)}",
        r"slower than 100 x the reference: yes",
        "",
        "bisect",
    ),
    "slow, reduced": Scenario(
        f"reduce 'the model.onnx' --slower-than 100 {_pass('Slow', _KERNELS)}",
        r"slower than 100 x the reference: ",
        "",
        "script",
        r"AssertionError: \[[\d.]+, [\de.-]+\]",
    ),
    "too large": Scenario(
        f"reduce 'the model.onnx' --larger-than 1e6 {_pass('Bloat')}",
        r"larger than 1000000 bytes",
        "",
        "script",
        r"AssertionError: \d{7}",
    ),
    "too large in TVM": Scenario(
        "reduce 'the model.onnx' --larger-than 1000 --stock",
        r"larger than 1000 bytes",
        "",
        "script",
        r"AssertionError: \d{4}",
    ),
    "wrong in TVM": Scenario(
        "reduce resize.onnx --stock --target x86_64/skylake", r"elements differ", "", "script"
    ),
    "16 bits": Scenario(
        f"compile half.onnx {_pass('Rough')}",
        r"\d+ of 32 elements differ",
        r"first difference +Exp e",
    ),
    "bfloat16": Scenario(
        f"compile nets.py:make_bfloat16 {_pass('Swap')}",
        r"\d+ of 32 elements",
        "first difference +aten.sub",
    ),
    "infinite": Scenario(f"compile infinite.onnx {_pass('Swap')}", r"\d+ of 32 elements", _AT_SUB),
    "not deterministic": Scenario(
        f"compare 'the model.onnx' --repeat 3 {_pass('Drawn', _KERNELS)}",
        "32 of 32 elements",
        r"not deterministic +d: (\d+) different results in \1 runs",
        "bisect compare reduce script",
    ),
    "inputs": Scenario(
        f"compile 'the model.onnx' --inputs 'some inputs.npz' {_pass('SwapHuge')}", _WRONG, _AT_SUB
    ),
    "seed": Scenario(f"compile 'the model.onnx' --seed 3 {_pass('SwapRare')}", _WRONG, _AT_SUB),
    "target": Scenario(
        """compile 'the model.onnx' --target '{"kind": "llvm", "mcpu": "skylake"}' """
        + _pass("SwapSkylake"),
        _WRONG,
        _AT_SUB,
    ),
    "layout": Scenario(
        f"compile conv.onnx --layout nhwc {_pass('DoubleLast', '@after=Layout')}",
        r"\d+ of 144 elements differ",
        r"first difference +Conv c",
    ),
    "a module of passes": Scenario(
        "reduce 'the model.onnx' --pass passes:Swap", _WRONG, "", "script"
    ),
    "a program": Scenario(
        f"compile nets.py:make {_pass('Swap')}", _WRONG, "first difference +aten.sub"
    ),
    "a module": Scenario(f"bisect module.py {_pass('Swap')}", _WRONG, "", "bisect"),
    "a module, reduced": Scenario(
        f"reduce module.py {_pass('Swap')}", r"\d+ of \d+ elements", "", "script"
    ),
    "a check": Scenario(
        "bisect 'the model.onnx' --check './check \"it\"' --over fixes",
        "exits with 0",
        "",
        "bisect",
    ),
}
