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
"""PyTorch's loops and branches, which are exported as such, and else run in Python.

PyTorch would compile a loop again for each call of the oracle.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import _higher_order_ops as operators
from torch._higher_order_ops.map import map as map_operator
from torch.utils import _pytree as pytree

__all__ = ["cond", "map_rows", "scan", "while_loop"]


def _is_traced() -> bool:
    return torch.compiler.is_exporting() or torch.compiler.is_compiling()


def scan(combine: Callable[..., Any], start: Any, rows: Any, *, dim: int, reverse: bool) -> Any:
    """Scan the slices of tensors along an axis: the last state, and the stacked results."""
    if _is_traced():
        return operators.scan(combine, start, rows, dim=dim, reverse=reverse)
    count = pytree.tree_leaves(rows)[0].shape[dim]
    state, results = start, [None] * count
    for index in reversed(range(count)) if reverse else range(count):
        row = pytree.tree_map(lambda part, at=index: part.select(dim, at), rows)
        state, results[index] = combine(state, row)
    # As in PyTorch, the axis is also that of results of enough dims.
    return state, pytree.tree_map(
        lambda part: part.movedim(0, dim) if dim < part.ndim else part, _stacked(results)
    )


def while_loop(
    more: Callable[..., Any], body: Callable[..., Any], start: Sequence[Any]
) -> Sequence[Any]:
    """Repeat `body` while `more` is true."""
    if _is_traced():
        return operators.while_loop(more, body, tuple(start))
    state = start
    while more(*state):
        state = body(*state)
    return state


def map_rows(function: Callable[..., Any], rows: Any, *others: Any) -> Any:
    """The stacked results of a function of each row of tensors."""
    if _is_traced():
        return map_operator(function, rows, *others)
    return _stacked([function(row, *others) for row in rows])


def cond(
    condition: torch.Tensor, yes: Callable[..., Any], no: Callable[..., Any], operands: Any
) -> Any:
    """The result of one of two branches."""
    if _is_traced():
        return torch.cond(condition, yes, no, operands)
    return (yes if condition else no)(*operands)


def _stacked(results: Sequence[Any]) -> Any:
    return pytree.tree_map(lambda *parts: torch.stack(parts), *results)
