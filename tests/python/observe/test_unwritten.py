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
"""Reads of memory that nothing wrote: between kernels, and within them."""

import json

import numpy as np
import onnx
import tvm.testing
from tvm import tirx
from tvm.s_tir import SBlock
from tvm_ffi import structural_map

from helpers.grids import from_tier
from helpers.planted_faults import as_pass, graph, in_kernels, model, plant
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.debug import bisect, compare
from tvm_fixes.observe import unwritten
from tvm_fixes.observe.unwritten import unwritten_memory
from tvm_fixes.runtime.report import Report
from tvm_fixes.tirx.transform.fill_allocations import FillAllocations
from tvm_fixes.tirx.util import with_parts
from tvm_fixes_cli import main

ROWS = 128


def _without_last_row(kernel):
    """The kernel, which leaves a part of its result as it is."""

    def shortened(loop):
        extent = loop.extent
        if not isinstance(extent, tirx.IntImm) or int(extent) != ROWS:
            return loop
        parts = (loop.loop_var, loop.min, tirx.IntImm(str(extent.ty), ROWS - 1), loop.kind)
        return tirx.For(*parts, loop.body)

    return structural_map(kernel, (tirx.For, shortened))


def _without_initial_value(kernel):
    """The kernel, whose sums begin with what their memory holds."""

    def emptied(block):
        is_initial = str(block.name_hint) == "matmul_init"
        return with_parts(block, body=tirx.Evaluate(0)) if is_initial else block

    return structural_map(kernel, (SBlock, emptied))


short_kernel = as_pass("Short", in_kernels("exp", _without_last_row))
no_initial_value = as_pass("NoInit", in_kernels("matmul", _without_initial_value))


def square():
    """A model of large tensors, whose kernels are not merged."""
    shape = f"float[{ROWS}, {ROWS}]"
    return graph(f"{shape} x", f"{shape} r", "m = MatMul (x, x) e = Exp (m) r = Relu (e)")


def inputs_of(compiled):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(spec.shape).astype(spec.dtype) for spec in compiled.inputs]


def test_a_kernel_that_leaves_a_part_of_its_result(monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    onnx.save(square(), "square.onnx")
    right = compile_model("square.onnx", compare=False)
    assert unwritten_memory(right, inputs_of(right)) == {}
    plant(monkeypatch, kernels=short_kernel)
    assert main(["compile", "square.onnx", "-q", "--json", "-o", "out"]) == 1
    report = Report.from_dict(json.loads(capfd.readouterr().out))
    assert report.accepted is False and report.verdict == "different"
    [(name, sentence)] = report.unwritten.items()
    assert name == "r" and "fused_matmul_tir_exp_relu (MatMul m, Exp e, Relu r)" in sentence
    assert "at [0, 127]" in sentence and "nan" in sentence
    assert report.comparison == f"r {sentence}" and not (tmp_path / "out").exists()
    [culprit] = bisect("square.onnx", over=["passes"]).culprits
    assert culprit.names == ["Short"]


def test_a_race_is_not_blamed_on_memory(monkeypatch):
    """One run of many differs, first while the memory is examined."""
    right = compile_model(square(), compare=False)
    given, run, runs = inputs_of(right), unwritten._run, []

    def rare(*args, **kwargs):
        results = run(*args, **kwargs)
        runs.append(1)
        return [array + (len(runs) == 2) for array in results]

    monkeypatch.setattr(unwritten, "_run", rare)
    assert unwritten_memory(right, given) == {}
    assert len(runs) > 3


@from_tier("ci")
def test_memory_within_a_kernel(monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    onnx.save(model(), "model.onnx")
    assert compare("model.onnx", fill_memory=True).accepted
    plant(monkeypatch, schedules=no_initial_value)
    assert main(["compare", "model.onnx", "-q", "--fill-memory", "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    first, sentence = next(iter(found["unwritten"].items()))
    assert first == "m" and "MatMul m" in sentence
    # Without the option, only the kernels of the first difference are examined.
    found = compare("model.onnx")
    assert found.first.name == "m" and list(found.unwritten) == ["m"]


def test_symbolic_extents_and_other_dtypes():
    """Buffers of every dtype are filled: sums of symbolic extents, integers, booleans, bfloat16."""
    rows = graph(
        "float[N, 8] x, float16[N, 8] h, int8[N, 8] i, bool[N, 8] b",
        "float[N, 8] y, float16[N, 8] z, int64[N, 2] k",
        """s = Softmax (x) c = Cast<to = 1> (i) w = Where (b, s, c) y = Exp (w)
           g = Softmax (h) q = Cast<to = 16> (g) t = Add (q, q) z = Cast<to = 10> (t)
           v, k = TopK (y, two)""",
        two=np.array([2]),
    )
    rng = np.random.default_rng(0)
    filled = compile_model(
        rows, compare=False, passes=[(FillAllocations(), "after=KeepTilesOnStack")]
    )
    inputs = [
        rng.integers(0, 2, (5, 8)).astype(spec.dtype)
        if spec.dtype in ("int8", "bool")
        else rng.standard_normal((5, 8)).astype(spec.dtype)
        for spec in filled.inputs
    ]
    assert unwritten_memory(filled, inputs) == {}
    plain = compile_model(rows, compare=False)
    for ours, theirs in zip(filled.run(*inputs), plain.run(*inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_random_numbers_are_no_such_reads():
    noise = graph("float[4] x", "float[4] y", "r = RandomNormalLike (x) y = Add (x, r)")
    compiled = compile_model(noise, compare=False)
    assert unwritten_memory(compiled, inputs_of(compiled)) == {}


if __name__ == "__main__":
    tvm.testing.main()
