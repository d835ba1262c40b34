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
"""Microkernels: how convolutions and matrix products multiply and accumulate a pair of elements.

Convolutions and matrix products decide which elements to multiply, in which order, and where the
sums are kept.  The microkernel decides the dtype of the sums, and how to add a pair to a sum.

To use an instruction for narrow dtypes, add a function to :data:`_MICROKERNELS` that returns a
microkernel for the dtypes and CPUs that have the instruction (:attr:`.Cpu.has_vnni` and others).
An instruction that adds several products to an accumulator at once also needs that many elements of
the summed axis side by side in both operands.  Make their number a field of :class:`Microkernel`,
and read it where the operands are laid out.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from ..target.cpu import Cpu


@dataclass(frozen=True)
class Microkernel:
    """A way to compute a sum of products.

    Attributes
    ----------
    accumulator : str
        The dtype of the sums, to which both operands are widened.
    """

    accumulator: str

    def product(self, data: tirx.Expr, weight: tirx.Expr) -> tirx.Expr:
        """The product that a pair of elements adds to a sum."""
        return data.astype(self.accumulator) * weight.astype(self.accumulator)


def accumulator_dtype(data: str, weight: str, out: str) -> str:
    """The dtype to sum in: `out` for integers, at least float32 for floating point."""
    if not any("float" in dtype for dtype in (data, weight, out)):
        return out
    return "float64" if "float64" in (data, weight, out) else "float32"


def _widening(data: str, weight: str, out: str, _cpu: Cpu | None) -> Microkernel:
    """One multiplication and one addition per pair: works for any dtypes on any target."""
    return Microkernel(accumulator_dtype(data, weight, out))


# In order of preference.
_MICROKERNELS: tuple[Callable[[str, str, str, Cpu | None], Microkernel | None], ...] = (_widening,)


def choose_microkernel(data: str, weight: str, out: str, cpu: Cpu | None) -> Microkernel:
    """The microkernel for operands and a result of these dtypes.

    Parameters
    ----------
    data, weight, out : str
        The dtypes.
    cpu : Cpu, optional
        None if the target is unknown or not a CPU.

    Returns
    -------
    Microkernel
    """
    found = (choose(data, weight, out, cpu) for choose in _MICROKERNELS)
    return next(kernel for kernel in found if kernel is not None)
