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
"""Checks of what is asked for: what is certain to fail later fails before the work."""

import math
import os
import subprocess

import tvm
from tvm.support import cc

from .. import target as targets
from ..errors import CompileError, UsageError
from ..relax.constants.size_check import check_ratio
from ..runtime.staging import check_destination
from ..support import switches
from ..target import cuda

WEIGHTS_CHOICES = ("auto", "inside", "outside")
"""Where the weights may be: see :func:`~tvm_fixes.compile`."""

OUTSIDE_FROM = 1 << 30
"""The size of the parameters, in bytes, from which on they lie outside unless asked for inside."""

FULL_DISK = 1 << 20
"""With fewer bytes left than this, a disk counts as full."""


def check_request(
    rtol: float | None,
    atol: float | None,
    seed: int,
    max_size_ratio: float | None,
    weights: str,
) -> None:
    """Check the options that are only values, and the switches of the environment.

    Raises
    ------
    UsageError
        If a switch is unknown, or an option has no such value.
    """
    try:
        switches.disabled()
    except ValueError as error:
        raise UsageError(str(error)) from error
    check_ratio(max_size_ratio)
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance is not None and not 0 <= tolerance < math.inf:
            raise UsageError(f"{name} must be a number that is not negative, got {tolerance}")
    if seed < 0:
        raise UsageError(f"seed must not be negative, got {seed}")
    if weights not in WEIGHTS_CHOICES:
        raise UsageError(
            f"unknown weights {weights!r}; expected one of {', '.join(WEIGHTS_CHOICES)}"
        )


def check_machine(
    target: tvm.target.Target, compare: bool, output: str | os.PathLike[str] | None
) -> None:
    """Check that this machine can do what is asked for.

    Raises
    ------
    UsageError
        If the library is to be compared and cannot run here, or `output` cannot be written to.
    CompileError
        If a compiler for the target is missing.
    """
    problem = targets.why_not_here(
        targets.to_json(target), targets.triple_of(target), targets.instruction_sets(target)
    )
    if compare and problem:
        raise UsageError(
            f"cannot compare what cannot run here: {problem}; pass compare=False (--no-compare)"
        )
    if target.kind.name == "cuda":
        cuda.find_compiler(str(target.attrs["arch"]))
    _check_linker(targets.triple_of(target))
    if output is not None:
        check_destination(output, FULL_DISK)


def are_outside(weights: str, parameter_bytes: int) -> bool:
    """Whether the weights lie beside the library, as one of :data:`WEIGHTS_CHOICES` has it."""
    return weights == "outside" or (weights == "auto" and parameter_bytes >= OUTSIDE_FROM)


def _check_linker(triple: str) -> None:
    """Check that there is a compiler to link with, and that it is not for another CPU."""
    compiler = cc.get_cc()
    if compiler is None:
        raise CompileError("no C++ compiler to link the library: install g++, or set CXX to one")
    try:
        done = subprocess.run(
            [compiler, "-dumpmachine"], capture_output=True, text=True, errors="replace", timeout=10
        )
    except OSError as error:
        raise CompileError(
            f"{compiler} (CXX names another) cannot be run to link the library: {error.strerror}"
        ) from error
    except subprocess.TimeoutExpired:
        return
    machine = done.stdout.strip()
    ours, theirs = map(targets.architecture, (triple, machine))
    # A compiler that does not name its machine is tried.
    if done.returncode == 0 and ours and theirs and ours != theirs:
        raise CompileError(
            f"{compiler} links for {machine}, cannot link for {triple}: set CXX to a compiler for "
            "that"
        )
