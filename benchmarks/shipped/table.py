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
"""The results, and the table of them in Markdown."""

import json
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from math import exp, log
from pathlib import Path
from typing import Any

from ..results import cpu_name
from .models import Model, Package
from .run import ROOT, Outcome

_PACKAGES = ("apache-tvm", "onnx", "onnxruntime", "numpy", "torch")

_INTRODUCTION = {
    False: """\
Trained models that packages on PyPI and npm ship, compiled with `tvm-fixes compile MODEL -o out/`
and no other options, then run on pictures, sound, tokens and streams of several sizes. No model
file is in this repository: `make check-shipped` downloads the packages, checks their SHA-256, and
writes this table.""",
    True: """\
Models of common libraries with random weights at their real sizes, and predictors that are trained
on scikit-learn's data sets. Each is exported to ONNX and compiled with
`tvm-fixes compile MODEL -o out/` and no other options. `make check-shipped ARGS=--exports` writes
this table.""",
}
_READING = """\
- outcome: `right` if the outputs of all sizes and steps equal ONNX Runtime's. An error may be
  4 times what rounding does to ONNX Runtime itself (without its optimizer, or with inputs or
  weights moved by 1 and by 8 rounding errors), or 0.0001 of the largest value of the output; for
  models in float16 and bfloat16, 0.004 and 0.03.
- seconds: CPU time of the command, with its comparison with ONNX Runtime. memory: the most that one
  of its processes used.
- ratio: CPU time of a call divided by ONNX Runtime's, median of alternating turns; below 1 is
  faster. Both use one thread. A call includes the conversion from and to NumPy."""


class Results:
    """The last outcome of each model, in a file with one JSON object per line.

    Parameters
    ----------
    path : Path
    kind : type
        The dataclass of an outcome, with a property ``key``.
    """

    def __init__(self, path: Path, kind: type[Any] = Outcome):
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        outcomes = [kind(**json.loads(line)) for line in lines if line.endswith("}")]
        self._outcomes = {outcome.key: outcome for outcome in outcomes}

    def get(self, key: Any) -> Any:
        """Return the outcome with a key, or None if it was not measured."""
        return self._outcomes.get(key)

    def all(self) -> list[Any]:
        """Return all outcomes, in the order of their first measurement."""
        return list(self._outcomes.values())

    def add(self, outcome: Any) -> None:
        """Keep an outcome, in memory and in the file."""
        self._outcomes[outcome.key] = outcome
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(asdict(outcome)) + "\n" for outcome in self._outcomes.values()]
        partial = self._path.with_suffix(".partial")
        partial.write_text("".join(lines))
        partial.replace(self._path)


def revision() -> str:
    """Return the revision of this repository, with a ``+`` if files differ from it."""
    run = lambda *args: subprocess.run(  # noqa: E731
        ["git", *args], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    changed = run("status", "--porcelain", "--untracked-files=no")
    return run("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive values."""
    logs = [log(value) for value in values]
    return exp(sum(logs) / len(logs))


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the numbers of models by outcome, and the ratios of times."""
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome.outcome] = counts.get(outcome.outcome, 0) + 1
    text = f"{len(outcomes)} models: " + ", ".join(f"{n} {name}" for name, n in counts.items())
    timed = [outcome for outcome in outcomes if outcome.ratio is not None]
    if not timed:
        return text + "."
    ratios = [outcome.ratio for outcome in timed if outcome.ratio is not None]
    slow = [o.name for o in sorted(timed, key=lambda o: -(o.ratio or 0)) if (o.ratio or 0) > 1.3]
    text += (
        f". Geometric mean of the ratios: {geometric_mean(ratios):.2f}; largest: {max(ratios):.2f}"
    )
    return text + (f". Above 1.3: {', '.join(slow)}." if slow else ".")


def markdown(
    outcomes: Sequence[Outcome], packages: Mapping[str, Package], total: int, *, exports: bool
) -> str:
    """Return the page; `total` counts the models of the list, measured or not."""
    header = ("model", "exporter" if exports else "package", "kind", "outcome", "seconds", "memory")
    header += ("model size", "artifact", "ms", "ONNX Runtime", "ratio", "reason")
    rows = [header, ("---",) * len(header), *(_row(outcome) for outcome in outcomes)]
    if len({outcome.revision for outcome in outcomes}) > 1:
        last = ("revision", "---", *(outcome.revision for outcome in outcomes))
        rows = [(*row, cell) for row, cell in zip(rows, last, strict=True)]
    missing = total - len(outcomes)
    parts = [
        f"# {'Mainstream exports' if exports else 'Models that packages ship'}",
        _INTRODUCTION[exports],
        _origin(outcomes),
        summary(outcomes) + (f" {missing} more are not measured yet." if missing else ""),
        _READING,
        "\n".join(f"| {' | '.join(cells)} |" for cells in rows),
    ]
    if not exports:
        rows = [("package", "registry", "license", "SHA-256"), ("---",) * 4]
        rows += [(str(p), p.registry, p.license, f"`{p.sha256}`") for p in packages.values()]
        parts += ["## Packages", "\n".join(f"| {' | '.join(cells)} |" for cells in rows)]
    return "\n\n".join(parts) + "\n"


def known(results: Results, models: Iterable[Model]) -> list[Outcome]:
    """Return the outcomes of the models that were measured, in order."""
    outcomes = (results.get(model.name) for model in models)
    return [outcome for outcome in outcomes if outcome is not None]


def _row(outcome: Outcome) -> tuple[str, ...]:
    number = lambda value: "" if value is None else f"{value:.3g}"  # noqa: E731
    return (
        outcome.name,
        outcome.origin,
        outcome.kind,
        outcome.outcome,
        f"{outcome.seconds:.0f}",
        f"{outcome.memory_bytes / 2**20:.0f} MiB",
        _megabytes(outcome.model_bytes),
        _megabytes(outcome.artifact_bytes),
        number(outcome.ms),
        number(outcome.reference_ms),
        "" if outcome.ratio is None else f"{outcome.ratio:.2f}",
        outcome.message.replace("|", "\\|")[:300],
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.3g} MB" if size else ""


def _origin(outcomes: Sequence[Outcome]) -> str:
    revisions = sorted({outcome.revision for outcome in outcomes})
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES)
    what = "Revision" if len(revisions) == 1 else "Revisions"
    return (
        f"{what} {', '.join(revisions)}; Python {platform.python_version()}, {versions}; "
        f"{cpu_name()}, one thread."
    )
