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
"""Lowering of a convolution to few channels as a matrix product and sums of its elements.

A vector of output channels would be mostly empty.  Instead, a matrix product multiplies all data by
each element of the kernel.  There is no im2col matrix: an output is the sum of the products at its
taps::

    products[n, tap, o, x] = sum over i of kernel[o, i, tap] * data[n, i, x]
    out[n, o, y] = sum over the taps of products[n, tap, o, x(y, tap)]
"""

import math

import tvm
from tvm import relax, s_tir, te, tirx
from tvm.relax.utils import gen_call_tir_inputs

from ....fixes.matmul import MATMUL_LEGALIZE
from ....support import switches
from ....tirx.parallel import parallelize
from ....tirx.util import count_of
from ...constants.make import rearranged
from ...layouts import Layout, to_layout
from .compute import Convolution, bounded, guarded

# The minimum number of channels in a vector for any target: half a cache line.
_LANES = 8

# Writing and reading a product takes as long as summing this many more channels.
_OVERHEAD = 24


def has_few_channels(convolution: Convolution, kernel: dict[str, tirx.Expr]) -> bool:
    """Whether `convolution` is faster as a matrix product; `kernel` has the extents of its axes."""
    is_float = "float" in convolution.multiply_accumulate.accumulator
    if not is_float or not switches.enabled(MATMUL_LEGALIZE):
        return False
    layouts = convolution.data_layout, convolution.out_layout
    if convolution.groups > 1 or any(layout.blocks for layout in layouts):
        return False
    if not all(isinstance(extent, tirx.IntImm) for extent in kernel.values()):
        return False
    # With a stride most products would be dropped.
    if any(spatial.stride > spatial.phases for spatial in convolution.spatial.values()):
        return False
    taps = math.prod(kernel[axis].value for axis in convolution.spatial)
    channels_in, channels_out = kernel["I"].value, kernel["O"].value
    saves_time = channels_out * (channels_in + _OVERHEAD) < channels_in * _LANES
    return taps > 1 and saves_time and taps * channels_out <= 2 * channels_in


def lower_as_gemm(
    bb: relax.BlockBuilder,
    convolution: Convolution,
    data: relax.Expr,
    kernel: relax.Expr,
    kernel_layout: Layout,
) -> relax.Expr:
    """Lower a convolution that :func:`has_few_channels`.

    Parameters
    ----------
    bb : relax.BlockBuilder
        Receives the PrimFunc of the sums, and the other calls.
    convolution : Convolution
    data, kernel : relax.Expr
    kernel_layout : Layout
        The layout of `kernel`.
    """
    axes = "".join(convolution.spatial)
    data_extent = convolution.data_layout.extents(list(data.ty.shape.values))
    kernel_extent = kernel_layout.extents(list(kernel.ty.shape.values))
    pixels = count_of(data_extent[axis] for axis in axes)
    count = count_of(kernel_extent[axis] for axis in f"{axes}O")
    is_last = convolution.data_layout.plain.endswith("C")
    data = to_layout(
        bb, data, convolution.data_layout, Layout(f"N{axes}C" if is_last else f"NC{axes}")
    )
    if is_last:
        kernel = to_layout(bb, kernel, kernel_layout, Layout(f"I{axes}O"))
        rhs = _reshape(bb, kernel, [kernel_extent["I"], count])
        lhs = _reshape(bb, data, [data_extent["N"] * pixels, data_extent["C"]])
    else:
        kernel = to_layout(bb, kernel, kernel_layout, Layout(f"{axes}OI"))
        lhs = _reshape(bb, kernel, [count, kernel_extent["I"]])
        rhs = _reshape(bb, data, [data_extent["N"], data_extent["C"], pixels])
    out_dtype = convolution.multiply_accumulate.accumulator
    products = bb.emit(relax.op.matmul(lhs, rhs, out_dtype=out_dtype))

    def compute(products: te.Tensor) -> te.Tensor:
        return _sums(convolution, products, data_extent, kernel_extent, is_last=is_last)

    func, args, out_type = gen_call_tir_inputs(compute, products)
    return relax.call_tir(
        bb.add_func(_schedule(func, len(axes) + 2), "sum_of_products"), args, out_type
    )


def _reshape(bb: relax.BlockBuilder, tensor: relax.Expr, shape: list[tirx.Expr]) -> relax.Expr:
    if isinstance(tensor, tvm.ir.GenericConst):
        return rearranged(tensor, lambda array: array.reshape([int(e) for e in shape]), "reshape")
    return bb.emit(relax.op.reshape(tensor, shape))


def _sums(
    convolution: Convolution,
    products: te.Tensor,
    data_extent: dict[str, tirx.Expr],
    kernel_extent: dict[str, tirx.Expr],
    *,
    is_last: bool,
) -> te.Tensor:
    """The output: each element is the sum over its taps."""
    out_extent = convolution.out_extent(data_extent, kernel_extent)
    shape = convolution.out_layout.shape(out_extent)
    taps = convolution.taps(kernel_extent)
    dtype = str(products.dtype)

    def element(*position: tirx.Var) -> tirx.Expr:
        analyzer = bounded(position, shape)
        for axis in taps.values():
            analyzer.bind(axis.var, axis.dom)
        at = convolution.out_layout.element(position)
        pixel = row = tirx.const(0, "int64")
        guards = []
        for axis, spatial in convolution.spatial.items():
            data_at, kernel_at, needed = spatial.gather(
                at[axis], taps[axis].var, data_extent[axis], kernel_extent[axis], analyzer
            )
            pixel = pixel * data_extent[axis] + data_at
            row = row * kernel_extent[axis] + kernel_at
            guards += needed
        row = row * kernel_extent["O"] + at["C"]
        if is_last:
            product = products(at["N"] * count_of(data_extent[a] for a in taps) + pixel, row)
        else:
            product = products(at["N"], row, pixel)
        return te.sum(guarded(product, guards), axis=list(taps.values()))

    sums = te.compute(shape, element, name="sum")
    if dtype == convolution.out_dtype:
        return sums
    return te.compute(shape, lambda *at: sums(*at).astype(convolution.out_dtype), name="out")


def _schedule(func: tirx.PrimFunc, rank: int) -> tirx.PrimFunc:
    """Sum row by row, with the rows in parallel."""
    sch = s_tir.Schedule(func)
    block = sch.get_sblock("sum")
    consumers = sch.get_consumers(block)
    rows = sch.get_loops(consumers[0] if consumers else block)[: rank - 1]
    if consumers:
        sch.compute_at(block, rows[-1], preserve_unit_loops=True)
    parallelize(sch, rows)
    return sch.mod["main"]
