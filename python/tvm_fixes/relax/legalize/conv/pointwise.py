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
"""Lowering of a pointwise convolution as the product of its kernel (O, I) and its data (I, P).

The columns of the product are all pixels, so that no vector ends with a row of the image, and the
kernel is read as it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tvm import relax, s_tir, te, tirx
from tvm.relax.utils import gen_call_tir_inputs

from ....fixes.matmul import MATMUL_LEGALIZE
from ....support import switches
from ....target.cpu import Cpu
from ....tirx.util import count_of, is_one, is_zero, unravel, values_of
from ...layouts import Layout
from ..matmul.product import Product
from ..matmul.schedule import schedule
from ..matmul.tiles import choose_tile, depth_chunk
from .compute import Convolution

# With more registers, a tile of channels has several vectors, which share each element of the data.
_MAX_REGISTERS = 16


def is_product(
    cpu: Cpu, convolution: Convolution, data: dict[str, tirx.Expr], kernel: dict[str, tirx.Expr]
) -> bool:
    """Whether `convolution` is faster as a product; `data` and `kernel` have their extents."""
    axes = "".join(convolution.spatial)
    if not switches.enabled(MATMUL_LEGALIZE) or cpu.vector_registers > _MAX_REGISTERS:
        return False
    if {convolution.data_layout.name, convolution.out_layout.name} != {f"NC{axes}"}:
        return False
    dtypes = convolution.multiply_accumulate.accumulator, convolution.out_dtype
    if set(dtypes) != {"float32"} or convolution.multiply_accumulate.depth > 1:
        return False
    if convolution.groups > 1 or convolution.grouped_axis != "O":
        return False
    is_known = None not in (values_of(kernel.values()), values_of(data[axis] for axis in axes))
    if is_zero(kernel["I"]):
        return False
    has_pads = any(axis.pad_before or axis.pad_after for axis in convolution.spatial.values())
    return is_known and not has_pads and all(is_one(kernel[axis]) for axis in axes)


@dataclass(frozen=True)
class _View:
    """A tensor with other axes."""

    shape: Sequence[tirx.Expr]
    dtype: str
    element: Callable[..., tirx.Expr]

    def __call__(self, *position: tirx.Expr) -> tirx.Expr:
        return self.element(*position)


def lower_as_product(
    bb: relax.BlockBuilder,
    cpu: Cpu,
    convolution: Convolution,
    data: relax.Expr,
    kernel: relax.Expr,
    kernel_layout: Layout,
) -> relax.Expr:
    """Lower a convolution for which :func:`is_product` is true.

    Parameters
    ----------
    bb : relax.BlockBuilder
        Receives the kernel.
    cpu : Cpu
    convolution : Convolution
    data, kernel : relax.Expr
    kernel_layout : Layout
        The layout of `kernel`.
    """
    kernel_extent = kernel_layout.extents(list(kernel.ty.shape.values))
    data_extent = convolution.data_layout.extents(list(data.ty.shape.values))
    count, channels, *spatial = convolution.out_extent(data_extent, kernel_extent).values()
    pixels = count_of(spatial)
    tile = choose_tile(cpu, "float32", channels, pixels, packed=True)
    depth = depth_chunk(tile, channels, pixels, kernel_extent["I"])
    product = Product(
        "float32", convolution.multiply_accumulate, replace(tile, depth=depth), None, panels=True
    )

    def compute(data: te.Tensor, kernel: te.Tensor) -> te.Tensor:
        def pixel(batch: tirx.Expr, channel: tirx.Expr, at: tirx.Expr) -> tirx.Expr:
            return data(batch, channel, *unravel(at, spatial))

        def weight(out: tirx.Expr, channel: tirx.Expr) -> tirx.Expr:
            at = {axis: tirx.const(0, "int64") for axis in kernel_layout.plain}
            at |= {"O": out, "I": channel}
            return kernel(*(at[axis] for axis in kernel_layout.plain))

        rows = _View([channels, kernel_extent["I"]], "float32", weight)
        columns = _View([count, kernel_extent["I"], pixels], "float32", pixel)
        return product.compute(rows, columns)

    if any(axis.stride > 1 for axis in convolution.spatial.values()):
        data = _without_skipped(bb, convolution, data, [count, data_extent["C"], *spatial])
    func, args, _ = gen_call_tir_inputs(compute, data, kernel)
    func = schedule(func, product.tile, None, panels=True)
    sch = s_tir.Schedule(func)
    sch.transform_layout(
        "out", ("write", 0), lambda n, channel, at: [n, channel, *unravel(at, spatial)]
    )
    out_type = relax.TensorType([count, channels, *spatial], "float32", data.ty.vdevice)
    name = f"conv{len(spatial)}d"
    # TVM fuses nothing with it: what follows is faster in vectors of its own than in these tiles.
    return relax.call_tir(bb.add_func(sch.mod["main"], name), args, [out_type])


def _without_skipped(
    bb: relax.BlockBuilder, convolution: Convolution, data: relax.Expr, shape: list[tirx.Expr]
) -> relax.Var:
    """The data without the pixels that strides skip; it has `shape`."""
    strides = [axis.stride for axis in convolution.spatial.values()]

    def compute(data: te.Tensor) -> te.Tensor:
        def element(*position: tirx.Var) -> tirx.Expr:
            batch, channel, *at = position
            pairs = zip(at, strides, strict=True)
            return data(batch, channel, *(place * stride for place, stride in pairs))

        return te.compute(shape, element, name="without_skipped")

    return bb.emit_te(compute, data, primfunc_name_hint="without_skipped")
