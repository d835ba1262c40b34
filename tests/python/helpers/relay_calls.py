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
"""Translates and runs calls of Relay operators, many in one program."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from helpers.relax_modules import run
from tvm_fixes import pipeline, relay
from tvm_fixes.errors import RelayError
from tvm_fixes.frontend.relay import from_relay


class Program:
    """A program that grows call by call; its inputs are arrays."""

    def __init__(self) -> None:
        self.params: list[relay.Var] = []
        self.arrays: list[np.ndarray] = []
        self.results: list[relay.Expr] = []

    def input(self, array: np.ndarray, shape: Sequence[Any] | None = None) -> relay.Var:
        """Return a parameter for an array; `shape` may have ``?`` for some extents."""
        name = f"p{len(self.params)}"
        ty = relay.TensorType(list(shape or array.shape), str(array.dtype))
        self.params.append(relay.Var(name, ty))
        self.arrays.append(array)
        return self.params[-1]

    def call(self, name: str, args: Sequence[Any], **attrs: Any) -> None:
        """Add a call; its result is one of the results. Arrays among `args` become constants."""
        self.results.append(relay.Call(name, [self._argument(arg) for arg in args], attrs))

    def _argument(self, arg: Any) -> relay.Expr:
        if isinstance(arg, tuple):
            return relay.Tuple([self._argument(part) for part in arg])
        return arg if isinstance(arg, relay.Expr) else relay.Constant(np.asarray(arg))

    def module(self) -> relay.IRModule:
        """Return the program; it returns a tuple of all results."""
        body = relay.Tuple(self.results)
        return relay.IRModule({"main": relay.Function(self.params, body)})

    def types(self) -> list[str]:
        """Return the inferred types of the results."""
        relay.transform.InferType()(self.module())
        return [str(result.checked_type) for result in self.results]

    def run(self) -> list[Any]:
        """Compile for the CPU and run; a result is an array or a list of them."""
        return run(from_relay(self.module()), *self.arrays, pipeline=pipeline())


def assert_same(actual: Sequence[Any], expected: Mapping[str, Any]) -> None:
    """Check results against references by name: shape, dtype and every bit."""
    assert len(actual) == len(expected)
    for result, (name, reference) in zip(actual, expected.items(), strict=True):
        reference = np.asarray(reference)
        assert (result.shape, result.dtype) == (reference.shape, reference.dtype), name
        np.testing.assert_array_equal(result, reference, err_msg=name)


def assert_rejected(
    name: str, inputs: Sequence[Any], attrs: Mapping[str, Any], reason: str
) -> None:
    """Check that a call is rejected with a message that names the operator and the reason."""
    program = Program()
    program.call(name, inputs, **attrs)
    with pytest.raises(RelayError, match=f"{name}.*{reason}"):
        program.run()
