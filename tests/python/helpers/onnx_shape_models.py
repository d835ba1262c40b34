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
"""Small handwritten ONNX models that compute shapes from the extents of their inputs."""

from collections.abc import Iterator, Sequence
from typing import Any

from onnx import helper

from helpers.onnx_graphs import text_model
from helpers.shape_models import Form, Model, Sizes, named

_CONSTANTS = """
    int64 zero = {0}, int64 one0 = {1}, int64 two0 = {2}, int64[1] first = {0}, int64[1] one = {1},
    int64[1] two = {2}, int64[1] three = {3}, int64[1] last = {-1}, int64[2] pair = {1, 1},
    int64[1] most = {9223372036854775807}, int64[1] least = {-9223372036854775807},
    int64[2] turned = {1, 0}, float half = {0.5}, float[2] levels = {0, 1}
"""
_X, _UNIT = "float[n, m] x", "float[1, m] x"
_SIZES = named(n=(2, 1, 4, 3), m=(3, 4, 1, 3))
_LARGER = named(n=(2, 4, 6), m=(4, 5, 2))
_OF_THREE = named(n=(2, 1, 3), m=(3, 4, 1), k=(4, 1, 2))


def _if(then: str, other: str) -> str:
    """The branches of an If whose results are ``r`` and ``q``."""
    return (
        f"If(c) <then_branch = t () => (float[] r) {{ {then} }}, "
        f"else_branch = e () => (float[] q) {{ {other} }}>"
    )


_SQUEEZED = _if("r = Squeeze(x, first)", "q = Identity(x)")
_OTHERWISE = _if("r = Neg(x)", "q = Relu(x)")
_ADD = (
    "body = b (int64 i, bool g, float[] v) => (bool h, float[] u) "
    "{ h = Identity(g)  u = Add(v, x) }"
)
_SUM = (
    "body = b (float[m] a, float[m] e) => (float[m] u, float[m] v) "
    "{ u = Add(a, e)  v = Identity(u) }"
)

