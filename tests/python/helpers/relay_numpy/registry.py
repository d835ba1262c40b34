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
"""Relay operators in NumPy, an evaluation that shares nothing with the translation to Relax.

An operator is a function of a dict of attributes and of its inputs; tuples are tuples.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Attrs = dict[str, Any]
Operator = Callable[..., Any]

OPERATORS: dict[str, Operator] = {}


def operator(*names: str) -> Callable[[Operator], Operator]:
    """Register a function for the operators `names`."""

    def register(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return register


def axes_of(axis: Any, rank: int, exclude: bool = False) -> tuple[int, ...]:
    """The axes that an attribute names, counted from 0; None names all."""
    if axis is None:
        return tuple(range(rank))
    named = {int(a) % rank for a in ([axis] if isinstance(axis, int) else axis)}
    return tuple(a for a in range(rank) if (a in named) != bool(exclude))


def accumulated(x: np.ndarray) -> np.ndarray:
    """`x` in float64 if it holds floating-point numbers, so that sums are exact enough."""
    return x.astype("float64") if x.dtype.kind == "f" else x


def along(vector: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """A vector that broadcasts along `axis`."""
    return vector.reshape([-1 if a == axis % rank else 1 for a in range(rank)])
