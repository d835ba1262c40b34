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
"""Tensors in memory-mapped files, which the system can drop from memory and read again."""

import ctypes
import mmap
import os
import tempfile
from collections.abc import Sequence

import numpy as np
import tvm

from ..errors import ArtifactError
from .tensors import ALIGNMENT, nbytes_of, raw_bytes

LARGE = 4096
"""The minimum size, in bytes, of a constant that is stored outside the library."""


class Scratch:
    """An unlinked temporary file that holds tensors during a compilation.

    It is in the directory for temporary files (``TMPDIR``).
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()
        self._end = 0

    def empty(self, shape: Sequence[int], dtype: str) -> tvm.runtime.Tensor:
        """An uninitialized tensor, in the file if it is large.

        Raises
        ------
        ArtifactError
            If the disk is full.
        """
        size = nbytes_of(shape, dtype)
        if size < LARGE:
            return tvm.runtime.empty(list(shape), dtype)
        begin = self._end
        self._end += -(-size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        try:
            # Otherwise, writing to the memory would raise SIGBUS if the disk is full.
            os.posix_fallocate(self._file.fileno(), begin, self._end - begin)
            mapped = mmap.mmap(self._file.fileno(), size, offset=begin)
        except OSError as error:
            raise ArtifactError(
                f"cannot write large tensors to {tempfile.gettempdir()}: {error.strerror}; set "
                "TMPDIR to another directory"
            ) from error
        return view_of(np.frombuffer(mapped, "uint8"), shape, dtype)

    def keep(self, tensor: tvm.runtime.Tensor) -> tvm.runtime.Tensor:
        """Copy a large tensor to the file; return a small one unchanged.

        Raises
        ------
        ArtifactError
            If the disk is full.
        """
        if raw_bytes(tensor).size < LARGE:
            return tensor
        give_back_memory()
        kept = self.empty(list(map(int, tensor.shape)), str(tensor.dtype))
        raw_bytes(kept)[:] = raw_bytes(tensor)
        return kept


def map_bytes(file: int, offset: int, size: int) -> np.ndarray:
    """Map a range of an open file to an array of uint8; writing to it does not change the file.

    Parameters
    ----------
    file : int
        A descriptor, which may be closed afterwards.
    offset, size : int
        The range, within the file; `size` is positive.
    """
    before = offset % mmap.ALLOCATIONGRANULARITY
    mapped = mmap.mmap(file, before + size, flags=mmap.MAP_PRIVATE, offset=offset - before)
    return np.frombuffer(mapped, "uint8", size, before)


def tensor_in(
    data: np.ndarray, shape: Sequence[int], dtype: str, scratch: Scratch | None = None
) -> tvm.runtime.Tensor:
    """A tensor of the bytes `data`: a view if they are aligned, else a copy.

    Parameters
    ----------
    data : numpy.ndarray
        The result of :func:`map_bytes`.
    shape : sequence of int
    dtype : str
        TVM's name of the dtype.
    scratch : Scratch, optional
        The file for a copy.
    """
    if data.ctypes.data % ALIGNMENT == 0:
        return view_of(data, shape, dtype)
    copy = (scratch.empty if scratch else tvm.runtime.empty)(list(shape), dtype)
    raw_bytes(copy)[:] = data
    return copy


def view_of(data: np.ndarray, shape: Sequence[int], dtype: str) -> tvm.runtime.Tensor:
    """A tensor that views an array of uint8."""
    return tvm.runtime.from_dlpack(data)._create_view(list(shape), dtype)


def give_back_memory() -> None:
    """Make the C library return freed memory to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
