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
"""Runs the libraries that :mod:`benchmarks.gpu.build` wrote, on a GPU, next to PyTorch.

TVM's runtime suffices here; the compiler may be missing.
"""

import ctypes
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import tvm
from torch import nn
from tvm.runtime.vm import VirtualMachine

from .cases import GPU_CASES, TOLERANCES, VARIANTS, GpuCase

Run = Callable[..., torch.Tensor]

_MIN_SECONDS = 0.01
_TURNS = 5


def check(cases: Sequence[str], folder: Path, workers: int) -> list[dict[str, Any]]:
    """Compare the libraries of each case with PyTorch, in several processes."""
    parts = [part for i in range(workers) if (part := list(cases)[i::workers])]
    with ThreadPoolExecutor(workers) as pool:
        rows = pool.map(lambda part: _in_processes("check", part, folder), parts)
        return [row for part in rows for row in part]


def measure(cases: Sequence[str], folder: Path, compiles: bool) -> list[dict[str, Any]]:
    """Time each library and PyTorch, and also its compiler if `compiles`, in one process."""
    if compiles:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(lambda case: _in_processes("compile", [case], folder), cases))
    return _in_processes("measure-compiled" if compiles else "measure", cases, folder)


def _in_processes(what: str, cases: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """Handle all cases in a process; if it dies, go on in a new one without the failed case.

    After an error of a kernel, CUDA no longer works in the process, which ends.
    """
    rows: list[dict[str, Any]] = []
    left: dict[str, list[str]] = {case: [] for case in cases}
    while left:
        command = [sys.executable, "-m", __name__, what, str(folder), json.dumps(left)]
        ended = subprocess.run(command, capture_output=True, text=True)
        measured = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
        rows += measured
        is_explained = False
        for row in measured:
            if row.get("last"):
                del left[row["case"]]
                is_explained = False
            elif "failure" in row and row["variant"] not in left[row["case"]]:
                left[row["case"]].append(row["variant"])
                is_explained = True
        if left and not is_explained:
            case = next(iter(left))
            said = (ended.stderr.strip().splitlines() or ["no message"])[-1]
            rows.append({"case": case, "crash": f"status {ended.returncode}: {said}"})
            del left[case]
    return rows


def _tell(**row: Any) -> None:
    print(json.dumps(row), flush=True)


def _load(path: Path) -> Run:
    """The model in a library, from PyTorch's tensors to a PyTorch tensor."""
    machine = VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cuda())
    main = machine["main"]

    def run(*inputs: torch.Tensor) -> torch.Tensor:
        output = main(*(tvm.runtime.from_dlpack(x) for x in inputs))
        return torch.from_dlpack(output)

    return run


def _libraries(
    case: GpuCase, folder: Path, failed: Sequence[str]
) -> Iterator[tuple[str, Run | str]]:
    """Yield each library of a case, or why it does not load, except those that failed before."""
    for variant in (name for name in VARIANTS if name not in failed):
        path = folder / case.library(variant)
        if path.exists():
            try:
                yield variant, _load(path)
            except Exception as error:
                yield variant, _text(error)


