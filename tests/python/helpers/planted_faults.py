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
"""Faults planted in the pipeline, for the tools that find faults."""

import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm
from tvm import relax, s_tir, te, tirx, topi
from tvm_ffi import structural_map

from tvm_fixes.frontend.torch.call import CONVERTERS
from tvm_fixes.lowering import stages
from tvm_fixes.search import variants
from tvm_fixes.search.problem import Kind, Problem
from tvm_fixes.support.tensors import raw_bytes

Rewrite = Callable[[tvm.IRModule], tvm.IRModule]


def model(dtype: str = "float", rows: str = "4") -> onnx.ModelProto:
    """A model whose kernels are a softmax, a subtraction, a matmul and others."""
    return graph(
        f"{dtype}[{rows},8] x, {dtype}[8,{rows}] y",
        f"{dtype}[8,8] r",
        """s = Softmax (x) t = Transpose (y) d = Sub (t, x) dt = Transpose (d)
           m = MatMul (dt, s) e = Exp (m) r = Relu (e)""",
    )


def graph(inputs: str, outputs: str, nodes: str, **constants: np.ndarray) -> onnx.ModelProto:
    """A model of nodes in ONNX's text format."""
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
        model ({inputs}) => ({outputs}) {{ {nodes} }}"""
    found = onnx.parser.parse_model(text)
    for name, array in constants.items():
        found.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return found


def rewriting(operator: str, change: Callable[[relax.Call], relax.Expr]) -> Rewrite:
    """Replace calls of an operator."""

    @relax.expr_functor.mutator
    class Mutator(relax.PyExprMutator):
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            call = self.visit_expr_post_order(call)
            is_found = isinstance(call.op, tvm.ir.Op) and call.op.name == operator
            return change(call) if is_found else call

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        rewriter = Mutator(mod)
        for global_var, function in mod.functions_items():
            if isinstance(function, relax.Function):
                rewriter.builder_.update_func(global_var, rewriter.visit_expr(function))
        return rewriter.builder_.get()

    return run


def in_kernels(name: str, change: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> Rewrite:
    """Change the kernels with `name` in their names."""

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        changed = {
            var: change(function)
            for var, function in mod.functions_items()
            if isinstance(function, tirx.PrimFunc) and name in str(var.name_hint)
        }
        return tvm.IRModule(dict(mod.functions_items()) | changed, mod.attrs, mod.global_infos)

    return run


def as_pass(name: str, rewrite: Rewrite) -> tvm.transform.Pass:
    """A pass that runs `rewrite`."""
    return tvm.transform.module_pass(lambda mod, _: rewrite(mod), opt_level=0, name=name)


def _swapped(call: relax.Call) -> relax.Call:
    return relax.Call(call.op, list(call.args)[::-1], call.attrs)


def _with_swapped_floats(function: tirx.PrimFunc) -> tirx.PrimFunc:
    def swapped(node: tirx.Sub) -> tirx.Sub:
        return tirx.Sub(node.b, node.a) if "float" in str(node.a.ty) else node

    return structural_map(function, (tirx.Sub, swapped))


def _with_swapped_floats_above(function: tirx.PrimFunc) -> tirx.PrimFunc:
    extents = [dim for param in function.params for dim in getattr(param, "shape", ())]
    rows = next(dim for dim in extents if isinstance(dim, tirx.Var))

    def swapped(node: tirx.Sub) -> tirx.Expr:
        if "float" not in str(node.a.ty):
            return node
        return tirx.Select(rows > 5, tirx.Sub(node.b, node.a), tirx.Sub(node.a, node.b))

    return structural_map(function, (tirx.Sub, swapped))


large_rows_swapped = as_pass("SwapLarge", in_kernels("subtract", _with_swapped_floats_above))
"""A schedule that breaks the kernel of the subtraction for more than five rows."""

swap_operands = as_pass("SwapOperands", rewriting("relax.subtract", _swapped))
"""A pass that swaps the operands of a subtraction."""

wrong_schedule = as_pass("WrongSchedule", in_kernels("subtract", _with_swapped_floats))
"""A schedule that breaks the kernel of the subtraction."""


def double_scatter_add(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the importer of PyTorch's ``scatter_add`` double its result."""
    entry = next(iter(CONVERTERS._loaded["scatter_add.default"]))
    doubled = replace(
        entry, convert=lambda call: call.emit(relax.op.add(*[entry.convert(call)] * 2))
    )
    monkeypatch.setitem(CONVERTERS._entries, "scatter_add.default", [doubled])


