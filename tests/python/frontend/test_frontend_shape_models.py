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
"""Models that compute with shapes, in all forms and sizes, against ONNX Runtime and PyTorch."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm
import tvm.testing
from onnx.reference import ReferenceEvaluator
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx as tvm_from_onnx
from tvm.relax.frontend.torch import from_exported_program as tvm_from_exported_program

from helpers.coverage_tables import CoverageTables
from helpers.grids import sample
from helpers.onnx_graphs import onnx_runtime
from helpers.onnx_node_tests import Result, Verdict, run_each
from helpers.onnx_shape_models import onnx_models
from helpers.relax_modules import call, cpu
from helpers.shape_models import Form, Model, torch_models
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.support import switches

pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore")]

MODELS: dict[str, Model] = dict(onnx_models()) | dict(torch_models())

REFUSED = {
    # The rank depends on which extents are 1.
    "squeeze_all": (Form.BY_HAND,),
    "torch_squeeze_all": (Form.TORCHSCRIPT, Form.DYNAMO),
}
"""Models with shapes that are undecidable at import."""

UNKNOWN_SHAPE = "passed, of unknown shape"


@dataclass(frozen=True)
class Case:
    """A form of a model, static or symbolic."""

    name: str
    form: Form
    is_symbolic: bool

    def __str__(self) -> str:
        return f"{self.name}-{self.form}-{'symbolic' if self.is_symbolic else 'static'}"


CASES = [
    Case(name, form, is_symbolic)
    for name, model in MODELS.items()
    for form, is_symbolic in itertools.product(model.forms, (False, True))
    if model.symbols or not is_symbolic
]


@cache
def source_of(case: Case) -> onnx.ModelProto | torch.export.ExportedProgram:
    """The imported model."""
    model = MODELS[case.name]
    if case.form is Form.EXPORTED:
        return model.exported(case.is_symbolic)
    return model.onnx(case.form, case.is_symbolic)


def expected_of_onnx(model: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray] | None:
    """The outputs, or None if the inputs are rejected.

    ONNX Runtime also rejects models that would fail only in an untaken branch.
    """
    try:
        return onnx_runtime(model, *inputs)
    except Exception:  # its exceptions have no common base class
        names = [value.name for value in model.graph.input]
        try:
            return ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
        except Exception:  # those of NumPy and its own
            return None


def runs_of(case: Case) -> list[tuple[list[np.ndarray], list[np.ndarray] | None]]:
    """The inputs of each size with what is expected."""
    model, source = MODELS[case.name], source_of(case)
    runs = []
    for sizes in model.sizes if case.is_symbolic else model.sizes[:1]:
        inputs = model.inputs(sizes)
        if isinstance(source, onnx.ModelProto):
            if case.form is not Form.BY_HAND:  # exporters drop unused inputs
                names = {value.name for value in source.graph.input}
                inputs = [x for index, x in enumerate(inputs) if f"x{index}" in names]
            runs.append((inputs, expected_of_onnx(source, inputs)))
        else:
            with torch.no_grad():
                runs.append((inputs, [model.module(*map(torch.from_numpy, inputs)).numpy()]))
    return runs


def outcome(case: Case, importers: dict[type, Callable[..., Any]], pipeline: str) -> Result:
    """The outcome of `case`."""
    source, runs = source_of(case), runs_of(case)
    try:
        mod = importers[type(source)](source)
    except Exception as error:
        is_right = all(expected is None for _, expected in runs)
        return Result(Verdict.PASSED if is_right else Verdict.REFUSED, repr(error))
    try:
        executable = relax.build(mod, cpu(), relax_pipeline=pipeline)
    except Exception as error:
        return Result(Verdict.FAILED, repr(error))
    vm = relax.VirtualMachine(executable, tvm.cpu())
    for inputs, expected in runs:
        try:
            got = call(vm, "main", *inputs)
        except Exception as error:
            if expected is None:
                continue
            return Result(Verdict.FAILED, repr(error))
        message = difference(got if isinstance(got, list) else [got], expected)
        if message:
            return Result(Verdict.WRONG, f"{[x.shape for x in inputs]}: {message}")
    return Result(Verdict.PASSED, "" if has_shape(mod["main"].ret_ty) else UNKNOWN_SHAPE)


def difference(got: list[np.ndarray], expected: list[np.ndarray] | None) -> str:
    if expected is None:
        return "an error was expected"
    for index, (one, other) in enumerate(zip(got, expected, strict=True)):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return f"output {index} is {one.dtype} {one.shape}, not {other.dtype} {other.shape}"
        try:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
        except AssertionError as error:
            return f"output {index}: {error}"
    return ""


def has_shape(kind: tvm.ir.Type) -> bool:
    if isinstance(kind, relax.TupleType):
        return all(map(has_shape, kind.fields))
    return isinstance(kind.shape, relax.ShapeExpr)


def count(tables: CoverageTables, way: str, case: Case, result: Result) -> None:
    table = tables.outcome_table("shape_models", [UNKNOWN_SHAPE, *Verdict])
    is_unknown = result == Result(Verdict.PASSED, UNKNOWN_SHAPE)
    kind = {"subject": MODELS[case.name].subject, "form": case.form}
    shapes = "symbolic" if case.is_symbolic else "static"
    table.count(way, UNKNOWN_SHAPE if is_unknown else result.verdict, **kind, shapes=shapes)


run_ours = partial(
    outcome,
    importers={
        onnx.ModelProto: from_onnx,
        torch.export.ExportedProgram: partial(from_exported_program, unwrap_unit_return_tuple=True),
    },
    pipeline="tvm_fixes",
)
run_stock = partial(
    outcome,
    importers={
        onnx.ModelProto: tvm_from_onnx,
        torch.export.ExportedProgram: partial(
            tvm_from_exported_program, unwrap_unit_return_tuple=True
        ),
    },
    pipeline="default",
)


@pytest.mark.parametrize("case", sample(CASES, 14, seed=1), ids=str)
def test_model(case: Case, coverage_table: CoverageTables) -> None:
    result = run_ours(case)
    count(coverage_table, "tvm-fixes", case, result)
    is_refused = case.is_symbolic and case.form in REFUSED.get(case.name, ())
    expected = Verdict.REFUSED if is_refused else Verdict.PASSED
    assert result.verdict is expected, result.message
    assert not is_refused or "expected the operand axes" in result.message


@pytest.mark.skipif("config.getoption('tier') != 'full'", reason="hundreds are built")
def test_of_tvm_alone(coverage_table: CoverageTables) -> None:
    """Fill in TVM's column of the table, and check that what TVM gets right stays right."""
    for case in CASES:
        source_of(case)
    results = run_each(CASES, run_stock, disabled=switches.FIX_IDS)
    for case, result in zip(CASES, results, strict=True):
        count(coverage_table, "tvm", case, result)
    assert any(result.verdict is Verdict.PASSED for result in results)
    assert any(result.verdict is Verdict.WRONG for result in results)


