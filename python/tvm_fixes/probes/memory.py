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
"""Probes of memory errors in compiled models and in the compiler."""
# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import re
import tempfile
from functools import partial

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm_ffi import structural_walk

from ..attributes import TILE
from ..fixes.memory import (
    EMPTY_CONSTANTS,
    FOLD_PERMUTE_INTO_SCATTER,
    LONG_LOOPS,
    MALLOC_ALIGNMENT,
    PLAN_MEMORY_BOUNDS,
    PLAN_MEMORY_ESCAPE,
    PLAN_MEMORY_IF,
    SELECT_LOADS,
    TILES_ON_STACK,
    UPDATE_IN_PLACE,
    VM_SHAPE_LOWER_WEIGHTS,
)
from ..lowering import pipeline
from ..tirx.transform import GuardLongLoops, HoistSelectLoads, KeepTilesOnStack, LowerAlignment
from ._run import run
from .probe import Probe, register


@I.ir_module
class _Branches:
    @R.function
    def main(cond: R.Tensor((), "bool"), x: R.Tensor((2, 4), "float32")) -> R.Tensor(
        (2, 4), "float32"
    ):
        # A cumulative sum is not fused with other operators.
        if cond:
            lv = R.exp(x)
            lv1 = R.cumsum(lv, axis=1)
            result = R.add(lv1, x)
        else:
            lv2 = R.tanh(x)
            lv3 = R.cumsum(lv2, axis=1)
            result = R.multiply(lv3, x)
        return result


@I.ir_module
class _KeepTensor:
    @R.function(pure=False)
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        first = R.exp(x)
        _ = R.call_packed("tvm_fixes.probes.keep", first, ty_args=[R.Any])
        second = R.negative(x)
        return R.add(second, x)


def _run_both_branches(relax_pipeline: str | tvm.transform.Pass) -> None:
    x = np.random.default_rng(0).standard_normal((2, 4), "float32")
    sums = np.cumsum(np.exp(x), 1) + x, np.cumsum(np.tanh(x), 1) * x
    for cond, expected in zip((True, False), sums, strict=True):
        got = run(_Branches, np.array(cond), x, relax_pipeline=relax_pipeline)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


register(
    PLAN_MEMORY_IF,
    Probe(
        stock=lambda: _run_both_branches("default"),
        fixed=lambda: _run_both_branches(pipeline()),
        symptom=re.compile("SIGSEGV: crashed"),
    ),
)


@I.ir_module
class _LongLoop:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((2147483647,), "float32"), y: T.Buffer((1,), "float32")) -> None:
        for k in range(2147483647):
            y[0] = x[k]
            y[0] = y[0] + T.float32(1)


@I.ir_module
class _UnknownWeight:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor(dtype="float32", ndim=2)) -> R.Tensor(
        dtype="float32", ndim=2
    ):
        R.func_attr({"num_input": 1})
        return w


def _check_unrolling() -> None:
    # Only mark loops: unrolling this one would exhaust memory.
    config = {"tirx.UnrollLoop": {"explicit_unroll": False}}
    with tvm.target.Target("llvm"), tvm.transform.PassContext(config=config):
        function = tirx.transform.UnrollLoop()(GuardLongLoops()(_LongLoop))["main"]
    kinds: list[tirx.ForKind] = []
    structural_walk(function.body, (tirx.For, lambda loop: kinds.append(loop.kind)))
    assert tirx.ForKind.UNROLLED not in kinds, "a loop of 2**31 - 1 iterations is unrolled"


register(
    LONG_LOOPS,
    Probe(
        stock=_check_unrolling,
        fixed=_check_unrolling,
        symptom=re.compile("AssertionError: .*iterations is unrolled"),
    ),
)


