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
"""Non-temporal stores of large results, and prefetching of rows."""

import platform
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import tirx as T
from tvm_ffi import structural_walk

from helpers.grids import batched, is_full
from helpers.relax_modules import build, call, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.target import resolve
from tvm_fixes.target.cpu import Cpu
from tvm_fixes.tirx import non_temporal
from tvm_fixes.tirx.transform import ScheduleElementwise

on_x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="runs the instructions of an x86 CPU"
)


def x86(mcpu: str) -> tvm.target.Target:
    return tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": mcpu})


# Vectors of 16, 32 and 64 bytes.
SSE, AVX, AVX_512 = x86("x86-64-v2"), x86("x86-64-v3"), x86("x86-64-v4")
ARM = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"})


STORE_16 = tvm.ir.StringImm(
    """!0 = !{i32 1}

define void @tvm_fixes_stream16(ptr %to, ptr %from) {
  %vector = load <16 x i8>, ptr %from, align 16
  store <16 x i8> %vector, ptr %to, align 16, !nontemporal !0
  ret void
}
"""
)


def special(mod: tvm.IRModule, target: tvm.target.Target) -> set[str]:
    """The LLVM intrinsics in the kernels after all stages."""
    with target:
        mod = pipeline()(mod)
    intrinsics: set[str] = set()

    def look(call: tvm.ir.Call) -> None:
        name = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
        if name == "tirx.call_extern":
            intrinsics.add(call.args[0].value)
        elif name == "tirx.call_llvm_intrin":
            intrinsics.add(tvm.target.codegen.llvm_get_intrinsic_name(call.args[0].value))

    for _, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            structural_walk(function.body, (tvm.ir.Call, look))
    return intrinsics


FENCE, FETCH = "llvm.x86.sse.sfence", "llvm.prefetch"


