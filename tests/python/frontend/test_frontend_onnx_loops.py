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
"""Loop and Scan of ``tvm_fixes.frontend.onnx`` against ONNX Runtime."""

import io
import itertools
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
import torch
import tvm
import tvm.testing
from onnx import parser
from tvm import relax, tirx
from tvm.relax.frontend import onnx as tvm_onnx

import tvm_fixes
from helpers.grids import few, sample
from helpers.onnx_graphs import assert_rejected, imported_and_run, normal, onnx_runtime
from helpers.relax_modules import cpu
from tvm_fixes import verify
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support import switches


def graph(text: str, opset: int = 18) -> onnx.ModelProto:
    """The model of a graph in ONNX's own syntax."""
    return parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}]> {text}')


def assert_as_onnx_runtime(
    model: onnx.ModelProto, *inputs: np.ndarray, others: Sequence[Sequence[np.ndarray]] = ()
) -> tvm.IRModule:
    """Assert equality with ONNX Runtime for `inputs` and, in the same program, `others`."""
    mod = from_onnx(model)
    assert not verify(mod).errors
    vm = relax.VirtualMachine(
        relax.build(mod, cpu(), relax_pipeline=tvm_fixes.pipeline()), tvm.cpu()
    )
    for arrays in (inputs, *others):
        result = vm["main"](*[tvm.runtime.tensor(array) for array in arrays])
        results = result if len(model.graph.output) > 1 else [result]
        for got, expected in zip(results, onnx_runtime(model, *arrays), strict=True):
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-6)
    return mod


def dims(ty: relax.TensorType) -> list[int | str]:
    """The dims of a tensor type, symbolic ones by name."""
    return [int(d) if isinstance(d, tirx.IntImm) else str(d) for d in ty.shape.values]


def functions(mod: tvm.IRModule) -> int:
    return len(mod.functions)


PREFIX_SUMS = """
    main (float[n, 3] x{inputs}) => (float[3] total, float[m, 3] sums) {{
        {before}
        zero = Constant<value = float[3] {{0, 0, 0}}>()
        total, sums = Loop (trips, {condition}, zero) <body = turn
            (int64 i, bool go, float[3] sum) => (bool go_on, float[3] next, float[3] given) {{
                row = Gather<axis = 0>(x, i)
                next = Add(sum, row)
                given = Mul(next, next)
                {after}
            }}
        >
    }}
"""
FOREVER = "go_on = Identity(go)"


@few(1)
@pytest.mark.parametrize("trips", (1, 4, 100))
def test_known_trip_count(trips: int) -> None:
    before = f"trips = Constant<value = int64 {{{trips}}}>()"
    model = graph(PREFIX_SUMS.format(inputs="", before=before, condition="", after=FOREVER))
    x = normal(trips, 3)
    mod = assert_as_onnx_runtime(model, x, others=[[normal(trips + 2, 3)]])
    assert (functions(mod) == 1) == (trips <= 64)


def test_trip_count_of_a_dimension() -> None:
    before = "shape = Shape<end = 1>(x) trips = Squeeze(shape)"
    model = graph(PREFIX_SUMS.format(inputs="", before=before, condition="", after=FOREVER))
    mod = assert_as_onnx_runtime(
        model, normal(5, 3), others=[[normal(count, 3)] for count in (0, 1, 2, 1000)]
    )
    sums = mod["main"].ret_ty.fields[1]
    assert dims(sums) == ["n", 3]


def test_trip_count_of_an_input() -> None:
    model = graph(
        PREFIX_SUMS.format(inputs=", int64 trips", before="", condition="", after=FOREVER)
    )
    x = normal(9, 3)
    trips = [np.array(count) for count in (9, 1, 0)]
    assert_as_onnx_runtime(model, x, trips[0], others=[[x, count] for count in trips[1:]])


@pytest.mark.parametrize("condition", ("true", "false"))
def test_known_condition(condition: str) -> None:
    before = f"""trips = Constant<value = int64 {{3}}>()
        one = Constant<value = int64 {{1}}>()
        start = Constant<value = bool {{{int(condition == "true")}}}>()"""
    after = "go_on = Less(i, one)"
    model = graph(PREFIX_SUMS.format(inputs="", before=before, condition="start", after=after))
    assert_as_onnx_runtime(model, normal(3, 3))


