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

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.relax_modules import build, integers, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.transform import FoldLayoutTransform
from tvm_fixes.support import switches


def module(data: np.ndarray, index_map, pad_value=None, readers: int = 1) -> tvm.IRModule:
    """Transforms of a constant, with a tensor added to each."""

    constant = relax.const(data)

    def emit(builder, x):
        for _ in range(readers):
            moved = builder.emit(relax.op.layout_transform(constant, index_map, pad_value))
            x = builder.emit(relax.op.add(moved, x))
        return x

    return build({"x": tensor(*extents(data.shape, index_map))}, emit)


def extents(shape, index_map) -> list[int]:
    mapped = tirx.IndexMap.from_func(index_map, index_dtype="int64")
    return [int(extent) for extent in mapped.map_shape(list(shape))]


def moved(data: np.ndarray, index_map, pad_value: float | None) -> np.ndarray:
    mapped = tirx.IndexMap.from_func(index_map, index_dtype="int64")
    new = np.full(extents(data.shape, index_map), pad_value or 0, data.dtype)
    for at in np.ndindex(*data.shape):
        new[tuple(int(i) for i in mapped.map_indices(list(at)))] = data[at]
    return new


@pytest.mark.parametrize(
    ("shape", "index_map"),
    [
        ((4, 6, 3), lambda o, i, h: (o // 2, i // 3, h, i % 3, o % 2)),
        ((4, 6, 3), lambda o, i, h: (h, o, i)),
        ((4, 6, 3), lambda o, i, h: (o, i // 6, h, i % 6)),
        ((8,), lambda i: (i % 4, i // 4)),
    ],
)
def test_axes_and_blocks(shape, index_map):
    data = integers(*shape)
    mod = module(data, index_map)
    folded = FoldLayoutTransform()(mod)
    assert "layout_transform" not in str(folded)
    x = integers(*extents(shape, index_map), seed=1)
    np.testing.assert_array_equal(run(folded, x), moved(data, index_map, None) + x)


@pytest.mark.parametrize(
    ("shape", "index_map", "pad_value"),
    [
        ((5, 3), lambda i, j: (i // 2, j, i % 2), 7.0),
        ((5, 3), lambda i, j: (i // 2, j, i % 2), None),
        ((4, 3), lambda i, j: (i * 3 + j,), None),
        ((8, 3), lambda i, j: (i // 4, i // 2 % 2, i % 2, j), None),
        ((4, 3), lambda i, j: (i // 2, j, i % 2), 0.0),
    ],
)
def test_others_are_kept(shape, index_map, pad_value):
    """Padding, merged axes and nested blocks."""
    data = integers(*shape)
    mod = module(data, index_map, pad_value)
    assert FoldLayoutTransform()(mod).same_as(mod)
    x = integers(*extents(shape, index_map), seed=1)
    got = run(mod, x, pipeline=pipeline())
    np.testing.assert_array_equal(got, moved(data, index_map, pad_value) + x)


def test_a_constant_with_two_readers_is_stored_once():
    mod = FoldLayoutTransform()(module(integers(4, 6), lambda i, j: (j, i), readers=2))
    constants = [binding.value.args[0] for binding in mod["main"].body.blocks[0].bindings]
    assert len(constants) == 2
    assert constants[0].value.same_as(constants[1].value)


def test_folding_that_grows_constants_is_declined():
    """The matrix is also read unchanged."""
    data = relax.const(integers(64, 48))

    def emit(builder, x):
        turned = builder.emit(relax.op.layout_transform(data, lambda i, j: (j, i)))
        return relax.op.matmul(builder.emit(relax.op.matmul(x, data)), turned)

    mod = build({"x": tensor(2, 64)}, emit)
    assert FoldLayoutTransform(max_growth=1)(mod).same_as(mod)
    assert not FoldLayoutTransform(max_growth=3)(mod).same_as(mod)


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "fold-constant")
    mod = module(integers(4, 6), lambda i, j: (j, i))
    assert FoldLayoutTransform()(mod).same_as(mod)


if __name__ == "__main__":
    tvm.testing.main()
