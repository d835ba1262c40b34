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
"""One page about a compiled model: its graph, times, errors and sizes, for a browser."""

import base64
import gzip
import hashlib
import json
import math
import os
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from .. import target as targets
from ..compiler import Progress
from ..errors import UsageError
from ..relax.source_nodes import SourceNode
from ..runtime.compiled_model import CompiledModel
from ..runtime.inspection import Inspection, inspect
from ..runtime.manifest import Manifest, load_whole, read_manifest
from ..runtime.report import worst_verdict
from ..source import Shapes, open_source
from ..source.inputs import GivenInputs
from ..support.files import check_writable, replace_text
from .layer_comparison import LayerComparison, ValueComparison
from .layers import compare
from .placement import place
from .profiling import ONLY_CPU, KernelTime, Profile, check_original, profile

_PAGE = ("page.html", "page.css", ("format.js", "graph.js", "table.js", "page.js"))


@dataclass(frozen=True)
class ModelReport:
    """The result of :func:`report`.

    Attributes
    ----------
    name : str
        The name of the model.
    manifest : Manifest
    inspection : Inspection
        The sizes of the artifact's parts.
    profile : Profile or None
        The times of its kernels.
    no_profile : str
        Why the kernels were not measured; empty if they were.
    comparison : LayerComparison or None
        The comparison of its intermediate values with the original's.
    """

    name: str
    manifest: Manifest
    inspection: Inspection
    profile: Profile | None = None
    no_profile: str = ""
    comparison: LayerComparison | None = None

    @cached_property
    def graph(self) -> list[dict[str, Any]]:
        """The kernel calls, in the order of the program, with everything known about each.

        Besides the attributes of :class:`~tvm_fixes.relax.kernel_calls.KernelCall` and
        :class:`~tvm_fixes.report.profiling.KernelTime`: ``reference_seconds``, the reference's time
        for what the calls ``matched_with`` compute together; ``error``, the largest relative error
        of the values that it computes; ``verdict``, the worst of theirs, and None without any; and
        its position in the drawing.
        """
        kernels = self.manifest.kernels
        times = {} if self.profile is None else _times(self.profile)
        theirs = {} if self.profile is None else _reference_times(self.profile)
        values = {} if self.comparison is None else _values(self.comparison)
        # If the data flow is unknown, each call is drawn below the one before it.
        follow = [range(max(at - 1, 0), at) for at in range(len(kernels.calls))]
        reads = [call.reads or () for call in kernels.calls] if self.has_edges else follow
        found = []
        for at, (call, where) in enumerate(zip(kernels.calls, place(reads), strict=True)):
            nodes = [kernels.nodes[node] for node in call.nodes]
            measured = _measured(self.profile, times.get(at, []))
            known = {"nbytes": call.nbytes, "flops": kernels.flops.get(call.kernel)} | measured
            known |= theirs.get(at, {"reference_seconds": None, "matched_with": []})
            computed = [value for node in nodes for value in values.get(node, ())]
            described = asdict(call) | {"nodes": [asdict(node) for node in nodes]}
            found.append(described | known | _judged(computed) | asdict(where))
        return found

    @property
    def has_edges(self) -> bool:
        """Whether the manifest records the data flow; those of earlier versions do not."""
        return all(call.reads is not None for call in self.manifest.kernels.calls)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        manifest = self.manifest
        compiled, compared = manifest.report, self.comparison
        return {
            "name": self.name,
            "target": manifest.target,
            "triple": manifest.triple,
            "versions": manifest.versions,
            "inputs": list(map(str, manifest.inputs)),
            "outputs": list(map(str, manifest.outputs)),
            "compilation": None if compiled is None else compiled.to_dict(),
            "inspection": self.inspection.to_dict(),
            "profile": None if self.profile is None else self.profile.to_dict(),
            "no_profile": self.no_profile,
            "comparison": None if compared is None else compared.to_dict(),
            "graph": self.graph,
            "has_edges": self.has_edges,
        }

    def to_json(self) -> str:
        """The report as one JSON object, indented."""
        return json.dumps(_finite(self.to_dict()), indent=2, allow_nan=False)

    def to_html(self) -> str:
        """The page, which needs no other file and no network.

        The values are compressed: this keeps the page small, and the model's names out of its HTML.
        """
        values = json.dumps(_finite(self.to_dict()), allow_nan=False, separators=(",", ":"))
        packed = base64.b64encode(gzip.compress(values.encode(), mtime=0)).decode()
        folder = files(__package__) / "page"
        html, style, scripts = _PAGE
        parts = {
            "style": (folder / style).read_text(encoding="utf-8"),
            "script": "".join((folder / name).read_text(encoding="utf-8") for name in scripts),
        }
        page = (folder / html).read_text(encoding="utf-8")
        for name, text in parts.items():
            page = page.replace(f"{{{{{name}_hash}}}}", _csp_hash(text))
            page = page.replace(f"{{{{{name}}}}}", text)
        return page.replace("{{data}}", packed)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file atomically.

        Raises
        ------
        UsageError
            If `path` cannot be written.
        """
        check_writable(path)
        replace_text(path, self.to_html())


def report(
    source: str | os.PathLike[str] | CompiledModel,
    path: str | os.PathLike[str] | None = None,
    *,
    original: Any = None,
    measure: bool = True,
    shapes: Shapes | None = None,
    inputs: GivenInputs | None = None,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    seconds: float = 2.0,
    trust: bool = False,
    progress: Progress | None = None,
) -> ModelReport:
    """Collect what the other tools find about a compiled model, and write one HTML page.

    Parameters
    ----------
    source : path or CompiledModel
        The directory of an artifact, or a compiled model.
    path : path, optional
        The file of the page; an existing file is replaced.
    original : path or object, optional
        The model from which `source` was compiled.  Compare each intermediate value with it, as
        :func:`tvm_fixes.debug.compare` does.
    measure : bool
        Measure the time of each kernel, as :func:`tvm_fixes.debug.profile` does.  A model for a
        GPU or for another machine is not measured.
    shapes, inputs, sizes, seed, seconds
        As for :func:`tvm_fixes.debug.profile`; the comparison uses the same inputs.
    trust
        As for :func:`tvm_fixes.compile`, for `original`.
    progress : callable, optional
        As for :func:`tvm_fixes.compile`.

    Returns
    -------
    report : ModelReport

    Raises
    ------
    UsageError
        If an option is invalid, `path` cannot be written, or `original` is another model.
    ArtifactError
        If `source` is not a complete artifact.
    CompileError
        If `original` cannot be compiled or compared.
    """
    if path is not None:
        check_writable(path)
    found = _described(source)
    settings: dict[str, Any] = {
        "shapes": shapes,
        "inputs": inputs,
        "sizes": sizes,
        "seed": seed,
    }
    why_not = _why_not_measured(found.manifest) if measure else "not requested"
    opened = None if original is None else open_source(original, shapes, trust=trust)
    if opened is not None:
        check_original(opened, found.manifest)
    if not why_not:
        times = profile(source, original=opened, seconds=seconds, progress=progress, **settings)
        found = replace(found, profile=times)
    found = replace(found, no_profile=why_not)
    if opened is not None:
        found = replace(
            found,
            comparison=_compared(opened, found.manifest, settings | {"progress": progress}),
        )
    if path is not None:
        found.save(path)
    return found


def _described(source: str | os.PathLike[str] | CompiledModel) -> ModelReport:
    """A report from the files of an artifact only."""
    if isinstance(source, CompiledModel):
        with tempfile.TemporaryDirectory(prefix="tvm-fixes-") as folder:
            source.save(Path(folder) / "model")
            found = _described(Path(folder) / "model")
        return replace(found, inspection=replace(found.inspection, path=found.name))
    directory = Path(source)
    if not directory.is_dir():
        what = "not a directory" if os.path.lexists(directory) else "no such directory"
        raise UsageError(f"{directory}: {what}; expected an artifact")

    def read() -> ModelReport:
        manifest = read_manifest(directory)
        name = directory.resolve().name if manifest.report is None else manifest.report.source
        return ModelReport(name, manifest, inspect(directory))

    return load_whole(directory, read)


def _why_not_measured(manifest: Manifest) -> str:
    """Why the model cannot be measured on this machine; empty if it can."""
    if manifest.target["kind"] != "llvm":
        return ONLY_CPU
    return targets.why_not_here(manifest.target, manifest.triple, manifest.cpu_features) or ""


def _compared(original: Any, manifest: Manifest, settings: Mapping[str, Any]) -> LayerComparison:
    """Compare the intermediate values of a model, compiled with the options of its artifact."""
    layout = None if manifest.report is None else manifest.report.layout
    found = compare(original, target=manifest.target, layout=layout, **settings)
    nodes = set(manifest.kernels.nodes)
    if nodes and found.values and not any(value.node in nodes for value in found.values):
        raise UsageError(f"{original.name} is not the model of the artifact: they share no node")
    return found


def _times(found: Profile) -> dict[int, list[KernelTime]]:
    """The measurements of each call: several if it is in a loop."""
    times: dict[int, list[KernelTime]] = defaultdict(list)
    for kernel in found.kernels:
        if kernel.call is not None:
            times[kernel.call].append(kernel)
    return times


def _reference_times(found: Profile) -> dict[int, dict[str, Any]]:
    """The time of the reference for each call, and the calls that it is for."""
    times = {}
    for kernel, match in zip(found.kernels, found.matches, strict=True):
        if match is not None and kernel.call is not None:
            calls = [found.kernels[place].call for place in match.kernels]
            times[kernel.call] = {"reference_seconds": match.seconds, "matched_with": calls}
    return times


def _measured(found: Profile | None, times: list[KernelTime]) -> dict[str, Any]:
    """The measurements of a call: in a loop, the sum of its runs."""
    if found is None or not times:
        return {"seconds": None, "runs": 0, "share_of_limits": None}
    flops = [one.flops for one in times if one.flops is not None]
    total = replace(
        times[0],
        seconds=sum(one.seconds for one in times),
        nbytes=sum(one.nbytes for one in times),
        flops=sum(flops) if flops else None,
    )
    measured = {"seconds": total.seconds, "nbytes": total.nbytes, "flops": total.flops}
    return measured | {"runs": len(times), "share_of_limits": found.share_of_limits(total)}


def _values(found: LayerComparison) -> dict[SourceNode, list[ValueComparison]]:
    values: dict[SourceNode, list[ValueComparison]] = defaultdict(list)
    for value in found.values:
        values[value.node].append(value)
    return values


def _judged(values: list[ValueComparison]) -> dict[str, Any]:
    """The largest relative error, None if any is unknown, and the worst verdict."""
    errors = [value.result.max_rel_error for value in values]
    known = [error for error in errors if error is not None]
    is_known = bool(known) and len(known) == len(errors)
    verdict = worst_verdict([value.result for value in values]) if values else None
    return {"error": max(known) if is_known else None, "verdict": verdict}


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _csp_hash(text: str) -> str:
    """The hash with which a content security policy allows an element with exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
