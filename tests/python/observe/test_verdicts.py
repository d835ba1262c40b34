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
"""The verdict on outputs, with further runs of the reference as evidence."""

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm.testing
from torch import nn

from helpers.onnx_graphs import program as onnx_program
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.compiler.reference import Reference
from tvm_fixes.observe.verdicts import Evidence, compare_all
from tvm_fixes.runtime.report import (
    FLOAT64,
    OURS,
    REFERENCE_OFF,
    REFERENCE_VARIES,
    ROUNDING,
    VARYING,
    Report,
)
from tvm_fixes.source import open_source
from tvm_fixes.source.onnx import OnnxSource
from tvm_fixes.source.rounding import moved

EXACT = np.random.default_rng(0).standard_normal((50, 100))


def off(error, seed=1):
    """The exact values with an error of this size."""
    noise = np.random.default_rng(seed).standard_normal(EXACT.shape)
    return (EXACT + error * noise).astype("float32")


def judged(ours, theirs, noise=1e-3, exact=None, exported=None, **tolerances):
    asked = []

    def rounded(seeds):
        asked.append(len(seeds))
        return [[off(noise, 100 + seed)] for seed in seeds]

    def run_exactly():
        asked.append("exact")
        return None if exact is None else [exact]

    def run_exported():
        return None if exported is None else [exported]

    evidence = Evidence(rounded, run_exactly, exported=run_exported)
    [found] = compare_all(["y"], [ours], [theirs], evidence, **tolerances)
    return found, asked


def test_clear_verdicts_need_no_further_runs():
    theirs = off(0)
    assert judged(theirs, theirs)[1] == []
    found, asked = judged(np.nextafter(theirs, np.float32(9)), theirs)
    assert found.equal and not asked and found.rounding_error is None
    assert judged(theirs[:9], theirs)[1] == []
    found, asked = judged(off(1e-3), theirs, rtol=1e-3, atol=0)
    assert not found.equal and not asked


def test_rounding_beyond_the_tolerances():
    found, asked = judged(off(1e-3, 2), off(1e-3))
    assert found.equal and (found.reason, found.problem) == (ROUNDING, "")
    assert asked == [5] and 2e-3 < found.rounding_error < 1e-2


def test_a_fault_within_the_tolerances():
    ours = off(1e-7)
    found, asked = judged(ours, off(1e-7, 2), 1e-7)
    assert found.equal and not asked
    ours += np.float32(8e-6)
    found, asked = judged(ours, off(1e-7, 2), 1e-7, EXACT)
    assert not found.equal and asked == [5, 10, "exact"]
    assert found.max_abs_error < found.atol
    assert found.problem.startswith("8.6e-06 is more than rounding explains; 17 times the error")


@pytest.mark.parametrize(("error", "is_equal"), [(0.02, True), (0.2, False)])
def test_rare_steps_are_found_in_many_runs(error, is_equal):
    """Few runs round one number to another integer, which changes a row of the output."""

    def run(size, is_step):
        output = off(1e-6, size)
        if is_step:
            output[size % 50] += np.float32(0.01)
        return [output]

    def rounded(seeds):
        return [run(seed, seed in (40, 44, 46, 60)) for seed in seeds]

    ours, theirs = off(1e-6, 1000), off(1e-6, 1001)
    ours[7] += np.float32(error)
    [found] = compare_all(["y"], [ours], [theirs], Evidence(rounded, lambda: None))
    assert found.equal == is_equal


def test_float64_decides():
    found, asked = judged(off(1e-6), off(1e-3, 5), 1e-6, EXACT)
    assert found.accepted and not found.equal and asked[-1] == "exact"
    assert found.problem.startswith("4") and found.to_dict()["verdict"] == REFERENCE_OFF
    assert found.float64_error < found.reference_float64_error
    report = Report("m", None, {}, 1, 1, reference="R 1", outputs=[found])
    assert report.verdict == REFERENCE_OFF and (report.equal, report.accepted) == (False, True)
    assert [output["equal"] for output in report.to_dict()["outputs"]] == [False]
    assert report.comparison.startswith("differs from R 1 by 0.00")
    assert report.comparison.endswith("; the float64 run agrees with ours")
    assert not judged(off(1e-3), off(1e-6), 1e-6, EXACT)[0].accepted


