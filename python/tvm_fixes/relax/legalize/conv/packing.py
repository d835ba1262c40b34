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
"""Packing of the kernel of a convolution at run time, if it is an input."""

import re

import tvm
from tvm import relax, s_tir, te, tirx
from tvm.relax.utils import gen_call_tir_inputs

from ....tirx.parallel import parallelize
from ....tirx.util import divides, values_of
from ...layouts import Layout, to_layout


def packed(
    bb: relax.BlockBuilder, kernel: relax.Expr, present: Layout, wanted: Layout
) -> relax.Expr:
    """The kernel in the layout `wanted`; a no-op if it has that layout.

    A vector of `wanted` gathers elements of as many rows of memory.  A kernel of several taps that
    is not constant is read along these rows, each cache line once; :func:`.to_layout` does that for
    other kernels.
    """
    axes = "".join(letter for letter in present.plain if letter not in "OI")
    block = re.fullmatch(rf"O{axes}I(\d+)o", wanted.name)
    shape = list(kernel.ty.shape.values)
    extents = values_of(shape)
    is_plain = present.name == f"OI{axes}"
    if block is None or not is_plain or extents is None or isinstance(kernel, tvm.ir.GenericConst):
        return to_layout(bb, kernel, present, wanted)
    size = int(block[1])
    if max(extents[2:]) == 1 or min(extents) == 0 or not divides(size, shape[0]):
        return to_layout(bb, kernel, present, wanted)

    def compute(kernel: te.Tensor) -> te.Tensor:
        def element(tile: tirx.Var, *position: tirx.Var) -> tirx.Expr:
            *taps, channel, lane = position
            return kernel(tile * size + lane, channel, *taps)

        return te.compute(wanted.shape(present.extents(shape)), element, name="in_vectors")

    func, args, out_type = gen_call_tir_inputs(compute, kernel)
    sch = s_tir.Schedule(func)
    tile, *taps, channel, lane = sch.get_loops(sch.get_sblock("in_vectors"))
    sch.reorder(tile, channel, *taps, lane)
    parallelize(sch, [tile])
    sch.vectorize(lane)
    return bb.emit(relax.call_tir(bb.add_func(sch.mod["main"], "in_vectors"), args, out_type))
