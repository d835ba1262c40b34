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
"""Kernels written as statements, for operators that cannot be computed element by element."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

__all__ = ["Outputs", "cast", "computed", "local", "loops", "nest", "when"]

Outputs = Sequence[tuple[Sequence[Any], str]]
"""Shape and dtype of each result."""


def computed(
    name: str, tensors: Sequence[te.Tensor], outputs: Outputs, body: Callable[..., None]
) -> Any:
    """Return tensors that a sequence of statements computes.

    Parameters
    ----------
    name : str
        The name of the kernel.
    tensors : sequence of te.Tensor
        The operands.
    outputs : sequence
        Shapes and dtypes of the results.
    body : function
        Emits the statements; its arguments are the buffers of operands and results.

    Returns
    -------
    te.Tensor or list of te.Tensor
        The result or the results.
    """
    operands = None
    if any(isinstance(n, tirx.IntImm) and n.value == 0 for t in tensors for n in t.shape):
        # Kernels without elements are fused with others, whose buffers have no offset.
        operands = [tirx.decl_buffer(t.shape, t.dtype, t.op.name, layout=None) for t in tensors]
    results = [
        tirx.decl_buffer(shape, dtype, f"result_{i}", layout=None)
        for i, (shape, dtype) in enumerate(outputs)
    ]

    def statements(sources: Sequence[tirx.Buffer], targets: Sequence[tirx.Buffer]) -> Any:
        with IRBuilder() as builder:
            # The builder accepts several statements only inside an enclosing one.
            with T.serial(0, 1):
                body(*(T.buffer_proxy(buffer) for buffer in [*sources, *targets]))
            return builder.get()

    return te.extern(
        [shape for shape, _ in outputs],
        list(tensors),
        statements,
        dtype=[dtype for _, dtype in outputs],
        in_buffers=operands,
        out_buffers=results,
        name=name,
    )


def loops(
    name: str, outputs: Callable[..., Outputs], body: Callable[..., None]
) -> Callable[..., Any]:
    """Return a function for ``emit_te`` that computes tensors by statements.

    Parameters
    ----------
    name, body
        As those of :func:`computed`.
    outputs : function
        Returns shapes and dtypes of the results for the operands as te.Tensor.

    Returns
    -------
    function
        Takes the operands as te.Tensor and returns the results.
    """

    def compute(*tensors: te.Tensor) -> Any:
        return computed(name, tensors, outputs(*tensors), body)

    return compute


@contextmanager
def when(*conditions: Any) -> Iterator[None]:
    """Run the statements of the ``with`` block if all conditions hold."""
    with T.If(tirx.all(*conditions)), T.Then():
        yield


def local(dtype: str, value: Any) -> Any:
    """Return a local variable: a buffer of one element."""
    variable = T.buffer_proxy(T.alloc_buffer((1,), dtype, scope="local"))
    variable[0] = cast(value, dtype)
    return variable


def cast(value: Any, dtype: str) -> Any:
    """Return a number or expression in a dtype."""
    return tirx.const(value, dtype) if isinstance(value, int | float) else value.astype(dtype)


@contextmanager
def nest(extents: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Run the statements of the ``with`` block for each position in these extents; may be empty."""
    with ExitStack() as stack:
        yield tuple(stack.enter_context(T.serial(0, extent)) for extent in extents)
