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
"""ONNX If: only the taken branch if the condition is known, both branches otherwise."""

from functools import partial

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.relax.frontend import onnx as tvm_onnx

from helpers import onnx_graphs
from helpers.grids import few
from helpers.growth import assert_grows_linearly
from helpers.onnx_graphs import imported_and_run, normal, text_model
from helpers.relax_modules import count
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.onnx.graph.control_flow import IF
from tvm_fixes.frontend.onnx.values.known import extents_of
from tvm_fixes.support import switches

_CONSTANTS = """
    int64 zero = {0}, int64[1] first = {0}, int64[1] one = {1}, int64[1] two = {2},
    int64 one0 = {1}, int64 two0 = {2}
"""
# TVM's memory planner lets one branch use storage that the other allocates.
assert_follows_onnx_runtime = partial(onnx_graphs.assert_follows_onnx_runtime, pipeline="tvm_fixes")

_TRUE, _FALSE = np.array(True), np.array(False)


def model_of(inputs: str, body: str, outputs: str = "float[] y") -> onnx.ModelProto:
    return text_model(f"({inputs}) => ({outputs}) <{_CONSTANTS}> {{ {body} }}")


def branches(then: str, other: str) -> str:
    """The branches of an If whose results are ``r`` and ``e``."""
    return (
        f"<then_branch = then_graph () => (float[] r) {{ {then} }}, "
        f"else_branch = else_graph () => (float[] e) {{ {other} }}>"
    )


def ifs(mod: tvm.IRModule) -> int:
    found: list[relax.Expr] = []
    relax.analysis.post_order_visit(
        mod["main"], lambda expr: found.append(expr) if isinstance(expr, relax.If) else None
    )
    return len(found)


@pytest.mark.parametrize("index, unit", (("zero", "one0"), ("first", "one")))
@pytest.mark.parametrize("n", (1, 2))
def test_squeeze_where_it_is_possible(n: int, index: str, unit: str) -> None:
    """PyTorch's export of ``squeeze(0)``, after which the rank must be known."""
    body = (
        f"s = Shape(x)  d = Gather(s, {index})  c = Equal(d, {unit})  "
        f"i = If(c) {branches('r = Squeeze(x, first)', 'e = Identity(x)')}  y = Unsqueeze(i, one)"
    )
    model = model_of(f"float[{n}, 3] x", body)  # ONNX Runtime rejects the branch of 2
    mod = from_onnx(model)
    assert ifs(mod) == 0
    assert isinstance(mod["main"].body.blocks[0], relax.DataflowBlock)
    assert extents_of(mod["main"].body) == ([3, 1] if n == 1 else [2, 1, 3])
    x = normal(n, 3)
    [got] = imported_and_run(from_onnx, model, x)
    np.testing.assert_array_equal(got, x.reshape(got.shape))


@pytest.mark.parametrize(
    "condition, is_taken",
    (
        ("t = Add(d, one)  c = Less(d, t)", True),
        ("t = Add(d, one)  c = Equal(d, t)", False),
        ("t = Mul(d, two)  u = Add(d, d)  c = Equal(t, u)", True),
        ("c = GreaterOrEqual(d, first)", True),
    ),
)
def test_condition_that_is_proved(condition: str, is_taken: bool) -> None:
    body = f"s = Shape(x)  d = Gather(s, first)  {condition}  y = If(c) "
    model = model_of("float[n, 3] x", body + branches("r = Neg(x)", "e = Relu(x)"))
    mod = from_onnx(model)
    assert ifs(mod) == 0
    assert (count(mod, "relax.negative"), count(mod, "relax.nn.relu")) == (is_taken, not is_taken)
    assert_follows_onnx_runtime(from_onnx, model, [normal(2, 3)], [normal(1, 3)])


@few(3)
@pytest.mark.parametrize("operand, condition", (("d0", "two0"), ("d", "two")))
@pytest.mark.parametrize(
    "then, rank",
    (
        ("r = ReduceSum<keepdims=1>(x, first)", 2),
        ("q = ReduceSum<keepdims=1>(x, first)  r = Mul(q, q)", 2),
        ("r = ReduceSum<keepdims=0>(x, first)", -1),
        ("r = Expand(x, s)", 2),
    ),
)
def test_condition_that_is_not_known(operand: str, condition: str, then: str, rank: int) -> None:
    body = (
        f"s = Shape(x)  d = Gather(s, first)  d0 = Gather(s, zero)  c = Greater({operand}, "
        f"{condition})  y = If(c) {branches(then, 'e = Relu(x)')}"
    )
    model = model_of("float[n, 3] x", body)
    mod = from_onnx(model)
    assert ifs(mod) == 1
    assert mod["main"].body.ty.ndim == rank
    if rank == 2:
        assert extents_of(mod["main"].body)[1] == 3
    assert_follows_onnx_runtime(from_onnx, model, [normal(2, 3)], [normal(4, 3)], [normal(1, 3)])


