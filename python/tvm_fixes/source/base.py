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
"""What every source of a model has: inputs, a way into Relax, and a reference."""

import importlib
import types
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import tvm
from tvm import relax

from ..errors import CompileError, UnsupportedOperatorError, UsageError, summarize
from ..runtime.manifest import Dim, Signature, TensorSpec, describe_function, describe_shape
from ..support import logs
from ..support.isolate import OutcomeKind, run_forked
from ..support.memory import Scratch
from ..support.tensors import numpy_dtype

Shapes = Mapping[str, Sequence[Dim]]
Reference = Callable[[list[np.ndarray]], list[np.ndarray]]

# The sizes that the reference is asked at, for a symbolic dim of which nothing is known: a batch
# that is not 1, and an extent that a few layers of downsampling leave something of.
_BATCH, _EXTENT = 2, 32

# The bytes of parameters up to which a model is run in float64, in twice or four times as many.
_MOST_IN_FLOAT64 = 2 << 30

# How long that may take.
_SECONDS_IN_FLOAT64 = 60.0

# How many nodes a message lists.
_LISTED = 5


class Source(ABC):
    """A model to compile.

    Attributes
    ----------
    name : str
        How messages and reports call it.
    inputs : tuple of TensorSpec
        Its inputs as it declares them, before any shape is chosen.
    output_names : tuple of str
        The names of its outputs.
    parameter_bytes : int
        The size of its parameters and constants, shared storage counted once.
    has_reference : bool
        Whether something else can run it, so that outputs can be compared.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    output_names: tuple[str, ...]
    parameter_bytes: int
    has_reference: bool = True

    def __init__(self, name: str, shapes: Shapes | None = None):
        self.name = name
        self.shapes = {
            key: tuple(dim if isinstance(dim, str) else int(dim) for dim in dims)
            for key, dims in (shapes or {}).items()
        }
        self._is_static = False
        self._scratch: Scratch | None = None

    def keep_in(self, scratch: Scratch) -> None:
        """Have the large constants of the import lie in a file, as far as they would be copied."""
        self._scratch = scratch

    def _keep(self, tensor: tvm.runtime.Tensor) -> tvm.runtime.Tensor:
        return tensor if self._scratch is None else self._scratch.keep(tensor)

    @abstractmethod
    def to_relax(self) -> tvm.IRModule:
        """Import the model, as a function ``main`` whose parameters are constants."""

    def signature(self, main: relax.Function) -> Signature:
        """What the imported function takes and returns, by the model's names."""
        return describe_function(main, [spec.name for spec in self.inputs], self.output_names)

    @abstractmethod
    def parameters(self) -> Iterator[tuple[str, np.ndarray]]:
        """The parameters and constants: the model's own names, and their bytes.

        Yields
        ------
        name : str
            Empty where the model has no names.
        data : numpy.ndarray
            Of dtype uint8 and one dimension; it may be a view of the model's memory.
        """

    @abstractmethod
    def reference(self) -> tuple[str, Reference]:
        """Make what answers for the model.

        Returns
        -------
        name : str
            Such as ``"ONNX Runtime 1.31.1"``.
        run : callable
            From the inputs, in order, to the outputs, in order.
        """

    def float64_outputs(self, inputs: list[np.ndarray]) -> list[np.ndarray] | None:
        """What the model gives where it computes in float64; None where that can't be told.

        It runs in a forked child, for a limited time.
        """
        if self.parameter_bytes > _MOST_IN_FLOAT64:
            return None

        def run() -> list[np.ndarray] | None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self._run_in_float64(inputs)

        outcome = run_forked(run, timeout=_SECONDS_IN_FLOAT64)
        if outcome.kind is OutcomeKind.VALUE:
            return cast(list[np.ndarray] | None, outcome.value)
        # An operator without float64, a crash, or the end of the time: the verdict stays as it is.
        reason = " ".join(str(outcome).split())
        logs.debug("compare", f"{self.name} does not run in float64: {reason}")
        return None

    def _run_in_float64(self, inputs: list[np.ndarray]) -> list[np.ndarray] | None:
        return None

    def example_inputs(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw random inputs: floats from N(0, 1), integers from {0, 1}, booleans.

        Symbolic dims that `shapes` gives no size are 2 where they are first seen as the first axis,
        else 32.
        """
        sizes = self._sizes(default=True)
        return [self._draw(rng, spec, self._sized(spec, sizes)) for spec in self.inputs]

    def check_shapes(self) -> None:
        """Hold `shapes` against the inputs.

        Raises
        ------
        UsageError
            If there is no such input, its shape differs where it is static, or one symbolic dim is
            given two sizes or names.
        """
        self._check_fit(self.shapes)
        seen: dict[str, Dim] = {}
        for symbol, dim in self._given():
            if seen.setdefault(symbol, dim) != dim:
                raise UsageError(
                    f"dim {symbol!r} of {self.name} is given twice: {seen[symbol]} and {dim}"
                )

    def _check_fit(self, shapes: Shapes, *, can_name: bool = False) -> None:
        """Hold `shapes` against the inputs; a static dim may be given a name if `can_name`."""
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
                raise UsageError(f"input {name!r} of {self.name}: no extent can be {large}")
            if declared is not None and not _fits(dims, declared, can_name):
                raise UsageError(
                    f"input {name!r} of {self.name}: expected shape {describe_shape(declared)}, "
                    f"got {describe_shape(dims)}"
                )

    def make_static(self) -> None:
        """Choose, in `shapes`, a size for every symbolic dim.

        Raises
        ------
        UsageError
            If there is a dim whose size neither `shapes` nor an example input tells.
        """
        sizes = self._sizes()
        self.shapes = {spec.name: self._sized(spec, sizes) for spec in self.inputs}
        self._is_static = True

    def chosen_shape(self, spec: TensorSpec) -> tuple[Dim, ...] | None:
        """The shape of an input, with the sizes and names that `shapes` gives to symbolic dims."""
        if spec.name in self.shapes or spec.shape is None:
            return self.shapes.get(spec.name)
        chosen = dict(self._given())
        return tuple(chosen.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape)

    def _given(self) -> Iterator[tuple[str, Dim]]:
        """The symbolic dims of the inputs that `shapes` gives, and what it gives them."""
        for spec in self.inputs:
            for dim, given in zip(spec.shape or (), self.shapes.get(spec.name, ()), strict=False):
                if isinstance(dim, str):
                    yield dim, given

    def _sizes(self, *, default: bool = False) -> dict[str, int]:
        """Sizes of the symbolic dims: those that examples tell, and with `default` all others."""
        sizes: dict[str, int] = {}
        for spec in self.inputs:
            for axis, dim in enumerate(self.chosen_shape(spec) or ()):
                if isinstance(dim, str) and dim not in sizes:
                    size = self._example_size(spec, axis)
                    if size is None and default:
                        size = _EXTENT if axis else _BATCH
                    if size is not None:
                        sizes[dim] = size
        return sizes

    def _example_size(self, spec: TensorSpec, axis: int) -> int | None:
        """The extent of the example of an input, where there is one."""
        return None

    def _sized(self, spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
        shape = self.chosen_shape(spec)
        if shape is None:
            raise UsageError(
                f"input {spec.name!r} of {self.name} has no known rank: give its shape"
            )
        unknown = [dim for dim in shape if isinstance(dim, str) and dim not in sizes]
        if unknown:
            raise UsageError(
                f"input {spec.name!r} of {self.name}: give a size of {', '.join(unknown)}"
            )
        return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in shape)

    def _bind_dims(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Give symbols of `mod` the names, or where all is static the sizes, that are chosen."""
        main = mod["main"]
        chosen: dict[tvm.tirx.Var, Dim] = {}
        for spec, param in zip(self.inputs, main.params, strict=True):
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
        """Make what is raised for an importer's `error`.

        Parameters
        ----------
        error : Exception
            What the importer raised.
        missing : iterable of str
            The operators that it has no conversion for, where that is what it says.
        nodes : sequence of str
            The nodes that it is about, described.
        """
        if missing := sorted(missing):
            more = f" and {len(nodes) - _LISTED} more" if len(nodes) > _LISTED else ""
            return UnsupportedOperatorError(
                f"{self.name}: no conversion for {', '.join(missing)}: "
                f"{', '.join(nodes[:_LISTED])}{more}"
            )
        if nodes:
            return UnsupportedOperatorError(
                f"{self.name}: cannot import {nodes[0]}: {summarize(error)}"
            )
        return CompileError(f"{self.name}: cannot be imported: {summarize(error)}")

    def _draw(
        self, rng: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...]
    ) -> np.ndarray:
        return draw(rng, spec, shape, 0, 1)


