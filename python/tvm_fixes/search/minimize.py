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

"""Delta debugging: the search for a small set, or a small candidate, that still shows a fault."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def minimize(items: Sequence[T], shows: Callable[[Sequence[T]], bool]) -> list[T]:
    """A small part of `items` that still shows the fault.

    Parameters
    ----------
    items : sequence
        They show the fault together; this is not tested again.
    shows : callable
        Whether some of the items, in their order, show the fault.

    Returns
    -------
    kept : list
        No item can be left out; not necessarily the smallest such set.

    Notes
    -----
    The algorithm is ddmin of Zeller and Hildebrandt, "Simplifying and isolating failure-inducing
    input".  If one item is at fault, it takes 2 log n tests.
    """
    kept, pieces = list(range(len(items))), 2
    tested: dict[tuple[int, ...], bool] = {}

    def is_enough(places: list[int]) -> bool:
        key = tuple(places)
        if key not in tested:
            tested[key] = shows([items[place] for place in places])
        return tested[key]

    if not kept or is_enough([]):
        return []
    while len(kept) > 1:
        chunks = _split(kept, pieces)
        found = next((chunk for chunk in chunks if is_enough(chunk)), None)
        if found is not None:
            kept, pieces = found, 2
            continue
        if pieces > 2:  # of two chunks, each is the complement of the other
            complements = (
                sorted(item for other in chunks if other is not chunk for item in other)
                for chunk in chunks
            )
            found = next((rest for rest in complements if is_enough(rest)), None)
            if found is not None:
                kept, pieces = found, pieces - 1
                continue
        if pieces >= len(kept):
            break
        pieces = min(2 * pieces, len(kept))
    return [items[place] for place in kept]


def _split(items: list[int], pieces: int) -> list[list[int]]:
    """`items` in contiguous chunks of about the same length, the last first.

    A fault often shows only at the end of a model.
    """
    ends = [len(items) * n // pieces for n in range(pieces + 1)]
    return [items[begin:end] for begin, end in pairwise(ends)][::-1]


def improve(candidate: T, simpler: Callable[[T], Iterable[T]], shows: Callable[[T], bool]) -> T:
    """Replace a candidate by simpler ones until no simpler one shows the fault.

    Parameters
    ----------
    candidate : object
        It shows the fault; this is not tested again.
    simpler : callable
        Makes simpler candidates of one, the most promising first.
    shows : callable
        Whether a candidate shows the fault.
    """
    while True:
        found = next((item for item in simpler(candidate) if shows(item)), None)
        if found is None:
            return candidate
        candidate = found


def first_change(outcomes: Callable[[int], bool | None], end: int) -> tuple[int, int]:
    """The step from which on the outcome is bad, by binary search.

    Parameters
    ----------
    outcomes : callable
        Whether the outcome after a number of steps is bad; None if that cannot be decided.
    end : int
        The number of all steps, whose outcome is bad; the outcome after 0 steps is good.

    Returns
    -------
    good, bad : int
        The outcome is good after `good` steps and bad after `bad` steps; undecided in between.
    """
    good, bad = 0, end
    undecided: set[int] = set()
    while True:
        open_ = [n for n in range(good + 1, bad) if n not in undecided]
        if not open_:
            return good, bad
        middle = open_[len(open_) // 2]
        outcome = outcomes(middle)
        if outcome is None:
            undecided.add(middle)
        elif outcome:
            bad = middle
        else:
            good = middle
