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
"""Translates Relay modules to Relax."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ... import relay
from ...errors import UnsupportedOperatorError, UsageError
from .description import unsupported
from .translator import Translator

__all__ = ["from_relay"]


def from_relay(
    mod: relay.IRModule, params: Mapping[str, np.ndarray[Any, Any]] | None = None
) -> tvm.IRModule:
    """Translate a Relay module to a Relax module.

    Parameters
    ----------
    mod : relay.IRModule
        The module; its "main" is the entry.
    params : mapping of str to numpy.ndarray, optional
        Values of parameters of "main", by name. They become constants.

    Returns
    -------
    mod : tvm.IRModule
        Its "main" takes the parameters that are not given, in order.

    Raises
    ------
    UnsupportedOperatorError
        If operators have no converter; the message names all of them and their places.
    RelayError
        If the program is ill-typed.
    UsageError
        If there is no "main", or a parameter is unknown.
    """
    params = dict(params or {})
    if "main" not in mod.functions:
        raise UsageError('the Relay module has no function "main"')
    names = {var.name for var in mod["main"].params}
    unknown = sorted(set(params) - names)
    if unknown:
        raise UsageError(f"parameters that main does not have: {', '.join(unknown)}")
    check_operators(mod)
    transform = relay.transform
    loops = [transform.LiftRecursion(), transform.InferType(), transform.FlattenRecursion()]
    mod = transform.Sequential([transform.InferType(), *loops, transform.InferType()])(mod)
    translated = Translator(mod, params).run()
    passes = [relax.transform.InlinePrivateFunctions(), relax.transform.ConvertToDataflow(1)]
    return tvm.ir.transform.Sequential(passes)(translated)


def check_operators(mod: relay.IRModule) -> None:
    """Raise UnsupportedOperatorError that lists all operators without a converter."""
    problems = []
    for name, span in relay.operator_uses(mod):
        problem = unsupported(name)
        if problem is not None:
            problems.append(f"{name} at {span}: {problem}")
    if problems:
        raise UnsupportedOperatorError("unsupported operators: " + "; ".join(problems))
