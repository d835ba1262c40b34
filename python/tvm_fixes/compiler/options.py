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
"""Checks of the options before a compilation starts."""

import math
import os

import tvm

from .. import target as targets
from ..errors import UsageError
from ..relax.constants.growth import MAX_GROWTH, check_growth
from ..relax.constants.size_check import check_ratio
from ..runtime.staging import check_destination
from ..support import switches
from ..target import cuda
from ..target.linker import linker_for

WEIGHTS_CHOICES = ("auto", "inside", "outside")
"""The values of `weights` of :func:`tvm_fixes.compile`."""

OUTSIDE_FROM = 128 << 20
"""From this size in bytes, ``weights="auto"`` stores the parameters outside the library."""

FULL_DISK = 1 << 20
"""A disk with fewer free bytes counts as full."""


def check_request(
    rtol: float | None,
    atol: float | None,
    seed: int,
    max_size_ratio: float | None,
    weights: str,
    max_growth: float = MAX_GROWTH,
) -> None:
    """Check the values of options, and the fix ids in ``TVM_FIXES_DISABLE``.

    Raises
    ------
    UsageError
        If a fix id is unknown or the value of an option is invalid.
    """
    try:
        switches.disabled()
    except ValueError as error:
        raise UsageError(str(error)) from error
    check_ratio(max_size_ratio)
    check_growth(max_growth)
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance is not None and not 0 <= tolerance < math.inf:
            raise UsageError(f"{name} must be >= 0 and finite, got {tolerance}")
    if seed < 0:
        raise UsageError(f"seed must be >= 0, got {seed}")
    if weights not in WEIGHTS_CHOICES:
        raise UsageError(
            f"unknown weights {weights!r}; expected one of {', '.join(WEIGHTS_CHOICES)}"
        )


def check_machine(
    target: tvm.target.Target, compare: bool, output: str | os.PathLike[str] | None
) -> None:
    """Check that this machine can build, run and save the library.

    Raises
    ------
    UsageError
        If `compare` is set and the library cannot run here, or if `output` is not writable.
    CompileError
        If a compiler for the target is missing.
    """
    problem = targets.why_not_here(
        targets.to_json(target), targets.triple_of(target), targets.instruction_sets(target)
    )
    if compare and problem:
        raise UsageError(
            f"cannot compare: the library does not run here: {problem}; pass compare=False "
            "(--no-compare)"
        )
    if target.kind.name == "cuda":
        cuda.find_compiler(str(target.attrs["arch"]))
    linker_for(target)
    if output is not None:
        check_destination(output, FULL_DISK)


def are_outside(weights: str, parameter_bytes: int) -> bool:
    """Whether to store the weights outside the library, given one of :data:`WEIGHTS_CHOICES`."""
    return weights == "outside" or (weights == "auto" and parameter_bytes >= OUTSIDE_FROM)
