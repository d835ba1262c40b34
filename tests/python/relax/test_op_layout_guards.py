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
"""FRelaxInferLayout of the operators with a rule in TVM: correct in every layout."""

import subprocess
import sys
from functools import partial
from itertools import product

import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from helpers.grids import batched, is_full, sample
from helpers.layout_cases import PACKED, check_conversion, check_values, layouts_of, module, ways
from helpers.layout_guard_cases import CASES, constant
from helpers.relax_modules import build, calls, integers, run, tensor
from tvm_fixes.relax.analysis import activation_transforms
from tvm_fixes.support import switches

pytestmark = pytest.mark.native

CONV2D_NHWC = {"relax.nn.conv2d": ["NHWC", "OHWI"]}
CONV2D_NCHW4C = {"relax.nn.conv2d": ["NCHW4c", "OIHW4i4o"]}

# Forms of parameter shapes, with the arguments of `module`.
EXTENTS = {"static": {}, "dynamic": {"dynamic": True}, "unknown": {"known_shapes": False}}
GRID = [
    (case, arrivals, extents)
    for case in CASES
    for arrivals in product(*map(ways, case.shapes))
    for extents in EXTENTS
    if extents == "static" or not case.static
]
OPERATORS = sorted({case.operator for case in CASES})


def value_grid():
    """Every case in every way: operands that arrive in the same way, and in adjacent ones."""
    for case in CASES:
        by_operand = [ways(shape) for shape in case.shapes]
        for shift in (0, 1) if len(by_operand) > 1 else (0,):
            for first in range(max(map(len, by_operand))):
                arrivals = tuple(
                    found[(first + shift * i) % len(found)] for i, found in enumerate(by_operand)
                )
                extents = "dynamic" if (first + shift) % 2 and not case.static else "static"
                if case.runs:
                    yield case, arrivals, extents


VALUES = sample(list(value_grid()), 24)
BATCH = 48


def test_the_table_has_every_operator_with_a_rule():
    # In a process without the rules of this project.
    program = """
import sys
sys.modules["torch"] = None  # TVM would import it, which takes longer than all else
import tvm
from tvm.ir import Op, _ffi_api
for name in _ffi_api.ListOpNames():
    if name.startswith("relax.") and Op.get(name).get_attr("FRelaxInferLayout") is not None:
        print(name)
"""
    listed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert sorted(listed.stdout.split()) == OPERATORS


class TestEveryForm:
    @pytest.mark.parametrize("operator", OPERATORS)
    def test_converts(self, operator):
        of_operator = [entry for entry in GRID if entry[0].operator == operator]
        for case, arrivals, extents in sample(of_operator, 8):
            before, _, desired = module(case, arrivals, **EXTENTS[extents])
            try:
                check_conversion(before, desired)
            except Exception as error:
                raise AssertionError(f"{case.id} {arrivals} {extents}") from error

    @pytest.mark.parametrize("batch", range(0, len(VALUES), BATCH))
    def test_keeps_values(self, batch):
        check_values(
            {
                f"{case.id} {arrivals} {extents}": module(case, arrivals, **EXTENTS[extents])
                for case, arrivals, extents in VALUES[batch : batch + BATCH]
            }
        )


def convolved(emit) -> tvm.IRModule:
    """An operator on the result of a convolution, (2, 8, 3, 4)."""

    def convolve(builder, x, w):
        return builder.emit(emit(builder.emit(op.nn.conv2d(x, w))))

    return build({"x": tensor(2, 8, 3, 4), "w": tensor(8, 8, 1, 1)}, convolve)


