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
"""Values of Relay's convolutions and matrix products, against PyTorch."""

import numpy as np
import torch
import tvm.testing
from torch.nn import functional

from helpers.relax_modules import integers
from helpers.relay_checks import check_program, run_program

EXACT = {"rtol": 0, "atol": 0}


def conv(function, x, w, **options):
    """A convolution of PyTorch, on arrays."""
    return function(torch.from_numpy(x), torch.from_numpy(w), **options).numpy()


def test_conv2d():
    x, w = integers(2, 4, 7, 5), integers(6, 4, 3, 2, seed=1)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 3), (0, 2)))
    nhwc = conv(functional.conv2d, x, w, stride=(2, 1)).transpose(0, 2, 3, 1)
    packed = conv(functional.conv2d, x, w).reshape(2, 3, 2, 5, 4).transpose(0, 1, 3, 4, 2)
    check_program(
        {
            "nn.conv2d(%x0, %x1)": conv(functional.conv2d, x, w),
            "nn.conv2d(%x0, %x1, strides=[2, 1], padding=[1, 0], dilation=[2, 1], channels=6, "
            "kernel_size=[3, 2])": conv(
                functional.conv2d, x, w, stride=(2, 1), padding=(1, 0), dilation=(2, 1)
            ),
            "nn.conv2d(%x0, %x1, padding=[1, 0, 3, 2])": conv(functional.conv2d, padded, w),
            'nn.conv2d(%x0, %x1, strides=[2, 1], out_layout="NHWC")': nhwc,
            "nn.conv2d(transpose(%x0, axes=[0, 2, 3, 1]), transpose(%x1, axes=[2, 3, 1, 0]), "
            'strides=[2, 1], data_layout="NHWC", kernel_layout="HWIO")': nhwc,
            'nn.conv2d(layout_transform(%x0, src_layout="NCHW", dst_layout="NCHW2c"), '
            'layout_transform(%x1, src_layout="OIHW", dst_layout="OIHW2i2o"), '
            'data_layout="NCHW2c", kernel_layout="OIHW2i2o")': packed,
            'nn.contrib_conv2d_NCHWc(layout_transform(%x0, src_layout="NCHW", '
            'dst_layout="NCHW2c"), layout_transform(%x1, src_layout="OIHW", '
            'dst_layout="OIHW2i2o"), channels=6, kernel_size=[3, 2], data_layout="NCHW2c", '
            'kernel_layout="OIHW2i2o", out_layout="NCHW2c")': packed,
        },
        x,
        w,
        **EXACT,
    )


def test_conv2d_in_groups():
    x, w = integers(1, 4, 5, 6), integers(4, 2, 3, 3, seed=1)
    by_channel = w.reshape(8, 1, 3, 3)
    depthwise = conv(functional.conv2d, x, by_channel, groups=4, padding=1)
    check_program(
        {
            "nn.conv2d(%x0, %x1, groups=2)": conv(functional.conv2d, x, w, groups=2),
            "nn.conv2d(%x0, %x1, groups=4, padding=[1, 1, 1, 1], channels=8, "
            "kernel_size=[3, 3])": depthwise,
            "nn.conv2d(%x0, reshape(%x1, newshape=[8, 1, 3, 3]), groups=4, padding=[1, 1])": (
                depthwise
            ),
            "nn.conv2d(transpose(%x0, axes=[0, 2, 3, 1]), transpose(%x1, axes=[2, 3, 0, 1]), "
            'groups=4, padding=[1, 1], channels=8, kernel_size=[3, 3], data_layout="NHWC", '
            'kernel_layout="HWOI", out_layout="NCHW")': depthwise,
            "nn.conv2d(%x0, reshape(%x1, newshape=[2, 2, 2, 3, 3]), groups=2, channels=4, "
            'kernel_size=[3, 3], kernel_layout="GOIHW")': conv(functional.conv2d, x, w, groups=2),
        },
        x,
        w,
        **EXACT,
    )


