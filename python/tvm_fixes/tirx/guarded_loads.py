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
"""Clamps the indices of conditional loads in reductions to their tensors."""

from collections.abc import Sequence

import tvm
from tvm import tirx
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm_ffi import structural_map

from .util import is_if_then_else, with_parts


def clamp_guarded_loads(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Clamp the indices of the loads that a condition guards in a reduction.

    Before, in a block whose `k` is reduced::

        total[i] = total[i] + T.if_then_else(0 <= i - k, x[i - k], 0)

    and after::

        total[i] = total[i] + T.if_then_else(0 <= i - k, x[T.max(i - k, 0)], 0)

    A schedule may first copy the elements of `x` to faster memory, without the condition.
    """
    return structural_map(function, (SBlock, _clamped))


def _clamped(block: SBlock) -> SBlock:
    if all(each.iter_type != tirx.IterVar.CommReduce for each in block.iter_vars):
        return block
    analyzer = Analyzer()
    for each in block.iter_vars:
        analyzer.bind(each.var, each.dom)
    guarded: set[tirx.Var] = set()

    def load_within(load: tvm.ir.TensorLoad) -> tvm.ir.TensorLoad:
        guarded.add(load.source)
        return tirx.BufferLoad(load.source, _within(load.indices, load.source.shape, analyzer))

    def guard(call: tvm.ir.Call) -> tvm.ir.Call:
        if not is_if_then_else(call):
            return call
        condition, *values = call.args
        inside = (structural_map(value, (tvm.ir.TensorLoad, load_within)) for value in values)
        return tirx.if_then_else(condition, *inside)

    body = structural_map(block.body, (tvm.ir.Call, guard))

    def region_within(region: tvm.ir.TensorRegion) -> tvm.ir.TensorRegion:
        if region.source not in guarded:
            return region
        first = _within([each.min for each in region.region], region.source.shape, analyzer)
        ranges = [
            tvm.ir.Range.from_min_extent(begin, each.extent)
            for begin, each in zip(first, region.region, strict=True)
        ]
        return tirx.BufferRegion(region.source, ranges)

    return with_parts(block, body=body, reads=[*map(region_within, block.reads)])


def _within(
    indices: Sequence[tirx.Expr], shape: Sequence[tirx.Expr], analyzer: Analyzer
) -> list[tirx.Expr]:
    """The indices, clamped to `shape` unless they are provably within it."""
    clamped = []
    for index, extent in zip(indices, shape, strict=True):
        if not analyzer.can_prove(index < extent):
            index = tirx.min(index, extent.astype(index.ty) - 1)
        if not analyzer.can_prove(index >= 0):
            index = tirx.max(index, tirx.const(0, index.ty))
        clamped.append(index)
    return clamped
