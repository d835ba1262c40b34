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
"""Lowering of a convolution call to a PrimFunc, which is scheduled for CPUs."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from tvm import relax, tirx
from tvm.relax.utils import gen_call_tir_inputs
from tvm.sym import Analyzer

from ....support import switches
from ....target.cpu import Cpu
from ....tirx.util import OPAQUE, divides, is_one, values_of
from ...layouts import Layout, to_layout
from ..override import Legalize, legalizes
from ..targets import cpu_of, multiply_accumulate_of
from .compute import Convolution, SpatialAxis, Tile
from .cpu_channels import choose_tile_of_channels, max_vector_bytes, schedule_channels
from .cpu_columns import channels_first, choose_tile_of_columns, has_small_groups, schedule_columns
from .gemm import has_few_channels, lower_as_gemm
from .packing import packed
from .phases import has_phases, lower_phases
from .pointwise import is_product, lower_as_product

# The number of cached kernels; a model has fewer.
_MAX_KERNELS = 256

# The maximum number of vectors of channels in a tile.
_MAX_VECTORS = 4


@dataclass(frozen=True)
class Family:
    """A kind of convolution: forward or transposed.

    Attributes
    ----------
    fix_id : str
        The fix that lowers them.
    operators : dict of str to str
        The spatial axes of each operator, outermost first.
    grouped_axis : str
        The kernel axis with the channels of all groups, ``I`` or ``O``; the other has the channels
        of one group.
    minimum : dict of str to int
        The smallest valid value of each attribute.
    spatial_axis : type of SpatialAxis
        The class of a spatial axis.
    applies : callable
        Whether to lower a call with known shapes here; other calls are left to TVM.
    """

    fix_id: str
    operators: dict[str, str]
    grouped_axis: str
    minimum: dict[str, int]
    spatial_axis: type[SpatialAxis]
    applies: Callable[[relax.Call], bool]


def lower_family(family: Family) -> None:
    """Register the lowering; calls that it does not handle go to the previous function."""
    legalizes(*family.operators, family=family)(_legalize)


def _legalize(
    bb: relax.BlockBuilder, call: relax.Call, family: Family, stock: Legalize
) -> relax.Expr:
    """Lower `call`, or pass it to `stock` if the fix is off or does not apply."""
    if not (switches.enabled(family.fix_id) and _is_known(call, family) and family.applies(call)):
        return stock(bb, call)
    matched = _match_channels(bb, call, family)
    if matched is None:
        return stock(bb, call)
    switches.note(family.fix_id)
    _check(call, family)
    data, kernel = matched
    attrs, axes = call.attrs, family.operators[call.op.name]
    extents = _extents(data, attrs.data_layout), _extents(kernel, attrs.kernel_layout)
    cpu = cpu_of(call)
    convolution = Convolution(
        spatial={axis: family.spatial_axis.of(attrs, i) for i, axis in enumerate(axes)},
        groups=int(attrs.groups),
        grouped_axis=family.grouped_axis,
        data_layout=Layout(attrs.data_layout),
        out_layout=Layout(attrs.out_layout),
        out_dtype=str(call.ty.dtype),
        multiply_accumulate=multiply_accumulate_of(call).with_copies(data=True),
    )
    if cpu is not None:
        if has_few_channels(convolution, extents[1]):
            return lower_as_gemm(bb, convolution, data, kernel, Layout(attrs.kernel_layout))
        if is_product(cpu, convolution, *extents):
            layout = Layout(attrs.kernel_layout)
            return lower_as_product(bb, cpu, convolution, data, kernel, layout)
        if has_phases(convolution, kernel, Layout(attrs.kernel_layout)):
            return lower_phases(bb, call, convolution, data, kernel)
        convolution = _with_columns(convolution, *extents)
        moved = channels_first(convolution, extents[1])
        if moved is not None:
            data = to_layout(bb, data, convolution.data_layout, moved.data_layout)
            convolution = moved
        convolution = _with_tile(cpu, convolution, *extents)
    kernel = packed(bb, kernel, Layout(attrs.kernel_layout), convolution.kernel_layout)
    name = call.op.name.rpartition(".")[2]
    out_layout = Layout(attrs.out_layout)
    shapes = [values_of(expr.ty.shape.values) for expr in (data, kernel, call)]
    if None not in shapes:
        dtypes = str(data.ty.dtype), str(kernel.ty.dtype)
        func = _static_kernel(convolution, *shapes[:2], *dtypes, cpu)
        out_shape = convolution.out_layout.shape(out_layout.extents(list(call.ty.shape.values)))
        args = relax.Tuple([data, kernel])
        out_type = relax.TensorType(out_shape, call.ty.dtype, call.ty.vdevice)
    else:
        func, args, out_type = _kernel(convolution, data, kernel, cpu)
    writes_vectors = convolution.out_layout.axes[-1][0] in "Cc"
    if "int" in convolution.out_dtype and not writes_vectors:
        # Requantization takes many operators, which LLVM does not vectorize in a partial tile.
        func = func.with_attr("op_pattern", OPAQUE)
    result = relax.call_tir(bb.add_func(func, name), args, out_type)
    if convolution.out_layout == out_layout:
        return result
    return to_layout(bb, bb.emit(result), convolution.out_layout, out_layout)


@functools.lru_cache(maxsize=_MAX_KERNELS)
def _static_kernel(
    convolution: Convolution,
    data_shape: tuple[int, ...],
    kernel_shape: tuple[int, ...],
    data_dtype: str,
    kernel_dtype: str,
    cpu: Cpu | None,
) -> tirx.PrimFunc:
    """The kernel of a convolution with static shapes, cached: models repeat convolutions."""
    data = relax.Var("data", relax.TensorType(data_shape, data_dtype))
    kernel = relax.Var("kernel", relax.TensorType(kernel_shape, kernel_dtype))
    func, _, _ = _kernel(convolution, data, kernel, cpu)
    return func


def _kernel(
    convolution: Convolution, data: relax.Expr, kernel: relax.Expr, cpu: Cpu | None
) -> tuple[tirx.PrimFunc, relax.Tuple, relax.TensorType]:
    """The kernel, scheduled if it is for a CPU, and the arguments and type of a call to it."""
    func, args, out_type = gen_call_tir_inputs(convolution.compute, data, kernel)
    if cpu is None:
        return func, args, out_type
    if convolution.tile is not None and convolution.tile.vectorizes_columns:
        func = schedule_columns(func, convolution, convolution.tile)
    else:
        shapes = (list(expr.ty.shape.values) for expr in (data, kernel))
        func = schedule_channels(func, convolution, *convolution.extents(*shapes), cpu)
    return func, args, out_type


def _is_known(call: relax.Call, family: Family) -> bool:
    """Whether the shapes are known and the number of groups divides the channels."""
    if not all(isinstance(expr.ty.shape, relax.ShapeExpr) for expr in (*call.args, call)):
        return False
    channels = _extents(call.args[1], call.attrs.kernel_layout)[family.grouped_axis]
    return divides(int(call.attrs.groups), channels)


def _extents(tensor: relax.Expr, layout: str) -> dict[str, tirx.Expr]:
    return Layout(layout).extents(list(tensor.ty.shape.values))


def _check(call: relax.Call, family: Family) -> None:
    """Reject calls that the type rule accepts by mistake.

    Raises
    ------
    ValueError
        If an attribute is too small, or an extent of the output is negative.
    """
    name, attrs = call.op.name, call.attrs
    for attribute, minimum in family.minimum.items():
        value = [int(v) for v in getattr(attrs, attribute)]
        if min(value) < minimum:
            raise ValueError(f"{name}: {attribute} must be at least {minimum}, got {value}")
    for axis, extent in _extents(call, attrs.out_layout).items():
        if isinstance(extent, tirx.IntImm) and extent.value < 0:
            raise ValueError(
                f"{name}: padding {[int(v) for v in attrs.padding]} gives the output extent "
                f"{extent.value} along axis {axis}; expected at least 0"
            )


def _match_channels(
    bb: relax.BlockBuilder, call: relax.Call, family: Family
) -> tuple[relax.Expr, relax.Expr] | None:
    """Data and kernel, with a runtime check that their channels agree unless that is proven.

    The type rule does not check symbolic channels; the kernel would read out of bounds. None if no
    check is possible, since the blocks of neither divide the channels of the other.
    """
    (data, kernel), attrs = call.args, call.attrs
    groups = 1 if family.grouped_axis == "I" else int(attrs.groups)
    data_channels = _extents(data, attrs.data_layout)["C"]
    kernel_channels = _extents(kernel, attrs.kernel_layout)["I"]
    if Analyzer().can_prove_equal(data_channels, kernel_channels * groups):
        return data, kernel
    cast = _with_extent(bb, data, attrs.data_layout, "C", kernel_channels * groups)
    if cast is not None:
        return cast, kernel
    if not divides(groups, data_channels):
        return None
    channels = tirx.floordiv(data_channels, groups)
    cast = _with_extent(bb, kernel, attrs.kernel_layout, "I", channels)
    return None if cast is None else (data, cast)


def _with_extent(
    bb: relax.BlockBuilder, tensor: relax.Expr, layout: str, axis: str, extent: tirx.Expr
) -> relax.Expr | None:
    """Match-cast `tensor` to `extent` along `axis`; None unless its blocks divide the extent."""
    block = Layout(layout).blocks.get(axis, 1)
    if not divides(block, extent):
        return None
    shape = list(tensor.ty.shape.values)
    shape[Layout(layout).letters.index(axis)] = Analyzer().simplify(tirx.floordiv(extent, block))
    return bb.match_cast(tensor, relax.TensorType(shape, tensor.ty.dtype, tensor.ty.vdevice))


def _with_columns(
    convolution: Convolution, data: dict[str, tirx.Expr], kernel: dict[str, tirx.Expr]
) -> Convolution:
    """`convolution` with its axes in the order of memory, and those of one output outermost.

    A tile has columns of the innermost axis.
    """
    if has_small_groups(convolution, kernel):
        return convolution  # the data would be rearranged, which takes longer than these sums
    extents = convolution.out_extent(data, kernel)
    order, *others = (
        [letter for letter in layout.letters if letter in convolution.spatial]
        for layout in (convolution.data_layout, convolution.out_layout)
    )
    in_memory = order if others == [order] else list(convolution.spatial)
    axes = sorted(in_memory, key=lambda axis: not is_one(extents[axis]))
    return replace(convolution, spatial={axis: convolution.spatial[axis] for axis in axes})


def _with_tile(
    cpu: Cpu,
    convolution: Convolution,
    data: dict[str, tirx.Expr],
    kernel: dict[str, tirx.Expr],
) -> Convolution:
    """`convolution` with a register tile, without a dot product if that does not suit it."""
    vectors, depth = (
        convolution.multiply_accumulate.vectors_of(cpu),
        convolution.multiply_accumulate.depth,
    )
    tiled = replace(convolution, tile=_tile(vectors, convolution, data, kernel))
    if depth == 1:
        return tiled
    in_group, out_group = convolution.group_channels(kernel)
    can_pad = convolution.groups == 1 and isinstance(in_group, tirx.IntImm)
    has_vectors = tiled.tile is not None and tiled.tile.channels > 1
    # Otherwise the products have guards.
    is_whole = all(axis.has_whole_taps(kernel[name]) for name, axis in tiled.spatial.items())
    fills = (can_pad or divides(depth, in_group)) and not is_one(in_group)
    # The channels of a vector read the same data.
    fills = fills and (convolution.groups == 1 or not is_one(out_group))
    if has_vectors and is_whole and fills:
        return tiled
    plain = replace(convolution.multiply_accumulate, dot_product=None)
    return _with_tile(cpu, replace(convolution, multiply_accumulate=plain), data, kernel)


def _tile(
    cpu: Cpu,
    convolution: Convolution,
    data: dict[str, tirx.Expr],
    kernel: dict[str, tirx.Expr],
) -> Tile | None:
    """The register tile of `convolution`; None to leave vectorization to LLVM.

    In a depthwise convolution, each output channel reads a different data channel. These are
    adjacent only if the layout ends in channels. With channel blocks, a vector is within a block.
    """
    dtype = convolution.multiply_accumulate.accumulator
    out_extent = convolution.out_extent(data, kernel)
    if has_small_groups(convolution, kernel):
        spatial = [out_extent[axis] for axis in convolution.spatial]
        *_, last = convolution.spatial.values()
        return choose_tile_of_columns(cpu, dtype, spatial, last.stride)
    groups, channels, kernel_axis = convolution.groups, out_extent["C"], "O"
    if groups > 1 and Analyzer().can_prove_equal(channels, groups):
        last_axis, block = convolution.data_layout.axes[-1]
        if last_axis not in "Cc":
            return None
        kernel_axis = convolution.grouped_axis
        channels = channels if block is None else tirx.const(block, "int64")
    else:
        channels = Analyzer().simplify(tirx.floordiv(channels, groups))
    column = list(convolution.spatial)[-1]
    choose = functools.partial(
        choose_tile_of_channels,
        cpu,
        dtype,
        out_extent[column],
        channels,
        phases=convolution.spatial[column].phases,
        may_pad=groups == 1,
    )
    max_vectors = _max_vectors(cpu, convolution, kernel) if kernel_axis == "O" else 1
    chosen = choose(max_vectors=max_vectors)
    out = convolution.out_layout
    writes_tiles = set(out.blocks) <= {"C"} and not out.has_padding(out_extent)
    if not writes_tiles or out.blocks.get("C", chosen.channels) != chosen.channels:
        chosen = choose()
    vector = chosen.channels
    padding = -int(channels) % vector if vector > 1 and isinstance(channels, tirx.IntImm) else 0
    return Tile(chosen.columns, vector, kernel_axis, padding, chosen.vectors)


def _max_vectors(cpu: Cpu, convolution: Convolution, kernel: dict[str, tirx.Expr]) -> int:
    """The maximum number of vectors of a tile: half of the L2 cache holds their kernel."""
    group_in, _ = convolution.group_channels(kernel)
    extents = [group_in, *(kernel[axis] for axis in convolution.spatial)]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return _MAX_VECTORS
    element_bytes = 4 // convolution.multiply_accumulate.depth
    channel_bytes = element_bytes * math.prod(int(extent) for extent in extents)
    channels = max_vector_bytes(cpu) // 4
    return max(min(_MAX_VECTORS, cpu.l2_bytes // 2 // max(channels * channel_bytes, 1)), 1)
