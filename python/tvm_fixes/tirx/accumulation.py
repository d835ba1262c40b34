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
"""How convolutions and matrix products multiply elements and accumulate the products.

Their lowerings decide which elements to multiply, in which order, and where the sums are stored.
:class:`MultiplyAccumulate` decides the dtypes of operands and sums, and how to multiply.

To use another instruction for narrow dtypes, add a function to :data:`_CHOICES` that returns a
:class:`MultiplyAccumulate` if the CPU has the instruction and it accepts the dtypes, and None
otherwise; and describe the instruction in :mod:`.dot_product`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from tvm import tirx

from ..target.cpu import Cpu
from .dot_product import DotProduct


@dataclass(frozen=True)
class MultiplyAccumulate:
    """A way to compute sums of products.

    Attributes
    ----------
    accumulator : str
        The dtype of the sums.
    dot_product : DotProduct, optional
        An instruction that adds several products to each sum of a vector.  The elements that it
        reads along the reduction axis must be adjacent in both operands.
    """

    accumulator: str
    dot_product: DotProduct | None = None

    @property
    def depth(self) -> int:
        """The number of products that are added to a sum at once."""
        return 1 if self.dot_product is None else self.dot_product.depth

    @property
    def data_dtype(self) -> str:
        """The dtype of a copy of the data."""
        return self.accumulator if self.dot_product is None else self.dot_product.data

    def vectors_of(self, cpu: Cpu) -> Cpu:
        """`cpu` with the vector width of the sums."""
        if self.dot_product is None:
            return cpu
        return replace(cpu, vector_bytes=4 * self.dot_product.lanes)

    def with_copies(self, *, data: bool = False, weight: bool = False) -> Self:
        """The same for kernels that copy an operand before they multiply: see :func:`copied`."""
        dot_product = self.dot_product
        if dot_product is None or dot_product.sums != "float32":
            return self
        of_data, of_weight = dot_product.data, dot_product.weight
        reading = dot_product.reading(
            "uint16" if data else of_data, "uint16" if weight else of_weight
        )
        return replace(self, dot_product=reading)

    def product(self, data: tirx.Expr, weight: tirx.Expr) -> tirx.Expr:
        """The product of a pair of elements, in the dtype of the accumulator."""
        if self.dot_product is not None:
            return self.dot_product.widened(data) * self.dot_product.widened(weight)
        return data.astype(self.accumulator) * weight.astype(self.accumulator)


def copied(value: tirx.Expr, dtype: str) -> tirx.Expr:
    """An operand's element converted to the `dtype` of a copy; ``uint16`` holds bfloat16 bits."""
    if str(value.ty) == "bfloat16" and dtype == "uint16":
        return tirx.reinterpret(dtype, value)
    return value.astype(dtype)


def accumulator_dtype(data: str, weight: str, out: str) -> str:
    """The dtype to sum in: `out` for integers, at least float32 for floating point."""
    if not any("float" in dtype for dtype in (data, weight, out)):
        return out
    return "float64" if "float64" in (data, weight, out) else "float32"


def bytes_instruction(cpu: Cpu | None) -> DotProduct | None:
    """The instruction that multiplies 8-bit data by signed 8-bit weights, if `cpu` has one."""
    if cpu is None:
        return None
    if cpu.has_vnni:
        return DotProduct.unsigned_bytes(lanes=cpu.vector_bytes // 4)
    return DotProduct.signed_bytes() if cpu.has_dotprod else None


def _pairs(data: str, weight: str, out: str, cpu: Cpu | None) -> MultiplyAccumulate | None:
    """Two products of 16-bit integers at once, on x86."""
    if cpu is None or not cpu.has_pmaddwd or (data, out) != ("int16", "int32"):
        return None
    if weight not in ("int8", "int16"):
        return None
    lanes = 16 if cpu.has_avx512bw else 8
    return MultiplyAccumulate("int32", DotProduct.pairs(weight, lanes, accumulates=cpu.has_vnni))


def _bytes(data: str, weight: str, out: str, cpu: Cpu | None) -> MultiplyAccumulate | None:
    """Four products of 8-bit integers at once, on x86 and aarch64."""
    dot_product = bytes_instruction(cpu)
    if dot_product is None or (data, weight, out) != (dot_product.data, "int8", "int32"):
        return None
    return MultiplyAccumulate("int32", dot_product)


def _bfloat16(data: str, weight: str, out: str, cpu: Cpu | None) -> MultiplyAccumulate | None:
    """Two products of bfloat16 at once, on x86 and aarch64."""
    if cpu is None or not cpu.has_bfloat16 or {data, weight} != {"bfloat16"}:
        return None
    if out not in ("bfloat16", "float32"):
        return None
    return MultiplyAccumulate("float32", DotProduct.bfloat16_pairs(cpu.vector_bytes // 4))


def _widening(data: str, weight: str, out: str, _cpu: Cpu | None) -> MultiplyAccumulate:
    """One multiplication and one addition per pair, for all dtypes and targets."""
    return MultiplyAccumulate(accumulator_dtype(data, weight, out))


# In order of preference.
_CHOICES: Sequence[Callable[[str, str, str, Cpu | None], MultiplyAccumulate | None]] = (
    _bytes,
    _pairs,
    _bfloat16,
    _widening,
)


def choose_multiply_accumulate(
    data: str, weight: str, out: str, cpu: Cpu | None
) -> MultiplyAccumulate:
    """How to multiply and accumulate operands of these dtypes.

    Parameters
    ----------
    data, weight, out : str
        The dtypes of the operands and of the result.
    cpu : Cpu, optional
        None if the target is unknown or not a CPU.
    """
    candidates = (choose(data, weight, out, cpu) for choose in _CHOICES)
    return next(chosen for chosen in candidates if chosen is not None)
