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
"""The fuzzer: its oracles and reducers, and a short part of each campaign with fixed seeds."""

import math
from collections.abc import Callable
from functools import partial

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
import tvm.testing

from helpers import grids
from helpers.preparation import prepare_forks
from tests.fuzz import (
    campaign,
    onnx_models,
    onnx_oracle,
    onnx_requantized,
    reduce_onnx,
    tolerance,
)
from tests.fuzz.__main__ import main
from tests.fuzz.campaign import CAMPAIGNS, FAULTS, Result, Verdict, judge
from tests.fuzz.journal import Journal
from tvm_fixes.support.isolate import Outcome, OutcomeKind, run_all_forked


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    prepare_forks()


# The number of cases of each campaign, chosen for similar run times.
CASES = {
    "onnx": 32,
    "onnx-old": 16,
    "torch": 6,
    "torch-compile": 12,
    "signatures": 9,
    "casts": 15,
    "slices": 15,
    "passes": 8,
    "verifier": 16,
    "relay": 65,
    "recurrent": 6,
    "dims": 18,
    "unsorted": 6,
    "import-options": 18,
    "import-passes": 12,
    "cache-keys": 40,
    "cache-kill": 20,
    "cache-concurrent": 12,
    "cache-corrupt": 40,
}


@pytest.mark.parametrize("name", CASES)
def test_no_fault_is_found(name: str) -> None:
    [chosen] = [each for each in CAMPAIGNS if each.name == name]
    number = CASES[name]
    seeds = grids.sample(range(number), min(number // 4, max(number // 10, 3)))
    chosen.prepare()
    outcomes = run_all_forked([chosen.case(seed) for seed in seeds], timeout=120, jobs=2)
    results = [judge(seed, outcome) for seed, outcome in zip(seeds, outcomes, strict=True)]
    faults = [f"{r.seed}: {r.verdict}: {r.message[:300]}" for r in results if r.verdict in FAULTS]
    assert not faults, "\n".join(faults)
    # One of the two seeds of the quick tier may make a case that the oracle rejects.
    passed = sum(r.verdict is Verdict.PASSED for r in results)
    assert passed > (len(results) - grids.is_quick()) / 2


@grids.few(1)
@pytest.mark.parametrize("seed", (3, 8, 21))
def test_a_seed_makes_one_graph(seed: int) -> None:
    first, second = (onnx_models.make_graph(seed).model() for _ in range(2))
    assert first.SerializeToString() == second.SerializeToString()
    assert first.graph.node


# Oracles


def truths(*runs: list[float]):
    return lambda: [[np.array(run)] for run in runs]


def difference(ours, theirs, *runs, dtype="float32") -> str:
    pair = [np.array(ours, dtype)], [np.array(theirs, dtype)]
    return tolerance.difference(*pair, truths(*runs), dtype)


def test_an_equal_float64_error_is_no_difference() -> None:
    assert difference([1.0], [1.0]) == ""
    assert difference([np.nan, np.inf], [np.nan, np.inf]) == ""
    exact = [1.0, 2.0]
    assert difference([1.01, 2.0], [1.02, 2.0], exact, exact) == ""
    # Rounding the inputs changes the result as much.
    assert difference([1.01, 2.0], [1.0, 2.0], exact, [1.001, 2.0]) == ""


@pytest.mark.parametrize(
    "ours, theirs",
    (([1.01, 2.0], [1.0, 2.0]), ([np.nan, 2.0], [1.0, 2.0]), ([np.inf, 2.0], [1.0, 2.0])),
)
def test_a_larger_float64_error_is_a_difference(ours: list[float], theirs: list[float]) -> None:
    message = "output 0 float32(2,): 1 of 2 elements differ; at (0,) expected 1.0, got "
    assert difference(ours, theirs, [1.0, 2.0], [1.0, 2.0]).startswith(message)


def test_integers_shapes_and_dtypes_have_to_be_the_same() -> None:
    assert "1 of 2 elements differ" in difference([1, 2], [1, 3], dtype="int64")
    expected = "output 0: expected float32(2,), got float32(1,)"
    assert difference([1.0], [1.0, 2.0]) == expected
    other = tolerance.difference([np.zeros(1)], [np.zeros(1, "float32")], truths(), "float32")
    assert other == "output 0: expected float32(1,), got float64(1,)"


def test_a_model_that_onnx_runtime_rejects_is_evaluated_by_nodes() -> None:
    """ONNX Runtime takes no bfloat16 from Python; each node is computed in float32."""
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> '
        "g (bfloat16[3] x) => (bfloat16[3] z) { y = Sin (x) z = Add (y, x) }"
    )
    x = np.array([0.1, 1.0, -2.0], ml_dtypes.bfloat16)
    [z] = onnx_oracle.outputs(model, {"x": x})
    expected = np.sin(x.astype("float32")).astype(ml_dtypes.bfloat16) + x
    np.testing.assert_array_equal(z, expected)


def test_a_run_in_float64_is_one() -> None:
    """A norm's default is to compute in float32; ONNX Runtime has no Erf of float64."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> '
        "g (float[2,4,3] x, float[4] w) => (float[2,4,1] z) { v = GlobalMaxPool (x) y = Erf (v) "
        "z = GroupNormalization <num_groups: int = 2> (y, w, w) }"
    )
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 4, 3)).astype("float32"), np.ones(4, "float32")
    (exact,), *_ = onnx_oracle.in_float64(model, {"x": x, "w": w}, "float32", rng)
    groups = np.vectorize(math.erf)(x.max(-1).astype("float64")).reshape(2, 2, 2)
    centered = groups - groups.mean(-1, keepdims=True)
    scale = np.sqrt(np.square(centered).mean(-1, keepdims=True) + np.float32(1e-5))
    np.testing.assert_allclose(exact, (centered / scale).reshape(2, 4, 1) + 1, atol=1e-12)


def test_a_node_that_no_oracle_runs_in_float64_does_not_narrow_the_others() -> None:
    """ONNX Runtime has no cubic Resize of float64, and onnx's evaluator rejects this one."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> '
        "g (float[1,1,1,1] x) => (float[1,1,h,w] y, float[1,1,1,1] z) { "
        'y = Resize <coordinate_transformation_mode = "align_corners", mode = "cubic"> (x, , s) '
        "z = Exp (x) }"
    )
    scales = np.array([1, 1, 0.5, 4], "float32")
    model.graph.initializer.append(onnx.numpy_helper.from_array(scales, "s"))
    x = np.full((1, 1, 1, 1), 1.5, "float32")
    rng = np.random.default_rng(0)
    (_, exact), *_ = onnx_oracle.in_float64(model, {"x": x}, "float32", rng)
    np.testing.assert_allclose(exact, np.exp(1.5), rtol=1e-15)


