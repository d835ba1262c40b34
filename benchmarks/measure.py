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
"""Interleaved timing of several implementations ("ways") of one task."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import numpy as np


@dataclass
class Way:
    """One implementation, with the wall time of each of its runs in seconds."""

    name: str
    run: Callable[[], object]
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.seconds)


@dataclass
class Comparison:
    """Ways that were measured together."""

    title: str
    ways: list[Way]

    def ratios(self, way: Way) -> list[float]:
        """Return the times of a way divided by those of the first way, turn by turn.

        A temporary change of the machine's speed affects both times of a turn, so their ratio is
        more accurate than a ratio of times from different turns.
        """
        return [t / first for t, first in zip(way.seconds, self.ways[0].seconds, strict=True)]

    def ratio(self, way: Way) -> float:
        """Return the median of :meth:`ratios`."""
        return median(self.ratios(way))

    def spread(self, way: Way) -> tuple[float, float]:
        """Return the lower and the upper quartile of :meth:`ratios`."""
        low, high = np.quantile(self.ratios(way), (0.25, 0.75))
        return float(low), float(high)


def compare(title: str, ways: dict[str, Callable[[], object]], *, runs: int) -> Comparison:
    """Run the ways in turn, `runs` times after one warm-up each, every other turn backwards.

    Because the ways take turns, a change of the machine's speed affects all of them equally.
    Because the order alternates, no way always runs after the same predecessor, whose data is in
    the caches.
    """
    comparison = Comparison(title, [Way(name, run) for name, run in ways.items()])
    for way in comparison.ways:
        way.run()
    for turn in range(runs):
        for way in comparison.ways[:: -1 if turn % 2 else 1]:
            start = time.perf_counter()
            way.run()
            way.seconds.append(time.perf_counter() - start)
    return comparison
