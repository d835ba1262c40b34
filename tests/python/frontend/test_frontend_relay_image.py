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
"""Relay's image operators against NumPy and PyTorch."""

import itertools

import numpy as np
import pytest
import torch
import tvm.testing

from helpers.grids import is_full
from helpers.relay_calls import Program
from helpers.relay_checks import check_program
from tvm_fixes import relay
from tvm_fixes.errors import RelayError

RNG = np.random.default_rng(5)
F32 = np.float32


def random(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(F32)


def assert_close(program: Program, expected: dict[str, np.ndarray], tolerance: float = 2e-5):
    results = program.run()
    assert len(results) == len(expected)
    for result, (name, reference) in zip(results, expected.items(), strict=True):
        assert (result.shape, result.dtype) == (reference.shape, reference.dtype), name
        np.testing.assert_allclose(result, reference, tolerance, tolerance, err_msg=name)


def coordinate(x: int, size: int, target: int, mode: str, roi=(0.0, 0.0)) -> float:
    scale = size / target
    if mode == "align_corners":
        return x * (size - 1) / (target - 1)
    if mode == "tf_crop_and_resize":
        return roi[0] * (size - 1) + x * (roi[1] - roi[0]) * (size - 1) / (target - 1)
    if mode == "asymmetric":
        return x * scale
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) * scale
    return (x + 0.5) * scale - 0.5


ROUND = {
    "": lambda x: np.floor(x + 1e-5),
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": lambda x: np.floor(x + 1e-5),
    "ceil": lambda x: np.ceil(x - 1e-5),
}


def matrix(size, target, mode, method, rounding="round", alpha=-0.5, exclude=0, roi=(0.0, 0.0)):
    """The weights by which the pixels of an axis count for each pixel of the result."""
    weights = np.zeros((target, size))
    for x in range(target):
        at = coordinate(x, size, target, mode, roi)
        if method == "nearest_neighbor":
            taps = [(int(ROUND[rounding](at)), 1.0)]
        elif method == "linear":
            base = int(np.floor(at))
            taps = [(base, 1 - (at - base)), (base + 1, at - base)]
        else:
            base = int(np.floor(at))
            taps = []
            for i in range(-1, 3):
                d = abs(at - base - i)
                far = alpha * (d**3 - 5 * d**2 + 8 * d - 4)
                near = (alpha + 2) * d**3 - (alpha + 3) * d**2 + 1
                taps.append((base + i, near if d <= 1 else far))
            if exclude:
                taps = [(i, w if 0 <= i < size else 0.0) for i, w in taps]
                total = sum(w for _, w in taps)
                taps = [(i, w / total) for i, w in taps]
        for i, weight in taps:
            weights[x, min(max(i, 0), size - 1)] += weight
    return weights


def resized(data: np.ndarray, size, *args, **kwargs) -> np.ndarray:
    result = data.astype("float64")
    for axis, target in enumerate(size, 2):
        weights = matrix(data.shape[axis], target, *args, **kwargs)
        result = np.moveaxis(np.tensordot(weights, result, (1, axis)), 0, axis)
    return result.astype(F32)


MODES = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
)


AXES = ["W", "HW", "DHW"]


@pytest.mark.parametrize("axes", AXES if is_full() else AXES[::2])
def test_resize(axes: str) -> None:
    program, expected = Program(), {}
    data = random(1, 2, *(4, 5, 3)[: len(axes)])
    x = program.input(data)
    size = [7, 3, 5][: len(axes)]
    name = f"image.resize{len(axes)}d"
    modes = MODES if len(axes) == 1 else ("half_pixel", "align_corners")
    methods = ("linear", "cubic") if len(axes) == 1 else ("linear",)
    for mode, method in itertools.product(modes, methods):
        attrs = {"coordinate_transformation_mode": mode, "method": method}
        program.call(name, [x], size=size, layout=f"NC{axes}", **attrs)
        expected[f"{method} {mode}"] = resized(data, size, mode, method)
    exclude = int(len(axes) < 3)
    attrs = {"method": "cubic", "cubic_alpha": -0.75, "cubic_exclude": exclude}
    program.call(name, [x], size=size, layout=f"NC{axes}", **attrs)
    expected["exclude"] = resized(data, size, "half_pixel", "cubic", alpha=-0.75, exclude=exclude)
    assert_close(program, expected)


