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
"""Aligned memory for the small inputs and results of a call, which later calls use again.

To allocate aligned memory for an input and to convert it to a tensor takes 3 µs, as long as a small
model runs.  To convert a result to an array takes 0.8 µs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from ..support.tensors import ALIGNMENT, aligned_copy, is_plain_array, shared, to_tvm

MAX_BYTES = 1 << 13
"""The size of the largest input or result that is copied to such memory.

To copy a larger one takes longer than to share its memory.  A smaller result would hold a whole
page of TVM's pool.
"""


class InputBuffers:
    """The memory for the inputs of one call at a time, whose shapes and dtypes are the same.

    Parameters
    ----------
    values : sequence of numpy.ndarray
        Inputs of these shapes and dtypes.
    alignment : int
        The alignment that the model needs, in bytes.

    Attributes
    ----------
    results : ResultBuffers or None
        The memory for the results of the next call.
    is_complete : bool
        Whether nothing else can be kept.
    """

    def __init__(self, values: Sequence[Any], alignment: int = ALIGNMENT):
        self._alignment = alignment
        kept = [_kept(value) for value in values]
        self._tensors: list[Any] = [buffer[1] if buffer else None for buffer in kept]
        self._copied = [(place, buffer[0]) for place, buffer in enumerate(kept) if buffer]
        new = [place for place, buffer in enumerate(kept) if not buffer]
        self._empty = [place for place in new if not values[place].nbytes]
        self._new = [place for place in new if values[place].nbytes]
        self.results: ResultBuffers | None = None
        self.is_complete = bool(new)

    def filled(self, values: Sequence[Any]) -> list[tvm.runtime.Tensor]:
        """Convert NumPy arrays to tensors that are valid until the next call.

        Small ones are copied; a large one is too if it is not contiguous and aligned.

        Parameters
        ----------
        values : sequence of numpy.ndarray
            Arrays of any strides.
        """
        for place, memory in self._copied:
            memory[...] = values[place]
        if not self._new and not self._empty:
            return self._tensors
        tensors = list(self._tensors)
        for place in self._new:
            try:  # what `shared` does in the usual case, in half the time
                tensors[place] = tvm_ffi.from_dlpack(
                    values[place], require_alignment=self._alignment, require_contiguous=True
                )
            except (BufferError, RuntimeError):
                tensors[place] = shared(values[place], self._alignment)
        for place in self._empty:
            tensors[place] = to_tvm(values[place])
        return tensors

    def keep_results(
        self, outputs: Sequence[np.ndarray], function: Callable[..., Any], weights: Sequence[Any]
    ) -> None:
        """Provide memory for results like `outputs` if all are small, as the inputs are.

        Parameters
        ----------
        outputs : sequence of numpy.ndarray
            The results of a call.
        function : callable
            The function of the library.
        weights : sequence of tensor
            Its operands after the inputs.
        """
        self.is_complete = True
        kept = [_kept(output) for output in outputs]
        memory = [buffer for buffer in kept if buffer is not None]
        if len(memory) == len(kept):
            self.results = ResultBuffers(memory, function, [*self._tensors, *weights])


class ResultBuffers:
    """The memory for the results of one call at a time.

    Parameters
    ----------
    memory : sequence of (numpy.ndarray, tensor)
        The memory of each result.
    function : callable
        The function of the library.
    arguments : sequence of tensor
        Its operands.

    Attributes
    ----------
    operands : tuple
        The operands of the native function ``CallInto``.
    """

    def __init__(
        self,
        memory: Sequence[tuple[np.ndarray, tvm.runtime.Tensor]],
        function: Callable[..., Any],
        arguments: Sequence[Any],
    ):
        self._arrays = [array for array, _ in memory]
        tensors = tvm_ffi.convert([tensor for _, tensor in memory])
        self.operands = (function, tvm_ffi.convert(list(arguments)), tensors)

    def copies(self) -> list[np.ndarray]:
        """Copies of the results, in new memory."""
        return [array.copy() for array in self._arrays]


def _kept(value: Any) -> tuple[np.ndarray, tvm.runtime.Tensor] | None:
    """Memory for a value like `value`, and its tensor; None if it is not worth keeping."""
    array = np.asarray(value)
    if not 0 < array.nbytes <= MAX_BYTES or not is_plain_array(array):
        return None
    memory = aligned_copy(array)
    return memory, tvm.runtime.from_dlpack(memory)