def test_vectors_of_a_large_result():
    @I.ir_module
    class Before:
        @T.prim_func(s_tir=True)
        def main(
            x: T.Buffer((T.int64(4096), T.int64(2048)), "float32"),
            y: T.Buffer((T.int64(4096), T.int64(2048)), "float32"),
        ):
            for i, j in T.grid(T.int64(4096), T.int64(2048)):
                with T.sblock("y"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    y[v_i, v_j] = x[v_i, v_j] * T.float32(2)

    @I.ir_module
    class Expected:
        @T.prim_func(s_tir=True)
        def main(
            x: T.Buffer((T.int64(4096), T.int64(2048)), "float32"),
            y: T.Buffer((T.int64(4096), T.int64(2048)), "float32"),
        ):
            for i in T.parallel(T.int64(4096), annotations={"pragma_import_llvm": STORE_16}):
                with T.sblock("y"):
                    T.reads(x[i, T.int64(0) : T.int64(2048)])
                    T.writes(y[i, T.int64(0) : T.int64(2048)])
                    for k in range(T.int64(512)):
                        with T.sblock("stream"):
                            T.reads(x[i, k * T.int64(4) : k * T.int64(4) + T.int64(4)])
                            T.writes(y[i, k * T.int64(4) : k * T.int64(4) + T.int64(4)])
                            line = T.sblock_alloc_buffer((T.int64(4),), layout=None)
                            for lane in T.vectorized(T.int64(4)):
                                line[lane] = x[i, k * T.int64(4) + lane] * T.float32(2)
                            T.call_extern(
                                "void",
                                "tvm_fixes_stream16",
                                T.address_of(y[i, T.Add(k * T.int64(4), T.int64(0))]),
                                T.address_of(line[T.int64(0)]),
                            )
                T.call_llvm_intrin("void", "llvm.x86.sse.sfence")

    with SSE:
        after = ScheduleElementwise()(Before)
    tvm.ir.assert_structural_equal(after, Expected)


@pytest.mark.parametrize(("target", "size"), [(SSE, 16), (AVX, 32), (AVX_512, 64)])
def test_vectors_are_those_of_the_target(target, size):
    mod = build({"x": tensor(2048, 4096)}, lambda bb, x: bb.emit(relax.op.exp(x)))
    assert special(mod, target) == {f"tvm_fixes_stream{size}", FENCE}


def test_norms_and_transpositions():
    norm = build(
        {"x": tensor(4096, 2048), "g": tensor(2048), "b": tensor(2048)},
        lambda bb, x, g, b: bb.emit(relax.op.nn.layer_norm(x, g, b, -1)),
    )
    assert special(norm, AVX_512) == {"tvm_fixes_stream64", FENCE}
    transposed = build(
        {"x": tensor(4096, 2048)}, lambda bb, x: bb.emit(relax.op.permute_dims(x, [1, 0]))
    )
    assert special(transposed, AVX_512) == {"tvm_fixes_stream64", FENCE}
    # A tile's rows are half a cache line, followed by another row.
    assert not special(transposed, AVX)


def test_a_row_is_fetched_while_exponentials_of_another_are_computed():
    """The exponentials are then overwritten in place."""
    softmax = build({"x": tensor(4096, 2048)}, lambda bb, x: bb.emit(relax.op.nn.softmax(x)))
    assert special(softmax, AVX_512) == special(softmax, ARM) == {FETCH}
    small = build({"x": tensor(1024, 2048)}, lambda bb, x: bb.emit(relax.op.nn.softmax(x)))
    assert not special(small, AVX_512)


def doubled(*shape: int | tirx.Var, dtype: str = "float32") -> tvm.IRModule:
    return build({"x": tensor(*shape, dtype=dtype)}, lambda bb, x: bb.emit(relax.op.add(x, x)))


@pytest.mark.parametrize(
    ("mod", "target"),
    [
        (doubled(2048, 4095), AVX_512),  # rows begin within lines
        (doubled(2047, 4096), AVX_512),  # a little less than 32 MiB
        (doubled(1 << 20, 8), AVX_512),  # half a cache line per row, and a fence
        (doubled(2048, tirx.Var("n", "int64")), AVX_512),
        (doubled(4096, 4096, dtype="bfloat16"), AVX_512),
        (doubled(2048, 4096), ARM),
    ],
    ids=["unaligned", "small", "short", "unknown", "bfloat16", "aarch64"],
)
def test_other_results_are_not(mod, target):
    assert not special(mod, target)


def test_results_read_by_another_step_are_not():
    @I.ir_module
    class Steps:
        @T.prim_func(s_tir=True)
        def main(
            x: T.Buffer((T.int64(4096), T.int64(2048)), "float32"),
            y: T.Buffer((T.int64(4096), T.int64(2048)), "float32"),
            z: T.Buffer((T.int64(4096), T.int64(2048)), "float32"),
        ):
            for i, j in T.grid(T.int64(4096), T.int64(2048)):
                with T.sblock("y"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    y[v_i, v_j] = x[v_i, v_j] * T.float32(2)
            for i, j in T.grid(T.int64(4096), T.int64(2048)):
                with T.sblock("z"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    z[v_i, v_j] = y[v_i, v_j] + T.float32(1)

    with AVX_512:
        after = str(ScheduleElementwise()(Steps))
    assert after.count("T.call_extern") == 1 and "T.address_of(z[" in after


def test_unaligned_results_are_not():
    @I.ir_module
    class Offset:
        @T.prim_func(s_tir=True)
        def main(x: T.Buffer((T.int64(4096), T.int64(2048)), "float32"), out: T.handle):
            begin = T.int64()
            y = T.match_buffer(
                out, (T.int64(4096), T.int64(2048)), "float32", elem_offset=begin, offset_factor=1
            )
            for i, j in T.grid(T.int64(4096), T.int64(2048)):
                with T.sblock("y"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    y[v_i, v_j] = x[v_i, v_j] * T.float32(2)

    @I.ir_module
    class Unaligned:
        @T.prim_func(s_tir=True)
        def main(x: T.Buffer((T.int64(4096), T.int64(2048)), "float32"), out: T.handle):
            y = T.match_buffer(out, (T.int64(4096), T.int64(2048)), "float32", align=4)
            for i, j in T.grid(T.int64(4096), T.int64(2048)):
                with T.sblock("y"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    y[v_i, v_j] = x[v_i, v_j] * T.float32(2)

    for mod in (Offset, Unaligned):
        with AVX_512:
            after = str(ScheduleElementwise()(mod))
        assert "T.parallel" in after and "T.call_extern" not in after


def test_no_prefetch_in_c_source():
    softmax = build({"x": tensor(4096, 2048)}, lambda bb, x: bb.emit(relax.op.nn.softmax(x)))
    target = tvm.target.Target({"kind": "c"})
    assert not special(softmax, target)


@on_x86
@pytest.mark.parametrize("mcpu", ["x86-64-v2", None] if is_full() else [None])
def test_numbers_and_instructions(mcpu):
    target = resolve("native") if mcpu is None else x86(mcpu)

    def emit(bb, x, g):
        return relax.Tuple(
            [
                bb.emit(relax.op.nn.gelu(x)),
                bb.emit(relax.op.nn.layer_norm(x, g, g, -1)),
                bb.emit(relax.op.nn.softmax(x)),
                bb.emit(relax.op.permute_dims(x, [1, 0])),
            ]
        )

    mod = build({"x": tensor(2048, 4096), "g": tensor(4096)}, emit)
    executable = relax.build(mod, target, relax_pipeline=pipeline())
    assembly = "".join(module.inspect_source("s") for module in executable.mod.imports)
    assert "movntps" in assembly and "sfence" in assembly and "prefetcht0" in assembly
    assert "tvm_fixes_stream" not in assembly
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2048, 4096)).astype("float32")
    g = rng.standard_normal(4096).astype("float32")
    got = call(relax.VirtualMachine(executable, tvm.cpu()), "main", x, g)
    torch = pytest.importorskip("torch")
    wide, gamma = torch.from_numpy(x).double(), torch.from_numpy(g).double()
    expected = (
        torch.nn.functional.gelu(wide),
        torch.nn.functional.layer_norm(wide, [4096], gamma, gamma),
        torch.softmax(wide, -1),
        wide.T,
    )
    for ours, reference in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, reference.numpy(), rtol=1e-5, atol=1e-6)


@on_x86
@batched(1 if is_full() else 3)
@given(
    st.tuples(st.integers(1, 70), st.integers(1, 70), st.sampled_from([1, 16, 48, 64, 100])),
    st.permutations(range(3)),
    st.sampled_from(["float32", "float64", "float16", "int8", "int64"]),
    st.booleans(),
)
def test_random_shapes(shape, axes, dtype, has_offset):
    """Transposed, doubled and concatenated data, with limits lowered to small shapes."""

    def emit(bb, x, y):
        moved = bb.emit(relax.op.permute_dims(relax.op.add(x, x), axes))
        return bb.emit(relax.op.concat([y, relax.op.flatten(moved)] if has_offset else [moved], 0))

    inputs = {"x": tensor(*shape, dtype=dtype), "y": tensor(17, dtype=dtype)}
    rng = np.random.default_rng(0)
    x, y = rng.integers(-9, 9, shape).astype(dtype), rng.integers(-9, 9, 17).astype(dtype)
    with pytest.MonkeyPatch.context() as patch:
        cpu = replace(Cpu.of(resolve("native")), last_level_cache_bytes=1)
        patch.setattr(Cpu, "of", lambda _target: cpu)
        patch.setattr(non_temporal, "_MIN_BYTES_PER_FENCE", 1)
        mod = build(inputs, emit)
        executable = relax.build(mod, resolve("native"), relax_pipeline=pipeline())
    got = call(relax.VirtualMachine(executable, tvm.cpu()), "main", x, y)
    moved = (x + x).transpose(axes)
    expected = np.concatenate([y, moved.reshape(-1)]) if has_offset else moved
    np.testing.assert_array_equal(got, expected)


if __name__ == "__main__":
    tvm.testing.main()
