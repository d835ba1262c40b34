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
"""Valid Relax modules and mutants of them, passed to the verifier.

A valid module must have no errors.  A mutant must be reported or harmless.  A harmless mutant
raises an exception when it is built or called, or returns the interpreter's results; if the
interpreter has no result, two calls must agree.
"""

import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tvm
from tvm import relax, tirx
from tvm_ffi import structural_map

import tvm_fixes
from tvm_fixes.errors import summarize
from tvm_fixes.support.tensors import arrays_of
from tvm_fixes.testing import _to_tvm
from tvm_fixes.tirx.util import contains

from .relax_oracle import Expected, Undefined, Unsupported, expected
from .relax_programs import Program, make_program

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

from helpers.verifier_mutants import Mutant, mutants
from helpers.verifying import copied

_MUTANTS = 4


def run_case(seed: int) -> str | None:
    """Check one random module and some of its mutants.

    Raises
    ------
    AssertionError
        If the verifier reports a valid module, or does not report a harmful mutant.
    """
    rng = np.random.default_rng(seed)
    program = make_program(rng, steps=int(rng.integers(1, 6)))
    mod = program.mod
    assert_valid(mod, "as it is made")
    try:
        legalized = relax.transform.LegalizeOps()(mod)
    except Exception as error:
        return f"LegalizeOps: {summarize(error)}"
    assert_valid(legalized, "legalized")
    inputs = program.inputs(rng, program.symbols)
    try:
        original = expected(mod, inputs, seed)
    except Undefined:
        original = None
    for _ in range(_MUTANTS):
        level = rng.random()
        if level < 0.6:
            check_mutant(program, mod, inputs, original, rng, seed)
        elif level < 0.85:
            check_mutant(program, legalized, inputs, original, rng, seed)
        else:
            check_kernel_mutant(legalized, inputs, rng)
    return None


def errors(mod: tvm.IRModule) -> set[tuple[str, str]]:
    return {
        (diagnostic.rule, diagnostic.message)
        for diagnostic in tvm_fixes.verify(mod)
        if diagnostic.severity == "error"
    }


def is_reported(copy: tvm.IRModule, mod: tvm.IRModule) -> bool:
    """Whether the mutant `copy` of `mod` has an error or a new warning.

    Harm at only a few sizes, e.g. parameters of two channels for n, is a warning.
    """
    known = {(diagnostic.rule, diagnostic.message) for diagnostic in tvm_fixes.verify(mod)}
    return any(
        diagnostic.severity == "error" or (diagnostic.rule, diagnostic.message) not in known
        for diagnostic in tvm_fixes.verify(copy)
    )


def assert_valid(mod: tvm.IRModule, what: str) -> None:
    reported = errors(mod)
    assert not reported, f"false alarm, {what}: {sorted(reported)[0]}"


def check_mutant(
    program: Program,
    mod: tvm.IRModule,
    inputs: Sequence[np.ndarray],
    original: Expected | None,
    rng: np.random.Generator,
    seed: int,
) -> None:
    """Change one element of the Relax functions."""
    copy = copied(mod)
    candidates = mutants(copy)
    mutant = candidates[int(rng.integers(len(candidates)))]
    mutant.apply()
    if is_reported(copy, mod):
        return
    got = results(copy, inputs)
    if got is None:
        return
    want = original if mutant.changes_types else _expected(copy, inputs, seed)
    if want is not None:
        difference = want.difference(got)
        assert difference is None, f"{_name(mutant)}: not reported: {difference}"


def _name(mutant: Mutant) -> str:
    return f"mutant {mutant.kind} of {mutant.where}"


def _expected(mod: tvm.IRModule, inputs: Sequence[np.ndarray], seed: int) -> Expected | None:
    try:
        return expected(mod, inputs, seed)
    except (Undefined, Unsupported):
        return None
    except Exception:
        # NumPy rejects the mutant; only compare its results with each other.
        return None