def test_conv1d_and_conv3d():
    x, w = integers(2, 4, 9), integers(6, 2, 3, seed=1)
    check_program(
        {
            "nn.conv1d(%x0, %x1, groups=2, strides=[2], padding=[1, 1], dilation=[2])": conv(
                functional.conv1d, x, w, groups=2, stride=2, padding=1, dilation=2
            ),
            "nn.conv1d(%x0, %x1, groups=2, padding=[2, 0])": conv(
                functional.conv1d, np.pad(x, ((0, 0), (0, 0), (2, 0))), w, groups=2
            ),
            "nn.conv1d(transpose(%x0, axes=[0, 2, 1]), transpose(%x1, axes=[2, 1, 0]), groups=2, "
            'data_layout="NWC", kernel_layout="WIO")': conv(
                functional.conv1d, x, w, groups=2
            ).transpose(0, 2, 1),
        },
        x,
        w,
        **EXACT,
    )
    x, w = integers(1, 2, 4, 5, 3), integers(3, 2, 2, 3, 1, seed=1)
    reference = conv(functional.conv3d, x, w, stride=(1, 2, 1), padding=(0, 1, 0))
    check_program(
        {
            "nn.conv3d(%x0, %x1, strides=[1, 2, 1], padding=[0, 1, 0])": reference,
            "nn.conv3d(transpose(%x0, axes=[0, 2, 3, 4, 1]), transpose(%x1, axes=[2, 3, 4, 1, 0]), "
            'strides=[1, 2, 1], padding=[0, 1, 0, 0, 1, 0], data_layout="NDHWC", '
            'kernel_layout="DHWIO")': reference.transpose(0, 2, 3, 4, 1),
        },
        x,
        w,
        **EXACT,
    )


def test_conv_transpose():
    x, w = integers(2, 4, 5, 3), integers(4, 3, 3, 2, seed=1)
    options = {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 2)}
    text = "strides=[2, 3], padding=[1, 0], output_padding=[1, 2]"
    reference = conv(functional.conv_transpose2d, x, w, **options)
    check_program(
        {
            f"nn.conv2d_transpose(%x0, %x1, {text})": reference,
            "nn.conv2d_transpose(%x0, %x1, groups=2, dilation=[2, 1], channels=6, "
            "kernel_size=[3, 2])": conv(
                functional.conv_transpose2d, x, w, groups=2, dilation=(2, 1)
            ),
            "nn.conv2d_transpose(%x0, %x1, padding=[1, 0, 0, 1])": conv(
                functional.conv_transpose2d, x, w
            )[:, :, 1:, :-1],
            "nn.conv2d_transpose(transpose(%x0, axes=[0, 2, 3, 1]), transpose(%x1, "
            f'axes=[2, 3, 1, 0]), {text}, data_layout="NHWC", kernel_layout="HWOI")': (
                reference.transpose(0, 2, 3, 1)
            ),
        },
        x,
        w,
        **EXACT,
    )
    x, w = integers(1, 2, 5), integers(2, 3, 3, seed=1)
    y, v = integers(1, 2, 2, 3, 2), integers(2, 3, 2, 1, 2, seed=1)
    check_program(
        {
            "nn.conv1d_transpose(%x0, %x1, strides=[2], padding=[1], output_padding=[1])": conv(
                functional.conv_transpose1d, x, w, stride=2, padding=1, output_padding=1
            ),
            "nn.conv3d_transpose(%x2, %x3, strides=[2, 1, 2], dilation=[1, 2, 1])": conv(
                functional.conv_transpose3d, y, v, stride=(2, 1, 2), dilation=(1, 2, 1)
            ),
        },
        x,
        w,
        y,
        v,
        **EXACT,
    )


def test_integers():
    x = np.array([[[[100, -128, 127]]]], "int8")
    w = np.array([[[[127, 2]]]], "int8")
    wide = np.array([[[[100 * 127 - 256, -128 * 127 + 254]]]], "int32")
    u = np.array([[[[200, 3, 255]]]], "uint8")
    check_program(
        {
            'nn.conv2d(%x0, %x1, out_dtype="int32")': wide,
            'nn.conv2d(%x2, %x1, out_dtype="int32")': np.array(
                [[[[200 * 127 + 6, 3 * 127 + 510]]]], "int32"
            ),
            "nn.dense(reshape(%x0, newshape=[1, 3]), reshape(%x0, newshape=[1, 3]), "
            'out_dtype="int32")': np.array([[100 * 100 + 128 * 128 + 127 * 127]], "int32"),
            "nn.dense(reshape(%x2, newshape=[1, 3]), reshape(%x0, newshape=[1, 3]), "
            'out_dtype="int32")': np.array([[20000 - 384 + 255 * 127]], "int32"),
        },
        x,
        w,
        u,
        **EXACT,
    )


def test_dynamic_shapes():
    x, w = integers(2, 3, 6, 5), integers(4, 3, 3, 3, seed=1)
    shapes = [("?", 3, "?", "?"), w.shape]
    check_program(
        {
            "nn.conv2d(%x0, %x1, padding=[1, 1])": conv(functional.conv2d, x, w, padding=1),
            'nn.conv2d(%x0, %x1, strides=[2, 2], out_layout="NHWC")': conv(
                functional.conv2d, x, w, stride=2
            ).transpose(0, 2, 3, 1),
        },
        x,
        w,
        shapes=shapes,
        **EXACT,
    )


