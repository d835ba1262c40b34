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
"""The probe of a fix: the smallest program that fails on stock TVM."""

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Probe:
    """The smallest program that fails on stock TVM.

    Attributes
    ----------
    stock : callable
        Runs the program through TVM's own entry point; raises, crashes or hangs where TVM has the
        fault.  Every fix is switched off while it runs.
    fixed : callable
        Runs it through this project's entry point with every fix on; returns where the answer is
        right.  The two are one function where the fix has no entry point of its own.
    symptom : re.Pattern
        Found in ``type: message`` of the stock way's failure (``SIGSEGV: crashed`` for a crash), so
        that a probe which fails for a reason of its own is not mistaken for the fault.  It begins
        with ``AssertionError`` where an assertion of the probe fails, and only there.
    modules : tuple of str
        Optional modules without which the probe can't run.
    """

    stock: Callable[[], None]
    fixed: Callable[[], None]
    symptom: re.Pattern[str]
    modules: tuple[str, ...] = ()


registered: dict[str, Probe] = {}
"""The probes by the ids of their fixes."""


def register(fix_id: str, probe: Probe) -> None:
    """Make `probe` that of the fix `fix_id`.

    Raises
    ------
    ValueError
        If the fix has one.
    """
    if fix_id in registered:
        raise ValueError(f"fix {fix_id!r} has two probes")
    registered[fix_id] = probe
