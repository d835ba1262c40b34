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
"""The activations of RNN, GRU and LSTM."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan, nan
from typing import Any, TypeAlias

from tvm import relax

from ...tirx.recurrence_activations import DEFAULT_NUMBERS
from ...tirx.recurrence_activations import Activation as KernelActivation
from .node import Node

__all__ = ["Activation", "Arithmetic", "activations_of", "relax_activation"]


class Arithmetic:
    """Emits Relax operators on tensors of one dtype; numbers become constants of that dtype."""

    def __init__(self, builder: relax.BlockBuilder, dtype: str) -> None:
        self.builder = builder
        self.dtype = dtype

    def __call__(self, operator: str, *operands: relax.Expr | float) -> relax.Expr:
        tensors = [o if isinstance(o, relax.Expr) else relax.const(o, self.dtype) for o in operands]
        return self.builder.emit(getattr(relax.op, operator)(*tensors))

    def within(self, builder: relax.BlockBuilder) -> "Arithmetic":
        """The same arithmetic in another function."""
        return Arithmetic(builder, self.dtype)

    def product(self, x: relax.Expr, weights: Mapping[str, relax.Expr], name: str) -> relax.Expr:
        """The product of `x` and the weight `name`."""
        return self("matmul", x, weights[name])

    def sum(self, *terms: relax.Expr | None) -> relax.Expr:
        """The sum of the terms that are not None."""
        first, *others = [term for term in terms if term is not None]
        for term in others:
            first = self("add", first, term)
        return first

    def clip(self, x: relax.Expr, low: float, high: float) -> relax.Expr:
        return self.builder.emit(relax.op.clip(x, low, high))


Activation: TypeAlias = Callable[[Arithmetic, relax.Expr], relax.Expr]

_Function: TypeAlias = Callable[[Arithmetic, relax.Expr, Any, Any], relax.Expr]


def _softplus(a: Arithmetic, x: relax.Expr, *_: None) -> relax.Expr:
    # log(1 + exp(x)), rewritten so that it never overflows.
    exponential = a("exp", a("negative", a("abs", x)))
    return a("add", a("maximum", x, 0.0), a("log", a("add", exponential, 1.0)))


def _negative_part(a: Arithmetic, x: relax.Expr, low: relax.Expr) -> relax.Expr:
    """`low` if `x` is negative, else `x`, elementwise."""
    return a("where", a("less", x, 0.0), low, x)


_FUNCTIONS: dict[str, tuple[_Function, float | None, float | None]] = {
    "affine": (
        lambda a, x, alpha, beta: a("add", a("multiply", x, alpha), beta),
        1.0,
        0.0,
    ),
    "elu": (
        lambda a, x, alpha, _: _negative_part(
            a, x, a("multiply", a("subtract", a("exp", a("minimum", x, 0.0)), 1.0), alpha)
        ),
        1.0,
        None,
    ),
    "hardsigmoid": (
        lambda a, x, alpha, beta: a.clip(a("add", a("multiply", x, alpha), beta), 0, 1),
        0.2,
        0.5,
    ),
    "leakyrelu": (
        lambda a, x, alpha, _: _negative_part(a, x, a("multiply", x, alpha)),
        0.01,
        None,
    ),
    "relu": (lambda a, x, *_: a("maximum", x, 0.0), None, None),
    "scaledtanh": (
        lambda a, x, alpha, beta: a("multiply", a("tanh", a("multiply", x, beta)), alpha),
        nan,
        nan,
    ),
    "sigmoid": (lambda a, x, *_: a("sigmoid", x), None, None),
    "softplus": (_softplus, None, None),
    "softsign": (lambda a, x, *_: a("divide", x, a("add", a("abs", x), 1.0)), None, None),
    "tanh": (lambda a, x, *_: a("tanh", x), None, None),
    "thresholdedrelu": (
        lambda a, x, alpha, _: a("where", a("greater", x, alpha), x, a("multiply", x, 0.0)),
        1.0,
        None,
    ),
}
"""Each activation by name, with its defaults of alpha and beta.

A default is that of the ONNX operator of the same name, NaN if that operator has no default, and
None if the activation does not take the number."""


def activations_of(node: Node, defaults: Sequence[str]) -> Iterator[KernelActivation]:
    """Yield the activations of a node, one direction after the other.

    Each activation consumes the next elements of ``activation_alpha`` and ``activation_beta`` that
    it needs.

    Parameters
    ----------
    defaults : sequence of str
        The names, for all directions, for a node without the attribute ``activations``.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If their number differs from that of `defaults`, one is unknown, or one lacks its alpha or
        beta.
    """
    names = [
        name.decode("utf-8") if isinstance(name, bytes) else name
        for name in node.attributes.get("activations", ())
    ]
    names = names or list(defaults)
    if len(names) != len(defaults):
        raise node.invalid("attribute activations", names, f"expected {len(defaults)} names")
    numbers = {
        name: iter(node.attributes.get(f"activation_{name}", ())) for name in ("alpha", "beta")
    }
    for name in names:
        if name.lower() not in DEFAULT_NUMBERS:
            reason = f"expected names from {', '.join(DEFAULT_NUMBERS)} (case-insensitive)"
            raise node.invalid("attribute activations", names, reason)
        number_defaults = DEFAULT_NUMBERS[name.lower()]
        given = [
            default if default is None else next(numbers[kind], default)
            for kind, default in zip(numbers, number_defaults, strict=True)
        ]
        if any(number is not None and isnan(number) for number in given):
            reason = f"expected an activation_alpha and an activation_beta for {name}"
            raise node.invalid("attribute activations", names, reason)
        yield KernelActivation(name.lower(), *given)


def relax_activation(activation: KernelActivation) -> Activation:
    """An activation as Relax operators."""
    function, *_ = _FUNCTIONS[activation.name]
    return lambda a, x: function(a, x, activation.alpha, activation.beta)