@I.ir_module
class _Tile:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((4, 16), "float32"), y: T.Buffer((4, 2, 8), "float32")) -> None:
        tile = T.sblock_alloc_buffer((4, 2, 8, 16))
        for n in range(4):
            for i in T.unroll(2):
                for j in T.unroll(8):
                    for k in T.vectorized(16):
                        with T.sblock("tile"):
                            v_n, v_i, v_j, v_k = T.axis.remap("SSSS", [n, i, j, k])
                            T.sblock_attr({TILE: 256})
                            tile[v_n, v_i, v_j, v_k] = x[v_n, v_k]
            for i in T.unroll(2):
                for j in range(8):
                    with T.sblock("out"):
                        v_n, v_i, v_j = T.axis.remap("SSS", [n, i, j])
                        y[v_n, v_i, v_j] = tile[v_n, v_i, v_j, v_i + v_j]


def _build_tile(mod: tvm.IRModule) -> None:
    source = tvm.compile(mod, tvm.target.Target("llvm")).mod.inspect_source("ll")
    calls = [line for line in source.splitlines() if "declare" not in line]
    assert "TVMBackendAllocWorkspace" not in "".join(calls), "a tile is allocated at run time"


def _build_tile_fixed() -> None:
    with tvm.target.Target("llvm"):
        _build_tile(KeepTilesOnStack()(_Tile))


register(
    TILES_ON_STACK,
    Probe(
        stock=lambda: _build_tile(_Tile),
        fixed=_build_tile_fixed,
        symptom=re.compile("AssertionError: a tile is allocated at run time"),
    ),
)


@I.ir_module
class _Choice:
    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer((256,), "float32"), w: T.Buffer((1,), "float32"), y: T.Buffer((256,), "float32")
    ) -> None:
        T.func_attr({"tirx.noalias": True})
        for i in range(256):
            with T.sblock("y"):
                v_i = T.axis.spatial(256, i)
                y[v_i] = T.Select(x[v_i] > T.float32(0), x[v_i], x[v_i] * w[0])


def _build_choice(mod: tvm.IRModule) -> None:
    source = tvm.compile(mod, tvm.target.Target("llvm")).mod.inspect_source("ll")
    assert re.search(r"select <\d+ x i1>", source), "a choice is not vectorized"


def _build_choice_fixed() -> None:
    with tvm.target.Target("llvm"):
        _build_choice(HoistSelectLoads()(_Choice))


register(
    SELECT_LOADS,
    Probe(
        stock=lambda: _build_choice(_Choice),
        fixed=_build_choice_fixed,
        symptom=re.compile("AssertionError: a choice is not vectorized"),
    ),
)


@I.ir_module
class _Sum:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")) -> None:
        T.func_attr({"tirx.noalias": True})
        for i in T.vectorized(16):
            y[i] = x[i] + T.float32(1)


def _build_sum(mod: tvm.IRModule) -> None:
    source = tvm.compile(mod, tvm.target.Target("llvm")).mod.inspect_source("ll")
    assert not re.search(r"load <\d+ x float>.* align 64", source), "a kernel assumes 64 bytes"


def _build_sum_fixed() -> None:
    with tvm.target.Target("llvm"):
        _build_sum(LowerAlignment()(_Sum))


register(
    MALLOC_ALIGNMENT,
    Probe(
        stock=lambda: _build_sum(_Sum),
        fixed=_build_sum_fixed,
        symptom=re.compile("AssertionError: a kernel assumes 64 bytes"),
    ),
)


def _pass_unknown_weight(relax_pipeline: str | tvm.transform.Pass) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4), "float32"), rng.standard_normal((3, 5), "float32")
    np.testing.assert_array_equal(run(_UnknownWeight, x, w, relax_pipeline=relax_pipeline), w)


register(
    VM_SHAPE_LOWER_WEIGHTS,
    Probe(
        stock=lambda: _pass_unknown_weight("default"),
        fixed=lambda: _pass_unknown_weight(pipeline()),
        symptom=re.compile("SIGSEGV: crashed"),
    ),
)


def _keep(relax_pipeline: str | tvm.transform.Pass) -> None:
    kept: list[tvm.runtime.Tensor] = []
    tvm.register_global_func("tvm_fixes.probes.keep", kept.append, override=True)
    x = np.random.default_rng(0).standard_normal((2, 4), "float32")
    run(_KeepTensor, x, relax_pipeline=relax_pipeline)
    np.testing.assert_allclose(kept[0].numpy(), np.exp(x), rtol=1e-5, atol=1e-6)


