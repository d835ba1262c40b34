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
"""The backend node tests of the ONNX project, run through an importer.

Run as a program, it records the verdicts of stock TVM, which takes 15 minutes::

    PYTHONPATH=python python tests/python/helpers/onnx_node_tests.py
"""

import importlib
import importlib.metadata
import os
import pickle
import pkgutil
import re
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar

import ml_dtypes
import numpy as np
import onnx
import tvm
from onnx import numpy_helper
from onnx.backend.test.case import node
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx as tvm_from_onnx

from helpers.relax_modules import cpu
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.onnx.ops.narrow import carrier_of
from tvm_fixes.support import switches
from tvm_fixes.support.isolate import run_forked

_TIMEOUT = 240.0
_TOGETHER = 40
_COSTLY = {"averagepool", "lppool", "maxpool"}
_STOCK = Path(__file__).with_name("onnx_node_tests_tvm.toml")
_EXPANDED = re.compile(r"_expanded(_ver\d+)?$")

_Importer: TypeAlias = Callable[[onnx.ModelProto], tvm.IRModule]

AnyCase = TypeVar("AnyCase")


class Parameters(StrEnum):
    """How parameters (axes, shapes, pads, scales, zero points) are passed."""

    INITIALIZERS = "initializers"
    INPUTS = "inputs"


class Verdict(StrEnum):
    """How a case ended."""

    PASSED = "passed"
    REFUSED = "refused"
    """The importer raised an exception."""
    FAILED = "failed"
    """The importer crashed; or building or running raised an exception, crashed or hung."""
    WRONG = "wrong"
    """An output differs in value, shape or dtype from what the case expects."""


@dataclass(frozen=True, eq=False)
class Case:
    """One node test.

    Attributes
    ----------
    name : str
        The name in the ONNX project, such as ``test_add_bcast``.
    operator : str
        The tested operator; for a test ``…_expanded``, the function that was expanded.
    parameters : Parameters
        Where the parameters come from.
    model : ModelProto
    inputs, outputs : tuple
        In graph order: np.ndarray, or the representation of a sequence, optional or string.
    rtol, atol : float
        As of ``np.testing.assert_allclose``; 16-bit results may be off by two units.
    """

    name: str
    operator: str
    parameters: Parameters
    model: onnx.ModelProto
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float

    def __str__(self) -> str:
        return f"{self.name}-{self.parameters}"


@dataclass(frozen=True)
class Result:
    """A verdict, with the message of the error or difference."""

    verdict: Verdict
    message: str = ""


@cache
def cases(*, costly: bool) -> tuple[Case, ...]:
    """Every node test; those with parameters also with the parameters as initializers.

    Parameters
    ----------
    costly : bool
        Whether to include AveragePool, LpPool and MaxPool, which take ten seconds to define: their
        expected results are computed in Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if costly:
            tests = node.collect_testcases(None)
        else:
            for module in pkgutil.iter_modules(node.__path__, f"{node.__name__}."):
                if module.name.rpartition(".")[2] not in _COSTLY:
                    importlib.import_module(module.name)
            tests = node._NodeTestCases
    operators = {
        test.name: test.model.graph.node[-1].op_type
        for test in tests
        if not _EXPANDED.search(test.name)
    }
    collected = []
    for test in tests:
        [(inputs, outputs)] = test.data_sets
        last = test.model.graph.node[-1].op_type
        case = Case(
            test.name,
            operators.get(_EXPANDED.sub("", test.name), last),
            Parameters.INPUTS,
            test.model,
            tuple(map(_array, inputs)),
            tuple(map(_array, outputs)),
            test.rtol,
            test.atol,
        )
        collected += [case, *_with_initializers(case)]
    return tuple(sorted(collected, key=lambda case: (case.operator, case.name, case.parameters)))


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _with_initializers(case: Case) -> list[Case]:
    """`case` with its parameters as initializers, if it has any.

    Parameters are operands of rank 0 or 1: those of int64, and all but the first operand.
    """
    values = dict(zip((value.name for value in case.model.graph.input), case.inputs, strict=True))
    parameters = {
        name: value
        for index, (name, value) in enumerate(values.items())
        if isinstance(value, np.ndarray)
        and value.dtype != object
        and value.ndim <= 1
        and (index > 0 or value.dtype == np.int64)
    }
    if not parameters:
        return []
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.input[:]
    model.graph.input.extend(v for v in case.model.graph.input if v.name not in parameters)
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in parameters.items())
    inputs = tuple(value for name, value in values.items() if name not in parameters)
    return [replace(case, parameters=Parameters.INITIALIZERS, model=model, inputs=inputs)]


def run_ours(cases: Sequence[Case]) -> list[Result]:
    """`cases` with the corrected importer and pipeline."""
    return run_each(cases, partial(_run, importer=from_onnx, pipeline="tvm_fixes"))


def run_stock(cases: Sequence[Case]) -> list[Result]:
    """`cases` with TVM's importer and pipeline, and every fix switched off."""
    return run_each(
        cases, partial(_run, importer=tvm_from_onnx, pipeline="default"), disabled=switches.FIX_IDS
    )


def operators() -> list[str]:
    """The operators with cases, from the record of TVM's verdicts."""
    return list(_record()["verdicts"])


def stock_verdicts(operator: str, cases: Sequence[Case]) -> list[Verdict]:
    """The verdicts of stock TVM for all `cases` of `operator`.

    The cases are run only if the record is of other versions of TVM or ONNX.
    """
    record = _record()
    if record["versions"] != _versions():
        return [result.verdict for result in run_stock(cases)]
    verdicts = {verdict[0]: verdict for verdict in Verdict}
    ended = [verdicts[initial] for initial in record["verdicts"][operator]]
    assert len(ended) == len(cases), operator
    return ended


