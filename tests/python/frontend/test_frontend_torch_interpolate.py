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
"""Interpolation, by both importers, compared with PyTorch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from tvm.relax.frontend import torch as tvm_torch
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.grids import batched, few, is_full, sample
from helpers.relax_modules import calls
from helpers.torch_programs import (
    FLOATS,
    IMPORTERS,
    check,
    check_all,
    import_exported,
    import_fx,
    name_of,
    random,
    run,
    run_functions,
)
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.support import switches

WIDE = (torch.float32, torch.float64)
MODES = {
    1: ("nearest", "nearest-exact", "linear", "area"),
    2: ("nearest", "nearest-exact", "bilinear", "bicubic", "area"),
    3: ("nearest", "nearest-exact", "trilinear", "area"),
}


class Interpolate(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, **self.options)


@dataclass(frozen=True)
class Resize:
    """Data of some extents, resized to a size or by a factor."""

    extents: tuple[int, ...]
    dtype: torch.dtype
    options: tuple[tuple[str, Any], ...]

    def module(self) -> nn.Module:
        return Interpolate(**dict(self.options))

    def inputs(self) -> tuple[torch.Tensor]:
        return (random(2, 3, *self.extents, dtype=self.dtype, seed=0),)


@st.composite
def resizes(draw: st.DrawFn) -> Resize:
    """A random interpolation that PyTorch accepts, with small extents."""
    rank = draw(st.sampled_from((1, 2, 2, 3)))
    mode = draw(st.sampled_from(MODES[rank]))
    options: dict[str, Any] = {"mode": mode}
    extents = draw(st.tuples(*[st.integers(1, 12)] * rank))
    if mode == "area" or draw(st.booleans()):
        sizes = st.integers(1, 24)
        options["size"] = draw(st.one_of(sizes, st.tuples(*[sizes] * rank)))
    else:
        factors = st.sampled_from((0.5, 0.7, 1.0, 1.3, 1.5, 2, 2.5, 3.0))
        options["scale_factor"] = draw(st.one_of(factors, st.tuples(*[factors] * rank)))
        options["recompute_scale_factor"] = draw(st.sampled_from((None, True, False)))
        factor = options["scale_factor"]
        factors_of_axes = factor if isinstance(factor, tuple) else (factor,) * rank
        # An output without elements is rejected.
        extents = tuple(
            max(extent, int(np.ceil(1 / f)))
            for extent, f in zip(extents, factors_of_axes, strict=True)
        )
    if mode not in ("nearest", "nearest-exact", "area"):
        options["align_corners"] = draw(st.sampled_from((None, False, True)))
    # PyTorch exports area as a pooling.
    dtype = draw(st.sampled_from(WIDE if mode == "area" else FLOATS))
    # PyTorch antialiases no 16-bit data, and one column wrong.
    if mode in ("bilinear", "bicubic") and dtype in WIDE and extents[-1] > 1:
        options["antialias"] = draw(st.booleans())
    return Resize(extents, dtype, tuple(options.items()))


BATCH = 8 if is_full() else 4


@pytest.mark.parametrize("name", IMPORTERS)
@batched(8 if is_full() else 12)
@given(cases=st.lists(resizes(), min_size=BATCH, max_size=BATCH))
def test_random_resize(name: str, cases: list[Resize]) -> None:
    modules = {f"{i} {case}": (case.module(), case.inputs()) for i, case in enumerate(cases)}
    check_all(modules, IMPORTERS[name])


EXTENTS = (1, 2, 3, 5, 7, 8, 13, 41)
SIZES = (1, 2, 3, 8, 11, 16, 40, 82, 123)


NEAREST = list(product(("nearest", "nearest-exact"), (torch.float32, torch.float64, torch.uint8)))


@few(1)
@pytest.mark.parametrize(("mode", "dtype"), NEAREST if is_full() else NEAREST[::2])
def test_nearest_takes_the_very_elements(mode: str, dtype: torch.dtype) -> None:
    """Coordinates are rounded as in PyTorch, in every dtype."""
    pairs = sample([(extent, size) for extent in EXTENTS for size in SIZES], 8)
    inputs = [torch.arange(extent).to(dtype).expand(1, 1, 2, extent) for extent, _ in pairs]
    functions = {
        f"to{number}": import_fx(Interpolate(size=(2, size), mode=mode), (x,))
        for number, ((_, size), x) in enumerate(zip(pairs, inputs, strict=True))
    }
    outputs = run_functions(functions, dict(zip(functions, ((x,) for x in inputs), strict=True)))
    for (extent, size), x, output in zip(pairs, inputs, outputs.values(), strict=True):
        expected = F.interpolate(x, size=(2, size), mode=mode)
        torch.testing.assert_close(output, expected, rtol=0, atol=0, msg=f"{extent} to {size}")


def test_doubling_is_one_resize() -> None:
    """A single operator keeps layouts propagating; its coordinates are exact."""

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float32")) -> R.Tensor((1, 2, 8, 8), "float32"):
            with R.dataflow():
                resized = R.image.resize2d(
                    x,
                    R.shape([8, 8]),
                    method="nearest_neighbor",
                    coordinate_transformation_mode="asymmetric",
                    rounding_method="floor",
                )
                out: R.Tensor((1, 2, 8, 8), "float32") = resized
                R.output(out)
            return out

    module, x = nn.Upsample(scale_factor=2), torch.zeros(1, 2, 4, 4)
    tvm.ir.assert_structural_equal(import_fx(module, (x,)), Expected)
    exported = import_exported(module, (x,))
    assert [call.op.name for call in calls(exported)] == ["relax.image.resize2d"]


@few(3)
@pytest.mark.parametrize("mode", ("bilinear", "bicubic"))
@pytest.mark.parametrize("align_corners", (False, True))
@pytest.mark.parametrize("options", ({"size": (9, 5)}, {"scale_factor": 2}), ids=str)
def test_smooth_modes_are_imported_as_by_tvm(mode: str, align_corners: bool, options: dict) -> None:
    module = Interpolate(mode=mode, align_corners=align_corners, **options)
    x = torch.zeros(1, 2, 4, 7)
    ours = import_fx(module, (x,))
    tvm.ir.assert_structural_equal(ours, import_fx(module, (x,), of=tvm_torch))


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=name_of)
def test_from_fx_area_sums_16_bit_data_in_float32(dtype: torch.dtype) -> None:
    x = random(2, 3, 40, 30, dtype=dtype, seed=0)
    check(Interpolate(size=(1, 2), mode="area"), x, importer=import_fx)


UPSAMPLES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "1-D": (nn.Upsample(scale_factor=3), (2, 3, 5)),
    "2-D": (nn.Upsample(size=(7, 9)), (2, 3, 5, 4)),
    "3-D": (nn.Upsample(scale_factor=(1, 2, 3), mode="trilinear"), (1, 2, 3, 4, 5)),
    "recompute": (
        nn.Upsample(scale_factor=1.3, mode="bicubic", recompute_scale_factor=True),
        (1, 2, 7, 8),
    ),
    "UpsamplingNearest2d": (nn.UpsamplingNearest2d(scale_factor=2), (1, 2, 3, 4)),
    "UpsamplingBilinear2d": (nn.UpsamplingBilinear2d(size=(5, 7)), (1, 2, 3, 4)),
}


@pytest.mark.parametrize("name", IMPORTERS)
def test_modules(name: str) -> None:
    modules = {
        key: (module, (random(*shape, dtype=torch.float32, seed=0),))
        for key, (module, shape) in UPSAMPLES.items()
    }
    check_all(modules, IMPORTERS[name])


SYMBOLIC = list(product(("nearest", "nearest-exact", "bilinear", "bicubic"), IMPORTERS))


@few(1)
@pytest.mark.parametrize(("mode", "name"), SYMBOLIC if is_full() else SYMBOLIC[::3])
def test_symbolic_extents(name: str, mode: str) -> None:
    module = Interpolate(scale_factor=4, mode=mode)
    mod = IMPORTERS[name](module, (torch.zeros(2, 3, 5, 4),), dynamic=(0, 2, 3))
    vm_input = random(3, 3, 7, 9, dtype=torch.float32, seed=0)
    expected = module(vm_input)
    torch.testing.assert_close(run(mod, vm_input), expected, rtol=1e-5, atol=1e-5)


ELEMENTS = list(product(IMPORTERS, ("nearest", "nearest-exact"), (torch.float32, torch.uint8)))


@few(1)
@pytest.mark.parametrize(("name", "mode", "dtype"), ELEMENTS if is_full() else ELEMENTS[::3])
def test_nearest_elements_of_symbolic_extents(name: str, mode: str, dtype: torch.dtype) -> None:
    ways = {"scale_factor": 3.0}, {"size": (9, 13)}
    number = ELEMENTS.index((name, mode, dtype))
    for options in ways if is_full() else ways[number % 2 :][:1]:
        module = Interpolate(**options, mode=mode)
        mod = IMPORTERS[name](module, (torch.zeros(2, 3, 5, 4, dtype=dtype),), dynamic=(0, 2, 3))
        for extent in ((5, 4), (2, 31), (58, 3), (9, 13)):
            x = random(2, 3, *extent, dtype=torch.float32, seed=0).mul(50).to(dtype)
            assert torch.equal(run(mod, x), module(x)), (options, extent)


def test_nearest_elements_for_the_extents_of_another_tensor() -> None:
    class Skip(nn.Module):
        def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
            return F.interpolate(x, size=skip.shape[2:]) + skip

    example = torch.zeros(1, 2, 5, 7), torch.zeros(1, 2, 9, 13)
    shapes = [{2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}] * 2
    program = torch.export.export(Skip(), example, dynamic_shapes=tuple(shapes))
    mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    for small, large in (((4, 6), (8, 12)), ((5, 7), (36, 29)), ((58, 31), (3, 2))):
        inputs = [random(1, 2, *extent, dtype=torch.float32, seed=1) for extent in (small, large)]
        assert torch.equal(run(mod, *inputs), Skip()(*inputs))


SCALES = list(product(IMPORTERS, WIDE, ("bilinear", "bicubic")))


# One case of each way, importer, dtype and mode.
QUICK_SCALES = [SCALES[number] for number in (0, 3, 5, 6)]


@few(2)
@pytest.mark.parametrize(("name", "dtype", "mode"), SCALES if is_full() else QUICK_SCALES)
def test_symbolic_extents_by_any_scale(name: str, mode: str, dtype: torch.dtype) -> None:
    ways = (
        {"scale_factor": 1.5},
        {"scale_factor": (1.7, 2.0), "align_corners": True},
        {"size": (9, 1), "align_corners": True},
        {"scale_factor": 1.3, "recompute_scale_factor": True},
    )
    number = SCALES.index((name, dtype, mode))
    for options in ways if is_full() else ways[number % 4 :][:1]:
        module = Interpolate(**options, mode=mode)
        mod = IMPORTERS[name](module, (torch.zeros(2, 3, 5, 4, dtype=dtype),), dynamic=(0, 2, 3))
        for extent in ((5, 4), (2, 31), (13, 9)):
            x = random(2, 3, *extent, dtype=dtype, seed=0)
            torch.testing.assert_close(run(mod, x), module(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", IMPORTERS)
def test_antialiasing_of_symbolic_extents_is_rejected(name: str) -> None:
    module = Interpolate(size=(3, 3), mode="bilinear", antialias=True)
    message = r"interpolate '.*': attribute size is .*3.*; expected static extents"
    with pytest.raises(tvm.error.OpAttributeInvalid, match=message):
        IMPORTERS[name](module, (torch.zeros(2, 3, 5, 4),), dynamic=(2,))


@pytest.mark.parametrize(
    "shape, options, expected",
    (
        (
            (1, 2, 4),
            {"size": 8, "mode": "bilinear"},
            "3D input, but bilinear mode needs 4D input",
        ),
        (
            (1, 2, 4),
            {"size": (8, 8)},
            "",
        ),
        ((1, 2, 4), {}, "either size or scale_factor should be defined"),
        (
            (1, 2, 4),
            {"size": 8, "scale_factor": 2},
            "only one of size or scale_factor should be defined",
        ),
    ),
    ids=str,
)
def test_from_fx_rejects_what_pytorch_rejects(
    shape: Sequence[int], options: dict[str, Any], expected: str
) -> None:
    x = torch.zeros(shape)
    with pytest.raises((ValueError, NotImplementedError)):
        F.interpolate(x, **options)
    errors = tvm.error.OpAttributeInvalid, tvm.error.OpNotImplemented
    with pytest.raises(errors, match=f"at node 'interpolate': .*{expected}"):
        import_fx(Interpolate(**options), (x,))


def test_integers_are_interpolated_by_nearest_alone() -> None:
    module = Interpolate(size=(8, 8), mode="bilinear")
    expected = "attribute mode is 'bilinear'; expected floating-point data, got uint8"
    with pytest.raises(tvm.error.OpAttributeInvalid, match=expected):
        import_fx(module, (torch.zeros(1, 1, 4, 4, dtype=torch.uint8),))


@pytest.mark.parametrize("options", ({"size": (11, 5)}, {"scale_factor": 2, "mode": "bilinear"}))
def test_from_fx_of_a_channels_last_model(options: dict[str, Any]) -> None:
    """TVM's option for traced functions with (N, H, W, C) data."""
    x = random(2, 8, 6, 3, dtype=torch.float32, seed=0)
    mod = import_fx(Interpolate(**options), (x,), default_image_layout="NHWC")
    expected = F.interpolate(x.permute(0, 3, 1, 2), **options).permute(0, 2, 3, 1)
    torch.testing.assert_close(run(mod, x), expected, rtol=1e-5, atol=1e-6)