def test_operator_behind_branches_of_different_shapes() -> None:
    then = "r = Concat<axis=0>(x, x)"
    body = f"i = If(c) {branches(then, 'e = Relu(x)')}  t = Shape(i)  q = Neg(i)  y = Reshape(q, t)"
    model = model_of("float[n, 3] x, bool c", body)
    mod = from_onnx(model)
    extent, three = extents_of(mod["main"].body)
    assert isinstance(extent, tvm.tirx.Var)
    assert three == 3
    cases = [[normal(n, 3), taken] for n in (2, 1) for taken in (_TRUE, _FALSE)]
    assert_follows_onnx_runtime(from_onnx, model, *cases)


_SQUEEZED = (
    "s = Shape(x)  d = Gather(s, {axis})  c = Equal(d, one0)  "
    f"i = If(c) {branches('r = Squeeze(x, AXIS)', 'e = Identity(x)')}  "
)


def squeezed(axis: str, rest: str, inputs: str = "float[n, m] x") -> onnx.ModelProto:
    """PyTorch's export of ``squeeze(axis)`` for an unknown extent, and what follows."""
    index = {"zero": "first", "one0": "one"}[axis]
    return model_of(inputs, _SQUEEZED.replace("{axis}", axis).replace("AXIS", index) + rest)


def test_ranks_that_the_following_nodes_accept() -> None:
    model = squeezed("zero", "q = Neg(i)  m = ReduceMax<keepdims=0>(q)  y = Mul(q, m)")
    assert_follows_onnx_runtime(from_onnx, model, [normal(1, 3)], [normal(2, 3)], [normal(3, 1)])
    assert ifs(from_onnx(model)) == 1


def test_rank_that_the_following_nodes_demand() -> None:
    """As in a recurrent layer: only one rank fits, and the model checks which branch is taken."""
    for rest in ("y = Transpose<perm=[0]>(i)", "y = Transpose<perm=[1, 0]>(i)"):
        model = squeezed("one0", rest)
        mod = from_onnx(model)
        assert ifs(mod) == 0
        assert mod["main"].body.ty.ndim == rest.count(",") + 1
        assert_follows_onnx_runtime(from_onnx, model, [normal(2, 1)], [normal(2, 3)])
    rejected = squeezed("one0", "y = Transpose<perm=[0, 1, 2]>(i)")
    with pytest.raises(tvm.error.OpAttributeInvalid, match="Transpose 'y'"):
        from_onnx(rejected)


def test_conditions_of_several_ifs_are_related() -> None:
    """The extent is 1, or is not, in all that follows."""
    again = branches("r = Unsqueeze(i, one)", "e = Identity(i)")
    rest = f"b = Not(c)  k = Not(b)  j = If(k) {again}  t = Shape(j)  u = Add(j, x)  "
    rest += "y = Reshape(u, t)"
    model = squeezed("one0", rest)
    mod = from_onnx(model)
    assert ifs(mod) == 1
    assert_follows_onnx_runtime(from_onnx, model, [normal(2, 1)], [normal(2, 3)], [normal(1, 1)])


def test_squeezes_in_branches_and_of_other_values() -> None:
    """The condition is not about an extent; the If is in a branch of another one."""
    squeeze = f"If(f) {branches('r = Squeeze(x, one)', 'e = Identity(x)')}"
    inner = f"j = {squeeze}  r = ReduceSum<keepdims=0>(j)"
    outer = branches(inner, "e = ReduceMax<keepdims=0>(x)")
    model = model_of("float[n, 1] x, bool c, bool f", f"i = If(c) {outer}  y = Neg(i)")
    runs = [[normal(3, 1), c, f] for c in (_TRUE, _FALSE) for f in (_TRUE, _FALSE)]
    assert_follows_onnx_runtime(from_onnx, model, *runs, rtol=1e-6)
    demand = f"i = {squeeze}  y = Transpose<perm=[1, 0]>(i)"
    model = model_of("float[n, 1] x, bool f", demand)
    runs = [[normal(3, 1), flag] for flag in (_TRUE, _FALSE)]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_modules_of_many_squeezes_grow_linearly() -> None:
    """Each condition is the same, so nothing is converted more than twice."""

    def if_(result: str, then: str, data: str) -> str:
        return (
            f"k{result} = Equal(d, one0)  {result} = If(k{result}) <then_branch = a{result} () => "
            f"(float[] r{result}) {{ r{result} = {then}({data}, first) }}, else_branch = "
            f"b{result} () => (float[] e{result}) {{ e{result} = Identity({data}) }}>  "
        )

    def model(count: int) -> tvm.IRModule:
        rest = "v0 = Neg(i)  "
        for index in range(count):
            rest += if_(f"u{index}", "Unsqueeze", f"v{index}")
            rest += f"g{index} = Neg(u{index})  "
            rest += if_(f"v{index + 1}", "Squeeze", f"g{index}")
        return from_onnx(squeezed("zero", rest + f"y = Neg(v{count})", "float[n, 3] x"))

    assert_grows_linearly(model)


