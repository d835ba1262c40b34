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
"""Build the files that a case needs: its data, an ONNX file, and compiled models.

Each builder runs in its own process and writes its files to the folder of the case.
"""

import inspect
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from .protocol import (
    EXPECTED,
    INPUTS,
    ONNX,
    QUANTIZED_EXPECTED,
    QUANTIZED_ONNX,
    QUANTIZED_RUNTIMES,
    Job,
    library,
)

MAX_STEPS = 1.01
"""The maximum accepted error of a quantized output, in steps of its scale."""


def build_data(job: Job) -> dict[str, Any]:
    """Write the inputs and the expected output, and count FLOPs and bytes.

    Returns
    -------
    facts : dict
        ``flops``: those of the matrix products and convolutions; ``bytes``: the size of inputs,
        parameters and output; ``tolerance``: the accepted error, relative to the largest output.
    """
    import numpy as np
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from .cases import CASES

    case = CASES[job.case]
    module, inputs = case.make()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        output = module(*inputs)
    np.savez(job.folder / INPUTS, *(tensor.numpy() for tensor in inputs))
    np.save(job.folder / EXPECTED, output.numpy())
    tensors = [*inputs, *module.parameters(), output]
    return {
        "flops": counter.get_total_flops(),
        "bytes": sum(t.nbytes for t in tensors),
        "tolerance": case.max_error,
    }


def build_onnx(job: Job) -> dict[str, Any]:
    """Export the case to ONNX."""
    import onnx

    from examples.export import to_onnx

    with _cpu_time() as facts:
        onnx.save(to_onnx(_exported(job)), job.folder / ONNX)
    return facts


def build_quantized(job: Job) -> dict[str, Any]:
    """Export the case to ONNX, quantize it, and write the output of exact kernels.

    Returns
    -------
    facts : dict
        ``build``: the CPU time; ``tolerance``: the accepted error, relative to the largest output.
    """
    import numpy as np
    import onnx

    from examples import quantize
    from examples.export import to_onnx

    from .cases import CASES

    case = CASES[job.case]
    is_static = case.quantization == "static"
    with _cpu_time() as facts:
        model = to_onnx(_exported(job))
        if is_static:
            model = quantize.static(model, *job.inputs())
        elif case.quantization == "dynamic":
            model = quantize.dynamic(model)
        else:
            model = quantize.weights(model, int(case.quantization))
        onnx.save(model, job.folder / QUANTIZED_ONNX)
    expected = _exact_output(job, is_static)
    np.save(job.folder / QUANTIZED_EXPECTED, expected)
    steps = MAX_STEPS * quantize.output_step(model) / np.abs(expected).max()
    return facts | {"tolerance": max(float(steps), case.max_error)}


def build_stock(job: Job, runtime: str = "stock") -> dict[str, Any]:
    """Import and build the case, or its quantized model, with stock TVM.

    Raises
    ------
    RuntimeError
        If tvm-fixes is loaded, because it replaces TVM's lowerings.
    """
    import sys

    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx
    from tvm.relax.frontend.torch import from_exported_program

    facts = _build_library(job, runtime, from_exported_program, from_onnx, relax.build)
    if "tvm_fixes" in sys.modules:
        raise RuntimeError("tvm-fixes is loaded in the process that builds with stock TVM")
    return facts


def build_ours(job: Job, runtime: str = "ours") -> dict[str, Any]:
    """Import and build the case, or its quantized model, with tvm-fixes."""
    from tvm import relax

    import tvm_fixes
    from tvm_fixes.frontend.onnx import from_onnx
    from tvm_fixes.frontend.torch import from_exported_program

    build = partial(relax.build, relax_pipeline=tvm_fixes.pipeline())
    return _build_library(job, runtime, from_exported_program, from_onnx, build)


BUILDERS: dict[str, Callable[[Job], dict[str, Any]]] = {
    "data": build_data,
    "onnx": build_onnx,
    "stock-library": build_stock,
    "ours-library": build_ours,
    "onnx-quantized": build_quantized,
    "stock-quantized-library": partial(build_stock, runtime="stock-quantized"),
    "ours-quantized-library": partial(build_ours, runtime="ours-quantized"),
}
"""The builders, by the role of their worker process."""


def _exported(job: Job) -> Any:
    import torch

    from .cases import CASES

    case = CASES[job.case]
    module, inputs = case.make()
    dynamic = None
    if case.is_dynamic:
        dynamic = tuple({2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC} for _ in inputs)
        parameters = inspect.signature(module.forward).parameters.values()
        if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
            dynamic = (dynamic,)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns about its own code
        return torch.export.export(module, inputs, dynamic_shapes=dynamic)


def _exact_output(job: Job, is_static: bool) -> Any:
    """Run the quantized model in ONNX Runtime with kernels that do not saturate.

    Without the optimizer, a static model is computed in float32.  A dynamic model has integer
    operators, and the optimizer makes their weights unsigned.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if is_static:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    else:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(
        str(job.folder / QUANTIZED_ONNX), options, providers=["CPUExecutionProvider"]
    )
    names = [spec.name for spec in session.get_inputs()]
    return session.run(None, dict(zip(names, job.inputs(), strict=True)))[0]


def _build_library(
    job: Job,
    runtime: str,
    from_program: Callable[..., Any],
    from_onnx: Callable[[Any], Any],
    build: Callable[[Any, Any], Any],
) -> dict[str, Any]:
    import onnx
    import tvm

    if runtime in QUANTIZED_RUNTIMES:
        to_relax = partial(from_onnx, onnx.load(job.folder / QUANTIZED_ONNX))
    else:
        to_relax = partial(from_program, _exported(job), unwrap_unit_return_tuple=True)
    target, path = tvm.target.Target(dict(job.target)), job.folder / library(runtime)
    with _cpu_time() as facts:
        build(to_relax(), target).export_library(str(path))
    return facts | {"size": path.stat().st_size}


@contextmanager
def _cpu_time() -> Iterator[dict[str, Any]]:
    """Measure the CPU time of this process and of the children it waits for.

    At the end of the block, the time is stored under the key ``build``.
    """

    def spent() -> float:
        times = os.times()
        return time.process_time() + times.children_user + times.children_system

    facts: dict[str, Any] = {}
    start = spent()
    yield facts
    facts["build"] = spent() - start
