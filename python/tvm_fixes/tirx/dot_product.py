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
"""Instructions that add several products of narrow integers to each sum of a vector.

A schedule tensorizes the innermost loops of a product, over the sums of a vector and the elements
of a pair, with :meth:`DotProduct.tensorize`::

    for lane, k in T.grid(8, 2):
        sums[lane] += data[k] * weight[lane, k]
    ->
    sums[0:8] += pmaddwd(broadcast(data[0:2]), weight[0:8, 0:2])
"""

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import functools
from dataclasses import dataclass
from typing import Self

from tvm import s_tir
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T


@dataclass(frozen=True)
class DotProduct:
    """An instruction for dot products of integers.

    Attributes
    ----------
    data, weight : str
        The dtypes of the operands.
    lanes : int
        The number of sums, which are int32.
    depth : int
        The number of products that are added to each sum.
    instruction : str
        LLVM's name.
    """

    data: str
    weight: str
    lanes: int
    depth: int
    instruction: str

    @classmethod
    def pairs(cls, weight: str) -> Self:
        """PMADDWD of AVX2, which adds two products of 16-bit integers.

        The sum of two products wraps only if all four factors are -32768; it then has the same
        value modulo 2**32.

        Parameters
        ----------
        weight : str
            ``int8`` or ``int16``; 8-bit weights are widened in registers.
        """
        return cls("int16", weight, lanes=8, depth=2, instruction="llvm.x86.avx2.pmadd.wd")

    def tensorize(self, sch: s_tir.Schedule, sums: s_tir.schedule.LoopRV) -> None:
        """Replace the loops over `sums` and, inside it, over the depth by the instruction.

        Parameters
        ----------
        sch : s_tir.Schedule
        sums : LoopRV
            The second innermost loop, over a multiple of :attr:`lanes`.  The block inside updates
            sums, which are initialized elsewhere.
        """
        vectors, lane = sch.split(sums, [None, self.lanes])
        sch.unroll(vectors)
        sch.tensorize(lane, _intrinsic(self))


@functools.cache
def _intrinsic(dot: DotProduct) -> str:
    """Register a tensor intrinsic; return its name."""
    lanes, depth, instruction = dot.lanes, dot.depth, dot.instruction
    count = lanes * depth
    sums, weights, widened = f"int32x{lanes}", f"{dot.weight}x{count}", f"{dot.data}x{count}"

    @T.prim_func(s_tir=True)
    def description(
        data: T.Buffer((depth,), dot.data, offset_factor=1),
        weight: T.Buffer((lanes, depth), dot.weight, offset_factor=1),
        out: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(out[0:lanes], data[0:depth], weight[0:lanes, 0:depth])
            T.writes(out[0:lanes])
            for i, k in T.grid(lanes, depth):
                with T.sblock("update"):
                    lane, at = T.axis.remap("SR", [i, k])
                    out[lane] = out[lane] + T.cast(data[at], "int32") * T.cast(
                        weight[lane, at], "int32"
                    )

    @T.prim_func(s_tir=True)
    def implementation(
        data: T.Buffer((depth,), dot.data, offset_factor=1),
        weight: T.Buffer((lanes, depth), dot.weight, offset_factor=1),
        out: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(out[0:lanes], data[0:depth], weight[0:lanes, 0:depth])
            T.writes(out[0:lanes])
            pair = T.reinterpret(data.vload([0], f"{dot.data}x{depth}"), dtype="int32")
            out[T.ramp(T.int32(0), 1, lanes)] = out.vload(
                [0], dtype=sums
            ) + T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id(instruction),
                T.reinterpret(T.broadcast(pair, lanes), dtype=widened),
                T.cast(weight.vload([0, 0], dtype=weights), widened),
                dtype=sums,
            )

    name = f"tvm_fixes.{instruction}.{dot.weight}"
    TensorIntrin.register(name, description, implementation, override=True)
    return name
