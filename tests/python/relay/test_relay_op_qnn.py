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
"""The types of Relay's QNN operators."""

import re

import pytest
import tvm.testing

from helpers.relay_checks import infer, type_error

CONV = "qnn.conv2d(%x, %w, 0, 0, 1f, 1f, padding=[1, 1], out_dtype='int32')"
X = "%x: Tensor[(1, 4, ?, 7), int8], %w: Tensor[(6, 4, 3, 3), int8]"


@pytest.mark.parametrize(
    ("body", "params", "expected"),
    [
        (
            'qnn.quantize(%x, 1f, 0, out_dtype="uint8")',
            "%x: Tensor[(2, ?), float32]",
            "Tensor[(2, ?), uint8]",
        ),
        ("qnn.dequantize(%x, 1f, 0)", "%x: Tensor[(3), int8]", "Tensor[(3,), float32]"),
        (
            'qnn.requantize(%x, 1f, 0, 2f, 0, out_dtype="int8")',
            "%x: Tensor[(3, 1), int64]",
            "Tensor[(3, 1), int8]",
        ),
        (
            "qnn.add(%x, %y, 1f, 0, 1f, 0, 1f, 0)",
            "%x: Tensor[(3, 1), int8], %y: Tensor[(?), int8]",
            "Tensor[(3, ?), int8]",
        ),
        ("qnn.tanh(%x, 1f, 0, 1f, 0)", "%x: uint8", "uint8"),
        (
            "qnn.concatenate((%x, %x), (1f, 2f), (0, 0), 1f, 0, axis=1)",
            "%x: Tensor[(?, 2), int8]",
            "Tensor[(?, 4), int8]",
        ),
        (CONV.replace("'", '"'), X, "Tensor[(1, 6, ?, 7), int32]"),
        (
            'qnn.dense(%x, %y, 0, 0, 1f, 1f, units=5, out_dtype="int32")',
            "%x: Tensor[(2, ?, 4), int8], %y: Tensor[(5, 4), int8]",
            "Tensor[(2, ?, 5), int32]",
        ),
        (
            "qnn.avg_pool2d(%x, 1f, 0, 1f, 0, pool_size=[2, 2], strides=[2, 2], ceil_mode=True)",
            "%x: Tensor[(1, 3, 5, ?), int8]",
            "Tensor[(1, 3, 3, ?), int8]",
        ),
    ],
)
def test_types(body: str, params: str, expected: str) -> None:
    assert infer(body, params) == expected


@pytest.mark.parametrize(
    ("body", "params", "message"),
    [
        ('qnn.quantize(%x, 1f, 0, out_dtype="int8")', "%x: Tensor[(2), float16]", "float32"),
        ('qnn.quantize(%x, 1f, 0, out_dtype="int4")', "%x: Tensor[(2), float32]", "out_dtype"),
        (
            "qnn.dequantize(%x, %s, 0)",
            "%x: Tensor[(2, 3), int8], %s: Tensor[(2), float32]",
            "vector of length 3, of dtype float32",
        ),
        (
            'qnn.requantize(%x, 1f, 0, 1f, 0, rounding="UP", out_dtype="int8")',
            "%x: Tensor[(2), int8]",
            "rounding.*UPWARD or TONEAREST",
        ),
        (
            CONV.replace("'", '"').replace("0, 0,", "0, 0f,"),
            X,
            "a scalar or a vector of length .*, of dtype int32",
        ),
        (CONV.replace("'", '"'), X.replace("4, 3, 3", "3, 3, 3"), "input channels"),
        ("qnn.softmax(%x, 1f, 0, 1f, 0, axis=2)", "%x: Tensor[(2), int8]", "axis"),
    ],
)
def test_errors(body: str, params: str, message: str) -> None:
    assert re.search(f"qnn.*{message}", type_error(body, params))


if __name__ == "__main__":
    tvm.testing.main()
