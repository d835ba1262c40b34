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
"""Running, saving and loading a compiled model."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
import tvm
import tvm_ffi

from ..errors import CompileError, InputError
from ..support.temporary import TemporaryDirectory
from ..support.tensors import is_torch, shared, to_device, to_tvm
from . import after_fork
from .arguments import INPUT, bind, check_arrays, check_updated
from .call_arguments import bind_call, size_of
from .failed_checks import failed_check
from .input_buffers import MAX_BYTES, InputBuffers
from .library import Library
from .manifest import WEIGHTS, Manifest, TensorSpec, describe_shape, load_whole, read_manifest
from .results import returned, updated
from .staging import check_destination, staged, write_manifest
from .weights import read_weights

_Key = tuple[tuple[int, ...] | int, ...]
"""For each input of a call, its shape, the number of its type, and whether it is native."""

_LARGE: list[InputBuffers] = []
"""Stands for inputs without small ones, which need no such memory."""

_MAX_ACCEPTED = 64
"""The number of such keys with memory; to check small inputs takes as long as a small model."""


class CompiledModel:
    """A model, compiled to a library that this process can run.

    :func:`tvm_fixes.compile` and :meth:`load` return it.

    Parameters
    ----------
    directory : path
        The directory of the library ``model.so``.
    manifest : Manifest
        The manifest of the library.
    owner : TemporaryDirectory, optional
        Keeps `directory` as long as the model exists.

    Attributes
    ----------
    report : Report or None
        The report of the compilation; :meth:`save` writes it too.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        manifest: Manifest,
        *,
        owner: TemporaryDirectory | None = None,
    ):
        self._library = Library(directory, manifest, owner)
        self._alignment, self._owned = manifest.alignment, manifest.owned_outputs
        self._accepted: dict[_Key, list[InputBuffers]] = {}
        self.report = manifest.report

    @property
    def _manifest(self) -> Manifest:
        return self._library.manifest

    @cached_property
    def _function(self) -> Callable[..., Any]:
        function = self._library.function(self._manifest.function, *self._weights)
        self._library.check_arity(len(self._manifest.inputs) + len(self._weights))
        return function

    @cached_property
    def _weights(self) -> list[tvm.runtime.Tensor]:
        return [to_device(weight, self._library.device) for weight in self._map_weights()]

    @cached_property
    def _call_into(self) -> Callable[..., Any] | None:
        """Calls a function, and copies its results; see ``src/runtime/call_into.cc``."""
        # None if the native library of a checkout was built before there was one.
        into = tvm_ffi.get_global_func("tvm_fixes.runtime.CallInto", allow_missing=True)
        return None if into is None else after_fork.guarded(into)

    def _call(self, function: Callable[..., Any], inputs: Sequence[Any], *operands: Any) -> Any:
        """Call `function` when no other thread does, with `operands` or the inputs."""
        lock = self._library.lock
        lock.acquire()  # half the time of a ``with`` statement
        try:
            return function(*(operands or inputs))
        except Exception as error:
            self._raise_for(error, inputs)
        finally:
            lock.release()

    def _raise_for(self, error: Exception, inputs: Sequence[Any]) -> NoReturn:
        rejected = failed_check(str(error), self._manifest.inputs, inputs)
        if rejected:
            raise InputError(rejected) from error
        if "std::bad_alloc" not in str(error):
            raise
        shapes = ", ".join(describe_shape(getattr(value, "shape", ())) for value in inputs)
        raise CompileError(
            f"out of memory for inputs of shapes {shapes or 'none'}; smaller ones need less"
        ) from error

    def _map_weights(self, *, check: bool = False) -> list[tvm.runtime.Tensor]:
        """The weights that follow the inputs of the function, as views of their file."""
        record = self._manifest.weights
        if record is None:
            return []
        return read_weights(self._library.directory / WEIGHTS, record, check=check)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs, in the order that :meth:`run` takes them."""
        return self._manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs, in the order that :meth:`run` returns them."""
        return self._manifest.outputs

    @property
    def directory(self) -> Path:
        """The directory of the library, which the model may own."""
        return self._library.directory

    @property
    def manifest(self) -> Manifest:
        """The description of the library and of its compilation."""
        return replace(self._manifest, report=self.report)

    def __repr__(self) -> str:
        inputs, outputs = (
            "; ".join(map(str, specs)) for specs in (self._manifest.inputs, self._manifest.outputs)
        )
        return f"CompiledModel({inputs} -> {outputs})"

    def run(self, /, *args: Any, **named: Any) -> Any:
        """Run the model; calls from several threads take turns.

        Parameters
        ----------
        *args : numpy.ndarray or torch.Tensor
            Inputs in order, with any strides; PyTorch tensors must be on the CPU.  An input in
            ``manifest.sizes`` is an integer.  Instead of the inputs, the arguments of a PyTorch
            module may be given as the module takes them: nested, and with the constants in
            ``manifest.arguments``.
        **named : numpy.ndarray or torch.Tensor
            Inputs by name; use ``**{"input.1": x}`` if a name is not an identifier.  Constants may
            be left out.

        Returns
        -------
        outputs : array, or tuple of arrays
            The output of a model with one output, else a tuple in the order of :attr:`outputs`.
            PyTorch tensors if any input is one, NumPy arrays otherwise.  They belong to the caller:
            no later run changes them, and they share no memory with inputs or weights, but the new
            value of an updated input is that input itself.

        Raises
        ------
        InputError
            If there are too many, too few or unknown inputs, or if the shape or dtype of one does
            not fit the model.  Also if a constant differs from the value that the model was
            compiled for, or if an updated input is read-only or shares memory with another input.
            The model does not run in these cases.  Also if a check within the model fails; the
            message names its node.
        ArtifactError
            If the library does not run on this machine.

        Notes
        -----
        A run overwrites the inputs in ``manifest.updates``.  If one is a PyTorch tensor that is
        contiguous and aligned to 64 bytes, as PyTorch allocates them, a model on the CPU writes
        into its memory; others are copied before the run, and after it.

        Other inputs are only read.  On the CPU, those of more than 8 KiB are not copied if they
        are contiguous and aligned to 16 bytes, as NumPy allocates them: do not change them during
        the run.  Nor are outputs of that size, unless they are inputs, constants or parts of
        another output.
        """
        if not named:
            key = _key_of(args)
            if key is not None and (accepted := self._accepted.get(key)) is not None:
                if accepted is _LARGE:
                    return self._run_large(args)
                return self._run_arrays(args, accepted)
        manifest = self._manifest
        inputs, by_name = bind_call(manifest.arguments, manifest.inputs, args, named)
        values = self._checked(bind(manifest.inputs, inputs, by_name))
        as_torch = any(map(is_torch, values))
        if self._is_plain and not as_torch:
            return self._run_arrays(values, self._accept(values))
        check_updated(manifest.inputs, values, manifest.updates)
        # The function comes first: it says whether there is a device for the operands.
        result = self._call(self._function, self._operands(values))
        if not manifest.updates:
            return returned(result, manifest.owned_outputs, as_torch=as_torch)
        by_name = {spec.name: value for spec, value in zip(manifest.inputs, values, strict=True)}
        new = {index: by_name[name] for name, index in manifest.updates.items()}
        owned = manifest.owned_outputs
        return updated(result, new, len(self.outputs), owned, as_torch=as_torch)

    @cached_property
    def _is_plain(self) -> bool:
        """Whether all inputs are tensors on the CPU, and none is updated."""
        manifest = self._manifest
        return not manifest.updates and not manifest.sizes and self._library.device == tvm.cpu()

    def _accept(self, values: Sequence[Any]) -> list[InputBuffers]:
        """Remember that inputs of these shapes and dtypes need no further check."""
        key = _key_of(values)
        if key is None:
            return []
        if len(self._accepted) >= _MAX_ACCEPTED:
            self._accepted.clear()
        if values and all(value.nbytes > MAX_BYTES for value in values):
            self._accepted[key] = _LARGE
            return []
        return self._accepted.setdefault(key, [])

    def _run_large(self, values: Sequence[np.ndarray]) -> Any:
        """Run the model on arrays whose memory it reads.

        The steps of other calls, in one function: after a large model has run, Python's code comes
        from memory, too.
        """
        alignment = self._alignment
        try:  # what `shared` does in the usual case, in half the time
            inputs = [
                tvm_ffi.from_dlpack(value, require_alignment=alignment, require_contiguous=True)
                for value in values
            ]
        except (BufferError, RuntimeError):
            inputs = [shared(value, alignment) for value in values]
        lock = self._library.lock
        lock.acquire()
        try:
            result = self._function(*inputs)
        except Exception as error:
            self._raise_for(error, inputs)
        finally:
            lock.release()
        return returned(result, self._owned, as_torch=False)

    def _run_arrays(self, values: Sequence[Any], accepted: list[InputBuffers]) -> Any:
        """Run the model on NumPy arrays, with memory that no other call uses at the same time."""
        try:
            buffers = accepted.pop()
        except IndexError:
            buffers = InputBuffers(values, self._manifest.alignment)
        inputs = buffers.filled(values)
        if (results := buffers.results) is not None and self._call_into is not None:
            result = self._call(self._call_into, inputs, *results.operands)
            if result is None:  # the results are in their memory
                copies = results.copies()
                accepted.append(buffers)
                return copies[0] if len(copies) == 1 else tuple(copies)
        else:
            result = self._call(self._function, inputs)
        outputs = returned(result, self._manifest.owned_outputs, as_torch=False)
        if not buffers.is_complete:
            function = self._library.machine[self._manifest.function]
            arrays = outputs if isinstance(outputs, tuple) else (outputs,)
            buffers.keep_results(arrays, function, self._weights)
        accepted.append(buffers)
        return outputs

    def _checked(self, values: list[Any]) -> list[Any]:
        """The inputs, with integers as arrays, after a check of their types."""
        specs, sizes = self._manifest.inputs, self._manifest.sizes
        if sizes:
            pairs = zip(specs, values, strict=True)
            values = [size_of(value) if spec.name in sizes else value for spec, value in pairs]
        check_arrays(zip(specs, values, strict=True), self._manifest.bounds, INPUT, sizes)
        return values

    def _operands(self, values: list[Any]) -> list[Any]:
        """The operands of the model's function for its inputs."""
        pairs = zip(self.inputs, values, strict=True)
        return [self._operand(spec.name, value) for spec, value in pairs]

    def _operand(self, name: str, value: Any) -> Any:
        manifest, device = self._manifest, self._library.device
        if name in manifest.sizes:
            return tvm.runtime.ShapeTuple([int(value)])
        if name in manifest.updates:
            return to_device(to_tvm(value), device)
        alignment = manifest.alignment if device == tvm.cpu() else 1
        return to_device(shared(value, alignment), device)

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Run the model: see :meth:`run`."""
        return self.run(*args, **named)

    def bound(self, /, *args: Any) -> Callable[[], Any]:
        """The model with its inputs, for measurements: each call is one run on the same tensors.

        Parameters
        ----------
        *args : numpy.ndarray or torch.Tensor
            As for :meth:`run`, whose checks happen once, here.

        Returns
        -------
        run : callable
            Returns the outputs as TVM does.  An updated input keeps its new value for the next run.
        """
        values = self._checked(bind(self.inputs, args, {}))
        return partial(self._call, self._function, self._operands(values))

    def instrumented(self, instrument: Callable[..., Any]) -> AbstractContextManager[None]:
        """Call `instrument` around each call of the virtual machine within the ``with`` block.

        Parameters
        ----------
        instrument : callable
            As for ``tvm.relax.VirtualMachine.set_instrument``.
        """
        return self._library.instrumented(instrument)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the artifact to `directory` atomically.

        Parameters
        ----------
        directory : path
            A new or empty directory, or an earlier artifact, which is replaced.  Missing parents
            are created.

        Raises
        ------
        UsageError
            If `directory` contains anything else, or its parent is not writable.
        ArtifactError
            If writing fails, for example because the disk is full.
        """
        check_destination(directory)
        with staged(directory) as staging:
            self._library.copy(staging)
            if self._manifest.weights is not None:
                self._library.copy_file(WEIGHTS, self._manifest.weights.sha256, staging)
            write_manifest(staging, self.manifest.to_json())

    def check_weights(self) -> None:
        """Check the SHA-256 of the weights outside the library, if any.

        :meth:`load` checks only their size and the SHA-256 of their header.

        Raises
        ------
        ArtifactError
            If they differ from the manifest.
        """
        self._map_weights(check=True)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Load an artifact that :meth:`save` wrote.

        Weights outside the library are mapped, and read when the model runs; see
        :meth:`check_weights`.

        Raises
        ------
        ArtifactError
            If `directory` is not a complete artifact, its files differ from its manifest, or it
            does not run on this machine.
        """
        path = Path(directory)
        return load_whole(path, lambda: cls._load(path))

    @classmethod
    def _load(cls, path: Path) -> Self:
        model = cls(path, read_manifest(path))
        model._library.check_file()
        _ = model._function
        return model


def _key_of(values: Sequence[Any]) -> _Key | None:
    """The shapes and dtypes of NumPy arrays; None if a value is another object."""
    key: _Key = ()
    for value in values:
        if type(value) is not np.ndarray:
            return None
        dtype = value.dtype
        key += value.shape, dtype.num, dtype.isnative
    return key