def check_call(desired, emit, converted_emit, *shape: int) -> None:
    """Check that what `emit` calls becomes what `converted_emit` calls on data of `shape`."""
    before = convolved(emit)
    after = relax.transform.ConvertLayout(desired)(before)
    (expected,) = calls(build({"x": tensor(*shape)}, lambda _, x: converted_emit(x)))
    (got,) = calls(after, expected.op.name)
    tvm.ir.assert_structural_equal(got.attrs, expected.attrs)
    for value, expected_value in zip([got, *got.args], [expected, *expected.args], strict=True):
        tvm.ir.assert_structural_equal(value.ty, expected_value.ty)
        if not isinstance(expected_value.ty, relax.TensorType | tvm.ir.TupleType):
            tvm.ir.assert_structural_equal(value, expected_value)


def swapped(pair: relax.Expr) -> list[relax.Expr]:
    return [relax.TupleGetItem(pair, 1), relax.TupleGetItem(pair, 0)]


def scales(*shape: int):
    return constant(*shape), constant(*shape, seed=8)


TWO = relax.prim_value(tvm.tirx.FloatImm("float32", 2))
SINGLE = relax.const(np.ones((1, 1), "float32"))
FOLLOWED_IN_BLOCKS = {
    "operand of lower rank": (
        lambda x: op.add(x, constant(8, 1, 1)),
        lambda x: op.add(x, constant(2, 1, 1, 4)),
    ),
    "operand per channel, on the left": (
        lambda x: op.multiply(constant(1, 8, 1, 1), x),
        lambda x: op.multiply(constant(1, 2, 1, 1, 4), x),
    ),
    "operand of one channel": (
        lambda x: op.add(x, constant(2, 1, 3, 4)),
        lambda x: op.add(x, constant(2, 1, 3, 4, 1)),
    ),
    "operand of one element": (partial(op.maximum, x2=SINGLE), partial(op.maximum, x2=SINGLE)),
    "number": (lambda x: op.power(TWO, x), lambda x: op.power(TWO, x)),
    "reduction of space": (
        partial(op.mean, axis=[-1, 2], keepdims=True),
        partial(op.mean, axis=[2, 3], keepdims=True),
    ),
    "reduction of channels": (
        partial(op.sum, axis=[-3], keepdims=True),
        partial(op.sum, axis=[1, 4], keepdims=True),
    ),
    "reduction of all": (partial(op.sum, keepdims=True), partial(op.sum, keepdims=True)),
    "reduction of an axis that goes": (partial(op.max, axis=2), partial(op.max, axis=[2])),
    "softmax": (partial(op.nn.softmax, axis=-1), partial(op.nn.softmax, axis=3)),
    "concat of channels": (
        lambda x: op.concat([x, x], -3),
        lambda x: op.concat([x, x], 1),
    ),
    "concat with a constant": (
        lambda x: op.concat([constant(2, 4, 3, 4), x], 1),
        lambda x: op.concat([constant(2, 1, 3, 4, 4), x], 1),
    ),
    "split of channels": (
        partial(op.split, indices_or_sections=2, axis=1),
        partial(op.split, indices_or_sections=2, axis=1),
    ),
    "split at a block": (
        partial(op.split, indices_or_sections=[4], axis=-3),
        partial(op.split, indices_or_sections=[1], axis=1),
    ),
    "split of rows": (
        partial(op.split, indices_or_sections=[1], axis=-2),
        partial(op.split, indices_or_sections=[1], axis=2),
    ),
    "stack": (lambda x: op.stack([x, x], -1), lambda x: op.stack([x, x], 0)),
    "dropout": (op.nn.dropout, op.nn.dropout),
    "pool": (
        partial(op.nn.max_pool2d, pool_size=2),
        partial(op.nn.max_pool2d, pool_size=2, layout="NCHW4c"),
    ),
    "adaptive pool": (
        partial(op.nn.adaptive_avg_pool2d, output_size=1),
        partial(op.nn.adaptive_avg_pool2d, output_size=1, layout="NCHW4c"),
    ),
    "resize": (
        partial(op.image.resize2d, size=(6, 8)),
        partial(op.image.resize2d, size=(6, 8), layout="NCHW4c"),
    ),
}
RESTORED_FROM_BLOCKS = {
    "operand whose axes differ from the first": lambda x: op.add(x, constant(3, 4)),
    "softmax of channels": partial(op.nn.softmax, axis=1),
    "concat with 3 channels": lambda x: op.concat([x, constant(2, 3, 3, 4)], 1),
    "split within a block": partial(op.split, indices_or_sections=[3], axis=1),
    "split after the end": partial(op.split, indices_or_sections=[8, 10], axis=1),
    "pool of channels": partial(op.nn.max_pool2d, pool_size=2, layout="NHWC"),
    "pool with another out_layout": partial(op.nn.max_pool2d, pool_size=2, out_layout="NHWC"),
    "layer_norm": lambda x: op.nn.layer_norm(x, *scales(8), 1),
    "rms_norm": lambda x: op.nn.rms_norm(x, constant(4), -1),
    "group_norm": lambda x: op.nn.group_norm(x, *scales(8), 2, 1, [2, 3]),
    "instance_norm": lambda x: op.nn.instance_norm(x, *scales(8), 1, [2, 3]),
}
RESTORED_FROM_CHANNELS_LAST = {
    "layer_norm of axes out of order": lambda x: op.nn.layer_norm(x, *scales(8, 3, 4), [1, 2, 3]),
    "rms_norm of what is not last": lambda x: op.nn.rms_norm(x, constant(4), -1),
    "repeat of all elements": partial(op.repeat, repeats=2),
    "resize with rows last": partial(op.image.resize2d, size=(6, 8), layout="NHWC"),
    "scatter_nd": lambda x: op.scatter_nd(
        x, relax.const([[[0, 5]], [[1, 2]]], "int64"), constant(2, 1, 3, 4)
    ),
}


