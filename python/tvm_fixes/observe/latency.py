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
"""The latency of a model and of its reference: the one definition that all tools use.

A run takes NumPy arrays and returns new ones, on both sides, with as many threads on both sides.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

BLOCKS = 10
"""The maximum number of blocks per call that :func:`measure` times."""

Timer = Callable[[int, float], list[float]]
"""Times one block of a call: :func:`block` with the call bound, or its counterpart in a child."""


@dataclass(frozen=True)
class Latency:
    """The times of a call.

    Attributes
    ----------
    blocks : tuple of tuple of float
        The seconds of the calls in each block.
    """

    blocks: tuple[tuple[float, ...], ...]

    @property
    def seconds(self) -> float:
        """The latency: the median of all calls."""
        return statistics.median(seconds for taken in self.blocks for seconds in taken)

    def ratio(self, other: "Latency") -> tuple[float, float, float]:
        """The time of a call relative to that of `other`, and its quartiles.

        It is the median over the turns, whose two blocks the load of the machine affects alike.
        """
        ratios = [
            statistics.median(mine) / max(statistics.median(theirs), 1e-9)
            for mine, theirs in zip(self.blocks, other.blocks, strict=True)
        ]
        return statistics.median(ratios), *_quartiles(ratios)


def measure(
    timers: Sequence[Timer], *, blocks: int = BLOCKS, runs: int = 5, budget: float = 2.0
) -> list[Latency]:
    """Measure the latencies of several calls, which take turns in blocks.

    The load of the machine then affects all of them equally.  A block is one call of warm-up, then
    `runs` timed calls in a row: idle threads of another runtime spin for a while and occupy the
    cores.

    Parameters
    ----------
    timers : sequence of callable
    blocks : int
        The maximum number of blocks per call.
    runs : int
        The maximum number of timed calls in a block.
    budget : float
        Time limit in seconds; at least one call of each is timed.
    """
    taken: list[list[tuple[float, ...]]] = [[] for _ in timers]
    share = budget / (blocks * len(timers))
    end = time.perf_counter() + budget
    for _ in range(blocks):
        for timer, found in zip(timers, taken, strict=True):
            found.append(tuple(timer(runs, share)))
        if time.perf_counter() >= end:
            break
    return [Latency(tuple(found)) for found in taken]


def block(call: Callable[[], object], runs: int, budget: float) -> list[float]:
    """Call once as warm-up, then `runs` times within `budget` seconds; return the seconds."""
    end = time.perf_counter() + budget
    call()
    taken: list[float] = []
    while not taken or (len(taken) < runs and time.perf_counter() < end):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return taken


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
