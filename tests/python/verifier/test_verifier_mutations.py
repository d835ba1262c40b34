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
"""Every single change of a valid module is found or harmless.

A mutant without additional findings is harmless if, built and called with the inputs of the
original, it

1. raises a Python exception, in the build or the call; or
2. where only stated types were changed: returns what the original returns; or
3. where the program was changed: returns what the same program returns after the types of all its
   values are inferred again, and the result has the type that ``main`` states.

A crash, a hang, two different runs, or another number is harm.
"""

import zlib
from functools import cache, partial

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from helpers.coverage_tables import CoverageTables
from helpers.grids import few, sample
from helpers.verifier_mutants import SUBJECTS, mutants, mutated
from helpers.verifying import copied, found
from tvm_fixes.support.isolate import OutcomeKind, run_forked

pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore")]

EXTENT = 3
"""The value of symbols in the inputs."""


@cache
def subject(name: str) -> tvm.IRModule:
    return SUBJECTS[name]()


@cache
def count(name: str) -> int:
    return len(mutants(subject(name)))


@cache
def findings(name: str) -> frozenset[tuple[str, str, str]]:
    return frozenset(found(subject(name)) + found(subject(name), "warning"))


def inputs(mod: tvm.IRModule) -> list[np.ndarray]:
    """Random inputs of the types that `main` states, without negative numbers or ties."""
    rng = np.random.default_rng(0)
    arrays = []
    for param in mod["main"].params:
        if param.ty.shape is None:
            extents = [EXTENT, 4]
        else:
            extents = [
                int(extent) if isinstance(extent, tirx.IntImm) else EXTENT
                for extent in param.ty.shape.values
            ]
        value = rng.uniform(0.5, 1.5, extents)
        arrays.append(value.astype(str(param.ty.dtype)))
    return arrays


def outcome(mod: tvm.IRModule, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a module, called twice, since uninitialized memory may differ.

    Raises
    ------
    AssertionError
        If the calls differ.
    """
    # The virtual machine has no local functions.
    mod = relax.transform.LambdaLift()(mod)
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    results = []
    for fill in (1e9, -1e9):
        # Freed memory is reused by the next call.
        for size in (4, 12, 48, 192, 1024):
            tvm.runtime.tensor(np.full(size, fill, "float32"))
        result = vm["main"](*(tvm.runtime.tensor(array) for array in arrays))
        results.append([array.numpy() for array in flat(result)])
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)
    return results[0]


def flat(result: object) -> list[tvm.runtime.Tensor]:
    if isinstance(result, tvm.runtime.Tensor):
        return [result]
    return [tensor for part in result for tensor in flat(part)]


@mutator
class Derive(PyExprMutator):
    """Binds each value to a new variable of the inferred type."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        args = [self.visit_expr(arg) for arg in call.args]
        return relax.Call(call.op, args, call.attrs, call.ty_args)

    def visit_tuple_(self, value: relax.Tuple) -> relax.Expr:
        return relax.Tuple([self.visit_expr(field) for field in value.fields])

    def visit_tuple_getitem_(self, value: relax.TupleGetItem) -> relax.Expr:
        return relax.TupleGetItem(self.visit_expr(value.tuple_value), value.index)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.builder_.normalize(self.visit_expr(binding.value))
        is_local = isinstance(binding.var, relax.DataflowVar)
        emit = self.builder_.emit if is_local else self.builder_.emit_output
        in_dataflow = self.builder_.current_block_is_dataflow()
        var = emit(value) if in_dataflow else self.builder_.emit(value)
        self.set_var_remap(binding.var, var)


def derived(mod: tvm.IRModule) -> tvm.IRModule:
    """The same program with all types inferred again."""
    mod = relax.transform.LambdaLift()(copied(mod))
    # Callees first, since main's types depend on theirs.
    for name in sorted(mod.get_global_vars(), key=lambda name: name.name_hint == "main"):
        one = mod[name]
        if isinstance(one, relax.Function):
            body = Derive(mod).visit_expr(one.body)
            anew = relax.Function(one.params, body, None, one.is_pure, one.attrs)
            mod.update_func(name, anew)
    return mod


HARMLESS = ("raises", "equal")


def effect(name: str, index: int) -> str:
    """The effect of a mutant that was not found: one of :data:`HARMLESS`, or the harm."""
    original = subject(name)
    mutant, mod = mutated(original, index)
    arrays = inputs(original)
    try:
        got = outcome(mod, arrays)
    except AssertionError:
        return "two calls differ"
    except Exception:
        return "raises"
    reference = original if mutant.changes_types else derived(mod)
    expected = outcome(reference, arrays)
    if len(got) != len(expected):
        return f"{len(got)} results, expected {len(expected)}"
    for one, other in zip(got, expected, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{one.dtype}{one.shape}, expected {other.dtype}{other.shape}"
        if not np.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True):
            return "another number"
    return "equal"


def check(name: str, index: int, tables: CoverageTables) -> None:
    mutant, mod = mutated(subject(name), index)
    new = [
        finding for finding in found(mod) + found(mod, "warning") if finding not in findings(name)
    ]
    told = new[0][0] if new else ""
    if not new:
        run = run_forked(partial(effect, name, index), timeout=60)
        told = str(run.value if run.kind is OutcomeKind.VALUE else run)
    with tables("verifier_mutations").case(change=mutant.kind, found_by_or_effect=told):
        assert new or told in HARMLESS, f"{name} {index}, {mutant.where}: {told}"


def numbers(name: str) -> list[int]:
    """The mutants of a subject in this tier, sampled with a seed derived from its name."""
    return sample(range(count(name)), 18, seed=zlib.crc32(name.encode()))


@few(7)
@pytest.mark.parametrize("name", SUBJECTS)
def test_nothing_is_wrong_with_the_original(name: str):
    assert findings(name) == frozenset()
    assert outcome(subject(name), inputs(subject(name)))


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_mutant_is_found_or_harmless(name: str, coverage_table: CoverageTables):
    for index in numbers(name):
        check(name, index, coverage_table)


if __name__ == "__main__":
    tvm.testing.main()
