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
# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.grids import few
from helpers.relax_modules import build, count, integers, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.transform import ReadTransposedRows
from tvm_fixes.relax.transform.read_transposed_rows import FIX_ID
from tvm_fixes.support import switches

op = relax.op


@I.ir_module
class Before:
    @R.function
    def main(
        query: R.Tensor((2, 1, 8), "float32"), keys: R.Tensor((2, 5, 8), "float32")
    ) -> R.Tensor((2, 1, 5), "float32"):
        with R.dataflow():
            transposed = R.permute_dims(keys, axes=[0, 2, 1])
            scores = R.matmul(query, transposed)
            R.output(scores)
        return scores


@I.ir_module
class Expected:
    @T.prim_func(private=True, s_tir=True)
    def NT_matmul(
        query: T.Buffer((T.int64(2), T.int64(1), T.int64(8)), "float32"),
        keys: T.Buffer((T.int64(2), T.int64(5), T.int64(8)), "float32"),
        out: T.Buffer((T.int64(2), T.int64(1), T.int64(5)), "float32"),
    ):
        T.func_attr({"tirx.noalias": True})
        for i0, i1, i2, k in T.grid(T.int64(2), T.int64(1), T.int64(5), T.int64(8)):
            with T.sblock("NT_matmul"):
                a, b, c, d = T.axis.remap("SSSR", [i0, i1, i2, k])
                T.reads(query[a, b, d], keys[a, c, d])
                T.writes(out[a, b, c])
                with T.init():
                    out[a, b, c] = T.float32(0)
                out[a, b, c] = out[a, b, c] + query[a, b, d] * keys[a, c, d]

    @R.function
    def main(
        query: R.Tensor((2, 1, 8), "float32"), keys: R.Tensor((2, 5, 8), "float32")
    ) -> R.Tensor((2, 1, 5), "float32"):
        cls = Expected
        with R.dataflow():
            scores = R.call_tir(cls.NT_matmul, (query, keys), out_ty=R.Tensor((2, 1, 5), "float32"))
            R.output(scores)
        return scores


def test_the_permute_is_removed(monkeypatch):
    tvm.ir.assert_structural_equal(ReadTransposedRows()(Before), Expected)
    assert ReadTransposedRows()(Expected).same_as(Expected)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    assert ReadTransposedRows()(Before).same_as(Before)


N = tirx.Var("n", "int64")


def product(lhs, keys, dtype="float32", axes=None):
    """``lhs @ keys``, with the last two axes of the keys swapped."""
    rank = len(keys)
    axes = axes or [*range(rank - 2), rank - 1, rank - 2]
    return build(
        {"query": tensor(*lhs, dtype=dtype), "keys": tensor(*keys, dtype=dtype)},
        lambda b, query, key: op.matmul(query, b.emit(op.permute_dims(key, axes))),
    )


@few(5)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "lhs, keys",
    [
        ((1, 2, 1, 19), (1, 2, 6, 19)),
        ((2, 4, 8), (2, 33, 8)),
        ((3, 16), (N, 16)),
        ((1, 2, 2, 16), (7, 16)),
        ((1, 3, 1, 64), (1, 3, N, 64)),
        ((2, 2, 1, 8), (2, 1, 5, 8)),
        ((1, 2, 2, 8), (1, 1, N, 8)),
    ],
)
def test_values(lhs, keys, dtype):
    mod = product(lhs, keys, dtype)
    after = ReadTransposedRows()(mod)
    assert (count(after, "relax.matmul"), count(after, "relax.permute_dims")) == (0, 0)
    for extent in (1, 40) if N in keys else (0,):
        shape = [extent if dim is N else dim for dim in keys]
        query, rows = (integers(*of).astype(dtype) for of in (lhs, shape))
        got = run(mod, query, rows, pipeline=pipeline())
        np.testing.assert_array_equal(got, query @ rows.swapaxes(-1, -2))


@pytest.mark.parametrize(
    "lhs, keys, dtype",
    [
        ((2, 5, 8), (2, 33, 8), "float32"),  # many rows
        ((2, 3, 8), (7, 8), "float32"),  # many rows, with one matrix, for an unknown target
        ((2, 3, 1, 8), (1, 1, 33, 8), "float32"),  # many rows, broadcast
        ((1, 1, 8), (2, 33, 8), "float32"),  # one row, several matrices
        ((N, 8), (7, 8), "float32"),  # an unknown number of rows
        ((2, 1, 8), (2, 33, 8), "float16"),  # sums in float32
    ],
)
def test_other_products_do_not_change(lhs, keys, dtype):
    mod = product(lhs, keys, dtype)
    assert ReadTransposedRows()(mod).same_as(mod)