class Skip(nn.Module):
    """Resizes to the size of another feature map."""

    def forward(self, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=like.shape[2:], mode="nearest") + like


@pytest.mark.parametrize("name", IMPORTERS)
def test_size_of_another_tensor(name: str) -> None:
    x, like = (random(1, 2, *shape, dtype=torch.float32, seed=0) for shape in ((8, 8), (11, 16)))
    check(Skip(), x, like, importer=IMPORTERS[name])


def test_infinity_stays_where_it_is() -> None:
    """A missing tap must not become zero times infinity."""
    x = torch.zeros(1, 1, 7, 9, dtype=torch.float64)
    x[..., -1] = torch.inf
    module = Interpolate(size=(7, 4), mode="bilinear", antialias=True)
    got = run(import_fx(module, (x,)), x)
    torch.testing.assert_close(got, module(x), equal_nan=True)


@pytest.mark.parametrize("name", IMPORTERS)
def test_disabled_fix_uses_stock(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = Interpolate(size=(11, 11)), torch.zeros(1, 2, 8, 8)
    stock = IMPORTERS[name](module, (x,), of=tvm_torch)
    with switches.collect() as acted:
        ours = IMPORTERS[name](module, (x,))
    assert acted >= {"torch-interpolate"}
    assert not tvm_ffi.structural_equal(ours, stock)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "torch-fx,torch-interpolate")
    tvm.ir.assert_structural_equal(IMPORTERS[name](module, (x,)), stock)


if __name__ == "__main__":
    tvm.testing.main()
