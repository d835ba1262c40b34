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
"""tvm_fixes.pipeline."""

from itertools import product

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.grids import sample
from helpers.lowering import lowered_before
from helpers.relax_modules import build, calls, integers, run, tensor
from tvm_fixes.errors import UnsupportedOperatorError, UsageError
from tvm_fixes.lowering import LAYOUTS, CheckLowered, pipeline, register, stages
from tvm_fixes.relax.analysis import activation_transforms
from tvm_fixes.relax.source_nodes import SourceNode, mark
from tvm_fixes.support import switches

KERNEL = np.random.default_rng(0).standard_normal((4, 4, 3, 3), "float32")


def convolution(rank: int) -> tvm.IRModule:
    """Two convolutions of `rank` spatial axes, channels-first, with a ReLU between them."""
    rng = np.random.default_rng(rank)
    weights = [relax.const(rng.standard_normal((4, 4, *[3] * rank), "float32")) for _ in range(2)]
    convolve = getattr(relax.op.nn, f"conv{rank}d")

    def emit(builder, x):
        return convolve(builder.emit(relax.op.nn.relu(convolve(x, weights[0]))), weights[1])

    return build({"x": tensor(1, 4, *[8] * rank)}, emit)


def layout_stage(layout):
    """The stage that converts to a layout."""
    return stages(layout=layout).operators[-1]


def test_stages_have_names():
    names = [
        *(
            "DynamicToStatic",
            "DecomposeEinsum",
            "BroadcastFreeMatmul",
            "FoldPadIntoConv",
            "TrimConvKernel",
            "FoldPermuteIntoScatter",
            "FuseDequantizeMatmul",
            "FuseQuantized",
            "ChooseLayout",
        ),
        *("SplitDataflow", "CheckIndices", "Legalize", "UpdateInPlace", "InlineElementwise"),
        "ViewReshapes",
        *("ScheduleReductions", "ScheduleElementwise", "GuardFloatCasts", "DecomposeReduction"),
        *(
            "LowerElementaryFunctions",
            "Lower",
            "GuardFloatArithmetic",
            "GuardIntegerDivision",
            "GuardIntegerOverflow",
            "GuardLongLoops",
            "GuardShapeBounds",
            "GuardSplitIndices",
            "HoistSelectLoads",
            "LowerAlignment",
            "KeepTilesOnStack",
            "CheckLowered",
        ),
    ]
    assert [stage.info.name for stage in stages()] == names
    names[names.index("ChooseLayout")] = "Layout"
    assert [stage.info.name for stage in stages(layout="NHWC")] == names


def test_stages_are_visible_to_instruments():
    seen = []

    @tvm.ir.instrument.pass_instrument
    class Names:
        def run_before_pass(self, _mod, info):
            seen.append(str(info.name))

    with tvm.transform.PassContext(instruments=[Names()]):
        relax.build(convolution(1), "llvm", relax_pipeline=pipeline(layout="NHWC"))
    stages_seen = [name for name in seen if name in ("Layout", "Legalize", "Lower", "CheckLowered")]
    # A stage of TVM's passes runs them as a sequence with the stage's name.
    assert list(dict.fromkeys(stages_seen)) == ["Layout", "Legalize", "Lower", "CheckLowered"]
    assert {"ConvertLayout", "LegalizeOps", "VMShapeLower"} <= set(seen)


def test_registered_with_tvm_once():
    register()
    register()
    mod = convolution(2)
    x = np.random.default_rng(1).standard_normal((1, 4, 8, 8), "float32")
    by_name = run(mod, x, pipeline="tvm_fixes")
    np.testing.assert_array_equal(by_name, run(mod, x, pipeline=pipeline()))
    np.testing.assert_allclose(by_name, run(mod, x, pipeline="default"), rtol=1e-5, atol=1e-5)


def converted_to(layout: str, rank: int) -> str:
    """The layout of data of `rank` spatial axes."""
    return layout.replace("HW", {1: "W", 2: "HW", 3: "DHW"}[rank])


def around_transposed(rank: int) -> tuple[tvm.IRModule, list[np.ndarray]]:
    """Three convolutions of 32 and 16 channels, the second transposed, with their inputs.

    The blocks of every packed layout divide these channels. Sums of integers are exact in any
    order.
    """
    x = integers(2, 32, *(6, 5, 4)[:rank])
    weights = [integers(16, 32, *(3, 2, 3)[:rank], seed=seed) for seed in (1, 2, 3)]
    convolve = getattr(relax.op.nn, f"conv{rank}d")
    transpose = getattr(relax.op.nn, f"conv{rank}d_transpose")

    def emit(builder, x):
        first, middle, last = map(relax.const, weights)
        hidden = builder.emit(relax.op.nn.relu(convolve(x, first, padding=1)))
        hidden = builder.emit(transpose(hidden, middle, strides=2, padding=1, output_padding=1))
        return convolve(hidden, last)

    return build({"x": tensor(*x.shape)}, emit), [x, *weights]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_layout_is_that_of_every_convolution_in_any_rank(rank, layout):
    mod, _ = around_transposed(rank)
    converted = layout_stage(layout)(mod)
    found = [c.attrs.data_layout for c in calls(converted) if "conv" in c.op.name]
    assert found == [layout.replace("HW", {1: "W", 2: "HW", 3: "DHW"}[rank])] * 3
    # The last convolution writes the requested layout.
    assert len(activation_transforms(converted)) == (0 if layout == "NCHW" else 1)