def plant(monkeypatch: pytest.MonkeyPatch, **more: tvm.transform.Pass) -> None:
    """Add passes to the end of groups of stages, such as ``operators=swap_operands``."""

    def with_fault(*args: Any, **options: Any) -> Any:
        found = stages(*args, **options)
        return replace(found, **{key: (*getattr(found, key), one) for key, one in more.items()})

    monkeypatch.setattr(variants, "stages", with_fault)
    monkeypatch.setattr(sys.modules["tvm_fixes.compiler.steps"], "stages", with_fault)


def plant_wrong_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the fix of the softmax return its logarithm."""
    _plant_softmax(monkeypatch, lambda data, axis: topi.nn.log_softmax(data, axis))


def plant_unshifted_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the fix of the softmax leave out the subtraction of the maximum."""
    _plant_softmax(monkeypatch, _unshifted_softmax)


def _plant_softmax(monkeypatch: pytest.MonkeyPatch, compute: Callable[..., te.Tensor]) -> None:
    module = sys.modules["tvm_fixes.relax.legalize.softmax"]
    monkeypatch.setattr(module, "softmax", compute)


def _unshifted_softmax(data: te.Tensor, axis: int) -> te.Tensor:
    powers = topi.exp(data)
    return topi.divide(powers, topi.sum(powers, axis, keepdims=True))


def after_call(function: tirx.PrimFunc, wait: tirx.Expr) -> tirx.PrimFunc:
    """The kernel, after a call of a C function."""
    root = function.body.block
    body = tirx.SeqStmt([tirx.Evaluate(wait), root.body])
    block = s_tir.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint, body, None, root.alloc_buffers
    )
    return function.with_body(s_tir.SBlockRealize([], True, block))


def _waiting(name: str, *args: int) -> Callable[[pytest.MonkeyPatch], None]:
    """Plant a schedule of the matrix product that first calls a C function."""
    wait = tirx.call_extern("int32", name, *args)
    slow = as_pass("SlowSchedule", in_kernels("matmul", lambda kernel: after_call(kernel, wait)))
    return lambda monkeypatch: plant(monkeypatch, schedules=slow)


def _wrong_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("tvm_fixes.frontend.onnx.ops.reductions")
    right = module._log_sum_exp

    def wrong(node: Any, data: relax.Expr, axes: list[int], keepdims: bool) -> relax.Expr:
        return right(node, data, [1 - axis for axis in axes], keepdims)

    monkeypatch.setattr(module, "_log_sum_exp", wrong)


def _wrong_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["tvm_fixes.relax.transform.fold_constant"]
    right = module.evaluate

    def wrong(*args: Any) -> Any:
        found = right(*args)
        for tensor in found.values():
            raw_bytes(tensor).view("float32")[:] *= 2
        return found

    monkeypatch.setattr(module, "evaluate", wrong)


