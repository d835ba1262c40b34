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
"""Values of Relay's activations, normalizations and pools, against PyTorch and NumPy."""

import numpy as np
import pytest
import torch
import tvm.testing
from torch.nn import functional

from helpers.relax_modules import integers
from helpers.relay_checks import check_program, check_results, run_program
from tvm_fixes.errors import RelayError


def floats(*shape, seed=0):
    """Random floats as float32."""
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def by_torch(function, *arrays, **options):
    """The result of a function of PyTorch on arrays."""
    return function(*map(torch.from_numpy, arrays), **options).numpy()


def test_activations():
    x, v = floats(2, 3, 4), floats(3, seed=1)
    check_program(
        {
            "nn.relu(%x0)": np.maximum(x, 0),
            "nn.leaky_relu(%x0)": np.where(x > 0, x, np.float32(0.25) * x),
            "nn.leaky_relu(%x0, alpha=0.01f)": np.where(x > 0, x, np.float32(0.01) * x),
            "nn.prelu(%x0, %x1)": np.where(x > 0, x, v[:, None] * x),
            "nn.bias_add(%x0, %x1)": x + v[:, None],
            "nn.bias_add(transpose(%x0, axes=[0, 2, 1]), %x1, axis=-1)": x.transpose(0, 2, 1) + v,
            "nn.softmax(%x0)": by_torch(functional.softmax, x, dim=-1),
            "nn.softmax(%x0, axis=1)": by_torch(functional.softmax, x, dim=1),
            "nn.log_softmax(%x0, axis=-2)": by_torch(functional.log_softmax, x, dim=1),
            "nn.batch_flatten(%x0)": x.reshape(2, 12),
            "nn.batch_flatten(%x1)": v.reshape(3, 1),
        },
        x,
        v,
        atol=1e-6,
    )
    fast = run_program("nn.fast_softmax(%x0, axis=1)", x)
    np.testing.assert_allclose(fast, by_torch(functional.softmax, x, dim=1), rtol=1e-4)


def test_batch_norm_returns_the_statistics():
    x, gamma, beta, mean = (floats(2, 3, 4, 5), *(floats(3, seed=i) for i in range(3)))
    variance = np.abs(floats(3, seed=4)) + 0.5
    normalized = by_torch(
        lambda x, m, v, g, b: functional.batch_norm(x, m, v, g, b, eps=1e-3),
        *(x, mean, variance, gamma, beta),
    )
    arrays = (x, gamma, beta, mean, variance)
    got = run_program("nn.batch_norm(%x0, %x1, %x2, %x3, %x4, epsilon=0.001f)", *arrays)
    check_results(got, [normalized, mean, variance], rtol=1e-4, atol=1e-5)
    plain = (x - mean[:, None, None]) / np.sqrt(variance[:, None, None] + np.float32(1e-5))
    check_program(
        {
            "nn.batch_norm(transpose(%x0, axes=[0, 2, 3, 1]), %x1, %x2, %x3, %x4, axis=-1, "
            "epsilon=0.001f).0": normalized.transpose(0, 2, 3, 1),
            "nn.batch_norm(%x0, %x1, %x2, %x3, %x4, center=False, scale=False).0": plain,
        },
        *arrays,
        rtol=1e-4,
        atol=1e-5,
    )


