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
"""Reports of what long work is doing, for a terminal."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import tvm

from . import ambient


def heard_by(listener: Callable[[str], None]) -> AbstractContextManager[None]:
    """Call `listener` with each activity within the ``with`` block; empty text ends one."""
    return ambient.within(listener=listener)


def is_heard() -> bool:
    """Whether there is a listener."""
    return ambient.current().listener is not None


def report(activity: str) -> None:
    """Tell the listener, if there is one, of an activity, such as ``kernel 12 of 40``."""
    listener = ambient.current().listener
    if listener is not None:
        listener(activity)


class ReportPasses(tvm.ir.instrument.PassInstrument):
    """Reports the name of each pass that runs."""

    # Without a dict, an object of a TVM class cannot have new attributes.
    __slots__ = ("__dict__",)

    def __init__(self) -> None:
        super().__init__()
        self._running: list[str] = []

    def run_before_pass(self, _: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Report the pass."""
        self._running.append(str(info.name))
        report(self._running[-1])

    def run_after_pass(self, _: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Report the pass around it, if any."""
        name = str(info.name)
        while self._running and self._running.pop() != name:
            pass  # a pass in it that raised
        report(self._running[-1] if self._running else "")