def test_a_reference_whose_optimizer_is_off_excuses_nothing():
    theirs = off(1e-6) + np.float32(0.5)
    assert not judged(off(1e-6) - np.float32(0.4), theirs, 1e-6)[0].accepted
    assert not judged(off(1e-6) - np.float32(0.6), theirs, 1e-6, EXACT)[0].accepted
    assert judged(off(1e-6), theirs, 1e-6, EXACT)[0].reason == FLOAT64


def test_a_reference_whose_runs_differ_decides_nothing():
    """Such as random numbers, for which the run in float64 or of rounding would be chance."""
    theirs, wide = off(1e-6), [off(1e-6, 4)]

    def verdict(ours, again, **tolerances):
        evidence = Evidence(lambda seeds: [wide] * len(seeds), lambda: wide, again=lambda: [again])
        return compare_all(["y"], [ours], [theirs], evidence, **tolerances)[0]

    other = theirs + np.float32(0.5)
    found = verdict(off(0) - np.float32(0.5), other)
    assert found.accepted and not found.equal and found.reason == VARYING
    where = f"at [0, 0] {theirs[0, 0]!s}, {other[0, 0]!s}"
    assert found.variation == f"2 different results in 2 runs: {where}"
    assert verdict(off(0) - np.float32(0.5), other, rtol=0.1).reason == VARYING
    report = Report("m", None, {}, 1, 1, reference="R 1", outputs=[found])
    assert report.verdict == REFERENCE_VARIES and report.accepted
    known = f"not comparable: R 1 is not deterministic: y: {found.variation}"
    assert report.comparison == known
    # The last bits of a sum may depend on the threads.
    assert not verdict(off(0) - np.float32(0.5), np.nextafter(theirs, np.float32(9))).accepted
    assert verdict(theirs, other).equal
    broken = theirs.copy()
    broken[0] = np.nan
    for ours in (broken, theirs.astype("float64"), theirs[:9]):
        assert not verdict(ours, other).accepted


def test_ours_may_be_as_far_from_float64_as_the_reference():
    """Within the tolerances, too: all runs of the reference have the same bias."""
    bias = np.float32(8e-6)
    theirs, ours = off(1e-7) + bias, off(1e-7, 2)
    runs = [[off(1e-7, seed) + bias] for seed in range(100, 116)]
    evidence = Evidence(lambda seeds: runs[: len(seeds)], lambda: [EXACT])

    def judge(values):
        [found] = compare_all(["y"], [values], [theirs], evidence)
        return found

    verdict = judge(ours - np.float32(5e-6))
    assert verdict.equal and not verdict.problem and verdict.max_abs_error < verdict.atol
    assert not judge(ours - np.float32(12e-6)).equal
    ours[7, 7] += np.float32(2e-5)
    assert not judge(ours - np.float32(5e-6)).equal


def test_a_wrong_float64_run_is_ignored():
    exact = EXACT + 0.1 * np.random.default_rng(9).standard_normal(EXACT.shape)
    seeds = []

    def rounded(more):
        seeds.extend(more)
        return [[off(1e-5 if seed > 40 else 1e-6, seed)] for seed in more]

    [found] = compare_all(["y"], [off(1e-5)], [off(1e-6, 2)], Evidence(rounded, lambda: [exact]))
    assert found.equal and max(seeds) > 40 and found.float64_error is None


def test_a_run_in_float64_that_is_at_fault_excuses_nothing():
    """It differs from both in the same way."""
    theirs, ours = off(1e-6), off(1e-6, 2)
    ours[7] += np.float32(1e-3)
    exact = EXACT + 0.1 * np.random.default_rng(9).standard_normal(EXACT.shape)
    assert not judged(ours, theirs, 1e-6, exact)[0].equal


@pytest.mark.parametrize("is_export_off", [False, True])
def test_a_run_in_float64_of_a_program_that_its_export_changed_excuses_nothing(is_export_off):
    theirs, wrong = off(1e-5), (1.01 * off(1e-5, 2)).astype("float32")
    exported = wrong if is_export_off else off(1e-5, 3)
    found, _ = judged(wrong, theirs, 1e-5, 1.01 * EXACT, exported)
    assert found.accepted is not is_export_off
    assert found.problem.endswith("torch.export changes the result") is is_export_off


