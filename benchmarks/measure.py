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
"""Interleaved timing of several implementations of one task."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import numpy as np


@dataclass
class Implementation:
    """An implementation, and the time of each of its runs in seconds."""

    name: str
    run: Callable[[], object]
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.seconds)


@dataclass
class Comparison:
    """Implementations measured in the same turns."""

    title: str
    implementations: list[Implementation]

    def ratios(self, impl: Implementation) -> list[float]:
        """Return an implementation's times divided by those of the first one, turn by turn.

        A temporary change in the machine's speed affects both times of a turn, so their ratio is
        more accurate than a ratio of times from different turns.
        """
        return [
            t / first
            for t, first in zip(impl.seconds, self.implementations[0].seconds, strict=True)
        ]

    def ratio(self, impl: Implementation) -> float:
        """Return the median of :meth:`ratios`."""
        return median(self.ratios(impl))

    def spread(self, impl: Implementation) -> tuple[float, float]:
        """Return the lower and the upper quartile of :meth:`ratios`."""
        low, high = np.quantile(self.ratios(impl), (0.25, 0.75))
        return float(low), float(high)


def compare(
    title: str,
    implementations: dict[str, Callable[[], object]],
    *,
    runs: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Comparison:
    """Warm up each implementation once, then run them in turn, `runs` times.

    Because they take turns, a change in the machine's speed affects all of them equally.  Every
    other turn is in reverse order, so that none always finds the same predecessor's data in the
    caches.  `clock` returns the time in seconds; by default, the wall time.
    """
    comparison = Comparison(
        title, [Implementation(name, run) for name, run in implementations.items()]
    )
    for impl in comparison.implementations:
        impl.run()
    for turn in range(runs):
        for impl in comparison.implementations[:: -1 if turn % 2 else 1]:
            start = clock()
            impl.run()
            impl.seconds.append(clock() - start)
    return comparison
