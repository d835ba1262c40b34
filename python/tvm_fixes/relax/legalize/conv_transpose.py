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
"""Lowering of ``relax.nn.conv2d_transpose`` in every plain layout.

Upstream
    https://github.com/apache/tvm/issues/17890 and https://github.com/apache/tvm/issues/19694
Versions
    Seen in 0.27.0.post1.
Trigger
    A call whose layouts are not data NCHW, kernel IOHW, output NCHW, such as ConvertLayout makes.
Symptom
    LegalizeOps returns the call as it is, and the build ends in ``CodeGenVM cannot emit this Relax
    operator directly``. The one layout that is lowered runs up to two hundred times slower than it
    has to.
Mechanism
    TVM's lowering knows one TOPI compute for one layout. It writes the data with zeros between its
    elements into one buffer, pads that into a second, flips the kernel at run time, and multiplies
    all those zeros.
How to remove
    When TVM lowers every permutation of the axes, delete this file, its test, its call in
    :mod:`tvm_fixes` and the fix id ``conv2d-transpose-legalize``.

The lowering here gathers: each output element sums over exactly the kernel taps and data elements
that contribute to it (the derivation is at :func:`_gather`), so that no zero is stored or
multiplied, and an infinite kernel element makes no NaN of an inserted zero.

Calls in packed layouts (NCHW4c) go to TVM's function, which leaves them to external code
generators. So do all calls while the fix is switched off.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import relax, s_tir, te, tirx
from tvm.relax.utils import gen_call_tir_inputs
from tvm.sym import Analyzer

from ... import switches

FIX_ID = "conv2d-transpose-legalize"

# Operator name -> its spatial axes, outermost first.
_SPATIAL_AXES = {"relax.nn.conv2d_transpose": "HW"}

# Columns of the output that share one pass over the kernel: their sums stay in the L1 cache, and in
# NCHW one cache line of the data feeds all of them.
_COLUMN_TILE = 8

_BinaryOp = Callable[[tirx.Expr, int], tirx.Expr]
_Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


@dataclass(frozen=True)
class SpatialAttrs:
    """What a transposed convolution does along one spatial axis."""

    stride: int
    dilation: int
    pad_before: int
    pad_after: int
    output_padding: int

    @property
    def period(self) -> int:
        """Distance between two kernel taps that reach the same output element."""
        return self.stride // math.gcd(self.stride, self.dilation)

    def out_extent(self, data: tirx.Expr, kernel: tirx.Expr) -> tirx.Expr:
        """Extent of the output for the extents of data and kernel.

        The formula is that of the operator's type rule and of ``torch.nn.ConvTranspose2d``.
        """
        grown = (data - 1) * self.stride + self.dilation * (kernel - 1) + 1
        return grown - self.pad_before - self.pad_after + self.output_padding


def conv_transpose(
    data: te.Tensor,
    kernel: te.Tensor,
    *,
    spatial: dict[str, SpatialAttrs],
    groups: int,
    data_layout: str,
    out_layout: str,
    out_dtype: str,
    channels_innermost: bool,
) -> te.Tensor:
    """Compute a transposed convolution of any rank, without a copy of the data.

    Parameters
    ----------
    data : te.Tensor
        The input, axes as in `data_layout`.
    kernel : te.Tensor
        The kernel, axes as :func:`kernel_layout` says: the spatial axes, ``I`` (all input channels)
        and ``O`` (the output channels of one group).
    spatial : dict of str to SpatialAttrs
        The spatial axes, outermost first.
    groups : int
        Number of groups; it divides the extent of ``I``.
    data_layout, out_layout : str
        Permutations of ``N``, ``C`` and the spatial axes.
    out_dtype : str
        Dtype of the result. Floating-point sums are of float32 or wider and rounded once.
    channels_innermost : bool
        Sum in a buffer with the output channels innermost, over which :func:`schedule_for_cpu`
        vectorizes. It is the output itself where layout and dtype agree.

    Returns
    -------
    te.Tensor
        The output, axes as in `out_layout`.
    """
    axes = "".join(spatial)
    simplify = Analyzer().simplify
    data_extent = dict(zip(data_layout, data.shape, strict=True))
    kernel_extent = dict(zip(kernel_layout(axes), kernel.shape, strict=True))
    out_extent = {"N": data_extent["N"], "C": simplify(kernel_extent["O"] * groups)}
    taps = {}
    for axis, attrs in spatial.items():
        out_extent[axis] = simplify(attrs.out_extent(data_extent[axis], kernel_extent[axis]))
        tap_count = simplify(tirx.ceildiv(kernel_extent[axis], attrs.period))
        taps[axis] = te.reduce_axis((0, tap_count), f"t{axis}")
    group_size = simplify(tirx.floordiv(kernel_extent["I"], groups))
    channel = te.reduce_axis((0, group_size), "i")
    acc_dtype = _accumulator_dtype(str(data.dtype), str(kernel.dtype), out_dtype)
    acc_layout = f"N{axes}C" if channels_innermost else out_layout

    def accumulate(*out_index: tirx.Var) -> tirx.Expr:
        at = dict(zip(acc_layout, out_index, strict=True))
        analyzer = Analyzer()
        for axis, var in at.items():
            analyzer.bind(var, tvm.ir.Range(0, out_extent[axis]))
        for tap in taps.values():
            analyzer.bind(tap.var, tap.dom)
        group = tirx.floordiv(at["C"], kernel_extent["O"])
        in_channel = analyzer.simplify(group * group_size + channel.var)
        data_at = {"N": at["N"], "C": in_channel}
        kernel_at = {
            "I": in_channel,
            "O": analyzer.simplify(tirx.floormod(at["C"], kernel_extent["O"])),
        }
        guards = []
        for axis, attrs in spatial.items():
            extents = data_extent[axis], kernel_extent[axis]
            data_at[axis], kernel_at[axis], needed = _gather(
                attrs, at[axis], taps[axis].var, *extents, analyzer
            )
            guards += needed
        product = data(*(data_at[axis] for axis in data_layout)).astype(acc_dtype) * kernel(
            *(kernel_at[axis] for axis in kernel_layout(axes))
        ).astype(acc_dtype)
        if guards:
            # Unlike a select, if_then_else does not load where its condition is false.
            product = tirx.if_then_else(tirx.all(*guards), product, tirx.const(0, acc_dtype))
        return te.sum(product, axis=[*taps.values(), channel])

    acc = te.compute([out_extent[a] for a in acc_layout], accumulate, name="conv_transpose")
    if (acc_layout, acc_dtype) == (out_layout, out_dtype):
        return acc
    return te.compute(
        [out_extent[axis] for axis in out_layout],
        lambda *index: acc(*(index[out_layout.index(a)] for a in acc_layout)).astype(out_dtype),
        name="out",
    )


def kernel_layout(axes: str) -> str:
    """The kernel layout of :func:`conv_transpose`, for example ``HWIO``.

    With ``O`` innermost the loop that is vectorized reads the kernel contiguously.
    """
    return axes + "IO"


def _gather(
    attrs: SpatialAttrs,
    out: tirx.Var,
    tap: tirx.Var,
    data_extent: tirx.Expr,
    kernel_extent: tirx.Expr,
    analyzer: Analyzer,
) -> tuple[tirx.Expr, tirx.Expr, list[tirx.Expr]]:
    """Which data and which kernel element meet in output `out` at the `tap`-th tap of an axis.

    Scattered, data ``x`` times kernel ``k`` goes to output ``s*x + d*k - pad_before``, where ``s``
    is the stride and ``d`` the dilation. Gathered, output ``out`` takes all ``k`` with
    ``d*k = q (mod s)``, where ``q = out + pad_before``. With ``g = gcd(s, d)`` there is none unless
    ``g`` divides ``q``; otherwise they are one residue modulo ``P = s/g``:
    ``k = (q/g) * (d/g)^-1 (mod P)``. The ``tap``-th of them is ``k0 + tap*P``, and its data element
    ``x = (q - d*k)/s`` lies ``d/g`` before that of the tap before.

    Returns
    -------
    tuple
        Index into the data, index into the kernel, and the conditions under which both are in
        bounds and contribute, without those that always hold.
    """
    stride, dilation, period = attrs.stride, attrs.dilation, attrs.period
    gcd = math.gcd(stride, dilation)
    inverse = pow(dilation // gcd, -1, period)
    position = out + attrs.pad_before

    def indices(div: _BinaryOp, mod: _BinaryOp) -> tuple[tirx.Expr, tirx.Expr]:
        first = mod(div(position, gcd) * inverse, period)
        # For dilation 1 the same as the general form, which TVM does not simplify to this.
        reach = div(position if dilation == 1 else position - first * dilation, stride)
        data_index = analyzer.simplify(reach - tap * (dilation // gcd))
        return data_index, analyzer.simplify(first + tap * period)

    data_index, kernel_index = indices(tirx.floordiv, tirx.floormod)
    conditions = [
        tirx.floormod(position, gcd).equal(0),
        kernel_index < kernel_extent,
        data_index >= 0,
        data_index < data_extent,
    ]
    guards = [condition for condition in conditions if not analyzer.can_prove(condition)]
    # Truncation changes nothing: the one dividend that can be negative, position - first*dilation,
    # is a multiple of the stride where the guards hold. It hides the index from IterMapSimplify,
    # which FlattenBuffer applies to indices made of floordiv and floormod and which can return
    # another index than it was given: with i < 30, j < 7 and k < 4 it turns
    # (i//15)*80 + (i%15 + 1)//3*16 + (j + 1)//2*4 + k into
    # (i + 1)//3*16 + (j + 1)//2*4 + k - 80 (https://github.com/apache/tvm/issues/19524).
    return *indices(tirx.truncdiv, tirx.truncmod), guards


def _accumulator_dtype(data: str, kernel: str, out: str) -> str:
    """The dtype to sum in: `out` for integers, at least float32 for floating point."""
    if not any("float" in dtype for dtype in (data, kernel, out)):
        return out
    return "float64" if "float64" in (data, kernel, out) else "float32"


def schedule_for_cpu(
    func: tirx.PrimFunc, *, groups: int, channels_innermost: bool
) -> tirx.PrimFunc:
    """Order the loops of :func:`conv_transpose`, and run them in parallel over batch and rows.

    Parameters
    ----------
    func : tirx.PrimFunc
        Made from :func:`conv_transpose`; its output is not empty.
    groups : int
        Its number of groups.
    channels_innermost : bool
        Whether it was made so. If so, LLVM vectorizes over the output channels, and one tile of
        columns is computed after the other.

    Returns
    -------
    tirx.PrimFunc
        The same computation. Where the output can not hold the sums, a buffer of the size of one
        tile or row does.
    """
    sch = s_tir.Schedule(func)
    block = sch.get_sblock("conv_transpose")
    loops = sch.get_loops(block)
    rank = (len(loops) - len("NCI")) // 2  # each spatial axis has an output loop and a tap loop
    (*rows, column, channel), reductions = loops[: rank + 2], loops[rank + 2 :]
    if not channels_innermost:
        rows.append(column)
        for consumer in sch.get_consumers(block):
            sch.reverse_compute_at(consumer, rows[-1])
        sch.parallel(sch.fuse(*rows))
        return sch.mod["main"]

    columns = sch.get(column).extent
    is_narrow = isinstance(columns, tirx.IntImm) and columns.value < _COLUMN_TILE
    tile, column = sch.split(column, [None, columns if is_narrow else _COLUMN_TILE])
    outer = [*rows, tile]
    if groups > 1 and not Analyzer().can_prove_equal(sch.get(channel).extent, groups):
        # One group at a time: the input channel is then the same in all of the innermost loop.
        group, channel = sch.split(channel, [groups, None])
        outer.append(group)
    sch.reorder(*outer, *reductions, column, channel)
    for consumer in sch.get_consumers(block):
        sch.reverse_compute_at(consumer, tile)
    sch.parallel(sch.fuse(*rows))
    sch.decompose_reduction(block, reductions[0])
    return sch.mod["main"]


def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: _Legalize) -> relax.Expr:
    """Lower `call`, or hand it to `stock` where the fix is off or does not apply."""
    attrs, axes = call.attrs, _SPATIAL_AXES[call.op.name]
    if not (switches.enabled(FIX_ID) and _applies(call, axes)):
        return stock(bb, call)
    switches.note(FIX_ID)
    spatial, groups = _spatial_attrs(call, axes), int(attrs.groups)
    data, kernel = _match_channels(bb, call), call.args[1]
    order = [attrs.kernel_layout.index(axis) for axis in kernel_layout(axes)]
    if order != sorted(order):
        kernel = bb.emit(relax.op.permute_dims(kernel, order))  # folded for a constant kernel

    on_cpu = _schedules_for_cpu(call)
    channels_innermost = on_cpu and _vectorizes_over_channels(call)
    compute = functools.partial(
        conv_transpose,
        spatial=spatial,
        groups=groups,
        data_layout=attrs.data_layout,
        out_layout=attrs.out_layout,
        out_dtype=str(call.ty.dtype),
        channels_innermost=channels_innermost,
    )
    func, args, out_type = gen_call_tir_inputs(compute, data, kernel)
    if on_cpu:
        func = schedule_for_cpu(func, groups=groups, channels_innermost=channels_innermost)
    return relax.call_tir(bb.add_func(func, call.op.name.rpartition(".")[2]), args, out_type)


def _applies(call: relax.Call, axes: str) -> bool:
    """Whether shapes are known, layouts plain, and the groups divide the input channels."""
    if not all(isinstance(expr.ty.shape, relax.ShapeExpr) for expr in (*call.args, call)):
        return False
    attrs = call.attrs
    layouts = {attrs.data_layout: "NC", attrs.out_layout: "NC", attrs.kernel_layout: "IO"}
    if any(sorted(layout) != sorted(axes + rest) for layout, rest in layouts.items()):
        return False
    remainder = tirx.floormod(_kernel_extent(call, "I"), int(attrs.groups))
    return Analyzer().can_prove_equal(remainder, 0)


def _kernel_extent(call: relax.Call, axis: str) -> tirx.Expr:
    """The extent of the kernel in `axis`."""
    return call.args[1].ty.shape.values[call.attrs.kernel_layout.index(axis)]


def _spatial_attrs(call: relax.Call, axes: str) -> dict[str, SpatialAttrs]:
    """The attributes of `call` by spatial axis.

    Raises
    ------
    ValueError
        If a stride or a dilation is not positive, or a padding or an extent of the output is
        negative. The type rule lets these pass.
    """
    attrs, rank = call.attrs, len(axes)
    for name, least in {"strides": 1, "dilation": 1, "padding": 0, "output_padding": 0}.items():
        value = [int(v) for v in getattr(attrs, name)]
        if min(value) < least:
            raise ValueError(f"{call.op.name}: {name} must be at least {least}, got {value}")
    for axis, extent in zip(attrs.out_layout, call.ty.shape.values, strict=True):
        if isinstance(extent, tirx.IntImm) and extent.value < 0:
            raise ValueError(
                f"{call.op.name}: padding {[int(v) for v in attrs.padding]} crops more than there "
                f"is, the output's extent in {axis} would be {extent.value}"
            )
    return {
        axis: SpatialAttrs(
            stride=int(attrs.strides[i]),
            dilation=int(attrs.dilation[i]),
            pad_before=int(attrs.padding[i]),
            pad_after=int(attrs.padding[i + rank]),
            output_padding=int(attrs.output_padding[i]),
        )
        for i, axis in enumerate(axes)
    }


def _match_channels(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """The data, checked at run time to have the kernel's channels if that is unknown now.

    The type rule trusts symbolic channels; the computation would read out of bounds.
    """
    data, channels = call.args[0], _kernel_extent(call, "I")
    shape = list(data.ty.shape.values)
    position = call.attrs.data_layout.index("C")
    if Analyzer().can_prove_equal(shape[position], channels):
        return data
    shape[position] = channels
    return bb.match_cast(data, relax.TensorType(shape, data.ty.dtype, data.ty.vdevice))


def _schedules_for_cpu(call: relax.Call) -> bool:
    """Whether `call` is known to run on a CPU, and has anything to compute.

    A CPU's schedule would be in the way of a GPU's, so in doubt there is none.
    """
    if any(isinstance(extent, tirx.IntImm) and extent.value == 0 for extent in call.ty.shape):
        return False
    vdevice = call.ty.vdevice
    target = vdevice.target if vdevice is not None else tvm.target.Target.current(allow_none=True)
    return target is not None and "cpu" in target.keys


def _vectorizes_over_channels(call: relax.Call) -> bool:
    """Whether output channels in the innermost loop pay.

    In a depthwise convolution each has a data channel of its own, which lie apart but in a
    channels-last layout.
    """
    is_depthwise = call.attrs.groups > 1 and Analyzer().can_prove_equal(
        _kernel_extent(call, "O"), 1
    )
    return not is_depthwise or call.attrs.data_layout.endswith("C")


@functools.cache
def register() -> None:
    """Put the lowering in force. A second call does nothing.

    Calls that the lowering does not take go to the function that was registered before.
    """
    for name in _SPATIAL_AXES:
        stock = tvm.ir.Op.get(name).get_attr("FLegalize")
        legalize = functools.partial(_legalize, stock=stock)
        tvm.ir.register_op_attr(name, "FLegalize", legalize, level=11)