@pytest.mark.parametrize("rank, layout", sample(list(product((1, 2, 3), LAYOUTS)), 5, seed=1))
def test_the_numbers_are_the_same_in_any_layout(rank, layout):
    mod, arrays = around_transposed(rank)
    x, first, middle, last = map(torch.from_numpy, arrays)
    convolve = getattr(torch.nn.functional, f"conv{rank}d")
    transpose = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    hidden = convolve(x, first, padding=1).relu()
    hidden = transpose(hidden, middle, stride=2, padding=1, output_padding=1)
    expected = convolve(hidden, last).numpy()
    np.testing.assert_array_equal(run(mod, arrays[0], pipeline=pipeline(layout=layout)), expected)


def test_the_current_layout_changes_nothing():
    mod = convolution(2)
    tvm.ir.assert_structural_equal(layout_stage("NCHW")(mod), mod)


@pytest.mark.parametrize("layout", ["NCHW4c", "NCHW8c"])
def test_channels_that_the_block_does_not_divide_are_unchanged(layout):
    mod = convolution(2)  # of 4 channels
    converted = layout_stage(layout)(mod)
    first, second = calls(converted, "relax.nn.conv2d")
    between = "NCHW4c" if layout == "NCHW4c" else "NCHW"
    assert first.attrs.out_layout == second.attrs.data_layout == between
    assert not activation_transforms(converted)


def test_a_value_that_two_readers_want_transformed_is_transformed_once():
    """A skip connection from before the first convolution that can be packed."""
    kernels = [integers(8, channels, 3, 3, seed=channels) for channels in (3, 8)]

    def emit(builder, x):
        first, second = (relax.const(kernel) for kernel in kernels)
        hidden = builder.emit(relax.op.nn.relu(relax.op.nn.conv2d(x, first, padding=1)))
        skipped = builder.emit(relax.op.nn.conv2d(hidden, second, padding=1))
        return relax.op.add(hidden, skipped)

    converted = layout_stage("NCHW8c")(build({"x": tensor(1, 3, 4, 4)}, emit))
    assert len(activation_transforms(converted)) == 2


def test_nothing_is_transformed_at_run_time_around_convolutions():
    mod = convolution(2)
    lowering = stages(layout="NHWC")
    with tvm.target.Target("llvm"):
        mod = lowering["Legalize"](lowered_before(mod, lowering, "Legalize"))
    kernels = [
        var.name_hint for var, f in mod.functions_items() if isinstance(f, tvm.tirx.PrimFunc)
    ]
    # Neither the two constant kernels, nor the input, nor the output.
    assert len(kernels) >= 2
    assert not [name for name in kernels if "transpose" in name or "transform" in name]


@I.ir_module
class Unlowered:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4, 4), "float32")) -> R.Tensor(
        (4, 4), "float32"
    ):
        if c:
            y = R.wrap_param(x)
        else:
            y = R.exp(x)
        return y


def test_operator_without_lowering_names_the_node():
    x = relax.Var("x", relax.TensorType((tirx.Var("n", "int64"), 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        y = builder.emit(relax.op.wrap_param(x))
        mark(y, SourceNode("wrap1", "Wrap"))
        builder.emit_func_output(y)
    with pytest.raises(UnsupportedOperatorError) as error:
        relax.build(builder.get(), "llvm", relax_pipeline="tvm_fixes")
    message = str(error.value)
    assert "no lowering for relax.wrap_param at Wrap 'wrap1' in 'main'" in message
    assert message.endswith("static shapes may compile (--static, or --shape)")


def test_operator_without_lowering_is_named():
    with pytest.raises(UnsupportedOperatorError) as error:
        relax.build(Unlowered, "llvm", relax_pipeline="tvm_fixes")
    message = str(error.value)
    assert "no lowering for relax.wrap_param in 'main': y_then = R.wrap_param(x" in message
    assert 'R.Tensor((4, 4), dtype="float32")' in message
    assert "\n" not in message


def test_attributes_and_their_values_are_named():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4, 8, 8), "float32"))
    with builder.function("main", [x]):
        conv = relax.op.nn.conv2d(x, relax.const(KERNEL))
        builder.emit_func_output(builder.emit(conv, name_hint="first"))
    with pytest.raises(UnsupportedOperatorError) as error:
        CheckLowered()(builder.get())
    assert "relax.nn.conv2d in 'main': first = R.nn.conv2d(x, " in str(error.value)
    assert 'data_layout="NCHW", kernel_layout="OIHW"' in str(error.value)