def test_condition_that_is_passed_through() -> None:
    """The condition decides whether the loop runs at all."""
    model = graph(
        PREFIX_SUMS.format(
            inputs=", int64 trips, bool start", before="", condition="start", after=FOREVER
        )
    )
    x, trips = normal(9, 3), np.array(9)
    assert_as_onnx_runtime(model, x, trips, np.array(True), others=[[x, trips, np.array(False)]])


HALVE = """
    main (float[n] x{inputs}) => (float[n] y, int64 turns) {{
        {before}
        half = Constant<value = float {{0.5}}>()
        one = Constant<value = int64 {{1}}>()
        none = Constant<value = int64 {{0}}>()
        y, turns = Loop ({trips}, {condition}, x, none) <body = turn
            (int64 i, bool go, float[n] v, int64 count) => (bool go_on, float[n] w, int64 more) {{
                w = Mul(v, half)
                more = Add(count, one)
                most = ReduceMax<keepdims = 0>(w)
                go_on = Greater(most, half)
            }}
        >
    }}
"""


def test_computed_condition() -> None:
    """Without a trip count, with one, and with a condition that is false from the start."""
    x = np.abs(normal(4)) + 1
    plain = HALVE.format(inputs="", before="", trips="", condition="")
    assert_as_onnx_runtime(graph(plain), x, others=[[1e4 * x]])
    limited = HALVE.format(
        inputs="",
        before="most_turns = Constant<value = int64 {2}>()",
        trips="most_turns",
        condition="",
    )
    assert_as_onnx_runtime(graph(limited), 1e4 * x, others=[[x / 10]])
    given = HALVE.format(inputs=", bool start", before="", trips="", condition="start")
    assert_as_onnx_runtime(graph(given), x, np.array(False), others=[[x, np.array(True)]])


def test_carried_tensor_that_grows() -> None:
    model = graph("""
        main (float[2, n] x) => (float[m, n] y) {
            trips = Constant<value = int64 {3}>()
            y = Loop (trips, , x) <body = turn
                (int64 i, bool go, float[k, n] v) => (bool go_on, float[l, n] w) {
                    go_on = Identity(go)
                    w = Concat<axis = 0>(v, v)
                }
            >
        }
    """)
    mod = assert_as_onnx_runtime(model, normal(2, 3))
    assert dims(mod["main"].ret_ty) == [16, "n"]


def test_values_that_are_known_in_each_iteration() -> None:
    """Axes and extents that depend on the iteration number."""
    model = graph("""
        main (float[2, 3, 4] x) => (float[k] y) {
            trips = Constant<value = int64 {3}>()
            one = Constant<value = int64[1] {1}>()
            start = Constant<value = int64[1] {1}>()
            y, last = Loop (trips, , x, start) <body = turn
                (int64 i, bool go, float[a] v, int64[1] extent)
                => (bool go_on, float[b] w, int64[1] more) {
                    go_on = Identity(go)
                    zero = Constant<value = int64[1] {0}>()
                    axis = Unsqueeze(i, zero)
                    w = Slice(v, zero, extent, axis)
                    more = Add(extent, one)
                }
            >
        }
    """)
    mod = assert_as_onnx_runtime(model, normal(2, 3, 4))
    assert dims(mod["main"].ret_ty) == [1, 2, 3]


@pytest.mark.parametrize("trips", (2, 70))
def test_nested_with_an_if(trips: int) -> None:
    model = graph(f"""
        main (float[n] x) => (float[n] y, float[t, s, n] all) {{
            trips = Constant<value = int64 {{{trips}}}>()
            shape = Shape(x)
            steps = Squeeze(shape)
            y, all = Loop (trips, , x) <body = outer
                (int64 i, bool go, float[n] v) => (bool go_on, float[n] w, float[s, n] rows) {{
                    go_on = Identity(go)
                    w, rows = Loop (steps, , v) <body = inner
                        (int64 j, bool run, float[n] a) => (bool run_on, float[n] c, float[n] d) {{
                            run_on = Identity(run)
                            total = ReduceSum<keepdims = 0>(a)
                            half = Constant<value = float {{0.5}}>()
                            less = Mul(a, half)
                            zero = Constant<value = float {{0}}>()
                            is_more = Greater(total, zero)
                            b = If (is_more) <
                                then_branch = then () => (float[n] p) {{ p = Sub(less, x) }},
                                else_branch = other () => (float[n] q) {{
                                    r = Abs(x)
                                    q = Add(less, r)
                                }}
                            >
                            c = Tanh(b)
                            d = Add(c, v)
                        }}
                    >
                }}
            >
        }}
    """)
    assert_as_onnx_runtime(model, normal(3), others=[[normal(12, seed=1)]])


