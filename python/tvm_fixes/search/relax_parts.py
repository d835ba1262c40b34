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
"""Parts of Relax modules."""

import ctypes
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import tvm
from tvm import relax, tirx

from ..relax.ir import map_leaves
from ..support.isolate import OutcomeKind, run_forked
from ..support.tensors import arrays_of, to_tvm
from .kernel_parts import (
    shrunk,
    simpler_modules,
    statements_of,
    without_statements,
    without_unused_parameters,
)
from .parts import Candidate, Parts, Text, describe

# The option of mallopt(3) for the byte that new memory is filled with, and two such bytes.
_M_PERTURB = -6
_FILLINGS = (0x3F, 0xC1)

Evaluate = Callable[[tvm.IRModule, Sequence[np.ndarray]], Sequence[Any] | None]
"""Computes the results of ``main``; None if that is not possible."""


def by_virtual_machine(mod: tvm.IRModule, inputs: Sequence[np.ndarray]) -> Sequence[Any] | None:
    """The results of a module built with TVM's own pipeline, in a forked child."""

    def run() -> list[np.ndarray]:
        machine = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
        return arrays_of(machine["main"](*map(to_tvm, inputs)))

    outcome = run_forked(run, timeout=None)
    return outcome.value if outcome.kind is OutcomeKind.VALUE else None  # type: ignore[return-value]


def is_defined(mod: tvm.IRModule, inputs: Sequence[np.ndarray]) -> bool:
    """Whether the results of a module do not depend on what its memory contained before.

    Without some of their statements, kernels may read what they have not written.
    """

    def run(filling: int) -> list[np.ndarray]:
        ctypes.CDLL(None).mallopt(_M_PERTURB, filling)
        # Earlier kernels have left memory in the pools of the virtual machine and of this thread.
        machine = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu(), memory_cfg="naive")
        with ThreadPoolExecutor(1) as thread:
            return arrays_of(thread.submit(machine["main"], *map(to_tvm, inputs)).result())

    found = [run_forked(partial(run, filling), timeout=None) for filling in _FILLINGS]
    if not all(outcome.kind is OutcomeKind.VALUE for outcome in found):
        return False
    first, second = (cast(list[np.ndarray], outcome.value) for outcome in found)
    return all(one.tobytes() == other.tobytes() for one, other in zip(first, second, strict=True))