# By subject and name: the nodes from x and w, their shapes s and t and the first and last
# extents n and m of x and k of w, to y; inputs; sizes; the type of y.
_GRAPHS: dict[str, dict[str, tuple[Any, ...]]] = {
    "If over two ranks": {
        "if_squeeze": (f"c = Equal(n, one)  y = {_SQUEEZED}", "float[1, 3] x", [{}]),
        "if_squeeze_of_2": (f"c = Equal(n, one)  y = {_SQUEEZED}", "float[2, 3] x", [{}]),
        "if_squeeze_scalar": (f"c = Equal(n0, one0)  y = {_SQUEEZED}", "float[1, 3] x", [{}]),
        "if_squeeze_unsqueeze": (
            f"c = Equal(n, one)  i = {_SQUEEZED}  y = Unsqueeze(i, one)",
            _UNIT,
        ),
        "if_sum": (
            f"c = Greater(n, two)  y = {_if('r = ReduceSum<keepdims=0>(x, first)', 'q = Neg(x)')}",
        ),
    },
    "If of a symbolic dim": {
        "if_greater": (f"c = Greater(n, two)  y = {_OTHERWISE}",),
        "if_greater_scalar": (f"c = Greater(n0, two0)  y = {_OTHERWISE}",),
        "if_and": (f"a = Greater(n, one)  b = Less(m, three)  c = And(a, b)  y = {_OTHERWISE}",),
        "if_extents": (
            f"c = Greater(n, two)  y = {_if('r = Concat<axis=0>(x, x)', 'q = Relu(x)')}",
        ),
    },
    "Squeeze": {
        "squeeze_computed_axes": ("a = Sub(n, one)  y = Squeeze(x, a)", _UNIT),
        "squeeze_axes_of_extents": ("a = Sub(k, one)  y = Squeeze(x, a)", f"{_UNIT}, float[1] w"),
        "squeeze_symbolic": ("y = Squeeze(x, first)", _X, named(n=(1, 1), m=(3, 5))),
        "squeeze_symbolic_not_1": ("y = Squeeze(x, first)", _X, named(n=(1, 2), m=(3, 5))),
        "squeeze_all": ("y = Squeeze(x)", "float[1, m, 1] x", named(m=(3, 2))),
        "unsqueeze_computed_axes": ("a = Sub(n, n)  y = Unsqueeze(x, a)",),
    },
    "Equal of shapes": {
        "equal_constant": ("y = Equal(n, two)", _X, _SIZES, "bool[] y"),
        "equal_shapes": ("y = Equal(s, t)", f"{_X}, float[n, m] w", _SIZES, "bool[] y"),
        "equal_shapes_differ": ("y = Equal(s, t)", f"{_X}, float[k, m] w", _OF_THREE, "bool[] y"),
        "equal_extents": ("y = Equal(n, m)", _X, _SIZES, "bool[] y"),
        "equal_where": ("c = Equal(s, pair)  e = Where(c, s, pair)  y = Expand(x, e)",),
    },
    "Slice by extents": {
        "slice_other_dim": ("y = Slice(x, first, k, first)", f"{_X}, float[k] w", _OF_THREE),
        "slice_beyond": ("e = Mul(n, two)  y = Slice(x, first, e, first)",),
        "slice_to_end": ("y = Slice(x, one, most, one)", _X, _LARGER),
        "slice_half": ("h = Div(m, two)  y = Slice(x, first, h, one)", _X, _LARGER),
        "slice_from_end": ("y = Slice(x, last, most, one)",),
        "slice_step": ("y = Slice(x, first, most, one, two)",),
        "slice_back": ("y = Slice(x, last, least, one, last)",),
        "slice_one_less": ("e = Sub(m, one)  y = Slice(x, first, e, one)", _X, _LARGER),
    },
    "Expand": {
        "expand_to_shape": ("y = Expand(x, t)", f"{_UNIT}, float[n, m] w"),
        "expand_between_symbols": (
            "y = Expand(x, t)",
            f"{_X}, float[k, m] w",
            named(n=(1, 3, 2, 1), m=(3, 3, 3, 3), k=(4, 1, 2, 1)),
        ),
        "expand_to_one": ("e = Concat<axis=0>(one, m)  y = Expand(x, e)",),
        "expand_at_run_time": (
            "i = Mod(w, two)  z = Gather(s, i)  y = Expand(x, z)",
            f"{_X}, int64[2] w",
            [
                {"n": 1, "m": 3},
            ],
        ),
    },
    "Reshape by extents": {
        "reshape_gather": ("r = Gather(s, turned)  y = Reshape(x, r)",),
        "reshape_div": (
            "h = Div(n, two)  r = Concat<axis=0>(h, last)  y = Reshape(x, r)",
            _X,
            named(n=(2, 4, 6), m=(3, 1, 2)),
        ),
        "reshape_prod": ("r = ReduceProd(s)  y = Reshape(x, r)",),
        "reshape_cast": (
            "c = Cast<to=6>(s)  p = ReduceProd(c)  r = Cast<to=7>(p)  y = Reshape(x, r)",
        ),
        "reshape_size": ("p = Size(x)  r = Unsqueeze(p, zero)  y = Reshape(x, r)",),
        "reshape_float": (
            "f = Cast<to=1>(n)  h = Mul(f, half)  g = Floor(h)  i = Cast<to=7>(g)  "
            "r = Concat<axis=0>(i, last)  y = Reshape(x, r)",
            _X,
            named(n=(2, 4), m=(3, 1)),
        ),
        "flatten": ("y = Flatten<axis=2>(x)", "float[n, 3, m] x"),
    },
    "Range of an extent": {
        "range": ("a = Range(zero, m0, one0)  f = Cast<to=1>(a)  y = Add(x, f)",),
        "range_gather": (
            "a = Range(zero, m0, one0)  g = Gather(w, a)  y = Add(x, g)",
            f"{_X}, float[8] w",
        ),
        "range_of_rows": (
            "a = Range(zero, n0, one0)  u = Unsqueeze(a, one)  f = Cast<to=1>(u)  y = Add(x, f)",
        ),
    },
    "Parameters from extents": {
        "pad": ("z = Sub(n, n)  p = Concat<axis=0>(z, n, one, z)  y = Pad(x, p)",),
        "pad_to_even": (
            "h = Mod(m, two)  p = Concat<axis=0>(first, first, first, h)  y = Pad(x, p)",
        ),
        "pad_reflect": (
            "h = Sub(m, one)  p = Concat<axis=0>(first, first, first, h)  "
            'y = Pad<mode="reflect">(x, p)',
        ),
        "split": (
            "h = Div(m, two)  r = Sub(m, h)  p = Concat<axis=0>(h, r)  "
            "a, b = Split<axis=1>(x, p)  y = Concat<axis=1>(b, a)",
            _X,
            _LARGER,
        ),
        "top_k": ("h = Div(m, two)  k = Add(h, one)  y, i = TopK(x, k)",),
        "one_hot": ("a = Abs(x)  i = Cast<to=7>(a)  y = OneHot(i, m, levels)", _X, _LARGER),
        "tile": ("p = Concat<axis=0>(n, one)  y = Tile(x, p)",),
        "max": ("p = Max(n, two)  r = Concat<axis=0>(p, m)  y = ConstantOfShape(r)",),
        "min": ("p = Min(n, two)  r = Concat<axis=0>(p, m)  y = ConstantOfShape(r)",),
        "mod": ("p = Mod(n, two)  y = Slice(x, p, most, first)", _X, _LARGER),
        "sub": ("p = Sub(n, one)  y = Slice(x, p, n, first)",),
        "constant_of_extent": ("y = ConstantOfShape(n)",),
        "constant_of_shape": ("c = ConstantOfShape<value = float[1] {2}>(s)  y = Mul(x, c)",),
        "cum_sum": ("a = Sub(n0, n0)  y = CumSum(x, a)",),
    },
    "Resize to extents": {
        "resize_sizes": (
            "i = Slice(s, first, two)  o = Slice(t, two, most)  z = Concat<axis=0>(i, o)  "
            "y = Resize(x, , , z)",
            "float[1, 2, n, m] x, float[1, 1, k, 5] w",
            _OF_THREE,
        ),
        "resize_batch": (
            "i = Slice(s, first, two)  o = Slice(t, two, most)  z = Concat<axis=0>(i, o)  "
            "y = Resize(x, , , z)",
            "float[n, 2, 3, 4] x, float[1, 1, 6, 8] w",
            named(n=(2, 1)),
        ),
        "resize_doubled": (
            "i = Slice(s, first, two)  o = Slice(s, two, most)  d = Mul(o, two)  "
            'z = Concat<axis=0>(i, d)  y = Resize<mode="linear">(x, , , z)',
            "float[1, 2, n, m] x",
        ),
    },
    "Loop and Scan": {
        "loop": (f"c = Equal(one0, one0)  y = Loop<{_ADD}>(two0, c, x)",),
        "loop_extent": (f"c = Equal(one0, one0)  y = Loop<{_ADD}>(n0, c, x)",),
        "scan": (f"r = ConstantOfShape(m)  f, y = Scan<num_scan_inputs=1, {_SUM}>(r, x)",),
    },
    "From elements": {
        "non_zero": ("y = NonZero(x)", _X, _SIZES, "int64[] y"),
        "gather_nd": ("i = NonZero(x)  j = Transpose(i)  y = GatherND(x, j)",),
        "compress": (
            "p = Less(x, half)  f = Flatten<axis=0>(p)  r = Squeeze(f, first)  y = Compress(x, r)",
        ),
        "reshape_at_run_time": (
            "i = Mod(w, two)  z = Gather(s, i)  y = Reshape(x, z)",
            f"{_X}, int64[2] w",
            [
                {"n": 2, "m": 2},
            ],
        ),
        "if_at_run_time": (
            f"a = ReduceSum<keepdims=0>(x)  c = Greater(a, half)  y = {_OTHERWISE}",
        ),
        "if_at_run_time_of_ranks": (
            "a = ReduceSum<keepdims=0>(x)  c = Greater(a, half)  "
            f"y = {_if('r = ReduceSum<keepdims=0>(x, first)', 'q = Relu(x)')}",
        ),
    },
}


def _model(
    subject: str,
    nodes: str,
    inputs: str = _X,
    sizes: Sequence[Sizes] = _SIZES,
    output: str = "float[] y",
) -> Model:
    prelude = (
        "s = Shape(x)  n = Gather(s, first)  m = Gather(s, last)  "
        "n0 = Gather(s, zero)  m0 = Squeeze(m)"
    )
    if " w" in inputs:
        prelude += "  t = Shape(w)  k = Gather(t, first)"
    text = f"({inputs}) => ({output}) <{_CONSTANTS}> {{ {prelude}  {nodes} }}"
    kinds = [value.type.tensor_type for value in text_model(text).graph.input]
    return Model(
        subject,
        text,
        tuple(tuple(dim.dim_param or dim.dim_value for dim in k.shape.dim) for k in kinds),
        sizes,
        tuple(helper.tensor_dtype_to_np_dtype(kind.elem_type).name for kind in kinds),
        (Form.BY_HAND,),
    )


def onnx_models() -> Iterator[tuple[str, Model]]:
    """All, by name."""
    for subject, graphs in _GRAPHS.items():
        for name, arguments in graphs.items():
            yield name, _model(subject, *arguments)
