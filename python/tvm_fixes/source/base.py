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

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm

from ..errors import CompileError, UnsupportedOperatorError, UsageError, summarize
from ..runtime.manifest import Dim, TensorSpec, describe_shape

Shapes = Mapping[str, Sequence[int]]
Reference = Callable[[list[np.ndarray]], list[np.ndarray]]

# For a symbolic dim of which nothing is known: a batch that is not 1, and an extent that a few
# layers of downsampling leave something of.
_BATCH, _EXTENT = 2, 32

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
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    output_names: tuple[str, ...]
    parameter_bytes: int

    def __init__(self, name: str, shapes: Shapes | None = None):
        self.name = name
        self.shapes = {key: tuple(map(int, dims)) for key, dims in (shapes or {}).items()}

    @abstractmethod
    def to_relax(self) -> tvm.IRModule:
        """Import the model, as a function ``main`` whose parameters are constants."""

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

    def example_inputs(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw random inputs: floats from N(0, 1), integers from {0, 1}, booleans.

        Symbolic dims have the sizes of `shapes`, else 2 for the first axis and 32 for others.
        """
        sizes = self._sizes()
        return [self._draw(rng, spec, self._shape(spec, sizes)) for spec in self.inputs]

    def _sizes(self) -> dict[str, int]:
        """The sizes that `shapes` gives to symbolic dims."""
        sizes: dict[str, int] = {}
        for spec in self.inputs:
            for dim, size in zip(spec.shape or (), self.shapes.get(spec.name, ()), strict=False):
                if isinstance(dim, str):
                    sizes[dim] = size
        return sizes

    def check_shapes(self) -> None:
        """Hold `shapes` against the inputs.

        Raises
        ------
        UsageError
            If there is no such input, or its shape differs where it is static.
        """
        known = {spec.name: spec for spec in self.inputs}
        for name, dims in self.shapes.items():
            if name not in known:
                raise UsageError(
                    f"shape given for unknown input {name!r}; inputs of {self.name}: "
                    f"{', '.join(known) or 'none'}"
                )
            declared = known[name].shape
            if declared is not None and not _fits(dims, declared):
                raise UsageError(
                    f"input {name!r} of {self.name}: expected shape {describe_shape(declared)}, "
                    f"got {describe_shape(dims)}"
                )

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

    def _shape(self, spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
        if spec.name in self.shapes:
            return self.shapes[spec.name]
        if spec.shape is None:
            raise UsageError(
                f"input {spec.name!r} of {self.name} has no known rank: give its shape"
            )
        return tuple(
            dim if isinstance(dim, int) else sizes.get(dim, _EXTENT if axis else _BATCH)
            for axis, dim in enumerate(spec.shape)
        )

    def _draw(
        self, rng: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...]
    ) -> np.ndarray:
        return draw(rng, spec, shape, 0, 1)


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


def _fits(dims: Sequence[int], declared: Sequence[Dim]) -> bool:
    return len(dims) == len(declared) and all(
        isinstance(want, str) or want == got for got, want in zip(dims, declared, strict=True)
    )


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of TVM's `name`, bfloat16 and the float8 among them."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