register(
    PLAN_MEMORY_ESCAPE,
    Probe(
        stock=lambda: _keep("default"),
        fixed=lambda: _keep(pipeline()),
        symptom=re.compile(r"AssertionError: .*Not equal to tolerance", re.DOTALL),
    ),
)


def _allocate_bound(relax_pipeline: str | tvm.transform.Pass) -> None:
    builder = relax.BlockBuilder()
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n,), "float32"))
    with builder.function("main", [x]):
        ones = builder.emit(relax.op.ones((tirx.min(n, 1 << 50), 4), "float32"))
        builder.emit_func_output(builder.emit(relax.op.nn.softmax(ones)))
    got = run(builder.get(), np.ones(3, "float32"), relax_pipeline=relax_pipeline)
    np.testing.assert_array_equal(got, np.full((3, 4), 0.25, "float32"))


register(
    PLAN_MEMORY_BOUNDS,
    Probe(
        stock=lambda: _allocate_bound("default"),
        fixed=lambda: _allocate_bound(pipeline()),
        symptom=re.compile("bad_alloc"),
    ),
)


def _load_empty(relax_pipeline: str | tvm.transform.Pass) -> None:
    x = np.ones((2, 4), "float32")
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType(x.shape, "float32"))
    with builder.function("main", [data]):
        columns = relax.Tuple([relax.const(np.zeros((2, 0), "float32")), data])
        builder.emit_func_output(builder.emit(relax.op.concat(columns, axis=1)))
    executable = relax.build(builder.get(), "llvm", relax_pipeline=relax_pipeline)
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/model.so"
        executable.export_library(path)
        machine = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
        np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(x)).numpy(), x)


register(
    EMPTY_CONSTANTS,
    Probe(
        stock=lambda: _load_empty("default"),
        fixed=lambda: _load_empty(pipeline()),
        symptom=re.compile("Invalid DLTensor file format"),
    ),
)


def _update_cache(relax_pipeline: str | tvm.transform.Pass, axis: int) -> None:
    """Write one row along an axis of a cache that the caller lets the module overwrite."""
    types = {"cache": ((6, 6), "float32"), "at": ((1, 1), "int64"), "row": ((1, 6), "float32")}
    cache, at, row = (relax.Var(name, relax.TensorType(*ty)) for name, ty in types.items())
    builder = relax.BlockBuilder()
    with builder.function("main", [cache, at, row], attrs={"updates": {"cache": 0}}):
        with builder.dataflow():
            moved = builder.emit(relax.op.permute_dims(cache)) if axis else cache
            new = builder.emit(relax.op.scatter_nd(moved, at, row))
            new = builder.emit_output(relax.op.permute_dims(new) if axis else new)
        builder.emit_func_output(new)
    target = tvm.target.Target("llvm")
    executable = relax.build(builder.get(), target, relax_pipeline=relax_pipeline)
    zeros = tvm.runtime.tensor(np.zeros((6, 6), "float32"))
    rows = np.array([[3]]), np.ones((1, 6), "float32")
    main = relax.VirtualMachine(executable, tvm.cpu())["main"]
    new = main(zeros, *map(tvm.runtime.tensor, rows))
    np.testing.assert_array_equal(new.numpy().sum(1 - axis), 6 * (np.arange(6) == 3))
    assert new.data_ptr() == zeros.data_ptr(), "the whole cache is copied"


def _update_in_place(axis: int) -> None:
    _update_cache(pipeline(), axis)


for _axis, _fix_id in enumerate((UPDATE_IN_PLACE, FOLD_PERMUTE_INTO_SCATTER)):
    register(
        _fix_id,
        Probe(
            stock=partial(_update_cache, "default", _axis),
            fixed=partial(_update_in_place, _axis),
            symptom=re.compile("the whole cache is copied"),
        ),
    )
