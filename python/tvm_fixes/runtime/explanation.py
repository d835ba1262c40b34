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
"""The explanation of a compilation: fixes applied, and optimizations not made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..support.declined import NotDone


@dataclass(frozen=True)
class AppliedFix:
    """A fix that changed how a model is compiled.

    Attributes
    ----------
    fix : str
        The id.
    times : int
        The number of nodes imported and calls lowered by it, and of nodes or kernels that its pass
        changed.
    by : list of str
        Where it was applied: ``import``, ``lowering``, ``operator rule`` (for layouts or types), or
        the names of passes.
    nodes : list of str
        The nodes of the model: the operator with its name or the path of its module.  Empty if the
        fix applies to the whole model, or if the operators have no names, as in a Relay program.
    does : str
        What the fix does.
    plain_tvm : dict of str to str
        The symptoms of plain TVM: ``crash``, ``error``, ``wrong result`` or ``cost``, each with a
        description.
    """

    fix: str
    times: int
    by: list[str]
    nodes: list[str]
    does: str
    plain_tvm: dict[str, str]


@dataclass(frozen=True)
class Explanation:
    """The explanation of a compilation.

    Attributes
    ----------
    fixes : list of AppliedFix
        In the order of their declarations.
    not_done : list of NotDone
        The layouts, fusions, integer products, folded constants and schedules that were rejected.
    """

    fixes: list[AppliedFix] = field(default_factory=list)
    not_done: list[NotDone] = field(default_factory=list)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Explanation":
        """Convert the result of ``dataclasses.asdict``."""
        fixes = [AppliedFix(**fix) for fix in values["fixes"]]
        return cls(fixes, [NotDone(**decision) for decision in values["not_done"]])
