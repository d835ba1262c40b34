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
"""Random PyTorch programs as lines of source, executed during generation."""

import contextlib
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

# Programs use these names for dtypes, so that the same lines can run in float64.
DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i8": torch.int8,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "b8": torch.bool,
}
FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("i8", "i32", "i64", "u8")
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass
class Variable:
    """A tensor of the program; `exact` if it is free of rounding."""

    name: str
    tensor: torch.Tensor
    exact: bool

    @property
    def dtype(self) -> str:
        return NAMES.get(self.tensor.dtype, "")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def rank(self) -> int:
        return self.tensor.ndim


def random_tensor(
    rng: np.random.Generator, dtype: str, shape: Sequence[int], kind: str
) -> torch.Tensor:
    """Like :func:`tests.fuzz.values.random_array`, for the dtypes of :data:`DTYPES`."""
    from .values import random_array

    if dtype == "b8":
        return torch.from_numpy(random_array(rng, "bool", tuple(shape), kind))
    base = "float64" if dtype in FLOATS else {"u8": "uint8", "i8": "int8"}.get(dtype, "int64")
    return torch.from_numpy(random_array(rng, base, tuple(shape), kind)).to(DTYPES[dtype])


@dataclass
class Program:
    """A program under construction: ``forward(self, x0, …)`` with parameters ``self.w0``, ….

    Attributes
    ----------
    inputs : dict of str to (str, tuple of int, str)
        The dtype, shape and kind of values of each input.
    dynamic : dict of str to tuple of int
        The input axes that are exported as symbolic.
    """

    rng: np.random.Generator
    inputs: dict[str, tuple[str, tuple[int, ...], str]] = field(default_factory=dict)
    dynamic: dict[str, tuple[int, ...]] = field(default_factory=dict)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    clones_before_updates = 0.6
    """The share of in-place updates that are of a new tensor."""

    def __post_init__(self) -> None:
        self.owner = nn.Module()
        self.scope: dict[str, Any] = namespace() | {"self": self.owner}

    @property
    def has_special_values(self) -> bool:
        """Whether an input may hold NaN or infinities, at some size if not at this one."""
        return any(kind == "special" for _, _, kind in self.inputs.values())

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def choose(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def below(self, end: int) -> int:
        return int(self.rng.integers(end))

    def add_input(self, dtype: str, shape: Sequence[int], kind: str) -> Variable:
        """Add an input."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = (dtype, tuple(shape), kind)
        tensor = random_tensor(self.rng, dtype, shape, kind)
        variable = Variable(name, tensor, dtype not in FLOATS or kind in ("exact", "special"))
        self.variables.append(variable)
        self.scope[name] = tensor
        return variable

    def weight(self, dtype: str, shape: Sequence[int], kind: str = "normal") -> str:
        """Add a parameter; return its expression."""
        name = f"w{len(self.weights)}"
        self.weights[name] = random_tensor(self.rng, dtype, shape, kind)
        if dtype in FLOATS:
            setattr(self.owner, name, nn.Parameter(self.weights[name], requires_grad=False))
        else:
            self.owner.register_buffer(name, self.weights[name])
        return f"self.{name}"

    def module(self, source: str, seed: int) -> str:
        """Add a module built by `source`; return its expression."""
        name = f"m{len(self.modules)}"
        self.modules[name] = f"seeded({seed}, lambda: {source})"
        setattr(self.owner, name, eval(self.modules[name], self.scope))
        return f"self.{name}"

    def pick(
        self,
        dtypes: Iterable[str],
        *,
        ranks: Iterable[int] | None = None,
        exact: bool = False,
        nonempty: bool = False,
    ) -> Variable | None:
        """A variable of one of `dtypes`, preferably a recent one; None if no variable fits."""
        fit = [
            v
            for v in self.variables
            if v.dtype in dtypes
            and (ranks is None or v.rank in ranks)
            and (v.exact or not exact)
            and (v.tensor.numel() > 0 or not nonempty)
        ]
        if not fit:
            return None
        return fit[max(self.below(len(fit)), self.below(len(fit)))]

    def let(self, expression: str, operands: Sequence[Variable], *, exact: bool = False) -> None:
        """Add a variable, unless PyTorch rejects the expression or the result is large."""
        name = f"v{len(self.lines)}"
        line = f"{name} = {expression}"
        if not self._execute(line):
            return
        result = self.scope[name]
        if not isinstance(result, torch.Tensor) or result.numel() > 20000:
            del self.scope[name]
            return
        if result.dtype not in NAMES:
            del self.scope[name]
            return
        self.lines.append(line)
        is_exact = exact and all(v.exact for v in operands)
        is_exact = is_exact or not result.is_floating_point()
        self.variables.append(Variable(name, result, is_exact))

    def update(self, statement: str, changed: Variable, operands: Sequence[Variable]) -> None:
        """Add a statement that changes `changed`, and tensors that share its memory, in place."""
        storage = changed.tensor.untyped_storage().data_ptr()
        if not self.may_update(storage) or not self._execute(statement):
            return
        self.lines.append(statement)
        if not all(v.exact for v in operands):
            for variable in self.variables:
                if variable.tensor.untyped_storage().data_ptr() == storage:
                    variable.exact = variable.exact and not variable.tensor.is_floating_point()

    def may_update(self, storage: int) -> bool:
        """Whether a statement may write to a memory: unless it is that of an input or parameter."""
        outside = [self.scope[name] for name in self.inputs]
        outside += [*self.owner.parameters(), *self.owner.buffers()]
        return all(t.untyped_storage().data_ptr() != storage for t in outside)

    def _execute(self, line: str) -> bool:
        try:
            with torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):
                exec(line, self.scope)
        except Exception:  # PyTorch may raise anything for invalid operands
            return False
        return True

    def results(self) -> list[str]:
        """The names that the program returns: the last variable and a few others."""
        names = [v.name for v in self.variables if v.name.startswith("v")]
        return names[-1:] + [name for name in names[:-1] if self.chance(0.25)]

    def source(self, results: Sequence[str]) -> str:
        """The program as a class ``Model``."""
        read = set(re.findall(r"self\.(\w+)", "\n".join(self.lines)))
        body = [f"self.{name} = {source}" for name, source in self.modules.items() if name in read]
        body += [
            f"self.{name} = nn.Parameter(weights[{name!r}], requires_grad=False)"
            if tensor.is_floating_point()
            else f"self.register_buffer({name!r}, weights[{name!r}])"
            for name, tensor in self.weights.items()
            if name in read
        ]
        forward = [*self.lines, f"return ({', '.join(results)},)"]
        lines = [
            "class Model(nn.Module):",
            "    def __init__(self, weights):",
            "        super().__init__()",
            *(f"        {line}" for line in body),
            "",
            f"    def forward(self, {', '.join(self.inputs)}):",
            *(f"        {line}" for line in forward),
        ]
        return "\n".join(lines) + "\n"


def namespace(*, wide: bool = False) -> dict[str, Any]:
    """The names that a program may use; with `wide`, every float dtype is float64."""
    dtypes = {name: torch.float64 if wide and name in FLOATS else d for name, d in DTYPES.items()}

    def seeded(seed: int, make: Any) -> nn.Module:
        torch.manual_seed(seed)
        module: nn.Module = make()
        return module.double().eval() if wide else module.eval()

    return {"torch": torch, "nn": nn, "F": nn.functional, "seeded": seeded, **dtypes}
