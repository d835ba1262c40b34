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
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from ..fixes import FIXES
from .collector import Collector
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


_applied: Collector[set[str]] = Collector("tvm_fixes_collected", set)


def note(fix_id: str) -> None:
    """Record that the fix `fix_id` replaced TVM's own behavior."""
    if _applied.current is not None:
        _applied.current.add(fix_id)


def collect() -> AbstractContextManager[set[str]]:
    """Collect the ids of the fixes applied within the ``with`` block.

    Returns
    -------
    context manager of set of str
        The ids; the set grows while the block runs.
    """
    return _applied.collect()
