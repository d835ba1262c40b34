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
"""DispatchToCudnn."""

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import itertools

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from torch import nn
from torch.nn import functional
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.cuda_libraries import TARGET, stand_ins
from helpers.grids import few, is_full
from helpers.relax_modules import build, count, integers, run, tensor
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.relax.analysis import activation_transforms, operator_calls
from tvm_fixes.relax.transform import ChooseLayout, DispatchToCudnn
from tvm_fixes.relax.transform.choose_layout import convert_layout


@I.ir_module
class Before:
    @R.function
    def main(
        x: R.Tensor((1, 4, 8, 8), "float32"), w: R.Tensor((6, 2, 3, 3), "float32")
    ) -> R.Tensor((1, 6, 4, 4), "float32"):
        with R.dataflow():
            y = R.nn.conv2d(x, w, strides=[2, 2], padding=[1, 1, 1, 1], groups=2)
            R.output(y)
        return y


@I.ir_module
class Expected:
    @R.function
    def main(
        x: R.Tensor((1, 4, 8, 8), "float32"), w: R.Tensor((6, 2, 3, 3), "float32")
    ) -> R.Tensor((1, 6, 4, 4), "float32"):
        with R.dataflow():
            lv = R.call_dps_packed(
                "tvm_fixes_cudnn_convolution",
                (x, w, R.shape([0, 0, 2, 1, 1, 2, 2, 1, 1])),
                out_ty=[R.Tensor((1, 6, 4, 4), "float32"), R.Tensor((33554432,), "uint8")],
            )
            y: R.Tensor((1, 6, 4, 4), "float32") = lv[0]
            R.output(y)
        return y


def dispatched(mod: tvm.IRModule) -> tvm.IRModule:
    with TARGET:
        return DispatchToCudnn()(mod)


def test_a_convolution():
    tvm.ir.assert_structural_equal(dispatched(Before), Expected)
    assert DispatchToCudnn()(Before).same_as(Before)


CONVOLUTIONS = {
    "plain": (nn.Conv2d, {}),
    "strides, padding": (nn.Conv2d, {"stride": (2, 1), "padding": (0, 1)}),
    "dilation": (nn.Conv2d, {"dilation": 2}),
    "groups": (nn.Conv2d, {"groups": 2}),
    "1-D": (nn.Conv1d, {"stride": 2, "padding": 1}),
    "3-D": (nn.Conv3d, {"padding": (0, 1, 2)}),
    "transposed": (nn.ConvTranspose2d, {"stride": 2, "padding": 1, "output_padding": 1}),
    "transposed 1-D": (nn.ConvTranspose1d, {"stride": 3}),
    "transposed 3-D": (nn.ConvTranspose3d, {"dilation": 2}),
}


IN_LAYOUTS = list(itertools.product(CONVOLUTIONS, ["NCHW", "NHWC"]))


# Each convolution in one layout.
@few(3)
@pytest.mark.parametrize(
    "name, layout", IN_LAYOUTS if is_full() else IN_LAYOUTS[::4] + IN_LAYOUTS[3::4]
)
def test_values(name, layout):
    kind, options = CONVOLUTIONS[name]
    rank = int(kind.__name__[-2])
    torch.manual_seed(0)
    module, x = kind(4, 6, 3, **options).eval(), torch.randn(2, 4, *range(7, 7 + rank))
    mod = from_exported_program(torch.export.export(module, (x,)), unwrap_unit_return_tuple=True)
    after = dispatched(convert_layout(layout)(mod))
    operator = f"relax.nn.conv{rank}d{'_transpose' if 'Transpose' in kind.__name__ else ''}"
    assert count(mod, operator) == 1 and count(after, operator) == 0
    with stand_ins() as called:
        got = run(after, x.numpy())
    assert called == ["cudnn_convolution"]
    np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layouts", [("NCHW", "NHWC"), ("NHWC", "NCHW")])
def test_layouts_that_differ(layouts):
    data, out = layouts
    shape = {"NCHW": (1, 4, 8, 9), "NHWC": (1, 8, 9, 4)}[data]
    types = {"x": tensor(*shape), "w": tensor(6, 4, 3, 3)}
    options = {"data_layout": data, "out_layout": out}
    mod = build(types, lambda bb, x, w: relax.op.nn.conv2d(x, w, **options))
    x, w = integers(*shape, seed=1), integers(6, 4, 3, 3, seed=2)
    with stand_ins() as called:
        np.testing.assert_array_equal(run(dispatched(mod), x, w), run(mod, x, w))
    assert called == ["cudnn_convolution"]


class Residual(nn.Module):
    """Convolutions, batch norm, pooling and a residual, as in a ResNet."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.first = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = functional.max_pool2d(self.norm(self.stem(x)).relu(), 2)
        return self.head((x + self.first(x).relu()).mean((2, 3)))


class ResidualWithGroups(nn.Module):
    """Convolutions, group norms and a residual, as in the decoder of a diffusion model."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(2, 8) for _ in range(2))
        self.conv = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.conv(functional.silu(self.norms[0](x)))
        return functional.interpolate(functional.silu(self.norms[1](x)), scale_factor=2).mean(1)


