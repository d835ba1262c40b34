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
"""Types of the nn operators."""

import pytest
import tvm.testing

from helpers.relay_checks import infer, type_error
from tvm_fixes import relay
from tvm_fixes.errors import UnsupportedOperatorError
from tvm_fixes.frontend.relay import from_relay

X = "%x: Tensor[(2, 8, 7, 5), float32]"
DYNAMIC = "%x: Tensor[(?, 8, ?, 5), float32]"
W = "%w: Tensor[(4, 8, 3, 3), float32]"


@pytest.mark.parametrize(
    ("body", "params", "expected"),
    [
        ("nn.conv2d(%x, %w)", f"{X}, {W}", "Tensor[(2, 4, 5, 3), float32]"),
        ("nn.conv2d(%x, %w)", f"{DYNAMIC}, {W}", "Tensor[(?, 4, ?, 3), float32]"),
        (
            'nn.conv2d(%x, %w, channels=4, kernel_size=[3, 3], out_dtype="float16", '
            'out_layout="NHWC2c")',
            f"{X}, %w: Tensor[(?, ?, ?, ?), float32]",
            "Tensor[(2, 5, 3, 2, 2), float16]",
        ),
        (
            "nn.conv2d(%x, %w, groups=8, channels=16, kernel_size=[1, 1])",
            f"{X}, %w: Tensor[(8, 2, 1, 1), float32]",
            "Tensor[(2, 16, 7, 5), float32]",
        ),
        (
            "nn.conv2d_transpose(%x, %w, groups=2, strides=[2, 1], output_padding=[1, 0])",
            f"{X}, %w: Tensor[(8, 3, 3, 3), float32]",
            "Tensor[(2, 6, 16, 7), float32]",
        ),
        (
            "nn.conv1d(%x, %w, padding=[1])",
            "%x: Tensor[(1, 2, ?), int8], %w: Tensor[(3, 2, 3), int8]",
            "Tensor[(1, 3, ?), int8]",
        ),
        (
            "nn.max_pool2d(%x, pool_size=[2, 2], strides=[2, 2], ceil_mode=True)",
            X,
            "Tensor[(2, 8, 4, 3), float32]",
        ),
        ("nn.max_pool2d(%x, pool_size=[2, 2])", DYNAMIC, "Tensor[(?, 8, ?, 4), float32]"),
        ("nn.global_avg_pool2d(%x)", DYNAMIC, "Tensor[(?, 8, 1, 1), float32]"),
        ("nn.adaptive_max_pool2d(%x, output_size=[3])", X, "Tensor[(2, 8, 3, 3), float32]"),
        ("nn.batch_flatten(%x)", DYNAMIC, "Tensor[(?, ?), float32]"),
        (
            "nn.upsampling(%x, scale_h=1.5f, scale_w=2f)",
            DYNAMIC,
            "Tensor[(?, 8, ?, 10), float32]",
        ),
        (
            "nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0], [1, 2], [0, -1]])",
            DYNAMIC,
            "Tensor[(?, 8, ?, 4), float32]",
        ),
        (
            "nn.space_to_batch_nd(%x, block_shape=[2], paddings=[[0, 0]])",
            X,
            "Tensor[(4, 4, 7, 5), float32]",
        ),
        (
            "nn.dense(%x, %w, units=3)",
            "%x: Tensor[(?, 4), int8], %w: Tensor[(?, 4), int8]",
            "Tensor[(?, 3), int8]",
        ),
        (
            "nn.batch_matmul(%x, %x, transpose_b=True)",
            "%x: Tensor[(?, 4, 2), float32]",
            "Tensor[(?, 4, 4), float32]",
        ),
        ("nn.dropout(%x)", "%x: float32", "(float32, float32)"),
    ],
)
def test_type(body, params, expected):
    assert infer(body, params) == expected


@pytest.mark.parametrize(
    ("body", "params", "message"),
    [
        ("nn.conv2d(%x, %w, groups=3)", f"{X}, {W}", "groups = 3 does not divide the 8 input"),
        ("nn.conv2d(%x, %w, channels=5)", f"{X}, {W}", "expected the 4 of input 1"),
        ('nn.conv2d(%x, %w, data_layout="NCHWD")', f"{X}, {W}", "a layout of the axes NCHW"),
        ('nn.conv2d(%x, %w, out_layout="NCHW3c")', f"{X}, {W}", "packing divides the extent 4"),
        ("nn.conv2d(%x, %w, dilation=[4, 4])", f"{X}, {W}", "a window spans 9 elements"),
        ("nn.conv2d(%x, %w, strides=[0, 1])", f"{X}, {W}", "positive ints"),
        ('nn.conv2d(%x, %w, auto_scheduler_rewritten_layout="1o")', f"{X}, {W}", "no schedule"),
        ("nn.max_pool2d(%x, pool_size=[9223372036854775807, 1])", X, "positive ints"),
        ("nn.max_pool2d(%x, pool_size=[2, 2], padding=[1, 1, 1])", X, "1, 2 or 4 ints"),
        ("nn.softmax(%x, axis=4)", X, "axis in [-4, 4)"),
        ("nn.pad(%x, 0f, pad_width=[[0, 0]])", X, "4 pairs of ints"),
        ("nn.batch_matmul(%x, %x)", "%x: Tensor[(1, 4, 2), float32]", "no attribute transpose_b"),
        ("nn.batch_matmul(%x, %x)", "%x: Tensor[(1, 4, 4), float32]", "transpose_b is needed"),
        ("nn.group_norm(%x, %g, %g, num_groups=3)", f"{X}, %g: Tensor[(8), float32]", "divisor"),
    ],
)
def test_type_error(body, params, message):
    assert message in type_error(body, params)


def test_weights_get_types():
    text = """
    def @main(%x: Tensor[(1, 4, 5, 5), float32], %w, %b, %g) {
      %0 = nn.conv2d(%x, %w, groups=4, channels=4, kernel_size=[3, 3]);
      nn.batch_norm(nn.bias_add(%0, %b), %g, %b, %b, %g).0
    }
    """
    mod = relay.transform.InferType()(relay.parse(text))
    types = [str(var.checked_type) for var in mod["main"].params[1:]]
    vector = "Tensor[(4,), float32]"
    assert types == ["Tensor[(4, 1, 3, 3), float32]", vector, vector]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nn.contrib_conv2d_winograd_weight_transform", "schedule needs"),
        ("nn.sparse_conv2d", "sparse kernels"),
        ("nn.bitpack", "bit-serial"),
        ("nn.max_pool2d_grad", "gradients"),
    ],
)
def test_rejected(name, reason):
    x = relay.Var("x", relay.TensorType([2], "float32"))
    mod = relay.IRModule({"main": relay.Function([x], relay.Call(name, [x, x]))})
    with pytest.raises(UnsupportedOperatorError, match=f"{name}.*{reason}"):
        from_relay(mod)


if __name__ == "__main__":
    tvm.testing.main()
