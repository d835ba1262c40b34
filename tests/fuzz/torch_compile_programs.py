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
"""Random programs for ``torch.compile``, and their calls.

Inputs may be views, share memory and be written to; so may parameters, and both may be returned.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from . import torch_layers, torch_statements
from .torch_source import DTYPES, FLOATS, Program, Variable, random_tensor
from .torch_statements import ANY
from .values import KINDS

_INPUT_DTYPES = (*("f32",) * 8, "f16", "bf16", "f64", "i64", "i64", "i32", "b8", "u8", "i8")
_LAYOUTS = ("plain", "plain", "plain", "reversed", "offset", "strided", "expanded", "channels_last")
_WIDER = {"f16": "f32", "f32": "f64", "bf16": "f32", "i8": "i32", "i32": "i64", "u8": "i64"}


def laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """A tensor with the elements of `x` in another place in memory; if expanded, its first rows."""
    if layout == "reversed":
        order = range(x.ndim)[::-1]
        return x.permute(*order).contiguous().permute(*order) if x.ndim else x
    if layout == "offset":
        return torch.cat([x.new_ones(1), x.flatten()])[1:].view(x.shape)
    if layout == "strided":
        return torch.stack([torch.zeros_like(x), x], -1)[..., 1]
    if layout == "expanded" and x.ndim:
        return x[:1].clone().expand(x.shape)
    if layout == "channels_last" and x.ndim == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x


@dataclass
class CompiledProgram(Program):
    """A program whose inputs and parameters may be written to.

    Attributes
    ----------
    values : dict of str to torch.Tensor
        The elements of each input that is not a view of another.
    layouts : dict of str to str
        The place of their elements in memory, see :func:`laid_out`.
    views : dict of str to str
        The other inputs, as expressions of inputs.
    written : list of str
        The parameters that statements may write to; others stay free of rounding.
    """

    values: dict[str, torch.Tensor] = field(default_factory=dict)
    layouts: dict[str, str] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    clones_before_updates = 0.15

    def add_input(self, dtype: str, shape: Sequence[int], kind: str) -> Variable:
        """Add an input in a random layout."""
        variable = super().add_input(dtype, shape, kind)
        self.values[variable.name] = variable.tensor.clone()
        self.layouts[variable.name] = layout = self.choose(_LAYOUTS)
        variable.tensor = self.scope[variable.name] = laid_out(variable.tensor, layout)
        return variable

    def add_view(self, of: Variable) -> None:
        """Add an input that shares memory with another."""
        name, n = f"x{len(self.inputs)}", of.name
        forms = [n, f"{n}.detach()", f"{n}.unsqueeze(0)", f"{n}[...]"]
        if of.rank:
            forms += [f"{n}.select(0, -1)", f"{n}[1:]", f"{n}[..., ::2]", f"{n}.transpose(0, -1)"]
        self.views[name] = self.choose(forms)
        try:
            tensor = eval(self.views[name], self.scope)
        except IndexError:  # of no elements
            del self.views[name]
            return
        self.inputs[name] = (of.dtype, tuple(tensor.shape), self.inputs[n][2])
        self.scope[name] = tensor
        self.variables.append(Variable(name, tensor, of.exact))

    def may_update(self, storage: int) -> bool:
        """Whether a statement may write to a memory: it may."""
        return True

    def arguments(self, values: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The inputs of a call with these elements."""
        scope: dict[str, Any] = {}
        for name in self.inputs:
            if name in self.views:
                scope[name] = eval(self.views[name], scope)
            else:
                scope[name] = laid_out(values[name].clone(), self.layouts[name])
        return tuple(scope[name] for name in self.inputs)


@dataclass(frozen=True)
class Call:
    """A call of a compiled program: the elements of its inputs, and a change of the parameters."""

    values: dict[str, torch.Tensor]
    change: Callable[[nn.Module], None] | None = None


def make_program(seed: int) -> tuple[CompiledProgram, list[str]]:
    """The program of `seed`, and what it returns."""
    p = CompiledProgram(np.random.default_rng([31, seed]))
    usual = p.choose(_INPUT_DTYPES)
    shape = [p.choose((1, 2, 3, 4, 5)) for _ in range(p.choose((1, 2, 2, 3, 3, 4)))]
    if p.chance(0.05):
        shape[p.below(len(shape))] = 0
    is_dynamic = p.chance(0.5)
    for index in range(1 + p.below(3)):
        if index and p.chance(0.3):
            p.add_view(p.choose(p.variables))
            continue
        other = [1 if p.chance(0.2) else extent for extent in shape][p.below(2) :]
        other = [] if p.chance(0.06) else other
        dtype = usual if p.chance(0.6) else p.choose(_INPUT_DTYPES)
        x = p.add_input(dtype, other, p.choose(("exact", "exact", "normal", *KINDS)))
        if is_dynamic:
            p.dynamic[x.name] = tuple(a for a, e in enumerate(other) if e > 1 and p.chance(0.7))
    goal = 2 + p.below(8)
    statements, weights = zip(*_STATEMENTS, strict=True)
    shares = np.array(weights) / np.sum(weights)
    for _ in range(80):
        if len(p.lines) >= goal:
            break
        statements[int(p.rng.choice(len(statements), p=shares))](p)
    return p, _results(p)