def in_half(error=0.0, seed=1, **changes):
    """Values near 1,000 in float16, with a relative error of this size and some others."""
    noise = np.random.default_rng(seed).standard_normal(EXACT.shape)
    found = (1000 * EXACT * (1 + error * noise)).astype("float16").ravel()
    for place, value in changes.items():
        found[int(place[1:])] = value
    return found.reshape(EXACT.shape)


def judged_in_half(ours, theirs, steps=None, exact=None):
    """The verdict with runs of the reference that are infinite where `theirs` is."""
    is_infinite = ~np.isfinite(theirs)

    def like(run):
        run[is_infinite] = theirs[is_infinite]
        return run

    evidence = Evidence(
        lambda seeds: [[like(in_half(1e-4, 100 + seed))] for seed in seeds],
        lambda: None if exact is None else [exact],
        lambda: [] if steps is None else [[steps], [in_half(1e-3, 7, **places_of(steps))]],
    )
    [found] = compare_all(["y"], [ours], [theirs], evidence)
    return found


def places_of(array):
    """The infinities of an array, as for :func:`in_half`."""
    return {f"_{place}": np.inf for place in np.flatnonzero(np.isinf(array))}


def test_an_infinite_reference_excuses_only_what_agrees_with_float64():
    exact = 1000 * EXACT
    theirs = in_half(1e-4, _5=np.inf, _9=-np.inf)
    found = judged_in_half(in_half(1e-4, 2), theirs, exact=exact)
    assert (found.verdict, found.reason) == (REFERENCE_OFF, FLOAT64)
    for wrong in (2 * exact.flat[5], 1.1 * exact.flat[5], np.nan, -np.inf):
        found = judged_in_half(in_half(1e-4, 2, _5=wrong), theirs, exact=exact)
        assert not found.accepted and "not finite" in found.problem
    # Nothing tells which of the two is right.
    assert not judged_in_half(in_half(1e-4, 2), theirs).accepted
    # Float64 overflows, too.
    exact = exact.copy()
    exact.flat[5] = np.inf
    assert not judged_in_half(in_half(1e-4, 2), theirs, exact=exact).accepted


def test_elements_that_are_not_finite_are_counted_once():
    ours = off(1e-3)
    ours[2, 3] = np.nan
    found, _ = judged(ours, off(1e-3, 2))
    assert found.problem == "1 of 5000 elements are not finite and differ from the reference"


def test_an_infinity_of_ours_is_excused_only_by_runs_that_round_after_each_node():
    exact, theirs = 1000 * EXACT, in_half(1e-4)
    steps = in_half(1e-3, 3, _5=np.inf)
    ours = steps.copy()
    found = judged_in_half(ours, theirs, steps, exact)
    assert found.accepted and found.rounds == OURS
    for wrong in (in_half(1e-3, 3, _6=np.inf), in_half(1e-3, 3, _5=np.inf, _6=np.nan)):
        assert not judged_in_half(wrong, theirs, steps, exact).accepted
    assert not judged_in_half(ours, theirs, None, exact).accepted
    # Ours does not overflow as the steps do, but as little as the reference.
    assert judged_in_half(in_half(1e-4, 4), theirs, steps, exact).accepted


def in_bfloat16(seed, scale=1.0):
    noise = np.random.default_rng(seed).uniform(-1, 1, EXACT.shape)
    return (scale * EXACT * (1 + 2.0**-9 * noise)).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("error, is_accepted", [(0, True), (2.0**-7, True), (2.0**-3, False)])
def test_bfloat16_has_no_false_alarm_and_misses_no_large_fault(error, is_accepted):
    evidence = Evidence(
        lambda seeds: [[in_bfloat16(100 + seed)] for seed in seeds], lambda: [EXACT]
    )
    ours = in_bfloat16(1, 1 + error)
    [found] = compare_all(["y"], [ours], [in_bfloat16(2)], evidence)
    assert found.accepted is is_accepted


class Exported(nn.Module):
    """A module of which torch.export makes another program."""

    def forward(self, x):
        return torch.tanh(x @ x.T) * (1.01 if torch.compiler.is_exporting() else 1.0)


