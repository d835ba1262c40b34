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
"""Constants of the same bytes."""

from itertools import pairwise

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

import tvm_fixes
from helpers.onnx_graphs import normal, program
from helpers.relax_modules import build, tensor
from tvm_fixes.relax.transform import MergeEqualConstants


def chain(*weights: np.ndarray | relax.Expr) -> tvm.IRModule:
    """Products with constants, each of its own tensor unless given as a constant."""

    def emit(builder, x):
        for weight in weights:
            made = relax.const(weight) if isinstance(weight, np.ndarray) else weight
            x = builder.emit(relax.op.matmul(x, made))
        return x

    return build({"x": tensor(1, 32)}, emit)


def test_equal_constants_become_one():
    one, other = normal(32, 32), normal(32, 32, seed=1)
    after = MergeEqualConstants()(chain(one, other, one.copy(), one.copy()))
    first, second = relax.const(one), relax.const(other)
    tvm.ir.assert_structural_equal(after, chain(first, second, first, first))
    used = {binding.value.args[1] for binding in after["main"].body.blocks[0].bindings[:-1]}
    assert len({constant.value for constant in used}) == 2


@pytest.mark.parametrize(
    "other",
    [np.full((32, 32), np.nan, "float32"), normal(32, 32) + np.float32(1e-6), normal(16, 64)],
    ids=["bits", "nearly", "shape"],
)
def test_others_are_kept(other):
    one = normal(32, 32)
    mod = build(
        {"x": tensor(1, 32)},
        lambda builder, x: relax.Tuple(
            [builder.emit(relax.op.astype(relax.const(value), "float64")) for value in (one, other)]
        ),
    )
    assert MergeEqualConstants()(mod).same_as(mod)


def test_small_constants_are_kept():
    mod = chain(
        np.ones((32, 8), "float32"), np.ones((8, 32), "float32"), np.ones((32, 8), "float32")
    )
    assert MergeEqualConstants()(mod).same_as(mod)


@pytest.mark.parametrize("weights", ["inside", "outside"])
def test_a_layer_that_runs_several_times_is_stored_once(weights, tmp_path):
    nodes = {
        name: ("MatMul", [operand, "w"])
        for operand, name in pairwise(["x", "a", "b", "c", "d", "y"])
    }
    model = program(nodes, {"x": ("float32", (2, 128))}, {"w": normal(128, 128) / 12})
    compiled = tvm_fixes.compile(model, weights=weights)
    assert [output.equal for output in compiled.report.outputs] == [True]
    assert not any("constants" in warning for warning in compiled.report.warnings)
    compiled.save(tmp_path / "out")
    assert sum(file.stat().st_size for file in (tmp_path / "out").iterdir()) < 3 * 128 * 128 * 4


if __name__ == "__main__":
    tvm.testing.main()
