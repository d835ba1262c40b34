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
"""Shapes and other small integers that are computed while an ONNX model is imported."""

import io
import re

import numpy as np
import onnx
import pytest
import torch
import tvm
import tvm.testing
from torch import nn
from tvm import relax
from tvm.relax.frontend import onnx as tvm_onnx

from helpers.coverage_tables import CoverageTables
from helpers.grids import few, sample
from helpers.onnx_graphs import assert_follows_onnx_runtime, normal, text_model
from helpers.relax_modules import call, calls, count, cpu
from helpers.shape_graphs import EMPTY_SIZES, SIZES, inputs, random_shape_graph
from tvm_fixes import verify
from tvm_fixes.fixes.onnx_importer import SHAPE_VALUES
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.onnx.values.known import extents_of
from tvm_fixes.support import switches

_DATA = {"relax.shape_to_tensor", "relax.reshape", "relax.astype", "relax.add"}
"""Operators that make a tensor of symbols. Negative numbers need an add: no shape holds them."""

_PRELUDE = """
    s = Shape(x)  t = Shape(w)  n0 = Gather(s, zero)  n = Gather(s, first)  m = Gather(s, last)
    k = Gather(t, first)  f = Cast<to=1>(three)  i32 = Cast<to=6>(s)  d0 = Gather(s, two0)
"""
_CONSTANTS = """
    int64 zero = {0}, int64 one0 = {1}, int64 two0 = {2}, int64[1] none = {0},
    int64[1] first = {0}, int64[1] last = {-1}, int64[1] one = {1}, int64[1] two = {2},
    int64[1] three = {3}, int64[1] minus = {-7}, int64[1] most = {9223372036854775807},
    int64[1] least = {-9223372036854775807}, int64[2] pair = {2, 0}, int64[2] grid = {3, 1},
    int64[2] place = {0, 2}, int64[2,1] places = {0, -1}, int64[2] seven = {7, 8},
    int64[2] one_and_two = {1, 2},
    int64[3] sevens = {7, -7, 7}, int64[3] threes = {3, 3, -3}, int64[2,2] square = {4, 1, 3, 4}
"""


def dims(mod: tvm.IRModule) -> list[int | str]:
    """The shape of the result."""
    extents = extents_of(mod["main"].body)
    return [extent if isinstance(extent, int) else str(extent) for extent in extents]