@pytest.mark.parametrize("axes", AXES if is_full() else AXES[1:2])
def test_nearest_neighbors(axes: str) -> None:
    program, expected = Program(), {}
    data = random(1, 2, *(4, 6, 3)[: len(axes)])
    x = program.input(data)
    for rounding, size in itertools.product(ROUND, ([8, 12, 6], [3, 7, 2])):
        mode = "asymmetric" if size[0] == 8 else "half_pixel"
        program.call(
            f"image.resize{len(axes)}d",
            [x],
            size=size[: len(axes)],
            layout=f"NC{axes}",
            method="nearest_neighbor",
            rounding_method=rounding,
            coordinate_transformation_mode=mode,
        )
        expected[f"{rounding} {mode}"] = resized(
            data, size[: len(axes)], mode, "nearest_neighbor", rounding
        )
    assert_close(program, expected, 0)


def test_resize_layouts_and_dtypes() -> None:
    program, expected = Program(), {}
    data = random(2, 3, 4, 5)
    last = program.input(np.ascontiguousarray(data.transpose(0, 2, 3, 1)))
    program.call("image.resize2d", [last], size=[6, 3], layout="NHWC")
    expected["NHWC"] = resized(data, [6, 3], "half_pixel", "linear").transpose(0, 2, 3, 1)
    whole = RNG.integers(0, 255, (1, 1, 4, 5)).astype("uint8")
    program.call("image.resize2d", [program.input(whole)], size=[8, 3], out_dtype="float32")
    expected["out_dtype"] = resized(whole, [8, 3], "half_pixel", "linear")
    shape = [2, 3, relay.Any(), relay.Any()]
    program.call("image.resize2d", [program.input(data, shape)], size=[3, 9])
    expected["unknown"] = resized(data, [3, 9], "half_pixel", "linear")
    attrs = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    rows = program.input(data[:, :, :, 0])
    program.call("image.resize1d", [rows], size=[5], roi=[0.2, 0.9], **attrs)
    expected["roi"] = resized(data[..., 0], [5], "tf_crop_and_resize", "linear", roi=(0.2, 0.9))
    for method in ("linear", "nearest_neighbor"):
        attrs["method"] = method
        program.call("image.resize1d", [rows], size=[3], roi=[-1.0, 2.0], **attrs)
        outside = np.full((2, 3, 3), 9, F32)
        middle = (data[:, :, 1, 0] + data[:, :, 2, 0]) / 2
        outside[:, :, 1] = middle if method == "linear" else data[:, :, 2, 0]
        expected[f"outside {method}"] = outside
    assert_close(program, expected)


@pytest.mark.parametrize("method", ["bilinear", "nearest_neighbor"])
def test_crop_and_resize(method: str) -> None:
    program, expected = Program(), {}
    data = random(2, 3, 6, 7)
    boxes = np.array([[0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], [0.72, 1, 0.2, 0]], F32)
    indices = np.array([1, 0, 1], "int32")
    result = np.concatenate(
        [
            np.einsum(
                "hy,wx,ncyx->nchw",
                matrix(6, 4, "tf_crop_and_resize", method.replace("bi", ""), roi=(box[0], box[2])),
                matrix(7, 5, "tf_crop_and_resize", method.replace("bi", ""), roi=(box[1], box[3])),
                data[[index]],
            )
            for box, index in zip(boxes.astype("float64"), indices, strict=True)
        ]
    ).astype(F32)
    for layout in ("NCHW", "NHWC"):
        order = [0, 1, 2, 3] if layout == "NCHW" else [0, 2, 3, 1]
        x = program.input(np.ascontiguousarray(data.transpose(order)))
        args = [x, program.input(boxes), program.input(indices)]
        program.call("image.crop_and_resize", args, crop_size=[4, 5], layout=layout, method=method)
        expected[layout] = result.transpose(order)
    assert_close(program, expected)


