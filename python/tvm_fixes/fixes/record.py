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
"""What the project knows of a fix: the record, and the probe that tells whether TVM needs it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ..support import switches

_SUPPORTED = SpecifierSet(">=0.27.0.post1")


class Kind(StrEnum):
    """Where a fix takes effect."""

    PASS = "pass"
    OPERATOR_ATTRIBUTE = "operator attribute"
    IMPORTER = "importer"
    CODE_GENERATOR = "code generator"
    TOOL = "tool"
    ENVIRONMENT = "environment"


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
        that a probe which fails for a reason of its own is not mistaken for the fault.
    modules : tuple of str
        Optional modules without which the probe can't run.
    """

    stock: Callable[[], None]
    fixed: Callable[[], None]
    symptom: re.Pattern[str]
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fix:
    """One fix.

    Attributes
    ----------
    id : str
        Its name in ``TVM_FIXES_DISABLE``; one of :data:`tvm_fixes.support.switches.FIX_IDS`.
    family : str
        The group of operators or the part of TVM that it belongs to, as a slug.
    kind : Kind
        Where it takes effect.
    summary : str
        What it mends, in one line.
    upstream : tuple of int
        Issues and pull requests of apache/tvm.
    versions : SpecifierSet
        The versions of TVM that it is for: by default all that this project installs beside.
    probe : Probe or None
        None for kind ``ENVIRONMENT`` alone.
    requirement : Requirement or None
        For kind ``ENVIRONMENT``: the package with the fault and its versions without it.

    Raises
    ------
    ValueError
        If the id is unknown, or if it has not exactly one of probe and requirement, as its kind
        asks.
    """

    id: str
    family: str
    kind: Kind
    summary: str
    upstream: tuple[int, ...]
    versions: SpecifierSet = _SUPPORTED
    probe: Probe | None = None
    requirement: Requirement | None = None

    def __post_init__(self) -> None:
        if self.id not in switches.FIX_IDS:
            raise ValueError(f"fix {self.id!r} has no switch; known: {', '.join(switches.FIX_IDS)}")
        environment = self.kind is Kind.ENVIRONMENT
        if (self.requirement is not None) is not environment:
            raise ValueError(f"fix {self.id!r}: kind {self.kind} and requirement do not agree")
        if (self.probe is None) is not environment:
            raise ValueError(f"fix {self.id!r}: kind {self.kind} and probe do not agree")
