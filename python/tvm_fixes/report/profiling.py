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
"""The time of each kernel of a compiled model, with the nodes of the model that it computes."""

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..compiler import Progress, Step
from ..compiler import compile as compile_model
from ..compiler.inputs import inputs_of_artifact, load_inputs
from ..compiler.options import Options
from ..compiler.reference import Reference
from ..errors import CompileError, UsageError
from ..observe import latency
from ..relax.kernel_calls import KernelCalls
from ..relax.source_nodes import SourceNode
from ..runtime.compiled_model import CompiledModel
from ..runtime.manifest import Manifest, read_manifest
from ..source import Params, Shapes, Source, open_source
from ..source.examples import used_sizes
from ..source.inputs import GivenInputs
from .events import Recorder, Recording, own_times
from .node_times import ReferenceTimes
from .reference_times import Match, ReferenceProfile, match_nodes, reference_times

# The names of the virtual machine's own calls; the second kind computes extents.
_VIRTUAL_MACHINE = ("vm.", "shape_func")

_MIN_RUNS = 3
_MAX_RUNS = 10_000

ONLY_CPU = (
    "only models for a CPU can be profiled: on a GPU, a call returns before its kernel has run; "
    "measure the kernels with NVIDIA's nsys"
)

# The time and the number of calls to measure each limit of the machine for.
_LIMIT_SECONDS = 0.2
_LIMIT_CALLS = 20


@dataclass(frozen=True)
class KernelTime:
    """One call of a kernel.

    Attributes
    ----------
    kernel : str
        The name of the kernel.
    nodes : tuple of SourceNode
        The nodes of the model that it computes.  If :attr:`Profile.is_exact` is false, the nodes
        of all calls of this kernel.
    seconds : float
        The median time.
    nbytes : int
        The size of its operands and results.
    flops : float or None
        Its floating-point operations, if known.
    call : int or None
        Its index in ``manifest.kernels.calls``; None if it may be any of several calls.
    """

    kernel: str
    nodes: tuple[SourceNode, ...]
    seconds: float
    nbytes: int
    flops: float | None
    call: int | None = None

    @property
    def source(self) -> str:
        """The nodes in one line, each path of a module once."""
        parts: dict[str, list[str]] = defaultdict(list)
        for node in self.nodes:
            parts[node.path or node.name].append(node.operator)
        return "; ".join(f"{place}: {', '.join(ops)}" for place, ops in parts.items())


@dataclass(frozen=True)
class Limits:
    """The limits of the machine, as NumPy measures them.

    Attributes
    ----------
    flops : float
        Operations per second of a product of two large float32 matrices.
    bandwidth : float
        Bytes per second, read and written, of a copy of a large array.
    """

    flops: float
    bandwidth: float