class TestGuards:
    @pytest.mark.parametrize("name", FOLLOWED_IN_BLOCKS)
    def test_follows_blocks(self, name):
        check_call(CONV2D_NCHW4C, *FOLLOWED_IN_BLOCKS[name], 2, 2, 3, 4, 4)

    @pytest.mark.parametrize("name", RESTORED_FROM_BLOCKS)
    def test_restores_from_blocks(self, name):
        emit = RESTORED_FROM_BLOCKS[name]
        check_call(CONV2D_NCHW4C, emit, emit, 2, 8, 3, 4)

    @pytest.mark.parametrize("name", RESTORED_FROM_CHANNELS_LAST)
    def test_restores_from_channels_last(self, name):
        emit = RESTORED_FROM_CHANNELS_LAST[name]
        check_call(CONV2D_NHWC, emit, emit, 2, 8, 3, 4)

    @pytest.mark.parametrize("desired", [CONV2D_NHWC, CONV2D_NCHW4C])
    def test_slopes_come_in_blocks(self, desired):
        before = convolved(lambda x: op.nn.prelu(x, op.max(x, [0, 2, 3])))
        after = relax.transform.ConvertLayout(desired)(before)
        arguments = integers(2, 8, 3, 4), integers(8, 8, 1, 1, seed=1)
        np.testing.assert_array_equal(run(after, *arguments), run(before, *arguments))

    def test_stack_puts_the_new_axis_first(self):
        check_call(
            CONV2D_NHWC,
            lambda x: op.stack([x, x], 2),
            lambda x: op.stack([x, x], 0),
            *(2, 3, 4, 8),
        )

    def test_a_bias_that_may_be_broadcast_is_not_split(self):
        """Blocks of 4 would fill a single channel up with zeros."""
        extents = [tvm.tirx.Var(name, "int64") for name in "nchw"]
        inputs = {
            "x": tensor(2, 16, 8, 8),
            "w": tensor(4, 16, 3, 3),
            "b": relax.TensorType(dtype="float32", ndim=4),
        }

        def emit(builder, x, w, b):
            y = builder.emit(op.nn.conv2d(x, w))
            bias = builder.match_cast(b, tensor(*extents))
            return builder.emit(op.add(y, bias))

        desired = {"relax.nn.conv2d": ["NCHW4c", "OIHW4o"]}
        after = check_conversion(build(inputs, emit), desired)
        [add] = calls(after, "relax.add")
        assert [int(arg.ty.ndim) for arg in add.args] == [4, 4]

    def test_slice_along_axes_that_are_not_literal(self):
        axes = relax.Var("axes", relax.TupleType([tvm.ir.PrimType("int64")]))
        slice_ = op.strided_slice(relax.Var("x", tensor(2, 8)), [1], [0], [2], [1])
        arguments = [slice_.args[0], axes, *slice_.args[2:]]
        builder = relax.BlockBuilder()
        with builder.function("main", [slice_.args[0], axes]):
            with builder.dataflow():
                out = builder.emit_output(relax.Call(slice_.op, arguments, slice_.attrs))
            builder.emit_func_output(out)
        check_conversion(builder.get(), {})

    def test_a_whole_network_stays_in_blocks(self):
        def network(builder, x, w, v):
            y = builder.emit(op.nn.conv2d(x, w, padding=1))
            y = builder.emit(op.nn.relu(builder.emit(op.add(y, constant(1, 8, 1, 1)))))
            gate = builder.emit(op.sigmoid(builder.emit(op.mean(y, [2, 3], True))))
            y = builder.emit(op.multiply(y, gate))
            halves = builder.emit(op.split(y, 2, 1))
            y = builder.emit(op.concat([*swapped(halves), y], 1))
            y = builder.emit(op.nn.max_pool2d(y, 2, 2))
            y = builder.emit(op.image.resize2d(y, (8, 8), method="nearest_neighbor"))
            return builder.emit(op.nn.conv2d(y, v, padding=1))

        inputs = {"x": tensor(1, 8, 8, 8), "w": tensor(8, 8, 3, 3), "v": tensor(4, 16, 3, 3)}
        before = build(inputs, network)
        arguments = [integers(*map(int, ty.shape), seed=i) for i, ty in enumerate(inputs.values())]
        after = relax.transform.ConvertLayout(CONV2D_NCHW4C)(before)
        of_activations = {str(found.value.op.name) for found in activation_transforms(after)}
        assert of_activations == {"relax.layout_transform"}
        # The input, both kernels and the output.
        assert len(activation_transforms(after)) == 4
        np.testing.assert_allclose(
            run(after, *arguments), run(before, *arguments), rtol=1e-4, atol=1e-4
        )

    def test_switch(self, monkeypatch):
        monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "layout-guards")
        before = convolved(partial(op.repeat, repeats=2))
        after = relax.transform.ConvertLayout(CONV2D_NHWC)(before)
        arguments = integers(2, 8, 3, 4), integers(8, 8, 1, 1, seed=1)
        assert not np.array_equal(run(after, *arguments), run(before, *arguments))
        with pytest.raises(ValueError, match="group_norm"):
            relax.transform.ConvertLayout(CONV2D_NCHW4C)(
                convolved(RESTORED_FROM_BLOCKS["group_norm"])
            )