def _text(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"


def _end_if_broken() -> None:
    """End this process if an error of a kernel makes all further CUDA calls fail."""
    try:
        torch.cuda.synchronize()
    except Exception:
        # The destructors would fail too.
        os._exit(1)


def _on_gpu(case: GpuCase) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    module, inputs = case.make()
    return module.cuda(), tuple(x.cuda().contiguous() for x in inputs)


def _error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, relative to the largest expected magnitude."""
    if actual.shape != expected.shape:
        raise ValueError(f"expected shape {tuple(expected.shape)}, got {tuple(actual.shape)}")
    difference = (actual.double() - expected.double()).abs().max()
    return float(difference / expected.double().abs().max().clamp_min(1e-30))


def _check(case: GpuCase, folder: Path, failed: Sequence[str]) -> None:
    """Compare each library with PyTorch in float32, on two inputs in turn."""
    module, inputs = _on_gpu(case)
    others = tuple(x.roll(1, -1) if x.is_floating_point() else x for x in inputs)
    outputs = [module(*some) for some in (inputs, others)]
    module = module.float()
    exact = [
        module(*(x.float() if x.is_floating_point() else x for x in some))
        for some in (inputs, others)
    ]
    torch_error = max(map(_error, outputs, exact))
    limit = max(TOLERANCES[case.dtype], 2 * torch_error)
    for variant, run in _libraries(case, folder, failed):
        row = {"case": case.name, "variant": variant, "pytorch": torch_error, "limit": limit}
        if isinstance(run, str):
            _tell(**row, failure=run)
            continue
        try:
            # The second time, captured CUDA graphs are replayed.
            got = [run(*some).clone() for _ in range(2) for some in (inputs, others)]
            torch.cuda.synchronize()
            error = max(map(_error, got, exact * 2))
            largest = float(exact[0].double().abs().max())
            _tell(**row, error=error, equal=error <= limit, largest=largest)
        except Exception as error:
            _tell(**row, failure=_text(error))
            _end_if_broken()
    _tell(case=case.name, last=True)


def _measure(case: GpuCase, folder: Path, compiles: bool, failed: Sequence[str]) -> None:
    module, inputs = _on_gpu(case)
    runs: dict[str, Run | str] = {"eager": module}
    if compiles:
        try:
            runs["compiled"] = _compiled(module, inputs)
        except Exception as error:
            runs["compiled"] = _text(error)
    runs |= dict(_libraries(case, folder, failed))
    able: dict[str, Callable[[], Any]] = {}
    for name, run in runs.items():
        try:
            if isinstance(run, str):
                raise RuntimeError(run)
            for _ in range(3):
                run(*inputs)
            torch.cuda.synchronize()
            able[name] = lambda run=run: run(*inputs)  # type: ignore[misc]
        except Exception as error:
            _tell(case=case.name, variant=name, failure=_text(error))
            _end_if_broken()
    counts = {name: max(1, int(_MIN_SECONDS / _seconds(run, 3))) for name, run in able.items()}
    times: dict[str, list[float]] = {name: [] for name in able}
    for turn in range(_TURNS):
        for name in list(able)[:: 1 if turn % 2 else -1]:
            times[name].append(_seconds(able[name], counts[name]))
    for name, seconds in times.items():
        _tell(case=case.name, variant=name, seconds=statistics.median(seconds), all=seconds)
    moved = sum(x.nbytes for x in (*inputs, module(*inputs), *module.parameters()))
    _tell(case=case.name, bytes=moved, last=True)


def _seconds(run: Callable[[], Any], count: int) -> float:
    """The mean time of a run, from its first kernel to its last."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(count):
        run()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3 / count


def _compiled(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Run:
    """PyTorch's compiler with CUDA graphs, its fastest mode for one input after another."""
    compiled = torch.compile(module, mode="reduce-overhead")
    for _ in range(3):
        compiled(*inputs)
    return compiled


def device() -> str:
    """The GPU, its compute capability, and the version of PyTorch."""
    version = ".".join(map(str, torch.cuda.get_device_capability()))
    return f"{torch.cuda.get_device_name()} ({version}), PyTorch {torch.__version__}"


def peaks() -> dict[str, float]:
    """The rates that PyTorch reaches: bytes copied, and float16 and float32 FLOPs, per second."""
    data = torch.empty(1 << 29, dtype=torch.float32, device="cuda").normal_()
    target = torch.empty_like(data)
    seconds = min(_seconds(lambda: target.copy_(data), 10) for _ in range(_TURNS))
    peaks = {"copy": 2 * data.nbytes / seconds}
    for dtype, size in ((torch.float16, 8192), (torch.float32, 4096)):
        a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
        a @ b
        peaks[str(dtype).removeprefix("torch.")] = 2 * size**3 / _seconds(lambda: a @ b, 10)  # noqa: B023
    return peaks


def load_cuda_runtime() -> None:
    """Load TVM's runtime for CUDA; ``import tvm`` leaves it out without the compiler."""
    if not tvm.cuda().exist:
        library = Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


def _main(what: str, folder: str, names: str) -> None:
    load_cuda_runtime()
    torch.set_grad_enabled(False)
    # Products of float32 are exact here, as in TVM.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for name, failed in json.loads(names).items():
        case = GPU_CASES[name]
        if what == "check":
            _check(case, Path(folder), failed)
        elif what == "compile":
            _compiled(*_on_gpu(case))
            _tell(case=case.name, last=True)
        else:
            _measure(case, Path(folder), what.endswith("compiled"), failed)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    _main(*sys.argv[1:])
