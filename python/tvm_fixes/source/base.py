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
"""The base class of sources: inputs, import to Relax, and a reference."""

import importlib
import math
import os
import stat
import types
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import tvm
from tvm import relax

from ..errors import CompileError, UnsupportedOperatorError, UsageError, summarize
from ..relax.source_nodes import SourceNode
from ..runtime.manifest import Dim, Signature, TensorSpec, describe_function, describe_shape
from ..support import logs
from ..support.isolate import OutcomeKind, run_forked
from ..support.memory import Scratch
from .examples import Drawn, Example, has_magnitude, scaled, used_sizes
from .rounding import moved, steps_of

Shapes = Mapping[str, Sequence[Dim]]
Reference = Callable[[list[np.ndarray]], list[np.ndarray]]

_Outputs = TypeVar("_Outputs")

# The number of runs that round after each node: enough to see how sensitive the model is to it.
_STEPWISE_RUNS = 4

# Limits of a run in float64: the size of the parameters in bytes, and the time.
_MAX_FLOAT64_BYTES, _MAX_FLOAT64_SECONDS = 2 << 30, 60.0

# The maximum number of nodes that a message lists.
_MAX_LISTED = 5


@dataclass(frozen=True)
class ModelValue:
    """A tensor that a node of a model computes.

    Attributes
    ----------
    name : str
        The name of the value.
    node : SourceNode
    nbytes : int or None
        Its size for the example inputs, if known.
    """

    name: str
    node: SourceNode
    nbytes: int | None


def existing(path: Path) -> Path:
    """The path of a file.

    Raises
    ------
    UsageError
        If there is no such file.
    """
    try:
        kind = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {summarize(error)}") from error
    if not stat.S_ISREG(kind):
        raise UsageError(f"{path}: not a file")
    return path


