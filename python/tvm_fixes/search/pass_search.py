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
"""The search for the pass with a problem."""

import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from ..pipeline import steps
from ..user_passes import UserPass, read
from . import variants
from .culprit import Culprit, Search, no_difference, smaller, with_degrees
from .degrees import Limit, Variant, between, degree_of, has_same_error, most_improved
from .minimize import first_change, minimize
from .problem import Kind

_STOCK = "with TVM's own pipeline"

_TVM_PASSES = {step.name for _, step in steps() if not step.is_own}


@dataclass(frozen=True)
class PassSearch:
    """The search of one model.

    Attributes
    ----------
    search : Search
    whole : Variant
        The model as it is.
    """

    search: Search
    whole: Variant

    @cached_property
    def stock(self) -> Variant:
        """The imported model with TVM's own pipeline."""
        return self._after(None, 0)

    def find(self) -> Culprit:
        """The pass after which the model shows the problem, or more of it."""
        with tempfile.TemporaryFile("w+", buffering=1) as log:
            runs = self.search.ask(partial(variants.passes_of, on_start=partial(print, file=log)))
            log.seek(0)
            started = log.read().splitlines()
        if isinstance(runs, str):
            return self._failing_pass(started, runs)
        own = self._users_passes()
        found = self._first_pass(runs, drops=own is None)
        if own is None:
            return found
        if found.names:
            return replace(found, what=f"{found.what}; {own.what}")
        run = next((run for run in runs if run.user_pass == own.names[0]), None)
        return own if run is None else replace(own, diff=self._diff(run))

    def _failing_pass(self, started: Sequence[str], error: str) -> Culprit:
        """The pass in which the pipeline fails."""
        is_the_problem = self.search.problem.kind in (Kind.CRASHES, Kind.FAILS)
        if not (is_the_problem and started):
            return Culprit("passes", [], f"the pipeline fails: {error}")
        return Culprit("passes", [started[-1]], f"in {started[-1]}: {error}")

    def _users_passes(self) -> Culprit | None:
        """The users' passes without which the model does not show the problem, or less of it."""
        settings = self.search.settings

        @cache
        def without(off: tuple[UserPass, ...]) -> Variant:
            kept = tuple(one for one in settings.passes if one not in off)
            label = f"without {', '.join(map(str, off))}"
            return self.search.variant(label, len(off), replace(settings, passes=kept).build)

        passes = read(settings.passes)
        if not passes:
            return None
        of_problem = Limit.of(self.search.problem)
        is_gone = of_problem.clears(without(passes))
        limit = of_problem if is_gone else between(self.whole, without(passes))
        if limit is None:
            return None
        own = tuple(minimize(passes, lambda off: bool(off) and limit.clears(without(tuple(off)))))
        names = [str(one) for one in own]
        if is_gone:
            what = f"without {', '.join(names)}, the model does not show the problem"
            return with_degrees(Culprit("passes", names, what), self.whole, without(own))
        where = f"without {', '.join(names)}"
        return smaller("passes", names, where, self.whole, without(own))

    def _first_pass(self, runs: Sequence[variants.PassRun], *, drops: bool) -> Culprit:
        """The pass after which the model shows the problem, or more of it than with TVM's own
        pipeline.

        Each variant runs some of the passes, and TVM's own for the rest.  If TVM's own pipeline
        shows as much of the problem, and `drops`, it is the pass without which there is less.
        """

        @cache
        def after(number: int) -> Variant:
            return self._after(runs[number - 1], number) if number else self.stock

        stock = after(0)
        if stock.shows and not stock.degrees:
            return Culprit("passes", [], "TVM's own pipeline shows the problem, too")
        ours = after(len(runs))
        if not ours.shows:
            what = (
                "after all passes, the model does not show the problem, so what follows them may "
                "be at fault, such as the weights outside the library"
            )
            return Culprit("passes", [], what)
        limit = between(ours, stock) if stock.shows else Limit.of(self.search.problem)
        if limit is None and has_same_error(ours, stock):  # the import has it already
            drops = False
        if limit is None:
            # TVM's own pipeline has the others, too.
            own = [run for run in runs if run.user_pass or run.name not in _TVM_PASSES]
            return self._dropped_pass(own if drops else (), ours, stock)
        good, bad = _change(limit, after, len(runs))
        names = [str(run) for run in runs[good:bad]]
        where = f"not {f'after {runs[good - 1]}' if good else 'before'}, but after {names[-1]}"
        found = with_degrees(Culprit("passes", names, where), after(bad), after(good))
        if stock.shows:
            where = f"before {names[0] if len(names) == 1 else f'{names[0]} to {names[-1]}'}"
            less = smaller("passes", names, where, after(bad), after(good), _others(stock))
            found = less or found
        return replace(found, diff=self._diff(runs[bad - 1]))

    def _after(self, last: variants.PassRun | None, number: int) -> Variant:
        """The model after some passes, with TVM's own for the rest."""
        label = f"up to {last}" if last else "TVM's own pipeline"
        for with_fixes in (False, True):
            build = partial(
                variants.build_after,
                settings=self.search.settings,
                last=last,
                with_fixes=with_fixes,
            )
            marked = f"{label}{', fixes on' if with_fixes else ''}"
            found = self.search.variant(marked, number, build)
            if found.shows is not None:
                break
        return found

    def _dropped_pass(
        self, runs: Sequence[variants.PassRun], ours: Variant, stock: Variant
    ) -> Culprit:
        """The pass without which the model shows less of the problem."""

        def without(run: variants.PassRun | None) -> Variant:
            build = partial(variants.build_without, settings=self.search.settings, run=run)
            return self.search.variant(f"without {run}" if run else "all passes", 1, build)

        every = without(None) if runs else ours
        candidates = {run: without(run) for run in runs}
        best = most_improved(every, candidates)
        if best is not None:
            where, better = f"without {best}", candidates[best]
            found = smaller("passes", [str(best)], where, every, better, _others(stock))
            if found is not None:
                return replace(found, diff=self._diff(best))
        what = "no pass is at fault"
        found = no_difference("passes", what, (ours, "with all passes"), (stock, _STOCK))
        if not runs:
            return found
        return replace(found, what=f"{found.what}; not smaller without any one of {len(runs)}")

    def _diff(self, run: variants.PassRun) -> str:
        return str(self.search.ask(partial(variants.diff_of, run=run)))


def _change(limit: Limit, after: Callable[[int], Variant], end: int) -> tuple[int, int]:
    """The last good variant and the first bad one that noise does not confuse."""
    bad: dict[int, bool | None] = {0: False, end: True}

    def is_bad(number: int) -> bool | None:
        bad[number] = limit.is_exceeded(after(number))
        return bad[number]

    nearest = first_change(is_bad, end)
    if limit.measure is None:
        return nearest
    pairs = [
        (one, other)
        for one, other in itertools.product(bad, bad)
        if one < other and bad[one] is False and bad[other] is True
    ]
    for one, other in sorted(pairs, key=lambda pair: pair[1] - pair[0]):
        if after(one).shows is None or between(after(other), after(one)) is not None:
            return one, other
    return 0, end


def _others(stock: Variant) -> str:
    return f"; {degree_of(stock)} {_STOCK}"