def test_matmul():
    a, b, c = integers(2, 3, 4), integers(5, 4, seed=1), integers(1, 4, 5, seed=2)
    check_program(
        {
            "nn.dense(%x0, %x1)": a @ b.T,
            "nn.dense(%x1, %x1, units=5)": b @ b.T,
            'nn.dense(%x1, %x1, units=5, out_dtype="float64")': (b @ b.T).astype("float64"),
            "nn.matmul(%x0, %x1, units=5, transpose_b=True)": a @ b.T,
            "nn.matmul(%x1, %x1, transpose_a=True)": b.T @ b,
            "nn.batch_matmul(%x0, %x2)": a @ c,
            "nn.batch_matmul(%x0, %x0, transpose_b=True)": a @ a.transpose(0, 2, 1),
            "nn.batch_matmul(%x0, %x0, transpose_a=True)": a.transpose(0, 2, 1) @ a,
            'nn.contrib_dense_pack(%x1, reshape(%x0, newshape=[2, 4, 3]), weight_layout="NC3n")': (
                b @ a.reshape(2, 4, 3).transpose(0, 2, 1).reshape(6, 4).T
            ),
        },
        a,
        b,
        c,
        **EXACT,
    )


def test_batches_of_unknown_extent():
    a, b = integers(2, 3, 4), integers(2, 5, 4, seed=1)
    shapes = [("?", 3, 4), ("?", 5, 4), ("?", 3, 4)]
    check_program(
        {
            "nn.batch_matmul(%x0, %x1, transpose_b=True)": a @ b.transpose(0, 2, 1),
            "nn.batch_matmul(%x2, %x1, transpose_b=True)": a[:1] @ b.transpose(0, 2, 1),
        },
        a,
        b,
        a[:1],
        shapes=shapes,
    )


def deformable(x, offset, w):
    """A deformable convolution of one image, two groups of offsets and padding 1, as in TVM."""
    channels, height, width = x.shape[1:]
    wide = np.pad(x[0], ((0, 0), (0, 1), (0, 1)))
    result = np.zeros((len(w), height, width))
    shifts = offset[0].reshape(2, 3, 3, 2, height, width)
    for c, i, j, y, z in np.ndindex(channels, 3, 3, height, width):
        dy, dx = shifts[c * 2 // channels, i, j, :, y, z]
        row, column = y + i - 1 + dy, z + j - 1 + dx
        if not (0 <= row < height and 0 <= column < width):
            continue
        top, left = int(np.floor(row)), int(np.floor(column))
        a, b = row - top, column - left
        patch = wide[c, top : top + 2, left : left + 2]
        value = np.array([1 - a, a]) @ patch @ np.array([1 - b, b])
        result[:, y, z] += w[:, c, i, j] * value
    return result[None]


def test_deformable_conv2d():
    x, w = integers(1, 4, 5, 6), integers(2, 4, 3, 3, seed=1)
    offset = np.zeros((1, 36, 5, 6), "float32")
    got = run_program(
        "nn.deformable_conv2d(%x0, %x1, %x2, padding=[1, 1], deformable_groups=2)", x, offset, w
    )
    np.testing.assert_allclose(got, conv(functional.conv2d, x, w, padding=1), rtol=1e-5)
    offset = np.random.default_rng(0).uniform(-1.5, 1.5, offset.shape).astype("float32")
    got = run_program(
        "nn.deformable_conv2d(%x0, %x1, %x2, padding=[1, 1], deformable_groups=2)", x, offset, w
    )
    np.testing.assert_allclose(got, deformable(x, offset, w), rtol=1e-4, atol=1e-4)


def test_correlation():
    a, b = integers(1, 3, 5, 6), integers(1, 3, 5, 6, seed=1)
    got = run_program("nn.correlation(%x0, %x1, max_displacement=1, padding=[1, 1])", a, b)
    wide = np.pad(b, ((0, 0), (0, 0), (1, 1), (1, 1)))
    shifts = [wide[:, :, i : i + 5, j : j + 6] for i in range(3) for j in range(3)]
    reference = np.stack([(a * shift).mean(axis=1) for shift in shifts], axis=1)
    np.testing.assert_allclose(got, reference, rtol=1e-5)


if __name__ == "__main__":
    tvm.testing.main()
