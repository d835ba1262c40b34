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
"""Kernels take tensors that are aligned as malloc aligns them."""

import ctypes
import mmap
import platform

import numpy as np
import pytest
import tvm
import tvm.testing
import tvm_ffi
from tvm.script import ir as I
from tvm.script import tirx as T

from helpers.models import onnx_conv
from helpers.onnx_graphs import normal, program
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.support import switches
from tvm_fixes.support.isolate import OutcomeKind, run_forked
from tvm_fixes.tirx.transform import LowerAlignment
from tvm_fixes.tirx.transform.lower_alignment import FIX_ID, alignment_of


@I.ir_module
class Before:
    @T.prim_func(s_tir=True)
    def main(a: T.handle, b: T.handle, y: T.Buffer((4, 16), "float32")):
        x = T.match_buffer(a, (4, 16), "float32")
        w = T.match_buffer(b, (16,), "int8", align=8)
        for i in range(4):
            with T.sblock("row"):
                v_i = T.axis.spatial(4, i)
                row = T.match_buffer(x[v_i, 0:16], (16,), "float32", offset_factor=1)
                for k in T.vectorized(16):
                    y[v_i, k] = row[k] + T.float32(w[k])


@I.ir_module
class Expected:
    @T.prim_func(s_tir=True)
    def main(a: T.handle, b: T.handle, y: T.Buffer((4, 16), "float32", align=16)):
        x = T.match_buffer(a, (4, 16), "float32", align=16)
        w = T.match_buffer(b, (16,), "int8", align=8)
        for i in range(4):
            with T.sblock("row"):
                v_i = T.axis.spatial(4, i)
                row = T.match_buffer(x[v_i, 0:16], (16,), "float32", align=16, offset_factor=1)
                for k in T.vectorized(16):
                    y[v_i, k] = row[k] + T.float32(w[k])


def lowered(mod: tvm.IRModule, target: str = "llvm") -> tvm.IRModule:
    with tvm.target.Target(target):
        return LowerAlignment()(mod)


def test_before_and_after() -> None:
    tvm.ir.assert_structural_equal(lowered(Before), Expected)
    assert lowered(Expected).same_as(Expected)
    assert (alignment_of(Before), alignment_of(Expected)) == (64, 16)
    assert alignment_of(tvm.IRModule()) == 1


def test_other_targets_and_the_switch() -> None:
    assert lowered(Before, "cuda").same_as(Before)
    with switches.without([FIX_ID]):
        assert lowered(Before).same_as(Before)


def read_only(array: np.ndarray) -> np.ndarray:
    """A copy at a multiple of 16, but not of 32 bytes, in memory that nothing can write."""
    pages = mmap.mmap(-1, array.nbytes + 16)
    copy = np.ndarray(array.shape, array.dtype, pages, 16)
    copy[...] = array
    start = ctypes.c_void_p(copy.ctypes.data - 16)
    assert ctypes.CDLL(None).mprotect(start, array.nbytes + 16, mmap.PROT_READ) == 0
    return copy


# SSE is stricter than AVX about the operands of its instructions.
TARGETS = ["native", *(["x86_64/x86-64-v2"] if platform.machine() == "x86_64" else [])]

MODELS = {
    "convolution": lambda: onnx_conv((2, 3, 8, 8)),
    "product": lambda: program(
        {"y": ("MatMul", ["x", "w"])}, {"x": ("float32", (5, 64))}, {"w": normal(64, 48)}
    ),
    "softmax": lambda: program({"y": ("Softmax", ["x"])}, {"x": ("float32", (5, 64))}),
    "reshape": lambda: program(
        {"r": ("Reshape", ["x", "s"]), "y": ("ReduceSum", ["r"])},
        {"x": ("float32", (64, 64))},
        {"s": np.array([128, 32])},
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_inputs_are_read_where_they_are(name: str, target: str) -> None:
    """In a child: to write into an input, or to expect more alignment, is a crash."""
    model = compile_model(MODELS[name](), target=target, compare=False)
    assert model.manifest.alignment == 16
    function = model._library.machine["main"]
    x = normal(*model.inputs[0].shape)
    expected = np.from_dlpack(function(tvm.runtime.tensor(x)))

    def run() -> bool:
        got = np.from_dlpack(function(tvm_ffi.from_dlpack(read_only(x))))
        return np.array_equal(got, expected)

    outcome = run_forked(run, timeout=60)
    assert outcome.kind is OutcomeKind.VALUE, outcome
    assert outcome.value


if __name__ == "__main__":
    tvm.testing.main()
