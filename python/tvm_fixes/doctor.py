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
"""A check of this installation: its versions, and whether each fix is needed and works."""

import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import tvm
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import _ffi, versions
from .fixes import FIXES, Fix
from .support import switches
from .support.isolate import Outcome, OutcomeKind, run_all_forked

if TYPE_CHECKING:
    from .probes import Probe

TESTED_TVM = SpecifierSet(versions.TESTED_TVM)

_NOT_LOADED = "the native library does not load: not probed"

# Modules whose name differs from their package's.
_MODULES = {
    "apache-tvm-ffi": "tvm_ffi",
}

_PACKAGES = ("tvm-fixes", "apache-tvm-ffi", "numpy", "torch", "onnx", "onnxruntime")


class State(StrEnum):
    """The result of a fix's probe, or of its requirement, for this installation."""

    NEEDED = "needed"
    """Stock TVM fails as recorded, and passes with the fix."""
    EXPIRED = "expired"
    """Stock TVM passes without the fix."""
    BROKEN = "broken"
    """The probe fails with the fix on."""
    UNCLEAR = "unclear"
    """Stock TVM fails with a symptom that differs from the recorded one."""
    UNAVAILABLE = "unavailable"
    """The probe needs a module that is not installed, or the native library does not load."""
    MET = "met"
    """The requirement on the environment holds."""
    VIOLATED = "violated"
    """The requirement on the environment does not hold."""


_BAD_STATES = frozenset({State.BROKEN, State.UNCLEAR, State.VIOLATED})


@dataclass(frozen=True)
class Answer:
    """The result of one run of a probe, with or without the fix.

    Attributes
    ----------
    passes : bool
        Whether the probe's callable returned.
    failure : str or None
        ``type: message`` of the exception in one line, the crash or the timeout; None if it passed.
    seconds : float
        Wall-clock time.
    """

    passes: bool
    failure: str | None
    seconds: float


@dataclass(frozen=True)
class Row:
    """The result for one fix.

    Attributes
    ----------
    fix : Fix
        The fix.
    state : State
        The result of its probe or requirement.
    note : str
        An explanation in one line; may be empty.
    stock, fixed : Answer or None
        The results of the probe on stock TVM and with the fix; None if it did not run.
    """

    fix: Fix
    state: State
    note: str = ""
    stock: Answer | None = None
    fixed: Answer | None = None

    @property
    def id(self) -> str:
        """The fix's id."""
        return self.fix.id

    @property
    def ok(self) -> bool:
        """Whether this fix reveals no problem of the installation."""
        return self.state not in _BAD_STATES


@dataclass(frozen=True)
class TVMInstallation:
    """The TVM in use.

    Attributes
    ----------
    version : str
        ``tvm.__version__``.
    path : str
        The package's directory.
    origin : str
        ``wheel``, ``editable install`` or ``PYTHONPATH``.
    commit : str or None
        The git commit that it was built from, if known.
    tested : bool
        Whether this release of tvm-fixes was tested with this version.
    """

    version: str
    path: str
    origin: str
    commit: str | None
    tested: bool


@dataclass(frozen=True)
class DoctorReport:
    """The result of :func:`run`.

    Attributes
    ----------
    tvm : TVMInstallation
        The TVM in use.
    versions : dict of str to (str or None)
        The versions of Python and of related packages; None for one that is not installed.
    native : NativeStatus
        The native library and its layout check.
    disabled : tuple of str
        The fixes that ``TVM_FIXES_DISABLE`` turns off.
    rows : tuple of Row
        One row per fix, in the order of :data:`tvm_fixes.fixes.FIXES`.
    """

    tvm: TVMInstallation
    versions: dict[str, str | None]
    native: _ffi.NativeStatus
    disabled: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def problems(self) -> list[str]:
        """The problems that need fixing, one sentence each."""
        found = []
        if not self.native.ok:
            found.append(f"native library: {self.native.problem}")
        found += [f"{row.id}: {row.note}" for row in self.rows if not row.ok]
        return found

    @property
    def warnings(self) -> list[str]:
        """Remarks that are not problems, one sentence each."""
        found = []
        if not self.tvm.tested:
            found.append(
                f"TVM {self.tvm.version} is untested: this release was tested with {TESTED_TVM}"
            )
        if self.disabled:
            found.append(
                f"{switches.ENVIRONMENT_VARIABLE} turns off {', '.join(self.disabled)}; "
                "the probes ran with all fixes off and then on nevertheless"
            )
        if self.native.ok and self.native.relay_problem:
            found.append(f"Relay programs: {self.native.relay_problem}")
        found += [
            f"{row.id}: {row.note}"
            for row in self.rows
            if row.ok and row.note not in ("", _NOT_LOADED)  # a problem reports it already
        ]
        return found

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def to_json(self) -> str:
        """The report as one JSON object, indented."""
        return json.dumps(
            {
                "ok": self.ok,
                "tvm": asdict(self.tvm),
                "versions": self.versions,
                "native": asdict(self.native) | {"ok": self.native.ok},
                "disabled": list(self.disabled),
                "fixes": [_row_to_dict(row) for row in self.rows],
                "problems": self.problems,
                "warnings": self.warnings,
            },
            indent=2,
        )


