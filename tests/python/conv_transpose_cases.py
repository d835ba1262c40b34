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
"""Calls of ``relax.nn.conv2d_transpose``: single cases, the grid of them, and random ones."""

import itertools
import zlib
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from tvm import relax, tirx

from relax_helpers import tensor


@dataclass(frozen=True)
class Case:
    """One call of ``relax.nn.conv2d_transpose``; pairs are height, width."""

    data_layout: str = "NCHW"
    kernel_layout: str = "IOHW"
    out_layout: str = "NCHW"
    stride: tuple[int, int] = (2, 2)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    output_padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    dtype: str = "float32"
    out_dtype: str | None = None
    dynamic: bool = False
    batch: int = 2
    channels: int = 4
    group_out: int = 3
    extent: tuple[int, int] = (5, 4)
    kernel: tuple[int, int] = (3, 2)

    @property
    def result_dtype(self) -> str:
        return self.out_dtype or self.dtype

    def shapes(self) -> tuple[list[int], list[int]]:
        data = dict(zip("NCHW", (self.batch, self.channels, *self.extent), strict=True))
        kernel = dict(zip("IOHW", (self.channels, self.group_out, *self.kernel), strict=True))
        return [data[a] for a in self.data_layout], [kernel[a] for a in self.kernel_layout]

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Random data and kernel; the same for equal cases."""
        rng = np.random.default_rng(zlib.crc32(repr(self).encode()))
        return tuple(rng.standard_normal(s).astype(numpy_dtype(self.dtype)) for s in self.shapes())

    def geometry(self) -> dict:
        """The arguments of the reference besides the arrays."""
        return {
            "strides": self.stride,
            "padding": self.padding,
            "output_padding": self.output_padding,
            "dilation": self.dilation,
            "groups": self.groups,
            "data_layout": self.data_layout,
            "kernel_layout": self.kernel_layout,
            "out_layout": self.out_layout,
        }

    def inputs(self) -> dict[str, relax.TensorType]:
        """The types of data and kernel, in that order."""
        data, kernel = self.shapes()
        if self.dynamic:
            symbols = {axis: tirx.Var(axis.lower(), "int64") for axis in "NHW"}
            data = [symbols.get(a, e) for a, e in zip(self.data_layout, data, strict=True)]
        return {
            "data": tensor(*data, dtype=self.dtype),
            "kernel": tensor(*kernel, dtype=self.dtype),
        }

    def call(self, data: relax.Expr, kernel: relax.Expr) -> relax.Call:
        return relax.op.nn.conv2d_transpose(
            data, kernel, out_dtype=self.out_dtype, **self.geometry()
        )


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def _grid() -> list[Case]:
    product = itertools.product(
        ("NCHW", "NHWC"),
        ("NCHW", "NHWC"),
        ((1, 1), (2, 2), (3, 2)),
        ((0, 0, 0, 0), (1, 1, 1, 1), (1, 0, 2, 1)),
        ((1, 1), (2, 2), (2, 3)),
        ((1, 3), (2, 3), (4, 1)),  # the last is depthwise
        ("float16", "bfloat16", "float32", "float64"),
        (False, True),
    )
    cases = []
    for data, out, stride, padding, dilation, (groups, group_out), dtype, dynamic in product:
        largest = tuple(max(s, d) - 1 for s, d in zip(stride, dilation, strict=True))
        # The kernel layouts next to each other, since they share a lowered function.
        cases += [
            Case(
                data_layout=data,
                kernel_layout=kernel,
                out_layout=out,
                stride=stride,
                padding=padding,
                output_padding=output_padding,
                dilation=dilation,
                groups=groups,
                group_out=group_out,
                dtype=dtype,
                dynamic=dynamic,
            )
            for output_padding in sorted({(0, 0), largest})
            for kernel in ("IOHW", "OIHW", "HWIO", "HWOI")
        ]
    return cases


GRID = _grid()
EDGES = {
    "kernel-1x1": Case(kernel=(1, 1)),
    "kernel-1x1-stride-1": Case(kernel=(1, 1), stride=(1, 1)),
    "stride-beyond-kernel": Case(kernel=(1, 2), stride=(3, 4), output_padding=(2, 3)),
    "spatial-1": Case(extent=(1, 1), kernel=(4, 4), stride=(1, 1)),
    "one-pixel-left": Case(extent=(3, 3), kernel=(3, 3), padding=(3, 3, 3, 3)),
    "whole-window-cropped": Case(extent=(2, 2), kernel=(2, 2), padding=(2, 2, 0, 0)),
    "batch-0": Case(batch=0),
    "batch-0-dynamic": Case(batch=0, dynamic=True),
    "wide-row": Case(extent=(2, 9), kernel=(2, 2), data_layout="NHWC", out_layout="NHWC"),
    "odd-layouts": Case(data_layout="WCNH", kernel_layout="OHIW", out_layout="HNCW"),
    "stride-and-dilation-4": Case(stride=(4, 6), dilation=(6, 4), extent=(4, 4)),
    "float16-to-float32": Case(dtype="float16", out_dtype="float32"),
    "bfloat16-to-float32": Case(dtype="bfloat16", out_dtype="float32"),
    "float32-to-float16": Case(out_dtype="float16"),
    "float32-to-float64": Case(out_dtype="float64"),
    "one-output-channel": Case(group_out=1),
    # FlattenBuffer would turn this into another index if it saw floordiv in it
    "fused-rows": Case(
        "NHWC",
        "HWIO",
        "NHWC",
        stride=(3, 2),
        padding=(1, 1, 1, 1),
        output_padding=(2, 1),
        groups=4,
        group_out=1,
    ),
    "one-group-a-channel": Case(groups=4, group_out=2, data_layout="NHWC", out_layout="NHWC"),
}


@st.composite
def random_cases(draw: st.DrawFn) -> Case:
    """Any valid case of small extents."""
    pair = lambda low, high: draw(st.tuples(*[st.integers(low, high)] * 2))  # noqa: E731
    stride, dilation, kernel, extent = pair(1, 5), pair(1, 5), pair(1, 5), pair(1, 6)
    groups = draw(st.integers(1, 3))
    output_padding = tuple(
        draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)
    )
    before, after = [], []
    for axis in range(2):
        full = (extent[axis] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1
        before.append(draw(st.integers(0, min(6, full - 1))))
        after.append(draw(st.integers(0, min(6, full - 1 - before[-1]))))
    layout = lambda letters: "".join(draw(st.permutations(letters)))  # noqa: E731
    return Case(
        data_layout=layout("NCHW"),
        kernel_layout=layout("IOHW"),
        out_layout=layout("NCHW"),
        stride=stride,
        padding=(*before, *after),
        output_padding=output_padding,
        dilation=dilation,
        groups=groups,
        dtype=draw(st.sampled_from(["float16", "bfloat16", "float32", "float64"])),
        dynamic=draw(st.booleans()),
        batch=draw(st.integers(1, 2)),
        channels=groups * draw(st.integers(1, 3)),
        group_out=draw(st.integers(1, 3)),
        extent=extent,
        kernel=kernel,
    )
