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
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..compiler.further_inputs import Groups
from ..errors import CompileError, UsageError
from ..fixes import FIXES
from ..runtime.compiled_model import CompiledModel
from ..source import Source
from ..support.isolate import OutcomeKind, run_forked
from ..support.switches import FIX_IDS
from . import variants
from .culprit import Culprit, no_difference, smaller, with_degrees
from .degrees import Limit, Variant, between, has_same_error, most_improved
from .masked import compared, with_masked_value
from .minimize import minimize
from .pass_search import PassSearch
from .problem import Degree, Kind, Observed, Problem, disagreement
from .trial import REPEAT, Progress, Settings, Subject, Trial, observe

OVER = ("fixes", "passes", "kernels")
"""The choices of :func:`bisect`."""

_CHECKS = [fix.id for fix in FIXES if fix.family == "verifier"]


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
    magnitude : float
        The factor of random floats in the inputs that show the problem.
    value : str
        The intermediate value that was searched instead of the outputs; empty for these.
    unstable : str
        How runs of the model with the same inputs differ, or two trials of it, or that the noise of
        its latency includes the limit, so that the search may be wrong; empty otherwise.
    trials : int
    seconds : float
    degrees : list of Degree
        How much of the problem the model shows, by each measure of the problem.
    """

    source: str
    problem: str
    shows: bool
    what: str
    culprits: list[Culprit] = field(default_factory=list)
    magnitude: float = 1.0
    value: str = ""
    unstable: str = ""
    trials: int = 0
    seconds: float = 0.0
    degrees: list[Degree] = field(default_factory=list)

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

    If the model shows the problem without all of them, too, degrees are compared, beyond their
    noise: see :mod:`.degrees`.

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
    opened = settings.open_whole(model, source)
    inputs = settings.draw_inputs(opened)
    settings.check_memory()
    further = settings.further_inputs(opened, problem)
    search = _Search(model, inputs, further, problem, settings, progress)
    whole = search.without_fixes(())
    first = whole.first
    masked = with_masked_value(model, settings, problem, first)
    if masked.value != settings.value:
        at_value = _Search(model, inputs, further, problem, masked, progress)
        shown = at_value.without_fixes(())
        if shown.shows:
            search, whole, first, settings = at_value, shown, shown.first, masked
    if first.shows is None:
        raise CompileError(f"{source.name}: expected: {problem}, or not; found: {first.what}")
    if first.shows:
        search.narrow(first)
    passes = PassSearch(search, whole)
    methods: dict[str, Callable[[], Culprit]] = {
        "fixes": partial(search.over_fixes, whole, passes),
        "passes": passes.find,
        "kernels": search.over_kernels,
    }
    culprits = [methods[one]() for one in OVER if one in over and (first.shows or one == "fixes")]
    culprits = search.with_fix_of_pass(whole, culprits)
    unstable = first.unstable or disagreement(first, whole.again()) or problem.doubt(first)
    return Bisection(
        source=source.name,
        problem=str(problem),
        shows=first.shows,
        what=first.what,
        culprits=culprits,
        magnitude=search.magnitude,
        value=settings.value,
        unstable=unstable,
        trials=search.trials,
        seconds=round(time.monotonic() - search.start, 1),
        degrees=list(first.degrees),
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
        self._model, self.settings = model, settings
        self._inputs, self._further = inputs, further
        self.problem, self._progress = problem, progress
        self.trials, self.start = 0, time.monotonic()
        self.magnitude = 1.0
        self.without_fixes = cache(self._without_fixes)

    def narrow(self, first: Observed) -> None:
        """Search only the problem that a trial shows, at its sizes and magnitude of inputs."""
        self.problem = self.problem.like(first)
        narrowed = self._subject(self._compile).at(first.sizes, first.magnitude)
        self._inputs, self._further = narrowed.inputs, narrowed.further

    def _subject(self, build: Callable[[Source], CompiledModel]) -> Subject:
        def save(folder: Path) -> Path:
            path = folder / "artifact"
            build(self.settings.open(self._model)).save(path)
            return path

        opened = partial(self.settings.open, self._model)
        repeat = 1 if self.trials else REPEAT
        return Subject(opened, build, self._inputs, save, self._further, repeat=repeat)

    def _try(
        self,
        label: str,
        size: int,
        build: Callable[[Source], CompiledModel],
        off: Sequence[str] = (),
    ) -> Observed:
        subject = self._subject(build)
        observed = observe(self.problem, subject, self.settings, off=frozenset(off))
        self.trials += 1
        if observed.shows and observed.magnitude != 1:
            self.magnitude = observed.magnitude
        if self._progress is not None:
            self._progress(Trial(label, size, observed))
        return observed

    def variant(
        self,
        label: str,
        size: int,
        build: Callable[[Source], CompiledModel],
        off: Sequence[str] = (),
    ) -> Variant:
        """As of :class:`.culprit.Search`; so is :meth:`ask`."""
        return Variant(partial(self._try, label, size, build, off))

    def _compile(self, source: Source) -> CompiledModel:
        return self.settings.build(source)

    def _without_fixes(self, off: tuple[str, ...]) -> Variant:
        """The model compiled without some fixes."""
        names = "any fix" if set(off) == set(FIX_IDS) else ", ".join(off)
        label = f"without {names}" if off else "all fixes on"
        return self.variant(label, len(off), self._compile, off)

    def _flips(self, whole: Variant, off: Sequence[str]) -> bool:
        """Whether the model without some fixes shows the problem instead of not, or reversely."""
        limit = Limit.of(self.problem)
        bad = limit.is_exceeded(self.without_fixes(tuple(off))) if off else None
        return bad is (not whole.shows)

    def with_fix_of_pass(self, whole: Variant, culprits: Sequence[Culprit]) -> list[Culprit]:
        """The findings; if the fix of the pass found makes the difference by itself, it replaces
        the fixes found, which may only enable the pass."""
        found = {one.over: one for one in culprits if one.names and whole.shows}
        fixes, last = found.get("fixes"), found.get("passes")
        if fixes is None or last is None or fixes.node:
            return list(culprits)
        name = last.names[-1].partition(" ")[0]
        applied = self.ask(variants.fixes_of_passes)
        by_pass = {} if isinstance(applied, str) else applied
        of_pass = [fix for fix, passes in by_pass.items() if name in passes]
        own = next((one for one in of_pass if self._flips(whole, [one])), None)
        if own is None or own == fixes.names[0]:
            return list(culprits)
        others = ", ".join(one for one in fixes.names if one != own)
        what = (
            f"{name} belongs to {own}; without only this fix, the model does not show the problem "
            f"(nor without {others})"
        )
        better = with_degrees(Culprit("fixes", [own], what), whole, self.without_fixes((own,)))
        return [better if one is fixes else one for one in culprits]

    def over_fixes(self, whole: Variant, passes: PassSearch) -> Culprit:
        """The fixes that change the outcome when they are off."""
        # A check of the verifier only reports an error, unless nothing else is at fault.
        checks = _CHECKS if self.problem.kind is Kind.FAILS else []
        every = [one for one in FIX_IDS if one not in checks]
        applied = [one for one in whole.first.fixes if one not in checks]
        flips = partial(self._flips, whole)
        names: list[str] = []
        tried: list[str] = []
        is_imported = False
        if flips(applied):
            names = minimize(applied, flips)
        elif flips(every):  # not every fix reports its use
            names = minimize(every, flips)
        else:
            # Without all of them, the model may not even compile.
            is_imported = bool(whole.shows) and has_same_error(whole, passes.stock)
            names = [one for one in applied if flips([one])]
            tried = names[:1]
        if not names and checks and flips(checks):
            return self._by_verifier(minimize(checks, flips))
        if names:
            outcome = "does not show" if whole.shows else "shows"
            what = f"without {', '.join(names)}, the model {outcome} the problem"
            without = self.without_fixes(tuple(tried or names))
            return with_degrees(Culprit("fixes", names, what), whole, without)
        if whole.shows:
            names = self._worsening_fixes(whole, applied)
        without = self.without_fixes(tuple(names or applied or FIX_IDS))
        where = f"without {', '.join(names)}"
        found = smaller("fixes", names, where, whole, without) if names else None
        if found is not None:
            return found
        what = f"none of the {len(whole.first.fixes)} fixes makes a difference"
        # Such as the fix with the only converter of an operator.
        needed = [one for one in applied if self.without_fixes((one,)).shows is None]
        imported = self._at_import(needed) if is_imported and needed else None
        if imported is not None:
            return imported
        if whole.shows and needed:
            what += (
                f"; without {' or '.join(needed)}, the model does not compile or run, so what "
                "replaces TVM's behavior there may be at fault"
            )
            return Culprit("fixes", [], what)
        return no_difference("fixes", what, (whole, "with them"), (without, "without them"))

    def _by_verifier(self, checks: list[str]) -> Culprit:
        """The finding that only checks of the verifier make the difference."""
        what = (
            f"no fix but {', '.join(checks)} makes a difference: the verifier reports the "
            "problem, so the module is wrong where it says, or this check is"
        )
        return Culprit("fixes", checks, what)

    def _at_import(self, needed: Sequence[str]) -> Culprit | None:
        """The finding that a fix without which the model does not build imports a node wrong."""
        found = compared(self._model, self.settings)
        if found is None or found.first is None or found.skipped_before:
            return None
        names = [one for one in needed if "import" in found.fixes.get(one, ())]
        if not names:
            return None
        node = str(found.first.node)
        what = (
            f"the import of {node} by {' or '.join(names)} is probably at fault: TVM's own "
            "pipeline computes the same, and without the fix, the model does not compile or run"
        )
        return Culprit("fixes", names, what, node=node)

    def _worsening_fixes(self, whole: Variant, applied: Sequence[str]) -> list[str]:
        """The fixes without which the model shows less of the problem."""
        for every in filter(None, (applied, FIX_IDS)):
            limit = between(whole, self.without_fixes(tuple(every)))
            if limit is not None:
                return minimize(every, partial(self._clears, limit))
        best = most_improved(whole, {one: self.without_fixes((one,)) for one in applied})
        return [] if best is None else [best]

    def _clears(self, limit: Limit, off: Sequence[str]) -> bool:
        return bool(off) and limit.clears(self.without_fixes(tuple(off)))

    def over_kernels(self) -> Culprit:
        """The kernels whose schedules show the problem."""
        kernels = self.ask(variants.scheduled_kernels)
        if isinstance(kernels, str):
            return Culprit("kernels", [], f"the pipeline fails: {kernels}")

        @cache
        def scheduled(names: tuple[str, ...]) -> Variant:
            build = partial(
                variants.build_with_kernels, settings=self.settings, kernels=frozenset(names)
            )
            left = [kernel for kernel in kernels if kernel not in names]
            is_most = len(left) == 1 < len(names)
            label = f"schedules of {', '.join(names) or 'no kernel'}"
            label = f"all schedules but that of {left[0]}" if is_most else label
            return self.variant(label, len(names), build)

        every, none = scheduled(tuple(kernels)), scheduled(())
        if not every.shows:
            return Culprit("kernels", [], "no schedule of a kernel makes a difference")
        if none.shows and not (kernels and none.degrees):
            return Culprit("kernels", [], "the model shows the problem without schedules, too")
        if not none.shows:
            limit = Limit.of(self.problem)
            names = minimize(kernels, lambda some: limit.rejects(scheduled(tuple(some))))
            found = Culprit("kernels", names, f"only with the schedule of {', '.join(names)}")
            found = with_degrees(found, scheduled(tuple(names)), none)
        else:
            found = self._worsening_kernels(kernels, scheduled)
        if not found.names:
            return found
        diff = str(self.ask(partial(variants.diff_of_kernel, name=found.names[0])))
        return replace(found, diff=diff)

    def _worsening_kernels(
        self, kernels: Sequence[str], scheduled: Callable[[tuple[str, ...]], Variant]
    ) -> Culprit:
        """The kernels without whose schedules the model shows less of the problem."""
        every, none = scheduled(tuple(kernels)), scheduled(())
        limit = between(every, none)
        if limit is not None:
            names = minimize(kernels, lambda some: limit.rejects(scheduled(tuple(some))))
            worse, better = scheduled(tuple(names)), none
        else:
            single = () if has_same_error(every, none) else kernels
            rest = {
                name: scheduled(tuple(one for one in kernels if one != name)) for name in single
            }
            best = most_improved(every, rest)
            names = [] if best is None else [best]
            worse, better = every, none if best is None else rest[best]
        where = f"without the schedule of {', '.join(names)}"
        found = smaller("kernels", names, where, worse, better) if names else None
        what = "no schedule is at fault"
        return found or no_difference(
            "kernels", what, (every, "with all schedules"), (none, "without schedules")
        )

    def ask(self, question: Callable[[Source, Settings], Any]) -> Any:
        """The answer of a function of :mod:`.variants` in a forked child; a str for an error."""

        def ask() -> Any:
            return question(self.settings.open(self._model), self.settings)

        outcome = run_forked(ask, timeout=self.settings.seconds)
        if outcome.kind is OutcomeKind.VALUE:
            return cast(Any, outcome.value)
        return " ".join(str(outcome).split())
