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
"""The time of each pass."""

import time
from collections import defaultdict
from dataclasses import dataclass, field

import tvm

from ..runtime.report import PassTime
from ..support.instruments import ended


@dataclass
class _Running:
    name: str
    begin: float = field(default_factory=time.perf_counter)
    within: float = 0.0
    """The time of the passes that ran in it."""


class PassTimes(tvm.ir.instrument.PassInstrument):
    """Measures the passes of a context.

    A pass that runs a sequence of its own name, as a stage for one target does, is one pass.
    """

    # Without a dict, an object of a TVM class cannot have new attributes.
    __slots__ = ("__dict__",)

    def __init__(self) -> None:
        super().__init__()
        self._running: list[_Running] = []
        self._calls: defaultdict[str, int] = defaultdict(int)
        self._total: defaultdict[str, float] = defaultdict(float)
        self._own: defaultdict[str, float] = defaultdict(float)

    def run_before_pass(self, _mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Start the clock of a pass."""
        self._running.append(_Running(str(info.name)))

    def run_after_pass(self, _mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Stop the clock of a pass."""
        name = str(info.name)
        last = ended(self._running, name)
        if last is None:
            return
        seconds = time.perf_counter() - last.begin
        self._own[name] += seconds - last.within
        if self._running:
            self._running[-1].within += seconds
        if name not in [each.name for each in self._running]:
            self._total[name] += seconds
        if not self._running or self._running[-1].name != name:
            self._calls[name] += 1

    def found(self) -> list[PassTime]:
        """The passes, those with the most time of their own first."""
        return [
            PassTime(name, self._calls[name], round(self._total[name], 6), round(own, 6))
            for name, own in sorted(self._own.items(), key=lambda item: -item[1])
        ]
