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
"""Conversion between tensors of NumPy, PyTorch and TVM."""

import functools
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
import tvm_ffi

from ..errors import InputError

if TYPE_CHECKING:
    import torch

ALIGNMENT = 64
"""The alignment of TVM's own tensors, in bytes, which its kernels assume of all."""

MALLOC_ALIGNMENT = 16
"""The alignment of what ``malloc`` returns, such as the data of a NumPy array."""


def is_torch(value: object) -> bool:
    """Whether `value` is a PyTorch tensor; does not load PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def leaves_with_paths(
    value: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The leaves of an object as PyTorch flattens it, with the keys that lead to them.

    The parts of an object whose class is registered without keys are numbered.
    """
    torch = sys.modules.get("torch")
    if torch is None or is_torch(value):
        yield path, value
        return
    pytree = torch.utils._pytree

    def is_part(node: Any) -> bool:
        return node is not value

    keyed: Iterable[tuple[tuple[Any, ...], Any]]
    try:
        keyed = pytree.tree_flatten_with_path(value, is_leaf=is_part)[0]
    except ValueError:
        parts = pytree.tree_flatten(value, is_leaf=is_part)[0]
        keyed = (((place,), part) for place, part in enumerate(parts))
    for keys, part in keyed:
        if not keys:
            yield path, part
            continue
        [key] = (getattr(k, "key", getattr(k, "idx", getattr(k, "name", k))) for k in keys)
        yield from leaves_with_paths(part, (*path, key if isinstance(key, int) else str(key)))


def dtype_of(value: Any) -> str:
    """TVM's name of the dtype of a NumPy or PyTorch array, such as ``"bfloat16"``."""
    return _name_of(value.dtype)


@functools.cache
def _name_of(dtype: "np.dtype | torch.dtype") -> str:
    return dtype.name if isinstance(dtype, np.dtype) else str(dtype).removeprefix("torch.")


def to_tvm(value: Any, alignment: int = ALIGNMENT) -> tvm.runtime.Tensor:
    """Convert a NumPy array or a PyTorch tensor on the CPU, with any strides, to TVM's.

    A PyTorch tensor that is contiguous and aligned shares its memory; everything else is copied.

    Raises
    ------
    InputError
        If TVM cannot convert the dtype, such as ``int4`` of ml_dtypes.
    """
    if 0 in value.shape:
        # Kernels reject PyTorch's strides of an empty tensor, and NumPy does not align one.
        return tvm.runtime.empty(tuple(value.shape), dtype_of(value))
    if is_torch(value):
        tensor = value.detach().resolve_conj().resolve_neg().contiguous()
        if tensor.data_ptr() % alignment:
            tensor = tensor.clone()
        return tvm_ffi.from_dlpack(tensor)
    array = np.asarray(value)
    if is_plain_array(array):
        return tvm.runtime.from_dlpack(aligned_copy(array))  # a fifth of the line below
    dtype = dtype_of(array)
    if array.dtype.kind == "V" and tvm_ffi.dtype(dtype).bits < 8 and dtype != "float4_e2m1fn":
        raise InputError(
            f"TVM has no conversion of {dtype} arrays; expected elements of whole bytes"
        )
    # Not np.ascontiguousarray, which turns a scalar into a 1-D array.
    return tvm.runtime.tensor(np.asarray(array, array.dtype.newbyteorder("="), order="C"))


def shared(value: Any, alignment: int) -> tvm.runtime.Tensor:
    """Convert an array like :func:`to_tvm`, also one of NumPy without a copy if possible.

    Parameters
    ----------
    value : numpy.ndarray or torch.Tensor
        An array on the CPU.  It may be read-only: the tensor must not be written.
    alignment : int
        The alignment that the reader needs; an array with less is copied.
    """
    if isinstance(value, np.ndarray) and value.flags.c_contiguous and value.nbytes:
        array = value if value.flags.writeable else _writable_alias(value)
        try:
            if is_plain_array(array):
                return tvm_ffi.from_dlpack(
                    array, require_alignment=alignment, require_contiguous=True
                )
            if array.dtype.kind == "V" and nbytes_of(array.shape, dtype_of(array)) == array.nbytes:
                raw = tvm_ffi.from_dlpack(array.view("uint8"), require_alignment=alignment)
                return raw._create_view(array.shape, dtype_of(array))
        except (RuntimeError, ValueError):
            pass  # it is not aligned, or has strides without a meaning
    return to_tvm(value, alignment)


class _Alias:
    """The interface of a read-only array, as one that can be written: DLPack rejects the former."""

    def __init__(self, array: np.ndarray):
        interface = array.__array_interface__
        self.__array_interface__ = interface | {"data": (interface["data"][0], False)}
        self.array = array  # which owns the memory


def _writable_alias(array: np.ndarray) -> np.ndarray:
    return np.asarray(_Alias(array)).view(array.dtype)


class _Memory:
    """The interface of bytes at an address, which belong to somebody else."""

    def __init__(self, address: int, size: int):
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }


def tensor_at(address: int, shape: tuple[int, ...], dtype: str) -> tvm.runtime.Tensor:
    """A tensor at an address, to be used only while its memory exists.

    Parameters
    ----------
    address : int
        The address of the first element.
    shape : tuple of int
        Without zeros.
    dtype : str
        TVM's name.
    """
    raw = np.asarray(_Memory(address, nbytes_of(shape, dtype)))
    return tvm_ffi.from_dlpack(raw)._create_view(shape, dtype)


