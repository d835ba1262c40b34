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
"""Results that are collected within a ``with`` block, from any depth of calls."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

Collected = TypeVar("Collected")


class Collector(Generic[Collected]):
    """A place for results that callees add to while their caller collects them.

    Parameters
    ----------
    name : str
        For debugging.
    make : callable
        Makes an empty collection.
    """

    def __init__(self, name: str, make: Callable[[], Collected]) -> None:
        self._make = make
        self._current: ContextVar[Collected | None] = ContextVar(name, default=None)

    @property
    def current(self) -> Collected | None:
        """The collection to add to; None if nobody collects."""
        return self._current.get()

    @contextmanager
    def collect(self) -> Iterator[Collected]:
        """Collect within the ``with`` block, in a new collection that grows while it runs."""
        collected = self._make()
        token = self._current.set(collected)
        try:
            yield collected
        finally:
            self._current.reset(token)
