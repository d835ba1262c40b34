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
"""Constants that are made of others at compile time: what is told of them, and where they lie."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from ...support.memory import Scratch
from ...support.tensors import array_of

Note = Callable[[tvm.runtime.Tensor, Sequence[tvm.runtime.Tensor], str], None]
"""Is told of a tensor that was made: it, what it was made of, and by what."""


@dataclass(frozen=True)
class _Making:
    scratch: Scratch | None = None
    note: Note | None = None


_NOTHING = _Making()
_making: ContextVar[_Making] = ContextVar("tvm_fixes_making", default=_NOTHING)


@contextmanager
def making_constants(scratch: Scratch | None = None, note: Note | None = None) -> Iterator[None]:
    """Say what becomes of the constants that are made within the ``with`` block.

    Parameters
    ----------
    scratch : Scratch, optional
        Holds them.  They are made a few at a time then, and what they are made of is given up in
        between.
    note : callable, optional
        Is told of each.
    """
    token = _making.set(_Making(scratch, note))
    try:
        yield
    finally:
        _making.reset(token)


def few_at_a_time() -> bool:
    """Whether constants are kept elsewhere, so that few of them need be in memory at once."""
    return _making.get().scratch is not None


def empty_constant(shape: Sequence[int], dtype: str) -> tvm.runtime.Tensor:
    """A tensor to write a constant's elements to: memory, or the scratch file."""
    scratch = _making.get().scratch
    return (tvm.runtime.empty if scratch is None else scratch.empty)(list(shape), dtype)


def made_constant(
    tensor: tvm.runtime.Tensor, operands: Sequence[tvm.runtime.Tensor], made_by: str
) -> tvm.ir.GenericConst:
    """The constant of a tensor that was made of others.

    Parameters
    ----------
    tensor : Tensor
        Its value, of :func:`empty_constant`.
    operands : sequence of Tensor
        What it was made of.
    made_by : str
        The operator, and where it stands.
    """
    note = _making.get().note
    if note is not None:
        note(tensor, operands, made_by)
    return relax.const(tensor)


def rearranged(
    original: tvm.ir.GenericConst, arrange: Callable[[np.ndarray], np.ndarray], made_by: str
) -> tvm.ir.GenericConst:
    """A constant with the elements of another one in another order, or with more around them.

    Parameters
    ----------
    original : GenericConst
        Of a tensor.
    arrange : callable
        From the array of `original`, which it must not change, to another one, best a view of it.
    made_by : str
        The operator that wants it so.
    """
    array = arrange(array_of(original.value))

    def fill(tensor: np.ndarray, _: np.ndarray) -> None:
        tensor[...] = array

    return filled(original, array.shape, fill, made_by)


def filled(
    original: tvm.ir.GenericConst,
    shape: Sequence[int],
    fill: Callable[[np.ndarray, np.ndarray], None],
    made_by: str,
) -> tvm.ir.GenericConst:
    """A constant of another shape with the elements of another one.

    Parameters
    ----------
    original : GenericConst
        Of a tensor.
    shape : sequence of int
    fill : callable
        Writes to the new array, which has any elements before, from that of `original`.
    made_by : str
        The operator that wants it so.
    """
    tensor = empty_constant(shape, str(original.value.dtype))
    fill(array_of(tensor), array_of(original.value))
    return made_constant(tensor, [original.value], made_by)
