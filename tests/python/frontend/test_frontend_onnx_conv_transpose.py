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
"""ConvTranspose of ``tvm_fixes.frontend.onnx``: a grid of layers, compared exactly.

Data and weights are small integers with exact sums, so every correct result is identical.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from tvm import relax
from tvm.relax.frontend import onnx as tvm_onnx

from helpers.coverage_tables import CoverageTables
from helpers.grids import batched, few, sample
from helpers.models import FLOAT, onnx_model
from helpers.onnx_graphs import node_model, onnx_runtime
from helpers.references import conv_transpose
from helpers.relax_modules import call, calls, cpu, merge
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support import switches

Ints = tuple[int, ...]
LAYERS_PER_BUILD = 26


@dataclass(frozen=True)
class Layer:
    """One ConvTranspose. Only the first `rank` elements of the tuples are used.

    Attributes
    ----------
    padding : str
        ``none``, ``pads``, a value of auto_pad, or ``output_shape`` and such a value.
    excess : tuple of int
        The excess of the uncropped output over ``output_shape``.
    symbolic : str
        ``static``, ``batch`` or ``spatial``: the symbolic dims of the data.
    """

    rank: int
    padding: str = "none"
    extent: Ints = (5, 4, 3)
    kernel: Ints = (4, 3, 2)
    stride: Ints = (2, 3, 2)
    dilation: Ints = (1, 1, 1)
    output_padding: Ints = (0, 0, 0)
    pads: Ints = (1, 0, 1, 0, 2, 1)
    excess: Ints = (3, 1, 2)
    group: int = 1
    channels: int = 4
    group_out: int = 3
    bias: bool = False
    dtype: str = "float32"
    weight_is_input: bool = False
    names_kernel: bool = False
    symbolic: str = "static"

    def _per_axis(self) -> list[Ints]:
        """Extent, kernel, stride, dilation, output padding and excess of each axis."""
        values = (
            self.extent,
            self.kernel,
            self.stride,
            self.dilation,
            self.output_padding,
            self.excess,
        )
        return list(zip(*values, strict=True))[: self.rank]

    def output_shape(self) -> list[int]:
        return [
            s * (n - 1) + d * (k - 1) + 1 + p - excess for n, k, s, d, p, excess in self._per_axis()
        ]

    def attributes(self) -> dict[str, object]:
        attributes: dict[str, object] = {
            "strides": self.stride[: self.rank],
            "dilations": self.dilation[: self.rank],
            "output_padding": self.output_padding[: self.rank],
            "group": self.group,
        }
        kind, _, auto_pad = self.padding.partition(" ")
        if kind == "pads":
            attributes["pads"] = self.pads[: self.rank] + self.pads[3 : 3 + self.rank]
        elif kind == "output_shape":
            attributes["output_shape"] = self.output_shape()
            attributes["auto_pad"] = auto_pad
        elif kind != "none":
            attributes["auto_pad"] = kind
        if self.names_kernel:
            attributes["kernel_shape"] = self.kernel[: self.rank]
        return attributes

    def arrays(self) -> dict[str, np.ndarray]:
        """Data, weight and bias, with sums too long for 16 bits and, in float64, for 32."""
        rng = np.random.default_rng(0)
        integers = lambda *shape: rng.integers(-4, 5, shape).astype("float64")  # noqa: E731
        kernel = self.kernel[: self.rank]
        x = integers(2, self.channels, *self.extent[: self.rank])
        most = {"float16": 1000, "bfloat16": 255}.get(self.dtype)
        if most is not None:
            x = rng.integers(-most, most + 1, x.shape).astype("float64")
        if self.dtype == "float64":
            x += integers(*x.shape) * 2**-26
        arrays = {"x": x, "w": integers(self.channels, self.group_out, *kernel)}
        if self.bias:
            arrays["b"] = integers(self.group_out * self.group)
        return {name: array.astype(numpy_dtype(self.dtype)) for name, array in arrays.items()}

    def model(self) -> onnx.ModelProto:
        arrays = self.arrays()
        inputs = {"x": arrays["x"]}
        if self.weight_is_input:
            inputs["w"] = arrays["w"]
        shape: list[int | None] = list(arrays["x"].shape)
        if self.symbolic != "static":
            shape[0] = None
        if self.symbolic == "spatial":
            shape[2:] = [None] * self.rank
        return node_model(
            "ConvTranspose",
            inputs,
            self.attributes(),
            constants={name: array for name, array in arrays.items() if name not in inputs},
            operands=list(arrays),
            shapes={"x": shape},
        )

    def inputs(self) -> list[np.ndarray]:
        arrays = self.arrays()
        return [arrays["x"], arrays["w"]] if self.weight_is_input else [arrays["x"]]

    def expected(self) -> np.ndarray:
        """The result by definition, with padding as in the ONNX specification."""
        begin, end, output_padding = [], [], []
        kind, _, auto_pad = self.padding.partition(" ")
        targets = self.output_shape()
        for axis, (n, k, s, d, p, _) in enumerate(self._per_axis()):
            whole = s * (n - 1) + d * (k - 1) + 1 + p
            if kind == "output_shape":
                total, p = max(whole - targets[axis], 0), p + max(targets[axis] - whole, 0)
            else:
                total = max(whole - s * n, 0) if kind.startswith("SAME") else 0
            small, large = total // 2, total - total // 2
            upper = "SAME_UPPER" in (kind, auto_pad)
            begin.append(self.pads[axis] if kind == "pads" else small if upper else large)
            end.append(self.pads[axis + 3] if kind == "pads" else large if upper else small)
            output_padding.append(p)
        arrays = self.arrays()
        spatial = "DHW"[3 - self.rank :]
        out = conv_transpose(
            arrays["x"],
            arrays["w"],
            strides=self.stride[: self.rank],
            padding=begin + end,
            output_padding=output_padding,
            dilation=self.dilation[: self.rank],
            groups=self.group,
            data_layout="NC" + spatial,
            kernel_layout="IO" + spatial,
            out_layout="NC" + spatial,
        )
        if self.bias:
            out += arrays["b"].astype("float64").reshape(1, -1, *[1] * self.rank)
        return out.astype(numpy_dtype(self.dtype))


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


PADDINGS = (
    "none",
    "pads",
    "SAME_UPPER",
    "SAME_LOWER",
    "VALID",
    "output_shape NOTSET",
    "output_shape SAME_UPPER",
    "output_shape SAME_LOWER",
    "output_shape VALID",
)
KINDS = {
    "plain": {},
    "stride-beyond-kernel": {"kernel": (2, 1, 2), "stride": (3, 4, 3), "excess": (-2, -1, 0)},
    "dilated": {"dilation": (3, 2, 4), "stride": (2, 1, 3), "bias": True},
    # Valid, and accepted by PyTorch, but rejected by ONNX Runtime.
    "output-padding-beyond-stride": {
        "stride": (1, 2, 1),
        "dilation": (3, 3, 2),
        "output_padding": (2, 2, 1),
        "kernel": (2, 3, 3),
    },
    "grouped": {"group": 2, "output_padding": (1, 2, 1), "bias": True, "names_kernel": True},
    "depthwise": {"group": 4, "group_out": 1, "weight_is_input": True, "symbolic": "batch"},
    "multiplier": {"group": 4, "group_out": 2, "kernel": (3, 3, 3), "stride": (2, 2, 2)},
    "float16": {"dtype": "float16", "bias": True},
    "float16-grouped": {"dtype": "float16", "group": 2, "dilation": (2, 1, 2)},
    "bfloat16": {"dtype": "bfloat16", "bias": True, "symbolic": "batch"},
    "float64": {"dtype": "float64", "bias": True},
    "symbolic": {"symbolic": "spatial", "bias": True, "names_kernel": True},
}
LAYERS = [
    (kind, Layer(rank, padding, **fields))
    for rank, padding, (kind, fields) in itertools.product((1, 2, 3), PADDINGS, KINDS.items())
    if not (kind == "symbolic" and padding.startswith("output_shape"))
]


def run_all(
    importer: Callable[[onnx.ModelProto], tvm.IRModule], layers: Sequence[Layer]
) -> list[np.ndarray | Exception]:
    """The result or the exception of each layer, in one build if that succeeds."""
    mods: dict[str, tvm.IRModule] = {}
    results: list[np.ndarray | Exception] = [NotImplementedError()] * len(layers)
    for index, layer in enumerate(layers):
        try:
            mods[str(index)] = importer(layer.model())
        except Exception as error:
            results[index] = error

    def build_and_run(names: list[str]) -> None:
        try:
            executable = relax.build(merge({name: mods[name] for name in names}), cpu())
        except Exception as error:
            if len(names) == 1:
                results[int(names[0])] = error
                return
            for half in (names[: len(names) // 2], names[len(names) // 2 :]):
                build_and_run(half)
            return
        vm = relax.VirtualMachine(executable, tvm.cpu())
        for name in names:
            try:
                results[int(name)] = call(vm, name, *layers[int(name)].inputs())
            except Exception as error:
                results[int(name)] = error

    if mods:
        build_and_run(list(mods))
    return results


def is_right(result: np.ndarray | Exception, expected: np.ndarray) -> bool:
    return (
        isinstance(result, np.ndarray)
        and (result.shape, result.dtype) == (expected.shape, expected.dtype)
        and bool((result == expected).all())
    )


def verdict(result: np.ndarray | Exception, expected: np.ndarray) -> str:
    if isinstance(result, Exception):
        return "refuses"
    return "right" if is_right(result, expected) else "silently wrong"


def assert_right(result: np.ndarray | Exception, layer: Layer) -> None:
    if isinstance(result, Exception):
        raise AssertionError(f"{layer} is refused") from result
    expected = layer.expected()
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype), layer
    np.testing.assert_array_equal(result, expected, err_msg=str(layer))


def in_onnx_runtime(layer: Layer) -> np.ndarray | Exception:
    try:
        return onnx_runtime(layer.model(), *layer.inputs())[0]
    except Exception as error:
        return error


def chunks(layers: list[tuple[str, Layer]]) -> list[list[tuple[str, Layer]]]:
    return [
        layers[start : start + LAYERS_PER_BUILD]
        for start in range(0, len(layers), LAYERS_PER_BUILD)
    ]


@pytest.mark.parametrize("chunk", chunks(sample(LAYERS, 20)), ids=lambda chunk: chunk[0][0])
@pytest.mark.filterwarnings("ignore:.*")
def test_layers(
    chunk: list[tuple[str, Layer]],
    coverage_table: CoverageTables,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ours is right on every layer; the table also has ONNX Runtime's and TVM's results."""
    layers = [layer for _, layer in chunk]
    ours = run_all(from_onnx, layers)
    with monkeypatch.context() as patch:
        patch.setenv(switches.ENVIRONMENT_VARIABLE, ",".join(switches.FIX_IDS))
        stock = run_all(tvm_onnx.from_onnx, layers)
    for (kind, layer), result, of_tvm in zip(chunk, ours, stock, strict=True):
        expected = layer.expected()
        of_onnx_runtime = verdict(in_onnx_runtime(layer), expected)
        assert of_onnx_runtime != "silently wrong", f"the reference is: {layer}"
        with coverage_table("onnx_conv_transpose_layers").case(
            rank=layer.rank,
            padding=layer.padding,
            kind=kind,
            onnx_runtime=of_onnx_runtime,
            TVM=verdict(of_tvm, expected),
        ):
            assert_right(result, layer)