@cache
def _record() -> dict[str, dict[str, str]]:
    return tomllib.loads(_STOCK.read_text(encoding="utf-8"))


def record_stock() -> None:
    """Record stock TVM's verdict of every case, one letter each, in the order of cases."""
    every = cases(costly=True)
    ended = iter(run_stock(every))
    verdicts = {
        operator: "".join(next(ended).verdict[0] for _ in group)
        for operator, group in groupby(every, lambda case: case.operator)
    }
    header = Path(__file__).read_text(encoding="utf-8").partition('"""')[0]
    tables = {"versions": _versions(), "verdicts": verdicts}
    lines = [
        line
        for name, table in tables.items()
        for line in (f"\n[{name}]", *(f'{key} = "{value}"' for key, value in table.items()))
    ]
    _STOCK.write_text(header + "\n".join(lines).lstrip() + "\n", encoding="utf-8")


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("apache-tvm", "onnx")}


def run_each(
    cases: Sequence[AnyCase], run: Callable[[AnyCase], Result], *, disabled: Sequence[str] = ()
) -> list[Result]:
    """Call `run` on each of `cases` in child processes, with the fixes `disabled`.

    One child runs many cases, since forking takes longer than most of them.

    A case that kills its child runs again in a child of its own, which determines its verdict.
    Another child continues with the next case.
    """

    def run_some(todo: Sequence[AnyCase], results: IO[bytes]) -> None:
        os.environ[switches.ENVIRONMENT_VARIABLE] = ",".join(disabled)
        warnings.simplefilter("ignore")
        for case in todo:
            pickle.dump(run(case), results)
            results.flush()

    done: list[Result] = []
    together = _TOGETHER
    while len(done) < len(cases):
        todo = cases[len(done) : len(done) + together]
        with tempfile.TemporaryFile() as results:
            timeout = _TIMEOUT * max(len(todo) / 8, 1)
            outcome = run_forked(lambda t=todo, r=results: run_some(t, r), timeout=timeout)
            results.seek(0)
            ended = list(_unpickled(results))
        done += ended
        if len(ended) < len(todo) and together == 1:
            done.append(Result(Verdict.FAILED, str(outcome)))
        together = _TOGETHER if len(ended) == len(todo) or together == 1 else 1
    return done


def _unpickled(file: IO[bytes]) -> Iterator[Result]:
    # A killed child may leave a truncated record.
    with suppress(EOFError, pickle.UnpicklingError):
        while True:
            yield pickle.load(file)


def _run(case: Case, importer: _Importer, pipeline: str) -> Result:
    def error_text(error: Exception) -> str:
        return f"{type(error).__name__}: {error}"

    try:
        mod = importer(case.model)
    except Exception as error:
        return Result(Verdict.REFUSED, error_text(error))
    try:
        executable = relax.build(mod, cpu(), relax_pipeline=pipeline)
        vm = relax.VirtualMachine(executable, tvm.cpu())
        got = vm["main"](*map(_to_tvm, case.inputs))
        got = _of_tvm(got, len(case.outputs))
    except Exception as error:
        return Result(Verdict.FAILED, error_text(error))
    try:
        _assert_equal(got, case)
    except AssertionError as error:
        return Result(Verdict.WRONG, str(error))
    return Result(Verdict.PASSED)


def _carried(array: np.ndarray) -> np.ndarray:
    """An array of less than 8 bits in the dtype of the tensors that carry its elements."""
    return array.astype(carrier_of(array.dtype.name)) if array.dtype != object else array


def _to_tvm(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_tvm(element) for element in value]
    if isinstance(value, np.ndarray):
        value = _carried(value)
    return tvm.runtime.tensor(value) if isinstance(value, np.ndarray | np.generic) else value


def _of_tvm(value: Any, count: int) -> list[Any]:
    def array(field: Any) -> Any:
        return field.numpy() if hasattr(field, "numpy") else [array(element) for element in field]

    return [array(value)] if count == 1 else [array(field) for field in value]


def _assert_equal(got: list[Any], case: Case) -> None:
    assert len(got) == len(case.outputs), f"{len(case.outputs)} outputs expected, got {len(got)}"
    for value, expected in zip(got, case.outputs, strict=True):
        _assert_close(value, expected, case)


def _assert_close(got: Any, expected: Any, case: Case) -> None:
    if isinstance(expected, list):
        assert isinstance(got, list), f"sequence expected, got {type(got)}"
        assert len(got) == len(expected), f"{len(expected)} elements expected, got {len(got)}"
        for value, wanted in zip(got, expected, strict=True):
            _assert_close(value, wanted, case)
        return
    expected = _carried(np.asarray(expected))
    assert isinstance(got, np.ndarray), f"array expected, got {type(got)}"
    kinds = (got.shape, got.dtype), (expected.shape, expected.dtype)
    assert kinds[0] == kinds[1], f"{kinds[1]} expected, got {kinds[0]}"
    rtol = case.rtol
    if expected.dtype.name in ("float16", "bfloat16"):
        # The case's own tolerance is less than 1 ulp, which allows no other rounding.
        rtol = max(rtol, 2 * float(ml_dtypes.finfo(expected.dtype).eps))
    if expected.dtype.kind not in "biufc":  # ml_dtypes, of which numpy knows no tolerance
        got, expected = got.astype("float32"), expected.astype("float32")
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=case.atol)


if __name__ == "__main__":
    record_stock()