def test_dilation2d() -> None:
    program, expected = Program(), {}
    data, weight = random(2, 3, 7, 8), random(3, 3, 2)
    for layout, kernel, attrs in (
        ("NCHW", "IHW", {"padding": [1, 1]}),
        ("NHWC", "HWI", {"strides": [2, 1], "dilations": [1, 2], "padding": [1, 0, 2, 1]}),
    ):
        order = [0, 1, 2, 3] if layout == "NCHW" else [0, 2, 3, 1]
        x = program.input(np.ascontiguousarray(data.transpose(order)))
        w = weight if kernel == "IHW" else np.ascontiguousarray(weight.transpose(1, 2, 0))
        program.call(
            "image.dilation2d",
            [x, program.input(w)],
            data_layout=layout,
            kernel_layout=kernel,
            **attrs,
        )
        pads = attrs["padding"] * (4 // len(attrs["padding"]))
        strides, dilations = attrs.get("strides", [1, 1]), attrs.get("dilations", [1, 1])
        full = np.pad(data, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
        extents = [
            (full.shape[2 + i] - (weight.shape[1 + i] - 1) * dilations[i] - 1) // strides[i] + 1
            for i in range(2)
        ]
        result = np.full((2, 3, *extents), -np.inf, F32)
        for y, z in np.ndindex(*weight.shape[1:]):
            seen = full[
                :,
                :,
                y * dilations[0] : y * dilations[0] + (extents[0] - 1) * strides[0] + 1 : strides[
                    0
                ],
                z * dilations[1] : z * dilations[1] + (extents[1] - 1) * strides[1] + 1 : strides[
                    1
                ],
            ]
            result = np.maximum(result, seen + weight[:, y, z][:, None, None])
        expected[layout] = result.transpose(order)
    assert_close(program, expected, 0)


def test_affine_grid() -> None:
    program = Program()
    data = random(2, 2, 3)
    program.call("image.affine_grid", [program.input(data)], target_shape=[4, 5])
    grid = torch.nn.functional.affine_grid(torch.tensor(data), [2, 1, 4, 5], align_corners=True)
    assert_close(program, {"grid": np.ascontiguousarray(grid.numpy().transpose(0, 3, 1, 2))})


def test_grid_sample() -> None:
    program, expected = Program(), {}
    data, grid = random(2, 3, 5, 6), RNG.uniform(-1.3, 1.3, (2, 2, 4, 7)).astype(F32)
    volume, points = random(1, 2, 4, 5, 3), RNG.uniform(-1.3, 1.3, (1, 3, 3, 2, 4)).astype(F32)
    cases = [
        ("bilinear", "border", False, "NCHW"),
        ("nearest", "reflection", False, "NCHW"),
        ("bicubic", "zeros", True, "NCHW"),
        ("bilinear", "border", True, "NCDHW"),
        ("bilinear", "zeros", True, "NCHW"),
        ("nearest", "zeros", False, "NCDHW"),
    ]
    for method, pad, align, layout in cases if is_full() else cases[:4]:
        x, at = (data, grid) if layout == "NCHW" else (volume, points)
        program.call(
            "image.grid_sample",
            [program.input(x), program.input(at)],
            layout=layout,
            method=method,
            padding_mode=pad,
            align_corners=align,
        )
        expected[f"{layout} {method} {pad} {align}"] = torch.nn.functional.grid_sample(
            torch.tensor(x), torch.tensor(np.moveaxis(at, 1, -1)), method, pad, align
        ).numpy()
    assert_close(program, expected, 1e-4)


@pytest.mark.parametrize("method", ["bilinear", "nearest_neighbor"])
def test_boxes_of_images_out_of_range_are_errors_at_run_time(method: str) -> None:
    program = Program()
    boxes, image = np.array([[0, 0, 1, 1]], F32), program.input(np.array([7], "int32"))
    args = [random(2, 3, 5, 4), boxes, image]
    program.call("image.crop_and_resize", args, crop_size=[2, 3], method=method)
    with pytest.raises(AssertionError, match="index 7 is out of range for axis 0 of 2"):
        program.run()


def test_resizes_of_tvm_0_6_and_0_7() -> None:
    """For the nearest pixel, half_pixel is the same as asymmetric."""
    x = random(1, 2, 3, 4)
    rows, columns = np.arange(5) * 3 // 5, np.arange(7) * 4 // 7
    nearest = x[:, :, rows][..., columns]
    linear = torch.nn.functional.interpolate(torch.tensor(x), (5, 7), mode="bilinear").numpy()
    aligned = torch.nn.functional.interpolate(
        torch.tensor(x), (5, 7), mode="bilinear", align_corners=True
    ).numpy()
    bodies = {
        'image.resize(%x0, size=[5, 7], method="nearest_neighbor")': nearest,
        'image.resize(%x0, size=[5, 7], method="NEAREST_NEIGHBOR", align_corners=False)': nearest,
        "image.resize(%x0, size=[5, 7])": linear,
        "image.resize(%x0, size=[5, 7], align_corners=True)": aligned,
    }
    check_program(bodies, x, rtol=1e-5, atol=1e-5)


def test_unknown_size_is_an_error() -> None:
    program = Program()
    program.call("image.resize2d", [program.input(random(1, 1, 2, 2))], size=[relay.Any(), 4])
    with pytest.raises(RelayError, match=r"image\.resize2d .*size must be known"):
        program.run()


if __name__ == "__main__":
    tvm.testing.main()
