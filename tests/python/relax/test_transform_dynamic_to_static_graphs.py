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
"""DynamicToStatic on random graphs of shape arithmetic: results are unchanged."""

import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from helpers import relax_modules
from helpers.relax_modules import cpu, tensor
from tvm_fixes import verify
from tvm_fixes.relax.transform import DynamicToStatic

pytestmark = pytest.mark.native

op = relax.op
SIZES = [(1, 4), (5, 2)]
LEAST, GREATEST = 1, 5
"""The extents of the final result."""


def const(*values):
    return relax.const(np.array(values, "int64"), "int64")


# Operations on two vectors of two elements and a constant, in TVM and in NumPy.
OPERATIONS = {
    "add": (lambda b, x, y, k: op.add(x, y), lambda x, y, k: x + y),
    "subtract": (lambda b, x, y, k: op.subtract(x, const(k)), lambda x, y, k: x - k),
    "multiply": (lambda b, x, y, k: op.multiply(x, const(k, 1)), lambda x, y, k: x * [k, 1]),
    "floor_divide": (lambda b, x, y, k: op.floor_divide(x, const(k)), lambda x, y, k: x // k),
    "floor_mod": (lambda b, x, y, k: op.floor_mod(x, const(k)), lambda x, y, k: x - x // k * k),
    "minimum": (lambda b, x, y, k: op.minimum(x, y), lambda x, y, k: np.minimum(x, y)),
    "maximum": (lambda b, x, y, k: op.maximum(x, const(k)), lambda x, y, k: np.maximum(x, k)),
    "flip": (lambda b, x, y, k: op.flip(x, 0), lambda x, y, k: x[::-1]),
    "cumsum": (lambda b, x, y, k: op.cumsum(x, 0), lambda x, y, k: np.cumsum(x)),
    "take": (lambda b, x, y, k: op.take(x, const(1, k % 2), 0), lambda x, y, k: x[[1, k % 2]]),
    "where_less": (
        lambda b, x, y, k: op.where(b.emit(op.less(x, const(k))), x, y),
        lambda x, y, k: np.where(x < k, x, y),
    ),
    "where_equal": (
        lambda b, x, y, k: op.where(b.emit(op.equal(x, y)), const(k, k), x),
        lambda x, y, k: np.where(x == y, k, x),
    ),
    "join": (
        lambda b, x, y, k: op.strided_slice(b.emit(op.concat([x, y], 0)), [0], [1], [3]),
        lambda x, y, k: np.concatenate([x, y])[1:3],
    ),
    "sum": (
        lambda b, x, y, k: op.multiply(b.emit(op.sum(x, 0, True)), const(1, k)),
        lambda x, y, k: x.sum() * np.array([1, k]),
    ),
    "prod": (
        lambda b, x, y, k: op.broadcast_to(b.emit(op.prod(x, 0, True)), [2]),
        lambda x, y, k: np.repeat(x.prod(), 2),
    ),
}

STEPS = st.lists(
    st.tuples(
        st.sampled_from(sorted(OPERATIONS)), st.integers(0, 9), st.integers(0, 9), st.integers(1, 4)
    ),
    min_size=1,
    max_size=6,
)


def graph(steps, branches):
    """A module that computes a vector from the shape (n, m), and a tensor of that shape."""
    n, m = (tvm.tirx.Var(name, "int64") for name in "nm")
    rows, columns = (tvm.tirx.Var(name, "int64") for name in ("rows", "columns"))
    x = relax.Var("x", tensor(n, m))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        values = [builder.emit(op.shape_to_tensor(builder.emit(op.shape_of(x)))), const(2, 3)]
        for name, first, second, k in steps:
            operands = values[first % len(values)], values[second % len(values)]
            values.append(builder.emit(OPERATIONS[name][0](builder, *operands, k)))
        result = values[-1]
        if branches:
            result = choose(builder, result, values[-2])
        clamped = builder.emit(
            op.minimum(builder.emit(op.maximum(result, const(LEAST))), const(GREATEST))
        )
        target = builder.emit(op.tensor_to_shape(clamped))
        builder.match_cast(target, relax.ShapeType([rows, columns]))
        made = builder.emit(op.ones(relax.ShapeExpr([rows, columns]), "float32"))
        positions = builder.emit(op.astype(builder.emit(op.arange(0, columns, 1)), "float32"))
        made = builder.emit(op.multiply(made, positions))
        builder.emit_func_output(relax.Tuple([result, made]))
    return builder.get()


def choose(builder, x, y):
    """``x + 1`` if its first element is less than that of `y`, else ``y * 2``."""
    first, other = (
        builder.emit(op.squeeze(builder.emit(op.strided_slice(v, [0], [0], [1])), [0]))
        for v in (x, y)
    )
    condition = builder.emit(op.less(first, other))
    branches = []
    for value in (op.add(x, const(1)), op.multiply(y, const(2))):
        var = relax.Var("chosen", tensor(2, dtype="int64"))
        block = relax.BindingBlock([relax.VarBinding(var, builder.normalize(value))])
        branches.append(builder.normalize(relax.SeqExpr([block], var)))
    return builder.emit(relax.If(condition, *branches))


def expected_of(steps, branches, sizes):
    values = [np.array(sizes, "int64"), np.array([2, 3])]
    for name, first, second, k in steps:
        operands = values[first % len(values)], values[second % len(values)]
        values.append(np.asarray(OPERATIONS[name][1](*operands, k)))
    result = values[-1]
    if branches:
        other = values[-2]
        result = result + 1 if result[0] < other[0] else other * 2
    rows, columns = np.clip(result, LEAST, GREATEST)
    return result, np.tile(np.arange(columns, dtype="float32"), (rows, 1))


def results(mod):
    executable = relax.build(mod, cpu())
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return [relax_modules.call(machine, "main", np.zeros(sizes, "float32")) for sizes in SIZES]


@given(steps=STEPS, branches=st.booleans())
def test_types_and_idempotence(steps, branches):
    mod = graph(steps, branches)
    resolved = DynamicToStatic()(mod)
    assert not verify(resolved).errors
    assert DynamicToStatic()(resolved).same_as(resolved)
    made = resolved["main"].ret_ty.fields[1].shape
    if made is None:
        return
    symbols = resolved["main"].params[0].ty.shape
    for sizes in SIZES:
        analyzer = tvm.sym.Analyzer()
        for symbol, size in zip(symbols, sizes, strict=True):
            analyzer.bind(symbol, tvm.tirx.IntImm("int64", size))
        shape = tuple(int(analyzer.simplify(dim)) for dim in made)
        assert shape == expected_of(steps, branches, sizes)[1].shape


@settings(max_examples=max(1, settings().max_examples // 8))
@given(steps=STEPS, branches=st.booleans())
def test_runs(steps, branches):
    mod = graph(steps, branches)
    without, resolved = results(mod), results(DynamicToStatic()(mod))
    for sizes, *found in zip(SIZES, without, resolved, strict=True):
        expected = expected_of(steps, branches, sizes)
        for arrays in found:
            for array, wanted in zip(arrays, expected, strict=True):
                np.testing.assert_array_equal(array, wanted)


if __name__ == "__main__":
    tvm.testing.main()
