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

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from .... import relay
from ....errors import RelayError, UnsupportedOperatorError, UsageError
from ....support.serial import in_turn
from ..values.types import type_of
from .description import named_as_in, unsupported
from .translator import NotComputableError, Translator

__all__ = ["from_relay"]


@in_turn
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
        If there is no "main", a parameter is unknown or has another type, or two parameters of
        "main" have one name.
    """
    if "main" not in mod.functions:
        raise UsageError('the Relay module has no function "main"')
    names = Counter(var.name for var in mod["main"].params)
    params = named_as_in(mod["main"], params or {})
    unknown = sorted(set(params) - set(names))
    if unknown:
        raise UsageError(f"parameters that main does not have: {', '.join(unknown)}")
    repeated = [name for name, count in names.items() if count > 1]
    if repeated:
        raise UsageError(f"main has several parameters of one name: {', '.join(repeated)}")
    check_operators(mod)
    try:
        translated = translate(mod, params)
    except NotComputableError as error:
        # Lists of known length and the functions over them have no value at run time.
        try:
            translated = translate(relay.transform.PartialEvaluate()(mod), params)
        except RelayError:
            raise RelayError(str(error)) from None
    passes = [relax.transform.InlinePrivateFunctions(), relax.transform.ConvertToDataflow(1)]
    return tvm.ir.transform.Sequential(passes)(translated)


def translate(mod: relay.IRModule, params: Mapping[str, np.ndarray[Any, Any]]) -> tvm.IRModule:
    """Translate a module whose operators have converters."""
    transform = relay.transform
    loops = [transform.LiftRecursion(), transform.FlattenRecursion()]
    mod = transform.Sequential([transform.InferType(), *loops])(mod)
    check_params(mod["main"], params)
    return Translator(mod, params).run()


def check_operators(mod: relay.IRModule) -> None:
    """Raise UnsupportedOperatorError that lists all operators without a converter."""
    problems = []
    for name, span in relay.operator_uses(mod):
        problem = unsupported(name)
        if problem is not None:
            problems.append(f"{name} at {span}: {problem}")
    if problems:
        raise UnsupportedOperatorError("unsupported operators: " + "; ".join(problems))


def check_params(main: relay.Function, params: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Raise UsageError if a value does not have the type of its parameter."""
    for var in main.params:
        if var.name not in params:
            continue
        value = params[var.name]
        wanted, actual = type_of(var), relay.TensorType(list(value.shape), value.dtype.name)
        if not isinstance(wanted, relay.TensorType) or not _fits(actual, wanted):
            raise UsageError(f"parameter {var.name!r}: expected {wanted}, got {actual}")


def _fits(found: relay.TensorType, wanted: relay.TensorType) -> bool:
    dims = zip(found.shape, wanted.shape, strict=False)
    same = all(a == b for a, b in dims if isinstance(b, int))
    return same and len(found.shape) == len(wanted.shape) and found.dtype == wanted.dtype