def run(
    ids: Iterable[str] | None = None, *, quick: bool = False, timeout: float = 30.0
) -> DoctorReport:
    """Examine this installation.

    Parameters
    ----------
    ids : iterable of str, optional
        The fixes to examine; all of them by default.
    quick : bool
        Run no probes: examine only versions, the native library, and the fixes that are
        requirements on the environment.
    timeout : float
        Time limit of one run of a probe, in seconds.

    Returns
    -------
    report : DoctorReport
        The result, including probes that fail, crash or hang.

    Raises
    ------
    ValueError
        If an id in `ids` or ``TVM_FIXES_DISABLE`` is unknown.
    """
    disabled = switches.disabled()
    wanted = set(switches.FIX_IDS if ids is None else ids)
    switches.check_known(wanted)
    versions: dict[str, str | None] = {"python": platform.python_version()}
    versions.update((package, _installed_version(package)) for package in _PACKAGES)
    native = _ffi.native_status()
    return DoctorReport(
        tvm=_find_tvm(),
        versions=versions,
        native=native,
        disabled=tuple(fix_id for fix_id in switches.FIX_IDS if fix_id in disabled),
        rows=_rows(
            [fix for fix in FIXES if fix.id in wanted and (fix.requirement or not quick)],
            native.ok,
            timeout,
        ),
    )


def examine(
    fixes: Sequence[Fix], probes: "Mapping[str, Probe]", *, timeout: float
) -> tuple[Row, ...]:
    """Check the requirements of `fixes` and run their probes, two at a time, in forked children.

    Parameters
    ----------
    fixes : sequence of Fix
        The fixes.
    probes : mapping of str to Probe
        The probes by fix id, one for each fix without a requirement.
    timeout : float
        Time limit of one run of a probe, in seconds.

    Returns
    -------
    rows : tuple of Row
        In the order of `fixes`.
    """
    ways: list[Callable[[], None]] = []
    probed = []
    rows: dict[str, Row] = {}
    for fix in fixes:
        if fix.requirement is not None:
            rows[fix.id] = _check_requirement(fix)
            continue
        probe = probes[fix.id]
        if missing := [m for m in probe.modules if importlib.util.find_spec(m) is None]:
            note = f"{' and '.join(missing)} is not installed: not probed"
            rows[fix.id] = Row(fix, State.UNAVAILABLE, note)
        else:
            probed.append(fix)
            ways.append(partial(_with_disabled, switches.FIX_IDS, probe.stock))
            ways.append(partial(_with_disabled, (), probe.fixed))
    if any("torch" in probes[fix.id].modules for fix in probed):
        _load_exporter()
    outcomes = run_all_forked(ways, timeout=timeout, jobs=2)
    for fix, stock, fixed in zip(probed, outcomes[::2], outcomes[1::2], strict=True):
        rows[fix.id] = _judge(fix, probes[fix.id], stock, fixed)
    return tuple(rows[fix.id] for fix in fixes)


def _load_exporter() -> None:
    """Load what PyTorch's first export loads, so that the children need not."""
    with suppress(Exception):  # the probes report failures
        import torch

        torch.export.export(torch.nn.ReLU(), (torch.ones(1),)).run_decompositions()


def render(report: DoctorReport, console: Console) -> None:
    """Print `report` to `console` as tables."""
    found, native, versions = report.tvm, report.native, report.versions
    commit = f", commit {found.commit}" if found.commit else ""
    head = Table.grid(padding=(0, 2))
    head.add_row("TVM", escape(f"{found.version} ({found.origin}{commit}) {found.path}"))
    layout = f"{native.checked_types} types and {native.checked_fields} fields fit this TVM"
    verdict = layout if native.ok else "does not load"
    head.add_row("native library", escape(f"{verdict} {native.path or ''}"))
    head.add_row("versions", escape(", ".join(f"{k} {v or '-'}" for k, v in versions.items())))
    console.print(head)

    table = Table("state", "fix", show_lines=True)
    for row in report.rows:
        style = "red" if not row.ok else "yellow" if row.note else "green"
        table.add_row(f"[{style}]{row.state}[/]", "\n".join(_describe(row)))
    console.print(table)
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}")
    for problem in report.problems:
        console.print(f"[red]problem:[/] {escape(problem)}")


def _rows(fixes: Sequence[Fix], has_native: bool, timeout: float) -> tuple[Row, ...]:
    if not has_native:
        # All probes need the native library and TVM's compiler.
        return tuple(
            _check_requirement(fix) if fix.requirement else Row(fix, State.UNAVAILABLE, _NOT_LOADED)
            for fix in fixes
        )
    from .probes import PROBES

    return examine(fixes, PROBES, timeout=timeout)


def _with_disabled(fix_ids: Sequence[str], way: Callable[[], None]) -> None:
    os.environ[switches.ENVIRONMENT_VARIABLE] = ",".join(fix_ids)
    way()


