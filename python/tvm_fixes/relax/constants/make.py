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
"""Creation of constants from other constants at compile time: their memory and provenance."""

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax

from ...support import ambient
from ...support.tensors import array_of


def few_at_a_time() -> bool:
    """Whether constants are stored in a scratch file, and should be made a few at a time."""
    return ambient.current().scratch is not None


def empty_constant(shape: Sequence[int], dtype: str) -> tvm.runtime.Tensor:
    """An uninitialized tensor for a constant, in memory or in the scratch file."""
    scratch = ambient.current().scratch
    return (tvm.runtime.empty if scratch is None else scratch.empty)(list(shape), dtype)


def made_constant(
    tensor: tvm.runtime.Tensor, operands: Sequence[tvm.runtime.Tensor], made_by: str
) -> tvm.ir.GenericConst:
    """Make a constant of a tensor that was computed from others, and record its provenance.

    Parameters
    ----------
    tensor : Tensor
        The value, from :func:`empty_constant`.
    operands : sequence of Tensor
        The tensors that it was computed from.
    made_by : str
        The operator and its location.
    """
    note = ambient.current().note_constant
    if note is not None:
        note(tensor, operands, made_by)
    return relax.const(tensor)


def rearranged(
    original: tvm.ir.GenericConst, arrange: Callable[[np.ndarray], np.ndarray], made_by: str
) -> tvm.ir.GenericConst:
    """Make a constant with the elements of another one, reordered, padded or converted.

    Parameters
    ----------
    original : GenericConst
        A constant tensor.
    arrange : callable
        Returns the new array for the array of `original`, preferably as a view.  It must not
        change its argument.
    made_by : str
        The operator that needs it.
    """
    array = arrange(array_of(original.value))

    def fill(tensor: np.ndarray, _: np.ndarray) -> None:
        tensor[...] = array

    return filled(original, array.shape, fill, made_by, array.dtype.name)


def filled(
    original: tvm.ir.GenericConst,
    shape: Sequence[int],
    fill: Callable[[np.ndarray, np.ndarray], None],
    made_by: str,
    dtype: str | None = None,
) -> tvm.ir.GenericConst:
    """Make a constant of a given shape from the elements of another one.

    Parameters
    ----------
    original : GenericConst
        A constant tensor.
    shape : sequence of int
    fill : callable
        Called with the new, uninitialized array and the array of `original`; fills the former.
    made_by : str
        The operator that needs it.
    dtype : str, optional
        By default, that of `original`.
    """
    tensor = empty_constant(shape, dtype or str(original.value.dtype))
    fill(array_of(tensor), array_of(original.value))
    return made_constant(tensor, [original.value], made_by)
