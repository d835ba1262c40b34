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
"""The switches of the fixes, which ``TVM_FIXES_DISABLE`` turns off."""

import os
from collections.abc import Iterable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from ..fixes import FIXES
from . import ambient
from .ambient import Facts, Place
from .suggestions import did_you_mean

FIX_IDS: tuple[str, ...] = tuple(fix.id for fix in FIXES)

ENVIRONMENT_VARIABLE = "TVM_FIXES_DISABLE"


def disabled() -> frozenset[str]:
    """The fixes that ``TVM_FIXES_DISABLE`` (ids separated by commas) currently turns off.

    Returns
    -------
    frozenset of str
        A subset of :data:`FIX_IDS`.

    Raises
    ------
    ValueError
        If an id is unknown; the message has a similar one, or lists all.
    """
    ids = frozenset(
        part for raw in os.environ.get(ENVIRONMENT_VARIABLE, "").split(",") if (part := raw.strip())
    )
    try:
        check_known(ids)
    except ValueError as error:
        raise ValueError(f"{ENVIRONMENT_VARIABLE}: {error}") from None
    return ids


def check_known(ids: Iterable[str]) -> None:
    """Check that fixes exist.

    Raises
    ------
    ValueError
        If an id is unknown; the message has a similar one, or lists all.
    """
    unknown = sorted(set(ids).difference(FIX_IDS))
    if unknown:
        hint = did_you_mean(unknown[0], FIX_IDS) or f"known fixes: {', '.join(FIX_IDS)}"
        raise ValueError(f"unknown fix {', '.join(map(repr, unknown))}; {hint}")


def enabled(fix_id: str) -> bool:
    """Whether the fix `fix_id` is on.

    Raises
    ------
    ValueError
        If `fix_id`, or an id in ``TVM_FIXES_DISABLE``, is unknown.
    """
    check_known([fix_id])
    return fix_id not in disabled()


@contextmanager
def without(ids: Iterable[str]) -> Iterator[None]:
    """Turn off the fixes `ids`, too, within the ``with`` block, for all threads."""
    before = os.environ.get(ENVIRONMENT_VARIABLE)
    os.environ[ENVIRONMENT_VARIABLE] = ",".join(sorted({*disabled(), *ids}))
    try:
        yield
    finally:
        if before is None:
            del os.environ[ENVIRONMENT_VARIABLE]
        else:
            os.environ[ENVIRONMENT_VARIABLE] = before


class Asked(NamedTuple):
    """The place where an operator's rule applies: the span of the call for which TVM calls it."""

    span: object


class Use(NamedTuple):
    """One use of a fix; its place is None outside any :func:`at`."""

    fix: str
    place: Place | None


class Applied(Set[str]):
    """The ids of the fixes applied.

    Attributes
    ----------
    facts : Facts
        It grows while they are collected.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @property
    def uses(self) -> list[Use]:
        """Every use, in order."""
        return self.facts.of(Use)

    def __contains__(self, fix_id: object) -> bool:
        return any(use.fix == fix_id for use in self.uses)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(use.fix for use in self.uses))

    def __len__(self) -> int:
        return len({use.fix for use in self.uses})

    def __repr__(self) -> str:
        return repr(set(self))


def note(fix_id: str, span: object = None) -> None:
    """Record that the fix `fix_id` replaced TVM's own behavior.

    An operator's rule, which TVM calls several times for one call, passes the `span` of the call.
    """
    place = ambient.current().place
    if place is None and span is not None:
        place = Place(Asked(span))
    ambient.record(Use(fix_id, place))


def at(what: object) -> AbstractContextManager[None]:
    """Record `what`, such as a node of the model, as the place of uses in the ``with`` block."""
    return ambient.within(place=Place(what))


@contextmanager
def collect() -> Iterator[Applied]:
    """Collect the fixes applied within the ``with`` block.

    Returns
    -------
    context manager of Applied
        The ids, with each use; it grows while the block runs.
    """
    with ambient.collect() as facts:
        yield Applied(facts)