@pytest.mark.parametrize("rows", [(2, 3), (N,)])
def test_one_matrix_for_many_rows(rows):
    """Its tiles are transposed within the kernel of the product, if it is for a CPU."""
    mod = product((*rows, 8), (7, 8))
    with tvm.target.Target("llvm"):
        after = ReadTransposedRows()(mod)
    assert (count(after, "relax.matmul"), count(after, "relax.permute_dims")) == (0, 0)
    lhs = integers(*(5 if extent is N else extent for extent in rows), 8)
    matrix = integers(7, 8, seed=1)
    got = run(after, lhs, matrix, pipeline=pipeline())
    np.testing.assert_array_equal(got, lhs @ matrix.T)


def test_heads_that_share_keys():
    """The keys are reshaped after the permute, as by BroadcastFreeMatmul."""

    def emit(b, query, key):
        transposed = b.emit(op.permute_dims(key, [0, 1, 3, 2]))
        return op.matmul(query, b.emit(op.reshape(transposed, (2, 1, 8, N))))

    mod = build({"query": tensor(2, 3, 1, 8), "keys": tensor(1, 2, N, 8)}, emit)
    after = ReadTransposedRows()(mod)
    assert (count(after, "relax.matmul"), count(after, "relax.permute_dims")) == (0, 0)
    query, keys = integers(2, 3, 1, 8), integers(1, 2, 7, 8)
    got = run(mod, query, keys, pipeline=pipeline())
    np.testing.assert_array_equal(got, query @ keys.reshape(2, 1, 7, 8).swapaxes(2, 3))


def test_outside_of_a_dataflow_block():
    builder = relax.BlockBuilder()
    query, keys = relax.Var("query", tensor(2, 1, 8)), relax.Var("keys", tensor(5, 8))
    with builder.function("main", [query, keys], pure=False):
        builder.emit(op.assert_op(relax.const(True), format="never"))
        transposed = builder.emit(op.reshape(builder.emit(op.permute_dims(keys)), (1, 8, 5)))
        builder.emit_func_output(builder.emit(op.matmul(query, transposed)))
    arrays = [integers(*shape).astype("float32") for shape in ((2, 1, 8), (5, 8))]
    got = run(builder.get(), *arrays, pipeline=pipeline())
    np.testing.assert_array_equal(got, arrays[0] @ arrays[1].T)


def test_a_reshape_of_the_last_axes():
    def emit(b, query, key):
        transposed = b.emit(op.permute_dims(key, [0, 2, 1]))
        return op.matmul(query, b.emit(op.reshape(transposed, (1, 4, 10))))

    mod = build({"query": tensor(1, 1, 4), "keys": tensor(1, 5, 8)}, emit)
    assert ReadTransposedRows()(mod).same_as(mod)


def test_other_permutes_do_not_change():
    mod = product((8, 2, 2), (2, 3, 8), axes=[2, 0, 1])
    assert ReadTransposedRows()(mod).same_as(mod)


@pytest.mark.parametrize("reader", ["operator", "result", "first operand", "large product"])
def test_a_permute_with_other_readers_does_not_change(reader):
    def emit(b, query, key, large):
        transposed = b.emit(op.permute_dims(key, [0, 2, 1]))
        scores = b.emit(op.matmul(query, transposed))
        other = {
            "operator": lambda: op.negative(transposed),
            "result": lambda: transposed,
            "first operand": lambda: op.matmul(
                transposed, b.emit(op.permute_dims(large, [0, 2, 1]))
            ),
            "large product": lambda: op.matmul(large, transposed),
        }[reader]()
        return relax.Tuple([scores, other if reader == "result" else b.emit(other)])

    types = {"query": tensor(1, 1, 8), "keys": tensor(1, 8, 8), "large": tensor(1, 64, 8)}
    mod = build(types, emit)
    assert ReadTransposedRows()(mod).same_as(mod)


if __name__ == "__main__":
    tvm.testing.main()
