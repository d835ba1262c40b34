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
"""FRelaxInferLayout of the convolutions and transposed convolutions."""

import re
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.tirx import IndexMap

from helpers.conv_cases import Case
from helpers.grids import batched, few, is_full
from helpers.relax_modules import build, call, calls, count, cpu, integers, merge, tensor
from tvm_fixes.support import switches

pytestmark = pytest.mark.native


@dataclass(frozen=True)
class Operator:
    """One of the six operators; the layouts are its defaults."""

    spatial: str
    transposed: bool

    @property
    def name(self) -> str:
        return f"relax.nn.{self}"

    def __str__(self) -> str:
        return f"conv{len(self.spatial)}d" + ("_transpose" if self.transposed else "")

    @property
    def data_layout(self) -> str:
        return "NC" + self.spatial

    @property
    def kernel_layout(self) -> str:
        return ("IO" if self.transposed else "OI") + self.spatial

    @property
    def infer_layout_fix(self) -> str:
        return "conv-transpose-infer-layout" if self.transposed else "conv-infer-layout"

    def layout(self, pattern: str) -> str:
        """`pattern` with the spatial axes in the place of ``*``."""
        return pattern.replace("*", self.spatial)

    def case(self, channels=8, out_channels=8, groups=1, layouts=None, **changed) -> Case:
        """A call on 3 elements along each spatial axis with a kernel of 2."""
        rank = len(self.spatial)
        data, kernel, out = layouts or (self.data_layout, self.kernel_layout, self.data_layout)
        each = {"stride": 1, "output_padding": 0, "dilation": 1, "extent": 3, "kernel": 2}
        fields = {name: (value,) * rank for name, value in each.items()}
        fields |= {"padding": (0,) * (2 * rank), "transposed": self.transposed}
        fields |= {"channels": channels, "group_out": out_channels // groups, "groups": groups}
        return Case(data, kernel, out, **fields | changed)


OPERATORS = [Operator(spatial, t) for t in (False, True) for spatial in ("W", "HW", "DHW")]
CONV2D, CONV2D_TRANSPOSE = OPERATORS[1], OPERATORS[4]
each_operator = pytest.mark.parametrize("op", OPERATORS if is_full() else OPERATORS[::2], ids=str)
in_2d = pytest.mark.parametrize("op", [CONV2D, CONV2D_TRANSPOSE], ids=str)


def operator_of(case: Case) -> Operator:
    return Operator(case.axes, case.transposed)


def layouts_of(case: Case) -> tuple[str, str, str]:
    return case.data_layout, case.kernel_layout, case.out_layout


def types(case: Case, symbols: dict[str, tvm.tirx.Var] | None = None) -> list[relax.TensorType]:
    """The types of data and kernel; `symbols` replace N, C and spatial extents, or I and O."""
    symbols = symbols or {}
    data, kernel = case.shapes()
    of_kernel = {axis: symbols[axis] for axis in "IO" if axis in symbols}
    return [
        tensor(*(known.get(axis, extent) for axis, extent in zip(names, shape, strict=True)))
        for known, names, shape in (
            (symbols, case.data_layout, data),
            (of_kernel, case.kernel_layout, kernel),
        )
    ]


def sequence(chain: list[Case], symbols: dict[str, tvm.tirx.Var] | None = None) -> tvm.IRModule:
    """A module in which each call's data is the result of the one before."""

    def emit(builder, x, *weights):
        for case, weight in zip(chain, weights, strict=True):
            x = builder.emit(relax.op.nn.relu(builder.emit(case.call(x, weight))))
        return x

    kernels = {f"w{i}": types(case, symbols)[1] for i, case in enumerate(chain)}
    return build({"x": types(chain[0], symbols)[0]} | kernels, emit)


def arguments(chain: list[Case]) -> list[np.ndarray]:
    """The arguments of the module of :func:`sequence`."""
    shapes = [chain[0].shapes()[0], *(case.shapes()[1] for case in chain)]
    return [integers(*shape, seed=seed) for seed, shape in enumerate(shapes)]


def convert(mod: tvm.IRModule, desired: dict[str, list[str]]) -> tvm.IRModule:
    """Run ConvertLayout and assert the invariants of every result."""
    after = relax.transform.ConvertLayout(desired)(mod)
    assert relax.analysis.check_well_formed(after)
    tvm.ir.assert_structural_equal(after["main"].ret_ty, mod["main"].ret_ty, map_free_vars=True)
    return after


def layouts(mod: tvm.IRModule, op: Operator, index: int = 0) -> tuple[str, str, str]:
    """The layouts of a call of `op`: data, kernel, out."""
    attrs = calls(mod, op.name)[index].attrs
    return attrs.data_layout, attrs.kernel_layout, attrs.out_layout


def asked(request: list[str]) -> tuple[str, str, str]:
    """The full request for two or three desired layouts."""
    return (*request[:2], request[2] if len(request) == 3 else request[0])


def check_values(cases: list[tuple[tvm.IRModule, tvm.IRModule, list[np.ndarray]]]) -> None:
    """Run modules before and after their conversion and compare."""
    versions: dict[str, tvm.IRModule] = {}
    names: dict[int, str] = {}
    for i, (before, after, _) in enumerate(cases):
        # Several cases may start from one module.
        names.setdefault(id(before), f"before{i}")
        versions |= {names[id(before)]: before, f"after{i}": after}
    vm = relax.VirtualMachine(relax.build(merge(versions), cpu()), tvm.cpu())
    for i, (before, _, arguments) in enumerate(cases):
        expected, got = (call(vm, name, *arguments) for name in (names[id(before)], f"after{i}"))
        np.testing.assert_array_equal(got, expected, err_msg=str(before))


class TestListed:
    @few(1)
    @each_operator
    def test_plain(self, op):
        case = op.case(stride=(2,) * len(op.spatial))
        before = sequence([case])
        cases = []
        for kernel in ("IO*", "OI*", "*IO", "*OI", "O*I"):
            for out in ((), ("NC*",), ("N*C",), ("C*N",)):
                desired = [op.layout(pattern) for pattern in ("N*C", kernel, *out)]
                after = convert(before, {op.name: desired})
                assert layouts(after, op) == asked(desired)
                cases.append((before, after, arguments([case])))
        check_values(cases[::5])

    @in_2d
    def test_every_order_of_axes(self, op):
        for layout in map("".join, permutations(op.data_layout)):
            after = convert(sequence([op.case()]), {op.name: [layout, op.kernel_layout]})
            assert layouts(after, op) == (layout, op.kernel_layout, layout)

    @few(1)
    @each_operator
    def test_packed(self, op):
        case = op.case(16, 32)
        before = sequence([case])
        packed = (
            ("NC*4c", f"{op.kernel_layout}4i4o"),
            ("NC*8c", f"{op.kernel_layout}8i8o"),
            ("NC*16c", f"{op.kernel_layout}16i16o", "NC*32c"),
            ("NC*8c", "OI*8i4o", "NC*"),
            ("NC*", op.kernel_layout, "NC*4c"),
            ("NC*4c", op.kernel_layout),
            ("NC*4c", "O*I4o", "N*C"),
            ("NC*", "*IO4i4o", "NC*"),
            ("N*C4c", "*OI2o", "CN*2n"),
        )
        cases = []
        for patterns in packed:
            desired = [op.layout(pattern) for pattern in patterns]
            after = convert(before, {op.name: desired})
            assert layouts(after, op) == asked(desired)
            cases.append((before, after, arguments([case])))
        check_values(cases[::3])

    def test_expected(self):
        pack_data = IndexMap.from_func(
            lambda n, c, h, w: (n, c // 4, h, w, c % 4), index_dtype="int32"
        )
        pack_kernel = IndexMap.from_func(
            lambda i, o, h, w: (i // 4, o // 4, h, w, i % 4, o % 4), index_dtype="int32"
        )

        @I.ir_module
        class Before:
            @R.function
            def main(
                x: R.Tensor(("n", 8, "h", 6), "float32"), w: R.Tensor((8, 4, 3, 3), "float32")
            ) -> R.Tensor(("n", 8, "h + 2", 8), "float32"):
                with R.dataflow():
                    gv = R.nn.conv2d_transpose(x, w, groups=2)
                    R.output(gv)
                return gv

        @I.ir_module
        class Expected:
            @R.function
            def main(
                x: R.Tensor(("n", 8, "h", 6), "float32"), w: R.Tensor((8, 4, 3, 3), "float32")
            ) -> R.Tensor(("n", 8, "h + 2", 8), "float32"):
                with R.dataflow():
                    lv = R.layout_transform(x, index_map=pack_data)
                    lv1 = R.layout_transform(w, index_map=pack_kernel)
                    lv2 = R.nn.conv2d_transpose(
                        lv,
                        lv1,
                        groups=2,
                        data_layout="NCHW4c",
                        kernel_layout="IOHW4i4o",
                        out_layout="NHWC",
                    )
                    gv = R.permute_dims(lv2, [0, 3, 1, 2])
                    R.output(gv)
                return gv

        desired = {"relax.nn.conv2d_transpose": ["NCHW4c", "IOHW4i4o", "NHWC"]}
        tvm.ir.assert_structural_equal(convert(Before, desired), Expected)

    @each_operator
    @pytest.mark.parametrize("patterns", [("NC*4c", "OI*4i2o"), ("C*N", "*IO", "NC*")])
    def test_from_layouts_of_the_module(self, op, patterns):
        present = tuple(map(op.layout, ("N*C", "*IO", "*NC")))
        desired = [op.layout(pattern) for pattern in patterns]
        after = convert(sequence([op.case(layouts=present)]), {op.name: desired})
        assert layouts(after, op) == asked(desired)

    @few(1)
    @each_operator
    def test_dynamic_batch_and_extents(self, op):
        symbols = {axis: tvm.tirx.Var(axis.lower(), "int64") for axis in "N" + op.spatial}
        case = op.case(stride=(2,) * len(op.spatial))
        before = sequence([case], symbols)
        cases = []
        for patterns in (("N*C", "*OI"), ("NC*4c", "OI*4i4o")):
            desired = [op.layout(pattern) for pattern in patterns]
            after = convert(before, {op.name: desired})
            assert layouts(after, op) == asked(desired)
            cases.append((before, after, arguments([case])))
        check_values(cases)

    @in_2d
    def test_groups_of_whole_blocks(self, op):
        case = op.case(16, 32, groups=4)
        before = sequence([case])
        after = convert(before, {op.name: ["NCHW4c", "OIHW4i8o", "NCHW8c"]})
        assert layouts(after, op) == ("NCHW4c", "OIHW4i8o", "NCHW8c")
        check_values([(before, after, arguments([case]))])

    def test_layouts_by_call(self):
        def first_alone(found):
            packed = ["NCHW4c", "OIHW4i4o"]
            return {CONV2D.name: packed} if found.args[-1].name == "w0" else {}

        before = sequence([CONV2D.case(), CONV2D.case()])
        after = relax.transform.ConvertLayout({}, first_alone)(before)
        assert relax.analysis.check_well_formed(after)
        assert layouts(after, CONV2D, 0) == ("NCHW4c", "OIHW4i4o", "NCHW4c")
        assert layouts(after, CONV2D, 1) == ("NCHW", "OIHW", "NCHW")


N, C = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("c", "int64")
NOT_POSSIBLE = {
    "channels are no multiple": ({"channels": 6}, ("NC*4c", "OI*")),
    "kernel channels are not a multiple": ({"channels": 6}, ("NC*", "OI*4i")),
    "result channels are not a multiple": ({"out_channels": 6}, ("NC*4c", "OI*4i")),
    "only the result is packed": ({"out_channels": 6}, ("NC*", "OI*", "NC*4c")),
    "a block would hold two groups": ({"groups": 4}, ("NC*4c", "OI*2i2o")),
    "a block of the kernel would hold two groups": ({"groups": 4}, ("NC*2c", "OI*4o4i")),
    "a block of the result would hold two groups": (
        {"channels": 16, "groups": 4},
        ("NC*4c", "OI*2o", "NC*4c"),
    ),
    "depthwise": ({"groups": 8}, ("NC*4c", "OI*4o")),
    "the channels are not known": ({"symbols": {"C": C}}, ("NC*4c", "OI*")),
    "the result's channels are not known": ({"symbols": {"O": C}}, ("NC*4c", "OI*4i")),
    "the batch is not known": ({"symbols": {"N": N}}, ("NC*2n", "OI*", "NC*")),
    "the result's batch is not known": ({"symbols": {"N": N}}, ("NC*", "OI*", "NC*2n")),
    "the extent is no multiple": ({}, ("NC*2w", "OI*", "NC*")),
}


class TestNotPossible:
    @each_operator
    @pytest.mark.parametrize("reason", NOT_POSSIBLE)
    def test_packed_layout(self, op, reason):
        changed, patterns = NOT_POSSIBLE[reason]
        symbols = changed.get("symbols", {})
        extents = {name: value for name, value in changed.items() if name != "symbols"}
        before = sequence([op.case(**extents)], symbols)
        desired = {op.name: [op.layout(pattern) for pattern in patterns]}
        tvm.ir.assert_structural_equal(convert(before, desired), before)

    @each_operator
    def test_unknown_shape(self, op):
        ndim = len(op.data_layout)
        unknown = relax.TensorType(dtype="float32", ndim=ndim)
        before = build(
            {"x": unknown, "w": unknown}, lambda builder, *x: builder.emit(op.case().call(*x))
        )
        packed = {op.name: [op.layout("NC*4c"), op.layout("OI*4i4o")]}
        tvm.ir.assert_structural_equal(convert(before, packed), before)
        plain = {op.name: [op.layout("N*C"), op.layout("*IO")]}
        assert layouts(convert(before, plain), op)[:2] == tuple(plain[op.name])

    def test_input_in_other_blocks(self):
        before = sequence([CONV2D.case(), CONV2D_TRANSPOSE.case()])
        after = convert(
            before,
            {
                CONV2D.name: ["NCHW4c", "OIHW4i4o"],
                CONV2D_TRANSPOSE.name: ["NCHW8c", "IOHW8i8o"],
            },
        )
        assert layouts(after, CONV2D) == ("NCHW4c", "OIHW4i4o", "NCHW4c")
        assert layouts(after, CONV2D_TRANSPOSE) == ("NCHW", "IOHW", "NCHW")

    @each_operator
    def test_only_the_inner_convolutions_are_packed(self, op):
        """A typical network: three channels in and out, blocks between."""
        chain = [op.case(*channels) for channels in ((3, 8), (8, 8), (8, 3))]
        desired = [op.layout("NC*4c"), op.layout("OI*4i4o")]
        after = convert(sequence(chain), {op.name: desired})
        assert layouts(after, op, 0) == layouts(after, op, 2) == layouts_of(chain[0])
        assert layouts(after, op, 1) == asked(desired)


class TestForACpu:
    """The CPU lowering accepts any combination of layouts."""

    @each_operator
    def test_result_is_packed_where_the_data_cannot_be(self, op):
        kernel = (1,) * len(op.spatial)
        chain = [op.case(*channels, kernel=kernel) for channels in ((3, 8), (8, 8), (8, 3))]
        desired = [op.layout("NC*4c"), op.layout("OI*4i4o")]
        before = sequence(chain)
        with tvm.target.Target("llvm"):
            after = convert(before, {op.name: desired})
        plain = layouts_of(chain[0])
        assert layouts(after, op, 0) == (*plain[:2], desired[0])
        assert layouts(after, op, 1) == asked(desired)
        assert layouts(after, op, 2) == plain
        assert count(after, "relax.layout_transform") == 2  # the middle kernel's, and the way back
        check_values([(before, after, arguments(chain))])

    @pytest.mark.parametrize("target", ["cuda", "qcom/adreno-opencl"])
    def test_all_stay_plain_for_a_gpu(self, target):
        before = sequence([CONV2D.case(3, 8)])
        with tvm.target.Target({"kind": "cuda", "arch": "sm_80"} if target == "cuda" else target):
            after = convert(before, {CONV2D.name: ["NCHW4c", "OIHW4i4o"]})
        tvm.ir.assert_structural_equal(after, before)

    @pytest.mark.parametrize("spatial", ["W", "HW", "DHW"])
    def test_depthwise_data_and_result_are_packed(self, spatial):
        op = Operator(spatial, transposed=False)
        kernel = (1,) * len(op.spatial)
        chain = [op.case(8, 8, groups, kernel=kernel) for groups in (1, 8, 1)]
        before = sequence(chain)
        packed = op.layout("NC*4c")
        with tvm.target.Target("llvm"):
            after = convert(before, {op.name: [packed, op.layout("OI*4i4o")]})
        assert layouts(after, op, 1) == (packed, op.kernel_layout, packed)
        # The data, two kernels and the result; nothing around the depthwise convolution.
        assert count(after, "relax.layout_transform") == 4
        check_values([(before, after, arguments(chain))])

    @pytest.mark.parametrize("case", [CONV2D.case(6, 6, 6), CONV2D.case(8, 16, 8)], ids=str)
    def test_other_groups_of_one_channel_stay_plain(self, case):
        """Six channels are no whole blocks, and a block of two outputs per channel reads two."""
        before = sequence([case])
        with tvm.target.Target("llvm"):
            after = convert(before, {CONV2D.name: ["NCHW4c", "OIHW4i4o"]})
        tvm.ir.assert_structural_equal(after, before)

    def test_depthwise_stays_plain_without_a_target(self):
        before = sequence([CONV2D.case(8, 8, 8)])
        after = convert(before, {CONV2D.name: ["NCHW4c", "OIHW4i4o"]})
        tvm.ir.assert_structural_equal(after, before)

    def test_groups_stay_plain(self):
        before = sequence([CONV2D.case(6, 8, 2)])
        with tvm.target.Target("llvm"):
            after = convert(before, {CONV2D.name: ["NCHW4c", "OIHW4i4o"]})
        tvm.ir.assert_structural_equal(after, before)


class TestUnlisted:
    @few(2)
    @pytest.mark.parametrize("spatial", ["W", "HW", "DHW"])
    @pytest.mark.parametrize("transposed", [False, True])
    def test_an_unlisted_convolution_follows_a_plain_layout(self, spatial, transposed):
        first, second = Operator(spatial, not transposed), Operator(spatial, transposed)
        chain = [first.case(), second.case(8, 4)]
        before = sequence(chain)
        after = convert(before, {first.name: [first.layout("N*C"), first.layout("*IO")]})
        last = first.layout("N*C")
        assert layouts(after, second) == (last, second.kernel_layout, last)
        check_values([(before, after, arguments(chain))])

    @pytest.mark.parametrize("spatial", ["W", "HW", "DHW"])
    @pytest.mark.parametrize("transposed", [False, True])
    def test_unpacks_what_is_packed(self, spatial, transposed):
        first, second = Operator(spatial, not transposed), Operator(spatial, transposed)
        before = sequence([first.case(), second.case(8, 4)])
        after = convert(before, {first.name: [first.layout("NC*4c"), first.layout("OI*4i4o")]})
        assert layouts(after, second) == layouts_of(second.case())
        assert count(after, "relax.layout_transform") == 3

    def test_keeps_a_result_that_is_not_as_the_data(self):
        second = CONV2D_TRANSPOSE.case(layouts=("NCHW", "IOHW", "NHWC"))
        after = convert(sequence([CONV2D.case(), second]), {CONV2D.name: ["NHWC", "HWIO"]})
        assert layouts(after, CONV2D_TRANSPOSE) == ("NHWC", "IOHW", "NHWC")

    @each_operator
    def test_packed_in_the_module(self, op):
        """A convolution packed by the model is unchanged, and gets its data in that layout."""
        packed = tuple(map(op.layout, ("NC*4c", "OI*4i4o", "NC*4c")))
        case = op.case(layouts=packed)
        data, kernel = case.shapes()

        def emit(builder, x, w):
            # A permute in the model changes the layout of its reader's data.
            return builder.emit(case.call(builder.emit(relax.op.permute_dims(x)), w))

        before = build({"x": tensor(*data[::-1]), "w": tensor(*kernel)}, emit)
        after = convert(before, {op.name: [op.layout("N*C"), op.layout("*IO")]})
        assert layouts(after, op) == packed
        check_values([(before, after, [integers(*data[::-1]), integers(*kernel, seed=1)])])


class TestWrongRequest:
    @each_operator
    @pytest.mark.parametrize("number", [0, 1, 4])
    def test_number_of_layouts(self, op, number):
        message = rf"{op.name}: expected two or three desired layouts .*, got {number}"
        with pytest.raises(ValueError, match=message):
            relax.transform.ConvertLayout({op.name: ["NC"] * number})(sequence([op.case()]))

    @in_2d
    @pytest.mark.parametrize(
        "layout",
        "NCHWc NCW NCHW4 NCHW0c NCHW4c2c N4CHW nchw NCHH ABCD NCHW4d NCHW99999999999c".split(),
    )
    def test_axes(self, op, layout):
        def message(of, axes):
            return rf'{op.name}: expected a {of} layout with the axes of {axes}, .* got "{layout}"'

        before = sequence([op.case()])
        with pytest.raises(ValueError, match=message("data", "NCHW")):
            relax.transform.ConvertLayout({op.name: [layout, "OIHW"]})(before)
        with pytest.raises(ValueError, match=message("kernel", op.kernel_layout)):
            relax.transform.ConvertLayout({op.name: ["NCHW", layout]})(before)
        with pytest.raises(ValueError, match=message("out", "NCHW")):
            relax.transform.ConvertLayout({op.name: ["NCHW", "OIHW", layout]})(before)


@each_operator
def test_switch(op, monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, op.infer_layout_fix)
    desired = {op.name: [op.layout("NC*4c"), op.layout("OI*4i")]}
    message = "Axis swap only|Layouts must have the same size|should not rewrite or delete"
    with pytest.raises(tvm.error.InternalError, match=f"({message})"):
        relax.transform.ConvertLayout(desired)(sequence([op.case(out_channels=6)]))


@st.composite
def random_chain(draw: st.DrawFn) -> list[Case]:
    """One or two calls of which the second takes the result of the first."""
    spatial = draw(st.sampled_from(["W", "HW", "DHW"]))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in spatial)

    def shuffled(axes: str) -> str:
        return "".join(draw(st.permutations(axes)))

    chain: list[Case] = []
    channels, data_layout = draw(st.sampled_from([8, 4, 16, 3])), shuffled("NC" + spatial)
    for _ in range(draw(st.integers(1, 2))):
        op = Operator(spatial, draw(st.booleans()))
        groups = draw(st.sampled_from([g for g in (1, 1, 2, channels) if channels % g == 0]))
        out_channels = groups * draw(st.sampled_from([4, 2, 8, 3] if groups < 4 else [1, 2]))
        changed = {"stride": each(1, 2), "dilation": each(1, 2), "kernel": each(1, 2)}
        if op.transposed:
            bounds = map(max, changed["stride"], changed["dilation"])
            changed["output_padding"] = tuple(draw(st.integers(0, b - 1)) for b in bounds)
        else:
            # No extent becomes 0.
            changed["padding"] = (1,) * (2 * len(spatial))
        layouts = data_layout, shuffled(op.kernel_layout), shuffled(op.data_layout)
        chain.append(op.case(channels, out_channels, groups, layouts, **changed))
        channels, data_layout = out_channels, layouts[2]
    return chain


@st.composite
def random_request(draw: st.DrawFn, op: Operator) -> list[str]:
    """Two or three layouts: any axis order, with some axes optionally split."""

    def layout(axes: str) -> str:
        order = list(draw(st.permutations(axes)))
        # Mostly channels, which are mostly multiples.
        often = [axis for axis in axes if axis in "CIO"] * 3
        most = draw(st.sampled_from([0, 1, 1, 2]))
        for axis in draw(st.lists(st.sampled_from([*axes, *often]), max_size=most, unique=True)):
            block = f"{draw(st.sampled_from([2, 2, 4, 3, 1]))}{axis.lower()}"
            order.insert(draw(st.integers(0, len(order))), block)
        return "".join(order)

    axes = [op.data_layout, op.kernel_layout, op.data_layout]
    return [layout(names) for names in axes[: draw(st.integers(2, 3))]]


@st.composite
def random_conversion(
    draw: st.DrawFn, symbolic: str
) -> tuple[list[Case], dict[str, tvm.tirx.Var], dict[str, list[str]]]:
    """A chain, symbols for some of the axes `symbolic`, and layouts for some of the operators."""
    chain = draw(random_chain())
    axes = [a for a in symbolic if a in chain[0].data_layout and draw(st.integers(0, 2)) == 0]
    symbols = {axis: tvm.tirx.Var(axis.lower(), "int64") for axis in axes}
    operators = [op for op in dict.fromkeys(map(operator_of, chain)) if draw(st.integers(0, 3))]
    return chain, symbols, {op.name: draw(random_request(op)) for op in operators}


def is_possible(case: Case, before: tvm.IRModule, request: list[str]) -> bool:
    """Whether blocks divide the extents that they split in the first call, group by group."""
    call = calls(before, operator_of(case).name)[0]
    tensors = *call.args, call
    grouped = "C", "I" if case.transposed else "O", "C"
    for names, value, channels, layout in zip(
        layouts_of(case), tensors, grouped, asked(request), strict=True
    ):
        for factor, axis in re.findall("([0-9]+)([a-z])", layout):
            extent = value.ty.shape[names.index(axis.upper())]
            groups = case.groups if axis.upper() == channels else 1
            known = isinstance(extent, tvm.tirx.IntImm)
            if int(factor) > 1 and (not known or int(extent) // groups % int(factor)):
                return False
    return True


@batched(1 if is_full() else 2)
@given(st.lists(random_conversion("NCDHW"), min_size=5, max_size=5))
def test_random_requests_are_met_where_possible(conversions):
    for chain, symbols, desired in conversions:
        before = sequence(chain, symbols)
        after = convert(before, desired)
        first, op = chain[0], operator_of(chain[0])
        request = desired.get(op.name)
        met = request is not None and is_possible(first, before, request)
        assert layouts(after, op) == (asked(request) if met else layouts_of(first))


@batched(5 if is_full() else 20)
@given(st.lists(random_conversion("N"), min_size=5, max_size=5))
def test_random_requests_keep_values(conversions):
    cases = []
    for chain, symbols, desired in conversions:
        before = sequence(chain, symbols)
        cases.append((before, convert(before, desired), arguments(chain)))
        with tvm.target.Target("llvm"):
            cases.append((before, convert(before, desired), arguments(chain)))
    check_values(cases)


if __name__ == "__main__":
    tvm.testing.main()