def test_all_calls_without_lowering_are_counted():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.exp(x)
            b = R.sin(a)
            return b

    with pytest.raises(UnsupportedOperatorError, match=r"relax.exp .* \(and 1 more such calls\)"):
        CheckLowered()(Module)


def test_lowering_that_raises_is_named():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(ndim=2, dtype="float32")):
            with R.dataflow():
                halves = R.split(x, 2, axis=0)
                out = R.add(halves[0], halves[1])
                R.output(out)
            return out

    with pytest.raises(
        UnsupportedOperatorError,
        match=r"cannot lower relax.split in 'main': halves = R.split\(x, indices_or_sections=2, "
        r'axis=0\), arguments of type \(R.Tensor\(dtype="float32", ndim=2\)\): .*shape',
    ):
        relax.build(Module, "llvm", relax_pipeline="tvm_fixes")


def test_unknown_shapes_are_named():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(ndim=2, dtype="float32")) -> R.Tensor(ndim=2, dtype="float32"):
            y = R.nn.relu(x)
            return y

    with pytest.raises(
        UnsupportedOperatorError,
        match=r"relax.nn.relu in 'main': y = R.nn.relu\(x\), arguments of type "
        r'\(R.Tensor\(dtype="float32", ndim=2\)\)',
    ):
        relax.build(Module, "llvm", relax_pipeline="tvm_fixes")


def test_external_code_generation_is_no_false_alarm():
    """An operator call offloaded to an external library counts as lowered."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.call_dps_packed("test.double", x, R.Tensor((4,), "float32"))
            return y

    def double(x, out):
        out.copyfrom(2 * x.numpy())

    tvm.register_global_func("test.double", double, override=True)
    x = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(run(Module, x, pipeline="tvm_fixes"), 2 * x)


def test_what_the_virtual_machine_provides_is_no_false_alarm():
    """If, shapes, tuples, run-time checks, symbolic dims and values that depend on data."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), c: R.Tensor((), "bool")):
            n = T.int64()
            y = R.match_cast(x, R.Tensor((n, 4), "float32"))
            z = R.reshape(y, R.shape([n * 4]))
            if c:
                w = R.sum(z)
            else:
                w = R.max(z)
            s = R.shape_of(y)
            t = R.shape_to_tensor(s)
            return (w, t, R.sort(z))

    x = integers(3, 4)
    for condition, reduced in ((True, x.sum()), (False, x.max())):
        value, shape, ordered = run(Module, x, np.array(condition), pipeline="tvm_fixes")
        np.testing.assert_array_equal(value, reduced)
        np.testing.assert_array_equal(shape, [3, 4])
        np.testing.assert_array_equal(ordered, np.sort(x.ravel()))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"name": "tpu"}, "unknown pipeline 'tpu'; expected 'cpu' or 'gpu'"),
        ({"layout": "NCWH"}, "unknown layout 'NCWH'; expected one of NCHW, NHWC, NCHW4c"),
    ],
)
def test_wrong_use(arguments, message):
    with pytest.raises(UsageError, match=message):
        pipeline(**arguments)


GPU = tvm.target.Target({"kind": "cuda", "arch": "sm_90"}, host={"kind": "llvm"})


@pytest.mark.parametrize("name, target", [("cpu", GPU), ("gpu", tvm.target.Target("llvm"))])
def test_a_pipeline_for_another_kind_of_machine(name, target):
    with pytest.raises(UsageError, match=f"the pipeline '{name}' is not for a"):
        relax.build(convolution(1), target, relax_pipeline=pipeline(name))


def test_a_gpus_kernels_are_scheduled_when_they_are_whole():
    mod = convolution(2)
    lowering = stages("gpu")
    with GPU:
        mod = lowered_before(mod, lowering, "Lower")
        assert not any("threadIdx" in f.script() for _, f in mod.functions_items())
        mod = lowering["Lower"](mod)
    kernels = [f for _, f in mod.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]
    scheduled = ["threadIdx.x" in f.script() for f in kernels if "shape_func" not in f.script()]
    assert scheduled and all(scheduled)


@pytest.mark.parametrize("disabled", ["", "prepare-layout"])
def test_a_fix_that_is_switched_off_takes_no_part(monkeypatch, disabled):
    monkeypatch.setenv("TVM_FIXES_DISABLE", disabled)

    def emit(_builder, x):
        bias = relax.op.reshape(relax.const(KERNEL[0, :, 0, 0]), (1, 4, 1, 1))
        return relax.op.add(relax.op.nn.conv2d(x, relax.const(KERNEL)), bias)

    with switches.collect() as used:
        layout_stage("NHWC")(build({"x": tensor(1, 4, 8, 8)}, emit))
    assert ("prepare-layout" in used) is not disabled.startswith("prepare")


if __name__ == "__main__":
    tvm.testing.main()
