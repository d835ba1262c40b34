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

A register of B bytes holds ``lanes = B / 4`` sums of 32 bits.  An instruction adds ``depth``
products to each of them: it reads one register of ``lanes * depth`` weights, and 32 bits of data,
``depth`` elements, which are broadcast to all lanes.
"""

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import functools
from dataclasses import dataclass, replace
from typing import Self

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T

from .util import contains

# The name of the function that the kernels call for an instruction on bfloat16, without the lanes.
_FUNCTION = "tvm_fixes_bfloat16_pairs"


@dataclass(frozen=True)
class DotProduct:
    """An instruction for dot products of narrow dtypes.

    Attributes
    ----------
    data, weight : str
        The dtypes of the operands; ``uint16`` for the bits of bfloat16, whose buffers in a kernel
        TVM would widen.
    lanes : int
        The number of sums.
    depth : int
        The number of products that are added to each sum; the data of one sum has 32 bits.
    instruction : str
        LLVM's name.
    accumulates : bool
        Whether the instruction adds to sums, its first operand; otherwise a separate addition does.
    half : DotProduct, optional
        The same for half as many sums.
    sums : str
        The dtype of the sums: ``int32``, or ``float32`` for bfloat16.
    """

    data: str
    weight: str
    lanes: int
    depth: int
    instruction: str
    accumulates: bool = True
    half: Self | None = None
    sums: str = "int32"

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

    @classmethod
    def bfloat16_pairs(cls, lanes: int) -> Self:
        """VDPBF16PS of AVX-512 or BFDOT of aarch64: two products of bfloat16, in float32.

        Both flush subnormal numbers to zero.

        Parameters
        ----------
        lanes : int
            8 or 16 on x86, 4 on aarch64.
        """
        half = cls.bfloat16_pairs(8) if lanes == 16 else None
        on_x86 = f"x86.avx512bf16.dpbf16ps.{32 * lanes}"
        instruction = "aarch64.neon.bfdot.v4f32.v8bf16" if lanes == 4 else on_x86
        operands = "bfloat16", "bfloat16"
        return cls(*operands, lanes, 2, f"llvm.{instruction}", half=half, sums="float32")

    @property
    def name(self) -> str:
        """The name of the tensor intrinsic."""
        return f"tvm_fixes.{self.instruction}.{self.data}.{self.weight}"

    def reading(self, data: str, weight: str) -> Self:
        """The instruction for operands of other dtypes."""
        half = None if self.half is None else self.half.reading(data, weight)
        return replace(self, data=data, weight=weight, half=half)

    def widened(self, element: tirx.Expr) -> tirx.Expr:
        """An element of an operand in the dtype of the sums."""
        if self.sums == "float32" and str(element.ty) == "uint16":
            element = tirx.reinterpret("bfloat16", element)
        return element.astype(self.sums)

    def implementation(self) -> tirx.PrimFunc:
        """The instruction on the arguments of :func:`description_of`."""
        return (_of_integers if self.sums == "int32" else _of_bfloat16)(self)

    def added(self, sums: tirx.Expr, data: tirx.Expr, weights: tirx.Expr) -> tirx.Expr:
        """Add the products of integers to a vector of sums.

        Parameters
        ----------
        sums : tirx.Expr
            A vector of :attr:`lanes` sums.
        data : tirx.Expr
            The data of each sum, :attr:`depth` elements, as an int32.
        weights : tirx.Expr
            A vector of :attr:`lanes` times :attr:`depth` weights.
        """
        count = self.lanes * self.depth
        factors = tirx.reinterpret(f"{self.data}x{count}", tirx.Broadcast(data, self.lanes))
        if self.data == "int16":
            weights = weights.astype(f"int16x{count}")
        operands = [sums, factors, weights] if self.accumulates else [factors, weights]
        added = tirx.call_llvm_pure_intrin(f"int32x{self.lanes}", self.instruction, *operands)
        return added if self.accumulates else sums + added

    def tensorize(self, sch: s_tir.Schedule, sums: s_tir.schedule.LoopRV) -> None:
        """Replace the loops over `sums` and, inside it, over the depth by the instruction.

        Parameters
        ----------
        sch : s_tir.Schedule
        sums : LoopRV
            The second innermost loop, over a multiple of the :attr:`lanes` of this instruction or
            of its half.  The block inside updates sums, which are initialized elsewhere.
        """
        # A tile of an odd number of half vectors takes the instruction on half a register.
        dot = self
        if self.half is not None and int(sch.get(sums).extent) % self.lanes:
            dot = self.half
        vectors, lane = sch.split(sums, [None, dot.lanes])
        sch.unroll(vectors)
        sch.tensorize(lane, _intrinsic(dot))


def has_instruction(kernel: tirx.PrimFunc) -> bool:
    """Whether a kernel uses such an instruction, so that only CPUs with it can run the kernel."""

    def is_instruction(call: tvm.ir.Call) -> bool:
        name = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
        is_function = name == "tirx.call_pure_extern" and call.args[0].value.startswith(_FUNCTION)
        return name == "tirx.call_llvm_pure_intrin" or is_function

    return contains(kernel.body, tvm.ir.Call, is_instruction)


@functools.cache
def _intrinsic(dot: DotProduct) -> str:
    """Register a tensor intrinsic; return its name."""
    TensorIntrin.register(dot.name, description_of(dot), dot.implementation(), override=True)
    return dot.name


def description_of(dot: DotProduct) -> tirx.PrimFunc:
    """Return a PrimFunc with the loops that the instruction replaces."""
    lanes, depth = dot.lanes, dot.depth

    @T.prim_func(s_tir=True)
    def description(
        data: T.Buffer((depth,), dot.data, offset_factor=1),
        weight: T.Buffer((lanes, depth), dot.weight, offset_factor=1),
        out: T.Buffer((lanes,), dot.sums, offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(out[0:lanes], data[0:depth], weight[0:lanes, 0:depth])
            T.writes(out[0:lanes])
            for i, k in T.grid(lanes, depth):
                with T.sblock("update"):
                    lane, at = T.axis.remap("SR", [i, k])
                    out[lane] = out[lane] + dot.widened(data[at]) * dot.widened(weight[lane, at])

    return description


def _of_integers(dot: DotProduct) -> tirx.PrimFunc:
    lanes, depth, count = dot.lanes, dot.depth, dot.lanes * dot.depth

    def sums(data: tirx.Buffer, weight: tirx.Buffer, before: tirx.Expr) -> tirx.Expr:
        weights = weight.vload([0, 0], f"{dot.weight}x{count}")
        return dot.added(before, _bits(dot, data), weights)

    @T.prim_func(s_tir=True)
    def implementation(
        data: T.Buffer((depth,), dot.data, offset_factor=1),
        weight: T.Buffer((lanes, depth), dot.weight, offset_factor=1),
        out: T.Buffer((lanes,), "int32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(out[0:lanes], data[0:depth], weight[0:lanes, 0:depth])
            T.writes(out[0:lanes])
            out[T.ramp(T.int32(0), 1, lanes)] = sums(data, weight, out.vload([0], f"int32x{lanes}"))

    return implementation


def _of_bfloat16(dot: DotProduct) -> tirx.PrimFunc:
    """Call a function that takes the bits of bfloat16: TVM would widen operands of bfloat16."""
    lanes, depth = dot.lanes, dot.depth
    function = f"{_FUNCTION}_{lanes}"
    # The function takes the pairs as integers and casts them within LLVM.
    sums, bits, pairs = f"<{lanes} x float>", f"<{lanes} x i32>", f"<{2 * lanes} x bfloat>"
    text = f"""
