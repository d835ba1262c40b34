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
"""CUDA: compilation of kernels, and whether they can run on this machine.

Upstream
    None known.
Versions
    Seen in 0.27.0.post1.
Trigger
    ``relax.build`` for CUDA on a machine without a GPU driver, such as a build server; on any
    machine, the sine or the hyperbolic tangent of a float32.
Symptom
    The library contains the source of its kernels, and needs a compiler whenever it is loaded; the
    sine of a large angle is wrong, and small numbers become zero.
Mechanism
    TVM compiles kernels only if its CUDA runtime is loaded, which needs a driver, and always with
    ``--use_fast_math``.
How to remove
    When TVM compiles kernels everywhere and without that option, replace :func:`build` by
    ``relax.build``, and delete ``src/runtime/compile_cuda_module.cc`` with the rest.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from .. import _ffi
from ..errors import CompileError
from . import cuda_libraries

Compiler = Callable[[str], bytes]
"""A function from CUDA source to a cubin, the code that a GPU executes."""

# The libraries that libtvm_runtime_cuda.so links against, and the packages that provide them.
_LIBRARIES = {"libcuda.so.1": "the GPU driver", "libcudart.so.13": "CUDA 13"}

# A header of each package that generated code includes.
_HEADERS = ("cuda_fp16.h", "cuda/std/cstdint")

_FORCE_PLACEHOLDER = "TVM_COMPILE_FORCE_FALLBACK"


def has_device() -> bool:
    """Whether this machine has a GPU that TVM's CUDA runtime can use."""
    return _has_runtime() and bool(tvm.cuda().exist)


def why_not_here(arch: str, libraries: Iterable[str] = ()) -> str | None:
    """Return why code for a GPU cannot run here, or None if it can.

    Parameters
    ----------
    arch : str
        The architecture of the kernels, e.g. ``"sm_90"``.
    libraries : iterable of str
        The names in :data:`~tvm_fixes.target.cuda_libraries.LIBRARIES` that the code needs; this
        loads them.
    """
    if not _has_runtime():
        missing = [
            f"{name} (from {part})"
            for name, part in _LIBRARIES.items()
            if not cuda_libraries.loads(name)
        ]
        if missing:
            return f"TVM's CUDA runtime does not load without {' and '.join(missing)}"
        return "TVM was loaded without its CUDA runtime"
    if not has_device():
        return "no CUDA device found"
    device, wanted = capability(str(tvm.cuda().compute_version)), capability(arch)
    # Code also runs on later GPUs of the same generation, unless the architecture has a suffix.
    same = device == wanted
    if same or (device[0] == wanted[0] and device > wanted and not arch[-1].isalpha()):
        return cuda_libraries.load(libraries)
    return f"it is for {arch}, but the GPU is sm_{device[0]}{device[1]}"


def capability(text: str) -> tuple[int, int]:
    """Return the compute capability of ``"sm_90a"`` or ``"9.0"`` as two numbers."""
    digits = "".join(filter(str.isdigit, text))
    return int(digits[:-1]), int(digits[-1])


def find_compiler(arch: str) -> Compiler:
    """Return a compiler of kernels for `arch`: NVRTC if it loads and has headers, else nvcc.

    The compiler raises a CompileError for source that it rejects.

    Raises
    ------
    CompileError
        If neither is available.
    """
    options = [f"--gpu-architecture={arch}", *(f"-I{path}" for path in _include_paths())]
    if len(options) > 1 and _nvrtc_loads():
        return partial(_compile_with_nvrtc, options)
    if (nvcc := shutil.which("nvcc")) is not None:
        return partial(_compile_with_nvcc, [nvcc, options[0]])
    raise CompileError(
        "no CUDA compiler found: install NVRTC and its headers with pip install "
        "'.[cuda]' in a clone of tvm-fixes, or the CUDA 13 toolkit with nvcc on PATH"
    )


def build(
    mod: tvm.IRModule, target: tvm.target.Target, relax_pipeline: str | None = None
) -> relax.VMExecutable:
    """Build a module into an executable that contains the code of its kernels.

    Parameters
    ----------
    mod : tvm.IRModule
        The result of the last stage of :func:`tvm_fixes.lowering.stages`, if there is no
        `relax_pipeline`.
    target : tvm.target.Target
        A target of kind ``cuda``.
    relax_pipeline : str, optional
        A pipeline of TVM that lowers the module.

    Returns
    -------
    executable : relax.VMExecutable
        Export it: TVM can run the kernels after it loads the exported library.

    Raises
    ------
    CompileError
        If no compiler is available, or it rejects a kernel.
    """
    compiler = find_compiler(str(target.attrs["arch"]))
    with placeholders():
        executable = relax.build(mod, target, relax_pipeline=relax_pipeline)
    _compile_imports(executable.mod, compiler)
    return executable


