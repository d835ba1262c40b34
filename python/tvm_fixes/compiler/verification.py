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
"""Verification of modules before a build and between the steps of a compilation."""

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from .. import verifier
from ..fixes.verifier import VERIFIER
from ..support import switches
from ..support.instruments import watched_by
from .progress import Run


def build(
    mod: tvm.IRModule,
    target: str | dict[str, Any] | tvm.target.Target | None = None,
    params: dict[str, list[Any]] | None = None,
    relax_pipeline: str | tvm.transform.Pass | None = "default",
    tir_pipeline: str | tvm.transform.Pass | None = "default",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
) -> relax.VMExecutable:
    """Verify a module, then build it with ``relax.build``.

    Parameters
    ----------
    mod : tvm.IRModule
        The module.
    target, params, relax_pipeline, tir_pipeline, exec_mode, system_lib
        As for ``tvm.relax.build``.

    Returns
    -------
    executable : relax.VMExecutable

    Raises
    ------
    VerifyError
        If :func:`tvm_fixes.verify` finds an error.
    """
    if switches.enabled(VERIFIER):
        verifier.verify(mod).raise_if_errors()
    if isinstance(target, str | dict):  # relax.build fails for a dict
        target = tvm.target.Target(target)
    return relax.build(
        mod, target, params, relax_pipeline, tir_pipeline, exec_mode, system_lib=system_lib
    )


@dataclass
class Verification:
    """The verification of the module of one compilation.

    If the fix ``verifier`` is off, it runs TVM's own check instead.

    Attributes
    ----------
    is_on : bool
        Whether to verify the module.
    after_each_pass : bool
        Whether to verify it after each pass too.
    unproved : int or None
        The number of obligations neither proved nor disproved; None before the first verification.
    """

    is_on: bool
    after_each_pass: bool
    unproved: int | None = None

    def check(self, mod: tvm.IRModule, run: Run, step: str) -> None:
        """Verify `mod` as the step `step`.

        Raises
        ------
        VerifyError
            If the verifier finds an error.
        """
        if not self.is_on:
            return
        with run.step(step):
            if not switches.enabled(VERIFIER):
                relax.analysis.well_formed(mod)
                return
            found = verifier.verify(mod)
            found.raise_if_errors()
            self.unproved = (self.unproved or 0) + len(found.warnings)

    def context(self, users: Collection[str]) -> AbstractContextManager[object]:
        """The context for the passes, where VerifyEach watches `users` or, if asked for, all."""
        if not switches.enabled(VERIFIER) or not (self.after_each_pass or (users and self.is_on)):
            return nullcontext()
        return watched_by(verifier.VerifyEach(only=None if self.after_each_pass else users))
