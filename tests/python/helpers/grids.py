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
"""The tiers: which tests run, and with how many cases.

Each tier runs what the one before it does: ``quick`` while you work, ``ci`` before a change lands,
``full`` before a release.  Large grids are sampled, random cases are batched.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import hypothesis
import pytest

TIERS = ("quick", "ci", "full")

Case = TypeVar("Case")
Name = TypeVar("Name")

_tier = "quick"


def use_tier(tier: str) -> None:
    """Choose one of `TIERS`; conftest does so before tests are collected."""
    global _tier
    if tier not in TIERS:
        raise ValueError(f"unknown tier {tier!r}; expected one of {', '.join(TIERS)}")
    _tier = tier


def is_full() -> bool:
    """Whether the tier is ``full``."""
    return _tier == "full"


def is_quick() -> bool:
    """Whether the tier is ``quick``."""
    return _tier == "quick"


def from_tier(tier: str) -> pytest.MarkDecorator:
    """Mark a long test, or a case, for which a shorter one stands in the tiers before `tier`."""
    return pytest.mark.from_tier(tier)


def few(count: int) -> pytest.MarkDecorator:
    """Mark a test with parameters: the quick tier runs `count` of its cases, always the same."""
    return pytest.mark.few(count)


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the tests from `items` that this tier leaves out.

    A test that the command line names runs in every tier.

    Raises
    ------
    pytest.UsageError
        If no test of a file is left.
    """
    if any("::" in argument for argument in config.args):
        return
    left = _beyond(items)
    kept = [item for item in items if item not in left]
    if without := {item.path.name for item in left} - {item.path.name for item in kept}:
        raise pytest.UsageError(f"no test of {', '.join(sorted(without))} is in the {_tier} tier")
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = kept


def _beyond(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The tests whose marks leave them to later tiers."""
    left: set[pytest.Item] = set()
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if any(TIERS.index(m.args[0]) > TIERS.index(_tier) for m in item.iter_markers("from_tier")):
            left.add(item)
        elif is_quick() and item.get_closest_marker("few"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, of_test in cases.items():
        (count,) = of_test[0].get_closest_marker("few").args
        kept = random.Random(name).sample(of_test, min(count, len(of_test)))
        left.update(item for item in of_test if item not in kept)
    return left


def sample(cases: Sequence[Case], count: int, seed: int = 0) -> list[Case]:
    """The cases of a grid that this tier runs.

    Parameters
    ----------
    cases : sequence
        The whole grid.
    count : int
        The number of cases in the ci tier; positive.
    seed : int
        The seed of the sample.

    Returns
    -------
    list
        Every case in the full tier, `count` of them in the ci tier, and half of these in the
        quick tier; in the order of `cases`.

    Raises
    ------
    ValueError
        If `count` is not positive, or the grid is empty: nothing would be tested.
    """
    if count <= 0 or not cases:
        raise ValueError(f"nothing to sample: {count} of {len(cases)} cases")
    if is_full():
        return list(cases)
    count = min(count, len(cases))
    chosen = random.Random(seed).sample(range(len(cases)), count)
    if is_quick():
        chosen = chosen[: (count + 1) // 2]
    return [cases[index] for index in sorted(chosen)]


def share(cases: Mapping[Name, Case], number: int, count: int) -> dict[Name, Case]:
    """The share of named cases of one of several similar tests, such as of one importer.

    Parameters
    ----------
    cases : mapping
        Every case.
    number : int
        The number of the test, from 0.
    count : int
        The number of the tests.

    Returns
    -------
    dict
        Every case in the full tier, otherwise those that the other tests do not have.
    """
    names = list(cases)
    return {name: cases[name] for name in (names if is_full() else names[number::count])}


def thinned(cases: Mapping[Name, Case], least: int = 4) -> Mapping[Name, Case]:
    """The named cases that one build of this tier has: in the quick tier a third of them.

    The third is always the same, and has at least `least` cases.
    """
    names = list(cases)
    if not is_quick() or len(names) <= least:
        return cases
    chosen = random.Random(str(names)).sample(names, max(least, len(names) // 3))
    return {name: cases[name] for name in names if name in chosen}


def batched(size: int) -> hypothesis.settings:
    """Settings for a random test with examples of `size` cases each.

    One module holds a batch, since building many small ones takes longer; as many cases run as
    without batches.
    """
    return hypothesis.settings(max_examples=max(hypothesis.settings().max_examples // size, 1))
