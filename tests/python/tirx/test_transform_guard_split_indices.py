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
"""GuardSplitIndices."""

from functools import partial

import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, te, tirx
from tvm.script import ir as I
from tvm.script import tirx as T

from helpers.grids import batched
from helpers.relax_modules import build, call, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.support import switches
from tvm_fixes.target import resolve
from tvm_fixes.tirx.transform import GuardSplitIndices
from tvm_fixes.tirx.transform.guard_split_indices import FIX_ID


@I.ir_module
class Before:
    @T.prim_func
    def main(x: T.Buffer((64,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = x[(i % 15 + 38) // 15]
            y[i] = x[(15 - i) % 64]
            y[i] = x[(2 - i) % 15]
            y[i] = x[(2 - i) // 4 + 4]
            y[i] = x[(i + 12) // 7 % 4]


@I.ir_module
class Expected:
    @T.prim_func
    def main(x: T.Buffer((64,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = x[T.truncdiv(T.truncmod(i, 15) + 38, 15)]
            y[i] = x[T.truncmod(15 - i, 64)]
            y[i] = x[T.truncmod(T.truncmod(2 - i, 15) + 15, 15)]
            y[i] = x[T.truncdiv(2 - i - T.truncmod(T.truncmod(2 - i, 4) + 4, 4), 4) + 4]
            y[i] = x[T.truncmod(T.truncdiv(i + 12, 7), 4)]


@I.ir_module
class Right:
    """Indices that TVM simplifies to equal ones."""

    @T.prim_func
    def main(x: T.Buffer((4, 15), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            y[i] = x[i // 15, i % 15] + x[0, (i // 7 * 7 + i % 5) % 15]
            y[i] = x[(i + 12) // 15, (i + 12) % 15]


def guarded(mod):
    with tvm.target.Target("llvm"):
        return GuardSplitIndices()(mod)


def test_before_and_after():
    tvm.ir.assert_structural_equal(guarded(Before), Expected)
    assert guarded(Expected).same_as(Expected)
    assert guarded(Right).same_as(Right)


@pytest.mark.parametrize("form", ("Select", "if_then_else", "else", "IfThenElse"))
def test_conditions_around_an_index(form):
    """TVM makes (i + 9) % 15 of an index that the condition has simplified."""
    i = tirx.Var("i", "int64")
    x = tirx.decl_buffer((1, 3, 14, 15), "float32", "x", layout=None)
    y = tirx.decl_buffer((16,), "float32", "y", layout=None)
    flat = i + 614
    row = flat // 7 % 30 * 7 + flat % 7
    image = (row // 210 + flat // 7 // 30 % 3) % 3
    load = tirx.BufferLoad(x, [tirx.const(0, "int64"), image, row % 210 // 15, row % 15])
    zero, condition = tirx.const(0, "float32"), i >= 10
    if form == "IfThenElse":
        body = tirx.IfThenElse(condition, tirx.BufferStore(y, load, [i]), None)
    else:
        value = {
            "Select": lambda: tirx.Select(condition, load, zero),
            "if_then_else": lambda: tirx.if_then_else(condition, load, zero),
            "else": lambda: tirx.Select(i < 10, zero, load),
        }[form]()
        body = tirx.BufferStore(y, value, [i])
    loop = tirx.For(i, 0, 16, tirx.ForKind.SERIAL, body)
    mod = tvm.IRModule({"main": tirx.PrimFunc([x, y], loop)})
    assert "truncmod" in guarded(mod).script()
    assert guarded(guarded(mod)).script() == guarded(mod).script()


def test_switched_off(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    assert guarded(Before).same_as(Before)


def test_two_loops_over_one_variable():
    """2 - i is not negative in the first loop, but may be in the second."""
    i = tirx.Var("i", "int32")
    x, y = (tirx.decl_buffer((16,), "float32", name, layout=None) for name in "xy")

    def module(index):
        store = tirx.BufferStore(y, tirx.BufferLoad(x, [index]), [i])
        loops = [tirx.For(i, 0, extent, tirx.ForKind.SERIAL, store) for extent in (2, 16)]
        return tvm.IRModule({"main": tirx.PrimFunc([x, y], tirx.SeqStmt(loops))})

    hidden = tirx.truncmod(tirx.truncmod(2 - i, 15) + 15, 15)
    tvm.ir.assert_structural_equal(guarded(module(tirx.floormod(2 - i, 15))), module(hidden))


def test_the_last_vector_of_a_reshape():
    """Its first element is not the first of a row, of 7 or of 15."""
    x = np.arange(630, dtype="float32").reshape(1, 3, 14, 15)
    mod = build({"x": tensor(*x.shape)}, lambda b, x: relax.op.reshape(x, (1, 1, 3, 30, 7)))
    for target in ("llvm", "native"):
        executable = relax.build(mod, resolve(target), relax_pipeline=pipeline())
        got = call(relax.VirtualMachine(executable, tvm.cpu()), "main", x)
        np.testing.assert_array_equal(got.ravel(), x.ravel())


@pytest.mark.parametrize("target", ("llvm", "haswell"))
def test_the_last_of_equal_elements(target):
    """ONNX's select_last_index reverses the reshaped data."""
    mod = build(
        {"x": tensor(4, 8, 2, dtype="int32")},
        lambda b, x: relax.op.argmax(
            b.emit(relax.op.flip(b.emit(relax.op.reshape(x, (64, 1))), 0)), 0
        ),
    )
    machine = "llvm" if target == "llvm" else {"kind": "llvm", "mcpu": target}
    executable = relax.build(mod, tvm.target.Target(machine), relax_pipeline=pipeline())
    x = np.zeros((4, 8, 2), "int32")
    x[1, 2, 1] = x[2, 0, 0] = 1
    assert call(relax.VirtualMachine(executable, tvm.cpu()), "main", x) == [63 - 32]


# The size of a part, the number of them or 0, two offsets, a divisor, and two choices: whether the
# index is divided, and whether it is negated.
INDICES = st.tuples(
    st.integers(2, 9),
    st.sampled_from((0, 0, 3, 4)),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(2, 20),
    st.booleans(),
    st.booleans(),
)


def index_of(drawn, i):
    """An index that is split, joined and split again; of an integer or an expression."""
    size, count, offset, more, divisor, divides, negates = drawn
    high = (i + offset) // size
    low = (i + offset % size) % size
    joined = (high % count if count else high) * size + low + more
    if negates:
        return (90 - joined) // divisor + 45 if divides else (90 - joined) % divisor
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
        library = tvm.compile(GuardSplitIndices()(tvm.IRModule(functions)), "llvm")
    x = np.arange(128, dtype="float32")
    for number, one in enumerate(drawn):
        got = tvm.runtime.tensor(np.zeros(32, "float32"))
        library[f"f{number}"](tvm.runtime.tensor(x), got)
        wanted = [index_of(one, i) for i in range(32)]
        np.testing.assert_array_equal(got.numpy(), wanted, str(one))


if __name__ == "__main__":
    tvm.testing.main()
