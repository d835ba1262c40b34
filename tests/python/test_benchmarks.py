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
"""The benchmarks' own checks, without timing."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from benchmarks import __main__ as command
from benchmarks import verifier, visitor
from benchmarks.measure import Comparison, Way, compare
from helpers.relax_modules import build, tensor
from tvm_fixes.verifier import verify


def test_each_way_runs_once_to_warm_up_and_then_in_turn():
    calls = []
    ways = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    comparison = compare("title", ways, runs=2)
    assert calls == ["a", "b", "a", "b", "b", "a"]
    assert [(way.name, len(way.seconds)) for way in comparison.ways] == [("a", 2), ("b", 2)]


def test_a_ratio_is_of_times_of_one_turn():
    first, second = Way("first", list, [1.0, 4.0, 2.0]), Way("second", list, [2.0, 4.0, 6.0])
    comparison = Comparison("title", [first, second])
    assert comparison.ratios(second) == [2.0, 1.0, 3.0]
    assert comparison.ratio(second) == 2.0
    assert comparison.spread(second) == (1.5, 2.5)


def test_both_visitors_count_the_same():
    [comparison] = visitor.comparisons(length=50)
    assert comparison.title == "visit 50 bindings"
    python, native = comparison.ways
    assert {str(k): int(v) for k, v in native.run().items()} == python.run()
    assert python.run() == {"relax.nn.relu": 50}


def test_visitors_that_disagree_are_an_error(monkeypatch):
    monkeypatch.setattr(visitor._ffi, "get", lambda name: lambda function: {"relax.nn.relu": 49})
    with pytest.raises(RuntimeError, match="the visitors disagree"):
        visitor.comparisons(length=50)


def visits(python: float, native: float) -> Comparison:
    return Comparison("visit", [Way("in Python", list, [python]), Way("native", list, [native])])


def test_a_native_visitor_that_is_too_slow_is_an_error():
    visitor.check(visits(python=0.2, native=0.009))
    with pytest.raises(
        RuntimeError, match=r"native takes 0\.055 of the time of in Python, more than 0\.05"
    ):
        visitor.check(visits(python=0.2, native=0.011))


def test_checks_at_run_time_that_cost_too_much_are_an_error():
    pytest.importorskip("torch")
    from benchmarks import runtime_checks

    def runs(without: float, checked: float) -> Comparison:
        ways = [Way("without checks", list, [without]), Way("with 1 check", list, [checked])]
        return Comparison("run", ways)

    runtime_checks.check(runs(without=0.2, checked=0.201))
    with pytest.raises(RuntimeError, match=r"run: checks take 2\.0%, more than 1%"):
        runtime_checks.check(runs(without=0.2, checked=0.204))


def test_indices_are_bounded_in_one_way_of_three(monkeypatch):
    pytest.importorskip("torch")
    from benchmarks import index_checks

    ids = np.array([[3, -1], [0, 9]])
    mod = build(
        {"table": tensor(10, 4), "ids": tensor(2, 2, dtype="int64")},
        lambda _, table, ids: relax.op.take(table, ids, axis=0),
    )
    table = np.arange(40, dtype="float32").reshape(10, 4)
    inputs = [tvm.runtime.tensor(one) for one in (table, ids)]
    seen = []

    def ways(_title, ways, runs):
        seen.extend(way().numpy() for way in ways.values())
        inputs[1].copyfrom(np.array([[0, 1], [2, 10]]))
        (*_, checked) = ways.values()
        with pytest.raises(Exception, match="index"):
            checked()
        return list(ways)

    monkeypatch.setattr(index_checks, "model", lambda: (mod, inputs))
    monkeypatch.setattr(index_checks, "compare", ways)
    (names,) = index_checks.comparisons()
    assert names == ["without bounds", "without bounds, again", "with bounds, and 1 checks"]
    for one in seen:
        np.testing.assert_array_equal(one, table[ids])


@pytest.mark.parametrize("kind", verifier.KINDS)
def test_the_chains_of_the_verifier_are_right(kind):
    mod = verifier.chain(kind, 5)
    assert len(mod["main"].body.blocks[0].bindings) == 6
    assert verify(mod) == []


def test_a_verifier_that_is_too_slow_is_an_error():
    def ways(title: str, first: float, second: float) -> Comparison:
        return Comparison(title, [Way("first", list, [first]), Way("second", list, [second])])

    verifier.check(ways("verify", 0.3, 0.09))
    with pytest.raises(
        RuntimeError, match=r"second takes 0\.367 times as long as first, more than 0\.333"
    ):
        verifier.check(ways("verify", 0.3, 0.11))
    verifier.check(ways("growth", 0.01, 0.15))
    with pytest.raises(RuntimeError, match=r"second takes 21 times as long as first, more than 20"):
        verifier.check(ways("growth", 0.01, 0.21))


def test_the_table_has_a_row_for_each_way():
    table = command.table(visits(python=0.2, native=0.01))
    assert table.row_count == 2
    assert list(table.columns[3].cells) == ["1", "0.05"]
    assert list(table.columns[4].cells) == ["1 to 1", "0.05 to 0.05"]


def test_an_unknown_benchmark_is_named(capsys):
    with pytest.raises(SystemExit):
        command.main(["no-such"])
    error = capsys.readouterr().err
    assert "unknown benchmark no-such; expected any of speed, conv2d" in error


if __name__ == "__main__":
    tvm.testing.main()
