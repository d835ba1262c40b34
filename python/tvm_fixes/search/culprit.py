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
"""The finding of a search, and its trials."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ..runtime.compiled_model import CompiledModel
from ..source import Source
from .degrees import Variant, degree_of, improvement
from .problem import Degree, Problem
from .trial import Settings


@dataclass(frozen=True)
class Culprit:
    """The fixes, pass or kernels that make the difference.

    Attributes
    ----------
    over : str
        One of :data:`.bisection.OVER`.
    names : list of str
        The fixes, passes or kernels; empty if none makes a difference.  Several fixes or kernels
        only make it together; of several passes, it is one that cannot be told from the others.
    what : str
        The finding in one line.
    again : str
        The command that shows it again, if a command searched and there are `names`.
    diff : str
        The changes of the pass, or of the schedule of a kernel.
    degrees : list of Degree
        How much of the problem the model shows with `names`, by each measure of the problem.
    degrees_without : list of Degree
        The same without them, or before the pass.  Without `names`, these are the degrees that do
        not differ beyond noise: those of the model, and without what was searched.
    node : str
        The node whose import is probably at fault; then nothing was compared without the fix in
        `names`, because the model does not compile or run without it.
    """

    over: str
    names: list[str]
    what: str
    again: str = ""
    diff: str = ""
    degrees: list[Degree] = field(default_factory=list)
    degrees_without: list[Degree] = field(default_factory=list)
    node: str = ""


class Search(Protocol):
    """The trials of one model."""

    @property
    def settings(self) -> Settings: ...

    @property
    def problem(self) -> Problem: ...

    def variant(
        self,
        label: str,
        size: int,
        build: Callable[[Source], CompiledModel],
        off: Sequence[str] = (),
    ) -> Variant:
        """A variant of the model, without some fixes.

        Parameters
        ----------
        label : str
            What is tried.
        size : int
            The number of fixes, passes or kernels.
        build : callable
        off : sequence of str
        """
        ...

    def ask(self, question: Callable[[Source, Settings], Any]) -> Any:
        """The answer of a function of :mod:`.variants` in a forked child; a str for an error."""
        ...


def smaller(
    over: str, names: list[str], where: str, worse: Variant, better: Variant, others: str = ""
) -> Culprit | None:
    """The finding that the problem is smaller `where` than with `names`; None unless it is, beyond
    noise."""
    less = improvement(worse, better)
    if not less:
        return None
    what = f"{where}, the problem is smaller: {less}{others}"
    return with_degrees(Culprit(over, names, what), worse, better)


def no_difference(
    over: str, what: str, ours: tuple[Variant, str], other: tuple[Variant, str]
) -> Culprit:
    """The finding that two variants, given with their names, do not differ beyond noise."""
    degrees = [f"{degree_of(variant)} {name}" for variant, name in (ours, other)]
    if all(variant.shows and variant.degrees for variant, _ in (ours, other)):
        what = f"{what}: {', and '.join(degrees)}"
    return with_degrees(Culprit(over, [], what), ours[0], other[0])


def with_degrees(culprit: Culprit, worse: Variant, better: Variant) -> Culprit:
    """A finding with the degrees of two variants."""
    return replace(
        culprit,
        degrees=list(worse.degrees.values()),
        degrees_without=list(better.degrees.values()),
    )