class RelaxParts(Parts):
    """The bindings of the function ``main`` of a Relax module.

    Parameters
    ----------
    mod : tvm.IRModule
    inputs : sequence of numpy.ndarray
        The values of the parameters.
    evaluate : callable
        Computes the values at a cut.
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        inputs: Sequence[np.ndarray],
        evaluate: Evaluate = by_virtual_machine,
    ) -> None:
        self._mod, self._inputs, self._evaluate = mod, list(inputs), evaluate
        self._main = mod["main"]
        self._blocks = list(self._main.body.blocks)
        self._bindings = [one for block in self._blocks for one in block.bindings]
        self._units = _units(self._bindings)
        self.operators = [_name_of(self._bindings[unit[0]].value) for unit in self._units]
        self._values: dict[relax.Var, np.ndarray] = {}

    def cut(self, kept: Sequence[int]) -> "RelaxCandidate | None":
        label = f"operators {describe(kept)}"
        kept = sorted(place for unit in kept for place in self._units[unit])
        wanted = {self._bindings[place].var for place in kept}
        read = dict.fromkeys(
            var
            for place in kept
            for var in relax.analysis.free_vars(self._bindings[place].value)
            if var not in wanted
        )
        frozen = [var for var in read if var not in list(self._main.params)]
        if len(wanted) == len(self._bindings):
            return RelaxCandidate(
                label,
                {str(i): one for i, one in enumerate(self._inputs)},
                mod=self._mod,
            )
        if not self._know(frozen):
            return None
        return self._part(label, kept, wanted, frozen)

    def _part(
        self, label: str, kept: Sequence[int], wanted: set[relax.Var], frozen: list[relax.Var]
    ) -> "RelaxCandidate | None":
        renamed: dict[relax.Var, relax.Expr] = {}
        params, inputs = list(self._main.params), list(self._inputs)
        for var in frozen:
            renamed[var] = relax.Var(f"{var.name}_", var.ty)
            params.append(renamed[var])
            inputs.append(self._values[var])
        others = [one for one in self._bindings if one.var not in wanted]
        outside = {var for one in others for var in relax.analysis.free_vars(one.value)}
        outside |= set(relax.analysis.free_vars(self._main.body.body))
        ends = [
            self._bindings[place].var
            for place in kept
            if self._bindings[place].var in outside or isinstance(self._main.body.body, relax.Tuple)
        ]
        ends = [var for var in ends if isinstance(var.ty, relax.TensorType)]
        ends = ends or [self._bindings[kept[-1]].var]
        try:
            blocks = rebuilt(self._blocks, renamed, lambda binding: binding.var not in wanted)
            results = [renamed.get(var, var) for var in ends]
            return _candidate(label, self._mod, params, inputs, blocks, results)
        except Exception:  # TVM rejects the part
            return None

    def _know(self, names: Sequence[relax.Var]) -> bool:
        """Compute values in a run of the whole module; False if one is not a tensor."""
        missing = [var for var in names if var not in self._values]
        if not all(isinstance(var.ty, relax.TensorType) for var in missing):
            return False
        if not missing:
            return True
        try:
            function = _ending_with(self._main.params, self._blocks, missing)
        except Exception:  # a value that is not visible at the end
            return False
        mod = tvm.IRModule(dict(self._mod.functions_items()), attrs=self._mod.attrs)
        mod["main"] = function
        found = self._evaluate(mod, self._inputs)
        if found is None or len(found) != len(missing):
            return False
        self._values.update(zip(missing, found, strict=True))
        return True


class _Unsupported(Exception):
    pass


@dataclass(frozen=True)
class RelaxCandidate(Candidate):
    """A part of a Relax module; its inputs have numbers as names.

    Attributes
    ----------
    mod : tvm.IRModule
    """

    mod: tvm.IRModule = field(default_factory=tvm.IRModule)

    @property
    def operators(self) -> list[str]:
        bindings = [one for block in self.mod["main"].body.blocks for one in block.bindings]
        plain = (relax.Var, relax.Tuple, relax.TupleGetItem)
        return [_name_of(one.value) for one in bindings if not isinstance(one.value, plain)]

    def model(self) -> tvm.IRModule:
        return self.mod

    def save(self, folder: Path) -> Path:
        path = folder / "model.json"
        path.write_text(tvm.ir.save_json(self.mod))
        return path

    def arrays(self) -> list[np.ndarray]:
        """The values of the parameters."""
        return list(self.inputs.values())

    def simpler(self) -> "Iterator[RelaxCandidate]":
        """With sizes in place of symbols, with one result, and with smaller extents."""
        for make in (self._with_sizes, self._with_one_result, self._with_smaller_extents):
            try:
                yield from make()
            except Exception:
                # TVM rejects this candidate.
                continue

    def without_statements(self, dropped: Collection[int]) -> "RelaxCandidate | None":
        """Without some of the :func:`.kernel_parts.statements_of` the kernels, by place."""
        every = statements_of(self.mod)
        mod = without_statements(self.mod, [every[place] for place in dropped])
        label = f"{self.label}; without statements {describe(sorted(dropped))}"
        return None if mod is None else replace(self, label=label, mod=mod)

    def with_simpler_kernels(self) -> "Iterator[RelaxCandidate]":
        """With fewer parameters, smaller extents or a simpler statement."""
        with suppress(Exception):  # TVM rejects it
            used = without_unused_parameters(self.mod)
            if used is not None:
                mod, kept = used
                inputs = {str(n): self.arrays()[place] for n, place in enumerate(kept)}
                yield replace(self, label=f"{self.label}; used", mod=mod, inputs=inputs)
        sizes = {size for array in self.arrays() for size in array.shape if size > 1}
        for size in sorted(sizes, reverse=True):
            for new in sorted({1, size // 2} - {0}):
                mod = None
                with suppress(Exception):  # TVM rejects it
                    mod = shrunk(self.mod, size, new)
                if mod is not None:
                    arrays = [_cut(array, size, new) for array in self.arrays()]
                    inputs = dict(zip(self.inputs, arrays, strict=True))
                    label = f"{self.label}; {new} for {size} in the kernel"
                    yield replace(self, label=label, mod=mod, inputs=inputs)
        for label, mod in simpler_modules(self.mod):
            yield replace(self, label=f"{self.label}; {label}", mod=mod)

    def _with_sizes(self) -> "Iterator[RelaxCandidate]":
        sizes: dict[tirx.Var, int] = {}
        for param, array in zip(self.mod["main"].params, self.arrays(), strict=True):
            shape = getattr(param.ty, "shape", None)
            if isinstance(shape, relax.ShapeExpr):
                pairs = zip(shape.values, array.shape, strict=True)
                sizes |= {one: size for one, size in pairs if isinstance(one, tirx.Var)}
        if sizes:
            mod = relax.transform.BindSymbolicVars(sizes, "main")(self.mod)
            yield replace(self, label=f"{self.label}; static", mod=mod)

    def _with_one_result(self) -> "Iterator[RelaxCandidate]":
        main = self.mod["main"]
        body = main.body
        bound = {one.var: one.value for block in body.blocks for one in block.bindings}
        fields = body.body if isinstance(body.body, relax.Tuple) else bound.get(body.body)
        for number, one in enumerate(fields.fields if isinstance(fields, relax.Tuple) else ()):
            function = _ending_with(main.params, body.blocks, [one])
            yield _without_unused(
                f"{self.label}; result {number}", self.mod, function, self.arrays()
            )

    def _with_smaller_extents(self) -> "Iterator[RelaxCandidate]":
        sizes = {size for array in self.arrays() for size in array.shape if size > 1}
        for size in sorted(sizes, reverse=True):
            for new in sorted({1, size // 2, size - 1} - {0}):
                with_new = self._shrunk(size, new)
                if with_new is not None:
                    yield with_new

    def _shrunk(self, size: int, new: int) -> "RelaxCandidate | None":
        """Replace every extent `size` by `new` in all parameters."""
        main = self.mod["main"]
        renamed: dict[relax.Var, relax.Expr] = {}
        params, inputs = [], []
        for param, array in zip(main.params, self.arrays(), strict=True):
            if not isinstance(getattr(param.ty, "shape", None), relax.ShapeExpr):
                return None
            shape = [new if one == size else one for one in array.shape]
            dims = [
                one if isinstance(one, tirx.Var) else extent
                for one, extent in zip(param.ty.shape.values, shape, strict=True)
            ]
            params.append(relax.Var(param.name, relax.TensorType(dims, param.ty.dtype)))
            renamed[param] = params[-1]
            inputs.append(_cut(array, size, new))
        label = f"{self.label}; {new} for {size}"
        try:
            blocks = rebuilt(list(main.body.blocks), renamed, lambda _: False)
            result = main.body.body
            results = list(result.fields) if isinstance(result, relax.Tuple) else [result]
            results = [renamed.get(one, one) for one in results]
            return _candidate(label, self.mod, params, inputs, blocks, results)
        except Exception:
            return None

    def text(self) -> Text:
        main = self.mod["main"]
        names = [str(param.name) for param in main.params]
        lines = self.mod.script(show_meta=True).splitlines()
        return Text(
            name="TVM's own pipeline",
            imports=("tvm",),
            reference_imports=("os", "from tvm import relax"),
            stock_imports=(),
            # The printer puts the imports into comments.
            model=["", *(line.removeprefix("# ") for line in lines), "", ""],
            stock=["mod = Module"],
            reference=[
                f'os.environ["TVM_FIXES_DISABLE"] = {",".join(_all_fixes())!r}',
                'stock = relax.VirtualMachine(relax.build(Module, "llvm"), tvm.cpu())',
                "",
                "",
                "def reference():",
                '    result = stock["main"](*map(tvm.runtime.tensor, inputs.values()))',
                "    return [one.numpy() for one in "
                "([result] if hasattr(result, 'numpy') else result)]",
                "",
                "",
                "expected = reference()",
            ],
            inputs=dict(zip(names, self.arrays(), strict=True)),
            constants={},
            drawn={names[int(number)]: one for number, one in self.drawn.items()},
            wrap=["model = Module"],
        )


def _cut(array: np.ndarray, size: int, new: int) -> np.ndarray:
    """The part of an array with `new` elements along each axis of `size`."""
    return array[tuple(slice(new) if one == size else slice(None) for one in array.shape)]


def _all_fixes() -> list[str]:
    from ..support.switches import FIX_IDS

    return sorted(FIX_IDS)


def _name_of(value: relax.Expr) -> str:
    op = getattr(value, "op", None)
    name = getattr(op, "name", None) or getattr(op, "name_hint", None) or type(value).__name__
    return str(name).removeprefix("relax.")


def _units(bindings: Sequence[relax.Binding]) -> list[list[int]]:
    """The places of each operator's binding, with those that read the fields of its result."""
    units: dict[relax.Var, list[int]] = {}
    for place, binding in enumerate(bindings):
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in units:
            units[value.tuple_value].append(place)
        else:
            units[binding.var] = [place]
    return list(units.values())