def malformed(emit, attrs: dict | None, argument: relax.TensorType | None = None) -> tvm.IRModule:
    """The call of `emit` on the result of a convolution, with invalid attributes.

    Parameters
    ----------
    attrs : dict or None
        The attributes to replace; None to have none at all.
    argument : TensorType, optional
        A type of the result of the convolution that is not the true one.
    """
    params = [relax.Var("x", tensor(2, 8, 3, 4)), relax.Var("w", tensor(8, 8, 1, 1))]
    builder = relax.BlockBuilder()
    convolution = builder.normalize(op.nn.conv2d(*params))
    y = relax.DataflowVar("y", convolution.ty)
    made = emit(y)
    ty = builder.normalize(made).ty
    if attrs is not None:
        names = (field.name for field in type(made.attrs).__tvm_ffi_type_info__.fields)
        kept = {name: getattr(made.attrs, name) for name in names}
        key = type(made.attrs).__tvm_ffi_type_info__.type_key
        attrs = tvm.ir.make_node(key, **{**kept, **attrs})
    declared = relax.DataflowVar("y", argument or y.ty)
    arguments = [
        relax.Tuple([declared] * len(arg.fields)) if isinstance(arg, relax.Tuple) else arg
        for arg in (declared if arg.same_as(y) else arg for arg in made.args)
    ]
    changed = relax.Call(made.op, arguments, attrs)
    relax.expr._update_type(changed, ty)
    out = relax.Var("out", ty)
    bindings = [relax.VarBinding(declared, convolution), relax.VarBinding(out, changed)]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], out)
    return tvm.IRModule({"main": relax.Function(params, body, ty)})