@st.composite
def random_layers(draw: st.DrawFn) -> Layer:
    """A random valid layer with small extents."""
    triple = lambda low, high: draw(st.tuples(*[st.integers(low, high)] * 3))  # noqa: E731
    stride, dilation, kernel, extent = triple(1, 4), triple(1, 3), triple(1, 4), triple(1, 5)
    limits = [max(s, d) for s, d in zip(stride, dilation, strict=True)]
    output_padding = tuple(draw(st.integers(0, limit - 1)) for limit in limits)
    wholes = [
        s * (n - 1) + d * (k - 1) + 1 + p
        for n, k, s, d, p in zip(extent, kernel, stride, dilation, output_padding, strict=True)
    ]
    excess = tuple(
        draw(st.integers(p + 1 - limit, whole - 1))
        for p, limit, whole in zip(output_padding, limits, wholes, strict=True)
    )
    begin = tuple(draw(st.integers(0, min(whole - 1, 4))) for whole in wholes)
    end = tuple(
        draw(st.integers(0, min(whole - 1 - pad, 4)))
        for whole, pad in zip(wholes, begin, strict=True)
    )
    group = draw(st.integers(1, 3))
    padding = draw(st.sampled_from(PADDINGS))
    return Layer(
        rank=draw(st.integers(1, 3)),
        padding=padding,
        extent=extent,
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        output_padding=output_padding,
        pads=begin + end,
        excess=excess,
        group=group,
        channels=group * draw(st.integers(1, 2)),
        group_out=draw(st.integers(1, 3)),
        bias=draw(st.booleans()),
        dtype=draw(st.sampled_from(("float32", "float16", "bfloat16", "float64"))),
        weight_is_input=draw(st.booleans()),
        names_kernel=draw(st.booleans()),
        symbolic=draw(
            st.sampled_from(
                ("static", "batch") + ("spatial",) * (not padding.startswith("output_shape"))
            )
        ),
    )