EVALUATED = {
    "Shape_start": "y = Shape<start=-2>(x)",
    "Shape_end": "y = Shape<start=-9, end=-1>(x)",
    "Size": "y = Size(x)",
    "Gather_scalar": "y = Gather(s, zero)",
    "Gather_two": "y = Gather(s, pair)",
    "GatherElements": "y = GatherElements(s, pair)",
    "GatherND": "y = GatherND(s, places)",
    "Slice_negative_step": "y = Slice(s, most, least, none, last)",
    "Slice_to_the_end_backwards": "y = Slice(s, last, most, none, last)",
    "Slice_beyond": "y = Slice(s, minus, most, none, two)",
    "Slice_axes_missing": "y = Slice(s, last, most)",
    "Concat": "y = Concat<axis=0>(n, three, m, last)",
    "Split": "a, b, y = Split<num_outputs=3>(s)",
    "Split_sizes": "y, b = Split(s, one_and_two)",
    "Squeeze": "y = Squeeze(n)",
    "Squeeze_axes": "y = Squeeze(n, last)",
    "Unsqueeze": "y = Unsqueeze(n0, none)",
    "Unsqueeze_twice": "y = Unsqueeze(s, place)",
    "Reshape": "y = Reshape(s, grid)",
    "Reshape_rest": "y = Reshape(s, last)",
    "Flatten": "r = Reshape(s, grid)  y = Flatten<axis=-1>(r)",
    "Transpose": "r = Reshape(s, grid)  y = Transpose(r)",
    "Transpose_perm": "r = Reshape(s, grid)  y = Transpose<perm=[1, 0]>(r)",
    "Identity": "y = Identity(s)",
    "Cast": "c = Cast<to=6>(s)  y = Cast<to=7>(c)",
    "Cast_int32": "y = Cast<to=6>(s)",
    "CastLike": "y = CastLike(s, i32)",
    "Cast_bool": "c = Cast<to=9>(sevens)  y = Cast<to=7>(c)",
    "Add": "y = Add(s, one)",
    "Sub": "y = Sub(n, s)",
    "Mul": "y = Mul(s, n)",
    "Div": "y = Div(s, two)",
    "Div_cancels": "p = Mul(n, m)  q = Mul(p, two)  y = Div(q, two)",
    "Div_truncates": "y = Div(sevens, threes)",
    "Div_float": "g = Cast<to=1>(sevens)  q = Div(g, f)  y = Cast<to=7>(q)",
    "Floor": "g = Cast<to=1>(sevens)  q = Div(g, f)  h = Floor(q)  y = Cast<to=7>(h)",
    "Ceil": "g = Cast<to=1>(sevens)  q = Div(g, f)  h = Ceil(q)  y = Cast<to=7>(h)",
    "Mod": "y = Mod(s, two)",
    "Mod_of_divisor": "y = Mod(sevens, threes)",
    "Mod_of_dividend": "y = Mod<fmod=1>(sevens, threes)",
    "Min": "y = Min(s, two, n)",
    "Max": "y = Max(s, two)",
    "Max_proved": "p = Add(n, one)  y = Max(n, p)",
    "Neg": "y = Neg(s)",
    "Abs": "y = Abs(s)",
    "Sign": "p = Add(s, one)  q = Neg(p)  y = Sign(q)",
    "Equal_proved": "p = Mul(n, two)  q = Add(n, n)  c = Equal(p, q)  y = Cast<to=7>(c)",
    "Equal_disproved": "p = Add(n, one)  c = Equal(n, p)  y = Cast<to=7>(c)",
    "Equal_negative": "c = Equal(s, last)  y = Cast<to=7>(c)",
    "Less": "p = Add(s, one)  c = Less(s, p)  y = Cast<to=7>(c)",
    "LessOrEqual": "c = LessOrEqual(none, s)  y = Cast<to=7>(c)",
    "Greater": "c = Greater(s, last)  y = Cast<to=7>(c)",
    "GreaterOrEqual": "c = GreaterOrEqual(last, s)  y = Cast<to=7>(c)",
    "And": "c = Equal(s, s)  d = Equal(s, last)  e = And(c, d)  y = Cast<to=7>(e)",
    "Or": "c = Equal(s, s)  d = Equal(s, last)  e = Or(c, d)  y = Cast<to=7>(e)",
    "Xor": "c = Equal(s, s)  d = Equal(s, last)  e = Xor(c, d)  y = Cast<to=7>(e)",
    "Not": "c = Equal(s, last)  e = Not(c)  y = Cast<to=7>(e)",
    "Where": "c = Equal(grid, three)  y = Where(c, n, t)",
    "Expand": "y = Expand(n, grid)",
    "Tile": "y = Tile(s, two)",
    "Range": "p = Add(n0, two0)  y = Range(n0, p, one0)",
    "ConstantOfShape": "y = ConstantOfShape<value = int64[1] {-1}>(grid)",
    "ConstantOfShape_float": "y = ConstantOfShape(grid)",
    "ReduceSum": "y = ReduceSum<keepdims=0>(s)",
    "ReduceSum_axes": "r = Reshape(s, grid)  y = ReduceSum(r, one)",
    "ReduceProd": "y = ReduceProd(s)",
    "ReduceMin": "y = ReduceMin(s)",
    "ReduceMax": "y = ReduceMax<keepdims=0>(s)",
    "CumSum": "y = CumSum(s, zero)",
    "CumSum_reverse": "y = CumSum<exclusive=1, reverse=1>(s, zero)",
    "NonZero": "p = Add(s, one)  y = NonZero(p)",
    "ScatterElements": "y = ScatterElements(s, place, seven)",
    "ScatterND": "y = ScatterND(s, places, seven)",
    "TopK": "y, i = TopK(sevens, two)",
    "TopK_indices": "v, y = TopK<largest=0>(sevens, two)",
    "ArgMax": "y = ArgMax(square)",
    "ArgMin": "y = ArgMin<axis=1, keepdims=0, select_last_index=1>(square)",
    "Constant_ints": "y = Constant<value_ints=[1, 2]>()",
    "Constant_float": "c = Constant<value_float=2.5>()  y = Cast<to=7>(c)",
    "Shape_of_shape": "y = Shape(s)",
}