@dataclass(frozen=True)
class Profile:
    """The result of :func:`profile`.

    Attributes
    ----------
    model : str
    run_seconds : float
        The median time of a run without instruments: see :mod:`tvm_fixes.observe.latency`.
    kernels : list of KernelTime
        The calls of kernels, in the order of the run.
    other_seconds : dict of str to float
        The time of the virtual machine's own calls, such as allocations and the computation of
        extents, by name.
    runs : int
        The number of runs with instruments.
    is_exact : bool
        Whether the run called the kernels in the order of the program, so that each call is known.
        Otherwise, because of branches or loops, only the kernel is known.
    limits : Limits
    reference : ReferenceProfile or None
        The times of the same nodes in ONNX Runtime or PyTorch.
    no_reference : str
        Why the reference was not measured; empty if it was.
    sizes : dict of str to int
        The sizes of the symbolic dims.
    """

    model: str
    run_seconds: float
    kernels: list[KernelTime]
    other_seconds: dict[str, float]
    runs: int
    is_exact: bool
    limits: Limits
    reference: ReferenceProfile | None = None
    no_reference: str = "not requested"
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def kernel_seconds(self) -> float:
        """The time of all kernels."""
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def attributed(self) -> float:
        """The share of the kernels' time whose nodes are known."""
        known = sum(kernel.seconds for kernel in self.kernels if kernel.nodes)
        return known / self.kernel_seconds if self.kernel_seconds else 1.0

    @property
    def accounted(self) -> float:
        """The time of all calls, relative to the run without instruments."""
        total = self.kernel_seconds + sum(self.other_seconds.values())
        return total / self.run_seconds if self.run_seconds else 1.0

    @property
    def matches(self) -> list[Match | None]:
        """The times of the reference for each kernel, in the order of :attr:`kernels`."""
        count = len(self.kernels)
        return [None] * count if self.reference is None else self.reference.by_kernel(count)

    @property
    def slowest(self) -> list[KernelTime]:
        """The calls of kernels, the slowest first."""
        return [self.kernels[place] for place in self.order]

    @property
    def order(self) -> list[int]:
        """The places of the calls of kernels, those of the slowest first."""
        return sorted(range(len(self.kernels)), key=lambda place: -self.kernels[place].seconds)

    def share_of_limits(self, kernel: KernelTime) -> float | None:
        """The time that its operations or bytes take at the :attr:`limits`, relative to its own.

        Data in the caches can be read faster than the limit.
        """
        if not kernel.seconds:
            return None
        least = max((kernel.flops or 0) / self.limits.flops, kernel.nbytes / self.limits.bandwidth)
        return least / kernel.seconds

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain values, including the computed ones."""
        kernels = [
            asdict(kernel)
            | {"share_of_limits": self.share_of_limits(kernel)}
            | {"reference_seconds": None if match is None else match.seconds}
            | {"matched_with": [] if match is None else match.kernels}
            for kernel, match in zip(self.kernels, self.matches, strict=True)
        ]
        reference = None if self.reference is None else self.reference.to_dict()
        computed = {name: getattr(self, name) for name in ("kernel_seconds", "attributed")}
        added = {"kernels": kernels, "accounted": self.accounted, "reference": reference}
        return asdict(self) | added | computed

    def to_json(self) -> str:
        """The profile as one JSON object, indented."""
        return json.dumps(self.to_dict(), indent=2)

    def trace(self) -> str:
        """The kernels of a run as a Chrome trace, for Perfetto or ``chrome://tracing``."""
        events = []
        start = 0.0
        for kernel, match in zip(self.kernels, self.matches, strict=True):
            details: dict[str, Any] = {"kernel": kernel.kernel, "source": kernel.source}
            details |= {"bytes": kernel.nbytes, "flops": kernel.flops}
            if match is not None:
                details |= {"reference_us": 1e6 * match.seconds, "kernels": len(match.kernels)}
            name = ", ".join(node.operator for node in kernel.nodes) or kernel.kernel
            event = {"name": name, "cat": kernel.kernel, "ph": "X", "pid": 0, "tid": 0}
            duration = 1e6 * kernel.seconds
            events.append(event | {"ts": start, "dur": duration, "args": details})
            start += duration
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})


