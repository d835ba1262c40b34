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
"""Aligned memory for the small inputs of a call, which later calls use again.

To allocate aligned memory for an input and to convert it to a tensor takes 3 µs, as long as a small
model runs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm

from ..support.tensors import aligned_copy, is_plain_array, to_tvm

MAX_BYTES = 1 << 16
"""The size of the largest input that is kept; a larger one is copied to new memory."""


class InputBuffers:
    """The memory for the inputs of one call at a time, whose shapes and dtypes are the same.

    Parameters
    ----------
    values : sequence of numpy.ndarray
        Inputs of these shapes and dtypes.
    """

    def __init__(self, values: Sequence[Any]):
        kept = [_kept(value) for value in values]
        self._tensors: list[Any] = [one[1] if one else None for one in kept]
        self._copied = [(place, one[0]) for place, one in enumerate(kept) if one]
        self._new = [place for place, one in enumerate(kept) if not one]

    def filled(self, values: Sequence[Any]) -> list[tvm.runtime.Tensor]:
        """Copy NumPy arrays, and return them as tensors that are valid until the next call.

        Parameters
        ----------
        values : sequence of numpy.ndarray
            Arrays of any strides.
        """
        for place, memory in self._copied:
            memory[...] = values[place]
        if not self._new:
            return self._tensors
        tensors = list(self._tensors)
        for place in self._new:
            tensors[place] = to_tvm(values[place])
        return tensors


def _kept(value: Any) -> tuple[np.ndarray, tvm.runtime.Tensor] | None:
    """Memory for an input like `value`, and its tensor; None if it is not worth keeping."""
    array = np.asarray(value)
    if not 0 < array.nbytes <= MAX_BYTES or not is_plain_array(array):
        return None
    memory = aligned_copy(array)
    return memory, tvm.runtime.from_dlpack(memory)
