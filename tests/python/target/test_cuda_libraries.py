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

import pytest
import tvm.testing

from tvm_fixes.target import cuda_libraries, resolve

FAKE = """
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

CALLER = """
import ctypes, sys
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


multiply = tvm_ffi.load_module(sys.argv[2])["tvm_fixes_cublas_matmul"]
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


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("fake")
    source, fake = folder / "fake.c", folder / "libcublasLt.so.13"
    source.write_text(FAKE)
    shared = ["cc", "-shared", "-fPIC", "-o"]
    name = f"-Wl,-soname,{fake.name}"
    subprocess.run([*shared, str(fake), name, str(source)], check=True)
    arguments = cuda_libraries.link_arguments(resolve("cuda/sm_90+cublas"))
    calls = str(folder / "calls.so")
    linked = [*arguments["options"], *arguments["addons"], "-lstdc++"]
    subprocess.run([*shared, calls, *linked], check=True)
    caller = [sys.executable, "-c", CALLER, str(fake), calls]
    return subprocess.run(caller, check=True, capture_output=True, text=True).stdout.splitlines()


def test_each_device_has_a_handle_and_becomes_the_current_one(lines):
    assert lines[0] == "[1, 2, 1] [(2, 1), (2, 0), (2, 1)]"


def test_the_alignment_of_the_bias_is_part_of_the_choice(lines):
    assert lines[1] == "1"


if __name__ == "__main__":
    tvm.testing.main()
