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
"""Relay programs that the tests type, translate and run."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from helpers.relax_modules import run
from tvm_fixes import pipeline, relay
from tvm_fixes.errors import RelayError
from tvm_fixes.frontend.relay import from_relay

Inputs = Sequence[np.ndarray]


def program(body: str, params: str = "") -> relay.IRModule:
    """A module whose main has this body."""
    return relay.parse(f"def @main({params}) {{ {body} }}")


def infer(body: str, params: str = "") -> str:
    """The type of an expression."""
    mod = relay.transform.InferType()(program(body, params))
    return str(mod["main"].body.checked_type)


def type_error(body: str, params: str = "") -> str:
    """The message of an expression that has no type."""
    with pytest.raises(RelayError) as raised:
        infer(body, params)
    return str(raised.value)


def type_text(value: np.ndarray, shape: Sequence[Any] | None = None) -> str:
    """The Relay type of an array; a shape may hold "?"."""
    dims = value.shape if shape is None else shape
    if len(dims) == 0:
        return str(value.dtype)
    return f"Tensor[({', '.join(map(str, dims))}{',' * (len(dims) == 1)}), {value.dtype}]"


def parameters(inputs: Inputs, shapes: Sequence[Sequence[Any]] | None = None) -> str:
    """Parameters %x0, %x1 and so on of these arrays' types."""
    types = [type_text(x, shapes and shapes[i]) for i, x in enumerate(inputs)]
    return ", ".join(f"%x{i}: {text}" for i, text in enumerate(types))


def run_program(body: str, *inputs: np.ndarray, shapes: Sequence[Any] | None = None) -> Any:
    """Translate an expression of %x0, %x1 ..., compile and run it.

    Returns
    -------
    np.ndarray or list of np.ndarray
        The result, a list where it is a tuple.
    """
    mod = from_relay(program(body, parameters(inputs, shapes)))
    return run(mod, *inputs, pipeline=pipeline())


def check_results(got: Sequence[np.ndarray], expected: Sequence[Any], **tolerance: float) -> None:
    """Compare values, shapes and dtypes of several results."""
    assert len(got) == len(expected)
    for result, reference in zip(got, map(np.asarray, expected), strict=True):
        assert (result.dtype, result.shape) == (reference.dtype, reference.shape)
        np.testing.assert_allclose(result, reference, **tolerance)


def check_program(
    bodies: dict[str, Any], *inputs: np.ndarray, shapes: Sequence[Any] | None = None, **tol: float
) -> None:
    """Compile several expressions of %x0, %x1 ... as one program, and compare the results.

    Parameters
    ----------
    bodies : dict of str to array
        The expressions, and what each must give.
    """
    got = run_program(f"({', '.join(bodies)},)", *inputs, shapes=shapes)
    for (body, reference), result in zip(bodies.items(), got, strict=True):
        reference = np.asarray(reference)
        assert (result.dtype, result.shape) == (reference.dtype, reference.shape), body
        np.testing.assert_allclose(result, reference, err_msg=body, **{"rtol": 1e-6, **tol})
