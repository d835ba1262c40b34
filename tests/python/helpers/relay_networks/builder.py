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
"""Builds Relay networks call by call, as the importers of old TVM did."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_fixes import relay

Expr = relay.Expr


class Network:
    """A program with parameters.

    Attributes
    ----------
    inputs : dict of str to numpy.ndarray
        An example of each input.
    params : dict of str to numpy.ndarray
        The weights by name.
    """

    def __init__(self, seed: int = 0):
        self.rng = np.random.default_rng(seed)
        self.variables: list[relay.Var] = []
        self.inputs: dict[str, np.ndarray] = {}
        self.params: dict[str, np.ndarray] = {}

    def input(
        self, name: str, shape: Sequence[int], dtype: str = "float32", dims: Any = None
    ) -> relay.Var:
        """An input with random values; `dims` may have ``?`` for some extents."""
        if dtype == "float32":
            value = self.rng.normal(size=shape).astype(dtype)
        else:
            low = 0 if dtype.startswith("uint") or dtype in ("int32", "int64") else -100
            value = self.rng.integers(low, 10 if "int8" not in dtype else 100, shape).astype(dtype)
        self.inputs[name] = value
        return self._variable(name, value, dims)

    def param(self, name: str, value: np.ndarray) -> relay.Var:
        """A weight."""
        self.params[name] = value
        return self._variable(name, value)

    def weight(self, name: str, *shape: int, scale: float | None = None) -> relay.Var:
        """A random weight that keeps the scale of activations."""
        fan_in = int(np.prod(shape[1:])) or 1
        scale = fan_in**-0.5 if scale is None else scale
        return self.param(name, (self.rng.normal(size=shape) * scale).astype("float32"))

    def _variable(self, name: str, value: np.ndarray, dims: Any = None) -> relay.Var:
        ty = relay.TensorType(list(value.shape if dims is None else dims), value.dtype.name)
        self.variables.append(relay.Var(name, ty))
        return self.variables[-1]

    def module(self, result: Expr) -> relay.IRModule:
        """The program that returns `result`."""
        return relay.IRModule({"main": relay.Function(self.variables, result)})

    def conv(
        self, x: Expr, name: str, inputs: int, outputs: int, size: int = 3, **attrs: Any
    ) -> Expr:
        """A convolution of NCHW that keeps the extents by default."""
        weight = self.weight(
            f"{name}.weight", outputs, inputs // attrs.get("groups", 1), size, size
        )
        attrs = {
            "channels": outputs,
            "kernel_size": [size, size],
            "padding": [size // 2] * 2,
        } | attrs
        return call("nn.conv2d", x, weight, **attrs)

    def bias(self, x: Expr, name: str, channels: int, axis: int = 1) -> Expr:
        """Add a bias."""
        return call("nn.bias_add", x, self.weight(f"{name}.bias", channels, scale=0.1), axis=axis)

    def norm(self, x: Expr, name: str, channels: int) -> Expr:
        """Batch normalization."""
        gamma, beta, mean = (
            self.weight(f"{name}.{part}", channels, scale=0.2) for part in ("gamma", "beta", "mean")
        )
        var = self.param(f"{name}.var", self.rng.uniform(0.5, 1.5, channels).astype("float32"))
        args = [x, call("add", gamma, scalar(1.0)), beta, mean, var]
        return relay.TupleGetItem(call("nn.batch_norm", *args, epsilon=1e-5), 0)

    def dense(self, x: Expr, name: str, inputs: int, outputs: int) -> Expr:
        """A dense layer with a bias."""
        x = call("nn.dense", x, self.weight(f"{name}.weight", outputs, inputs), units=outputs)
        return self.bias(x, name, outputs, axis=-1)


def call(name: str, *args: Any, **attrs: Any) -> Expr:
    """A call of an operator; a list is a tuple of operands."""
    operands = [relay.Tuple(arg) if isinstance(arg, list) else arg for arg in args]
    return relay.Call(name, operands, attrs)


def scalar(value: Any, dtype: str = "float32") -> relay.Constant:
    """A constant of rank 0."""
    return relay.Constant(np.array(value, dtype))


def relu(x: Expr) -> Expr:
    """Rectify."""
    return call("nn.relu", x)
