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

from tvm import s_tir, tirx
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
        The number of products that are added to each sum; their factors have 32 bits of data.
    instruction : str
        LLVM's name.
    accumulates : bool
        Whether the instruction adds to sums, its first operand; otherwise another one does.
    half : DotProduct, optional
        The same for half as many sums.
    """

    data: str
    weight: str
    lanes: int
    depth: int
    instruction: str
    accumulates: bool = True
    half: Self | None = None

    @classmethod
    def pairs(cls, weight: str, lanes: int, *, accumulates: bool) -> Self:
        """PMADDWD of AVX2 and AVX-512, or VPDPWSSD of VNNI: two products of 16-bit integers.

        The sum of two products wraps only if all four factors are -32768; it then has the same
        value modulo 2**32.

        Parameters
        ----------
        weight : str
            ``int8`` or ``int16``; 8-bit weights are widened in registers.
        lanes : int
            8, or 16 with AVX-512.
        accumulates : bool
            Whether the CPU has VPDPWSSD.
        """
        half = cls.pairs(weight, 8, accumulates=accumulates) if lanes == 16 else None
        if accumulates:
            instruction = f"llvm.x86.avx512.vpdpwssd.{32 * lanes}"
        else:
            instruction = f"llvm.x86.avx{'512.pmaddw.d.512' if half else '2.pmadd.wd'}"
        return cls("int16", weight, lanes, 2, instruction, accumulates, half)

    @classmethod
    def unsigned_bytes(cls, lanes: int) -> Self:
        """VPDPBUSD of VNNI: four products of unsigned data and signed weights, in int32."""
        half = cls.unsigned_bytes(8) if lanes == 16 else None
        instruction = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        return cls("uint8", "int8", lanes, 4, instruction, half=half)

    @classmethod
    def signed_bytes(cls) -> Self:
        """SDOT of aarch64: four products of signed data and weights, in int32."""
        return cls("int8", "int8", 4, 4, "llvm.aarch64.neon.sdot.v4i32.v16i8")

    @property
    def name(self) -> str:
        """The name of the tensor intrinsic."""
        return f"tvm_fixes.{self.instruction}.{self.weight}"

    def implementation(self) -> tirx.PrimFunc:
        """The instruction on the arguments of :func:`description_of`."""
        dot, lanes, depth = self, self.lanes, self.depth

        @T.prim_func(s_tir=True)
        def implementation(
            data: T.Buffer((depth,), dot.data, offset_factor=1),
            weight: T.Buffer((lanes, depth), dot.weight, offset_factor=1),
            out: T.Buffer((lanes,), "int32", offset_factor=1),
        ) -> None:
            with T.sblock("root"):
                T.reads(out[0:lanes], data[0:depth], weight[0:lanes, 0:depth])
                T.writes(out[0:lanes])
                out[T.ramp(T.int32(0), 1, lanes)] = _sums(dot, data, weight, out)

        return implementation

    def tensorize(self, sch: s_tir.Schedule, sums: s_tir.schedule.LoopRV) -> None:
        """Replace the loops over `sums` and, inside it, over the depth by the instruction.

        Parameters
        ----------
        sch : s_tir.Schedule
        sums : LoopRV
            The second innermost loop, over a multiple of the :attr:`lanes` of this instruction or
            of its half.  The block inside updates sums, which are initialized elsewhere.
        """
        dot = self
        if self.half is not None and int(sch.get(sums).extent) % self.lanes:
            dot = self.half
        vectors, lane = sch.split(sums, [None, dot.lanes])
        sch.unroll(vectors)
        sch.tensorize(lane, _intrinsic(dot))


@functools.cache
def _intrinsic(dot: DotProduct) -> str:
    """Register a tensor intrinsic; return its name."""
    TensorIntrin.register(dot.name, description_of(dot), dot.implementation(), override=True)
    return dot.name


def description_of(dot: DotProduct) -> tirx.PrimFunc:
    """What the instruction computes, in loops."""
    lanes, depth = dot.lanes, dot.depth

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

    return description


def _sums(dot: DotProduct, data: tirx.Buffer, weight: tirx.Buffer, out: tirx.Buffer) -> tirx.Expr:
    """The sums of a vector after the instruction."""
    count, sums = dot.lanes * dot.depth, f"int32x{dot.lanes}"
    shared = tirx.reinterpret("int32", data.vload([0], f"{dot.data}x{dot.depth}"))
    factors = tirx.reinterpret(f"{dot.data}x{count}", tirx.Broadcast(shared, dot.lanes))
    weights = weight.vload([0, 0], f"{dot.weight}x{count}")
    if dot.data == "int16":
        weights = weights.astype(f"int16x{count}")
    before = out.vload([0], sums)
    operands = [before, factors, weights] if dot.accumulates else [factors, weights]
    added = tirx.call_llvm_pure_intrin(sums, dot.instruction, *operands)
    return added if dot.accumulates else before + added