def results(mod: tvm.IRModule, inputs: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """The results of a module, or None if it raises an exception.

    Raises
    ------
    AssertionError
        If a second call returns different results, e.g. because it reads out of bounds.
    """
    try:
        vm = relax.VirtualMachine(
            relax.build(mod, "llvm", relax_pipeline=tvm_fixes.pipeline()), tvm.cpu()
        )
    except Exception:
        return None
    runs: list[list[np.ndarray]] = []
    for fill in (1e9, -1e9):
        # The next call reuses freed memory.
        for size in (4, 12, 48, 192, 1024):
            tvm.runtime.tensor(np.full(size, fill, "float32"))
        try:
            runs.append(arrays_of(vm["main"](*map(_to_tvm, inputs))))
        except Exception:
            return None
    for first, second in zip(*runs, strict=True):
        same = first.tobytes() == second.tobytes()
        assert same, f"not reported: two runs differ: {first.ravel()[:4]}, {second.ravel()[:4]}"
    return runs[0]


def check_kernel_mutant(
    mod: tvm.IRModule, inputs: Sequence[np.ndarray], rng: np.random.Generator
) -> None:
    """Change one access, or one loop, of a kernel."""
    copy = copied(mod)
    kernels = [(var, one) for var, one in copy.functions_items() if isinstance(one, tirx.PrimFunc)]
    if not kernels:
        return
    variable, kernel = kernels[int(rng.integers(len(kernels)))]
    change = _CHANGES[int(rng.integers(len(_CHANGES)))]
    at, step = int(rng.integers(8)), int(rng.choice([-1, 1, 7]))
    copy[variable] = change(kernel, at, step)
    # Violations that depend on data are warnings.
    if reports(copy) - reports(mod):
        return
    results(copy, inputs)


def reports(mod: tvm.IRModule) -> set[tuple[str, str]]:
    """The errors and warnings of a module."""
    return {
        (diagnostic.rule, diagnostic.message)
        for diagnostic in tvm_fixes.verify(mod)
        if diagnostic.severity != "note"
    }


def _counted(at: int) -> Callable[[], bool]:
    """A function that returns True only at call number `at`."""
    counter = itertools.count()
    return lambda: next(counter) == at


def _is_judged(indices: Sequence[tirx.Expr]) -> bool:
    """Whether the first index exists and does not depend on data, which could make it valid."""
    return len(indices) > 0 and not contains(indices[0], tvm.ir.TensorLoad)


def _move_load(kernel: tirx.PrimFunc, at: int, step: int) -> tirx.PrimFunc:
    is_chosen = _counted(at)

    def move(load: tvm.ir.TensorLoad) -> tirx.Expr:
        if not is_chosen() or not _is_judged(load.indices):
            return load
        indices = [load.indices[0] + step, *list(load.indices)[1:]]
        return tirx.BufferLoad(load.source, indices)

    return structural_map(kernel, (tvm.ir.TensorLoad, move))


def _move_store(kernel: tirx.PrimFunc, at: int, step: int) -> tirx.PrimFunc:
    is_chosen = _counted(at // 4)

    def move(store: tirx.BufferStore) -> tirx.Stmt:
        if not is_chosen() or not _is_judged(store.indices):
            return store
        indices = [store.indices[0] + step, *list(store.indices)[1:]]
        return tirx.BufferStore(store.buffer, store.value, indices)

    return structural_map(kernel, (tirx.BufferStore, move))


def _extend_loop(kernel: tirx.PrimFunc, at: int, step: int) -> tirx.PrimFunc:
    is_chosen = _counted(at // 2)

    def extend(loop: tirx.For) -> tirx.Stmt:
        if not is_chosen():
            return loop
        extent = loop.extent + abs(step)
        return tirx.For(loop.loop_var, loop.min, extent, loop.kind, loop.body)

    return structural_map(kernel, (tirx.For, extend))


_CHANGES = (_move_load, _move_load, _move_store, _extend_loop)