declare {sums} @{dot.instruction}({sums}, {pairs}, {pairs})
define {sums} @{function}({sums} %sums, {bits} %data, {bits} %weight) {{
  %x = bitcast {bits} %data to {pairs}
  %w = bitcast {bits} %weight to {pairs}
  %new = call {sums} @{dot.instruction}({sums} %sums, {pairs} %x, {pairs} %w)
  ret {sums} %new
}}
"""

    @T.prim_func(s_tir=True)
    def implementation(
        data: T.Buffer((depth,), dot.data, offset_factor=1),
        weight: T.Buffer((lanes, depth), dot.weight, offset_factor=1),
        out: T.Buffer((lanes,), "float32", offset_factor=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(out[0:lanes], data[0:depth], weight[0:lanes, 0:depth])
            T.writes(out[0:lanes])
            with T.attr(T.int32(0), "pragma_import_llvm", text):
                out[T.ramp(T.int32(0), 1, lanes)] = T.call_pure_extern(
                    f"float32x{lanes}",
                    function,
                    out.vload([0], f"float32x{lanes}"),
                    _broadcast(dot, data),
                    T.reinterpret(
                        weight.vload([0, 0], f"{dot.weight}x{2 * lanes}"), dtype=f"int32x{lanes}"
                    ),
                )

    return implementation


def _bits(dot: DotProduct, data: tirx.Buffer) -> tirx.Expr:
    """The 32 bits of data."""
    return tirx.reinterpret("int32", data.vload([0], f"{dot.data}x{dot.depth}"))


def _broadcast(dot: DotProduct, data: tirx.Buffer) -> tirx.Expr:
    """The 32 bits of data, broadcast to all sums."""
    return tirx.Broadcast(_bits(dot, data), dot.lanes)
