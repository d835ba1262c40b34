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
"""Lowering of ``relax.matmul`` for CPUs.

Mechanism
    TVM's lowering sums in the dtype of the output, one element after the other, and reads along a
    column, whose elements are a row apart.

Here the output is computed one register tile at a time. For each element of the common axis, the
microkernel loads one row of the tile from the second operand, in vectors, and multiplies it by one
element of each row of the first. A constant matrix that the whole batch shares is packed tile by
tile at compile time.  One that is computed or an input is packed within the product, panel by
panel, if many rows are multiplied by it.  The matrices of a batch are packed first if the tiles do
not divide the columns, or if many rows are multiplied. Calls with unknown shapes, and calls that
are not known to be for a CPU, go to TVM's function.

The steps of :func:`_lower`:

1. Make both operands matrices, and pad the common axis to the depth of the dot product.
2. Choose the tile (:func:`.tiles.choose_tile`).  Its sums, a row of the second operand, a broadcast
   element of the first and a spare fit in the registers: ``rows * vectors + vectors + 2`` of them.
3. Cut long sums in chunks (:func:`.tiles.depth_chunk`): ``chunk * columns`` elements of the second
   operand stay in the cache while all rows are multiplied by them.
4. Emit the product and schedule its loops around the microkernel.
5. Restore the shape of the call.
"""

import functools
from collections.abc import Callable
from dataclasses import replace

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.utils import gen_call_tir_inputs
from tvm.sym import Analyzer, ConstIntBound

from ....fixes.matmul import MATMUL_LEGALIZE as FIX_ID
from ....support import switches
from ....target.cpu import Cpu
from ....tirx.accumulation import MultiplyAccumulate
from ....tirx.util import count_of, values_of
from ...ir import in_block
from ..override import Legalize, legalizes
from ..targets import multiply_accumulate_of, schedules_for_cpu, target_of
from .packing import Packing, pack
from .product import Product, broadcast_extents
from .schedule import schedule
from .tiles import Tile, choose_tile, depth_chunk, in_streams

# The number of cached kernels; a model has fewer.
_MAX_KERNELS = 256

# With fewer rows, packing floats for a dot product takes longer than it saves.
_MIN_ROWS_TO_PACK_FLOATS = 16
# With fewer rows, packing panels takes longer than it saves.  The rows of an unpacked tile are in
# different pages and fall on few sets of the L1 cache.
_MIN_ROWS_OF_PANELS = 32


