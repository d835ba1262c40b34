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
"""The number of cases of a test: large grids are sampled, random cases are batched."""

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

import hypothesis

Case = TypeVar("Case")
Name = TypeVar("Name")

_tier = "quick"


def use_tier(tier: str) -> None:
    """Choose the tier, ``quick`` or ``full``; conftest does so before tests are collected."""
    global _tier
    if tier not in ("quick", "full"):
        raise ValueError(f"unknown tier {tier!r}; expected 'quick' or 'full'")
    _tier = tier


def is_full() -> bool:
    """Whether the tier is ``full``."""
    return _tier == "full"


def sample(cases: Sequence[Case], count: int, seed: int = 0) -> list[Case]:
    """The cases of a grid that this tier runs.

    Parameters
    ----------
    cases : sequence
        The whole grid.
    count : int
        The number of cases in the quick tier; positive.
    seed : int
        The seed of the sample.

    Returns
    -------
    list
        Every case in the full tier, otherwise `count` of them; in the order of `cases`.

    Raises
    ------
    ValueError
        If `count` is not positive, or the grid is empty: nothing would be tested.
    """
    if count <= 0 or not cases:
        raise ValueError(f"nothing to sample: {count} of {len(cases)} cases")
    if is_full() or count >= len(cases):
        return list(cases)
    chosen = random.Random(seed).sample(range(len(cases)), count)
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


def batched(size: int) -> hypothesis.settings:
    """Settings for a random test with examples of `size` cases each.

    One module holds a batch, since building many small ones takes longer; as many cases run as
    without batches.
    """
    return hypothesis.settings(max_examples=max(hypothesis.settings().max_examples // size, 1))
