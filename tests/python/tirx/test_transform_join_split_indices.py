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
"""JoinSplitIndices."""

from functools import partial

import numpy as np
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, te
from tvm.script import ir as I
from tvm.script import tirx as T

from helpers.grids import batched
from helpers.relax_modules import build, call, tensor
from tvm_fixes.pipeline import pipeline
from tvm_fixes.support import switches
from tvm_fixes.target import resolve
from tvm_fixes.tirx.transform import JoinSplitIndices
from tvm_fixes.tirx.transform.join_split_indices import FIX_ID


@I.ir_module
class Before:
    @T.prim_func
    def main(x: T.Buffer((15,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = x[((i + 12) // 7 * 7 + (i + 5) % 7) % 15]
            y[i] = x[((i + 7) // 7 % 2 * 7 + i % 7) // 3]
            y[i] = x[(i % 15 + 38) // 15]


@I.ir_module
class Expected:
    @T.prim_func
    def main(x: T.Buffer((15,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = x[(i + 12) % 15]
            y[i] = x[(i + 7) % 14 // 3]
            y[i] = x[T.truncdiv(i % 15 + 38, 15)]


@I.ir_module
class Apart:
    """Parts of different indices and sizes without a constant, and a negative index."""

    @T.prim_func
    def main(x: T.Buffer((15,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = x[(i // 7 * 7 + i % 5) % 15] + x[(i % 5 - 7) % 15]


def joined(mod):
    with tvm.target.Target("llvm"):
        return JoinSplitIndices()(mod)


def test_before_and_after():
    tvm.ir.assert_structural_equal(joined(Before), Expected)
    assert joined(Expected).same_as(Expected)
    assert joined(Apart).same_as(Apart)


def test_the_switch_leaves_it(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    assert joined(Before).same_as(Before)


def test_the_last_vector_of_a_reshape():
    """Its first element is not the first of a row, of 7 or of 15."""
    x = np.arange(630, dtype="float32").reshape(1, 3, 14, 15)
    mod = build({"x": tensor(*x.shape)}, lambda b, x: relax.op.reshape(x, (1, 1, 3, 30, 7)))
    for target in ("llvm", "native"):
        executable = relax.build(mod, resolve(target), relax_pipeline=pipeline())
        got = call(relax.VirtualMachine(executable, tvm.cpu()), "main", x)
        np.testing.assert_array_equal(got.ravel(), x.ravel())


# The size of a part, the number of them or 0, two offsets, a divisor, and whether it divides.
INDICES = st.tuples(
    st.integers(2, 9),
    st.sampled_from((0, 0, 3, 4)),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(2, 20),
    st.booleans(),
)


def index_of(drawn, i):
    """An index that is split, joined and split again; of an integer or an expression."""
    size, count, offset, more, divisor, divides = drawn
    high = (i + offset) // size
    low = (i + offset % size) % size
    joined = (high % count if count else high) * size + low + more
    return joined // divisor if divides else joined % divisor


def element(data, drawn, i):
    return data[index_of(drawn, i)]


@batched(20)
@given(st.lists(INDICES, min_size=20, max_size=20))
def test_random_indices(drawn):
    data = te.placeholder((128,), "float32", "x")
    functions = {}
    for number, one in enumerate(drawn):
        result = te.compute((32,), partial(element, data, one), f"y{number}")
        function = te.create_prim_func([data, result])
        functions[f"f{number}"] = function.with_attr("global_symbol", f"f{number}")
    with tvm.target.Target("llvm"):
        library = tvm.compile(JoinSplitIndices()(tvm.IRModule(functions)), "llvm")
    x = np.arange(128, dtype="float32")
    for number, one in enumerate(drawn):
        got = tvm.runtime.tensor(np.zeros(32, "float32"))
        library[f"f{number}"](tvm.runtime.tensor(x), got)
        wanted = [index_of(one, i) for i in range(32)]
        np.testing.assert_array_equal(got.numpy(), wanted, str(one))


if __name__ == "__main__":
    tvm.testing.main()