@legalizes("relax.matmul")
def _legalize(bb: relax.BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    """Lower `call`, or pass it to `stock` if the fix is off or does not apply."""
    if not (switches.enabled(FIX_ID) and _applies(call)):
        return stock(bb, call)
    switches.note(FIX_ID)
    rhs = call.args[1]
    if isinstance(rhs, tvm.ir.GenericConst) and len(rhs.ty.shape.values) == 2:
        packing = packing_of(call)
        if packing is not None:
            return _lower(bb, bb.emit, call, pack(rhs, packing, str(call.op.name)))
    rows = _rows_of(call)
    is_read_often = isinstance(rows, tirx.IntImm) and rows.value >= _MIN_ROWS_OF_PANELS
    if is_read_often and suits_panels(call):
        return _lower_in_panels(bb, bb.emit, call, rhs)
    return _lower(bb, bb.emit, call)


def packing_of(call: relax.Call) -> Packing | None:
    """How to pack a constant second operand of `call`.

    Returns
    -------
    Packing or None
        None if the product is left to TVM, or reads the matrix unpacked.
    """
    if not (switches.enabled(FIX_ID) and _applies(call)):
        return None
    tile = _tile_of(call, packed=True)
    if tile.columns is None:
        return None
    return Packing(tile.columns, _multiply_accumulate(call, packed=True).depth, tile.streams)


def multiply(bb: relax.BlockBuilder, call: relax.Call, packed: relax.Expr) -> relax.SeqExpr:
    """Lower `call` with a packed second operand.

    Parameters
    ----------
    bb : relax.BlockBuilder
        Receives the kernel.
    call : relax.Call
        A call for which :func:`packing_of` is not None.
    packed : relax.Expr
        The second operand, from :func:`pack`.

    Returns
    -------
    relax.SeqExpr
        A dataflow block and its result.
    """
    switches.note(FIX_ID)
    return in_block(bb, lambda emit: _lower(bb, emit, call, packed))


def _rows_of(call: relax.Call) -> tirx.Expr:
    """The rows of the first operand that are multiplied by the same matrix."""
    lhs, rhs = (list(arg.ty.shape.values) for arg in call.args)
    return lhs[-2] if len(rhs) > 2 and len(lhs) > 1 else count_of(lhs[:-1])


def _multiply_accumulate(call: relax.Call, *, packed: bool) -> MultiplyAccumulate:
    """How to multiply; with floats, not by a dot product if packing for it takes too long."""
    chosen, rows = multiply_accumulate_of(call), _rows_of(call)
    has_rows = isinstance(rows, tirx.IntImm) and rows.value >= _MIN_ROWS_TO_PACK_FLOATS
    if packed:
        return chosen
    if has_rows or chosen.accumulator != "float32":
        return chosen.with_copies(weight=True)
    return replace(chosen, dot_product=None)


def multiply_in_panels(bb: relax.BlockBuilder, call: relax.Call, rows: relax.Expr) -> relax.SeqExpr:
    """Lower ``lhs @ rows.T``, and transpose `rows` tile by tile within the kernel.

    Parameters
    ----------
    bb : relax.BlockBuilder
        Receives the kernel.
    call : relax.Call
        The matrix product to replace, for which :func:`suits_panels` is true.
    rows : relax.Expr
        The second operand, of static shape (N, K).

    Returns
    -------
    relax.SeqExpr
        A dataflow block and its result.
    """
    switches.note(FIX_ID)
    return in_block(bb, lambda emit: _lower_in_panels(bb, emit, call, rows, transposed=True))


def suits_panels(call: relax.Call) -> bool:
    """Whether the second operand of `call` can be packed in panels."""
    if not (switches.enabled(FIX_ID) and _applies(call)):
        return False
    shape, chosen = call.args[1].ty.shape.values, _multiply_accumulate(call, packed=True)
    is_static = all(isinstance(extent, tirx.IntImm) for extent in shape)
    if len(shape) != 2 or not is_static or _tile_of(call, packed=True).columns is None:
        return False
    return chosen.depth == 1 and str(call.args[1].ty.dtype) == chosen.accumulator


def _lower_in_panels(
    bb: relax.BlockBuilder,
    emit: Callable[[relax.Expr], relax.Var],
    call: relax.Call,
    rhs: relax.Expr,
    *,
    transposed: bool = False,
) -> relax.Expr:
    lhs = call.args[0]
    *lhs_rows, depth = lhs.ty.shape.values
    lhs = reshape_to(emit, lhs, [count_of(lhs_rows), depth])
    tile = replace(_tile_of(call, packed=True), streams=1)
    product = Product(
        str(call.ty.dtype),
        _multiply_accumulate(call, packed=True),
        tile,
        None,
        panels=True,
        transposed=transposed,
    )
    func, args, out_types = _call_of(product, lhs, rhs)
    out = relax.call_tir(bb.add_func(func, "matmul"), args, out_types)
    return reshape_to(emit, emit(out), list(call.ty.shape.values))


def _tile_of(call: relax.Call, *, packed: bool) -> Tile:
    lhs, rhs = (list(arg.ty.shape.values) for arg in call.args)
    rows, columns = _rows_of(call), rhs[-1] if len(rhs) > 1 else tirx.const(1, "int64")
    multiply_accumulate = _multiply_accumulate(call, packed=packed)
    cpu = multiply_accumulate.vectors_of(Cpu.of(target_of(call)))
    is_packed = packed or multiply_accumulate.depth > 1
    dtype, of_rhs = multiply_accumulate.accumulator, str(call.args[1].ty.dtype)
    is_narrow = tvm.DataType(of_rhs).bits < tvm.DataType(dtype).bits
    widens = is_narrow and multiply_accumulate.dot_product is None
    tile = choose_tile(cpu, dtype, rows, columns, packed=is_packed, widens=widens)
    if not packed:
        return tile
    if dtype == "float32" and isinstance(rows, tirx.IntImm):
        tile = in_streams(tile, cpu, columns)
    chunk = depth_chunk(tile, rows, columns, lhs[-1], multiply_accumulate.depth)
    return replace(tile, depth=chunk)


def _lower(
    bb: relax.BlockBuilder,
    emit: Callable[[relax.Expr], relax.Var],
    call: relax.Call,
    packed: relax.Expr | None = None,
) -> relax.Expr:
    lhs, rhs = call.args
    *lhs_rows, depth = lhs.ty.shape.values
    # 1. Vectors become matrices; rows that share one matrix become the rows of one product.
    if len(rhs.ty.shape.values) == 1:
        rhs = reshape_to(emit, rhs, [depth, tirx.const(1, "int64")])
    if len(rhs.ty.shape.values) == 2 or not lhs_rows:
        lhs = reshape_to(emit, lhs, [count_of(lhs_rows), depth])
    multiply_accumulate = _multiply_accumulate(call, packed=packed is not None)
    tile = _tile_of(call, packed=packed is not None)
    columns = None if packed is None else rhs.ty.shape.values[-1]
    lhs = pad_to_multiple(emit, lhs, -1, multiply_accumulate.depth)
    rhs = pad_to_multiple(emit, rhs, -2, multiply_accumulate.depth) if packed is None else packed
    product = Product(str(call.ty.dtype), multiply_accumulate, tile, columns)
    func, args, out_types = _call_of(product, lhs, rhs)
    out = relax.call_tir(bb.add_func(func, "matmul"), args, out_types)
    return reshape_to(emit, emit(out), list(call.ty.shape.values))


def _call_of(
    product: Product, lhs: relax.Expr, rhs: relax.Expr
) -> tuple[tirx.PrimFunc, relax.Expr, list[relax.TensorType]]:
    """The scheduled kernel of a product, and the arguments and the types of a call to it."""
    shapes = [values_of(expr.ty.shape.values) for expr in (lhs, rhs)]
    columns = [] if product.packed_columns is None else [product.packed_columns]
    key = values_of(columns)
    if None not in shapes and key is not None:
        func, shape = _static_kernel(
            replace(product, packed_columns=None),
            key,
            *((shape, str(expr.ty.dtype)) for shape, expr in zip(shapes, (lhs, rhs), strict=True)),
        )
        out_type = relax.TensorType(shape, product.out_dtype, lhs.ty.vdevice)
        return func, relax.Tuple([lhs, rhs]), [out_type]
    func, args, out_types = gen_call_tir_inputs(product.compute, lhs, rhs)
    # A bound of the columns would make extents of vectors symbolic: compute for any number of them.
    if product.packed_columns is None and (free := with_free_columns(rhs)) is not rhs:
        func, args, _ = gen_call_tir_inputs(product.compute, lhs, free)
        args = [rhs if arg.same_as(free) else arg for arg in args]
    return _scheduled(func, product), args, out_types


@functools.lru_cache(maxsize=_MAX_KERNELS)
def _static_kernel(
    product: Product,
    packed_columns: tuple[int, ...],
    *operands: tuple[tuple[int, ...], str],
) -> tuple[tirx.PrimFunc, list[tirx.Expr]]:
    """The kernel of a product of static shapes, and its shape, cached: models repeat products."""
    if packed_columns:
        product = replace(product, packed_columns=tirx.const(*packed_columns, "int64"))
    lhs, rhs = (
        relax.Var(name, relax.TensorType(*operand))
        for name, operand in zip(("lhs", "rhs"), operands, strict=True)
    )
    func, _, [out_type] = gen_call_tir_inputs(product.compute, lhs, rhs)
    return _scheduled(func, product), list(out_type.shape.values)


def _scheduled(func: tirx.PrimFunc, product: Product) -> tirx.PrimFunc:
    dot_product = product.multiply_accumulate.dot_product
    return schedule(func, product.tile, dot_product, panels=product.panels)


def _applies(call: relax.Call) -> bool:
    """Whether `call` has a schedule and is for a CPU, and its extents provably agree."""
    if not all(isinstance(expr.ty.shape, relax.ShapeExpr) for expr in (*call.args, call)):
        return False
    lhs, rhs = (list(arg.ty.shape.values) for arg in call.args)
    depths = lhs[-1], rhs[-2] if len(rhs) > 1 else rhs[0]
    data, weight, out = (str(expr.ty.dtype) for expr in (*call.args, call))
    is_float = all(map(_is_float, (data, out))) and (_is_float(weight) or "int" in weight)
    has_dot_product = multiply_accumulate_of(call).depth > 1
    if not is_float and not (has_dot_product and isinstance(depths[0], tirx.IntImm)):
        return False
    analyzer = Analyzer()
    return (
        schedules_for_cpu(call)
        and analyzer.can_prove_equal(*depths)
        and not analyzer.can_prove_equal(depths[0], 0)
        and broadcast_extents(lhs[:-2], rhs[:-2]) is not None
    )


def _is_float(dtype: str) -> bool:
    return "float" in dtype and "float8" not in dtype


def pad_to_multiple(
    emit: Callable[[relax.Expr], relax.Var], tensor: relax.Expr, axis: int, multiple: int
) -> relax.Expr:
    """Append zeros along a static axis to a `multiple` of elements."""
    if multiple == 1 or (width := -int(tensor.ty.shape.values[axis]) % multiple) == 0:
        return tensor
    widths = [0] * (2 * tensor.ty.ndim)
    widths[2 * axis + 1] = width
    return emit(relax.op.nn.pad(tensor, widths))


def with_free_columns(matrix: relax.Expr) -> relax.Expr:
    """The operand, with a symbol for columns such as ``min(n, 2)``.

    From their bound, TVM computes extents of vectorized loops that are not constant.
    """
    *rows, columns = matrix.ty.shape.values
    bound = Analyzer().const_int_bound(columns).max_value
    if isinstance(columns, tirx.IntImm) or bound == ConstIntBound.POS_INF:
        return matrix
    return relax.Var(
        "rhs", relax.TensorType([*rows, tirx.Var("columns", "int64")], matrix.ty.dtype)
    )


def reshape_to(
    emit: Callable[[relax.Expr], relax.Var], tensor: relax.Expr, shape: list[tirx.Expr]
) -> relax.Expr:
    if tvm_ffi.structural_equal(tensor.ty.shape, relax.ShapeExpr(shape)):
        return tensor
    return emit(relax.op.reshape(tensor, shape))