def _judge(fix: Fix, probe: "Probe", stock: Outcome, fixed: Outcome) -> Row:
    answers = _answer(stock), _answer(fixed)
    if fixed.kind is not OutcomeKind.VALUE:
        note = f"fails with the fix on: {answers[1].failure}"
        return Row(fix, State.BROKEN, note, *answers)
    if stock.kind is OutcomeKind.VALUE:
        if SpecifierSet(fix.versions).contains(tvm.__version__, prereleases=True):
            note = f"no longer needed on this TVM: delete fix {fix.id}"
        else:
            note = f"not needed: it is for TVM {fix.versions}"
        return Row(fix, State.EXPIRED, note, *answers)
    if not probe.symptom.search(str(stock)):
        note = (
            f"stock TVM fails, but not with the recorded symptom: expected "
            f"/{probe.symptom.pattern}/, got {answers[0].failure}"
        )
        return Row(fix, State.UNCLEAR, note, *answers)
    return Row(fix, State.NEEDED, "", *answers)


def _answer(outcome: Outcome) -> Answer:
    passes = outcome.kind is OutcomeKind.VALUE
    failure = None if passes else textwrap.shorten(str(outcome), width=400, placeholder=" …")
    return Answer(passes, failure, round(outcome.seconds, 2))


def _check_requirement(fix: Fix) -> Row:
    assert fix.requirement is not None
    requirement = Requirement(fix.requirement)
    package, specifier = requirement.name, requirement.specifier
    version = _installed_version(package)
    if version is None:
        note = f"{package} is not installed as a package: not checked"
        return Row(fix, State.UNAVAILABLE, note)
    if specifier.contains(version, prereleases=True):
        return Row(fix, State.MET)
    note = f"{package} {version} is not {specifier}: {fix.summary}"
    return Row(fix, State.VIOLATED, note)


def _installed_version(package: str) -> str | None:
    """The version that this process has loaded, or would load.

    PYTHONPATH may hide the installed one.
    """
    loaded = sys.modules.get(_MODULES.get(package, package))
    version = getattr(loaded, "__version__", None)
    if isinstance(version, str):
        return version
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _find_tvm() -> TVMInstallation:
    package = Path(tvm.__file__).resolve().parent
    return TVMInstallation(
        version=tvm.__version__,
        path=str(package),
        origin=_find_origin(package),
        commit=_find_commit(package),
        tested=TESTED_TVM.contains(tvm.__version__, prereleases=True),
    )


def _find_origin(package: Path) -> str:
    try:
        distribution = importlib.metadata.distribution("apache-tvm")
    except importlib.metadata.PackageNotFoundError:
        return "PYTHONPATH"
    if Path(str(distribution.locate_file(package.name))).resolve() == package:
        return "wheel"
    # Installers write it for packages that do not come from an index (PEP 610).
    direct_url = json.loads(distribution.read_text("direct_url.json") or "{}")
    source = Path(direct_url.get("url", "").removeprefix("file://"))
    if direct_url.get("dir_info", {}).get("editable") and package.is_relative_to(source):
        return "editable install"
    return "PYTHONPATH"


def _find_commit(package: Path) -> str | None:
    """The commit of the source checkout, or the one that the build recorded."""
    git = ["git", "-C", str(package), "rev-parse", "--show-toplevel", "HEAD"]
    try:
        root, commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.split(
            "\n"
        )[:2]
    except (OSError, subprocess.CalledProcessError):
        root = commit = ""
    # An installed TVM may be inside another repository.
    if root and Path(root) == package.parents[1]:
        return commit
    try:
        written = getattr(importlib.import_module("tvm._version"), "commit_id", None)
    except ImportError:
        return None
    return written and str(written).removeprefix("g")


def _row_to_dict(row: Row) -> dict[str, object]:
    fix = row.fix
    return {
        "id": row.id,
        "family": fix.family,
        "kind": fix.kind,
        "summary": fix.summary,
        "upstream": list(fix.upstream),
        "versions": fix.versions,
        "state": row.state,
        "ok": row.ok,
        "note": row.note,
        "stock": row.stock and asdict(row.stock),
        "fixed": row.fixed and asdict(row.fixed),
    }


def _describe(row: Row) -> Iterator[str]:
    """The lines of a row in the table."""
    seconds = sum(answer.seconds for answer in (row.stock, row.fixed) if answer)
    yield f"[bold]{row.id}[/]" + (f"  {seconds:.1f} s" if row.stock else "")
    yield f"{row.fix.kind}: {escape(row.fix.summary)}"
    if row.fix.requirement is not None:
        yield f"needs {escape(str(Requirement(row.fix.requirement)))}"
    for way, answer in (("stock TVM", row.stock), ("tvm-fixes", row.fixed)):
        if answer is not None:
            found = "passes" if answer.passes else f"fails: {answer.failure}"
            yield f"{way} {escape(textwrap.shorten(found, width=120, placeholder=' …'))}"
