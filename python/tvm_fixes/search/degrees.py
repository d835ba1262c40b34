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
"""Which of two variants of a model shows more of a problem, beyond noise."""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from .problem import Degree, Kind, Measure, Observed, Problem

T = TypeVar("T")

# Latencies that differ by a larger factor need no further trials.
_MAX_CLOSE = 2.0

# A latency that is farther from a limit is on one side of it: processes differ by a few percent.
_MAX_NEAR = 1.1

# The trials of a variant whose latency is close to another, or near a limit.
_MIN_TRIALS = 5

_ERRORS = (Measure.UNDEFINED, Measure.ERROR)

# The candidates that are tried again, those of the lowest degree first.
_MAX_CANDIDATES = 3


class Variant:
    """A variant of a model, and its trials.

    Parameters
    ----------
    try_once : callable
        Makes a trial; it is called at once.
    """

    def __init__(self, try_once: Callable[[], Observed]) -> None:
        self._try_once = try_once
        self._trials = [try_once()]

    @property
    def first(self) -> Observed:
        """The first trial."""
        return self._trials[0]

    @property
    def shows(self) -> bool | None:
        """Whether the first trial shows the problem."""
        return self.first.shows

    def again(self) -> Observed:
        """Make another trial."""
        self._trials.append(self._try_once())
        return self._trials[-1]

    def try_up_to(self, count: int) -> None:
        """Make further trials, up to `count`."""
        while len(self._trials) < count:
            self.again()

    def values(self, measure: Measure) -> list[float]:
        """The degree of each trial."""
        return [one.value for one in self._degrees(measure)]

    @property
    def degrees(self) -> dict[Measure, Degree]:
        """The degrees of all trials; the noise is that in a trial, and that among the trials."""
        found = {}
        for measure in Measure:
            every = self._degrees(measure)
            if every:
                values = [one.value for one in every]
                low = min(*values, statistics.median(one.low for one in every))
                high = max(*values, statistics.median(one.high for one in every))
                found[measure] = Degree(measure, statistics.median(values), low, high)
        return found

    def _degrees(self, measure: Measure) -> list[Degree]:
        return [one for each in self._trials for one in each.degrees if one.measure is measure]

    def rank(self) -> tuple[float, ...]:
        """A number for each measure: variants in this order show ever more of the problem."""
        degrees = self.degrees
        return tuple(degrees[one].value if one in degrees else math.inf for one in Measure)


@dataclass(frozen=True)
class Limit:
    """The line between good and bad variants of a model.

    Attributes
    ----------
    measure : Measure or None
        None if a variant is bad if it shows the problem.
    value : float
        Variants of a larger degree are bad.
    """

    measure: Measure | None = None
    value: float = 0.0

    @classmethod
    def of(cls, problem: Problem) -> "Limit":
        """The limit of a problem."""
        return cls(Measure.LATENCY, problem.limit) if problem.kind is Kind.SLOWER else cls()

    def is_exceeded(self, variant: Variant) -> bool | None:
        """Whether a variant is bad; None if the noise, or another problem, hides it."""
        degree = self._degree(variant)
        if degree is not None and self._is_near(degree):
            self._repeat(variant)
            degree = self._degree(variant)
        if degree is None:
            return variant.shows
        if degree.low <= self.value <= degree.high:
            return None
        return degree.low > self.value

    def rejects(self, variant: Variant) -> bool:
        """Whether a variant is bad."""
        return self.is_exceeded(variant) is True

    def clears(self, variant: Variant) -> bool:
        """Whether a variant is good."""
        return self.is_exceeded(variant) is False

    def _repeat(self, variant: Variant) -> None:
        """Try again, until the trials disagree."""
        for count in range(2, _MIN_TRIALS + 1):
            variant.try_up_to(count)
            values = variant.values(Measure.LATENCY)
            if min(values) <= self.value <= max(values):
                return

    def _is_near(self, degree: Degree) -> bool:
        low, high = degree.low / _MAX_NEAR, degree.high * _MAX_NEAR
        return degree.measure is Measure.LATENCY and low <= self.value <= high

    def _degree(self, variant: Variant) -> Degree | None:
        return None if self.measure is None else variant.degrees.get(self.measure)


def between(worse: Variant, better: Variant) -> Limit | None:
    """The limit between two variants; None if the first is not worse, beyond noise.

    A variant with wrong outputs is not better than one with right outputs.
    """
    if not _is_comparable(worse, better):
        return None
    for measure in Measure:
        more, less = worse.degrees.get(measure), better.degrees.get(measure)
        if more is None or less is None:
            continue
        if measure is Measure.LATENCY and more.value > less.value and _are_close(more, less):
            _repeat(worse, better)
            more, less = worse.degrees[measure], better.degrees[measure]
        if more.is_worse(less):
            is_positive = less.high > 0
            middle = math.sqrt(more.low * less.high) if is_positive else more.low / 2
            return Limit(measure, middle)
        if less.is_worse(more):
            return None
    return None


def has_same_error(one: Variant, other: Variant) -> bool:
    """Whether both have wrong outputs with errors that are finite and equal, up to noise."""
    if not (one.shows and other.shows):
        return False
    pairs = [(one.degrees.get(each), other.degrees.get(each)) for each in _ERRORS]
    (undefined, also), (error, same) = pairs
    if undefined is None or also is None or error is None or same is None:
        return False
    is_same = not error.is_worse(same) and not same.is_worse(error)
    return undefined.value == also.value == 0 < error.value and is_same


def _repeat(worse: Variant, better: Variant) -> None:
    """Try both again, until the trials disagree on which is worse."""
    for count in range(2, _MIN_TRIALS + 1):
        worse.try_up_to(count)
        better.try_up_to(count)
        if min(worse.values(Measure.LATENCY)) <= max(better.values(Measure.LATENCY)):
            return


def _is_comparable(worse: Variant, better: Variant) -> bool:
    return better.shows is not None and (better.first.accepted or not worse.first.accepted)


def _are_close(one: Degree, other: Degree) -> bool:
    return max(one.low, other.low) < _MAX_CLOSE * min(one.high, other.high)


def most_improved(whole: Variant, candidates: Mapping[T, Variant]) -> T | None:
    """The variant with the lowest degree, below that of `whole` beyond noise; None without one."""
    if candidates and Measure.LATENCY in whole.degrees:  # the lowest of many is low by chance
        whole.try_up_to(_MIN_TRIALS)
    lower = [
        item
        for item, variant in candidates.items()
        if _is_comparable(whole, variant) and variant.rank() < whole.rank()
    ]
    best = sorted(lower, key=lambda item: candidates[item].rank())[:_MAX_CANDIDATES]
    return next((item for item in best if between(whole, candidates[item])), None)


def improvement(worse: Variant, better: Variant) -> str:
    """Both degrees in words; empty if they do not differ, beyond noise."""
    limit = between(worse, better)
    if limit is None or limit.measure is None:
        return ""
    return f"{better.degrees[limit.measure]} instead of {worse.degrees[limit.measure]}"


def degree_of(variant: Variant) -> str:
    """The degree by the first measure that is not zero, in words; empty without one."""
    return next((str(one) for one in variant.degrees.values() if one.value), "")