def test_several_outputs() -> None:
    model = model_of(
        "float[n, 3] x, bool c",
        "y, z = If(c)<then_branch = t () => (float[a, b] r, int64[2] k) "
        "{ r = ReduceSum(x, first)  k = Shape(x) }, else_branch = f () => (float[a, b] e, "
        "int64[2] l) { e = Relu(x)  l = Constant<value_ints=[7, 8]>() }>",
        "float[a, b] y, int64[2] z",
    )
    mod = from_onnx(model)
    cases = [[normal(n, 3), taken] for n in (2, 1) for taken in (_TRUE, _FALSE)]
    assert_follows_onnx_runtime(from_onnx, model, *cases)


def test_code_of_a_branch_stays_in_the_branch() -> None:
    """For n = 3, the untaken branch could not run."""
    then = "w = Constant<value_ints=[2, -1]>()  q = Reshape(x, w)  v = Neg(q)  r = Reshape(v, s)"
    body = f"s = Shape(x)  y = If(c) {branches(then, 'e = Relu(x)')}"
    model = model_of("float[n, 3] x, bool c", body, "float[n, 3] y")
    mod = from_onnx(model)
    [choice] = [
        binding.value
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.If)
    ]
    inside = tvm.IRModule.from_expr(relax.Function([], choice.true_branch, is_pure=True))
    assert count(inside, "relax.negative") == 1 == count(mod, "relax.negative")
    assert_follows_onnx_runtime(from_onnx, model, [normal(2, 3), _TRUE], [normal(3, 3), _FALSE])


@pytest.mark.parametrize("axes", ("first", "f"))
def test_squeeze_in_a_branch_that_may_be_taken(axes: str) -> None:
    """The check that the dim is 1 runs with the Squeeze, not before."""
    body = (
        "s = Shape(x)  d = Gather(s, first)  f = Sub(one, one)  c = Equal(d, one)  "
        f"y = If(c) {branches(f'r = Squeeze(x, {axes})', 'e = Relu(x)')}"
    )
    model = model_of("float[n, 3] x", body)
    assert ifs(from_onnx(model)) == 1
    assert_follows_onnx_runtime(from_onnx, model, *([normal(n, 3)] for n in (1, 2, 1)))


def test_known_condition_in_a_branch_and_its_scope() -> None:
    then = (
        "o = Relu(x)  s = Shape(o)  d = Gather(s, one)  t = Add(d, one)  k = Less(d, t)  "
        "r = If(k)<then_branch = a () => (float[] p) { p = Neg(o) }, "
        "else_branch = b () => (float[] q) { q = Squeeze(o, one) }>"
    )
    model = model_of("float[n, m] x, bool c", f"y = If(c) {branches(then, 'e = Identity(x)')}")
    mod = from_onnx(model)
    assert ifs(mod) == 1
    cases = [[normal(n, 3), taken] for n in (2, 1) for taken in (_TRUE, _FALSE)]
    assert_follows_onnx_runtime(from_onnx, model, *cases)


def test_operator_that_is_not_supported() -> None:
    """It fails the import only if its branch may be taken."""
    body = "y = If(c) " + branches("r = Relu(x)", "e = Unheard(x)")
    may_be_taken = model_of("float[n] x, bool c", body)
    may_be_taken.graph.node[0].attribute[1].g.node[0].name = "node"
    with pytest.raises(
        tvm.error.OpNotImplemented, match=r"^unsupported operator Unheard at node 'node'$"
    ):
        from_onnx(may_be_taken)
    mod = from_onnx(model_of("float[n] x", "c = Equal(one, one)  " + body))
    assert count(mod, "relax.nn.relu") == 1


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "y = If(c) " + branches("r = Relu(x)", "e = Neg(x)")
    model = model_of("float[3] x, bool c", body)
    with switches.collect() as acted:
        from_onnx(model)
    assert acted == {IF}
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, IF)
    tvm.ir.assert_structural_equal(from_onnx(model), tvm_onnx.from_onnx(model))


if __name__ == "__main__":
    tvm.testing.main()
