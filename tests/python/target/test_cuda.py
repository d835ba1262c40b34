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
"""tvm_fixes.target.cuda, and models compiled for a GPU; most tests do not need one."""

import json
import platform
import shutil
import struct

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from torch import nn
from tvm import relax, tirx

from helpers.grids import is_full
from tvm_fixes import CompiledModel, _ffi, transform
from tvm_fixes import compile as compile_model
from tvm_fixes.errors import ArtifactError, CompileError, UsageError
from tvm_fixes.target import cuda, cuda_libraries, resolve

SOURCE = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'

CUDA = 190
"""The e_machine of an ELF file for a GPU."""


def compiles() -> bool:
    try:
        cuda.find_compiler("sm_90")
    except CompileError:
        return False
    return True


needs_compiler = pytest.mark.skipif(not compiles(), reason="neither NVRTC nor nvcc is installed")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 4, 4, stride=2)
        self.head = nn.Linear(4, 5)

    def forward(self, image):
        return self.head(self.up(image).relu().mean((2, 3)))


def net() -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    return Net().eval(), (torch.ones(1, 3, 6, 6),)


def machines(library: bytes) -> set[int]:
    """The e_machine of each ELF file in `library`."""
    found, start = set(), library.find(b"\x7fELF")
    while start >= 0:
        found.add(struct.unpack_from("<H", library, start + 18)[0])
        start = library.find(b"\x7fELF", start + 1)
    return found


@needs_compiler
def test_an_artifact_holds_code_and_no_source(tmp_path):
    compile_model(net(), target="cuda/sm_90", compare=False, output=tmp_path / "out")
    library = (tmp_path / "out" / "model.so").read_bytes()
    assert CUDA in machines(library)
    assert b"__global__" not in library
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["target"]["kind"] == "cuda"
    assert manifest["target"]["arch"] == "sm_90"


@needs_compiler
@pytest.mark.skipif(not cuda.has_device(), reason="there is no GPU")
@pytest.mark.parametrize("weights", ["inside", "outside"])
def test_on_the_gpu_of_this_machine(weights, tmp_path):
    model = compile_model(net(), target="cuda", weights=weights, output=tmp_path / "out")
    assert model.report.equal
    module, inputs = net()
    loaded = CompiledModel.load(tmp_path / "out")
    torch.testing.assert_close(loaded.run(*inputs), module(*inputs).detach())


@needs_compiler
def test_the_report_lists_rules_that_failed():
    module = nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.ReLU()).eval()
    options = {"target": "cuda/sm_90", "compare": False}
    model = compile_model((module, (torch.ones(1, 4, 6, 6),)), **options)
    [line] = model.report.fallbacks
    assert "instead of Reduction (" in line
    assert "Cross-thread reduction requires" in line
    linear = compile_model((nn.Linear(4, 5).eval(), (torch.ones(3, 4),)), **options)
    assert linear.report.to_dict()["fallbacks"] == []


@needs_compiler
def test_weights_outside(tmp_path):
    options = {"target": "cuda/sm_90", "compare": False, "weights": "outside"}
    module = nn.Linear(64, 64).eval(), (torch.ones(3, 64),)
    model = compile_model(module, output=tmp_path / "out", **options)
    assert model.manifest.weights.size > 64 * 64 * 4


@needs_compiler
@pytest.mark.skipif(cuda.has_device(), reason="there is a GPU")
def test_where_there_is_no_gpu(tmp_path):
    with pytest.raises(
        UsageError, match=r"cannot compare: the library does not run here: .*(CUDA|GPU)"
    ):
        compile_model(net(), target="cuda/sm_90")
    model = compile_model(net(), target="cuda/sm_90", compare=False, output=tmp_path / "out")
    with pytest.raises(ArtifactError, match="cannot run here"):
        model.run(np.ones((1, 3, 6, 6), "float32"))
    with pytest.raises(ArtifactError, match="cannot run here"):
        CompiledModel.load(tmp_path / "out")