def test_norms():
    x, gamma, beta = floats(2, 6, 3, 4), floats(6, seed=1), floats(6, seed=2)
    last = x.transpose(0, 2, 3, 1)
    layer = by_torch(
        lambda x, g, b: functional.layer_norm(x, [6], g, b, 1e-2), last.copy(), gamma, beta
    )
    group = by_torch(lambda x, g, b: functional.group_norm(x, 3, g, b), x, gamma, beta)
    plain = by_torch(lambda x: functional.group_norm(x, 3), x)
    instance = by_torch(
        lambda x, g, b: functional.instance_norm(x, None, None, g, b), *(x, gamma, beta)
    )
    squares = np.pad(x**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    sums = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    check_program(
        {
            "nn.layer_norm(%x0, %x1, %x2, axis=1, epsilon=0.01f)": layer.transpose(0, 3, 1, 2),
            "nn.layer_norm(transpose(%x0, axes=[0, 2, 3, 1]), %x1, %x2, epsilon=0.01f)": layer,
            "nn.group_norm(%x0, %x1, %x2, num_groups=3)": group,
            "nn.group_norm(%x0, %x1, %x2, num_groups=3, center=False, scale=False)": plain,
            "nn.group_norm(transpose(%x0, axes=[0, 2, 3, 1]), %x1, %x2, num_groups=3, "
            "axis=-1)": group.transpose(0, 2, 3, 1),
            "nn.instance_norm(%x0, %x1, %x2)": instance,
            "nn.instance_norm(transpose(%x0, axes=[0, 2, 3, 1]), %x1, %x2, axis=3)": (
                instance.transpose(0, 2, 3, 1)
            ),
            "nn.lrn(%x0, size=3, alpha=0.5f, beta=0.25f, bias=1f)": x
            / (1 + 0.5 * sums / 3).astype("float32") ** np.float32(0.25),
            "nn.l2_normalize(%x0, eps=0.001f, axis=[1, 2])": x
            / np.sqrt(np.maximum((x**2).sum((1, 2), keepdims=True), np.float32(0.001))),
            "nn.dropout(%x0, rate=0.9f).0": x,
            "nn.dropout(%x0).1": np.ones_like(x),
        },
        x,
        gamma,
        beta,
        rtol=1e-4,
        atol=1e-5,
    )


def test_pools_2d():
    x = integers(1, 4, 7, 6)
    last = "transpose(%x0, axes=[0, 2, 3, 1])"
    packed = 'layout_transform(%x0, src_layout="NCHW", dst_layout="NCHW2c")'
    most = by_torch(functional.max_pool2d, x, kernel_size=(3, 2), stride=(2, 1), padding=(1, 0))
    size = "pool_size=[3, 2], strides=[2, 1], padding=[1, 0]"
    one_sided = np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 1)))
    ceiled = {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}
    by_channel = most.reshape(1, 2, 2, *most.shape[2:]).transpose(0, 1, 3, 4, 2)
    check_program(
        {
            f"nn.max_pool2d(%x0, {size})": most,
            f'nn.max_pool2d({last}, {size}, layout="NHWC")': most.transpose(0, 2, 3, 1),
            f'nn.max_pool2d({packed}, {size}, layout="NCHW2c")': by_channel,
            "nn.max_pool2d(%x0, pool_size=[2, 2], dilation=[2, 3])": by_torch(
                functional.max_pool2d, x, kernel_size=2, stride=1, dilation=(2, 3)
            ),
            "nn.max_pool2d(%x0, pool_size=[3, 3], strides=[2, 2], padding=[1], ceil_mode=True)": (
                by_torch(functional.max_pool2d, x, **ceiled)
            ),
            "nn.avg_pool2d(%x0, pool_size=[3, 3], strides=[2, 2], padding=[1], ceil_mode=True)": (
                by_torch(functional.avg_pool2d, x, **ceiled, count_include_pad=False)
            ),
            "nn.avg_pool2d(%x0, pool_size=[3, 3], strides=[2, 2], padding=[1, 1], ceil_mode=True, "
            "count_include_pad=True)": by_torch(functional.avg_pool2d, x, **ceiled),
            "nn.avg_pool2d(%x0, pool_size=[2, 2], padding=[1, 0, 0, 1], "
            "count_include_pad=True)": by_torch(
                functional.avg_pool2d, one_sided, kernel_size=2, stride=1
            ),
            "nn.global_avg_pool2d(%x0)": x.mean((2, 3), keepdims=True),
            f'nn.global_max_pool2d({last}, layout="NHWC")': x.max((2, 3))[:, None, None],
            f'nn.global_avg_pool2d({packed}, layout="NCHW2c")': x.mean((2, 3)).reshape(
                1, 2, 1, 1, 2
            ),
            "nn.adaptive_avg_pool2d(%x0, output_size=[3, 4])": by_torch(
                functional.adaptive_avg_pool2d, x, output_size=(3, 4)
            ),
            "contrib.adaptive_avg_pool2d(%x0)": x,
            f'nn.adaptive_max_pool2d({last}, output_size=[2], layout="NHWC")': by_torch(
                functional.adaptive_max_pool2d, x, output_size=2
            ).transpose(0, 2, 3, 1),
        },
        x,
    )