def _compile_imports(module: tvm.runtime.Module, compiler: Compiler) -> None:
    """Compile the CUDA source that `module` and its imports import."""
    imported = list(module.imports)
    for inner in imported:
        _compile_imports(inner, compiler)
    if not any(inner.kind == "cuda" for inner in imported):
        return
    replace = _ffi.get("tvm_fixes.runtime.CompileCudaModule")
    module.clear_imports()
    for inner in imported:
        module.import_module(replace(inner, "cubin", compiler) if inner.kind == "cuda" else inner)


@contextmanager
def placeholders() -> Iterator[None]:
    """Make TVM keep the source of kernels instead of compiling them."""
    before = os.environ.get(_FORCE_PLACEHOLDER)
    os.environ[_FORCE_PLACEHOLDER] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FORCE_PLACEHOLDER]
        else:
            os.environ[_FORCE_PLACEHOLDER] = before


def _compile_with_nvcc(command: list[str], source: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="tvm-fixes-") as folder:
        kernels, cubin = Path(folder, "kernels.cu"), Path(folder, "kernels.cubin")
        kernels.write_text(source)
        command = [*command, "--cubin", "--expt-relaxed-constexpr", str(kernels), "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise CompileError(_rejection("nvcc", done.stderr or done.stdout, source))
        return cubin.read_bytes()


def _compile_with_nvrtc(options: list[str], source: str) -> bytes:
    from cuda.bindings import nvrtc

    arguments = [option.encode() for option in [*options, "-default-device", "--device-int128"]]
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, None, None))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(arguments), arguments)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
            _checked(nvrtc.nvrtcGetProgramLog(program, log))
            raise CompileError(_rejection("NVRTC", log.decode(errors="replace"), source))
        code = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, code))
        return bytes(code)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _checked(result: tuple[Any, ...]) -> Any:
    """Return the value that an NVRTC function returns after its status.

    Raises
    ------
    CompileError
        If the status is an error.
    """
    status, *values = result
    if status != type(status).NVRTC_SUCCESS:
        raise CompileError(f"NVRTC failed: {status.name}")
    return values[0] if values else None


def _rejection(name: str, log: str, source: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    reason = next((line for line in lines if "error" in line), lines[0] if lines else "no reason")
    kernel = _kernel_at(reason, source)
    what = "the kernels" if kernel is None else f"kernel {kernel!r}"
    return f"{name} failed to compile {what}: {reason}"


def _kernel_at(reason: str, source: str) -> str | None:
    """The kernel that a message is about: it names a line of the source, or the kernel itself."""
    named = re.search(r"[Ff]unction '(\w+)'", reason)
    if named is not None:
        return named.group(1)
    line = re.match(r".*?\.cu\((\d+)\)", reason)
    if line is None:
        return None
    before = "\n".join(source.splitlines()[: int(line.group(1))])
    names = re.findall(r"__global__ .*?(\w+)\([^()]*\) \{", before)
    return names[-1] if names else None


def _nvrtc_loads() -> bool:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError):
        return False
    return True


def _include_paths() -> list[Path]:
    """Return the header folders of ``CUDA_PATH``, NVIDIA's wheels or nvcc's toolkit.

    The list is empty if headers are missing.
    """
    for root in _roots():
        inner = [root / "include", *sorted(root.glob("targets/*-linux/include"))]
        paths = [path for top in inner for path in (top, top / "cccl") if path.is_dir()]
        if all(any((path / header).is_file() for path in paths) for header in _HEADERS):
            return paths
    return []


def _roots() -> Iterator[Path]:
    if "CUDA_PATH" in os.environ:
        yield Path(os.environ["CUDA_PATH"])
        return
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels.submodule_search_locations or ()) if wheels is not None else ():
        yield Path(folder) / "cu13"
    if (nvcc := shutil.which("nvcc")) is not None:
        yield Path(os.path.realpath(nvcc)).parents[1]
    yield Path("/usr/local/cuda")


def _has_runtime() -> bool:
    return tvm.get_global_func("device_api.cuda", allow_missing=True) is not None