def test_what_torch_export_changes_is_no_fault_of_the_reference():
    torch.manual_seed(0)
    report = compile_model((Exported().eval(), (torch.randn(8, 8),))).report
    assert not report.accepted and "torch.export changes" in report.outputs[0].problem


def test_few_runs_do_not_excuse_a_difference():
    ours, theirs = off(1e-3), off(1e-3, 2)
    for runs in ([], [[theirs[:2]]] * 5):
        [found] = compare_all(["y"], [ours], [theirs], Evidence(lambda _, r=runs: r, lambda: None))
        assert not found.equal and found.rounding_error is None


class Amplifying(nn.Module):
    """Two convolutions with a normalization of nearly equal numbers between them."""

    def __init__(self, fault=0.0):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)
        self.fault = fault

    def forward(self, x):
        y = self.first(x) + 300
        y = torch.nn.functional.instance_norm(y)
        y = self.second(y)
        return y + self.fault * (torch.arange(y.shape[1]) == 3).reshape(-1, 1, 1)


def amplifying(kind, tmp_path, fault=0.0):
    torch.manual_seed(0)
    module, inputs = Amplifying(fault).eval(), (torch.randn(1, 3, 12, 12),)
    if kind == "pytorch":
        return module, inputs
    path = tmp_path / f"model{fault}.onnx"
    torch.onnx.export(module, inputs, path, dynamo=False, opset_version=17)
    return path


@pytest.mark.parametrize("kind", ["onnx", "pytorch"])
def test_a_model_that_amplifies_rounding(kind, tmp_path, monkeypatch):
    model = amplifying(kind, tmp_path)
    [output] = compile_model(model, output=tmp_path / "out").report.outputs
    assert output.equal
    # A fault of ten times the size of these errors.
    faulty = open_source(amplifying(kind, tmp_path, 3e-3))
    right = open_source(model)
    inputs = right.example_inputs(np.random.default_rng(0))
    with Reference(right, inputs) as reference:
        theirs, evidence = reference.outputs(), reference.evidence()
        runs = evidence.rounded([0, 1, 2, 4, 6])
        assert len(runs) == 5 and any(np.any(run[0] != theirs[0]) for run in runs[1:])
        [found] = compare_all(["y"], faulty.reference()[1](inputs), theirs, evidence)
    assert not found.equal


def test_weights_move_by_rounding_errors_but_scales_do_not():
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((4, 4)).astype("float32")
    model = onnx_program(
        {
            "q": ("QuantizeLinear", ["x", "scale", "zero"]),
            "d": ("DequantizeLinear", ["q", "scale", "zero"]),
            "y": ("MatMul", ["d", "w"]),
        },
        {"x": ("float32", (2, 4))},
        {"scale": np.float32(0.1), "zero": np.int8(0), "w": weight},
    )
    source = OnnxSource(model, "m")
    [x] = source.example_inputs(rng)
    x = np.round(x, 1)
    outputs = [source.rounded_reference(seed)([x])[0] for seed in (0, 2, 4, 2)]
    steps = np.rint(np.float64(x) / np.float32(0.1)).clip(-128, 127) * np.float64(np.float32(0.1))
    np.testing.assert_allclose(outputs, [steps @ weight] * 4, rtol=1e-5)
    assert np.any(outputs[0] != outputs[1]) and np.any(outputs[1] != outputs[2])
    np.testing.assert_array_equal(outputs[1], outputs[3])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_moved_arrays(dtype):
    rng = np.random.default_rng(0)
    values = rng.standard_normal(1000).astype(dtype)
    found = moved(values, rng)
    step = np.abs(np.spacing(values))
    assert np.all(np.abs(found - values) <= step) and 0.5 < np.mean(found != values) < 0.8
    assert np.abs(moved(values, rng, 4) - values).max() > 2 * step.min()
    exact = np.array([0, -0.0, 0.5, 1, 253, -1000, np.inf, -np.inf, np.nan], dtype)
    np.testing.assert_array_equal(moved(exact, rng), exact)
    integers = np.arange(5)
    assert moved(integers, rng) is integers and moved(values, rng, 0) is values


if __name__ == "__main__":
    tvm.testing.main()