@pytest.mark.skipif("config.getoption('tier') != 'full'", reason="hundreds are built")
@pytest.mark.parametrize(
    "package, simplify",
    (
        ("onnxsim", lambda package, model: package.simplify(model)[0]),
        ("onnxslim", lambda package, model: package.slim(model)),
    ),
    ids=("onnxsim", "onnxslim"),
)
def test_of_tvm_behind_a_simplifier(
    package: str, simplify: Callable[..., onnx.ModelProto], coverage_table: CoverageTables
) -> None:
    """Fill in the table if the simplifier's package is installed."""
    simplifier = pytest.importorskip(package, reason=f"compares with {package}, if it is there")
    # Simplifiers require output shapes, which only exporters know.
    cases = [case for case in CASES if case.form in (Form.TORCHSCRIPT, Form.DYNAMO)]
    importers = {onnx.ModelProto: lambda model: tvm_from_onnx(simplify(simplifier, model))}
    run = partial(outcome, importers=importers, pipeline="default")
    for case in cases:
        source_of(case)
    results = run_each(cases, run, disabled=switches.FIX_IDS)
    for case, result in zip(cases, results, strict=True):
        count(coverage_table, f"{package}, tvm", case, result)
    assert any(result.verdict is Verdict.PASSED for result in results)


if __name__ == "__main__":
    tvm.testing.main()
