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
"""The fix, the pass or the kernel that makes a difference to a problem."""

import json
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..compiler.further_sizes import Groups
from ..errors import CompileError, UsageError
from ..runtime.compiled_model import CompiledModel
from ..source import Source
from ..support.isolate import OutcomeKind, run_forked
from ..support.switches import FIX_IDS
from ..user_passes import UserPass, read
from . import variants
from .masked import with_masked_value
from .minimize import first_change, minimize
from .problem import Kind, Observed, Problem, disagreement
from .trial import Progress, Settings, Subject, Trial, observe

OVER = ("fixes", "passes", "kernels")
"""The choices of :func:`bisect`."""


@dataclass(frozen=True)
class Culprit:
    """The fixes, pass or kernels that make the difference.

    Attributes
    ----------
    over : str
        One of :data:`OVER`.
    names : list of str
        The fixes, passes or kernels; empty if none makes a difference.  Several fixes or kernels
        only make it together; of several passes, it is one that cannot be told from the others.
    what : str
        The finding in one line.
    again : str
        The command that shows it again, if a command searched and there are `names`.
    diff : str
        The changes of the pass, or of the schedule of a kernel.
    """

    over: str
    names: list[str]
    what: str
    again: str = ""
    diff: str = ""


@dataclass(frozen=True)
class Bisection:
    """The result of :func:`bisect`.

    Attributes
    ----------
    source : str
        The name of the model.
    problem : str
    shows : bool
        Whether the model shows the problem.  If not, it was searched for fixes that hide it.
    what : str
        What the model shows.
    culprits : list of Culprit
        One for each list searched.
    value : str
        The intermediate value that was searched instead of the outputs; empty for these.
    unstable : str
        How two trials of the model as it is disagree, so that the search may be wrong; empty
        otherwise.
    trials : int
    seconds : float
    """

    source: str
    problem: str
    shows: bool
    what: str
    culprits: list[Culprit] = field(default_factory=list)
    value: str = ""
    unstable: str = ""
    trials: int = 0
    seconds: float = 0.0

    def to_json(self) -> str:
        """The fields as a JSON object."""
        return json.dumps(asdict(self), indent=2)


