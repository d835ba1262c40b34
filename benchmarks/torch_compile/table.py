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

"""The table of models under ``torch.compile``."""

import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import metadata

from ..results import cpu_name
from ..shipped.table import geometric_mean
from .models import SUBJECTS
from .rows import Row
from .worker import OURS

_OTHER = "inductor"
_PACKAGES = ("apache-tvm", "torch", "transformers", "diffusers", "timm", "torchvision")
_HEADER = ("library", "model", "outcome", "ms", "eager", "Inductor", "ratio to Inductor", "cold")
_HEADER += ("Inductor, cold", "warm", "Inductor, warm", "dynamic", "graphs", "partitions")
_HEADER += ("compiled", "share", "PyTorch runs")
_INTRODUCTION = """\
Models at their usual sizes with random weights. `python -m benchmarks.torch_compile` writes this
table."""
_READING = """\
- outcome: `right` if the outputs of three sizes equal those of eager PyTorch. The first size is
  compiled as static, the second makes its dims dynamic, and the third should compile nothing. An
  error may be 0.0001 of the largest value, or 4 times that of eager PyTorch against float64.
- ms: a call with the first size; eager, Inductor: the same call. Each backend takes turns with
  eager PyTorch.
- cold, warm: seconds of the first call, with an empty cache, and in a second process; dynamic:
  seconds of the first call with the second size. All three contain the traces of Dynamo and
  AOTAutograd.
- compiled: operators in compiled partitions; share: their part of the time of a call.
- All times are CPU times with one thread."""


def summary(rows: Iterable[Row]) -> str:
    """The counts and the geometric means in one paragraph."""
    ours = {row.name: row for row in rows if row.backend == OURS}
    others = {row.name: row for row in rows if row.backend == _OTHER and not row.problem}
    right = [row for row in ours.values() if not row.problem]
    text = f"{len(right)} of {len(ours)} models right."
    pairs = [(row, others[row.name]) for row in right if row.name in others]
    if not pairs:
        return text
    steady = geometric_mean(_quotient(a.ratio, b.ratio) for a, b in pairs)
    cold = geometric_mean(a.cold / b.cold for a, b in pairs)
    warm = geometric_mean(a.warm / b.warm for a, b in pairs)
    eager = geometric_mean(a.ratio or 1.0 for a, _ in pairs)
    return (
        f"{text} Geometric means over {len(pairs)}: {eager:.2f} of eager PyTorch's time and "
        f"{steady:.2f} of Inductor's; first call {cold:.2f} of Inductor's, and {warm:.2f} with a "
        "filled cache."
    )


def markdown(rows: Sequence[Row], total: int) -> str:
    """The page; `total` is the number of models, measured or not."""
    ours = {row.name: row for row in rows if row.backend == OURS}
    others = {row.name: row for row in rows if row.backend == _OTHER}
    cells = [_HEADER, ("---",) * len(_HEADER)]
    cells += [_cells(ours[name], others.get(name)) for name in SUBJECTS if name in ours]
    revisions = ", ".join(sorted({row.revision for row in rows}))
    versions = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    versions = f"Python {platform.python_version()}, {versions}"
    missing = total - len(ours)
    return (
        "\n\n".join(
            [
                "# Models under torch.compile",
                _INTRODUCTION,
                f"Revision {revisions}; {versions}; {cpu_name()}.",
                summary(rows) + (f" {missing} more are not measured yet." if missing else ""),
                _READING,
                "\n".join(f"| {' | '.join(row)} |" for row in cells),
            ]
        )
        + "\n"
    )


def _cells(row: Row, other: Row | None) -> tuple[str, ...]:
    known = other if other is not None and not other.problem else None
    quotient = None if known is None else _quotient(row.ratio, known.ratio)
    reasons = Counter(text.partition(":")[0] for text in row.eager)
    return (
        SUBJECTS[row.name].library,
        row.name,
        row.problem.replace("|", "\\|") or "right",
        _number(row.ms),
        _number(row.eager_ms),
        _number(known and known.ms),
        "" if quotient is None else f"{quotient:.2f}",
        _number(row.cold),
        _number(known and known.cold),
        _number(row.warm),
        _number(known and known.warm),
        _number(row.dynamic),
        str(row.graphs),
        str(row.partitions),
        str(row.compiled),
        "" if row.share is None else f"{row.share:.0%}",
        ", ".join(reasons),
    )


def _quotient(ours: float | None, theirs: float | None) -> float:
    return (ours or 1.0) / (theirs or 1.0)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "in a folder of its own"