def test_no_compiler_is_an_error_before_the_work(monkeypatch):
    monkeypatch.setattr(cuda, "_nvrtc_loads", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    steps = []
    with pytest.raises(CompileError) as error:
        compile_model(net(), target="cuda/sm_90", compare=False, progress=steps.append)
    assert error.value.message == (
        "no CUDA compiler found: install NVRTC and its headers with pip install "
        "'.[cuda]' in a clone of tvm-fixes, or the CUDA 13 toolkit with nvcc on PATH"
    )
    assert {step.name for step in steps} == {"load"}


@needs_compiler
def test_a_compiler_compiles_and_rejects():
    compiler = cuda.find_compiler("sm_90")
    assert machines(compiler(SOURCE)) == {CUDA}
    with pytest.raises(CompileError, match=r"failed to compile kernel 'wrong': .*error.*missing"):
        wrong = SOURCE.replace("twice", "__launch_bounds__(32) wrong").replace("x[", "missing[")
        compiler("\n".join([SOURCE, wrong, SOURCE.replace("twice", "again")]))
    with pytest.raises(CompileError, match=r"failed to compile the kernels: .*error"):
        compiler("#error")


@needs_compiler
def test_sine_is_not_the_fast_approximation():
    """TVM's own compilation uses it, without range reduction of large angles."""
    kernel = 'extern "C" __global__ void kernel(float* x) {{ x[0] = {}(x[1]); }}'
    compiler = cuda.find_compiler("sm_90")
    precise, fast = (len(compiler(kernel.format(sine))) for sine in ("sinf", "__sinf"))
    assert precise > fast + 500


@needs_compiler
@pytest.mark.parametrize(
    "libraries", ["", "+cublas+cudnn", *(["+cublas", "+cudnn"] if is_full() else [])]
)
def test_calls_of_libraries_are_linked_into_the_model(libraries, tmp_path):
    target = f"cuda/sm_90{libraries}"
    compile_model(net(), target=target, compare=False, output=tmp_path / "out")
    symbols = (tmp_path / "out" / "model.so").read_bytes()
    assert (b"tvm_fixes_cublas_matmul" in symbols) == ("cublas" in libraries)
    assert (b"tvm_fixes_cudnn_convolution" in symbols) == ("cudnn" in libraries)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["target"].get("libs", []) == libraries.split("+")[1:]


@pytest.mark.parametrize("function", ["cublas_matmul", "cudnn_convolution"])
def test_a_linked_call_checks_its_arguments(function, tmp_path):
    """The code that is linked into a model reports errors as tvm-ffi does."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 3), "float32"))
    workspace = relax.TensorType((8,), "uint8")
    with builder.function("main", [x]):
        call = relax.call_dps_packed(
            f"tvm_fixes_{function}", [x, x, relax.ShapeExpr([0, 0])], [x.ty, workspace]
        )
        builder.emit_func_output(relax.TupleGetItem(builder.emit(call), 0))
    arguments = cuda_libraries.link_arguments(resolve("cuda/sm_90+cublas+cudnn"))
    library = str(tmp_path / "model.so")
    relax.build(builder.get(), "llvm").export_library(library, **arguments)
    machine = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())
    with pytest.raises(RuntimeError, match=r"cu(BLAS|DNN): argument 0: expected a CUDA tensor"):
        machine["main"](tvm.runtime.tensor(np.ones((3, 3), "float32")))


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setattr(cuda_libraries, "loads", lambda file: "cublas" in file)
    assert cuda_libraries.load(["cublas"]) is None
    assert cuda_libraries.load(["cublas", "cudnn"]) == (
        "libcudnn.so.9 is missing; pip install nvidia-cudnn-cu13 provides it"
    )


def test_libraries_need_a_host_like_this_machine():
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    host = {"kind": "llvm", "mtriple": f"{other}-linux-gnu"}
    config = {"kind": "cuda", "arch": "sm_90", "host": host}
    assert resolve(config).host is not None
    with pytest.raises(UsageError, match=f"libraries are only called .*, got {other}"):
        resolve(config | {"libs": ["cublas"]})


def test_an_unknown_library_is_an_error():
    with pytest.raises(UsageError) as error:
        resolve("cuda/sm_90+cutlass")
    assert error.value.message == (
        "target 'cuda/sm_90+cutlass': unknown library 'cutlass'; expected cublas or cudnn"
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_factor_of_zero_compiles(dtype):
    """TVM would fold it, and takes the address of the number that hides it."""
    x, y = (tirx.decl_buffer((5,), dtype, name=name) for name in "xy")
    i = tirx.Var("i", "int32")
    thread = tirx.IterVar(tvm.ir.Range(0, 5), i, tirx.IterVar.ThreadIndex, "threadIdx.x")
    store = tirx.BufferStore(y, tirx.Mul(x[i], tirx.const(0.0, dtype)), [i])
    body = tirx.For(i, tirx.const(0), tirx.const(5), tirx.ForKind.THREAD_BINDING, store, thread)
    kernel = tirx.PrimFunc([x, y], body).with_attrs({"global_symbol": "kernel", "s_tir": True})
    mod = tvm.IRModule({"kernel": kernel})
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"}, host={"kind": "llvm"})
    with target, cuda.placeholders():
        mod = transform.GuardFloatArithmetic()(mod)
        [source] = [inner.inspect_source() for inner in tvm.tirx.build(mod, target).imports]
    assert "_as_" in source
    assert machines(cuda.find_compiler("sm_90")(source)) == {CUDA}


@pytest.mark.parametrize(
    "arch, fits",
    [("sm_90", True), ("sm_90a", True), ("sm_86", False), ("sm_100", False), ("sm_89", False)],
)
def test_code_for_another_gpu_is_rejected(monkeypatch, arch, fits):
    class Device:
        compute_version = "9.0"

    monkeypatch.setattr(cuda, "_has_runtime", lambda: True)
    monkeypatch.setattr(cuda, "has_device", lambda: True)
    monkeypatch.setattr(tvm, "cuda", Device)
    assert cuda.why_not_here(arch) == (None if fits else f"it is for {arch}, but the GPU is sm_90")


def test_older_code_of_the_same_generation_runs_but_not_its_variants(monkeypatch):
    class Device:
        compute_version = "8.9"

    monkeypatch.setattr(cuda, "_has_runtime", lambda: True)
    monkeypatch.setattr(cuda, "has_device", lambda: True)
    monkeypatch.setattr(tvm, "cuda", Device)
    assert cuda.why_not_here("sm_86") is None
    assert cuda.why_not_here("sm_86a") is not None


def test_missing_libraries_are_named(monkeypatch):
    monkeypatch.setattr(cuda, "_has_runtime", lambda: False)
    monkeypatch.setattr(cuda_libraries, "loads", lambda library: library == "libcudart.so.13")
    assert cuda.why_not_here("sm_90") == (
        "TVM's CUDA runtime does not load without libcuda.so.1 (from the GPU driver)"
    )


def test_only_modules_of_cuda_are_compiled():
    library = tvm.tirx.build(tvm.IRModule({}), "llvm")
    compile_module = _ffi.get("tvm_fixes.runtime.CompileCudaModule")
    with pytest.raises(Exception, match=r"SaveToBytes|expected a CUDA module"):
        compile_module(library, "cubin", lambda source: b"")


if __name__ == "__main__":
    tvm.testing.main()