def _crash(_call: relax.Call) -> relax.Expr:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def _with_large_constants(call: relax.Call) -> relax.Expr:
    (data,) = call.args
    columns = int(data.ty.shape[-1])
    zeros = np.zeros((columns, BLOAT // (4 * columns)), "float32")
    wide = relax.op.matmul(data, relax.const(zeros))
    return relax.op.exp(relax.op.add(data, relax.op.matmul(wide, relax.const(zeros.T.copy()))))


BLOAT = 1 << 19
"""The bytes of each constant that the pass ``Bloat`` adds."""


def _rough_in_float16(call: relax.Call) -> relax.Expr:
    (data,) = call.args
    if str(data.ty.dtype) != "float16":
        return call
    return relax.op.power(relax.const(2.5, "float16"), data)


def _along_rows_if_dynamic(call: relax.Call) -> relax.Expr:
    (data,) = call.args
    is_static = all(isinstance(extent, tirx.IntImm) for extent in data.ty.shape)
    return call if is_static else relax.op.nn.softmax(data, axis=0)


class Scores(torch.nn.Module):
    """A PyTorch program with a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.softmax(self.linear(x), 1) @ x.relu()) - 1


def _program() -> torch.export.ExportedProgram:
    torch.manual_seed(0)
    return torch.export.export(Scores().eval(), (torch.randn(8, 8),))


def _reducing() -> onnx.ModelProto:
    nodes = """t = Tanh (x) l = ReduceLogSumExp<keepdims = 1> (t, axes) d = Sub (t, l)
               e = Abs (d) r = Sqrt (e)"""
    return graph("float[8,8] x", "float[8,8] r", nodes, axes=np.array([1]))


def _folding() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    nodes = "v = Exp (w) a = Tanh (x) m = MatMul (a, v) r = Abs (m)"
    weight = rng.standard_normal((8, 8)).astype("float32")
    return graph("float[4,8] x", "float[4,8] r", nodes, w=weight)


def _passes(**rewrites: Rewrite) -> Callable[[pytest.MonkeyPatch], None]:
    """Plant a pass at the end of the rewrites of operators."""
    [(name, rewrite)] = rewrites.items()
    return lambda monkeypatch: plant(monkeypatch, operators=as_pass(name, rewrite))


@dataclass(frozen=True)
class Fault:
    """A planted fault, and what each tool must report.

    Attributes
    ----------
    plant : callable
        Plants the fault.
    node : str
        The operator that ``compare`` names; empty if all values are equal.
    culprit : tuple of str
        The list that ``bisect`` searches, and what it finds there: a part of its name.
    left : set of str
        The operators that ``reduce`` leaves.
    model : callable
        Makes the model.
    problem : Problem
    inputs : mapping of str to numpy.ndarray
        Inputs with special values.
    seconds : float
        The time limit of a trial.
    """

    plant: Callable[[pytest.MonkeyPatch], None]
    node: str
    culprit: tuple[str, str]
    left: set[str]
    model: Callable[[], Any] = model
    problem: Problem = field(default_factory=Problem)
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    seconds: float = 120.0


_LARGE = 300 * np.random.default_rng(0).standard_normal((4, 8)).astype("float32")

FAULTS = {
    "a wrong kernel": Fault(
        lambda patch: plant(patch, schedules=wrong_schedule),
        node="Sub",
        culprit=("kernels", "subtract"),
        left={"Sub"},
    ),
    "a pass that swaps operands": Fault(
        lambda patch: plant(patch, operators=swap_operands),
        node="Sub",
        culprit=("passes", "SwapOperands"),
        left={"Sub"},
    ),
    "an overflow to NaN": Fault(
        lambda patch: _plant_softmax(patch, _unshifted_softmax),
        node="Softmax",
        culprit=("fixes", "softmax-legalize"),
        left={"Softmax"},
        inputs={"x": _LARGE},
    ),
    "a slow schedule": Fault(
        _waiting("usleep", 20_000),
        node="",
        culprit=("kernels", "matmul"),
        left={"MatMul"},
        problem=Problem(Kind.SLOWER, 200.0),
    ),
    "a wrong axis in an importer": Fault(
        _wrong_axis,
        node="ReduceLogSumExp",
        culprit=("fixes", "onnx-reductions"),
        left={"ReduceLogSumExp"},
        model=_reducing,
    ),
    "a fix that is wrong": Fault(
        plant_wrong_softmax,
        node="aten.softmax.int",
        culprit=("fixes", "softmax-legalize"),
        left={"softmax.int"},
        model=_program,
    ),
    "a crash in the build": Fault(
        _passes(Crash=rewriting("relax.exp", _crash)),
        node="Exp",
        culprit=("passes", "Crash"),
        left={"Exp"},
        problem=Problem(Kind.CRASHES),
    ),
    "a kernel that hangs": Fault(
        _waiting("pause"),
        node="MatMul",
        culprit=("kernels", "matmul"),
        left={"MatMul"},
        problem=Problem(Kind.CRASHES),
        seconds=15.0,
    ),
    "a wrong constant fold": Fault(
        _wrong_fold,
        node="Exp",
        culprit=("passes", "FoldConstant"),
        left={"Exp"},
        model=_folding,
    ),
    "a library too large": Fault(
        _passes(Bloat=rewriting("relax.exp", _with_large_constants)),
        node="",
        culprit=("passes", "Bloat"),
        left={"Exp"},
        problem=Problem(Kind.LARGER, BLOAT),
    ),
    "a wrong result only in float16": Fault(
        _passes(RoughExp=rewriting("relax.exp", _rough_in_float16)),
        node="Exp",
        culprit=("passes", "RoughExp"),
        left={"Exp"},
        model=partial(model, "float16"),
    ),
    "a wrong result only with dynamic shapes": Fault(
        _passes(DynamicAxis=rewriting("relax.nn.softmax", _along_rows_if_dynamic)),
        node="Softmax",
        culprit=("passes", "DynamicAxis"),
        left={"Softmax"},
        model=partial(model, rows="n"),
    ),
}
