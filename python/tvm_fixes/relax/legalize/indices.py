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
"""Bounds for the indices that a model computes; negative ones count from the end.

Trigger
    ``relax.take``, ``gather_elements``, ``gather_nd``, ``index_tensor``, ``index_put``,
    ``scatter_elements``, ``scatter_nd``, ``slice_scatter``, ``dynamic_strided_slice``,
    ``reverse_sequence``, ``nn.nll_loss``, the gradients of ``take`` and ``nll_loss``,
    ``vision.roi_align`` or ``vision.roi_pool`` with an index that is negative or beyond the extent;
    ``strided_slice`` with ``assume_inbound`` and bounds that are out of range; ``nn.pad`` that is
    wider than the axis it reflects or repeats; ``topk`` of more elements than there are; a scatter
    of fewer indices than elements on another axis; an ``index_put`` of rows; a ``slice_scatter``
    along a symbolic dim; ``cumsum`` or ``cumprod`` of no elements.
Mechanism
    The kernels address memory by unchecked indices, and operands by the extents of other operands;
    ``scatter_elements`` divides a position by the extents of the indices and multiplies it by those
    of the data.
How to remove
    When TVM passes the tests of this fix, delete this file, ``extents.py``, ``gather.py``,
    ``scatter.py``, ``slices.py``, ``roi.py``, ``nll_loss.py``, ``pad.py``, their tests, the
    passes ``CheckIndices`` and ``LowerScan``, and the fix id ``index-legalize``.

A negative index counts from the end.  On a CPU, the pass
:func:`~tvm_fixes.relax.transform.CheckIndices` raises an error for an index that is still out of
range.  Without the pass, and on a GPU, a kernel reads the nearest element, and drops a write.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.sym import Analyzer

from ...fixes.elements import INDEX_LEGALIZE as FIX_ID
from ...support import ambient, switches
from ...tirx.util import is_zero
from ..ir import operator_name


def takes_effect(*shaped: relax.Expr) -> bool:
    """Whether the fix is on and the shapes of all `shaped` operands are known."""
    if not switches.enabled(FIX_ID):
        return False
    return all(isinstance(getattr(e.ty, "shape", None), relax.ShapeExpr) for e in shaped)


def wrap_negative(index: tirx.Expr, extent: tirx.Expr) -> tirx.Expr:
    """Convert an index to int64; a negative one counts from the end."""
    value = index.astype("int64")
    if str(index.ty.dtype).startswith(("uint", "bool")):
        return value
    return value + (value < 0).astype("int64") * extent


def from_start(index: relax.Expr) -> relax.Expr:
    """`index`, with the mark that a negative one is out of range instead of from the end.

    The mark is two casts that change no value, since some operators take only int64.
    """
    if not str(index.ty.dtype).startswith("int"):
        return index
    return relax.op.astype(relax.op.astype(index, "uint64"), "int64")


def source_from_start(
    index: relax.Expr, bound_to: Callable[[relax.Var], relax.Expr | None]
) -> relax.Expr | None:
    """The operand of :func:`from_start` for its result; None for another value."""
    value: Any = index
    for dtype in ("int64", "uint64"):
        value = bound_to(value) if isinstance(value, relax.Var) else value
        if operator_name(value) != "relax.astype" or str(value.ty.dtype) != dtype:
            return None
        value = value.args[0]
    return value if str(value.ty.dtype).startswith("int") else None


def clamp_index(index: tirx.Expr, extent: tirx.Expr) -> tirx.Expr:
    """Clamp the index to the extent: the index of the nearest element."""
    if ambient.current().trusts_indices:
        return index
    return tirx.max(tirx.min(index, extent - 1), tirx.const(0, "int64"))


def wrap_and_clamp(index: tirx.Expr, extent: tirx.Expr) -> tirx.Expr:
    """The in-bounds position for an index of the model, which may count from the end."""
    return clamp_index(wrap_negative(index, extent), extent)


def is_within(index: tirx.Expr, extent: tirx.Expr) -> tirx.Expr:
    """Whether a wrapped index is in bounds."""
    if ambient.current().trusts_indices:
        return tirx.const(True, "bool")
    return tirx.all(index >= 0, index < extent)


def read(data: te.Tensor, position: Sequence[tirx.Expr], computed: Sequence[int]) -> tirx.Expr:
    """The element at `position`; zero if one of the `computed` axes has no elements."""
    nothing = tirx.const(0, str(data.dtype))
    extents = [data.shape[axis] for axis in computed]
    if any(map(is_zero, extents)):
        return nothing
    unknown = [extent > 0 for extent in extents if not isinstance(extent, tirx.IntImm)]
    if not unknown or ambient.current().trusts_indices:
        return data(*position)
    return tirx.if_then_else(tirx.all(*unknown), data(*position), nothing)


def is_at_most(extent: tirx.Expr, limit: tirx.Expr) -> bool:
    """Whether `extent` is provably at most `limit`."""
    return bool(Analyzer().can_prove(extent <= limit))


def broadcast(shapes: Sequence[Sequence[tirx.Expr]]) -> list[tirx.Expr]:
    """The broadcast shape; extents that are not known to be 1 are assumed to be equal."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[tirx.Expr] = [tirx.const(1, "int64")] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            is_known = isinstance(result[axis], tirx.IntImm) and result[axis].value != 1
            if not is_known and not (isinstance(extent, tirx.IntImm) and extent.value == 1):
                result[axis] = extent
    return result
