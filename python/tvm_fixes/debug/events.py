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
"""Times of the calls of TVM's virtual machine, less the time that the measurement takes."""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm

# The most that passing one argument to the instrument takes, in seconds.
_MAX_PER_ARGUMENT = 4e-7

# Steps of a search for it by halving.
_STEPS = 20

Recording = list[int]
"""The time in ns at the beginning of each call, as a negative number, and at its end, in turn."""


class Recorder:
    """Records the calls of runs with the same inputs.

    The virtual machine calls an instrument before and after each call.  Between the two, the
    instrument itself takes a while, which grows with the number of arguments.

    Attributes
    ----------
    names : list of str
        The names of the called functions, in order.
    sizes : list of int
        The bytes of the tensors that each takes, including its results.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sizes: list[int] = []
        self._arguments: list[int] = []
        self._marks: Recording = []

    def count(self, _function: Any, name: str, is_before: bool, _result: Any, *args: Any) -> None:
        """The instrument of the first run, which records everything but times."""
        if is_before:
            self.names.append(name)
            self.sizes.append(sum(map(_nbytes, args)))
            self._arguments.append(len(args))

    def time(self, _function: Any, _name: str, is_before: bool, _result: Any, *_args: Any) -> None:
        """The instrument of the other runs, which records times."""
        if is_before:
            self._marks.append(-time.perf_counter_ns())
        else:
            self._marks.append(time.perf_counter_ns())

    def take(self) -> Recording:
        """The recording of the last run; the next one begins."""
        marks, self._marks = self._marks, []
        return marks

    def own_times(self, recordings: Sequence[Recording], run_seconds: float) -> list[float]:
        """The median time of each call in seconds, without those of the calls within it.

        Parameters
        ----------
        recordings : sequence of Recording
        run_seconds : float
            The time of a run without instrument, which tells how long the instrument takes.
        """
        own = np.median([_own_times(marks) for marks in recordings], axis=0)
        arguments = np.array(self._arguments)
        # The calls without arguments do next to nothing.
        idle = own[arguments == 0]
        per_call = float(idle.min()) if idle.size else 0.0
        low, high = 0.0, _MAX_PER_ARGUMENT

        def corrected(per_argument: float) -> np.ndarray:
            return np.maximum(own - per_call - per_argument * arguments, 0.0)

        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if corrected(middle).sum() > run_seconds else (low, middle)
        return [float(x) for x in corrected(high)]


def _own_times(marks: Recording) -> list[float]:
    """The time of each call, in the order of the beginnings."""
    found: list[float] = []
    open_calls: list[tuple[int, int]] = []
    for mark in marks:
        if mark < 0:
            open_calls.append((len(found), -mark))
            found.append(0.0)
            continue
        place, begin = open_calls.pop()
        seconds = 1e-9 * (mark - begin)
        found[place] += seconds
        if open_calls:
            found[open_calls[-1][0]] -= seconds
    return found


def _nbytes(value: Any) -> int:
    if not isinstance(value, tvm.runtime.Tensor):
        return 0
    return math.prod(map(int, value.shape)) * tvm.DataType(str(value.dtype)).bits // 8
