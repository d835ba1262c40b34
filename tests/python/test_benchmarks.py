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
"""The checks in the benchmarks, without timing."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from benchmarks import __main__ as command
from benchmarks import relay_reading, verifier, visitor
from benchmarks.measure import Comparison, Implementation, compare
from helpers.relax_modules import build, tensor
from tvm_fixes.verifier import verify


def test_each_implementation_runs_once_to_warm_up_and_then_in_turn():
    calls = []
    tasks = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    comparison = compare("title", tasks, runs=2)
    assert calls == ["a", "b", "a", "b", "b", "a"]
    runs = [(impl.name, len(impl.seconds)) for impl in comparison.implementations]
    assert runs == [("a", 2), ("b", 2)]


def test_a_ratio_compares_times_of_the_same_turn():
    first = Implementation("first", list, [1.0, 4.0, 2.0])
    second = Implementation("second", list, [2.0, 4.0, 6.0])
    comparison = Comparison("title", [first, second])
    assert comparison.ratios(second) == [2.0, 1.0, 3.0]
    assert comparison.ratio(second) == 2.0
    assert comparison.spread(second) == (1.5, 2.5)


def test_both_visitors_count_the_same():
    [comparison] = visitor.comparisons(length=50)
    assert comparison.title == "visit 50 bindings"
    python, native = comparison.implementations
    assert {str(k): int(v) for k, v in native.run().items()} == python.run()
    assert python.run() == {"relax.nn.relu": 50}


def test_visitors_that_disagree_are_an_error(monkeypatch):
    monkeypatch.setattr(visitor._ffi, "get", lambda name: lambda function: {"relax.nn.relu": 49})
    with pytest.raises(RuntimeError, match="the visitors disagree"):
        visitor.comparisons(length=50)


def comparison_of(title: str, **seconds: float) -> Comparison:
    return Comparison(title, [Implementation(name, list, [s]) for name, s in seconds.items()])


def test_a_native_visitor_that_is_too_slow_is_an_error():
    visitor.check(comparison_of("visit", python=0.2, native=0.009))
    with pytest.raises(
        RuntimeError, match=r"native takes 0\.055 of the time of python, more than 0\.05"
    ):
        visitor.check(comparison_of("visit", python=0.2, native=0.011))


def test_each_reader_reads_all_of_a_program():
    [comparison] = relay_reading.comparisons(size=20_000)
    assert comparison.title == "read 0.02 MB"
    saved, *programs = (impl.run() for impl in comparison.implementations)
    text, _ = relay_reading.documents(size=20_000)
    assert [mod.astext().count("nn.conv2d(") for mod in programs] == [
        text.count("nn.conv2d("),
        sum(node["type_key"] == "relay.attrs.Conv2DAttrs" for node in saved["nodes"]),
    ]
    assert text.count("nn.conv2d(") > 100


def test_a_parser_that_is_slower_than_json_is_an_error():
    times = {"json": 2.0, "parse": 2.0, "load": 9.0}
    relay_reading.check(comparison_of("read", **times))
    with pytest.raises(RuntimeError, match=r"parse takes 1\.05 of the time of json\.loads"):
        relay_reading.check(comparison_of("read", **(times | {"parse": 2.1})))


def test_runtime_checks_that_cost_too_much_are_an_error():
    pytest.importorskip("torch")
    from benchmarks import runtime_checks

    runtime_checks.check(comparison_of("run", without=0.2, checked=0.201))
    with pytest.raises(RuntimeError, match=r"run: checks take 2\.0%, more than 1%"):
        runtime_checks.check(comparison_of("run", without=0.2, checked=0.204))


def test_a_write_that_copies_the_cache_is_an_error():
    pytest.importorskip("transformers")
    from benchmarks import decoding_cost

    copied = {"compiled, cache copied": 0.1}
    title = "100 writes of a row to a cache of 64"
    decoding_cost.check(comparison_of(title, compiled=0.02, **copied))
    decoding_cost.check(comparison_of("a step", compiled=0.09, **copied))
    with pytest.raises(RuntimeError, match=r"cache of 64: in place, they take 0\.9 of the time"):
        decoding_cost.check(comparison_of(title, compiled=0.09, **copied))


def test_decoding_steps_of_both_caches_are_equal():
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from benchmarks import decoding_cost
    from examples import generate

    llama = generate.make("llama", num_hidden_layers=1)
    step, growing = decoding_cost.Step(llama), decoding_cost.Growing(llama)
    cache = generate.empty_cache(llama, 1, 8)
    past = [one[:, :, :0] for one in cache]
    with torch.no_grad():
        for position, token in enumerate([[[5]], [[17]], [[2]]]):
            ids = torch.tensor(token)
            logits = step(ids, torch.tensor(position), cache, ())
            expected, *past = growing(ids, past)
            torch.testing.assert_close(logits, expected)


def test_decoding_with_a_static_cache_is_greedy_search():
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from benchmarks import torch_generate
    from examples import generate

    llama = generate.make("llama", num_hidden_layers=1)
    with torch.no_grad():
        decoding = torch_generate.Decoding(llama.forward, llama, 40)
        for _ in range(3):
            decoding.step()
    prompt = torch.arange(32)[None]
    expected = generate.expected(llama, prompt, torch.empty(0), 4)
    assert torch.cat([prompt, *decoding.tokens], 1).tolist() == expected.tolist()


def test_the_cost_of_decoding_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("transformers")
    from benchmarks import decoding_cost

    found = [comparison_of("a step", compiled=time) for time in (0.1, 0.2)]
    decoding_cost.draw([("tokens", [1, 2], found)], tmp_path / "new" / "plot.png")
    assert (tmp_path / "new" / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_indices_are_bounded_in_one_function_of_three(monkeypatch):
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

    def compare_once(_title, implementations, runs):
        seen.extend(run().numpy() for run in implementations.values())
        inputs[1].copyfrom(np.array([[0, 1], [2, 10]]))
        (*_, checked) = implementations.values()
        with pytest.raises(Exception, match="index"):
            checked()
        return list(implementations)

    monkeypatch.setattr(index_checks, "model", lambda: (mod, inputs))
    monkeypatch.setattr(index_checks, "compare", compare_once)
    (names,) = index_checks.comparisons()
    assert names == ["without bounds", "without bounds, again", "with bounds, and 1 checks"]
    for one in seen:
        np.testing.assert_array_equal(one, table[ids])


@pytest.mark.parametrize("kind", verifier.KINDS)
def test_the_verifier_accepts_its_chains(kind):
    mod = verifier.chain(kind, 5)
    assert len(mod["main"].body.blocks[0].bindings) == 6
    assert verify(mod) == []


def test_a_verifier_that_is_too_slow_is_an_error():
    verifier.check(comparison_of("verify", first=0.3, second=0.09))
    with pytest.raises(
        RuntimeError, match=r"second takes 0\.367 times as long as first, more than 0\.333"
    ):
        verifier.check(comparison_of("verify", first=0.3, second=0.11))
    verifier.check(comparison_of("growth", first=0.01, second=0.15))
    with pytest.raises(RuntimeError, match=r"second takes 21 times as long as first, more than 20"):
        verifier.check(comparison_of("growth", first=0.01, second=0.21))


def test_the_table_has_a_row_for_each_implementation():
    table = command.table(comparison_of("visit", python=0.2, native=0.01))
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
