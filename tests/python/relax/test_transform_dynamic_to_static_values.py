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
"""DynamicToStatic's evaluation of each operator on shapes, against NumPy."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from helpers.relax_modules import build, tensor
from tvm_fixes.relax.transform import DynamicToStatic

pytestmark = pytest.mark.native

op = relax.op
n, m = (tvm.tirx.Var(name, "int64") for name in "nm")
SIZES = [(5, 7), (1, 2), (16, 3)]


def ints(*values):
    return np.array(values, "int64")


def const(array):
    array = np.asarray(array)
    return relax.const(array, str(array.dtype))


def followed(compute):
    """The shape that `compute` derives from the tensor (n, m, 3); None if unknown."""

    def emit(builder, x):
        shape = builder.emit(op.shape_to_tensor(relax.ShapeExpr([n, m, 3])))
        result = compute(builder, shape)
        flat = builder.emit(op.astype(result, "int64"))
        if flat.ty.shape is not None:
            flat = builder.emit(op.reshape(flat, [-1]))
        target = builder.emit(op.tensor_to_shape(flat))
        return builder.emit(op.zeros(target, "float32"))

    mod = DynamicToStatic()(build({"x": tensor(n, m, 3)}, emit))
    shape = mod["main"].ret_ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        return None
    symbols = [mod["main"].params[0].ty.shape[0], mod["main"].params[0].ty.shape[1]]
    return lambda *sizes: [evaluate(dim, dict(zip(symbols, sizes, strict=True))) for dim in shape]


def evaluate(dim, values):
    analyzer = tvm.sym.Analyzer()
    for symbol, value in values.items():
        analyzer.bind(symbol, tvm.tirx.IntImm("int64", value))
    return int(analyzer.simplify(dim))


def emit(function, *args, **kwargs):
    """Return a function that calls an operator on the shape."""
    return lambda builder, s: builder.emit(function(s, *args, **kwargs))


def with_constant(function, *values):
    return lambda builder, s: builder.emit(function(s, const(ints(*values))))


SYMBOLIC = {
    "add": (with_constant(op.add, 1), lambda s: s + 1),
    "add_broadcast": (
        lambda b, s: b.emit(op.add(s, b.emit(op.expand_dims(s, 1)))),
        lambda s: s + s[:, None],
    ),
    "subtract": (with_constant(op.subtract, 1, 1, 1), lambda s: s - 1),
    "multiply": (lambda b, s: b.emit(op.multiply(s, s)), lambda s: s * s),
    "floor_divide": (with_constant(op.floor_divide, 2), lambda s: s // 2),
    "divide": (with_constant(op.divide, 2), lambda s: s // 2),
    "mod": (with_constant(op.mod, 4), lambda s: s % 4),
    "floor_mod": (with_constant(op.floor_mod, 4), lambda s: s % 4),
    "minimum": (with_constant(op.minimum, 4), lambda s: np.minimum(s, 4)),
    "maximum": (with_constant(op.maximum, 4), lambda s: np.maximum(s, 4)),
    "negative": (
        lambda b, s: b.emit(op.negative(b.emit(op.negative(s)))),
        lambda s: s,
    ),
    "abs": (emit(op.abs), np.abs),
    "square": (emit(op.square), np.square),
    "clip": (lambda b, s: b.emit(op.clip(s, 2, 6)), lambda s: s.clip(2, 6)),
    "int32": (
        lambda b, s: b.emit(op.add(b.emit(op.astype(s, "int32")), relax.const(2, "int32"))),
        lambda s: s + 2,
    ),
    "reshape": (emit(op.reshape, [3, 1]), lambda s: s.reshape(3, 1)),
    "squeeze": (
        lambda b, s: b.emit(op.squeeze(b.emit(op.expand_dims(s, 0)), [0])),
        lambda s: s,
    ),
    "take": (with_constant(op.take, 1, 0, 1), lambda s: s[[1, 0, 1]]),
    "take_scalar": (
        lambda b, s: b.emit(op.take(s, relax.const(1, "int64"), axis=0)),
        lambda s: s[1],
    ),
    "take_wrap": (
        lambda b, s: b.emit(op.take(s, const(ints(-1, 0)), axis=0, mode="wrap")),
        lambda s: s[[-1, 0]],
    ),
    "gather_elements": (with_constant(op.gather_elements, 2, 0), lambda s: s[[2, 0]]),
    "strided_slice": (emit(op.strided_slice, [0], [-1], [-4], [-1]), lambda s: s[::-1]),
    "concat": (
        lambda b, s: b.emit(op.concat([s, const(ints(9)), s], axis=0)),
        lambda s: np.concatenate([s, [9], s]),
    ),
    "stack": (
        lambda b, s: b.emit(op.stack([s, const(ints(1, 2, 4))], axis=1)),
        lambda s: np.stack([s, ints(1, 2, 4)], 1),
    ),
    "split": (
        lambda b, s: b.emit(relax.TupleGetItem(b.emit(op.split(s, [1, 2])), 1)),
        lambda s: s[1:2],
    ),
    "permute_dims": (
        lambda b, s: b.emit(
            op.permute_dims(b.emit(op.stack([s, const(ints(1, 2, 4))], axis=1)), [1, 0])
        ),
        lambda s: np.stack([s, ints(1, 2, 4)], 1).T,
    ),
    "flip": (emit(op.flip, axis=0), lambda s: s[::-1]),
    "tile": (emit(op.tile, [2, 2]), lambda s: np.tile(s, [2, 2])),
    "repeat": (emit(op.repeat, 2, 0), lambda s: np.repeat(s, 2)),
    "broadcast_to": (emit(op.broadcast_to, [2, 3]), lambda s: np.broadcast_to(s, (2, 3))),
    "scatter_elements": (
        lambda b, s: b.emit(op.scatter_elements(s, const(ints(0, -1)), const(ints(8, 9)), axis=0)),
        lambda s: np.array([8, s[1], 9]),
    ),
    "sum": (emit(op.sum), np.sum),
    "prod": (emit(op.prod, axis=[0], keepdims=True), np.prod),
    "max": (emit(op.max), np.max),
    "min": (emit(op.min), np.min),
    "cumsum": (emit(op.cumsum, axis=0), np.cumsum),
    "cumsum_exclusive": (
        lambda b, s: b.emit(op.cumsum(s, axis=0, exclusive=True)),
        lambda s: np.cumsum(s) - s,
    ),
    "cumprod": (emit(op.cumprod, axis=0), np.cumprod),
    "size": (
        lambda b, s: b.emit(op.size(b.emit(op.zeros(relax.ShapeExpr([n, m]), "float32")))),
        lambda s: s[0] * s[1],
    ),
    "full_like": (
        lambda b, s: b.emit(op.add(s, b.emit(op.ones_like(s)))),
        lambda s: s + 1,
    ),
    "where_of_a_sign": (
        lambda b, s: b.emit(
            op.where(b.emit(op.less(s, relax.const(0, "int64"))), b.emit(op.negative(s)), s)
        ),
        lambda s: s,
    ),
    "expand_of_minus_one": (
        lambda b, s: b.emit(
            op.where(b.emit(op.equal(s, relax.const(-1, "int64"))), const(ints(1, 1, 1)), s)
        ),
        lambda s: s,
    ),
    "where_of_a_constant": (
        lambda b, s: b.emit(op.where(const(np.array([True, False, True])), s, const(ints(4)))),
        lambda s: np.where([True, False, True], s, 4),
    ),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic(name):
    compute, reference = SYMBOLIC[name]
    dims = followed(compute)
    assert dims is not None
    for sizes in SIZES:
        expected = np.asarray(reference(ints(*sizes, 3))).ravel().tolist()
        assert dims(*sizes) == expected


A, B = ints(7, -7, 7, -7, 0, 5), ints(2, 2, -2, -2, 3, 5)
OFFSET = 100  # A shape has no negative extents.


def of_two(function):
    return lambda b: b.emit(function(const(A), const(B)))


def of_floats(function, dtype):
    """Integers computed through floats, as exporters do for the shape of a resize."""
    values = np.array([2.5, 3.0, 7.25], dtype)
    return lambda b: b.emit(op.astype(b.emit(function(const(values))), "int64"))


LITERAL = {
    "divide": (of_two(op.divide), np.trunc(A / B)),
    "floor_divide": (of_two(op.floor_divide), A // B),
    "mod": (of_two(op.mod), np.fmod(A, B)),
    "floor_mod": (of_two(op.floor_mod), A - A // B * B),
    "equal": (of_two(op.equal), A == B),
    "not_equal": (of_two(op.not_equal), A != B),
    "less": (of_two(op.less), A < B),
    "less_equal": (of_two(op.less_equal), A <= B),
    "greater": (of_two(op.greater), A > B),
    "greater_equal": (of_two(op.greater_equal), A >= B),
    "logical_and": (
        lambda b: b.emit(op.logical_and(const(A == 7), const(B == 2))),
        (A == 7) & (B == 2),
    ),
    "logical_or": (
        lambda b: b.emit(op.logical_or(const(A == 7), const(B == 2))),
        (A == 7) | (B == 2),
    ),
    "logical_not": (lambda b: b.emit(op.logical_not(const(A == 7))), A != 7),
    "nonzero": (
        lambda b: b.emit(op.take(b.emit(op.nonzero(const(A == 7))), relax.const(0, "int64"), 0)),
        [0, 2],
    ),
    "arange": (lambda b: b.emit(op.arange(2, 11, 3)), np.arange(2, 11, 3)),
    "full": (
        lambda b: b.emit(op.full([2, 2], relax.const(6, "int64"))),
        np.full((2, 2), 6),
    ),
    "least_by_3": (
        lambda b: b.emit(op.floor_mod(const(ints(-(2**63), 7)), const(ints(3)))),
        [1, 1],
    ),
    "floor": (of_floats(op.floor, "float32"), [2, 3, 7]),
    "ceil": (of_floats(op.ceil, "float32"), [3, 3, 8]),
    "sqrt": (of_floats(op.sqrt, "float64"), [1, 1, 2]),
    "scale": (
        lambda b: b.emit(
            op.astype(
                b.emit(
                    op.floor(
                        b.emit(op.multiply(const(np.float32([3, 7])), relax.const(1.9, "float32")))
                    )
                ),
                "int64",
            )
        ),
        np.floor(np.float32([3, 7]) * np.float32(1.9)),
    ),
}


@pytest.mark.parametrize("name", LITERAL)
def test_literal(name):
    compute, expected = LITERAL[name]

    def shifted(builder, _shape):
        value = builder.emit(op.astype(compute(builder), "int64"))
        return builder.emit(op.add(value, relax.const(OFFSET, "int64")))

    dims = followed(shifted)
    assert dims is not None
    assert dims(1, 1) == (np.asarray(expected).astype("int64").ravel() + OFFSET).tolist()


def grown(step):
    """An expression that grows with each step, which may double TVM's time."""

    def compute(builder, s):
        value = s
        for k in range(40):
            value = builder.emit(step(builder, value, s, const(ints(k + 2))))
        return value

    return compute