def evaluations() -> onnx.ModelProto:
    """All of :data:`EVALUATED` in one graph, each with an output named after it."""
    lines, outputs = [_PRELUDE], []
    for name, text in EVALUATED.items():
        own = {made for made in re.findall(r"(\w+)(?=[\w, ]* = )", text) if len(made) == 1}
        for made in own - set("x"):
            text = re.sub(rf"\b{made}\b", f"{name}_{made}", text)
        lines.append(text)
        dtype = {"Cast_int32": "int32", "CastLike": "int32", "ConstantOfShape_float": "float"}
        outputs.append(f"{dtype.get(name, 'int64')}[] {name}_y")
    head = f"(float[n, 3, m] x, float[n, 2] w) => ({', '.join(outputs)}) <{_CONSTANTS}>"
    return text_model(f"{head} {{ {' '.join(lines)} }}")


def test_every_operator_is_evaluated() -> None:
    model = evaluations()
    mod = from_onnx(model)
    assert {call.op.name for call in calls(mod)} <= _DATA
    cases = [[normal(n, 3, m), normal(n, 2)] for n, m in ((2, 5), (1, 1), (0, 4), (3, 0))]
    assert_follows_onnx_runtime(from_onnx, model, *cases)


UNKNOWN = {
    "Equal": "c = Equal(n, two)",
    "Less": "c = Less(m, n)",
    "And": "d = Equal(s, three)  e = Equal(s, two)  c = Or(d, e)",
    "Not": "b = Cast<to=9>(s)  c = Not(b)",
    "quotient": "q = Div(s, two)  c = Equal(q, one)",
}


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_values_are_computed_at_run_time(text: str) -> None:
    model = text_model(
        "(float[n, 3, m] x) => (int64[k] y) <int64[1] one = {1}, int64[1] two = {2}, "
        "int64[1] three = {3}, int64[1] first = {0}, int64[1] last = {2}> "
        f"{{ s = Shape(x)  n = Gather(s, first)  m = Gather(s, last)  {text}  y = Cast<to=7>(c) }}"
    )
    mod = from_onnx(model)
    assert {call.op.name for call in calls(mod)} - _DATA
    cases = [[normal(n, 3, m)] for n, m in ((2, 1), (1, 2), (3, 3), (0, 0))]
    assert_follows_onnx_runtime(from_onnx, model, *cases)


def test_division_by_a_dim_that_may_be_zero_is_not_carried_out() -> None:
    model = text_model(
        "(float[n] x) => (int64[1] y) <int64[1] six = {6}> { s = Shape(x)  y = Div(six, s) }"
    )
    mod = from_onnx(model)
    assert count(mod, "relax.divide") + count(mod, "relax.floor_divide") == 1
    assert_follows_onnx_runtime(from_onnx, model, [normal(2)], [normal(4)])


@pytest.mark.parametrize(
    "operand, size, is_evaluated",
    (("s", 8, True), ("s", 9, False), ("one", 64, True), ("one", 65, False)),
)
def test_large_tensors_are_left_to_run(operand: str, size: int, is_evaluated: bool) -> None:
    model = text_model(
        f"(float[n] x) => (int64[a, b] y) <int64[2] shape = {{{size}, {size}}}, "
        f"int64[1] one = {{1}}> {{ s = Shape(x)  e = Expand({operand}, shape)  y = Add(e, one) }}"
    )
    mod = from_onnx(model)
    assert (count(mod, "relax.add") == 0) == is_evaluated
    assert_follows_onnx_runtime(from_onnx, model, [normal(3)])


def test_sums_wrap_as_their_dtype() -> None:
    model = text_model("(float[n] x) => (uint8[1] y) <uint8[1] a = {200}> { y = Add(a, a) }")
    assert_follows_onnx_runtime(from_onnx, model, [normal(3)])