@batched(8)
@given(st.lists(random_layers(), min_size=8, max_size=8))
@pytest.mark.filterwarnings("ignore:.*")
def test_random_layers(layers: list[Layer]) -> None:
    for layer, result in zip(layers, run_all(from_onnx, layers), strict=True):
        assert_right(result, layer)
        assert verdict(in_onnx_runtime(layer), layer.expected()) != "silently wrong"


@pytest.mark.parametrize(
    "changed, message",
    (
        (
            {"output_shape": [8]},
            "attribute output_shape is [8]; expected 2 elements for 2 spatial axes",
        ),
        ({"output_shape": [8, 0]}, "attribute output_shape is [8, 0]; expected at least 1"),
        (
            {"output_shape": [8, 13]},
            "attribute output_shape is [8, 13]; on spatial axis 1 it needs an output padding of 2, "
            "expected less than max(stride, dilation) = 2",
        ),
        (
            {"output_padding": [0, 2]},
            "attribute output_padding is [0, 2]; expected less than max(stride, dilation), [2, 2]",
        ),
        ({"strides": [2]}, "attribute strides is [2]; expected 2 elements for 2 spatial axes"),
        ({"strides": [2, 0]}, "attribute strides is [2, 0]; expected at least 1"),
        ({"dilations": [0, 1]}, "attribute dilations is [0, 1]; expected at least 1"),
        ({"pads": [1, 1]}, "attribute pads is [1, 1]; expected 4 elements for 2 spatial axes"),
        ({"pads": [1, 0, -1, 0]}, "attribute pads is [1, 0, -1, 0]; expected at least 0"),
        (
            {"pads": [1, 0, 1, 0], "auto_pad": "VALID"},
            "attribute pads is [1, 0, 1, 0]; expected no padding with auto_pad VALID (ONNX)",
        ),
        ({"auto_pad": "SAME"}, "attribute auto_pad is SAME; expected one of"),
        ({"kernel_shape": [3, 4]}, "attribute kernel_shape is [3, 4]; expected the extents of W"),
        ({"group": 3}, "attribute group is 3; expected a divisor of the number of channels of X"),
    ),
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*")
def test_invalid_attributes(changed: dict[str, object], message: str) -> None:
    model = invalid_model((1, 2, 4, 5), {"strides": [2, 2]} | changed)
    with pytest.raises(tvm.error.OpAttributeInvalid) as error:
        from_onnx(model)
    assert str(error.value).startswith(f"ConvTranspose 'node': {message}")


@pytest.mark.parametrize(
    "shape, attributes, message",
    (
        (
            (1, 2, "height", 5),
            {"output_shape": [8, 9]},
            "attribute output_shape is [8, 9]; expected X with static spatial dimensions, got "
            "R.shape([1, 2, height, 5])",
        ),
        ((1, 3, 4, 5), {}, "number of channels of X is 3; expected the channels of W, 2"),
        ((1, 2, 4), {}, "ranks of X and W are [3, 4]; expected both from 3 to 5 and equal"),
    ),
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*")
def test_invalid_data(
    shape: Sequence[int | str], attributes: dict[str, object], message: str
) -> None:
    with pytest.raises(tvm.error.OpAttributeInvalid) as error:
        from_onnx(invalid_model(shape, attributes))
    assert str(error.value).startswith(f"ConvTranspose 'node': {message}")


def invalid_model(shape: Sequence[int | str], attributes: dict[str, object]) -> onnx.ModelProto:
    x = np.zeros([dim if isinstance(dim, int) else 1 for dim in shape], "float32")
    weight = np.ones((2, 3, 3, 3), "float32")
    return node_model(
        "ConvTranspose", {"x": x}, attributes, constants={"w": weight}, shapes={"x": shape}
    )


def test_layouts_pass() -> None:
    """``output_shape`` becomes padding of the operator, so that its layout can be converted."""
    mod = from_onnx(Layer(2, "output_shape SAME_UPPER").model())
    (found,) = calls(mod, "relax.nn.conv2d_transpose")
    assert [int(pad) for pad in found.attrs.padding] == [1, 0, 2, 1]
    assert [found.op.name for found in calls(mod)] == ["relax.nn.conv2d_transpose"]


@pytest.mark.parametrize(
    "fix, layer",
    (
        ("onnx-conv-transpose-output-shape", Layer(2, "output_shape NOTSET")),
        ("onnx-dtype", Layer(1, dtype="float16", bias=True)),
    ),
)
def test_disabled_fix_uses_stock(fix: str, layer: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    model = layer.model()
    with switches.collect() as acted:
        ours = from_onnx(model)
    assert acted == {fix}
    stock = tvm_onnx.from_onnx(model)
    assert not tvm_ffi.structural_equal(ours, stock)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, fix)
    tvm.ir.assert_structural_equal(from_onnx(model), stock)


@few(2)
@pytest.mark.parametrize("padding", PADDINGS[:5])
def test_correct_imports_are_unchanged(padding: str) -> None:
    layer = Layer(2, padding, bias=True)
    for changed in (layer, replace(layer, dtype="float64"), replace(layer, symbolic="spatial")):
        with switches.collect() as acted:
            ours = from_onnx(changed.model())
        if changed.symbolic == "static":
            tvm.ir.assert_structural_equal(ours, tvm_onnx.from_onnx(changed.model()))
            assert acted == set()
        else:
            assert acted == {"onnx-unnamed-dims"}


def test_data_of_unknown_extents() -> None:
    """auto_pad works for data of unknown extents, as after a broadcast of unknown direction."""
    for operator, weight in (("ConvTranspose", (4, 3, 3, 3)), ("Conv", (3, 4, 3, 3))):
        convolution = helper.make_node(operator, ["sum", "w"], ["y"], auto_pad="SAME_UPPER")
        model = onnx_model(
            [helper.make_node("Add", ["a", "b"], ["sum"]), convolution],
            [("a", FLOAT, ("i", 4, "j", "k")), ("b", FLOAT, ("l", 4, "m", "n"))],
            [("y", FLOAT, [None] * 4)],
            {"w": np.ones(weight, "float32")},
        )
        (found,) = (found for found in calls(from_onnx(model)) if "conv" in found.op.name)
        assert [int(pad) for pad in found.attrs.padding] == [1, 1, 1, 1]


if __name__ == "__main__":
    tvm.testing.main()
