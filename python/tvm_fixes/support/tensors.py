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
"""Arrays of NumPy, PyTorch and TVM, from one to the other."""

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
import tvm_ffi

if TYPE_CHECKING:
    import torch

ALIGNMENT = 64
"""What TVM's kernels may assume of the address of a tensor."""


def is_torch(value: object) -> bool:
    """Whether `value` is a PyTorch tensor; PyTorch is not loaded to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def dtype_of(value: Any) -> str:
    """The dtype of a NumPy or PyTorch array by TVM's name, such as ``"bfloat16"``."""
    return str(value.dtype).removeprefix("torch.") if is_torch(value) else value.dtype.name


def to_tvm(value: Any) -> tvm.runtime.Tensor:
    """Turn a NumPy array or a PyTorch tensor on the CPU, strided as it may be, into TVM's.

    A contiguous, aligned PyTorch tensor lends its memory; everything else is copied.
    """
    if is_torch(value) and not value.numel():
        # PyTorch's strides of no elements are not those that a kernel asks for.
        return tvm.runtime.empty(tuple(value.shape), dtype_of(value))
    if is_torch(value):
        tensor = value.detach().resolve_conj().resolve_neg().contiguous()
        if tensor.data_ptr() % ALIGNMENT:
            tensor = tensor.clone()
        return tvm.runtime.from_dlpack(tensor)
    array = np.asarray(value)
    # Not np.ascontiguousarray, which makes a scalar an array of one.
    return tvm.runtime.tensor(np.asarray(array, array.dtype.newbyteorder("="), order="C"))


def to_device(tensor: tvm.runtime.Tensor, device: tvm.runtime.Device) -> tvm.runtime.Tensor:
    """`tensor` if it is on `device`, else a copy of it there."""
    return tensor if tensor.device == device else tensor.copyto(device)


def from_tvm(value: Any, *, as_torch: bool) -> "np.ndarray | torch.Tensor":
    """Copy what the virtual machine returned, a tensor or a shape, into an array of the caller's.

    A copy, for it may be a constant of the library or an input of the call.
    """
    if isinstance(value, tvm.runtime.ShapeTuple):
        array = np.array([int(dim) for dim in value], "int64")
        return to_torch(array) if as_torch else array
    if as_torch:
        import torch

        return torch.from_dlpack(to_device(value, tvm.cpu())).clone()
    return value.numpy()


def nbytes_of(shape: Sequence[int], dtype: str) -> int:
    """The size in memory of a tensor of `shape` and TVM's `dtype`, in whole bytes.

    Elements of fewer than 8 bits lie side by side.
    """
    kind = tvm_ffi.dtype(dtype)
    return (math.prod(map(int, shape)) * kind.bits * kind.lanes + 7) // 8


def raw_bytes(tensor: tvm.runtime.Tensor) -> np.ndarray:
    """The memory of a contiguous tensor on the CPU, as an array of uint8 of one dimension."""
    size = nbytes_of(tensor.shape, str(tensor.dtype))
    return np.from_dlpack(tensor._create_view((size,), "uint8")) if size else np.empty(0, "uint8")


def duplicate(value: Any) -> Any:
    """Copy what the virtual machine passes to a callback, a tensor or a tuple: it uses the memory
    again when the callback has returned.
    """
    if isinstance(value, tvm.runtime.Tensor):
        return value.copyto(tvm.cpu())
    if isinstance(value, tvm.runtime.ShapeTuple):
        return tvm.runtime.ShapeTuple(list(map(int, value)))
    return list(map(duplicate, value))


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of TVM's `name`, bfloat16 and the float8 among them."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def array_of(tensor: tvm.runtime.Tensor) -> np.ndarray:
    """The memory of a contiguous tensor on the CPU as an array, whose elements are whole bytes."""
    array = raw_bytes(tensor).view(numpy_dtype(str(tensor.dtype)))
    return array.reshape(tuple(map(int, tensor.shape)))


def to_torch(array: np.ndarray) -> "torch.Tensor":
    """Copy a NumPy array, bfloat16 among them, into a PyTorch tensor."""
    return from_tvm(to_tvm(array), as_torch=True)


def to_numpy(tensor: "torch.Tensor") -> np.ndarray:
    """Copy a PyTorch tensor, bfloat16 among them, into a NumPy array."""
    return to_tvm(tensor).numpy()