COMPUTED_SHAPES = {
    "Gather": "d = Gather(s, first)  t = Concat<axis=0>(d, rest)",
    "Div": "d = Gather(s, last)  e = Div(d, two)  t = Concat<axis=0>(rest, e)",
    "ReduceProd": "t = ReduceProd(s)",
    "Size": "d = Size(x)  t = Unsqueeze(d, zero)",
    "Cast": "c = Cast<to=6>(s)  d = ReduceProd(c)  t = Cast<to=7>(d)",
    "Slice": "d = Slice(s, zero, two)  e = Mul(d, two)  t = Concat<axis=0>(e, rest)",
    "Where": "c = Equal(s, rest)  t = Where(c, two, s)",
    "Split": "a, b, c = Split<num_outputs=3>(s)  d = Mul(a, b)  t = Concat<axis=0>(c, d)",
}


@few(6)
@pytest.mark.parametrize("text", COMPUTED_SHAPES.values(), ids=COMPUTED_SHAPES)
@pytest.mark.parametrize("shape", ("n, m, 4", "2, 3, 4"))
def test_reshape_to_a_computed_shape(text: str, shape: str) -> None:
    model = text_model(
        f"(float[{shape}] x) => (float[] y) <int64[1] zero = {{0}}, int64[1] first = {{0}}, "
        "int64[1] last = {-1}, int64[1] two = {2}, int64[1] rest = {-1}> "
        f"{{ s = Shape(x)  {text}  y = Reshape(x, t) }}"
    )
    mod = from_onnx(model)
    shapes = [(2, 3, 4), (1, 5, 4)] if "n" in shape else [(2, 3, 4)]
    assert isinstance(mod["main"].ret_ty.shape, relax.ShapeExpr)
    assert_follows_onnx_runtime(from_onnx, model, *([normal(*shape)] for shape in shapes))


def test_negative_sizes() -> None:
    """A shape has no negative extents, so a negative computed size is not part of a shape."""
    model = text_model(
        "(float[4, n, n] x) => (int64 y) <int64 four = {-4}> { s = Size(x)  y = Sub(four, s) }"
    )
    assert verify(from_onnx(model)) == []
    assert_follows_onnx_runtime(from_onnx, model, *([normal(4, n, n)] for n in (0, 1, 3)))


def test_equal_shapes_of_two_inputs() -> None:
    model = text_model(
        "(float[n, 3] x, float[n, 3] w) => (bool[2] y) "
        "{ s = Shape(x)  t = Shape(w)  y = Equal(s, t) }"
    )
    mod = from_onnx(model)
    assert calls(mod) == []
    assert_follows_onnx_runtime(from_onnx, model, *([normal(n, 3), normal(n, 3)] for n in (1, 2)))


def test_mask_of_an_expanded_shape() -> None:
    """``Expand`` as PyTorch's exporters write it: -1 stands for the existing extent."""
    model = text_model(
        "(float[n, 4] x, float[1, 4] w) => (float[n, 4] y) "
        "<int64[1] two = {2}, int64 minus = {-1}> {"
        " s = Shape(x)  ones = ConstantOfShape<value = int64[1] {1}>(two)  m = Mul(ones, minus)"
        " e = Equal(s, m)  t = Where(e, ones, s)  y = Expand(w, t) }"
    )
    mod = from_onnx(model)
    assert dims(mod) == ["n", 4]
    assert_follows_onnx_runtime(from_onnx, model, *([normal(n, 4), normal(1, 4)] for n in (1, 3)))


