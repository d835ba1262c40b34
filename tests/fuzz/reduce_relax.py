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
"""Reduces a failing Relax module."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from tvm_fixes.search.literals import literal
from tvm_fixes.search.parts import smallest
from tvm_fixes.search.relax_parts import RelaxCandidate, RelaxParts

from .relax_oracle import Interpreter, Tensor, from_numpy, to_numpy


@dataclass
class Case:
    """A module, and the inputs of its ``main``."""

    mod: tvm.IRModule
    inputs: Sequence[np.ndarray]


def reduce(case: Case, fails: Callable[[Case], bool]) -> Case:
    """A smaller module that still fails.

    Parameters
    ----------
    case : Case
    fails : callable
        Whether a case has the fault; called on invalid modules, too.

    Notes
    -----
    The values at a cut are the interpreter's.
    """
    found = smallest(
        RelaxParts(case.mod, case.inputs, _evaluate),
        lambda one: isinstance(one, RelaxCandidate) and fails(Case(one.mod, one.arrays())),
    )
    return Case(found.mod, found.arrays()) if isinstance(found, RelaxCandidate) else case


def _evaluate(mod: tvm.IRModule, inputs: Sequence[np.ndarray]) -> list[Any] | None:
    function = mod["main"]
    inter = Interpreter(mod)
    for param, array in zip(function.params, inputs, strict=True):
        inter.values[param] = from_numpy(array)
        inter.bind_type(param.ty, inter.values[param], False)
    try:
        result = inter.evaluate(function.body)
    except Exception:  # the interpreter rejects the module
        return None
    fields = [result] if isinstance(result, Tensor) else result
    return list(map(to_numpy, fields))


def as_test(case: Case, message: str) -> str:
    """The case as TVMScript and inputs, for a test."""
    lines = [f"# {line}" for line in message.splitlines()[:3]]
    lines += [case.mod.script(show_meta=True), "inputs = ["]
    return "\n".join([*lines, *(f"    {literal(one)}," for one in case.inputs), "]"])