@pytest.mark.parametrize("kind", [Residual, ResidualWithGroups])
def test_a_model_of_16_bits_keeps_its_channels_last(kind):
    torch.manual_seed(0)
    module, x = kind().eval().half(), torch.randn(1, 3, 16, 16).half()
    program = torch.export.export(module, (x,))
    mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    with TARGET:
        after = ChooseLayout()(mod)
    assert not activation_transforms(after)
    after = dispatched(after)
    # The image is permuted, and the constant weights.
    assert len(activation_transforms(after)) == 1
    with stand_ins() as called:
        got = run(after, x.numpy())
    assert called == ["cudnn_convolution"] * 2
    expected = module.float()(x.float()).detach().numpy()
    np.testing.assert_allclose(got, expected, rtol=0.01, atol=0.01)


def conv(**options):
    types = {"x": tensor(1, 4, 8, 8), "w": tensor(6, 4, 3, 3)}
    return build(types, lambda bb, x, w: relax.op.nn.conv2d(x, w, **options))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_depthwise_convolutions_are_kept(layout):
    """With channels last, threads that compute neighboring channels read neighboring weights."""
    last = layout == "NHWC"
    types = {
        "x": tensor(*((1, 8, 9, 4) if last else (1, 4, 8, 9)), dtype="float16"),
        "w": tensor(4, 1, 3, 3, dtype="float16"),
    }

    def emit(_, x, w):
        return relax.op.nn.conv2d(x, w, padding=1, groups=4, data_layout=layout)

    after = dispatched(build(types, emit))
    [call] = [
        binding.value
        for _, binding in operator_calls(after)
        if str(binding.value.op.name) == "relax.nn.conv2d"
    ]
    assert str(call.attrs.kernel_layout) == ("HWIO" if last else "OIHW")
    x, w = (integers(*(int(n) for n in ty.shape)).astype("float16") for ty in types.values())
    data = x.transpose(0, 3, 1, 2) if last else x
    expected = functional.conv2d(*map(torch.from_numpy, (data, w)), padding=1, groups=4).numpy()
    got = run(after, x, w)
    got = got.transpose(0, 3, 1, 2) if last else got
    np.testing.assert_allclose(got, expected, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("options", [{"padding": [0, 1, 1, 1]}, {"out_layout": "NCHW2c"}])
def test_convolutions_that_are_kept(options):
    mod = conv(**options)
    tvm.ir.assert_structural_equal(dispatched(mod), mod)


HALVES = {"x": tensor(1, 4, 8, 8, dtype="float16"), "w": tensor(6, 4, 3, 3, dtype="float16")}


@pytest.mark.parametrize("has_bias", [False, True])
def test_the_result_of_halves_is_rounded(has_bias):
    def emit(builder, x, w):
        y = builder.emit(relax.op.nn.conv2d(x, w, out_dtype="float32"))
        y = builder.emit(relax.op.add(y, relax.const(2.0))) if has_bias else y
        return relax.op.astype(y, "float16")

    mod = build(HALVES, emit)
    x, w = (
        integers(*map(int, ty.shape), seed=i).astype("float16")
        for i, ty in enumerate(HALVES.values())
    )
    with stand_ins() as called:
        np.testing.assert_array_equal(run(dispatched(mod), x, w), run(mod, x, w))
    assert called == ["cudnn_convolution"]


def test_a_result_in_float32_of_halves_is_kept():
    mod = build(HALVES, lambda bb, x, w: relax.op.nn.conv2d(x, w, out_dtype="float32"))
    tvm.ir.assert_structural_equal(dispatched(mod), mod)


@I.ir_module
class ReadTwice:
    @R.function
    def main(x: R.Tensor((1, 4, 8, 8), "float16"), w: R.Tensor((6, 4, 3, 3), "float16")):
        with R.dataflow():
            wide = R.nn.conv2d(x, w, out_dtype="float32")
            rounded = R.astype(wide, "float16")
            R.output(wide, rounded)
        return (wide, rounded)


@I.ir_module
class ReadInBranch:
    @R.function
    def main(
        flag: R.Tensor((), "bool"),
        x: R.Tensor((1, 4, 8, 8), "float16"),
        w: R.Tensor((6, 4, 3, 3), "float16"),
    ):
        wide = R.nn.conv2d(x, w, out_dtype="float32")
        if flag:
            rounded = R.astype(wide, "float16")
            result = wide
        else:
            result = R.astype(R.astype(wide, "float16"), "float32")
        return result


@I.ir_module
class ReadByMatchCast:
    @R.function
    def main(x: R.Tensor((1, 4, 8, 8), "float16"), w: R.Tensor((6, 4, 3, 3), "float16")):
        with R.dataflow():
            wide = R.nn.conv2d(x, w, out_dtype="float32")
            rounded = R.astype(wide, "float16")
            same = R.match_cast(wide, R.Tensor((1, 6, 6, 6), "float32"))
            out = (same, rounded)
            R.output(out)
        return out


@pytest.mark.parametrize("mod", [ReadTwice, ReadInBranch, ReadByMatchCast])
def test_a_result_that_is_also_read_in_float32_is_kept(mod):
    tvm.ir.assert_structural_equal(dispatched(mod), mod)


@pytest.mark.parametrize("dtype", ["float64", "int8"])
def test_dtypes_that_are_kept(dtype):
    types = {"x": tensor(1, 4, 8, 8, dtype=dtype), "w": tensor(6, 4, 3, 3, dtype=dtype)}
    mod = build(types, lambda bb, x, w: relax.op.nn.conv2d(x, w))
    tvm.ir.assert_structural_equal(dispatched(mod), mod)


if __name__ == "__main__":
    tvm.testing.main()
