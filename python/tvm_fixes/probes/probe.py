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
        Runs the program through TVM's own entry point, with all fixes off; raises, crashes or hangs
        if TVM has the fault.
    fixed : callable
        Runs it through this project's entry point, with all fixes on; returns if the result is
        right.  The two are the same function if the fix has no entry point of its own.
    symptom : re.Pattern
        Matches ``type: message`` of the failure on stock TVM (``SIGSEGV: crashed`` for a crash), so
        that unrelated failures of the probe are not mistaken for the fault.  It begins with
        ``AssertionError`` if and only if an assertion of the probe fails.
    modules : tuple of str
        Optional modules that the probe needs.
    """

    stock: Callable[[], None]
    fixed: Callable[[], None]
    symptom: re.Pattern[str]
    modules: tuple[str, ...] = ()


registered: dict[str, Probe] = {}
"""The probes by the ids of their fixes."""


def register(fix_id: str, probe: Probe) -> None:
    """Register `probe` for the fix `fix_id`.

    Raises
    ------
    ValueError
        If the fix has a probe already.
    """
    if fix_id in registered:
        raise ValueError(f"fix {fix_id!r} has two probes")
    registered[fix_id] = probe
