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
"""Values of Relay's operators that pad, scale or move elements, and of losses."""

import numpy as np
import torch
import tvm.testing
from torch.nn import functional

from helpers.relax_modules import integers
from helpers.relay_checks import check_program, run_program


def by_torch(function, *arrays, **options):
    """The result of a function of PyTorch on arrays."""
    return function(*map(torch.from_numpy, arrays), **options).numpy()


def test_pad():
    x = integers(2, 3, 4)
    width = ((0, 0), (1, 2), (3, 0))
    text = "pad_width=[[0, 0], [1, 2], [3, 0]]"
    reflected = np.pad(x, width, "reflect")
    check_program(
        {
            f"nn.pad(%x0, 1.5f, {text})": np.pad(x, width, constant_values=1.5),
            f"nn.pad(%x0, {text}, pad_value=2f)": np.pad(x, width, constant_values=2),
            f"nn.pad(%x0, %x1, {text})": np.pad(x, width, constant_values=7),
            f'nn.pad(%x0, 0f, {text}, pad_mode="edge")': np.pad(x, width, "edge"),
            f'nn.pad(%x0, 0f, {text}, pad_mode="reflect")': reflected,
            "nn.pad(%x0, negative(1e30f), pad_width=[[0, 1], [0, 0], [0, 0]])": np.pad(
                x, ((0, 1), (0, 0), (0, 0)), constant_values=np.float32(-1e30)
            ),
            "nn.pad(%x0, 0f, pad_width=[[0, 0], [-1, 1], [0, -2]])": np.pad(
                x[:, 1:, :-2], ((0, 0), (0, 1), (0, 0))
            ),
            f'nn.mirror_pad(%x0, {text}, mode="REFLECT")': reflected,
            f"nn.mirror_pad(%x0, {text})": np.pad(x, width, "symmetric"),
        },
        x,
        np.array(7, "float32"),
    )
    large = np.array([2**62 + 1], "int64")
    got = run_program("nn.pad(%x0, 4611686018427387905i64, pad_width=[[1, 1]])", large)
    np.testing.assert_array_equal(got, np.repeat(large, 3))


def test_upsampling():
    x = integers(1, 2, 3, 4)
    last = 'transpose(%x0, axes=[0, 2, 3, 1]), layout="NHWC"'
    check_program(
        {
            "nn.upsampling(%x0, scale_h=2f, scale_w=3f)": x.repeat(2, 2).repeat(3, 3),
            f"nn.upsampling({last}, scale_h=2f, scale_w=3f)": (
                x.repeat(2, 2).repeat(3, 3).transpose(0, 2, 3, 1)
            ),
            "nn.upsampling(%x0, scale_h=1.5f, scale_w=1f)": x[:, :, [0, 0, 1, 2]],
            'nn.upsampling(%x0, scale_h=2f, scale_w=3f, method="bilinear", align_corners=True)': (
                by_torch(
                    functional.interpolate,
                    x,
                    scale_factor=(2, 3),
                    mode="bilinear",
                    align_corners=True,
                )
            ),
            "nn.upsampling3d(reshape(%x0, newshape=[1, 1, 2, 3, 4]), scale_d=2f, scale_h=1f, "
            'scale_w=2f, coordinate_transformation_mode="asymmetric")': x.repeat(2, 1)
            .repeat(2, 3)
            .reshape(1, 1, 4, 3, 8),
            "nn.upsampling3d(reshape(%x0, newshape=[1, 1, 2, 3, 4]), scale_d=2f, scale_h=2f, "
            'scale_w=2f, method="trilinear")': by_torch(
                functional.interpolate, x.reshape(1, 1, 2, 3, 4), scale_factor=2, mode="trilinear"
            ),
        },
        x,
        atol=1e-5,
    )


def test_dynamic_upsampling():
    x = integers(1, 2, 3, 4)
    got = run_program("nn.upsampling(%x0, scale_h=2f, scale_w=1f)", x, shapes=[("?", 2, "?", "?")])
    np.testing.assert_array_equal(got, x.repeat(2, 2))


