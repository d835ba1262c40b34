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
"""TVM's own tests as a judge, on a checkout with three small tests."""

from pathlib import Path

import pytest
import tvm
import tvm.testing
from tvm import relax

from helpers.grids import is_full
from helpers.relax_modules import build, tensor
from tests.tvm_tests.differences import KINDS, Reason, compare, markdown, read_reasons, unused
from tests.tvm_tests.plugin import IMPORTED, STOCK
from tests.tvm_tests.runs import Result, files_of, run
from tests.tvm_tests.same_function import same_function

_FILE = """
import os

import tvm
from tvm import relax
from tvm.script import ir as I, relax as R

{module}

def test_passes():
    pass

def test_other_ir_of_the_same_function():
    tvm.ir.assert_structural_equal({left}, {right})

def test_other_function():
    tvm.ir.assert_structural_equal({left}, {other})

def test_crashes():
    os.abort()
"""
_MODULE = """
def module(operator):
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(operator(x)))
    return bb.get()
"""


def _double(_: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    return relax.op.multiply(x, relax.const(2.0))


def _sum(_: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    return relax.op.add(x, x)


def test_two_ways_to_double_are_the_same_function() -> None:
    n = tvm.tirx.Var("n", "int64")
    first, second = (build({"x": tensor(n, 4)}, each) for each in (_double, _sum))
    assert same_function(first, second) == "equal"


def test_a_difference_is_told_with_its_size() -> None:
    first = build({"x": tensor(3, 4)}, _double)
    second = build({"x": tensor(3, 4)}, lambda _, x: relax.op.negative(x))
    assert same_function(first, second).startswith("different: main: result 0: largest difference")


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        (tvm.IRModule({}), "no Relax function in both"),
        (3, "a int, not a module"),
        (
            build({"x": tensor(3, 4), "y": tensor(3)}, lambda _, x, y: _double(_, x)),
            "other parameters",
        ),
    ],
)
def test_what_cannot_run_is_not_compared(left: object, reason: str) -> None:
    result = same_function(left, build({"x": tensor(3, 4)}, _double))
    assert result.startswith("not compared: ")
    assert reason in result


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tests = tmp_path_factory.mktemp("tvm") / "tests" / "python"
    (tests / "relax").mkdir(parents=True)
    text = _FILE.format(
        module=_MODULE,
        left="module(lambda x: relax.op.multiply(x, relax.const(2.0)))",
        right="module(lambda x: relax.op.add(x, x))",
        other="module(relax.op.negative)",
    )
    (tests / "relax" / "test_small.py").write_text(text)
    (tests / "relax" / "test_broken.py").write_text("import no_such_module\n")
    return tests


@pytest.mark.skipif(not is_full(), reason="an interrupted run has a crash too; --tier full")
def test_outcomes_survive_a_crash(checkout: Path, tmp_path: Path) -> None:
    files = files_of(checkout, ["relax"])
    assert files == ["relax/test_broken.py", "relax/test_small.py"]
    results = run(checkout, files, IMPORTED, tmp_path, jobs=1)
    outcomes = {test.split("::")[-1]: result.outcome for test, result in results.items()}
    assert outcomes == {
        "relax/test_broken.py": "failed",
        "test_passes": "passed",
        "test_other_ir_of_the_same_function": "passed",
        "test_other_function": "failed",
        "test_crashes": "crashed",
    }
    name = "relax/test_small.py::test_other_ir_of_the_same_function"
    assert results[name].comparisons == ("equal",)
    assert not list(checkout.rglob("__pycache__"))
    journal = next(tmp_path.glob(f"{IMPORTED}.*.jsonl"))
    lines = journal.read_text()
    assert run(checkout, files, IMPORTED, tmp_path, jobs=1) == results
    assert journal.read_text() == lines