KERNEL = constant(8, 8, 1, 1)
# The errors of TVM's own rules and types: ValueError and InternalError.
MALFORMED = {
    "stack axis": (lambda x: op.stack([x, x]), {"axis": -99}, "out of range"),
    "groups": (lambda x: op.nn.conv2d(x, KERNEL), {"groups": 0}, "number of groups"),
    "resize": (partial(op.image.resize2d, size=(6, 8)), {"layout": "NC"}, "not convertible"),
    "pool": (op.nn.max_pool2d, {"layout": "NC", "out_layout": "NC"}, "not convertible"),
}
WITHOUT_ATTRIBUTES = {
    "layer_norm": lambda x: op.nn.layer_norm(x, *scales(8), 1),
    "rms_norm": lambda x: op.nn.rms_norm(x, constant(8), 1),
    "group_norm": lambda x: op.nn.group_norm(x, *scales(8), 2, 1, [2, 3]),
    "instance_norm": lambda x: op.nn.instance_norm(x, *scales(8), 1, [2, 3]),
    "prelu": lambda x: op.nn.prelu(x, constant(8)),
    "repeat": partial(op.repeat, repeats=2),
    "resize": partial(op.image.resize2d, size=(6, 8)),
    "squeeze": partial(op.squeeze, axis=[]),
    "stack": lambda x: op.stack([x, x]),
}


@pytest.mark.parametrize("desired", [CONV2D_NHWC, CONV2D_NCHW4C], ids=["channels last", "blocks"])
class TestMalformedCalls:
    @pytest.mark.parametrize("name", MALFORMED)
    def test_attributes_do_not_fit(self, name, desired):
        emit, attrs, message = MALFORMED[name]
        with pytest.raises(ValueError, match=message):
            relax.transform.ConvertLayout(desired)(malformed(emit, attrs))

    @pytest.mark.parametrize("name", WITHOUT_ATTRIBUTES)
    def test_no_attributes(self, name, desired):
        with pytest.raises(tvm.error.InternalError, match="Invalid Call"):
            relax.transform.ConvertLayout(desired)(malformed(WITHOUT_ATTRIBUTES[name], None))

    @pytest.mark.parametrize(
        "emit", [partial(op.argmin, axis=1), partial(op.reshape, shape=(2, 96)), op.sort]
    )
    def test_declared_rank_is_not_the_true_one(self, emit, desired):
        before = malformed(emit, {} if emit(constant(1)).attrs else None, tensor(16, 12))
        with pytest.raises(tvm.error.InternalError):
            relax.transform.ConvertLayout(desired)(before)