class Source(ABC):
    """A model to compile.

    Attributes
    ----------
    name : str
        Its name in messages and reports.
    inputs : tuple of TensorSpec
        Its declared inputs, without chosen shapes.
    output_names : tuple of str
        The names of its outputs.
    parameter_bytes : int
        The size of its parameters and constants, shared storage counted once.
    numbers : dict of str to str
        For each input that is an integer, the symbolic dim that it equals.
    has_reference : bool
        Whether something else can run it, so that outputs can be compared.
    magnitude : float or None
        The factor of random floats in inputs, if one was set.
    files_beside : tuple of str
        The files that it reads besides its own, relative to the folder of that one.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    output_names: tuple[str, ...]
    parameter_bytes: int
    has_reference: bool = True
    files_beside: tuple[str, ...] = ()

    def __init__(self, name: str, shapes: Shapes | None = None):
        self.name = name
        self.shapes = {
            key: tuple(dim if isinstance(dim, str) else int(dim) for dim in dims)
            for key, dims in (shapes or {}).items()
        }
        self.numbers: dict[str, str] = {}
        self._is_static = False
        self._static_numbers: dict[str, int] = {}
        self._scratch: Scratch | None = None
        self._example = Example()
        self._given_sizes: dict[str, int] = {}
        self.magnitude: float | None = None

    def keep_in(self, scratch: Scratch) -> None:
        """Store copies of large constants in a file during the import."""
        self._scratch = scratch

    def _keep(self, tensor: tvm.runtime.Tensor) -> tvm.runtime.Tensor:
        return tensor if self._scratch is None else self._scratch.keep(tensor)

    @abstractmethod
    def to_relax(self) -> tvm.IRModule:
        """Import the model as a function ``main``, with its parameters as constants."""

    def to_stock_relax(self) -> tvm.IRModule:
        """Import the model with TVM's own importer."""
        return self.to_relax()

    def signature(self, main: relax.Function) -> Signature:
        """The signature of the imported function, with the model's names."""
        return describe_function(main, [spec.name for spec in self.inputs], self.output_names)

    @abstractmethod
    def parameters(self) -> Iterator[tuple[str, np.ndarray]]:
        """The names and bytes of the parameters and constants.

        Yields
        ------
        name : str
            The model's name; empty if it has none.
        data : numpy.ndarray
            A 1-D array of uint8, which may be a view of the model's memory.
        """

    @abstractmethod
    def reference(self) -> tuple[str, Reference]:
        """Make the reference of the model, in a process of its own, whose threads it sets.

        Returns
        -------
        name : str
            Such as ``"ONNX Runtime 1.31.1"``.
        run : callable
            Maps the inputs, in order, to the outputs, in order.
        """

    def rounded_reference(self, seed: int) -> Reference:
        """The reference with other rounding errors, to measure how sensitive the model is to them.

        With an even seed, it takes another arithmetic path, such as one without the optimizer of
        the runtime.  Except with seed 0, the inputs move by rounding errors, and with an even seed
        the weights too: :func:`.rounding.steps_of`.
        """
        _, run = self.reference()
        rng = np.random.default_rng(seed)
        steps = steps_of(seed)
        return lambda inputs: run([moved(value, rng, steps) for value in inputs])

    def values(self, inputs: list[np.ndarray]) -> list[ModelValue]:
        """The intermediate values of the model for `inputs`, in the order of their computation.

        Raises
        ------
        UsageError
            If nothing else can run the model.
        """
        raise UsageError(f"{self.name}: no other runtime can run it, so there is no reference")

    def with_outputs(self, names: Sequence[str]) -> "Source":
        """The part of the model that computes some of its :meth:`values`, and returns them."""
        raise NotImplementedError

    def save_in(self, folder: Path) -> Path:
        """Write the model to a file in `folder`, for another process; return the file."""
        raise NotImplementedError

    def float64_outputs(self, inputs: list[np.ndarray]) -> list[np.ndarray] | None:
        """The outputs of the model, computed in float64; None if that is not possible.

        It runs in a forked child, for a limited time.
        """
        return self._in_child(lambda: self._run_in_float64(inputs))

    def stepwise_outputs(self, inputs: list[np.ndarray]) -> list[list[np.ndarray]]:
        """The outputs of runs that round to 16 bits after each node, where a value has them.

        The first has no other error; others have that of kernels in float32.  Empty if the model
        has no such values, if its reference rounds so itself, or if that is not possible.
        """

        def run() -> list[list[np.ndarray]]:
            first = self._run_stepwise(inputs, 0)
            if first is None:
                return []
            others = (self._run_stepwise(inputs, seed) for seed in range(1, _STEPWISE_RUNS))
            return [first, *(run for run in others if run is not None)]

        return self._in_child(run) or []

    def exported_outputs(self, inputs: list[np.ndarray]) -> list[np.ndarray] | None:
        """The outputs of what is compiled, if the reference runs what it was exported from."""
        return None

    def _in_child(self, run: Callable[[], _Outputs]) -> _Outputs | None:
        """The result of another run, in a forked child; None if that is not possible."""
        if self.parameter_bytes > _MAX_FLOAT64_BYTES:
            return None

        def silently() -> _Outputs:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return run()

        outcome = run_forked(silently, timeout=_MAX_FLOAT64_SECONDS)
        if outcome.kind is OutcomeKind.VALUE:
            return cast(_Outputs, outcome.value)
        # An operator without float64, a crash or a timeout: the verdict does not change.
        reason = " ".join(str(outcome).split())
        logs.debug("compare", f"{self.name}: a further run fails: {reason}")
        return None

    def _run_in_float64(self, inputs: list[np.ndarray]) -> list[np.ndarray] | None:
        return None

    def _run_stepwise(self, inputs: list[np.ndarray], seed: int) -> list[np.ndarray] | None:
        return None

    def example_inputs(
        self, rng: np.random.Generator, example: Example | None = None
    ) -> list[np.ndarray]:
        """Draw random inputs: as `example` says, or as before.

        By default, floats are from N(0, 1) and integers from {0, 1}; a symbolic dim without a size
        in `shapes` is 2 if it first occurs on axis 0, else 32.
        """
        self._example = example or self._example
        sizes = self._sizes(default=True)
        arrays = [self._draw(rng, spec, self._sized(spec, sizes)) for spec in self.inputs]
        return scaled(arrays, self.magnitude or 1.0)

    def further_inputs(self, seed: int, magnitudes: Sequence[float] = ()) -> list[list[Drawn]]:
        """Random inputs of further sizes and magnitudes, after :meth:`example_inputs`; empty if all
        are fixed.

        Of each list, the first inputs that the model accepts are enough.
        """
        example, specs = self._example, self.chosen_inputs()

        def drawn(example: Example) -> list[np.ndarray]:
            return self.example_inputs(np.random.default_rng(seed), example)

        first = drawn(example)
        found, seen = [], [used_sizes(specs, first)]
        for group in example.further():
            inputs = []
            for one in group:
                arrays = drawn(one)
                sizes = used_sizes(specs, arrays)
                if sizes not in seen:
                    seen.append(sizes)
                    inputs.append(Drawn(arrays, self.magnitude or 1.0))
            found += [inputs] if inputs else []
        self._example = example
        if self.magnitude is None and has_magnitude(first):
            found += [[Drawn(scaled(first, one), one)] for one in magnitudes]
        return found

    def chosen_inputs(self) -> list[TensorSpec]:
        """The inputs with the chosen shapes."""
        return [replace(spec, shape=self.chosen_shape(spec)) for spec in self.inputs]

    def set_sizes(self, sizes: Mapping[str, int]) -> None:
        """Set sizes of symbolic dims for the comparison, which leave them symbolic.

        Raises
        ------
        UsageError
            If there is no such dim, or a size is negative.
        """
        known = dict.fromkeys(
            dim
            for spec in self.inputs
            for dim in self.chosen_shape(spec) or ()
            if isinstance(dim, str)
        )
        known.update(dict.fromkeys(self.numbers.values()))
        for name, size in sizes.items():
            if name not in known:
                raise UsageError(
                    f"size given for unknown dim {name!r}; symbolic dims of {self.name}: "
                    f"{', '.join(known) or 'none'}"
                )
            if not 0 <= size < 1 << 63:
                raise UsageError(f"dim {name!r} of {self.name}: expected a size, got {size}")
        self._given_sizes = dict(sizes)

    def set_magnitude(self, magnitude: float | None) -> None:
        """Set the factor of random floats in inputs; None for 1, and perhaps further ones.

        Raises
        ------
        UsageError
            If it is not positive and finite.
        """
        if magnitude is not None and not 0 < magnitude < math.inf:
            raise UsageError(f"magnitude must be positive and finite, got {magnitude}")
        self.magnitude = magnitude

    def check_shapes(self) -> None:
        """Check `shapes` against the inputs.

        Raises
        ------
        UsageError
            If an input is unknown, a static dim differs, or one symbolic dim is given two sizes or
            names.
        """
        self._check_fit(self.shapes)
        seen: dict[str, Dim] = {}
        for symbol, dim in self._given():
            differs = seen.setdefault(symbol, dim) != dim
            if differs and not self._can_split(symbol, (seen[symbol], dim)):
                raise UsageError(
                    f"dim {symbol!r} of {self.name} is given twice: {seen[symbol]} and {dim}"
                )

    def _can_split(self, symbol: str, dims: Sequence[Dim]) -> bool:
        """Whether the inputs with a symbolic dim may have different `dims` instead."""
        return False

    def _check_fit(self, shapes: Shapes, *, can_name: bool = False) -> None:
        """Check `shapes` against the inputs; `can_name` allows names for static dims."""
        known = {spec.name: spec for spec in self.inputs}
        for name, dims in shapes.items():
            if name not in known:
                raise UsageError(
                    f"shape given for unknown input {name!r}; inputs of {self.name}: "
                    f"{', '.join(known) or 'none'}"
                )
            declared = known[name].shape
            large = next((dim for dim in dims if isinstance(dim, int) and dim >= 1 << 63), None)
            if large is not None:
                raise UsageError(f"input {name!r} of {self.name}: extent {large} is too large")
            if declared is not None and not _fits(dims, declared, can_name):
                raise UsageError(
                    f"input {name!r} of {self.name}: expected shape {describe_shape(declared)}, "
                    f"got {describe_shape(dims)}"
                )

    def make_static(self) -> None:
        """Set a size for every symbolic dim in `shapes`.

        Raises
        ------
        UsageError
            If neither `shapes` nor an example input determines the size of a dim.
        """
        sizes = self._sizes()
        self.shapes = {spec.name: self._sized(spec, sizes) for spec in self.inputs}
        self._is_static = True
        self._static_numbers = {name: sizes[dim] for name, dim in self.numbers.items()}

    def chosen_shape(self, spec: TensorSpec) -> tuple[Dim, ...] | None:
        """The shape of an input, with the sizes and names from `shapes`."""
        if spec.name in self.shapes or spec.shape is None:
            return self.shapes.get(spec.name)
        chosen = dict(self._given())
        return tuple(chosen.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape)

    def _given(self) -> Iterator[tuple[str, Dim]]:
        """The symbolic dims of the inputs, and their sizes or names in `shapes`."""
        for spec in self.inputs:
            for dim, given in zip(spec.shape or (), self.shapes.get(spec.name, ()), strict=False):
                if isinstance(dim, str):
                    yield dim, given

    def _sizes(self, *, default: bool = False) -> dict[str, int]:
        """The sizes of symbolic dims from the examples; with `default`, those of all others too."""
        sizes: dict[str, int] = {}
        batches: list[str] = []
        for spec in self.inputs:
            for axis, dim in enumerate(self.chosen_shape(spec) or ()):
                if isinstance(dim, str) and dim not in sizes:
                    size = self._given_sizes.get(dim)
                    if size is None and not self._example.is_further:
                        size = self._example_size(spec, axis)
                    if size is None and default:
                        usual = self._example.size_of(spec, axis, len(batches))
                        size = self._within_bounds(spec, axis, usual)
                    if size is not None:
                        sizes[dim] = size
                        batches += [dim] if axis == 0 else []
        return sizes

    def _example_size(self, spec: TensorSpec, axis: int) -> int | None:
        """An extent of the example of an input; None without an example."""
        return None

    def _within_bounds(self, spec: TensorSpec, axis: int, size: int) -> int:
        """The size of a symbolic dim that the model allows, and that is the nearest to `size`."""
        return size

    def _sized(self, spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
        shape = self.chosen_shape(spec)
        if shape is None:
            raise UsageError(
                f"input {spec.name!r} of {self.name} has an unknown rank; give its shape"
            )
        unknown = [dim for dim in shape if isinstance(dim, str) and dim not in sizes]
        if unknown:
            raise UsageError(
                f"input {spec.name!r} of {self.name}: give a size for {', '.join(unknown)}"
            )
        return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in shape)

    def _bind_dims(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Bind the symbols of `mod` to the chosen names, or to sizes if all dims are static."""
        main = mod["main"]
        chosen: dict[tvm.tirx.Var, Dim] = {}
        for spec, param in zip(self.inputs, main.params, strict=True):
            if spec.name in self.numbers:
                if self._is_static and tvm.ir.is_prim_var(param.ty.values[0]):
                    chosen[param.ty.values[0]] = self._static_numbers[spec.name]
                continue
            for extent, dim in zip(param.ty.shape, self.chosen_shape(spec) or (), strict=True):
                if tvm.ir.is_prim_var(extent) and (self._is_static or isinstance(dim, str)):
                    chosen[extent] = dim
        names = {str(var.name): dim for var, dim in chosen.items() if isinstance(dim, str)}
        for key in ("tir_var_lower_bound", "tir_var_upper_bound"):
            bounds = (main.attrs or {}).get(key)
            if bounds is not None:
                renamed = {names.get(str(name), str(name)): end for name, end in bounds.items()}
                main = main.with_attr(key, renamed)
        mod = tvm.IRModule({**mod.functions, mod.get_global_var("main"): main}, attrs=mod.attrs)
        symbols = {name: tvm.tirx.Var(name, "int64") for name in names.values()}
        binding = {
            var: symbols[dim] if isinstance(dim, str) else dim for var, dim in chosen.items()
        }
        return relax.transform.BindSymbolicVars(binding, "main")(mod)

    def _import_error(
        self, error: Exception, *, missing: Iterable[str] = (), nodes: Sequence[str] = ()
    ) -> CompileError:
        """Convert an exception of an importer.

        Parameters
        ----------
        error : Exception
            The importer's exception.
        missing : iterable of str
            The unsupported operators, if these are the reason.
        nodes : sequence of str
            Descriptions of the nodes at fault.
        """
        if missing := sorted(missing):
            more = f" and {len(nodes) - _MAX_LISTED} more" if len(nodes) > _MAX_LISTED else ""
            return UnsupportedOperatorError(
                f"{self.name}: unsupported operator {', '.join(nodes[:_MAX_LISTED])}{more}"
            )
        if nodes:
            # The error may name the node, too: Add 'add1', not Add at node 'add1'.
            text = summarize(error).removeprefix(nodes[0].replace(" at node ", " ") + ": ")
            return UnsupportedOperatorError(f"{self.name}: cannot import {nodes[0]}: {text}")
        return CompileError(f"{self.name}: cannot import: {summarize(error)}")

    def _draw(
        self, rng: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...]
    ) -> np.ndarray:
        return self._example.draw(rng, spec, shape)


def import_extra(module: str, what: str) -> types.ModuleType:
    """Import an optional package.

    Parameters
    ----------
    module : str
        The name of the package.
    what : str
        The feature that needs it, for the message.

    Raises
    ------
    UsageError
        If it is not installed.
    CompileError
        If it is installed but does not load.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise UsageError(f"{what} needs the package {module}: pip install {module}") from error
        raise CompileError(f"cannot import {module}: {summarize(error)}") from error
    except Exception as error:
        raise CompileError(f"cannot import {module}: {summarize(error)}") from error


def local_of(error: BaseException, name: str, kind: type) -> Any:
    """The local variable `name` of the innermost frame of `error` that has it.

    The importers' errors do not name the node; the frames of their loops over nodes have it.
    """
    innermost = None
    frame = error.__traceback__
    while frame is not None:
        value = frame.tb_frame.f_locals.get(name)
        if value is not None and isinstance(value, kind):
            innermost = value
        frame = frame.tb_next
    return innermost


def _fits(dims: Sequence[Dim], declared: Sequence[Dim], can_name: bool) -> bool:
    return len(dims) == len(declared) and all(
        isinstance(want, str) or want == got or (can_name and isinstance(got, str))
        for got, want in zip(dims, declared, strict=True)
    )
