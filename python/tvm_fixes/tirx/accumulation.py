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
"""How convolutions and matrix products multiply a pair of elements and accumulate the product.

Their lowerings decide which elements to multiply, in which order, and where the sums are stored.
:class:`MultiplyAccumulate` decides the dtype of the sums, and how to multiply a pair.

To use an instruction for narrow dtypes, add a function to :data:`_CHOICES` that returns a
:class:`MultiplyAccumulate` if the CPU has the instruction (:attr:`.Cpu.has_vnni` and others) and
it accepts the dtypes, and None otherwise.  An instruction that adds N products to an accumulator at
once also needs both operands packed so that N elements of the reduction axis are contiguous.  Make
N a field of :class:`MultiplyAccumulate`, and use it where the operands are packed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx

from ..target.cpu import Cpu


@dataclass(frozen=True)
class MultiplyAccumulate:
    """A way to compute sums of products.

    Attributes
    ----------
    accumulator : str
        The dtype of the sums; both operands are widened to it.
    """

    accumulator: str

    def product(self, data: tirx.Expr, weight: tirx.Expr) -> tirx.Expr:
        """The product of a pair of elements, in the dtype of the accumulator."""
        return data.astype(self.accumulator) * weight.astype(self.accumulator)


def accumulator_dtype(data: str, weight: str, out: str) -> str:
    """The dtype to sum in: `out` for integers, at least float32 for floating point."""
    if not any("float" in dtype for dtype in (data, weight, out)):
        return out
    return "float64" if "float64" in (data, weight, out) else "float32"


def _widening(data: str, weight: str, out: str, _cpu: Cpu | None) -> MultiplyAccumulate:
    """One multiplication and one addition per pair, for all dtypes and targets."""
    return MultiplyAccumulate(accumulator_dtype(data, weight, out))


# In order of preference.
_CHOICES: Sequence[Callable[[str, str, str, Cpu | None], MultiplyAccumulate | None]] = (_widening,)


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

    Returns
    -------
    MultiplyAccumulate
    """
    found = (choose(data, weight, out, cpu) for choose in _CHOICES)
    return next(chosen for chosen in found if chosen is not None)