@pytest.mark.parametrize("keep_params_in_input", (False, True))
def test_initializers_are_known(keep_params_in_input: bool) -> None:
    model = text_model(
        "(float[n, 4] x) => (float[a, b] y) <int64[1] two = {2}, int64[1] rest = {-1}> "
        "{ t = Concat<axis=0>(rest, two)  y = Reshape(x, t) }"
    )
    mod = from_onnx(model, keep_params_in_input=keep_params_in_input)
    assert dims(mod) == ["n * T.int64(2)", 2]
    names = ["two", "rest"] if keep_params_in_input else []
    assert [param.name for param in mod["main"].params] == ["x", *names]
    params = dict(zip(names, mod["main"].attrs.get("params", []), strict=True))
    mod = relax.transform.BindParams("main", params)(mod)
    assert_follows_onnx_runtime(lambda _: mod, model, *([normal(n, 4)] for n in (1, 3)))


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    model = text_model(
        "(float[3] x) => (bool[1] y) <int64[1] three = {3}> { s = Shape(x)  y = Equal(s, three) }"
    )
    with switches.collect() as acted:
        assert_follows_onnx_runtime(from_onnx, model, [normal(3)])
    assert acted == {SHAPE_VALUES}
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, SHAPE_VALUES)
    tvm.ir.assert_structural_equal(from_onnx(model), tvm_onnx.from_onnx(model))


def test_undefined_name() -> None:
    model = text_model("(float[n] x) => (float[n] y) { y = Relu(z) }")
    model.graph.node[0].name = "node"
    with pytest.raises(ValueError, match=r"Relu 'node': undefined operands \['z'\]"):
        from_onnx(model)


class ReflectionPadAndSqueeze(nn.Module):
    """PyTorch exports this with computed pads, and with an If whose branches differ in rank."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.pad = nn.ReflectionPad3d(0)
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pad(x).squeeze(self.dim)


@few(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "n, dim, is_dynamic, expected",
    (
        (13, 1, False, [13, 1, 1, 1]),
        (2, 1, False, [2, 1, 1, 1]),
        (2, 0, False, [2, 1, 1, 1, 1]),
        (1, 0, False, [1, 1, 1, 1]),
        (13, 1, True, ["n", 1, 1, 1]),
    ),
)
def test_reflection_pad_and_squeeze_of_torchscript(
    n: int, dim: int, is_dynamic: bool, expected: list[int | str]
) -> None:
    stream = io.BytesIO()
    torch.onnx.export(
        ReflectionPadAndSqueeze(dim).eval(),
        (torch.randn(n, 1, 1, 1, 1),),
        stream,
        input_names=["x"],
        dynamic_axes={"x": {0: "n"}} if is_dynamic else None,
        dynamo=False,
    )
    model = onnx.load_from_string(stream.getvalue())
    mod = from_onnx(model)
    assert dims(mod) == expected
    counts = (n, 2) if is_dynamic else (n,)
    assert_follows_onnx_runtime(
        from_onnx, model, *([normal(count, 1, 1, 1, 1)] for count in counts)
    )


@pytest.mark.parametrize("seed", sample(range(2000), 12))
def test_random_graph(coverage_table: CoverageTables, seed: int) -> None:
    """A graph that is not rejected on import gives ONNX Runtime's outputs."""
    sizes = EMPTY_SIZES if seed % 2 else SIZES
    model, expected = random_shape_graph(seed, sizes)
    refusal = ""
    try:
        mod = from_onnx(model)
    except (tvm.error.OpAttributeInvalid, tvm.error.OpNotImplemented) as error:
        refusal = str(error)
    table = coverage_table.outcome_table("onnx_shape_values", ["equal", "refused"])

    def count(outcome: str) -> None:
        extents = "may be 0" if seed % 2 else "positive"
        for operator in {node.op_type for node in model.graph.node} | {"(graphs)"}:
            table.count("graphs", outcome, operator=operator, extents=extents)

    if refusal:
        count("refused")
        reasons = coverage_table("onnx_shape_values_refused")
        operator, _, reason = refusal.partition(":")
        with reasons.case(operator=operator.split()[0], reason=re.sub(r" is .*?;", ";", reason)):
            return
    executable = relax.build(mod, cpu(), relax_pipeline="tvm_fixes")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    for size, outputs in zip(sizes, expected, strict=True):
        results = call(machine, "main", *inputs(size))
        results = results if isinstance(results, list) else [results]
        for output, got, wanted in zip(model.graph.output, results, outputs, strict=True):
            where = f"{output.name}, {size}"
            assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), where
            np.testing.assert_array_equal(got, wanted, err_msg=where)
    count("equal")


if __name__ == "__main__":
    tvm.testing.main()