def _ending_with(
    params: Sequence[relax.Var],
    blocks: Sequence[relax.BindingBlock],
    results: Sequence[relax.Expr],
) -> relax.Function:
    """A function with results that are bound in its last block."""
    value = results[0] if len(results) == 1 else relax.Tuple(results)
    type_ = value.ty if len(results) == 1 else relax.TupleType([one.ty for one in results])
    # In the last block, which can read the variables of a dataflow block.
    out = relax.VarBinding(relax.Var("out", type_), value)
    last = type(blocks[-1])([*blocks[-1].bindings, out])
    seq = relax.SeqExpr([*blocks[:-1], last], out.var)
    function = relax.Function(params, relax.BlockBuilder().normalize(seq))
    return function.with_attr("global_symbol", "main")


def _candidate(
    label: str,
    mod: tvm.IRModule,
    params: Sequence[relax.Var],
    inputs: Sequence[np.ndarray],
    blocks: Sequence[relax.BindingBlock],
    results: Sequence[relax.Expr],
) -> RelaxCandidate:
    return _without_unused(label, mod, _ending_with(params, blocks, results), inputs)


def _without_unused(
    label: str, mod: tvm.IRModule, function: relax.Function, inputs: Sequence[np.ndarray]
) -> RelaxCandidate:
    """A module with another ``main``, without unused parameters and functions."""
    mod = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    mod["main"] = function.with_attr("global_symbol", "main")
    mod = relax.transform.DeadCodeElimination(["main"])(mod)
    function = mod["main"]
    used = set(relax.analysis.all_vars(function.body))
    symbols = {symbol for param in function.params if param in used for symbol in _symbols(param)}
    kept = [
        place
        for place, param in enumerate(function.params)
        if param in used or any(one not in symbols for one in _symbols(param))
    ]
    smaller = relax.Function([function.params[i] for i in kept], function.body, function.ret_ty)
    mod["main"] = smaller.with_attr("global_symbol", "main")
    named = {str(number): inputs[place] for number, place in enumerate(kept)}
    return RelaxCandidate(label, named, mod=mod)


