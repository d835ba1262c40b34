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
"""The tensors of the calls of a partition, made ready for its kernels.

Most tensors of a call are those of the call before: parameters, and caches that are updated in
place.  The kernels then get the same view of their memory again, which owns nothing.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import torch

from ..support.tensors import ALIGNMENT, dtype_of, span_of, tensor_at, to_tvm

__all__ = ["Inputs", "has_fixed_shape"]

_address = torch.Tensor.data_ptr
_is_contiguous = torch.Tensor.is_contiguous


class Inputs:
    """The tensors that a partition is called with.

    Parameters
    ----------
    are_fixed : sequence of bool
        Whether each has a fixed shape: see :func:`has_fixed_shape`.
    updated : sequence of int
        Those that kernels write to.
    others_are_fixed : sequence of bool
        The same of other tensors, with which those must not share memory.

    Attributes
    ----------
    alignment : int
        The alignment that the kernels need.
    are_fixed : sequence of bool
    """

    def __init__(
        self,
        are_fixed: Sequence[bool],
        updated: Sequence[int] = (),
        others_are_fixed: Sequence[bool] = (),
    ) -> None:
        self.alignment = ALIGNMENT
        self.are_fixed = are_fixed
        self._updated = updated
        self._addresses = [0] * len(are_fixed)
        self._views: list[Any] = [None] * len(are_fixed)
        self._spans = _Spans([*are_fixed, *others_are_fixed], updated)

    def ready(self, tensors: list[torch.Tensor], others: Sequence[torch.Tensor]) -> list[Any]:
        """Make tensors ready, in one thread at a time.

        Parameters
        ----------
        tensors : list of torch.Tensor
            Those that kernels write to, but that cannot be updated in place, are replaced by
            copies.
        others : sequence of torch.Tensor

        Returns
        -------
        values : list
            What to pass to the kernels; in use only as long as `tensors`.
        """
        addresses = [*map(_address, tensors)]
        for index in self._not_writable(tensors, addresses, others) if self._updated else ():
            tensors[index] = (
                tensors[index].resolve_neg().clone(memory_format=torch.contiguous_format)
            )
            addresses[index] = tensors[index].data_ptr()
        states = zip(
            tensors,
            addresses,
            map(_is_contiguous, tensors),
            self._addresses,
            self._views,
            strict=True,
        )
        return [
            view
            if view is not None and address == last and is_contiguous
            else self._value(index, tensor, address)
            for index, (tensor, address, is_contiguous, last, view) in enumerate(states)
        ]

    def _value(self, index: int, tensor: torch.Tensor, address: int) -> Any:
        if not self._is_readable(tensor, address) or not tensor.numel():
            return to_tvm(tensor, self.alignment)
        if not self.are_fixed[index]:
            return tensor
        is_known, self._addresses[index] = self._addresses[index] == address, address
        # A view is made only of memory that comes again: PyTorch's own conversion is faster.
        view = tensor_at(address, tuple(tensor.shape), dtype_of(tensor)) if is_known else None
        self._views[index] = view
        return tensor if view is None else view

    def _is_readable(self, tensor: torch.Tensor, address: int) -> bool:
        return tensor.is_contiguous() and not address % self.alignment and not tensor.is_neg()

    def _not_writable(
        self,
        tensors: Sequence[torch.Tensor],
        addresses: Sequence[int],
        others: Sequence[torch.Tensor],
    ) -> Sequence[int]:
        """The tensors that cannot be updated in place."""
        if self._spans.are_shared([*tensors, *others], [*addresses, *map(_address, others)]):
            return self._updated
        return [
            index
            for index in self._updated
            if not self._is_readable(tensors[index], addresses[index])
        ]


class _Spans:
    """The memory of tensors that are updated, compared with that of all tensors of a call.

    Parameters
    ----------
    are_fixed : sequence of bool
        Whether each of all has a fixed shape.
    updated : sequence of int
        Those that are updated.
    """

    def __init__(self, are_fixed: Sequence[bool], updated: Sequence[int]) -> None:
        self._updated = updated
        self._varying = [index for index, is_fixed in enumerate(are_fixed) if not is_fixed]
        self._is_varying = not set(updated).isdisjoint(self._varying)
        self._addresses: list[int] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

    def are_shared(self, tensors: Sequence[torch.Tensor], addresses: list[int]) -> bool:
        """Whether a tensor that is updated shares memory with any other.

        If only few addresses changed since the last call, only these are compared.
        """
        known, self._addresses = self._addresses, []
        if not known or self._is_varying or any(addresses[i] != known[i] for i in self._updated):
            spans = sorted(_span(tensors[index]) for index in self._updated)
            self._starts, self._ends = map(list, zip(*spans, strict=True))
            neighbors = zip(self._ends, self._starts[1:], strict=False)
            if any(end > start for end, start in neighbors):
                return True
            moved = {*range(len(tensors))}
        else:
            pairs = enumerate(zip(addresses, known, strict=True))
            moved = {index for index, (address, last) in pairs if address != last}
            moved.update(self._varying)
        for index in moved.difference(self._updated):
            start, end = _span(tensors[index])
            place = bisect_right(self._ends, start)
            if start < end and place < len(self._starts) and self._starts[place] < end:
                return True
        self._addresses = addresses
        return False


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    if not tensor.is_contiguous():
        return span_of(tensor)
    start = tensor.data_ptr()
    return start, start + tensor.nbytes


def has_fixed_shape(value: torch.Tensor) -> bool:
    """Whether all calls have a tensor of the shape of a fake tensor, stored as it is."""
    return all(isinstance(size, int) for size in value.shape) and not value.is_neg()