def test_outcomes_survive_an_interrupted_run(tmp_path: Path) -> None:
    tests, folder = tmp_path / "tests", tmp_path / "outcomes"
    tests.mkdir()
    (tests / "test_it.py").write_text(
        "import os\n\ndef test_passes(): pass\n\ndef test_crashes(): os.abort()\n"
    )
    results = run(tests, ["test_it.py"], STOCK, folder, jobs=1)
    assert [result.outcome for result in results.values()] == ["passed", "crashed"]
    journal = next(folder.glob(f"{STOCK}.*.jsonl"))
    lines = journal.read_text()
    interrupted = lines[: lines.rindex('{"ended"')]
    journal.write_text(interrupted)
    assert run(tests, ["test_it.py"], STOCK, folder, jobs=1) == results
    assert "test_passes" not in journal.read_text()[len(interrupted) :]


def test_a_changed_file_runs_again(tmp_path: Path) -> None:
    tests, folder = tmp_path / "tests", tmp_path / "outcomes"
    tests.mkdir()
    for name in "ab":
        (tests / "test_it.py").write_text(f"def test_{name}(): pass\n")
        results = run(tests, ["test_it.py"], STOCK, folder, jobs=1)
    assert list(results) == ["test_it.py::test_a", "test_it.py::test_b"]


def test_a_file_that_ends_the_process_is_not_lost(tmp_path: Path) -> None:
    """Nor does a line that a crash left incomplete hide those before and after it."""
    tests, folder = tmp_path / "tests", tmp_path / "outcomes"
    tests.mkdir()
    folder.mkdir()
    (tests / "test_ends.py").write_text("import os\n\nos.abort()\n")
    journal = folder / f"{STOCK}.0.jsonl"
    journal.write_text('{"test": "a", "outcome": "passed"}\n{"test": "b", "outc')
    results = run(tests, ["test_ends.py"], STOCK, folder, jobs=1)
    assert {test: result.outcome for test, result in results.items()} == {
        "a": "passed",
        "test_ends.py": "crashed",
    }
    assert "status -6" in results["test_ends.py"].message


def test_stock_tvm_stays_stock(checkout: Path, tmp_path: Path) -> None:
    tests = checkout.parent.parent / "stock" / "tests"
    tests.mkdir(parents=True)
    (tests / "test_stock.py").write_text(
        "import sys\n\n\ndef test_stock():\n    assert 'tvm_fixes' not in sys.modules\n"
    )
    assert run(tests, ["test_stock.py"], STOCK, tmp_path, jobs=1) == {
        "test_stock.py::test_stock": Result("test_stock.py::test_stock", "passed")
    }


def _results(**outcomes: str) -> dict[str, Result]:
    return {test: Result(test, outcome) for test, outcome in outcomes.items()}


def test_each_difference_needs_a_reason_and_each_reason_a_difference() -> None:
    stock = _results(a="passed", b="passed", c="passed", d="failed", e="passed", f="skipped")
    ours = _results(a="passed", b="failed", c="crashed", d="passed", f="passed")
    reasons = [
        Reason(("b",), "supported", "computes it", (IMPORTED,)),
        Reason(("c.+",), "supported", "matches nothing", (IMPORTED,)),
    ]
    comparison = compare(IMPORTED, stock, ours, reasons)
    assert [result.test for result in comparison.same] == ["a"]
    assert [(result.test, reason) for result, reason in comparison.explained] == [("b", reasons[0])]
    assert [result.test for result in comparison.unexplained] == ["c", "e"]
    assert [result.test for result in comparison.gained] == ["d"]
    assert unused([comparison], reasons) == [reasons[1]]
    page = markdown([comparison], "")
    assert "| imported | 4 | 1 | 0 | 1 | 2 | 1 |" in page
    assert "- imported: `e`" in page


def test_reasons_are_complete(tmp_path: Path) -> None:
    for reason in read_reasons():
        assert reason.kind in KINDS
        assert (
            not reason.shown or (Path(__file__).parents[2] / reason.shown.split("::")[0]).exists()
        )
    path = tmp_path / "reasons.toml"
    path.write_text('[[reason]]\ntests = ["a"]\nkind = "ir"\ntext = "x"\nways = ["imported"]\n')
    with pytest.raises(ValueError, match="reason 1: 'text', and 'shown' for IR"):
        read_reasons(path)


if __name__ == "__main__":
    tvm.testing.main()
