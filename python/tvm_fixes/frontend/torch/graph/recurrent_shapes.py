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
"""The shapes of recurrent layers, without a run of their steps.

PyTorch finds the shape of an LSTM, GRU or RNN by running all its steps on tensors without data: an
export of many steps takes long, and one of a symbolic number of steps fails.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils import _pytree as pytree

from ....fixes.torch_importer import LOOPS as FIX_ID
from ....support import switches

__all__ = ["RECURRENT", "recurrent_shapes"]

RECURRENT: tuple[torch._ops.OpOverload, ...] = tuple(
    getattr(getattr(torch.ops.aten, name), overload)
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    for overload in ("input", "data")
)
"""The recurrent layers: of a tensor, and of a packed sequence."""

_KEYS = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)


@contextmanager
def recurrent_shapes() -> Iterator[None]:
    """Let ``torch.export`` compute the shapes of recurrent layers without running their steps.

    Within this context, ``torch.export.export`` accepts a symbolic number of steps, and its time
    does not depend on the number of steps::

        with tvm_fixes.frontend.torch.recurrent_shapes():
            program = torch.export.export(model, (x,), dynamic_shapes=({0: Dim("steps")},))
    """
    if not switches.enabled(FIX_ID):
        yield
        return
    kernels = {overload: dict(overload.py_kernels) for overload in RECURRENT}
    rules = {overload: decomposition_table[overload] for overload in RECURRENT}
    try:
        for overload in RECURRENT:
            results = functools.partial(_results, overload, rules[overload])
            overload.py_kernels.update({key: results for key in _KEYS if key in kernels[overload]})
            decomposition_table[overload] = results
            overload._dispatch_cache.clear()
        yield
    finally:
        decomposition_table.update(rules)
        for overload, saved in kernels.items():
            overload.py_kernels.clear()
            overload.py_kernels.update(saved)
            overload._dispatch_cache.clear()


def _results(
    overload: torch._ops.OpOverload, kernel: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Tensors without data of the shapes of the results, or what `kernel` computes.

    PyTorch's kernel is needed for tensors with data, and where a trace records its steps.
    """
    leaves = pytree.tree_leaves((args, kwargs))
    is_fake = any(isinstance(value, FakeTensor) for value in leaves)
    if kwargs or not is_fake or get_proxy_mode() is not None:
        return kernel(*args, **kwargs)
    x, states = args[0], args[1 if overload.__name__.endswith("input") else 2]
    if not isinstance(states, list | tuple):
        states = [states]
    bidirectional = args[7] if overload.__name__.endswith("input") else args[8]
    features = states[0].shape[-1] * (2 if bidirectional else 1)
    output = x.new_empty((*x.shape[:-1], features))
    return (output, *(state.new_empty(state.shape) for state in states))
