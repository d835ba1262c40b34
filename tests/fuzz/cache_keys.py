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
"""Modules that differ in one place, or that are made twice: only the latter share a key.

The place is a number, an element of a constant, a variable's name or an operator; the module need
not be a valid one.
"""

import random
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm_ffi import structural_map

from tvm_fixes.compiler.cache.module_text import module_text
from tvm_fixes.relax.ir import tensor_of
from tvm_fixes.support.tensors import array_of

from .relax_programs import make_program

_OPERATORS = ("relax.add", "relax.multiply", "relax.subtract", "relax.maximum")
_KINDS = (tirx.IntImm, tirx.FloatImm, tvm.ir.GenericConst, tvm.ir.Op)


def run_case(seed: int) -> str | None:
    """Compare the texts of three modules; entry point of the runner.

    Returns
    -------
    str or None
        Why nothing was compared, if the module has no such place.
    """
    mod, same = (make_program(np.random.default_rng(seed)).mod for _ in range(2))
    assert module_text(mod) == module_text(same), "one module has two texts"
    rng = random.Random(seed)
    mutant = mutated(mod, rng)
    if mutant is None:
        return "no place to change"
    if module_text(mutant) == module_text(mod):
        assert tvm.ir.structural_equal(mod, mutant), "two modules share a key"
        return "the change is none"
    return None


def mutated(mod: tvm.IRModule, rng: random.Random) -> tvm.IRModule | None:
    """The module with another value at one place of ``main``; None if there is no place."""
    main = mod["main"]
    places: dict[type, int] = {}
    for kind in _KINDS:
        found: list[Any] = []
        structural_map(main, (kind, lambda value, found=found: found.append(value) or value))
        if found:
            places[kind] = len(found)
    if not places:
        return None
    kind = rng.choice([*places])
    chosen, place = rng.randrange(places[kind]), 0

    def changed(value: Any) -> Any:
        nonlocal place
        place += 1
        return _other(value, rng) if place - 1 == chosen else value

    changed_main: relax.Function = structural_map(main, (kind, changed))
    return tvm.IRModule({"main": changed_main})


def _other(value: Any, rng: random.Random) -> Any:
    """Another value of the same kind, or this one if there is no other."""
    if isinstance(value, tirx.IntImm):
        return tirx.IntImm(value.ty.dtype, 0 if value.value == 1 else 1)
    if isinstance(value, tirx.FloatImm):
        return tirx.FloatImm(value.ty.dtype, float(value.value) + 1.0)
    if isinstance(value, tvm.ir.Op):
        return tvm.ir.Op.get(rng.choice([name for name in _OPERATORS if name != value.name]))
    tensor = tensor_of(value)
    array = None if tensor is None else np.array(array_of(tensor))
    if array is None or not array.size:
        return value
    raw = array.reshape(-1).view("uint8")
    raw[rng.randrange(raw.size)] ^= 1
    return tvm.ir.GenericConst(tvm.runtime.tensor(array), value.ty)
