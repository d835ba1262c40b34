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
"""Calls of ``relax.nn.conv*d`` and ``relax.nn.conv*d_transpose``: grids and random cases."""

import itertools
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from tvm import relax, tirx

from helpers import references
from helpers.relax_modules import tensor

AXES = {1: "W", 2: "HW", 3: "DHW"}


@dataclass(frozen=True)
class Case:
    """One call. Values per spatial axis are in the order depth, height, width."""

    data_layout: str = "NCHW"
    kernel_layout: str = "IOHW"
    out_layout: str = "NCHW"
    stride: tuple[int, ...] = (2, 2)
    padding: tuple[int, ...] = (0, 0, 0, 0)
    output_padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    dtype: str = "float32"
    out_dtype: str | None = None
    dynamic: bool = False
    batch: int = 2
    channels: int = 4
    group_out: int = 3
    extent: tuple[int, ...] = (5, 4)
    kernel: tuple[int, ...] = (3, 2)
    transposed: bool = True

    @property
    def axes(self) -> str:
        """The spatial axes."""
        return AXES[len(self.stride)]

    @property
    def operator(self) -> str:
        return f"conv{len(self.axes)}d{'_transpose' if self.transposed else ''}"

    @property
    def result_dtype(self) -> str:
        return self.out_dtype or self.dtype

    @property
    def terms(self) -> int:
        """The maximum number of products summed into one element."""
        return self.channels // self.groups * int(np.prod(self.kernel))

    def shapes(self) -> tuple[list[int], list[int]]:
        """The shapes of data and kernel."""
        data = dict(zip("NC" + self.axes, (self.batch, self.channels, *self.extent), strict=True))
        if self.transposed:
            channels = {"I": self.channels, "O": self.group_out}
        else:
            channels = {"I": self.channels // self.groups, "O": self.group_out * self.groups}
        kernel = channels | dict(zip(self.axes, self.kernel, strict=True))
        return (
            references.packed_shape(data, self.data_layout),
            references.packed_shape(kernel, self.kernel_layout),
        )

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Random data and kernel, deterministic for equal cases."""
        rng = np.random.default_rng(zlib.crc32(repr(self).encode()))
        return tuple(rng.standard_normal(s).astype(numpy_dtype(self.dtype)) for s in self.shapes())

    def arguments(self) -> dict:
        """The arguments of operator and reference except data, kernel and dtype."""
        arguments = {
            "strides": self.stride,
            "padding": self.padding,
            "output_padding": self.output_padding,
            "dilation": self.dilation,
            "groups": self.groups,
            "data_layout": self.data_layout,
            "kernel_layout": self.kernel_layout,
            "out_layout": self.out_layout,
        }
        if not self.transposed:
            del arguments["output_padding"]
        return arguments

    def reference(self, data: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        """The result by definition, in float64."""
        define = references.conv_transpose if self.transposed else references.conv
        return define(data, kernel, **self.arguments())

    def inputs(self) -> dict[str, relax.TensorType]:
        """The types of data and kernel, in that order."""
        data, kernel = self.shapes()
        if self.dynamic:
            letters = [letter for letter in self.data_layout if letter.isalpha()]
            symbols = {axis: tirx.Var(axis.lower(), "int64") for axis in "N" + self.axes}
            data = [symbols.get(a, e) for a, e in zip(letters, data, strict=True)]
        return {
            "data": tensor(*data, dtype=self.dtype),
            "kernel": tensor(*kernel, dtype=self.dtype),
        }

    def call(self, data: relax.Expr, kernel: relax.Expr) -> relax.Call:
        operator = getattr(relax.op.nn, self.operator)
        return operator(data, kernel, out_dtype=self.out_dtype, **self.arguments())


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


# Layouts to combine with one another, for the spatial axes `axes`, innermost `axes[-1]`.


def common_layouts(axes: str) -> list[str]:
    """Common layouts of data and output."""
    return [f"NC{axes}", f"N{axes}C", f"NC{axes}4c", f"NC{axes}8c", f"NC{axes}16c"]


def packed_layouts(axes: str) -> list[str]:
    """Packed layouts of data and output: blocks of one or more axes in any position."""
    inner = axes[-1].lower()
    return [
        *common_layouts(axes)[2:],
        f"N{axes}C4c",
        f"4cNC{axes}",
        f"N4c{axes}C",
        f"NC{axes}2{inner}",
        f"2n{axes}NC",
        f"NC2{inner}{axes}8c2n",
    ]


def common_kernel_layouts(axes: str) -> list[str]:
    return [f"IO{axes}", f"OI{axes}", f"{axes}IO", f"{axes}OI", f"IO{axes}4i4o", f"OI{axes}16i16o"]


def packed_kernel_layouts(axes: str) -> list[str]:
    inner = axes[-1].lower()
    return [
        *common_kernel_layouts(axes)[4:],
        f"{axes}IO4i4o",
        f"OI{axes}4o8i",
        f"IO{axes}16o",
        f"I8iO{axes}",
        f"4o{axes}OI",
        f"IO2{inner}{axes}4o",
    ]


def permutations(letters: str) -> list[str]:
    return ["".join(order) for order in itertools.permutations(letters)]


def layout_grid(rank: int, *, transposed: bool = True) -> list[Case]:
    """Every kind of combination of the layouts of data, kernel and output.

    All pairs of common layouts, and all pairs of packed layouts, in one and in two groups; every
    permutation of the axes of each operand, in 1-D with one another and otherwise with common
    layouts of the others; and blocks that do not divide the output channels.
    """
    axes = AXES[rank]
    plain, kernels = permutations("NC" + axes), permutations("IO" + axes)
    common, common_kernels = common_layouts(axes), common_kernel_layouts(axes)
    packed, packed_kernels = packed_layouts(axes), packed_kernel_layouts(axes)
    if rank == 1:
        chosen = list(itertools.product(plain, kernels, plain))
    else:
        chosen = [
            *itertools.product(plain, common_kernels[:3], common[:2]),
            *itertools.product(common[:2], kernels, common[:2]),
            *itertools.product(common[:2], common_kernels[:3], plain),
        ]
    chosen += itertools.product(common, common_kernels, common)
    chosen += itertools.product(packed, packed_kernels, packed)
    chosen += itertools.product(common[:2], packed_kernels, common[:2])
    chosen += itertools.product(packed, common_kernels[:4], common[:2])
    chosen += itertools.product(common[:2], common_kernels[:4], packed)
    combinations = list(dict.fromkeys(chosen))  # without duplicates, in order

    def cases(groups: int, group_out: int, channels: int) -> Iterator[Case]:
        for data, kernel, out in combinations:
            yield Case(
                data,
                kernel,
                out,
                stride=(2, 1, 2)[:rank],
                padding=(1, 0, 0, 0, 1, 0)[: 2 * rank],
                output_padding=(1, 0, 0)[:rank],
                dilation=(1, 2, 1)[:rank],
                groups=groups,
                channels=channels,
                group_out=group_out,
                extent=(3, 4, 4)[-rank:],
                kernel=(2, 3, 2)[-rank:],
                transposed=transposed,
            )

    result = list(cases(1, 16, 16))
    result += [
        replace(case, channels=32, groups=2)
        for case in result
        if has_blocks(case.data_layout, case.kernel_layout, case.out_layout)
    ]
    result += [
        replace(case, groups=2, group_out=3)
        for case in cases(1, 16, 32)
        if has_blocks(case.out_layout) and not has_blocks(case.kernel_layout)
    ]
    # Group cases that differ only in the kernel layout, which share a lowered function.
    return sorted(result, key=lambda case: (case.data_layout, case.out_layout, case.group_out))


def has_blocks(*layouts: str) -> bool:
    return any(letter.islower() for layout in layouts for letter in layout)


def _geometries(rank: int) -> Iterator[dict]:
    pick = lambda values: values[:rank]  # noqa: E731
    product = itertools.product(
        ((1, 1, 1), (2, 2, 2), (3, 2, 1)),
        (((0, 0, 0), (0, 0, 0)), ((1, 1, 1), (1, 1, 1)), ((1, 0, 2), (2, 1, 0))),
        ((1, 1, 1), (2, 2, 2), (2, 3, 1)),
        ((1, 3), (2, 3), (4, 1)),  # the last is depthwise
    )
    for stride, (before, after), dilation, (groups, group_out) in product:
        yield {
            "stride": pick(stride),
            "padding": pick(before) + pick(after),
            "dilation": pick(dilation),
            "groups": groups,
            "group_out": group_out,
            "extent": (5, 4, 3)[:rank],
            "kernel": (3, 2, 2)[:rank],
        }


def geometry_grid(rank: int, *, transposed: bool = True) -> list[Case]:
    """Strides, paddings, dilations, groups, dtypes and dynamic extents in common layouts."""
    axes = AXES[rank]
    # TVM itself lowers a forward convolution with plain layouts.
    layouts = (f"NC{axes}" if transposed else f"NC{axes}4c", f"N{axes}C")
    kernels = [f"IO{axes}", f"OI{axes}", f"{axes}IO", f"{axes}OI"]
    dtypes = ("float16", "bfloat16", "float32", "float64")
    none = (0,) * rank
    cases = []
    for data, out, geometry, dtype, dynamic in itertools.product(
        layouts, layouts, _geometries(rank), dtypes, (False, True)
    ):
        largest = tuple(
            max(s, d) - 1 for s, d in zip(geometry["stride"], geometry["dilation"], strict=True)
        )
        # Group the kernel layouts, which share a lowered function.
        cases += [
            Case(
                data,
                kernel,
                out,
                output_padding=output_padding,
                dtype=dtype,
                dynamic=dynamic,
                transposed=transposed,
                **geometry,
            )
            for output_padding in (sorted({none, largest}) if transposed else [none])
            for kernel in (kernels if rank == 2 and transposed else kernels[1:2])
        ]
    return cases


EDGES = {
    # 13 columns and 24 channels: no tile divides these
    "uneven-tiles": Case(extent=(3, 12), kernel=(2, 2), stride=(1, 1), group_out=24),
    "uneven-tiles-packed": Case(
        "NCHW4c", "IOHW", "NCHW8c", extent=(3, 12), kernel=(2, 2), stride=(1, 1), group_out=24
    ),
    "block-beyond-vector": Case("NCHW32c", "IOHW32o", "NCHW32c", channels=32, group_out=32),
    "kernel-beyond-data": Case(extent=(2, 9), channels=8, group_out=48, groups=2),
    "kernel-1x1": Case(kernel=(1, 1)),
    "kernel-1x1-stride-1": Case(kernel=(1, 1), stride=(1, 1)),
    "stride-beyond-kernel": Case(kernel=(1, 2), stride=(3, 4), output_padding=(2, 3)),
    "spatial-1": Case(extent=(1, 1), kernel=(4, 4), stride=(1, 1)),
    "one-pixel-left": Case(extent=(3, 3), kernel=(3, 3), padding=(3, 3, 3, 3)),
    "whole-window-cropped": Case(extent=(2, 2), kernel=(2, 2), padding=(2, 2, 0, 0)),
    "batch-0": Case(batch=0),
    "batch-0-dynamic": Case(batch=0, dynamic=True),
    "batch-0-packed": Case("NCHW4c", "IOHW4i4o", "NCHW4c", batch=0, group_out=4),
    "wide-row": Case(extent=(2, 9), kernel=(2, 2), data_layout="NHWC", out_layout="NHWC"),
    "odd-layouts": Case(data_layout="WCNH", kernel_layout="OHIW", out_layout="HNCW"),
    "stride-and-dilation-4": Case(stride=(4, 6), dilation=(6, 4), extent=(4, 4)),
    "float16-to-float32": Case(dtype="float16", out_dtype="float32"),
    "bfloat16-to-float32": Case(dtype="bfloat16", out_dtype="float32"),
    "float32-to-float16": Case(out_dtype="float16"),
    "float32-to-float64": Case(out_dtype="float64"),
    "one-output-channel": Case(group_out=1),
    # FlattenBuffer would change this index if it contained a floordiv
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
    "packed-depthwise": Case("NCHW4c", "IOHW4i", "NCHW4c", channels=8, groups=8, group_out=1),
    "packed-depthwise-plain-out": Case(
        "NCHW8c", "IOHW8i", "NCHW", channels=8, groups=8, group_out=1
    ),
    "depthwise-packed-out": Case("NCHW", "IOHW", "NCHW4c", channels=6, groups=6, group_out=1),
    # group boundaries within a block: of data, of the kernel, of the output
    "blocks-across-groups": Case(
        "NCHW4c", "IOHW4i", "NCHW4c", channels=12, groups=6, group_out=2, dtype="bfloat16"
    ),
    "more-block-than-channels": Case("NCHW", "IOHW", "NCHW16c", group_out=3),
    "blocks-of-1": Case("NCHW1c", "IOHW1o1i", "NCHW1w"),
    "blocks-of-everything": Case(
        "2n3c5h2wNCHW", "IO3hHW2w2i3o", "N3nH4hW5wC2c", channels=6, dynamic=True
    ),
    "long-row": Case(
        "NWC", "WIO", "NCW", (4,), (1, 2), (3,), (3,), extent=(33,), kernel=(5,), group_out=32
    ),
    "volume": Case(
        "NCDHW4c",
        "OIDHW",
        "NDHWC",
        stride=(1, 2, 3),
        padding=(0, 1, 2, 1, 0, 0),
        output_padding=(0, 1, 2),
        dilation=(2, 1, 1),
        extent=(2, 3, 9),
        kernel=(2, 3, 4),
        group_out=16,
    ),
}


@st.composite
def random_cases(draw: st.DrawFn, transposed: bool = True) -> Case:
    """A random valid case with small extents, of any rank, with blocks of any axes."""
    rank = draw(st.integers(1, 3))
    axes = AXES[rank]
    each = lambda low, high: draw(st.tuples(*[st.integers(low, high)] * rank))  # noqa: E731

    def layout(letters: str) -> tuple[str, dict[str, int]]:
        split = draw(st.lists(st.sampled_from(letters), unique=True, max_size=2))
        blocks = {axis: draw(st.sampled_from((1, 2, 3, 4))) for axis in split}
        parts = [*letters, *(f"{block}{axis.lower()}" for axis, block in blocks.items())]
        return "".join(draw(st.permutations(parts))), blocks

    def multiple(blocks: dict[str, int], axis: str, least: int) -> int:
        """The smallest multiple of the block of `axis` that is at least `least`."""
        block = blocks.get(axis, 1)
        return -(-least // block) * block

    data_layout, data_blocks = layout(f"NC{axes}")
    kernel_layout, kernel_blocks = layout(f"IO{axes}")
    stride, dilation, groups = each(1, 5), each(1, 5), draw(st.integers(1, 3))
    extent = tuple(map(multiple, [data_blocks] * rank, axes, each(1, 5)))
    kernel = tuple(map(multiple, [kernel_blocks] * rank, axes, each(1, 4)))
    group_in, group_out = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    # A whole number of blocks in a group is one in all groups.
    blocks = math.lcm(data_blocks.get("C", 1), kernel_blocks.get("I", 1))
    group_in = multiple({"C": blocks}, "C", group_in)
    group_out = multiple(kernel_blocks, "O", group_out)
    before, after = [], []
    for i in range(rank):
        # What padding may take: of the whole output, or, of a forward one, give to the data.
        taken = dilation[i] * (kernel[i] - 1) + 1
        if transposed:
            room = (extent[i] - 1) * stride[i] + taken - 1
            before.append(draw(st.integers(0, min(6, room))))
            after.append(draw(st.integers(0, min(6, room - before[-1]))))
        else:
            needed = max(taken - extent[i], 0)
            before.append(draw(st.integers(0, 4)))
            after.append(max(needed - before[-1], 0) + draw(st.integers(0, 3)))
    output_padding = (0,) * rank
    if transposed:
        output_padding = tuple(
            draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)
        )
    return Case(
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_layout=layout(f"NC{axes}")[0],
        stride=stride,
        padding=(*before, *after),
        output_padding=output_padding,
        dilation=dilation,
        groups=groups,
        dtype=draw(st.sampled_from(["float16", "bfloat16", "float32", "float64"])),
        dynamic=draw(st.booleans()),
        batch=multiple(data_blocks, "N", draw(st.integers(1, 2))),
        channels=groups * group_in,
        group_out=group_out,
        extent=extent,
        kernel=kernel,
        transposed=transposed,
    )


def unknown_columns(transposed: bool) -> list[Case]:
    """Cases of dynamic extents around the size of a tile, vectorized over channels."""
    geometries = [
        {"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1, 1, 1)},
        {"kernel": (3, 5), "stride": (2, 2), "padding": (1, 2, 1, 2)},
        {"kernel": (3, 3), "stride": (1, 2), "padding": (2, 2, 2, 2), "dilation": (2, 2)},
        {"kernel": (1, 1), "stride": (1, 1)},
    ]
    return [
        Case(
            kernel_layout="IOHW" if transposed else "OIHW",
            dynamic=True,
            groups=groups,
            channels=4,
            group_out=32,
            extent=(3, width),
            transposed=transposed,
            **geometry,
        )
        for geometry, (groups, widths) in itertools.product(
            geometries, [(1, (1, 3, 4, 5, 8, 10, 13)), (2, (7,))]
        )
        for width in widths
    ]
