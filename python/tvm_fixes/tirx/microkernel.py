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
"""Microkernels: what convolutions and matrix products do with a pair of elements.

Convolutions and matrix products decide which elements meet, in which order, and where the sums
are.  The dtype of the sums, and how a pair of elements becomes part of a sum, is the microkernel's.

An instruction for narrow dtypes is one more function in :data:`_MICROKERNELS`, which answers for
the dtypes and the CPUs that have it (:attr:`.Cpu.has_vnni` and others).  One that adds several
products to an accumulator at once also needs as many elements of the summed axis side by side in
both operands: their number is then a field of :class:`Microkernel`, and those who lay out the
operands read it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from ..target.cpu import Cpu


@dataclass(frozen=True)
class Microkernel:
    """How a sum of products is computed.

    Attributes
    ----------
    accumulator : str
        The dtype of the sums, to which both operands are widened.
    """

    accumulator: str

    def product(self, data: tirx.Expr, weight: tirx.Expr) -> tirx.Expr:
        """What a pair of elements adds to a sum."""
        return data.astype(self.accumulator) * weight.astype(self.accumulator)


def accumulator_dtype(data: str, weight: str, out: str) -> str:
    """The dtype to sum in: `out` for integers, at least float32 for floating point."""
    if not any("float" in dtype for dtype in (data, weight, out)):
        return out
    return "float64" if "float64" in (data, weight, out) else "float32"


def _widening(data: str, weight: str, out: str, _cpu: Cpu | None) -> Microkernel:
    """One multiplication and one addition for each pair, of any dtypes, on any target."""
    return Microkernel(accumulator_dtype(data, weight, out))


# The best ones first.
_MICROKERNELS: tuple[Callable[[str, str, str, Cpu | None], Microkernel | None], ...] = (_widening,)


def choose_microkernel(data: str, weight: str, out: str, cpu: Cpu | None) -> Microkernel:
    """The microkernel for operands and a result of these dtypes.

    Parameters
    ----------
    data, weight, out : str
        The dtypes.
    cpu : Cpu, optional
        None where the target is unknown, or no CPU.

    Returns
    -------
    Microkernel
    """
    found = (choose(data, weight, out, cpu) for choose in _MICROKERNELS)
    return next(kernel for kernel in found if kernel is not None)