def profile(
    source: Any,
    *,
    original: Any = None,
    compare: bool = True,
    shapes: Shapes | None = None,
    inputs: GivenInputs | None = None,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    seconds: float = 2.0,
    trust: bool = False,
    params: Params | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Profile:
    """Measure the time of each kernel of a model on a CPU.

    Parameters
    ----------
    source : path, CompiledModel or object
        The directory of an artifact, a compiled model, or a model as for
        :func:`tvm_fixes.compile`, which is compiled first.
    original : path or object, optional
        The model from which an artifact was compiled, so that ONNX Runtime or PyTorch can run it.
    compare : bool
        Also measure ONNX Runtime or PyTorch, if there is a model that it can run.
    shapes, sizes, seed, trust, params
        As for :func:`tvm_fixes.compile`.
    inputs : path or mapping of str to numpy.ndarray, optional
        The inputs by name, or an ``.npz`` file of them; by default, random ones.
    seconds : float
        The time to measure for, and for the reference; at least three runs are measured.
    progress : callable, optional
        As for :func:`tvm_fixes.compile`.
    **options
        Further options of :func:`tvm_fixes.compile`.

    Returns
    -------
    profile : Profile

    Raises
    ------
    UsageError
        If an option is invalid, the inputs do not fit, the model is for a GPU, or `original` is
        another model.
    CompileError
        If the model cannot be compiled.
    ArtifactError
        If `source` is a directory without a complete artifact.
    """
    Options(seed=seed, **options).check()
    if isinstance(source, str | os.PathLike) and Path(source).is_dir():
        _check_target(read_manifest(Path(source)))  # before a GPU's library is loaded
        source = CompiledModel.load(source)
    opened: Source | None = None
    if isinstance(source, CompiledModel):
        if options.get("passes"):
            raise UsageError("passes run when a model is compiled: give the model, not an artifact")
        model = source
        name = "model" if model.report is None else model.report.source
        arrays = inputs_of_artifact(model.manifest, shapes, inputs, seed, sizes)
        if original is not None:
            opened = open_source(original, shapes, trust=trust, params=params)
            check_original(opened, model.manifest)
    else:
        if original is not None:
            raise UsageError("an original is for an artifact: a model is its own")
        opened = open_source(source, shapes, trust=trust, params=params)
        opened.set_sizes(sizes or {})
        model = compile_model(opened, compare=False, progress=progress, **options)
        name, arrays = opened.name, load_inputs(opened, inputs, seed)
    _check_target(model.manifest)
    report = progress or (lambda step: None)
    report(Step("measure"))
    if not compare:
        return _measure(model, name, arrays, seconds)[0]
    if opened is None:
        found = _measure(model, name, arrays, seconds)[0]
        return replace(found, no_reference="the original model is not given")
    return _measure_both(model, name, opened, arrays, seconds, report)


def _measure_both(
    model: CompiledModel,
    name: str,
    source: Source,
    inputs: Sequence[np.ndarray],
    budget: float,
    report: Progress,
) -> Profile:
    """The profile with the times of the reference, or the reason for leaving them out."""
    try:
        with Reference(source, list(inputs)) as reference:
            found, run_seconds = _measure(model, name, inputs, budget, reference)
    except (UsageError, CompileError) as error:
        found, _ = _measure(model, name, inputs, budget)
        return replace(found, no_reference=error.message)
    report(Step("measure the reference"))
    times = reference_times(source, inputs, budget, reference.name, run_seconds)
    return _with_reference(found, model.manifest.kernels, times)


def _check_target(manifest: Manifest) -> None:
    if manifest.target["kind"] != "llvm":
        raise UsageError(ONLY_CPU)


def check_original(original: Source, manifest: Manifest) -> None:
    """Check that a model has the inputs of an artifact.

    Raises
    ------
    UsageError
        If it does not.
    """
    names, known = [s.name for s in original.inputs], [s.name for s in manifest.inputs]
    if names != known:
        raise UsageError(
            f"{original.name} is not the model of the artifact: expected the inputs "
            f"{', '.join(known)}, got {', '.join(names)}"
        )


def _with_reference(found: Profile, known: KernelCalls, times: ReferenceTimes | str) -> Profile:
    """Add the times of the reference, or the reason for leaving them out."""
    if isinstance(times, str):
        return replace(found, no_reference=times)
    if not found.is_exact:
        # A kernel has the nodes of all its calls.
        matched = match_nodes([() for _ in found.kernels], [() for _ in found.kernels], times)
    else:
        places = {kernel.call: place for place, kernel in enumerate(found.kernels)}
        reads = [
            []
            if kernel.call is None
            else [places[one] for one in known.calls[kernel.call].reads or ()]
            for kernel in found.kernels
        ]
        matched = match_nodes([kernel.nodes for kernel in found.kernels], reads, times)
    return replace(found, reference=matched, no_reference="")


def _measure(
    model: CompiledModel,
    name: str,
    inputs: Sequence[np.ndarray],
    budget: float,
    reference: Reference | None = None,
) -> tuple[Profile, float]:
    """The profile, and the latency of the reference; 0 without one."""
    # A run overwrites the inputs that the model updates.
    copies = [np.array(value) for value in inputs]
    run = model.bound(*(np.array(value) for value in inputs))
    run()
    recorder = Recorder()
    with model.instrumented(recorder.count):
        run()
    recordings: list[Recording] = []

    def record() -> None:
        with model.instrumented(recorder.time):
            run()
        recordings.append(recorder.take())

    timers = [partial(latency.block, call) for call in (partial(model.run, *copies), record)]
    theirs = [] if reference is None else [reference.block]
    ours, _, *others_taken = latency.measure([*timers, *theirs], runs=_MAX_RUNS, budget=budget)
    while len(recordings) < _MIN_RUNS:
        record()
    times = own_times(recordings)
    events = list(zip(recorder.names, times, recorder.sizes, strict=True))
    kernels = [event for event in events if not event[0].startswith(_VIRTUAL_MACHINE)]
    others: dict[str, float] = defaultdict(float)
    for label, own, _ in events:
        if label.startswith(_VIRTUAL_MACHINE):
            others[label.removeprefix("vm.builtin.")] += own
    known = model.manifest.kernels
    calls, is_exact = known.of_run([label for label, _, _ in kernels])
    found = Profile(
        name,
        ours.seconds,
        [
            KernelTime(
                label,
                known.nodes_of(possible),
                own,
                size,
                known.flops.get(label),
                possible[0] if len(possible) == 1 else None,
            )
            for (label, own, size), possible in zip(kernels, calls, strict=True)
        ],
        dict(others),
        len(recordings),
        is_exact,
        _limits(),
        sizes=used_sizes(model.inputs, inputs),
    )
    return found, others_taken[0].seconds if others_taken else 0.0


@cache
def _limits() -> Limits:
    size = 384
    matrix = np.ones((size, size), "float32")
    data = np.ones(1 << 25, "uint8")
    product, copy = np.empty_like(matrix), np.empty_like(data)
    per_product = _fastest(lambda: np.matmul(matrix, matrix, out=product))
    per_copy = _fastest(lambda: np.copyto(copy, data))
    return Limits(2 * size**3 / per_product, 2 * data.nbytes / per_copy)


def _fastest(call: Callable[[], object]) -> float:
    """The time of the fastest of many calls, which no other process interrupts."""
    times: list[float] = []
    end = time.perf_counter() + _LIMIT_SECONDS
    while len(times) < _LIMIT_CALLS or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