def is_plain_array(array: np.ndarray) -> bool:
    """Whether NumPy and TVM can share the memory of arrays of this dtype."""
    dtype = array.dtype
    return dtype.isnative and dtype.kind in "biuf" and dtype.isbuiltin == 1


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """A contiguous copy of `array` in aligned memory."""
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    first = -memory.__array_interface__["data"][0] % ALIGNMENT
    copy: np.ndarray = np.ndarray(array.shape, array.dtype, memory, first)
    copy[...] = array
    return copy


def to_device(tensor: tvm.runtime.Tensor, device: tvm.runtime.Device) -> tvm.runtime.Tensor:
    """Return `tensor` if it is on `device`, else a copy on `device`."""
    return tensor if tensor.device == device else tensor.copyto(device)


def from_tvm(value: Any, *, as_torch: bool) -> "np.ndarray | torch.Tensor":
    """Copy a result of the virtual machine, a tensor or a shape, to an array.

    The result may be a constant of the library or an input of the call, so it must be copied.
    """
    if isinstance(value, tvm.runtime.ShapeTuple):
        array = np.array([int(dim) for dim in value], "int64")
        return to_torch(array) if as_torch else array
    if as_torch:
        import torch

        return torch.from_dlpack(to_device(value, tvm.cpu())).clone()
    return copy_of(value)


def copy_of(tensor: tvm.runtime.Tensor) -> np.ndarray:
    """A NumPy array with the elements of a tensor."""
    try:
        return np.from_dlpack(tensor).copy()  # a tenth of the time of `numpy()`
    except (BufferError, RuntimeError):
        # NumPy's DLPack supports only the CPU, and not bfloat16.
        return tensor.numpy()


_item_of = tvm_ffi.get_global_func("ffi.ArrayGetItem")


def fields_of(result: tvm_ffi.Array) -> list[Any]:
    """The fields of a tuple of the virtual machine, in half the time of ``list(result)``."""
    return [_item_of(result, place) for place in range(len(result))]


def array_view(value: Any, *, as_torch: bool) -> Any:
    """An array or PyTorch tensor with the memory of a result of the virtual machine.

    None for a shape, a tensor that is not on the CPU, and elements that are not whole bytes.
    """
    try:
        if not as_torch:
            return np.from_dlpack(value)
    except AttributeError:  # a shape
        return None
    except (BufferError, RuntimeError):
        pass
    if not isinstance(value, tvm.runtime.Tensor) or value.device != tvm.cpu():
        return None
    if as_torch:
        import torch

        return torch.from_dlpack(value)
    # NumPy's DLPack does not support bfloat16.
    return None if tvm_ffi.dtype(str(value.dtype)).bits % 8 else array_of(value)


def arrays_of(result: Any) -> list[np.ndarray]:
    """The arrays of a result of the virtual machine: a tensor, a shape or a tuple."""
    if isinstance(result, tvm.runtime.Tensor | tvm.runtime.ShapeTuple):
        return [from_tvm(result, as_torch=False)]
    return [leaf for part in result for leaf in arrays_of(part)]


def assign(target: Any, value: tvm.runtime.Tensor) -> None:
    """Copy a tensor of the virtual machine into a NumPy or PyTorch array, unless it is there."""
    if not is_torch(target):
        np.copyto(target, copy_of(value))
    elif value.device != tvm.cpu() or value.data_ptr() != target.data_ptr():
        import torch

        target.detach().copy_(torch.from_dlpack(to_device(value, tvm.cpu())))


def span_of(value: Any) -> tuple[int, int]:
    """The first address of the memory of a NumPy or PyTorch array, and the one after the last."""
    if not is_torch(value):
        return np.lib.array_utils.byte_bounds(value)
    last = sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
    end = (last + 1) * value.element_size() if value.numel() else 0
    return value.data_ptr(), value.data_ptr() + end


def nbytes_of(shape: Sequence[int], dtype: str) -> int:
    """The size of a tensor of `shape` and TVM's `dtype` in memory, in whole bytes.

    Elements of fewer than 8 bits are packed.
    """
    kind = tvm_ffi.dtype(dtype)
    return (math.prod(map(int, shape)) * kind.bits * kind.lanes + 7) // 8


def raw_bytes(tensor: tvm.runtime.Tensor) -> np.ndarray:
    """The memory of a contiguous tensor on the CPU, as a 1-D array of uint8."""
    size = nbytes_of(tensor.shape, str(tensor.dtype))
    return np.from_dlpack(tensor._create_view((size,), "uint8")) if size else np.empty(0, "uint8")


def duplicate(value: Any) -> Any:
    """Copy an argument of a callback, a tensor or a tuple.

    The virtual machine reuses the memory after the callback returns.
    """
    if isinstance(value, tvm.runtime.Tensor):
        return value.copyto(tvm.cpu())
    if isinstance(value, tvm.runtime.ShapeTuple):
        return tvm.runtime.ShapeTuple(list(map(int, value)))
    return list(map(duplicate, value))


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype for TVM's `name`, including bfloat16 and the float8 dtypes."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def array_of(tensor: tvm.runtime.Tensor) -> np.ndarray:
    """View a contiguous tensor on the CPU as an array; its elements are whole bytes."""
    array = raw_bytes(tensor).view(numpy_dtype(str(tensor.dtype)))
    return array.reshape(tuple(map(int, tensor.shape)))


def to_torch(array: np.ndarray) -> "torch.Tensor":
    """Copy a NumPy array, which may be of bfloat16, to a PyTorch tensor."""
    return from_tvm(to_tvm(array), as_torch=True)


def to_numpy(tensor: "torch.Tensor") -> np.ndarray:
    """Copy a PyTorch tensor, which may be of bfloat16, to a NumPy array."""
    return copy_of(to_tvm(tensor))