def test_if_in_an_unrolled_loop() -> None:
    model = graph("""
        main (float[n] x) => (float[n] y) {
            trips = Constant<value = int64 {3}>()
            y = Loop (trips, , x) <body = turn
                (int64 i, bool go, float[n] v) => (bool go_on, float[n] w) {
                    go_on = Identity(go)
                    total = ReduceSum<keepdims = 0>(v)
                    zero = Constant<value = float {0}>()
                    is_more = Greater(total, zero)
                    w = If (is_more) <
                        then_branch = then () => (float[n] p) { p = Sub(v, x) },
                        else_branch = other () => (float[n] q) { q = Add(v, x) }
                    >
                }
            >
        }
    """)
    assert_as_onnx_runtime(model, normal(3), others=[[-normal(3)]])


SCAN = """
    main (float[{batch}{first}] x, float[{batch}{second}] z, float[{batch}3] h)
    => (float[{batch}3] last, float[{rows}] sums, float[{columns}] products) {{
        last, sums, products = Scan ({lengths}h, x, z) <num_scan_inputs = 2{attributes}, body = turn
            (float[3] state, float[3] a, float[3] b) => (float[3] next, float[3] s, float[3] p) {{
                t = Add(state, a)
                next = Tanh(t)
                s = Add(next, b)
                p = Mul(next, b)
            }}
        >
    }}
"""


def scan_case(
    opset: int,
    count: int,
    directions: tuple[int, int],
    axes: tuple[int, int],
    out_directions: tuple[int, int],
    out_axes: tuple[int, int],
    symbolic: bool,
) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    def shape(axis: int, extent: object) -> list[object]:
        return [3, extent] if axis in (1, -1) else [extent, 3]

    steps = "n" if symbolic else count
    listed = lambda values: ", ".join(map(str, values))  # noqa: E731
    if opset == 8:
        attributes = f", directions = [{listed(directions)}]"
        text = SCAN.format(
            batch="2, ", first=f"{steps}, 3", second=f"{steps}, 3", rows="2, k, 3",
            columns="2, l, 3", lengths=", ", attributes=attributes,
        )  # fmt: skip
        return graph(text, 8), [normal(2, count, 3), normal(2, count, 3, seed=1), normal(2, 3)]
    attributes = "".join(
        f", {name} = [{listed(values)}]"
        for name, values in {
            "scan_input_directions": directions,
            "scan_input_axes": axes,
            "scan_output_directions": out_directions,
            "scan_output_axes": out_axes,
        }.items()
    )
    text = SCAN.format(
        batch="",
        first=listed(shape(axes[0], steps)),
        second=listed(shape(axes[1], steps)),
        rows=listed(shape(out_axes[0], "k")),
        columns=listed(shape(out_axes[1], "l")),
        lengths="",
        attributes=attributes,
    )
    inputs = [normal(*shape(axis, count), seed=axis) for axis in (axes[0] % 2, axes[1] % 2)]
    return graph(text, opset), [*inputs, normal(3, seed=5)]


PAIRS = list(itertools.product((0, 1), repeat=2))
SCANS = [
    (opset, count, directions, axes, PAIRS[(index + 1) % 4], PAIRS[(index + 2) % 4], symbolic)
    for index, (opset, (count, symbolic), directions, axes) in enumerate(
        itertools.product(
            (8, 9, 11, 18), ((1, False), (4, False), (12, False), (11, True)), PAIRS,
            [*PAIRS, (-1, -2)],
        )
    )
    if opset > 8 or axes == (0, 0)
]  # fmt: skip


@pytest.mark.parametrize("case", sample(SCANS, 3), ids=str)
def test_scan(case) -> None:
    model, inputs = scan_case(*case)
    assert_as_onnx_runtime(model, *inputs)


DISTANCES = """
    main (float[n, 3] x, float[{rows}] y, float[{points}] w) => (float[n, 3] last, float[{shape}] d)
    <float[3] scale = {{0.5, 2, 1.5}}> {{
        b = Mul(x, scale)
        last, d = Scan (x, y, w) <num_scan_inputs = 2{attributes}, body = distances
            (float[n, 3] state, float[3] point, float weight)
            => (float[n, 3] next, float[n] total) {{
                next = Identity(state)
                t = Sub(b, point)
                u = Mul(weight, t)
                {body}
            }}
        >
    }}
"""
# Bodies by opset: reductions have their axes as an attribute, or as an operand.
SUMS = {
    9: "total = ReduceSumSquare <axes = [-1], keepdims = 0> (u)",
    11: "v = ReduceMax <axes=[1]> (u) z = Add(v, u) total = ReduceMean <axes=[1], keepdims=0> (z)",
    13: "a = Constant <value = int64[1] {1}> () total = ReduceSum <keepdims = 0> (u, a)",
    18: "a = Constant <value = int64[1] {-1}> () total = ReduceL2 <keepdims = 0> (u, a)",
}  # fmt: skip


