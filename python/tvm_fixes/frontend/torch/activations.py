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
"""Activations and other elementary functions of PyTorch.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    ``selu``, ``celu``, and ``elu`` with a scale, in an exported program; ``elu``, ``expm1`` and
    ``log1p`` near zero or of 16-bit numbers; ``softshrink`` of NaN or infinity.
Symptom
    Silently wrong results: ``selu`` lacks its scale, an error of 5%; ``elu(1e-9)`` is 0; NaN is
    lost.
Mechanism
    PyTorch decomposes ``selu`` and ``celu`` into an ``elu`` with ``scale`` and ``input_scale``,
    which the converter does not read.  The converter of ``elu`` subtracts 1 from the exponential,
    which cancels near zero; the others use textbook formulas as well.  ``softshrink`` multiplies by
    the result of a comparison, which turns infinities that it should exclude into NaN.
How to remove
    See ``corrections``.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import fx
from tvm import relax

from ...fixes.torch_importer import ACTIVATIONS as FIX_ID
from ...support import switches
from ..elementary import Elementary
from .corrections import Converters, Corrections

__all__ = ["Activations"]

Convert = Callable[[fx.Node], relax.Expr]

# The arguments of each function and their defaults; modules have attributes of the same names.
_NUMBERS: dict[str, dict[str, Any]] = {
    "celu": {"alpha": 1.0},
    "elu": {"alpha": 1.0, "scale": 1.0, "input_scale": 1.0},
    "gelu": {"approximate": "none"},
    "hardtanh": {"min_val": -1.0, "max_val": 1.0},
    "softshrink": {"lambd": 0.5},
    "expm1": {},
    "log1p": {},
}


class Activations(Corrections):
    """The converters of activations and of the elementary functions that they use."""

    def activation_calls(self) -> Converters:
        """Converters of calls, by the name of the function."""
        return {name: self._activation_call(name) for name in _NUMBERS}

    def _activation_call(self, name: str) -> Convert:
        def convert(node: fx.Node) -> relax.Expr:
            x, *values = self._arguments(node, input=None, **_NUMBERS[name])
            return self._activate(name, x, dict(zip(_NUMBERS[name], values, strict=True)))

        return convert

    def _activate(self, name: str, x: relax.Expr, numbers: Mapping[str, Any]) -> relax.Expr:
        """Emit the activation `name` of `x`."""
        switches.note(FIX_ID)
        emit = self.block_builder.emit
        elementary = Elementary(emit)
        match name:
            case "elu":
                return elementary.elu(x, **numbers)
            case "celu":
                alpha = numbers["alpha"]
                return elementary.elu(x, alpha, scale=1.0, input_scale=1 / alpha)
            case "gelu":
                tanh = numbers["approximate"] == "tanh"
                return emit(relax.op.nn.gelu_tanh(x) if tanh else relax.op.nn.gelu(x))
            case "hardtanh":
                return emit(relax.op.clip(x, numbers["min_val"], numbers["max_val"]))
            case "softshrink":
                return self._emit_softshrink(elementary, x, numbers["lambd"])
        return getattr(elementary, name)(x)

    @staticmethod
    def _emit_softshrink(e: Elementary, x: relax.Expr, bound: float) -> relax.Expr:
        # NaN must pass through. It is not between the bounds, so `where` keeps it; as a product,
        # TVM would simplify 0 * x to 0.
        inside = e("where", e("less_equal", e("abs", x), bound), 0.0, x)
        below = e("where", e("less", x, -bound), e("add", x, bound), inside)
        return e("where", e("greater", x, bound), e("subtract", x, bound), below)
