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
"""FoldLayoutTransform: transform the layouts of constants without compiling a kernel."""

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax, tirx

from ...fixes.weights import FOLD_CONSTANT as FIX_ID
from ..constants.fold_plan import FoldPlan, Value
from ..constants.growth import MAX_GROWTH
from ..constants.make import rearranged
from ..guard import fix_pass
from ..ir import tensor_of
from .fold_constant import insert_constants

_OPERATOR = "relax.layout_transform"


def FoldLayoutTransform(max_growth: float = MAX_GROWTH) -> tvm.transform.Pass:
    """Fold the layout transforms of constants by rearranging their elements with NumPy.

    :func:`FoldConstant` folds them too, but compiles a kernel for each: two seconds for a vocoder.
    Before::

        packed = R.layout_transform(w, lambda o, i, h: (o // 16, i, h, o % 16))   # w: a constant
        y = R.nn.conv1d(x, packed, …)

    and after::

        y = R.nn.conv1d(x, w_packed, …)

    Parameters
    ----------
    max_growth : float
        As for :func:`FoldConstant`.

    Returns
    -------
    tvm.transform.Pass
        A module pass.  It skips transforms that pad or merge axes.
    """

    def rewrite(mod: tvm.IRModule) -> tvm.IRModule | None:
        plan = FoldPlan(mod, max_growth)
        constants = {value: _rearranged(value) for value in plan.folded}
        rearranged = {
            value: constant for value, constant in constants.items() if constant is not None
        }
        if not rearranged:
            return None
        return relax.transform.CanonicalizeBindings()(insert_constants(plan, rearranged, mod))

    return fix_pass("FoldLayoutTransform", FIX_ID, rewrite)


def _rearranged(value: Value) -> tvm.ir.GenericConst | None:
    """The constant for a value that is the layout transform of a constant; None for others."""
    call = value.binding.value
    if value.operator != _OPERATOR or tensor_of(call.args[0]) is None:
        return None
    constant = call.args[0]
    arrange = _arrangement(call.attrs.index_map, [int(extent) for extent in constant.ty.shape])
    if arrange is None or call.attrs.pad_value is not None:
        return None
    return rearranged(constant, arrange, value.made_by)


def _arrangement(
    index_map: tirx.IndexMap, shape: Sequence[int]
) -> Callable[[np.ndarray], np.ndarray] | None:
    """A function that brings an array into the layout of an index map.

    For ``(o, i, h) -> (o // 16, i, h, o % 16)`` it splits the axis ``o`` and permutes the parts.
    None if the map does more than split and permute axes.
    """
    axes = {var: axis for axis, var in enumerate(index_map.initial_indices)}
    blocks = dict.fromkeys(range(len(shape)), 1)
    # For each final axis, the initial axis, and whether it is the position within a block.
    parts: list[tuple[int, bool]] = []
    for index in index_map.final_indices:
        whole, block, is_within = index, 1, isinstance(index, tirx.FloorMod)
        if isinstance(index, tirx.FloorDiv | tirx.FloorMod) and isinstance(index.b, tirx.IntImm):
            whole, block = index.a, index.b.value
        axis = axes.get(whole) if isinstance(whole, tirx.Var) else None
        if axis is None or block < 1 or shape[axis] % block or blocks[axis] not in (1, block):
            return None
        blocks[axis] = block
        parts.append((axis, is_within))
    split = [
        (axis, is_within)
        for axis, block in blocks.items()
        for is_within in ([False, True] if block > 1 else [False])
    ]
    if sorted(parts) != split:
        return None
    extents = [
        blocks[axis] if is_within else shape[axis] // blocks[axis] for axis, is_within in split
    ]
    order = [split.index(part) for part in parts]
    return lambda array: array.reshape(extents).transpose(order)
