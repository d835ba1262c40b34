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

from collections.abc import Iterator, Sequence
from math import isnan

from ....tirx.recurrence_activations import DEFAULT_NUMBERS, Activation
from ..call import Call

__all__ = ["activations_of"]


def activations_of(call: Call, defaults: Sequence[str]) -> Iterator[Activation]:
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
        for name in call.attributes.get("activations", ())
    ]
    names = names or list(defaults)
    if len(names) != len(defaults):
        raise call.invalid("attribute activations", names, f"expected {len(defaults)} names")
    numbers = {
        name: iter(call.attributes.get(f"activation_{name}", ())) for name in ("alpha", "beta")
    }
    for name in names:
        if name.lower() not in DEFAULT_NUMBERS:
            reason = f"expected names from {', '.join(DEFAULT_NUMBERS)} (case-insensitive)"
            raise call.invalid("attribute activations", names, reason)
        number_defaults = DEFAULT_NUMBERS[name.lower()]
        given = [
            default if default is None else next(numbers[kind], default)
            for kind, default in zip(numbers, number_defaults, strict=True)
        ]
        if any(number is not None and isnan(number) for number in given):
            reason = f"expected an activation_alpha and an activation_beta for {name}"
            raise call.invalid("attribute activations", names, reason)
        yield Activation(name.lower(), *given)
