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
"""The runtimes. Each loads only its own libraries."""

import gc
import os
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from . import peaks
from .protocol import EXPECTED, ONNX, QUANTIZED_EXPECTED, QUANTIZED_ONNX, Job, library


class Runtime(Protocol):
    """Runs cases, in its own process.

    Attributes
    ----------
    facts : dict
        Results besides the time, available once a case is open.
    """

    facts: dict[str, Any]

    def open(self, job: Job) -> Callable[[], Any]:
        """Prepare the case; return a function that runs it once and returns its output."""
        ...

    def to_numpy(self, output: Any) -> np.ndarray:
        """Convert an output to an array."""
        ...

    def expected(self, job: Job) -> np.ndarray:
        """Return the expected output."""
        ...

    def close(self) -> None:
        """Release the case."""
        ...


class _FileRuntime:
    """A runtime that reads the files of the case, and keeps nothing between cases.

    Parameters
    ----------
    expected : str
        The file of the expected output.
    """

    def __init__(self, expected: str = EXPECTED) -> None:
        self.facts: dict[str, Any] = {}
        self._expected = expected

    def expected(self, job: Job) -> np.ndarray:
        return np.load(job.folder / self._expected)

    def close(self) -> None:
        gc.collect()


class Eager(_FileRuntime):
    """PyTorch in eager mode."""

    def open(self, job: Job) -> Callable[[], Any]:
        import torch

        from .cases import CASES

        torch.set_num_threads(job.threads)
        torch.set_grad_enabled(False)
        module, inputs = CASES[job.case].make()
        return self._ready(module, inputs)

    def _ready(self, module: Any, inputs: tuple[Any, ...]) -> Callable[[], Any]:
        return lambda: module(*inputs)

    def to_numpy(self, output: Any) -> np.ndarray:
        return output.numpy()


class Compiled(Eager):
    """PyTorch with ``torch.compile``."""

    def _ready(self, module: Any, inputs: tuple[Any, ...]) -> Callable[[], Any]:
        import torch

        compiled = torch.compile(module)
        compiled(*inputs)  # the first call compiles
        return lambda: compiled(*inputs)

    def close(self) -> None:
        import torch

        torch.compiler.reset()
        super().close()


class OnnxRuntime(_FileRuntime):
    """ONNX Runtime.

    Parameters
    ----------
    model, expected : str
        The files of the model and of the expected output.
    """

    def __init__(self, model: str = ONNX, expected: str = EXPECTED):
        super().__init__(expected)
        self._model = model

    def open(self, job: Job) -> Callable[[], Any]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = job.threads
        options.inter_op_num_threads = 1
        if job.threads > 1:
            # One core per thread, except the first thread; ONNX Runtime counts cores from 1.
            others = sorted(os.sched_getaffinity(0))[1 : job.threads]
            affinities = ";".join(str(core + 1) for core in others)
            options.add_session_config_entry("session.intra_op_thread_affinities", affinities)
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            str(job.folder / self._model), options, providers=["CPUExecutionProvider"]
        )
        names = [spec.name for spec in session.get_inputs()]
        feed = dict(zip(names, job.inputs(), strict=True))
        return lambda: session.run(None, feed)[0]

    def to_numpy(self, output: Any) -> np.ndarray:
        return output


class Library(_FileRuntime):
    """A TVM library in TVM's virtual machine.

    Parameters
    ----------
    runtime : str
        The runtime whose library it is.
    expected : str
        The file of the expected output.
    """

    def __init__(self, runtime: str, expected: str = EXPECTED):
        super().__init__(expected)
        self._file = library(runtime)

    def open(self, job: Job) -> Callable[[], Any]:
        import tvm
        from tvm import relax

        loaded = tvm.runtime.load_module(str(job.folder / self._file))
        main = relax.VirtualMachine(loaded, tvm.cpu())["main"]
        inputs = [tvm.runtime.tensor(array) for array in job.inputs()]
        return lambda: main(*inputs)

    def to_numpy(self, output: Any) -> np.ndarray:
        return output.numpy()


class Peak:
    """A kernel that reaches one of the machine's peaks; the same for every case."""

    def __init__(self, make: Callable[[Job], peaks.Kernel]):
        self._make = make
        self._kernel: peaks.Kernel | None = None
        self.facts: dict[str, Any] = {}

    def open(self, job: Job) -> Callable[[], Any]:
        if self._kernel is None:
            self._kernel = self._make(job)
            self.facts = {"amount": self._kernel.amount}
            if not np.array_equal(self._kernel.run().numpy(), self._kernel.expected):
                raise RuntimeError("the kernel's output is wrong")
        return self._kernel.run

    def to_numpy(self, output: Any) -> np.ndarray:
        """Return the first element; `open` compared the whole output."""
        return output.numpy().reshape(-1)[:1]

    def expected(self, job: Job) -> np.ndarray:
        assert self._kernel is not None
        return self._kernel.expected.flat[:1]

    def close(self) -> None:
        """Keep the kernel for the next case."""


RUNTIMES: dict[str, Callable[[], Runtime]] = {
    "eager": Eager,
    "compiled": Compiled,
    "ort": OnnxRuntime,
    "stock": lambda: Library("stock"),
    "ours": lambda: Library("ours"),
    "ort-quantized": lambda: OnnxRuntime(QUANTIZED_ONNX, QUANTIZED_EXPECTED),
    "stock-quantized": lambda: Library("stock-quantized", QUANTIZED_EXPECTED),
    "ours-quantized": lambda: Library("ours-quantized", QUANTIZED_EXPECTED),
    "fma": lambda: Peak(peaks.fused_multiply_add),
    "triad": lambda: Peak(peaks.triad),
}
"""The runtimes by name; the last two measure the machine's peaks."""
