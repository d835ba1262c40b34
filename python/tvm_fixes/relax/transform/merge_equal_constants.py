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
"""MergeEqualConstants: one tensor for constants of the same bytes."""

import tvm
from tvm import relax

from ...support.tensors import raw_bytes
from ..constants.provenance import have_equal_bytes, key_of
from ..ir import map_leaves, tensor_of
from .fold_constant import changed_calls, rebind

_MIN_BYTES = 4096
"""Smaller constants are not worth the search."""


def MergeEqualConstants() -> tvm.transform.Pass:
    """Replace each large constant that equals an earlier one by that one.

    Before, for a layer that a model runs twice, whose weight ``w`` is packed at each use::

        y = R.call_tir(cls.matmul, (x, w_packed), …)
        z = R.call_tir(cls.matmul, (y, w_packed_again), …)

    and after::

        y = R.call_tir(cls.matmul, (x, w_packed), …)
        z = R.call_tir(cls.matmul, (y, w_packed), …)

    Returns
    -------
    tvm.transform.Pass
        A module pass over the operands of calls.  Run it after all constant folding.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        merged = _Merged()
        builder = relax.BlockBuilder(mod)

        def change(call: relax.Call) -> relax.Expr | None:
            new = map_leaves(call, merged.of)
            return None if new.same_as(call) else builder.normalize(new)

        changed = changed_calls(mod, change)
        return rebind(mod, changed) if changed else mod

    return tvm.transform.module_pass(run, opt_level=0, name="MergeEqualConstants")


class _Merged:
    """The first of the constants with the same type and bytes."""

    def __init__(self) -> None:
        self._known: dict[object, list[relax.Expr]] = {}

    def of(self, leaf: relax.Expr) -> relax.Expr:
        """The constant that replaces `leaf`, or `leaf`."""
        tensor = tensor_of(leaf)
        if tensor is None:
            return leaf
        data = raw_bytes(tensor)
        if data.size < _MIN_BYTES:
            return leaf
        key = (tuple(tensor.shape), str(tensor.dtype), key_of(data))
        for first in self._known.setdefault(key, []):
            if have_equal_bytes(raw_bytes(tensor_of(first)), data):
                return first
        self._known[key].append(leaf)
        return leaf