def _results(p: CompiledProgram) -> list[str]:
    results = p.results() if any(v.name.startswith("v") for v in p.variables) else []
    results += [name for name in p.inputs if p.chance(0.15)]
    results += [f"self.{name}" for name in p.weights if p.chance(0.1)]
    results += [f"{v.name}.shape[0]" for v in p.variables if v.rank and p.chance(0.03)]
    returned = p.pick(ANY, ranks=range(1, 5), nonempty=True)
    if returned is not None and p.chance(0.3):
        n = returned.name
        results.append(p.choose((f"{n}[0]", f"{n}.mT" if returned.rank > 1 else n, f"{n}[...]")))
    return results


def make_calls(p: CompiledProgram, seed: int) -> list[Call]:
    """The calls of a program: with its own inputs, then others."""
    rng = np.random.default_rng([32, seed])
    calls = [Call({name: value.clone() for name, value in p.values.items()})]
    for number in range(int(rng.integers(0, 4 if p.dynamic else 3))):
        sizes: dict[int, int] = {}
        if p.dynamic and rng.random() < 0.85:
            sizes = {extent: extent + 4 + 3 * number for extent in range(2, 12)}
            if rng.random() < 0.2:
                sizes[int(rng.integers(2, 6))] = int(rng.integers(0, 2))
        widens = not sizes and rng.random() < 0.3
        values = {}
        for name, old in p.values.items():
            dtype, _, kind = p.inputs[name]
            axes = p.dynamic.get(name, ())
            shape = [sizes.get(e, e) if a in axes else e for a, e in enumerate(old.shape)]
            values[name] = random_tensor(rng, dtype, shape, kind)
            if widens:
                values[name] = values[name].to(DTYPES[_WIDER.get(dtype, dtype)])
        change = _CHANGES[int(rng.integers(len(_CHANGES)))] if rng.random() < 0.5 else None
        calls.append(Call(values, change))
    return calls


def _changed(value: torch.Tensor) -> torch.Tensor:
    """Other elements that are as free of rounding, and of the same range, as those of `value`."""
    return value.flip(0) if value.ndim else value.clone()


def _load(module: nn.Module) -> None:
    module.load_state_dict({name: _changed(v) for name, v in module.state_dict().items()})


def _write_data(module: nn.Module) -> None:
    for value in (*module.parameters(), *module.buffers()):
        value.data.copy_(_changed(value))


def _replace_data(module: nn.Module) -> None:
    for value in (*module.parameters(), *module.buffers()):
        value.data = _changed(value)


def _replace(module: nn.Module) -> None:
    for name, value in list(module.named_parameters(recurse=False)):
        setattr(module, name, nn.Parameter(_changed(value), requires_grad=False))
    for name, value in list(module.named_buffers(recurse=False)):
        setattr(module, name, _changed(value))


_CHANGES = (_load, _write_data, _replace_data, _replace)


def snapshot(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies of tensors, which share memory as the tensors do."""
    return copy.deepcopy(list(tensors))


def _parameter(p: CompiledProgram) -> None:
    """Name a parameter, for statements that read it, view it or write to it."""
    if not p.written or p.chance(0.4):
        p.written.append(p.weight(p.choose(FLOATS), [1 + p.below(4), 2], "exact"))
    # It is not free of rounding after a call that wrote to it.
    p.let(p.choose(p.written), [])


def _break(p: Program) -> None:
    p.lines.append("torch._dynamo.graph_break()")


def _branch(p: Program) -> None:
    condition, v = p.pick(ANY, exact=True), p.pick(ANY)
    if condition is not None and v is not None:
        p.let(f"{v.name} + 1 if bool(({condition.name} > 0).any()) else {v.name}", [v], exact=True)


def _number(p: Program) -> None:
    v, w = p.pick(ANY), p.pick(ANY, nonempty=True)
    if v is not None and w is not None:
        p.let(f"{v.name} * {w.name}.flatten()[0].item()", [v, w], exact=True)


def _size(p: Program) -> None:
    """Compute with a size."""
    v, w = p.pick(ANY), p.pick(ANY, ranks=range(1, 5))
    if v is not None and w is not None:
        size = f"{w.name}.shape[{p.below(w.rank)}]"
        form = p.choose((f"{size}", f"{size} // 2", f"({size} - 3) * 2", f"{size} % 3"))
        p.let(f"{v.name} + {form}", [v], exact=True)


def _random(p: Program) -> None:
    v = p.pick(FLOATS)
    if v is None:
        return
    # In float32 even in a run in float64, so that the numbers are the same.
    dtype, n = "dtype=torch.float32", v.name
    form = p.choose(
        (
            f"torch.rand({n}.shape, {dtype})",
            f"torch.rand_like({n}, {dtype})",
            f"F.dropout(torch.ones({n}.shape, {dtype}), 0.4, True)",
            f"torch.bernoulli(torch.full({n}.shape, 0.3, {dtype}))",
            f"torch.randint(0, 5, {n}.shape)",
            f"torch.randn({n}.shape, {dtype})",
        )
    )
    p.let(f"{n} + {form}", [v])


_STATEMENTS: tuple[tuple[Callable[[Program], None], float], ...] = (
    *torch_statements.STATEMENTS,
    *torch_layers.STATEMENTS,
    (torch_statements.update, 4),
    (torch_statements.view, 2),
    (_parameter, 1.2),
    (_break, 0.7),
    (_branch, 0.4),
    (_number, 0.4),
    (_size, 0.5),
    (_random, 0.6),
)