@pytest.mark.parametrize("unknown", [0, 1])
def test_channels_that_one_operand_knows(unknown):
    x, vectors = integers(3, 4), [integers(3, seed=seed) for seed in range(4)]
    gamma, beta, mean, variance = (vector[:, None] for vector in vectors)
    vectors[3] = variance[:, 0] = abs(variance[:, 0]) + 1
    expected = (x - mean) / np.sqrt(variance + 1e-5) * gamma + beta
    shapes = [("?", 4), *[(3,)] * 4] if unknown == 0 else [(3, "?"), *[("?",)] * 4]
    body = "nn.batch_norm(%x0, %x1, %x2, %x3, %x4, axis=0).0"
    check_program({body: expected}, x, *vectors, shapes=shapes, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_averages_of_integers(dtype):
    """They keep their dtype, as in Relay, and round toward zero."""
    x = np.random.default_rng(0).integers(0 if dtype[0] == "u" else -90, 90, (1, 4, 6, 2))
    x = x.astype(dtype)
    sums = x.astype("int64").reshape(1, 2, 2, 3, 2, 2).sum((2, 4))
    window = np.trunc(sums / 4).astype(dtype)
    whole = np.trunc(x.sum((1, 2), "int64", keepdims=True) / 24).astype(dtype)
    check_program(
        {
            'nn.avg_pool2d(%x0, pool_size=[2, 2], strides=[2, 2], layout="NHWC")': window,
            'nn.adaptive_avg_pool2d(%x0, output_size=[2, 3], layout="NHWC")': window,
            'nn.global_avg_pool2d(%x0, layout="NHWC")': whole,
        },
        x,
    )


def test_operands_that_tvm_rejects_are_named():
    with pytest.raises(RelayError, match=r"nn\.lrn at 1:\d+: .*4-D"):
        run_program("nn.lrn(%x0, size=3)", integers(2, 4, 5))


def test_pools_1d_and_3d():
    x, y = integers(2, 3, 8), integers(1, 2, 4, 5, 6, seed=1)
    wide = np.pad(x, ((0, 0), (0, 0), (2, 0)), constant_values=-9)
    check_program(
        {
            "nn.max_pool1d(%x0, pool_size=[3], strides=[2], padding=[2, 0])": by_torch(
                functional.max_pool1d, wide, kernel_size=3, stride=2
            ),
            "nn.avg_pool1d(%x0, pool_size=[3], padding=[1], count_include_pad=True)": by_torch(
                functional.avg_pool1d, x, kernel_size=3, stride=1, padding=1
            ),
            'nn.max_pool1d(transpose(%x0, axes=[0, 2, 1]), pool_size=[2], layout="NWC")': by_torch(
                functional.max_pool1d, x, kernel_size=2, stride=1
            ).transpose(0, 2, 1),
            "nn.adaptive_avg_pool1d(%x0, output_size=[3])": by_torch(
                functional.adaptive_avg_pool1d, x, output_size=3
            ),
            "nn.adaptive_max_pool1d(%x0, output_size=[3])": by_torch(
                functional.adaptive_max_pool1d, x, output_size=3
            ),
            "nn.max_pool3d(%x1, pool_size=[2, 3, 2], strides=[1, 2, 2], padding=[1, 1, 0])": (
                by_torch(
                    functional.max_pool3d,
                    y,
                    kernel_size=(2, 3, 2),
                    stride=(1, 2, 2),
                    padding=(1, 1, 0),
                )
            ),
            "nn.avg_pool3d(%x1, pool_size=[2, 2, 2], padding=[1, 1, 1, 1, 1, 1])": by_torch(
                functional.avg_pool3d,
                y,
                kernel_size=2,
                stride=1,
                padding=1,
                count_include_pad=False,
            ),
            "nn.adaptive_avg_pool3d(%x1, output_size=[2, 2, 4])": by_torch(
                functional.adaptive_avg_pool3d, y, output_size=(2, 2, 4)
            ),
            "nn.adaptive_max_pool3d(%x1, output_size=[2, 2, 4])": by_torch(
                functional.adaptive_max_pool3d, y, output_size=(2, 2, 4)
            ),
        },
        x,
        y,
    )


def test_dynamic_shapes():
    x, v = integers(2, 4, 7, 5), integers(4, seed=1)
    check_program(
        {
            "nn.max_pool2d(%x0, pool_size=[3, 3], strides=[2, 2], padding=[1, 1])": by_torch(
                functional.max_pool2d, x, kernel_size=3, stride=2, padding=1
            ),
            "nn.global_avg_pool2d(%x0)": x.mean((2, 3), keepdims=True),
            "nn.bias_add(%x0, %x1)": x + v[:, None, None],
            "nn.batch_flatten(%x0)": x.reshape(2, -1),
        },
        x,
        v,
        shapes=[("?", 4, "?", "?"), v.shape],
    )


def test_ceil_mode_rejects_windows_beyond_the_data():
    x = integers(1, 1, 5)
    with pytest.raises(RelayError, match="a window begins beyond the data"):
        run_program("nn.avg_pool1d(%x0, pool_size=[1], strides=[3], ceil_mode=True)", x)


if __name__ == "__main__":
    tvm.testing.main()