@pytest.mark.parametrize(
    "node, expected",
    (
        ("HardSwish (x)", torch.nn.functional.hardswish),
        ("Gelu (x)", torch.nn.functional.gelu),
        (
            'Gelu <approximate: string = "tanh"> (x)',
            partial(torch.nn.functional.gelu, approximate="tanh"),
        ),
        ("Erf (x)", torch.erf),
    ),
)
def test_functions_of_float64_have_constants_of_float64(
    node: str, expected: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> '
        f"g (double[41] x) => (double[41] y) {{ y = {node} }}"
    )
    x = np.linspace(-4, 4, 41)
    [y] = onnx_oracle.outputs(model, {"x": x})
    np.testing.assert_allclose(y, expected(torch.from_numpy(x)), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("width, expected", ((2, [3, 2, 1, 2, 3]), (3, None)))
def test_a_pad_of_int16_reflects_no_farther_than_there_is_data(
    width: int, expected: list[int] | None
) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 19]> g (int16[3] x) => (int16[n] y) '
        f'<int64[2] pads = {{{width}, 0}}> {{ y = Pad <mode = "reflect"> (x, pads) }}'
    )
    found = onnx_oracle.outputs(model, {"x": np.array([1, 2, 3], "int16")})
    assert (found if found is None else found[0].tolist()) == expected


# Running


def outcome(kind: OutcomeKind, **fields: object) -> Outcome:
    return Outcome(kind, **fields)


@pytest.mark.parametrize(
    "ended, verdict",
    (
        (outcome(OutcomeKind.VALUE), Verdict.PASSED),
        (outcome(OutcomeKind.VALUE, value="no lowering"), Verdict.REFUSED),
        (outcome(OutcomeKind.EXCEPTION, name="AssertionError", message="x"), Verdict.WRONG),
        (outcome(OutcomeKind.EXCEPTION, name="KeyError", message="x"), Verdict.ERROR),
        (outcome(OutcomeKind.SIGNAL, name="SIGSEGV", message="crashed"), Verdict.CRASHED),
        (outcome(OutcomeKind.EXIT, message="left"), Verdict.CRASHED),
        (outcome(OutcomeKind.TIMEOUT, message="timed out"), Verdict.HUNG),
    ),
)
def test_how_a_case_ends(ended: Outcome, verdict: Verdict) -> None:
    assert judge(7, ended).verdict is verdict


def test_a_run_resumes(tmp_path) -> None:
    path = tmp_path / "onnx.jsonl"
    journal = Journal(path)
    assert journal.next_seed(40) == 40
    journal.add(Result(40, Verdict.PASSED, "", 1.0))
    journal.add(Result(41, Verdict.WRONG, "output 0 differs", 1.0))
    with path.open("a") as file:
        file.write('{"seed": 42, "ver')  # killed while it wrote
    again = Journal(path)
    assert [result.verdict for result in again.results] == [Verdict.PASSED, Verdict.WRONG]
    assert again.next_seed(0) == 42


