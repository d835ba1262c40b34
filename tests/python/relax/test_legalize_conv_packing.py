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
"""Kernels of convolutions that are inputs, packed at run time."""

from dataclasses import replace

import pytest
import tvm
import tvm.testing
from tvm import tirx

from helpers.conv_cases import Case
from helpers.conv_checks import assert_computes, legalized, loops, module

CPU = tvm.target.Target("llvm")
CASE = Case(
    transposed=False,
    kernel_layout="OIHW",
    stride=(1, 1),
    kernel=(3, 5),
    padding=(1, 2, 1, 2),
    channels=7,
    group_out=16,
    extent=(6, 9),
)


def packing(case: Case) -> tirx.PrimFunc | None:
    found = [
        f for v, f in legalized(module(case), CPU).functions.items() if "in_vec" in v.name_hint
    ]
    return found[0] if found else None


def test_values() -> None:
    line = {"data_layout": "NCW", "kernel_layout": "OIW", "out_layout": "NCW", "extent": (20,)}
    line |= {"stride": (1,), "padding": (1, 1), "dilation": (1,), "kernel": (3,)}
    cases = [
        CASE,
        replace(CASE, group_out=40, channels=33, stride=(2, 1)),
        replace(CASE, group_out=16, groups=2, channels=6),
        replace(CASE, **line),
        replace(CASE, data_layout="NHWC", out_layout="NHWC"),
    ]
    assert all(packing(case) for case in cases)
    assert_computes(cases, target=CPU)


def test_rows_are_read_once() -> None:
    """The loops over the taps are within that over the channels, as in memory."""
    kernel = packing(CASE)
    assert kernel is not None
    lane, *outer = loops(kernel)  # the innermost loop first
    assert [int(loop.extent) for loop in outer] == [5, 3, 7, 16 // int(lane.extent)]
    assert lane.kind == tirx.ForKind.VECTORIZED


@pytest.mark.parametrize(
    "changes",
    [
        {"group_out": 21},  # the last vector is padded
        {"kernel_layout": "HWIO"},
        {"kernel": (1, 1), "padding": (1, 1, 1, 1)},
    ],
)
def test_other_kernels(changes: dict) -> None:
    case = replace(CASE, **changes)
    assert packing(case) is None
    assert_computes([case], target=CPU)


if __name__ == "__main__":
    tvm.testing.main()