UNKNOWN = {
    "of_divisions": grown(lambda b, v, s, k: op.add(b.emit(op.floor_divide(v, k)), s)),
    "of_remainders": grown(
        lambda b, v, s, k: op.maximum(b.emit(op.floor_mod(b.emit(op.add(v, s)), k)), s)
    ),
    "of_products": grown(lambda b, v, s, k: op.multiply(b.emit(op.add(v, k)), v)),
    # The meaning depends on the values of the symbols.
    "where": lambda b, s: b.emit(
        op.where(b.emit(op.less(s, relax.const(4, "int64"))), const(ints(1, 1, 1)), s)
    ),
    "divide_by_a_symbol": lambda b, s: b.emit(op.floor_divide(s, b.emit(op.flip(s, 0)))),
    "truncate": lambda b, s: b.emit(
        op.divide(b.emit(op.subtract(s, relax.const(9, "int64"))), relax.const(2, "int64"))
    ),
    "out_of_range": lambda b, s: b.emit(op.take(s, const(ints(0, 3)), axis=0)),
    "negative_index": lambda b, s: b.emit(op.take(s, const(ints(-1)), axis=0)),
    # The meaning depends on the width.
    "int8": lambda b, s: b.emit(op.astype(s, "int8")),
    "overflow_int32": lambda b, s: b.emit(
        op.multiply(relax.const(2**30, "int32"), relax.const(4, "int32"))
    ),
    "overflow_int64": lambda b, s: b.emit(
        op.multiply(relax.const(2**62, "int64"), relax.const(2, "int64"))
    ),
    # TVM's analyzer does not see that it is negative.
    "extent_and_least": lambda b, s: b.emit(
        op.maximum(b.emit(op.add(s, relax.const(-(2**63), "int64"))), relax.const(0, "int64"))
    ),
    "extents_and_sum_beyond_int64": lambda b, s: b.emit(
        op.subtract(
            b.emit(op.add(b.emit(op.add(s, const(ints(2**62)))), const(ints(2**62)))),
            b.emit(op.add(s, const(ints(2**62)))),
        )
    ),
    "extents_and_product_beyond_int64": lambda b, s: b.emit(
        op.multiply(b.emit(op.multiply(s, const(ints(2**40)))), const(ints(2**40)))
    ),
    "uint8": lambda b, s: b.emit(op.subtract(relax.const(1, "uint8"), relax.const(2, "uint8"))),
    "float_of_a_symbol": lambda b, s: b.emit(
        op.multiply(b.emit(op.astype(s, "float32")), relax.const(2.0, "float32"))
    ),
    "division_by_zero": lambda b, s: b.emit(op.floor_divide(const(ints(1)), const(ints(0)))),
    "least_by_minus_one": lambda b, s: b.emit(
        op.floor_divide(const(ints(-(2**63))), const(ints(-1)))
    ),
    "nan": lambda b, s: b.emit(op.sqrt(relax.const(-1.0, "float32"))),
    "bool_of_a_symbol": lambda b, s: b.emit(op.less(s, relax.const(4, "int64"))),
    "negative_extent": lambda b, s: b.emit(op.subtract(const(ints(1)), const(ints(9)))),
    # More elements than are tracked.
    "many": lambda b, s: b.emit(op.arange(0, 300)),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown(name):
    assert followed(UNKNOWN[name]) is None


if __name__ == "__main__":
    tvm.testing.main()
