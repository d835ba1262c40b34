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
"""Remembers what PyTorch computes anew for each decomposition of an exported program.

PyTorch overrides eleven kernels of each of a thousand operators before it decomposes a program, and
takes them back afterwards.  For the small programs of tests, this takes three quarters of the time.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch._export.utils
import torch.export.exported_program
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch._subclasses.fake_impls import op_implementations_dict as fake_rules

Kernels = dict[DispatchKey, Callable[..., Any]]

_DECOMPOSITION = DispatchKey.CompositeImplicitAutograd
_override = torch.export.exported_program._override_composite_implicit_decomp


@dataclass(frozen=True)
class Overridden:
    """An operator's own kernels, and its kernels and rule for fake tensors within an override."""

    own: Kernels
    kernels: Kernels
    fake_rule: Callable[..., Any]


_overridden: dict[OpOverload, Overridden] = {}


@contextmanager
def _remembering_override(
    decompositions: Mapping[OpOverload, Callable[..., Any]],
) -> Iterator[None]:
    """PyTorch's override; operators that have the kernels of last time take those of last time."""
    known = {
        op: _overridden[op]
        for op in decompositions
        if op in _overridden and op not in fake_rules and op.py_kernels == _overridden[op].own
    }
    others = {op: function for op, function in decompositions.items() if op not in known}
    own = {op: op.py_kernels.copy() for op in others if op not in fake_rules}
    with _override(others):
        for op, kernels in own.items():
            _overridden[op] = Overridden(kernels, op.py_kernels.copy(), fake_rules[op])
        try:
            for op, overridden in known.items():
                _replace(op, overridden.kernels)
                op.py_kernels[_DECOMPOSITION] = decompositions[op]
                fake_rules[op] = overridden.fake_rule
            yield
        finally:
            for op, overridden in known.items():
                _replace(op, overridden.own)
                fake_rules.pop(op, None)


def _replace(op: OpOverload, kernels: Kernels) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()


@functools.cache
def use() -> None:
    """Make PyTorch decompose quickly; a second call is a no-op."""
    utils = torch._export.utils
    utils._materialize_cpp_cia_ops = functools.cache(utils._materialize_cpp_cia_ops)
    utils._check_valid_to_preserve = functools.cache(utils._check_valid_to_preserve)
    torch.export.exported_program._override_composite_implicit_decomp = _remembering_override