def _symbols(param: relax.Var) -> set[tirx.Var]:
    """The symbols that a parameter binds."""
    shape = getattr(param.ty, "shape", None)
    extents = shape.values if isinstance(shape, relax.ShapeExpr) else []
    return {one for one in extents if isinstance(one, tirx.Var)}


def rebuilt(
    blocks: Sequence[relax.BindingBlock],
    renamed: dict[relax.Var, relax.Expr],
    is_dropped: Callable[[relax.Binding], bool],
) -> list[relax.BindingBlock]:
    """The bindings with new variables and newly inferred types; adds to `renamed`."""
    builder, found = relax.BlockBuilder(), []
    for block in blocks:
        bindings: list[relax.Binding] = []
        for binding in block.bindings:
            if is_dropped(binding):
                continue
            if isinstance(binding.value, relax.If):
                if any(var in renamed for var in relax.analysis.free_vars(binding.value)):
                    raise _Unsupported("a branch that reads a changed variable")
                bindings.append(binding)
                continue
            value = map_leaves(binding.value, lambda leaf: renamed.get(leaf, leaf))
            if isinstance(binding, relax.MatchCast):
                cast = type(binding.var)(binding.var.name, binding.ty)
                renamed[binding.var] = cast
                bindings.append(relax.MatchCast(cast, value, binding.ty))
                continue
            value = builder.normalize(value)
            var = type(binding.var)(binding.var.name, value.ty)
            renamed[binding.var] = var
            bindings.append(relax.VarBinding(var, value))
        if bindings:
            found.append(type(block)(bindings))
    return found
