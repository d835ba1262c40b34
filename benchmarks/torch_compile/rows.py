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

"""The measurements of models under backends."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self


@dataclass(frozen=True)
class Row:
    """A model under a backend.  Times are CPU times with one thread.

    Attributes
    ----------
    name, backend, revision : str
    problem : str
        Why it failed, or what is wrong; empty if it is right.
    cold, warm : float
        Seconds of the first call, with an empty cache and with that of an earlier process.
    dynamic : float
        Seconds of the first call with a second size.
    own, own_again : float
        The part of `cold` and `warm` that is spent in the backend, with AOTAutograd.
    ms, eager_ms, ratio, share : float or None
        Milliseconds of a call, and of eager PyTorch; their ratio, the median of alternating turns;
        the share of the call in compiled partitions.
    graphs, partitions, compiled, recompiled : int
        The number of graphs of the first call, of compiled partitions and operators, and of the
        graphs for a third size.
    eager : list of str
        The operators that PyTorch runs, with the reasons.
    """

    name: str
    backend: str
    revision: str
    problem: str = ""
    cold: float = 0.0
    warm: float = 0.0
    dynamic: float = 0.0
    own: float = 0.0
    own_again: float = 0.0
    ms: float | None = None
    eager_ms: float | None = None
    ratio: float | None = None
    share: float | None = None
    graphs: int = 0
    partitions: int = 0
    compiled: int = 0
    recompiled: int = 0
    eager: list[str] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        """The model and the backend, by which results are kept."""
        return self.name, self.backend

    def failed(self, problem: str) -> Self:
        """The row with a problem."""
        return replace(self, problem=problem)

    def measured(self, found: Mapping[str, Any]) -> Self:
        """The row with what a worker printed."""
        same = ("cold", "dynamic", "ms", "eager_ms", "ratio", "graphs", "partitions", "compiled")
        eager = found["dynamic_eager"] + found["skipped"]
        return replace(
            self,
            problem=found["wrong"],
            own=found["in_backend"],
            share=found.get("share"),
            recompiled=found["recompiled"],
            eager=list(dict.fromkeys(eager)),
            **{name: found[name] for name in same},
        )

    def started_again(self, found: Mapping[str, Any]) -> Self:
        """The row with what the worker of the second start printed."""
        problem = self.problem or (found["wrong"] and f"second start: {found['wrong']}")
        return replace(self, problem=problem, warm=found["cold"], own_again=found["in_backend"])

    def line(self) -> str:
        """The row in one line."""
        if self.problem:
            return self.problem
        return (
            f"cold {self.cold:.1f} s, warm {self.warm:.1f} s, {self.ms:.3g} ms, "
            f"{self.ratio:.2f} of eager"
        )
