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
"""The activations of recurrent layers, as expressions of kernels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import nan
from typing import Any, TypeAlias

from tvm import tirx

__all__ = ["DEFAULT_NUMBERS", "Activation", "Stage", "stages_of"]


@dataclass(frozen=True)
class Activation:
    """An activation with its parameters.

    Attributes
    ----------
    name : str
        Its lower-case name, from :data:`DEFAULT_NUMBERS`.
    alpha, beta : float, optional
        None if it does not have the parameter.
    """

    name: str
    alpha: float | None = None
    beta: float | None = None


DEFAULT_NUMBERS: Mapping[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0, None),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01, None),
    "relu": (None, None),
    "scaledtanh": (nan, nan),
    "sigmoid": (None, None),
    "softplus": (None, None),
    "softsign": (None, None),
    "tanh": (None, None),
    "thresholdedrelu": (1.0, None),
}
"""Each activation by name, with its defaults of alpha and beta.

A default is that of the ONNX operator of the same name, NaN if that operator has no default, and
None if the activation does not take the number."""

Stage: TypeAlias = Callable[[Any, Any], Any]
"""Computes an element from the input and from the result of the stage before."""


def stages_of(activation: Activation, dtype: str) -> list[Stage]:
    """The stages that compute an activation of elements of `dtype`.

    A stage has one elementary function at most: TVM's code generator takes minutes for nested ones.
    """

    def number(value: float) -> tirx.Expr:
        return tirx.const(value, dtype)

    zero, one = number(0), number(1)
    alpha = number(activation.alpha or 0)
    beta = number(activation.beta or 0)

    def below(x: Any, low: Any) -> tirx.Expr:
        return tirx.Select(x < zero, low, x)

    stages: dict[str, list[Stage]] = {
        "affine": [lambda x, _: x * alpha + beta],
        "elu": [
            lambda x, _: tirx.exp(tirx.min(x, zero)),
            lambda x, exponential: below(x, (exponential - one) * alpha),
        ],
        "hardsigmoid": [lambda x, _: tirx.max(tirx.min(x * alpha + beta, one), zero)],
        "leakyrelu": [lambda x, _: below(x, x * alpha)],
        "relu": [lambda x, _: tirx.max(x, zero)],
        "scaledtanh": [lambda x, _: tirx.tanh(x * beta) * alpha],
        "sigmoid": [lambda x, _: tirx.sigmoid(x)],
        # log(1 + exp(x)), rewritten so that it never overflows.
        "softplus": [
            lambda x, _: tirx.exp(-tirx.abs(x)) + one,
            lambda x, total: tirx.max(x, zero) + tirx.log(total),
        ],
        "softsign": [lambda x, _: x / (tirx.abs(x) + one)],
        "tanh": [lambda x, _: tirx.tanh(x)],
        "thresholdedrelu": [lambda x, _: tirx.Select(x > alpha, x, x * zero)],
    }
    return stages[activation.name]
