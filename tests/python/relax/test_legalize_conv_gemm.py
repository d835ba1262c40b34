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
"""Convolutions to few channels, as a GEMM and a col2im sum."""

from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from helpers.conv_cases import AXES, Case
from helpers.conv_checks import (
    CPU,
    assert_close,
    assert_computes,
    assert_reference_equals_pytorch,
    legalized,
    module,
    operators,
)
from helpers.grids import batched, few, is_full, sample
from helpers.relax_modules import build, run, tensor

FORWARD = Case(
    kernel_layout="OIHW",
    stride=(1, 1),
    kernel=(3, 3),
    padding=(1, 1, 1, 1),
    channels=24,
    group_out=1,
    extent=(6, 9),
    transposed=False,
)
TRANSPOSED = Case(kernel=(4, 4), padding=(1, 1, 1, 1), channels=64, group_out=3, extent=(6, 9))

CASES = [
    FORWARD,
    replace(FORWARD, group_out=3, channels=40),
    replace(FORWARD, kernel=(1, 7), padding=(0, 3, 0, 0)),
    replace(FORWARD, dilation=(2, 3), padding=(2, 3, 1, 2)),
    replace(FORWARD, padding=(4, 4, 4, 4)),  # outputs that read only padding
    replace(FORWARD, extent=(1, 1)),
    replace(FORWARD, dynamic=True),
    replace(FORWARD, out_dtype="float16"),
    TRANSPOSED,
    replace(TRANSPOSED, output_padding=(1, 0), group_out=2),
    replace(TRANSPOSED, stride=(3, 2), dilation=(2, 1)),
    replace(TRANSPOSED, kernel=(2, 2), padding=(0, 0, 0, 0)),
    replace(TRANSPOSED, kernel=(2, 3), stride=(3, 4), padding=(0, 0, 0, 0)),  # gaps
    replace(TRANSPOSED, dynamic=True),
]


def steps(mod: tvm.IRModule) -> list[str]:
    """The names of the kernels, except reshapes."""
    names = [name.rstrip("0123456789") for name in operators(legalized(mod, CPU))]
    return [name for name in names if name != "reshape"]


def is_gemm(case: Case) -> bool:
    return steps(module(case))[-2:] == ["matmul", "sum_of_products"]


@few(3)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_geometries(layout: str, dtype: str) -> None:
    whole = dtype == "float32" and (is_full() or layout == "NCHW")
    chosen = CASES if whole else sample(CASES, 2, seed=crc32(f"{layout} {dtype}".encode()))
    cases = [replace(case, data_layout=layout, out_layout=layout, dtype=dtype) for case in chosen]
    for case in cases:
        assert is_gemm(case), case
    assert_reference_equals_pytorch([case for case in cases if dtype == "float32"])
    assert_computes(cases)


@few(2)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rank", [1, 3])
def test_ranks(rank: int, transposed: bool) -> None:
    axes = AXES[rank]
    case = Case(
        f"NC{axes}",
        f"IO{axes}" if transposed else f"OI{axes}",
        f"NC{axes}",
        stride=((2,) if transposed else (1,)) * rank,
        padding=(1,) * (2 * rank),
        output_padding=(0,) * rank,
        dilation=(1,) * rank,
        channels=32,
        group_out=1,
        extent=(4, 3, 5)[:rank],
        kernel=(3,) * rank,
        transposed=transposed,
    )
    assert is_gemm(case)
    assert_computes([case, replace(case, dynamic=True), replace(case, out_layout=f"N{axes}C")])


@batched(5)
@given(data=st.data())
def test_random(data: st.DataObject) -> None:
    def draw_case() -> Case:
        number = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
        transposed = data.draw(st.booleans())
        extent, kernel = (number(1, 9), number(1, 20)), (number(2, 4), number(1, 4))
        dilation = (number(1, 2), number(1, 2))
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        return Case(
            kernel_layout="IOHW" if transposed else "OIHW",
            stride=(number(1, 3), number(1, 3)) if transposed else (1, 1),
            # Enough that the output is not empty, or that the kernel fits.
            padding=(0, 0, 0, 0) if transposed else (*reach, 0, 0),
            dilation=dilation,
            channels=number(16, 40),
            group_out=1,
            extent=extent,
            kernel=kernel,
            dynamic=number(0, 3) == 0,
            transposed=transposed,
        )

    cases = [draw_case() for _ in range(5 if is_full() else 2)]
    assert any(is_gemm(case) for case in cases)
    assert_reference_equals_pytorch(cases)
    assert_computes(cases)


@few(2)
@pytest.mark.parametrize("case", [FORWARD, TRANSPOSED], ids=["conv", "conv_transpose"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_constant_kernel(case: Case, layout: str) -> None:
    """The constant kernel needs no work at run time."""
    case = replace(case, data_layout=layout, out_layout=layout)
    data, kernel = case.arrays()
    mod = module(case, constant_kernel=kernel)
    assert steps(mod) == ["matmul", "sum_of_products"]
    assert_close(case, run(mod, data), data, kernel)


def test_bias_is_added_where_the_sums_are_written() -> None:
    case = replace(TRANSPOSED, group_out=3)
    data, kernel = case.arrays()
    bias = np.linspace(-1, 1, 3, dtype="float32").reshape(1, 3, 1, 1)
    mod = build(
        case.inputs() | {"bias": tensor(1, 3, 1, 1)},
        lambda _builder, data, kernel, bias: relax.op.tanh(case.call(data, kernel) + bias),
    )
    got = run(mod, data, kernel, bias)
    np.testing.assert_allclose(got, np.tanh(case.reference(data, kernel) + bias), atol=1e-4)


def test_infinity_and_nan_stay_where_they_are() -> None:
    data, kernel = FORWARD.arrays()
    data[0, 1, 2, 7], data[1, 3, 0, 8] = np.nan, np.inf
    got, expected = run(module(FORWARD), data, kernel), FORWARD.reference(data, kernel)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))


@pytest.mark.parametrize(
    "changes",
    [
        {"group_out": 8, "channels": 64},  # a vector
        {"kernel": (1, 1), "padding": (0, 0, 0, 0)},  # nothing to sum
        {"stride": (2, 2)},  # unused products
        {"kernel": (7, 7), "padding": (3, 3, 3, 3)},  # more products than data
        {"groups": 2, "group_out": 1},
    ],
    ids=str,
)
def test_others_do_not_use_gemm(changes: dict) -> None:
    case = replace(FORWARD, **changes)
    assert not is_gemm(case)
    assert_computes([case])


def test_integers_do_not_use_gemm() -> None:
    assert not is_gemm(replace(FORWARD, dtype="int8", out_dtype="int32"))


if __name__ == "__main__":
    tvm.testing.main()
