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
"""The calls of cuBLAS on several devices, with a library that only counts."""

import subprocess
import sys
from pathlib import Path

import pytest
import tvm.testing

from tvm_fixes.target import cuda_libraries, resolve

CUBLAS = """
#include <stdint.h>
int handles, searches;
void* used;
int cublasLtCreate(void** handle) { *handle = (void*)(intptr_t)++handles; return 0; }
int cublasLtMatmul(void* handle) { used = handle; return 0; }
int cublasLtMatmulAlgoGetHeuristic(void* a, void* b, void* c, void* d, void* e, void* f, void* g,
                                   int wanted, void* results, int* count) {
  ++searches;
  *count = 1;
  return 0;
}
int cublasLtMatmulDescCreate(void** created) { return 0; }
int cublasLtMatmulDescSetAttribute(void* changed) { return 0; }
int cublasLtMatrixLayoutCreate(void** created) { return 0; }
int cublasLtMatrixLayoutSetAttribute(void* changed) { return 0; }
int cublasLtMatmulPreferenceCreate(void** created) { return 0; }
int cublasLtMatmulPreferenceSetAttribute(void* changed) { return 0; }
int cublasLtMatmulPreferenceDestroy(void* destroyed) { return 0; }
"""

CUDNN = """
#include <string.h>
int calls, broken = 1;
struct Performance { int algorithm, status; float time; unsigned long memory; int rest[5]; };
int cudnnCreate(void** handle) { return 0; }
int cudnnSetStream(void* handle, void* stream) { return 0; }
int cudnnCreateTensorDescriptor(void** created) { return 0; }
int cudnnSetTensorNdDescriptorEx(void* changed) { return 0; }
int cudnnCreateFilterDescriptor(void** created) { return 0; }
int cudnnSetFilterNdDescriptor(void* changed) { return 0; }
int cudnnCreateConvolutionDescriptor(void** created) { return 0; }
int cudnnSetConvolutionNdDescriptor(void* changed) { return 0; }
int cudnnSetConvolutionGroupCount(void* changed) { return 0; }
int cudnnSetConvolutionMathType(void* changed) { return 0; }
int cudnnGetConvolutionForwardAlgorithm_v7(void* a, void* b, void* c, void* d, void* e, int most,
                                           int* count, struct Performance* found) {
  *count = 3;
  memset(found, 0, 3 * sizeof *found);
  for (int i = 0; i < 3; ++i) found[i].algorithm = i;
  found[1].memory = 1 << 30;
  return 0;
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(void* a) { return 1; }
int cudnnConvolutionForward(void* a, void* b, void* c, void* d, void* e, void* f, void* g,
                            int algorithm) {
  ++calls;
  return algorithm < broken ? 2000 : 0;
}
int cudnnConvolutionBackwardData(void* a) { return 1; }
"""

PRELUDE = """
import ctypes, sys

# PyTorch for CUDA would load the real library first.
sys.modules["torch"] = None
import numpy as np
import tvm
import tvm_ffi

fake = ctypes.CDLL(sys.argv[1])
value = lambda name, kind=ctypes.c_int: kind.in_dll(fake, name).value
current = []
tvm_ffi.register_global_func("__tvm_set_device", lambda *device: current.append(device), True)
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class OnDevice:
    def __init__(self, array, device):
        self.array, self.device = array, device

    def __dlpack__(self, **_):
        capsule = self.array.__dlpack__()
        place = pointer_of(capsule, b"dltensor")
        # The address of the data comes first, then the device.
        (ctypes.c_int32 * 2).from_address(place + 8)[:] = [2, self.device]
        return capsule

    def __dlpack_device__(self):
        return (2, self.device)


functions = tvm_ffi.load_module(sys.argv[2])
"""

MULTIPLY = """
multiply = functions["tvm_fixes_cublas_matmul"]
memory = np.zeros(512, "uint8")
start = -memory.ctypes.data % 256


def call(device, offset):
    bias = memory[start + offset :][:16].view("float32")
    matrix = memory[start:][:64].view("float32").reshape(4, 4)
    arrays = [matrix, matrix, bias, matrix, memory]
    x, y, bias, out, workspace = (tvm_ffi.from_dlpack(OnDevice(each, device)) for each in arrays)
    multiply(x, y, bias, tvm_ffi.Shape([0, 0]), out, workspace)
    return value("used", ctypes.c_void_p)


print([call(device, 0) for device in (1, 0, 1)], current)
before = value("searches")
call(1, 4)
call(1, 20)
print(value("searches") - before)
"""


CONVOLVE = """
x, out, workspace = (
    tvm_ffi.from_dlpack(OnDevice(np.zeros(shape, dtype), 0))
    for shape, dtype in (((1, 4, 8, 8), "float16"), ((1, 4, 8, 8), "float16"), (64, "uint8"))
)
weight = tvm_ffi.from_dlpack(OnDevice(np.zeros((4, 4, 1, 1), "float16"), 0))
options = tvm_ffi.Shape([0, 0, 1, 0, 0, 1, 1, 1, 1])


def call():
    before = value("calls")
    functions["tvm_fixes_cudnn_convolution"](x, weight, options, out, workspace)
    return value("calls") - before


print(call(), call())
ctypes.c_int.in_dll(fake, "broken").value = 3
try:
    call()
except RuntimeError as error:
    print(error)
"""


def run(folder: Path, name: str, fake_source: str, calls_source: str) -> list[str]:
    """Return the lines that a program prints if a fake replaces the NVIDIA library it calls."""
    source, fake = folder / "fake.c", folder / name
    source.write_text(fake_source)
    shared = ["cc", "-shared", "-fPIC", "-o"]
    soname = f"-Wl,-soname,{fake.name}"
    subprocess.run([*shared, str(fake), soname, str(source)], check=True)
    arguments = cuda_libraries.link_arguments(resolve("cuda/sm_90+cublas+cudnn"))
    calls = str(folder / "calls.so")
    linked = [*arguments["options"], *arguments["addons"], "-lstdc++"]
    subprocess.run([*shared, calls, *linked], check=True)
    caller = [sys.executable, "-c", PRELUDE + calls_source, str(fake), calls]
    return subprocess.run(caller, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> list[str]:
    return run(tmp_path_factory.mktemp("cublas"), "libcublasLt.so.13", CUBLAS, MULTIPLY)


def test_each_device_has_a_handle_and_becomes_the_current_one(lines):
    assert lines[0] == "[1, 2, 1] [(2, 1), (2, 0), (2, 1)]"


def test_the_alignment_of_the_bias_is_part_of_the_choice(lines):
    assert lines[1] == "1"


def test_an_algorithm_that_fails_is_replaced(tmp_path):
    """The next call uses the same one; an algorithm that needs more memory is not tried."""
    counts, error = run(tmp_path, "libcudnn.so.9", CUDNN, CONVOLVE)
    assert counts == "2 1"
    assert "cudnnConvolutionForward failed with status 2000" in error


if __name__ == "__main__":
    tvm.testing.main()