def import_extra(module: str, extra: str, what: str) -> types.ModuleType:
    """Import a package that is not installed with this one by default.

    Parameters
    ----------
    module : str
        Its name.
    extra : str
        The extra of this package that installs it.
    what : str
        What needs it, for the message.

    Raises
    ------
    UsageError
        If it is not installed.
    CompileError
        If it is installed and does not load.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise UsageError(
                f"{what} needs the package {module}: pip install 'tvm-fixes[{extra}]'"
            ) from error
        raise CompileError(f"{module} cannot be imported: {summarize(error)}") from error
    except Exception as error:
        raise CompileError(f"{module} cannot be imported: {summarize(error)}") from error


def draw(
    rng: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...], low: int, high: int
) -> np.ndarray:
    """Draw an array of `spec`'s dtype and of `shape`; integers from `low` to `high`, both in it."""
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(low, high, shape, dtype=dtype, endpoint=True)
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def local_of(error: BaseException, name: str, kind: type) -> Any:
    """The local variable `name` of the innermost frame of `error` that has it.

    The importers do not say which node they were at; the frames of their loops over nodes do.
    """
    found = None
    frame = error.__traceback__
    while frame is not None:
        value = frame.tb_frame.f_locals.get(name)
        if value is not None and isinstance(value, kind):
            found = value
        frame = frame.tb_next
    return found


def _fits(dims: Sequence[Dim], declared: Sequence[Dim], can_name: bool) -> bool:
    return len(dims) == len(declared) and all(
        isinstance(want, str) or want == got or (can_name and isinstance(got, str))
        for got, want in zip(dims, declared, strict=True)
    )
