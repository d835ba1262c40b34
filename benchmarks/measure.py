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
"""Timing of several ways to do one thing, interleaved."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import numpy as np


@dataclass
class Way:
    """One way, with the wall time in seconds of each of its runs."""

    name: str
    run: Callable[[], object]
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.seconds)


@dataclass
class Comparison:
    """Ways that were measured in one run."""

    title: str
    ways: list[Way]

    def ratios(self, way: Way) -> list[float]:
        """The times of a way over those of the first way, turn by turn.

        What changes the speed of the machine for a while meets both times of a turn, so that a
        ratio of theirs is nearer to the truth than one of times that lie apart.
        """
        return [t / first for t, first in zip(way.seconds, self.ways[0].seconds, strict=True)]

    def ratio(self, way: Way) -> float:
        """The median of :meth:`ratios`."""
        return median(self.ratios(way))

    def spread(self, way: Way) -> tuple[float, float]:
        """The quartiles of :meth:`ratios`."""
        low, high = np.quantile(self.ratios(way), (0.25, 0.75))
        return float(low), float(high)


def compare(title: str, ways: dict[str, Callable[[], object]], *, runs: int) -> Comparison:
    """Run the ways in turn, `runs` times after one warm-up each, every other turn backwards.

    Taking turns lets a change of the machine's speed meet all of them alike; turning back, what a
    way leaves behind for the next one.
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