@few(3)
@pytest.mark.parametrize("opset", SUMS)
@pytest.mark.parametrize("is_turned", [False, True])
def test_scan_without_recurrence_is_no_loop(opset: int, is_turned: bool) -> None:
    """The rows of a table of distances are computed at once."""
    attributes = (
        ", scan_input_axes = [1, 0], scan_input_directions = [1, 1], scan_output_axes = [1], "
        "scan_output_directions = [1]"
    )
    text = DISTANCES.format(
        rows="3, m" if is_turned else "m, 3",
        points="m",
        shape="n, m" if is_turned else "m, n",
        attributes=attributes if is_turned else "",
        body=SUMS[opset],
    )
    y = normal(5, 3, seed=1)
    inputs = [normal(4, 3), y.T.copy() if is_turned else y, normal(5, seed=2)]
    mod = assert_as_onnx_runtime(graph(text, opset), *inputs)
    assert len(mod.functions) == 1


@pytest.mark.parametrize(
    "change",
    [
        ("next = Identity(state)", "next = Tanh(state)"),
        ("next = Identity(state)", "next = Add(state, point)"),
        ("u = Mul(weight, t)", "s = Softmax(t) u = Mul(weight, s)"),
    ],
)
def test_scan_with_recurrence_is_a_loop(change: tuple[str, str]) -> None:
    text = DISTANCES.format(rows="m, 3", points="m", shape="m, n", attributes="", body=SUMS[18])
    assert change[0] in text
    mod = assert_as_onnx_runtime(
        graph(text.replace(*change)), normal(4, 3), normal(5, 3, seed=1), normal(5, seed=2)
    )
    assert len(mod.functions) > 1


class Scripted(torch.nn.Module):
    """PyTorch loops over extents known only at run time."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = torch.zeros_like(x[0])
        for i in range(x.size(0)):
            total = total * 0.5 + x[i]
        y = total
        while bool((y * y).sum() > 1.0):
            y = y * 0.5
        return total, y


@pytest.mark.filterwarnings("ignore:.*")
def test_scripted_module() -> None:
    file = io.BytesIO()
    x = torch.from_numpy(normal(4, 3))
    scripted = torch.jit.script(Scripted())
    torch.onnx.export(
        scripted, (x,), file, input_names=["x"], dynamic_axes={"x": {0: "n"}}, dynamo=False
    )
    model = onnx.load_from_string(file.getvalue())
    assert {"Loop"} <= {node.op_type for node in model.graph.node}
    assert_as_onnx_runtime(model, x.numpy(), others=[[10 * normal(17, 3)]])
    results = imported_and_run(from_onnx, model, x.numpy())
    for got, expected in zip(results, scripted(x), strict=True):
        np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_what_is_rejected() -> None:
    growing = graph("""
        main (float[2, n] x, int64 trips) => (float[m, n] y) {
            y = Loop (trips, , x) <body = turn
                (int64 i, bool go, float[k, n] v) => (bool go_on, float[l, n] w) {
                    go_on = Identity(go)
                    w = Concat<axis = 0>(v, v)
                }
            >
        }
    """)
    assert_rejected(from_onnx, growing, "output w is of type")
    before = "trips = Constant<value = int64 {3}>() zero_f = Constant<value = float {0}>()"
    after = "most = ReduceMax<keepdims = 0>(next) go_on = Greater(most, zero_f)"
    model = graph(PREFIX_SUMS.format(inputs="", before=before, condition="", after=after))
    assert_rejected(from_onnx, model, "number of scan outputs is 1; expected none if the cond")


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = scan_case(9, 2, (0, 0), (0, 0), (0, 0), (0, 0), False)
    with switches.collect() as acted:
        from_onnx(model)
    assert acted == {"onnx-loops"}
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "onnx-loops")
    for importer in (from_onnx, tvm_onnx.from_onnx):
        with pytest.raises(tvm.error.OpNotImplemented, match="Scan"):
            importer(model)


if __name__ == "__main__":
    tvm.testing.main()