# Steps that keep the shape (2, 8, 4, 4): unary, then binary.
STEPS = [
    op.nn.relu,
    op.negative,
    lambda x: op.add(x, constant(8, 1, 1)),
    lambda x: op.multiply(constant(1, 8, 1, 1), x),
    lambda x: op.maximum(x, constant(2, 1, 4, 1)),
    lambda x: op.minimum(x, relax.const(3.0)),
    lambda x: op.subtract(x, op.mean(x, [1], True)),
    lambda x: op.subtract(x, op.max(x, [2, 3], True)),
    lambda x: op.add(x, op.expand_dims(op.sum(x, -1), 3)),
    lambda x: op.permute_dims(x, [0, 1, 3, 2]),
    lambda x: op.reshape(op.permute_dims(op.reshape(x, [2, 2, 4, 16]), [0, 2, 1, 3]), x.ty.shape),
    lambda x: op.concat(swapped(op.split(x, 2, 1)), 1),
    lambda x: op.concat(op.split(x, [3], 1), 1),
    lambda x: op.concat(op.split(x, [1], -1), -1),
    lambda x: op.strided_slice(op.tile(x, [1, 2, 1, 1]), [1], [1], [9]),
    lambda x: op.strided_slice(op.repeat(x, 2, 2), [2], [0], [8], [2]),
    lambda x: op.flip(x, 1),
    lambda x: op.nn.softmax(x, 1),
    lambda x: op.nn.softmax(x, -1),
    lambda x: op.nn.max_pool2d(x, 3, padding=1),
    lambda x: op.nn.avg_pool2d(x, 2, 1, [0, 0, 1, 1]),
    lambda x: op.nn.layer_norm(x, *scales(4, 4), [2, 3]),
    lambda x: op.nn.layer_norm(x, *scales(8, 4, 4), [1, 2, 3]),
    lambda x: op.nn.group_norm(x, *scales(8), 2, 1, [2, 3]),
    lambda x: op.nn.prelu(x, constant(8), 1),
    lambda x: op.image.resize2d(op.nn.max_pool2d(x, 2, 2), (4, 4), method="nearest_neighbor"),
]
JOINS = [
    op.add,
    op.subtract,
    op.minimum,
    lambda x, y: op.multiply(x, op.sigmoid(op.mean(y, [2, 3], True))),
    lambda x, y: op.sum(op.stack([x, y], -2), -2),
    lambda x, y: op.strided_slice(op.concat([x, y], 1), [1], [0], [16], [2]),
    lambda x, y: op.gather_elements(x, op.astype(op.minimum(op.abs(y), SINGLE), "int64"), -1),
]
SHAPE = (2, 8, 4, 4)


@st.composite
def random_graph(draw):
    """A module of the steps above and convolutions, each in a layout of its own or in none."""
    inputs = {"x": tensor(*SHAPE)}
    desired = {}
    steps = []
    for i in range(draw(st.integers(2, 8))):
        kind = draw(st.sampled_from(["convolution", "step", "step", "join"]))
        if kind == "convolution":
            inputs[f"w{i}"] = tensor(8, 8, 1, 1)
            way = draw(st.sampled_from(["plain", "N*C", *PACKED]))
            if way != "plain":
                desired[f"w{i}"] = layouts_of(way, 4)
        choice = draw(st.sampled_from({"step": STEPS, "join": JOINS}.get(kind, [f"w{i}"])))
        steps.append((choice, kind, draw(st.integers(0, i)), draw(st.integers(0, i))))

    def emit(builder, *params):
        by_name = {param.name: param for param in params}
        values = [by_name["x"]]
        for choice, kind, left, right in steps:
            # The last value is used: no graph falls apart.
            operands = [values[-1 - left // 2], values[right]][: 2 if kind == "join" else 1]
            if kind == "convolution":
                value = op.nn.conv2d(*operands, by_name[choice])
            else:
                value = choice(*operands)
            values.append(builder.emit(value))
        return values[-1]

    kernels = [integers(8, 8, 1, 1, seed=i) / 8 for i in range(len(inputs) - 1)]
    return build(inputs, emit), [integers(*SHAPE), *kernels], desired


@batched(12 if is_full() else 24)
@given(st.lists(random_graph(), min_size=12, max_size=12))
def test_random_graphs_keep_their_values(graphs):
    check_values({f"{i}\n{graph[0]}": graph for i, graph in enumerate(graphs)})


if __name__ == "__main__":
    tvm.testing.main()
