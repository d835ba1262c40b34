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
"""Random Relax modules through the pipeline and through each pass, against the interpreter."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_fixes import pipeline, transform
from tvm_fixes.errors import UnsupportedOperatorError, UsageError, summarize
from tvm_fixes.support.isolate import OutcomeKind, run_forked
from tvm_fixes.support.tensors import arrays_of
from tvm_fixes.target import resolve
from tvm_fixes.testing import _call_after, _to_tvm

from .reduce_relax import Case, as_test, reduce
from .relax_oracle import Undefined, expected
from .relax_programs import Program, make_program

# Seeds cycle through these targets and layouts.
CONFIGURATIONS: tuple[tuple[str, Any, str | None], ...] = (
    ("llvm", "llvm", None),
    ("native", "native", None),
    ("haswell", {"kind": "llvm", "mcpu": "haswell"}, None),
    ("llvm, NHWC", "llvm", "NHWC"),
    ("haswell, NCHW8c", {"kind": "llvm", "mcpu": "haswell"}, "NCHW8c"),
)

# Passes for modules of high-level operators, as an importer creates them.
PASSES: dict[str, Callable[[], tvm.transform.Pass]] = {
    "BroadcastFreeMatmul": transform.BroadcastFreeMatmul,
    "BundleModelParams": transform.BundleModelParams,
    "DecomposeEinsum": transform.DecomposeEinsum,
    "DynamicToStatic": transform.DynamicToStatic,
    "FoldConstant": transform.FoldConstant,
    "FoldPadIntoConv": transform.FoldPadIntoConv,
    "TrimConvKernel": transform.TrimConvKernel,
    "FuseTransposeMatmul": transform.FuseTransposeMatmul,
    "InsertRuntimeChecks": transform.InsertRuntimeChecks,
    "LazyGetInput": transform.LazyGetInput,
    "LiftTransformParams": transform.LiftTransformParams,
    "LowerElementaryFunctions": transform.LowerElementaryFunctions,
    "ReadTransposedWeights": transform.ReadTransposedWeights,
    "RefreshTypes": transform.RefreshTypes,
    "SplitDataflow": transform.SplitDataflow,
}
_TAKES_WEIGHTS = ("BundleModelParams", "LazyGetInput", "LiftTransformParams")

_SIZES = 4


def run_case(seed: int) -> str | None:
    """Check one random module: lowered for one target, and after two single passes.

    Returns
    -------
    str or None
        Why a module was rejected; None if all results are correct.

    Raises
    ------
    AssertionError
        If a result is wrong, or if a rejection does not name an operator.
    """
    rng = np.random.default_rng(seed)
    program = make_program(rng)
    name, target, layout = CONFIGURATIONS[seed % len(CONFIGURATIONS)]
    rejected = check(program, seed, name, target, pipeline(layout=layout))
    has_weights = "num_input" in (program.mod["main"].attrs or {})
    passes = [name for name in PASSES if has_weights or name not in _TAKES_WEIGHTS]
    for chosen in rng.choice(passes, 2, replace=False):
        rejected = check_pass(program, seed, str(chosen)) or rejected
    return rejected


def check(
    program: Program, seed: int, name: str, target: Any, lowering: tvm.transform.Pass
) -> str | None:
    """Lower and run a program at several sizes."""
    return _check(program, seed, name, lambda: program.mod, target, lowering)


def check_pass(program: Program, seed: int, name: str) -> str | None:
    """Run a program after one pass."""

    def apply() -> tvm.IRModule:
        with tvm.target.Target("llvm"):
            return PASSES[name]()(program.mod)

    return _check(program, seed, f"after {name}", apply, "llvm", pipeline())


def _check(
    program: Program,
    seed: int,
    name: str,
    prepare: Callable[[], tvm.IRModule],
    target: Any,
    lowering: tvm.transform.Pass,
) -> str | None:
    try:
        after = prepare()
        built = relax.build(after, resolve(target), relax_pipeline=lowering)
    except (UnsupportedOperatorError, UsageError) as error:
        return f"{name}: {summarize(error)}"
    except Exception as error:
        text = f"{name}: not built: {type(error).__name__}: {summarize(error)}"
        raise AssertionError(f"{text} [{describe_stock_result(program, seed)}]") from error
    vm = relax.VirtualMachine(built, tvm.cpu())

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        values = [_to_tvm(array) for array in inputs]
        return arrays_of(_call_after(vm, program.mod, after, "main", values))

    found = compare_at_sizes(program, seed, run)
    if found:
        raise AssertionError(f"{name}: {found} [{describe_stock_result(program, seed)}]")
    return None


def compare_at_sizes(
    program: Program, seed: int, run: Callable[[Sequence[np.ndarray]], list[np.ndarray]]
) -> str | None:
    """The first fault of the results at several sizes, or None."""
    rng = np.random.default_rng([seed, 1])
    for sizes in program.sizes(rng, _SIZES):
        at = ", ".join(f"{symbol.name}={size}" for symbol, size in sizes.items())
        try:
            inputs = program.inputs(rng, sizes)
            want = expected(program.mod, inputs, seed)
        except Undefined:
            continue
        try:
            got = run(inputs)
        except Exception as error:
            return f"failed at {at or 'the only sizes'}: {summarize(error)}"
        difference = want.difference(got)
        if difference:
            return f"{difference}{' at ' if at else ''}{at}"
    return None


def reproduce(seed: int) -> str:
    """A small module with the fault of the case `seed`, as a test."""
    program = make_program(np.random.default_rng(seed))
    name, target, layout = CONFIGURATIONS[seed % len(CONFIGURATIONS)]
    rng = np.random.default_rng([seed, 1])
    for sizes in program.sizes(rng, _SIZES):
        try:
            case = Case(program.mod, program.inputs(rng, sizes))
        except Undefined:
            continue
        wanted = _fault(case, target, layout)
        if wanted is not None:
            small = reduce(case, lambda one: _kind(_fault(one, target, layout)) == _kind(wanted))
            message = _fault(small, target, layout) or ""
            return as_test(small, f"{name}: {message}")
    return "the pipeline does not fail without the extra passes"


def _kind(fault: str | None) -> str | None:
    """The part of a message that faults with the same cause share."""
    return fault and fault.split(":")[0]


def _fault(case: Case, target: Any, layout: str | None) -> str | None:
    """The fault of a module, or None."""
    outcome = run_forked(lambda: _found(case, target, layout), timeout=60)
    if outcome.kind is OutcomeKind.VALUE:
        return None if outcome.value is None else str(outcome.value)
    return f"crash: {outcome}"


def _found(case: Case, target: Any, layout: str | None) -> str | None:
    try:
        want = expected(case.mod, case.inputs, 0)
    except Exception:
        return None
    try:
        built = relax.build(case.mod, resolve(target), relax_pipeline=pipeline(layout=layout))
    except (UnsupportedOperatorError, UsageError):
        return None
    except Exception as error:
        return f"not built: {summarize(error)}"
    try:
        got = arrays_of(relax.VirtualMachine(built, tvm.cpu())["main"](*map(_to_tvm, case.inputs)))
    except Exception as error:
        return f"failed: {summarize(error)}"
    difference = want.difference(got)
    return None if difference is None else f"wrong: {difference}"


def describe_stock_result(program: Program, seed: int) -> str:
    """Describe briefly how stock TVM handles a program; it may crash."""
    outcome = run_forked(lambda: _describe_stock_result(program, seed), timeout=60)
    if outcome.kind is OutcomeKind.VALUE:
        return str(outcome.value)
    return f"stock TVM crashes: {outcome.kind.value}"


def _describe_stock_result(program: Program, seed: int) -> str:
    try:
        vm = relax.VirtualMachine(relax.build(program.mod, "llvm"), tvm.cpu())
    except Exception as error:
        return f"stock TVM does not build it: {summarize(error)}"

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return arrays_of(vm["main"](*map(_to_tvm, inputs)))

    difference = compare_at_sizes(program, seed, run)
    return f"stock TVM too: {difference}" if difference else "stock TVM is right"