def test_the_causes_of_faults_are_shown_together(tmp_path, capsys) -> None:
    journal = Journal(tmp_path / "onnx.jsonl")
    for seed in range(3):
        journal.add(Result(seed, Verdict.WRONG, f"output 0: {seed} of 9 elements differ", 1.0))
    journal.add(Result(3, Verdict.CRASHED, "SIGSEGV: crashed", 1.0))
    assert main(["onnx", "--show", "--folder", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "onnx: wrong, 3 cases" in shown
    assert "onnx: crashed, 1 cases" in shown
    assert "seeds 0 1 2; repeat: make fuzz ARGS='onnx --seed 0'" in shown


def test_an_unknown_campaign_is_rejected(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["onyx"])
    assert ended.value.code == 2
    assert "unknown campaign onyx; expected onnx, " in capsys.readouterr().err


def test_a_case_that_takes_too_much_memory_is_a_fault() -> None:
    small = campaign.Campaign("memory", "values", "", gigabytes=2)
    object.__setattr__(small, "function", lambda name: lambda seed: np.ones(1 << 29).sum())
    [ended] = run_all_forked([small.case(0)], timeout=60, jobs=1)
    assert judge(0, ended).verdict is Verdict.ERROR


def test_a_fault_is_reduced_to_its_node() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[3] x, float[3] unused) => '
        "(float[3] w, float[3] u) { y = Neg (x) z = Exp (y) w = Abs (z) u = Sin (unused) }"
    )
    inputs = {"x": np.ones(3, "float32"), "unused": np.ones(3, "float32")}

    def has_exp(candidate: onnx.ModelProto, arrays: dict[str, np.ndarray]) -> bool:
        assert [value.name for value in candidate.graph.input] == list(arrays)
        return any(node.op_type == "Exp" for node in candidate.graph.node)

    small, arrays = reduce_onnx.reduce(model, inputs, has_exp)
    assert [node.op_type for node in small.graph.node] == ["Exp"]
    np.testing.assert_array_equal(arrays["y"], -np.ones(3))
    text = reduce_onnx.as_test(small, arrays, "wrong")
    assert "Exp (y)" in text and "'y': np.array([-1.0, -1.0, -1.0], 'float32')" in text


if __name__ == "__main__":
    tvm.testing.main()


def test_quantized_graphs_have_layers_of_every_kind() -> None:
    graphs = [onnx_models.make_graph(seed) for seed in range(4, 304, 5)]
    operators = {node.op_type for graph in graphs for node in graph.nodes}
    assert operators >= {
        *("Conv", "ConvTranspose", "MatMul", "Gemm", "Add", "Relu", "Clip", "Concat", "MaxPool"),
        *("ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul", "DynamicQuantizeLinear"),
    }
    dtypes = {value.dtype for graph in graphs for value in graph.values}
    assert dtypes >= {"int8", "uint8", "int16", "uint16"}


@pytest.mark.parametrize(
    "changed, at, problem",
    (
        (None, 0, ""),
        # 0.25 / 0.1 is just below 2.5 in float64; a product with 1 / 0.1 in float32 is 2.5.
        ("q", 0, ""),
        ("q", 1, "q = QuantizeLinear first: 1 of 3 elements are wrong; at (1,) expected 2.39"),
        ("q", 2, "q = QuantizeLinear first: 1 of 3 elements are wrong; at (2,) expected 255.0"),
        ("r", 1, "r = QuantizeLinear second: 1 of 3 elements are wrong; at (1,) expected 1.2"),
    ),
)
def test_only_a_tie_excuses_a_step(changed: str | None, at: int, problem: str) -> None:
    """Each step is judged from the results before it, as they are."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> '
        "g (float[3] x, float s, float t, uint8 z) => (uint8[3] r) { "
        "[first] q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z) "
        "[second] r = QuantizeLinear (y, t, z) }"
    )
    inputs = {
        "x": np.array([0.25, 0.24, 99], "float32"),
        "s": np.array(0.1, "float32"),
        "t": np.array(0.16, "float32"),
        "z": np.array(0, "uint8"),
    }

    def build(built: onnx.ModelProto):
        def run(arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
            outputs = onnx_oracle.outputs(built, arrays)
            names = [output.name for output in built.graph.output]
            found = dict(zip(names, outputs, strict=True))
            if changed is not None:
                found[changed] = found[changed].copy()
                before = int(found[changed][at])
                found[changed][at] = before + 1 if before < 255 else 254
            if changed == "q":
                real = found["q"] * inputs["s"]
                found["r"] = np.clip(np.rint(real / inputs["t"]), 0, 255).astype("uint8")
            return list(found.values())

        return run

    assert onnx_requantized.rounds(model)
    got = build(onnx_requantized.with_steps(model))(inputs)[:1]
    found = onnx_requantized.problem_of(model, inputs, got, build)
    assert found.startswith(problem) if problem else not found
