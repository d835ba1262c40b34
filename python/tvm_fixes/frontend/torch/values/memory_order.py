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
"""The order of a tensor's elements in memory, at the sizes of the example.

A size that depends on data has no example: the order is then that of the axes, without gaps.
"""

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

__all__ = ["has_gaps", "long_axes", "memory_order"]


def memory_order(value: torch.Tensor) -> tuple[int, ...]:
    """The axes of a tensor from the outermost in memory."""
    if free_unbacked_symbols(value):
        return tuple(range(value.ndim))
    steps = [_hint(step) for step in value.stride()]
    return tuple(sorted(range(value.ndim), key=lambda axis: (-steps[axis], axis)))


def long_axes(value: torch.Tensor) -> list[int]:
    """The axes of several elements, from the outermost in memory."""
    order = memory_order(value)
    if free_unbacked_symbols(value):
        return list(order)
    return [axis for axis in order if _hint(value.shape[axis]) != 1]


def has_gaps(value: torch.Tensor) -> bool:
    """Whether elements of a tensor overlap or have gaps between them."""
    if free_unbacked_symbols(value):
        return False
    sizes, steps = map(_hint, value.shape), map(_hint, value.stride())
    spread = sorted((step, size) for size, step in zip(sizes, steps, strict=True) if size != 1)
    if any(size == 0 for _, size in spread):
        return False
    expected = 1
    for step, size in spread:
        if step != expected:
            return True
        expected *= size
    return False


def _hint(number: Any) -> int:
    # A comparison of symbolic numbers would become a node of a graph that PyTorch traces.
    return int(number.node.hint) if isinstance(number, torch.SymInt) else int(number)
