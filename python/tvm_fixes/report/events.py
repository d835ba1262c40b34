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
"""Times of the calls of TVM's virtual machine."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm

from .. import _ffi

Recording = Sequence[int]
"""The time in ns at the beginning of each call, as a negative number, and at its end, in turn."""


class Recorder:
    """Records the calls of runs with the same inputs.

    The virtual machine calls an instrument before and after each call.  One in Python would take as
    long as a small kernel.  :attr:`time` is native, and adds about 0.02 µs to the time of a call.

    Attributes
    ----------
    names : list of str
        The names of the called functions, in order.
    sizes : list of int
        The bytes of the tensors that each takes, including its results.
    time : callable
        The instrument of the runs that record times.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sizes: list[int] = []
        self.time: Callable[..., Any]
        self.time, self._take = _ffi.get("tvm_fixes.runtime.CallTimer")()

    def count(self, _function: Any, name: str, is_before: bool, _result: Any, *args: Any) -> None:
        """The instrument of the first run, which records everything but times."""
        if is_before:
            self.names.append(name)
            self.sizes.append(sum(map(_nbytes, args)))

    def take(self) -> Recording:
        """The recording of the last run; the next one begins."""
        return np.frombuffer(self._take(), "int64").tolist()


def own_times(recordings: Sequence[Recording]) -> list[float]:
    """The median time of each call in seconds, without those of the calls within it."""
    return [float(x) for x in np.median([_own_times(marks) for marks in recordings], axis=0)]


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
