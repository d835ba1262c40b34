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
"""TFLite models."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from ..errors import CompileError, summarize
from ..frontend.operators import Operator
from ..frontend.tflite.call import carrier_of, is_quantized
from ..frontend.tflite.file.model import Model, Tensor, read_model
from ..frontend.tflite.graph.importer import import_model
from ..frontend.tflite.graph.interface import dims_of, input_names, output_names
from ..frontend.tflite.graph.preflight import needed_operators, operators_of
from ..relax.source_nodes import SourceNode
from ..runtime.manifest import TensorSpec
from ..support.tensors import nbytes_of
from ..support.threads import thread_count
from .base import ModelValue, Reference, Shapes, Source, import_extra
from .rounding import moved, steps_of

_NO_KERNEL = "Didn't find op"
"""The message of LiteRT for an operator that a set of kernels lacks."""

_UNCOMPARED = ("string", "resource", "variant")


def describe_operators(path: Path) -> list[Operator]:
    """The operators of a TFLite file, without an import."""
    return operators_of(_read(path))


def _read(path: Path) -> Model:
    try:
        return read_model(path)
    except CompileError as error:
        raise type(error)(f"{path}: {error.message.removeprefix(f'{path}: ')}") from error


class TfliteSource(Source):
    """A TFLite model, with LiteRT as its reference: its reference kernels, which define results.

    Parameters
    ----------
    model : Model
        The model.
    name : str
        Its name in messages.
    path : Path
        Its file.
    shapes : mapping of str to sequence of int or str, optional
        Shapes of its inputs, for the dims that it leaves open.
    """

    def __init__(self, model: Model, name: str, path: Path, shapes: Shapes | None = None):
        super().__init__(name, shapes)
        self._model, self._path = model, path
        main = model.main
        dims = dims_of(main, {})
        self.inputs = tuple(
            TensorSpec(input_name, dims[input_name], main.tensors[index].dtype)
            for input_name, index in zip(input_names(main), main.inputs, strict=True)
        )
        self.output_names = tuple(output_names(main))
        self.parameter_bytes = sum(data.nbytes for _, data in self._constants())
        self.check_shapes()

    @classmethod
    def load(cls, path: Path, shapes: Shapes | None = None) -> "TfliteSource":
        """Read the model in a file."""
        return cls(_read(path), path.name, path, shapes)

    def _constants(self) -> Iterator[tuple[str, memoryview]]:
        for tensor in self._model.main.tensors:
            if tensor.data is not None:
                yield tensor.name, tensor.data

    def to_relax(self) -> tvm.IRModule:
        shapes = {spec.name: self.chosen_shape(spec) or () for spec in self.inputs}
        try:
            return import_model(self._model, shapes, keep=self._keep)
        except CompileError as error:
            raise type(error)(f"{self.name}: {error.message}") from error

    def parameters(self) -> Iterator[tuple[str, np.ndarray]]:
        for name, data in self._constants():
            yield name, np.frombuffer(data, "uint8")

    def _draw(
        self, rng: np.random.Generator, spec: TensorSpec, shape: tuple[int, ...]
    ) -> np.ndarray:
        """Draw quantized inputs from all integers."""
        index = self._model.main.inputs[self.inputs.index(spec)]
        tensor = self._model.main.tensors[index]
        if not is_quantized(tensor):
            return self._example.draw(rng, spec, shape)
        limits = np.iinfo(carrier_of(tensor.dtype))
        return self._example.draw(rng, spec, shape, int(limits.min), int(limits.max))

    def values(self, inputs: list[np.ndarray]) -> list[ModelValue]:
        main = self._model.main
        values = []
        for _, operator in needed_operators(main):
            for index in operator.outputs:
                tensor = main.tensors[index]
                if tensor.dtype in _UNCOMPARED:
                    continue
                node = SourceNode(main.tensors[operator.outputs[0]].name, operator.name)
                values.append(ModelValue(_value_name(index, tensor), node, _nbytes(tensor)))
        return values

    def with_outputs(self, names: Sequence[str]) -> "TfliteSource":
        main = self._model.main
        indices = {_value_name(index, tensor): index for index, tensor in enumerate(main.tensors)}
        part = replace(main, outputs=tuple(indices[name] for name in names))
        model = replace(self._model, subgraphs=(part, *self._model.subgraphs[1:]))
        source = TfliteSource(model, self.name, self._path, self.shapes)
        source._is_static = self._is_static
        return source

    def reference(self) -> tuple[str, Reference]:
        litert, version = _litert()
        return f"LiteRT {version} (reference kernels)", partial(
            self._run, self._interpreter(litert, "BUILTIN_REF")
        )

    def rounded_reference(self, seed: int) -> Reference:
        litert, _ = _litert()
        rng, steps = np.random.default_rng(seed), steps_of(seed)
        kernels = "BUILTIN_REF" if seed % 2 else "AUTO"
        interpreter = self._interpreter(litert, kernels)
        return lambda inputs: self._run(interpreter, [moved(value, rng, steps) for value in inputs])

    def _interpreter(self, litert: Any, kernels: str) -> Any:
        """An interpreter with a set of kernels; with others if it lacks an operator."""

        def made(kind: Any) -> Any:
            return litert.Interpreter(
                str(self._path),
                num_threads=thread_count(),
                experimental_op_resolver_type=kind,
                experimental_preserve_all_tensors=True,
            )

        kinds = litert.OpResolverType
        try:
            return made(getattr(kinds, kernels))
        except (RuntimeError, ValueError) as error:
            if _NO_KERNEL not in str(error):
                raise CompileError(f"{self.name}: LiteRT: {summarize(error)}") from error
        try:
            return made(kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
        except (RuntimeError, ValueError) as error:
            raise CompileError(f"{self.name}: LiteRT: {summarize(error)}") from error

    def _run(self, interpreter: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
        try:
            shapes = self._sizes_of(interpreter)
            if any(shapes[k] != value.shape for k, value in enumerate(inputs)):
                for index, value in zip(self._model.main.inputs, inputs, strict=True):
                    interpreter.resize_tensor_input(index, value.shape)
            interpreter.allocate_tensors()
            for index, value in zip(self._model.main.inputs, inputs, strict=True):
                interpreter.set_tensor(index, value)
            interpreter.invoke()
            return [np.asarray(interpreter.get_tensor(index)) for index in self._model.main.outputs]
        except (RuntimeError, ValueError) as error:
            raise CompileError(f"{self.name}: LiteRT: {summarize(error)}") from error

    def _sizes_of(self, interpreter: Any) -> Mapping[int, tuple[int, ...]]:
        return {
            place: tuple(map(int, details["shape"]))
            for place, details in enumerate(interpreter.get_input_details())
        }


def _value_name(index: int, tensor: Tensor) -> str:
    """The name of a tensor in a comparison of all values; names need not be unique."""
    return f"{tensor.name or 'tensor'} ({index})"


def _nbytes(tensor: Tensor) -> int | None:
    is_open = any(dim < 0 for dim in tensor.signature)
    return None if is_open else nbytes_of(tensor.shape, carrier_of(tensor.dtype))


def _litert() -> tuple[Any, str]:
    """The interpreter's module, and its version."""
    import_extra("ai_edge_litert", "the comparison (skip it with --no-compare)")
    return import_module("ai_edge_litert.interpreter"), version("ai-edge-litert")