def test_space_and_depth():
    x = integers(2, 8, 4, 6)
    last = 'transpose(%x0, axes=[0, 2, 3, 1]), layout="NHWC"'
    shuffled = by_torch(functional.pixel_shuffle, x, upscale_factor=2)
    deep = x.reshape(2, 2, 2, 2, 4, 6).transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 8, 12)
    spread = x.reshape(2, 8, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(2, 32, 2, 3)
    batches = np.pad(x, ((0, 0), (0, 0), (2, 0), (1, 2))).transpose(0, 2, 3, 1)
    batches = batches.reshape(2, 3, 2, 3, 3, 8).transpose(2, 4, 0, 1, 3, 5).reshape(12, 3, 3, 8)
    crops = "block_shape=[2, 3], crops=[[2, 0], [1, 2]]"
    blocks = "block_shape=[2, 3], paddings=[[2, 0], [1, 2]]"
    check_program(
        {
            "nn.depth_to_space(%x0, block_size=2)": deep,
            'nn.depth_to_space(%x0, block_size=2, mode="CRD")': shuffled,
            f"nn.depth_to_space({last}, block_size=2)": deep.transpose(0, 2, 3, 1),
            "nn.space_to_depth(%x0, block_size=2)": spread,
            f"nn.space_to_depth({last}, block_size=2)": spread.transpose(0, 2, 3, 1),
            f"nn.space_to_batch_nd(transpose(%x0, axes=[0, 2, 3, 1]), {blocks})": batches,
            "nn.batch_to_space_nd(nn.space_to_batch_nd(transpose(%x0, axes=[0, 2, 3, 1]), "
            f"{blocks}), {crops})": x.transpose(0, 2, 3, 1),
        },
        x,
    )


def test_layout_transform():
    x = integers(4, 8, 3)
    tiles = x.reshape(2, 2, 2, 2, 2, 3)  # O, o, I, outer i, inner i, W
    check_program(
        {
            'layout_transform(%x0, src_layout="NCW", dst_layout="WNC")': x.transpose(2, 0, 1),
            'layout_transform(%x0, src_layout="OIW", dst_layout="OIW2i2o2i")': tiles.transpose(
                0, 2, 5, 3, 1, 4
            ),
            'layout_transform(layout_transform(%x0, src_layout="NCW", dst_layout="NCW4c"), '
            'src_layout="NCW4c", dst_layout="NWC2c")': x.reshape(4, 4, 2, 3).transpose(0, 3, 1, 2),
        },
        x,
    )


def test_losses():
    x = np.random.default_rng(0).uniform(0.1, 1, (4, 3)).astype("float32")
    y = np.random.default_rng(1).uniform(0, 1, (4, 3)).astype("float32")
    targets, weights = np.array([0, 2, 1, 2]), np.array([1, 2, 0.5], "float32")
    options = {"weight": torch.from_numpy(weights), "ignore_index": 2}
    losses = {
        reduction: by_torch(functional.nll_loss, x, targets, reduction=reduction, **options)
        for reduction in ("mean", "sum", "none")
    }
    check_program(
        {
            "nn.cross_entropy(%x0, %x1)": np.float32(-(np.log(x) * y).sum() / 4),
            "nn.cross_entropy_with_logits(%x0, %x1)": np.float32(-(x * y).sum() / 4),
            **{
                f'nn.nll_loss(%x0, %x2, %x3, reduction="{name}", ignore_index=2)': loss
                for name, loss in losses.items()
            },
        },
        x,
        y,
        targets,
        weights,
    )


def test_dilate_and_fifo_buffer():
    x, y = integers(2, 3), integers(2, 5, seed=1)
    spread = np.full((2, 5), 0.5, "float32")
    spread[:, ::2] = x
    check_program(
        {
            "nn.dilate(%x0, strides=[1, 2], dilation_value=0.5f)": spread,
            "nn.fifo_buffer(%x0, %x1, axis=-1)": np.concatenate([y, x], 1)[:, 3:],
        },
        x,
        y,
    )


if __name__ == "__main__":
    tvm.testing.main()
