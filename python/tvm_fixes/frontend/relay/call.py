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
"""The call of a Relay operator, and the converters of operators."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from ... import relay
from ...errors import RelayError
from .. import convert
from ..convert import OPERATOR, Converters
from .values.values import constant_value

__all__ = ["CONVERTERS", "Call", "Context", "converts"]


@dataclass(frozen=True)
class Context:
    """State that the calls of one import share."""

    builder: relax.BlockBuilder

    def convert(self, call: "Call") -> Any:
        """Convert a call; the result is a relax.Expr, or a tuple for an operator that returns one.

        Raises
        ------
        RelayError
            If the operator has no converter.
        """
        return CONVERTERS.convert(call, _reject)


@dataclass(frozen=True, kw_only=True)
class Call(convert.Call):
    """One call of an operator, as its converter sees it.

    ``operands`` are relax.Expr, or tuples of them; ``attributes`` have the declared kinds, with the
    defaults.

    Attributes
    ----------
    input_types : tuple of relay.Type
        The Relay types of the operands.
    type : relay.Type
        The Relay type of the result.
    call : relay.Call
        The call itself.
    """

    input_types: tuple[relay.Type, ...]
    type: relay.Type
    call: relay.Call

    def emit_te(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> relax.Expr:
        """Compute the result by a TE function."""
        return self.builder.emit_te(function, *args, **kwargs)

    def ints(self, attr: str, count: int | None = None) -> list[int]:
        """Return an attribute that is an array of ints; a single int is repeated `count` times."""
        values = [int(value) for value in self.attributes[attr]]
        return values * count if count is not None and len(values) == 1 else values

    def constant(self, index: int) -> np.ndarray[Any, Any] | None:
        """Return the value of an operand that is a constant, else None."""
        return constant_value(self.operands[index])

    def fail(self, message: str) -> RelayError:
        """Return an error that names the operator and its place."""
        return RelayError(f"{self.operator} at {self.source.name}: {message}")


def _reject(call: Call) -> Any:
    raise call.fail(f"{call.operator} has no converter")


CONVERTERS: Converters[Call] = Converters(
    "tvm_fixes.frontend.relay.ops", {OPERATOR: "The converter itself: TVM has none to wrap."}
)
"""The converters of Relay's operators."""

converts = CONVERTERS.converts
