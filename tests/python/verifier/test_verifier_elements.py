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
"""Constant indices are evaluated through the arithmetic that importers emit."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.relax import op

from helpers.relax_modules import build, tensor
from helpers.verifying import found

pytestmark = pytest.mark.native

n = tirx.Var("n", "int64")


def normalized(bb, x, indices, axis=0, extent=None):
    """Normalize negative indices as an ONNX importer does.

    The extent is taken from the shape as a tensor.
    """
    shape = bb.emit(op.shape_to_tensor(bb.emit(op.shape_of(x))))
    if extent is None:
        extent = bb.emit(op.take(shape, relax.const(axis, "int64"), axis=0))
    is_negative = bb.emit(op.less(indices, relax.const(0, "int64")))
    return bb.emit(op.where(is_negative, bb.emit(op.add(indices, extent)), indices))


def taken(shape, compute, axis=0):
    """A module that takes the indices of `compute` from a tensor."""

    def emit(bb, x):
        return bb.emit(op.take(x, compute(bb, x), axis=axis))

    return build({"x": tensor(*shape)}, emit)


def const(values, dtype="int64"):
    return relax.const(np.array(values, dtype), dtype)


def sliced(bb, x):
    shape = bb.emit(op.shape_to_tensor(bb.emit(op.shape_of(x))))
    extent = bb.emit(op.strided_slice(shape, [0], [1], [2]))
    return normalized(bb, x, const([[-3], [5]]), extent=extent)


def cast_and_reshaped(bb, x):
    indices = bb.emit(op.astype(const([[-1, 4]], "int32"), "int64"))
    return normalized(bb, x, bb.emit(op.reshape(indices, [2])))


def of_two_sides(bb, x):
    """The condition and the operands have different shapes, so nothing is known."""
    condition = bb.emit(op.less(const([[0], [1]]), const([[1], [1]])))
    return bb.emit(op.where(condition, const([9]), const([[9, 9]])))


@pytest.mark.parametrize(
    "shape, compute, axis, got",
    [
        ((4, 3), lambda bb, x: normalized(bb, x, const([0, -2, 9])), 0, "0 to 9"),
        ((4, 3), lambda bb, x: normalized(bb, x, const([0, -4, 3])), 0, None),
        ((4, 3), lambda bb, x: normalized(bb, x, const([-9])), 0, "-5"),
        ((4, 3), lambda bb, x: normalized(bb, x, const(-7), axis=1), 1, "-4"),
        ((3, 6), sliced, 1, None),
        ((3, 4), sliced, 1, "1 to 5"),
        ((4, 3), cast_and_reshaped, 0, "3 to 4"),
        ((5, 3), cast_and_reshaped, 0, None),
        ((n, 3), lambda bb, x: normalized(bb, x, const([-1, -2])), 0, None),
        ((n, 3), lambda bb, x: bb.emit(op.subtract(const([2]), const([3]))), 0, None),
        ((4, 3), of_two_sides, 0, None),
    ],
)
def test_indices_that_are_computed(shape, compute, axis, got):
    errors = found(taken(shape, compute, axis))
    assert [rule for rule, _, _ in errors] == ([] if got is None else ["op.index"])
    assert got is None or errors[0][2].endswith(f", got {got}")


def test_an_index_beyond_a_symbolic_extent():
    """x[n] of n elements, whatever n is."""

    def beyond(bb, x):
        return bb.emit(op.shape_to_tensor(bb.emit(op.shape_of(x))))

    ((rule, _, message),) = found(taken((n,), beyond))
    assert rule == "op.index"
    assert message.endswith("expected -n to n - 1 (dim 0 of argument 0 is n), got n")


def test_constant_indices():
    indices = relax.const(np.array([0, -2, 9]))
    mod = build({"x": tensor(4, 3)}, lambda _, x: relax.op.take(x, indices, axis=0))
    ((rule, _, message),) = found(mod)
    assert rule == "op.index"
    assert message.endswith("expected -4 to 3 (dim 0 of argument 0 is 4), got -2 to 9")


if __name__ == "__main__":
    tvm.testing.main()
