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
"""DecomposeEinsum."""

import itertools

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.grids import few, is_full
from helpers.relax_modules import build, calls, run, tensor
from tvm_fixes.fixes.matmul import MATMUL_LEGALIZE
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.transform import DecomposeEinsum

RNG = np.random.default_rng(0)
EXTENTS = dict(zip("abcdefg", (2, 3, 4, 5, 6, 7, 3), strict=True))


def random(labels):
    return RNG.standard_normal([EXTENTS[label] for label in labels]).astype("float32")


def einsum(equation, *, dtype="float32", constant=None, symbolic=""):
    """An einsum; `constant` is its second operand, and some labels have symbolic extents."""
    symbols = {label: tirx.Var(label, "int64") for label in symbolic}
    terms = equation.partition("->")[0].split(",")
    types = {
        name: tensor(*(symbols.get(label, EXTENTS[label]) for label in term), dtype=dtype)
        for name, term in zip("xyz", terms, strict=False)
    }
    if constant is not None:
        del types["y"]

    def emit(_, *operands):
        fields = operands if constant is None else [*operands, relax.const(constant)]
        return relax.op.einsum(list(fields), equation)

    return build(types, emit)


def test_two_labels_are_summed():
    """The output of an attention layer: the heads and their elements are the common axis."""
    weight = random("cde")

    def emit(builder, x):
        rows = builder.emit(relax.op.reshape(x, (6, 20)))
        matrix = relax.const(weight.reshape(20, 6))
        return relax.op.reshape(builder.emit(relax.op.matmul(rows, matrix)), (2, 3, 6))

    after = DecomposeEinsum()(einsum("abcd,cde->abe", constant=weight))
    tvm.ir.assert_structural_equal(after, build({"x": tensor(2, 3, 4, 5)}, emit))


def test_transposed_keys_stay_next_to_the_product():
    def emit(builder, x, y):
        keys = builder.emit(relax.op.permute_dims(y, [0, 1, 3, 2]))
        return relax.op.matmul(x, keys)

    types = {"x": tensor(2, 3, 4, 5), "y": tensor(2, 3, 6, 5)}
    after = DecomposeEinsum()(einsum("abcd,abed->abce"))
    tvm.ir.assert_structural_equal(after, build(types, emit))


PRODUCTS = list(
    itertools.product(
        ["constant", "variable", "symbolic"],
        [
            "ab,bc->ac",
            "ab,bc->ca",
            "ab,cb->ac",
            "abc,cd->abd",
            "abcd,abce->abde",
            "abcd,aced->acbe",
            "ab,cbd->cad",
            "abcd,dec->bae",
            "abcd,cef->abdef",
            "bacd,bce->baed",
        ],
    )
)


# Each equation is among every third case.
@few(4)
@pytest.mark.parametrize("kind, equation", PRODUCTS if is_full() else PRODUCTS[::3])
def test_products(kind, equation):
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    x, y = map(random, terms)
    constant = y if kind == "constant" else None
    symbolic = "".join(dict.fromkeys("".join(terms))) if kind == "symbolic" else ""
    mod = einsum(equation, constant=constant, symbolic=symbolic)
    after = DecomposeEinsum()(mod)
    assert not calls(after, "relax.einsum")
    assert len(calls(after, "relax.matmul")) == 1
    operands = [x] if kind == "constant" else [x, y]
    np.testing.assert_allclose(
        run(after, *operands, pipeline=pipeline()), np.einsum(equation, x, y), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("equation", "dtype"),
    [
        pytest.param("ab,bc->ac", "int32", id="integers"),
        pytest.param("ab,ab->ab", "float32", id="elementwise"),
        pytest.param("ab,ab->a", "float32", id="rows"),
        pytest.param("ab,cd->abcd", "float32", id="nothing is summed"),
        pytest.param("aab,bc->ac", "float32", id="a diagonal"),
        pytest.param("ab,bc->c", "float32", id="a label of one operand is summed"),
        pytest.param("ab,bc,cd->ad", "float32", id="three operands"),
        pytest.param("ab,bc", "float32", id="implicit output"),
        pytest.param("ab->ba", "float32", id="one operand"),
    ],
)
def test_others_are_kept(equation, dtype):
    mod = einsum(equation, dtype=dtype)
    tvm.ir.assert_structural_equal(DecomposeEinsum()(mod), mod)


def test_extents_that_may_differ_are_kept():
    n, m = (tirx.Var(name, "int64") for name in "nm")
    mod = build(
        {"x": tensor(3, n), "y": tensor(m, 4)},
        lambda _, x, y: relax.op.einsum([x, y], "ab,bc->ac"),
    )
    tvm.ir.assert_structural_equal(DecomposeEinsum()(mod), mod)


def test_a_bound_tuple_is_read():
    def emit(builder, x, y):
        pair = builder.emit(relax.Tuple([x, y]))
        return relax.op.einsum(pair, "ab,bc->ac")

    after = DecomposeEinsum()(build({"x": tensor(2, 3), "y": tensor(3, 4)}, emit))
    assert len(calls(after, "relax.matmul")) == 1


def test_the_switch(monkeypatch):
    monkeypatch.setenv("TVM_FIXES_DISABLE", MATMUL_LEGALIZE)
    mod = einsum("ab,bc->ac")
    assert DecomposeEinsum()(mod).same_as(mod)


if __name__ == "__main__":
    tvm.testing.main()