def bisect(
    model: Any,
    problem: Problem | None = None,
    *,
    over: Collection[str] = OVER,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> Bisection:
    """Find the fix, the pass or the kernel that makes the difference to a problem.

    Fixes are switched off.  The model runs after some of the passes, with TVM's own pipeline for
    the rest, and with some of its kernels scheduled.

    Parameters
    ----------
    model : str, path or object
        As for :func:`tvm_fixes.search.reduction.reduce`.
    problem : Problem, optional
        By default, that an output is not equal to the reference's.
    over : collection of str
        Some of :data:`OVER`.
    settings : Settings, optional
        How to build and run the model.
    progress : callable, optional
        Called with a :class:`~tvm_fixes.search.trial.Trial` after each trial.

    Returns
    -------
    bisection : Bisection

    Raises
    ------
    UsageError
        If an element of `over` is unknown, or the memory limit is too small for any trial.
    CompileError
        If the model cannot be opened, or has another problem.
    """
    settings, problem = settings or Settings(), problem or Problem()
    unknown = sorted(set(over).difference(OVER))
    if unknown or settings.stock:
        what = f"over {', '.join(unknown)}" if unknown else "over TVM's own pipeline"
        raise UsageError(f"cannot bisect {what}; expected {', '.join(OVER)}")
    source = settings.open(model)
    whole = settings.open_whole(model, source)
    inputs = settings.draw_inputs(whole)
    settings.check_memory()
    further = settings.further_inputs(whole, problem)
    search = _Search(model, inputs, further, problem, settings, progress)
    first = search.try_fixes(())
    masked = with_masked_value(model, settings, problem, first)
    if masked.value != settings.value:
        at_value = _Search(model, inputs, further, problem, masked, progress)
        shown = at_value.try_fixes(())
        if shown.shows:
            search, first, settings = at_value, shown, masked
    if first.shows is None:
        raise CompileError(f"{source.name}: expected: {problem}, or not; found: {first.what}")
    search.problem = problem.like(first) if first.shows else problem
    methods: dict[str, Callable[[], Culprit]] = {
        "fixes": partial(search.over_fixes, first),
        "passes": search.over_passes,
        "kernels": search.over_kernels,
    }
    culprits = [methods[one]() for one in OVER if one in over and (first.shows or one == "fixes")]
    again = search.try_fixes(())
    return Bisection(
        source=source.name,
        problem=str(problem),
        shows=first.shows,
        what=first.what,
        culprits=culprits,
        value=settings.value,
        unstable=disagreement(first, again),
        trials=search.trials,
        seconds=round(time.monotonic() - search.start, 1),
    )


class _Search:
    """The trials of one model."""

    def __init__(
        self,
        model: Any,
        inputs: list[np.ndarray],
        further: Groups,
        problem: Problem,
        settings: Settings,
        progress: Progress | None,
    ) -> None:
        self._model, self._settings = model, settings
        self._inputs, self._further = inputs, further
        self.problem, self._progress = problem, progress
        self.trials, self.start = 0, time.monotonic()

    def _try(
        self,
        label: str,
        size: int,
        build: Callable[[Source], CompiledModel],
        off: Sequence[str] = (),
    ) -> Observed:
        def save(folder: Path) -> Path:
            path = folder / "artifact"
            build(self._settings.open(self._model)).save(path)
            return path

        opened = partial(self._settings.open, self._model)
        subject = Subject(opened, build, self._inputs, save, self._further)
        observed = observe(self.problem, subject, self._settings, off=frozenset(off))
        self.trials += 1
        if self._progress is not None:
            self._progress(Trial(label, size, observed))
        return observed

    def _compile(self, source: Source) -> CompiledModel:
        return self._settings.build(source)

    def try_fixes(self, off: Sequence[str]) -> Observed:
        """Compile the model without some fixes."""
        names = "any fix" if set(off) == set(FIX_IDS) else ", ".join(off)
        label = f"without {names}" if off else "all fixes on"
        return self._try(label, len(off), self._compile, off)

    def over_fixes(self, first: Observed) -> Culprit:
        """The fixes that change the outcome when they are off."""
        applied = list(first.fixes)

        needed: list[str] = []

        def flips(off: Sequence[str]) -> bool:
            if not off:
                return False
            shows = self.try_fixes(off).shows
            if shows is None and len(off) == 1:
                needed.extend(off)
            return shows is (not first.shows)

        names: list[str] = []
        if flips(applied):
            names = minimize(applied, flips)
        elif flips(FIX_IDS):  # not every fix reports its use
            names = minimize(FIX_IDS, flips)
        elif len(applied) > 1:
            # Without all of them, the model may not even compile.
            names = [one for one in applied if flips([one])]
        if not names:
            what = f"none of the {len(applied)} fixes makes a difference"
            # Such as the fix with the only converter of an operator.
            if first.shows and needed:
                what += (
                    f"; without {' or '.join(needed)}, the model does not compile or run, so what "
                    "replaces TVM's behavior there may be at fault"
                )
            return Culprit("fixes", [], what)
        outcome = "does not show" if first.shows else "shows"
        return Culprit(
            "fixes",
            names,
            f"without {', '.join(names)}, the model {outcome} the problem",
        )

    def over_passes(self) -> Culprit:
        """The pass after which the model shows the problem."""
        with tempfile.TemporaryFile("w+", buffering=1) as log:
            runs = self._ask(partial(variants.passes_of, on_start=partial(print, file=log)))
            log.seek(0)
            started = log.read().splitlines()
        if isinstance(runs, str):
            return self._failing_pass(started, runs)
        own = self._users_passes()
        if own:
            alone = f"without {', '.join(map(str, own))}, the model does not show the problem"
            found = self._first_pass(runs)
            if found.names:
                return replace(found, what=f"{found.what}; {alone}")
            run = next((run for run in runs if run.user_pass == str(own[0])), None)
            diff = "" if run is None else str(self._ask(partial(variants.diff_of, run=run)))
            return Culprit("passes", [str(one) for one in own], alone, diff=diff)
        return self._first_pass(runs)

    def _users_passes(self) -> list[UserPass]:
        """The users' passes without which the model does not show the problem."""

        def is_fine(off: Sequence[UserPass]) -> bool:
            kept = tuple(one for one in self._settings.passes if one not in off)
            settings = replace(self._settings, passes=kept)
            label = f"without {', '.join(map(str, off))}"
            build = settings.build
            return bool(off) and self._try(label, len(off), build).shows is False

        passes = read(self._settings.passes)
        return minimize(passes, is_fine) if is_fine(passes) else []

    def _first_pass(self, runs: Sequence[variants.PassRun]) -> Culprit:
        """The pass after which the model shows the problem, with TVM's own passes for the rest."""

        def shows(number: int) -> bool | None:
            last = runs[number - 1] if number else None
            label = f"up to {last}" if last else "TVM's own pipeline"
            for with_fixes in (False, True):
                build = partial(
                    variants.build_after,
                    settings=self._settings,
                    last=last,
                    with_fixes=with_fixes,
                )
                trial = self._try(f"{label}{', fixes on' if with_fixes else ''}", number, build)
                if trial.shows is not None:
                    break
            return trial.shows

        if shows(0):
            return Culprit("passes", [], "TVM's own pipeline shows the problem, too")
        if not shows(len(runs)):
            return Culprit("passes", [], "after all passes, the model does not show the problem")
        good, bad = first_change(shows, len(runs))
        names = [str(run) for run in runs[good:bad]]
        return Culprit(
            "passes",
            names,
            f"not {f'after {runs[good - 1]}' if good else 'before'}, but after {names[-1]}",
            diff=str(self._ask(partial(variants.diff_of, run=runs[bad - 1]))),
        )

    def _failing_pass(self, started: Sequence[str], error: str) -> Culprit:
        """The pass in which the pipeline fails."""
        is_the_problem = self.problem.kind in (Kind.CRASHES, Kind.FAILS)
        if not (is_the_problem and started):
            return Culprit("passes", [], f"the pipeline fails: {error}")
        return Culprit("passes", [started[-1]], f"in {started[-1]}: {error}")

    def over_kernels(self) -> Culprit:
        """The kernels whose schedules show the problem."""
        kernels = self._ask(variants.scheduled_kernels)
        if isinstance(kernels, str):
            return Culprit("kernels", [], f"the pipeline fails: {kernels}")

        def shows(names: Sequence[str]) -> bool:
            build = partial(
                variants.build_with_kernels, settings=self._settings, kernels=frozenset(names)
            )
            label = f"schedules of {', '.join(names) or 'no kernel'}"
            return bool(self._try(label, len(names), build).shows)

        if not shows(kernels):
            return Culprit("kernels", [], "no schedule of a kernel makes a difference")
        names = minimize(kernels, shows)
        if not names:
            return Culprit("kernels", [], "the model shows the problem without schedules, too")
        return Culprit(
            "kernels",
            names,
            f"only with the schedule of {', '.join(names)}",
            diff=str(self._ask(partial(variants.diff_of_kernel, name=names[0]))),
        )

    def _ask(self, question: Callable[[Source, Settings], Any]) -> Any:
        """The answer of a function of :mod:`.variants` in a forked child; a str for an error."""

        def ask() -> Any:
            return question(self._settings.open(self._model), self._settings)

        outcome = run_forked(ask, timeout=self._settings.seconds)
        if outcome.kind is OutcomeKind.VALUE:
            return cast(Any, outcome.value)
        return " ".join(str(outcome).split())
