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
"""The import of a TFLite model as a function."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tvm
from tvm import relax, tirx

from ....errors import (
    CompileError,
    TfliteError,
    UnsupportedOperatorError,
    UsageError,
    summarize,
)
from ....relax.source_nodes import SourceNode, mark, spread
from ....support.serial import in_turn
from ..call import Call, Context, Value, carrier_of
from ..file.model import Model, Operator, SubGraph, Tensor, read_model
from .interface import dims_of, input_names
from .preflight import needed_operators, problem_of

__all__ = ["from_tflite", "import_model"]

Dim: TypeAlias = int | str

_FLOATS, _OTHERS = "float32 float16 float64 bfloat16", "int8 int16 int32 int64 bool"
_DTYPES = frozenset(f"{_FLOATS} {_OTHERS} uint8 uint16 uint32 uint64".split())
"""The dtypes of tensors that a compiled model computes."""


@in_turn
def from_tflite(
    model: Any,
    shape_dict: Mapping[str, Sequence[Dim]] | None = None,
    dtype_dict: Mapping[str, str] | None = None,
) -> tvm.IRModule:
    """Import a TFLite model.

    Layouts are those of the model: images have their channels last.  Quantized tensors keep their
    integers; operators on them are dequantized, computed and quantized, in forms that FuseQuantized
    turns into products of integers.

    Parameters
    ----------
    model : bytes, str, os.PathLike or tflite.Model
        The bytes of a file, its path, or a model that the package ``tflite`` has read.
    shape_dict : mapping of str to sequence of int or str, optional
        Shapes of inputs by name.  They set sizes and names of dims that the model leaves open
        (``shape_signature``); equal names mean equal sizes.
    dtype_dict : mapping of str to str, optional
        Dtypes of inputs by name, which must be those of the model.

    Returns
    -------
    tvm.IRModule
        The model as the function ``main``, with its weights as constants.

    Raises
    ------
    TfliteError
        If the file is malformed.
    UnsupportedOperatorError
        If operators have no converter, in which case the message names all of them, or one has an
        attribute or operand that is not supported.
    UsageError
        If there is no such file, or shapes or dtypes do not fit the inputs.
    """
    if hasattr(model, "_tab"):
        model = bytes(model._tab.Bytes)
    if not isinstance(model, bytes | bytearray | memoryview | str | os.PathLike):
        raise UsageError(
            f"expected the bytes or the path of a TFLite file, got {type(model).__name__}"
        )
    read = read_model(model)
    named = dict(zip(input_names(read.main), read.main.inputs, strict=True))
    for name, dtype in (dtype_dict or {}).items():
        if name not in named:
            raise UsageError(f"dtype given for unknown input {name!r}; inputs: {', '.join(named)}")
        declared = read.main.tensors[named[name]].dtype
        if dtype != declared:
            raise UsageError(f"input {name!r}: expected dtype {declared}, got {dtype}")
    return import_model(read, shape_dict)


@in_turn
def import_model(
    model: Model,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    *,
    keep: Callable[[tvm.runtime.Tensor], tvm.runtime.Tensor] = lambda tensor: tensor,
) -> tvm.IRModule:
    """Import as :func:`from_tflite` does; `keep` may store the elements of constants in a file."""
    check_operators(model)
    mod = _Importer(model.main, shapes or {}, keep).module()
    spread(mod)
    return mod


def check_operators(model: Model) -> None:
    """Raise UnsupportedOperatorError that lists all operators without a converter."""
    problems = [
        f"{operator.name} at {place}: {problem}"
        for place, operator in needed_operators(model.main)
        if (problem := problem_of(operator))
    ]
    if problems:
        raise UnsupportedOperatorError("unsupported operators: " + "; ".join(problems))


class _Importer:
    """Imports a subgraph as the function ``main``."""

    def __init__(
        self,
        graph: SubGraph,
        shapes: Mapping[str, Sequence[Dim]],
        keep: Callable[[tvm.runtime.Tensor], tvm.runtime.Tensor],
    ) -> None:
        self._graph = graph
        self._builder = relax.BlockBuilder()
        self._context = Context(self._builder, keep)
        self._values: dict[int, Value] = {}
        self._dims = dims_of(graph, shapes)

    def module(self) -> tvm.IRModule:
        """The module with ``main``."""
        params = self._parameters()
        builder = self._builder
        with builder.function("main", params, attrs={"num_input": len(params)}):
            with builder.dataflow():
                for place, operator in needed_operators(self._graph):
                    self._convert(operator, place)
                results = [self._result(index) for index in self._graph.outputs]
                output = results[0] if len(results) == 1 else relax.Tuple(results)
                output = builder.emit_output(output)
            builder.emit_func_output(output)
        return builder.finalize()

    def _parameters(self) -> list[relax.Var]:
        symbols: dict[str, tirx.Var] = {}

        def extent(dim: Dim) -> Any:
            if isinstance(dim, int):
                return tirx.const(dim, "int64")
            return symbols.setdefault(dim, tirx.Var(dim, "int64"))

        params, used = [], set[str]()
        for name, index in zip(input_names(self._graph), self._graph.inputs, strict=True):
            tensor = self._graph.tensors[index]
            _check_dtype(tensor, f"input {name!r}")
            shape = [extent(dim) for dim in self._dims[name]]
            identifier = re.sub(r"\W", "_", name, flags=re.ASCII)
            if not identifier[0].isalpha():
                identifier = f"input_{identifier}"
            while identifier in used:
                identifier += "_"
            used.add(identifier)
            var = relax.Var(identifier, relax.TensorType(shape, tensor.dtype))
            self._values[index] = var
            params.append(var)
        return params

    def _value(self, index: int, place: str) -> Value:
        """The value of a tensor."""
        if index not in self._values:
            tensor = self._graph.tensors[index]
            if tensor.is_variable:
                raise UnsupportedOperatorError(
                    f"{place} reads {tensor}, a variable: state is not supported"
                )
            array = tensor.array
            if array is None and 0 in tensor.shape:
                array = np.zeros(tensor.shape, carrier_of(tensor.dtype))
            if array is None:
                raise TfliteError(f"{place} reads {tensor}, which nothing has computed")
            self._values[index] = array
        return self._values[index]

    def _convert(self, operator: Operator, place: str) -> None:
        """Convert an operator, and store its results."""
        tensors = self._graph.tensors
        where = f"{operator.name} at {place}"
        outputs = tuple(tensors[index] for index in operator.outputs)
        for tensor in outputs:
            _check_dtype(tensor, where)
        node = SourceNode(outputs[0].name or place, operator.name)
        call = Call(
            operator=operator.name,
            operands=tuple(
                None if index < 0 else self._value(index, where) for index in operator.inputs
            ),
            attributes=operator.options,
            version=operator.version,
            source=node,
            context=self._context,
            inputs=tuple(None if index < 0 else tensors[index] for index in operator.inputs),
            outputs=outputs,
            place=place,
        )
        for index, tensor in zip(operator.outputs, outputs, strict=True):
            if index in self._values:
                raise TfliteError(f"{where} computes {tensor}, which has a value already")
        try:
            converted = self._context.convert(call)
            results = converted if isinstance(converted, list) else [converted]
            if len(results) != len(outputs):
                raise call.fail(f"{len(outputs)} results; expected {len(results)}")
            for index, tensor, value in zip(operator.outputs, outputs, results, strict=True):
                self._values[index] = self._checked(call, tensor, value, node)
        except CompileError:
            raise
        except Exception as error:
            # Such as an error of TVM's type inference.
            raise call.fail(f"cannot convert: {summarize(error)}") from error

    def _checked(self, call: Call, tensor: Tensor, value: Value, node: SourceNode) -> Value:
        """A result, bound to a variable with its node; its dtype must be the declared one."""
        if isinstance(value, np.ndarray):
            return value
        value = value if isinstance(value, relax.Var) else self._builder.emit(value)
        mark(value, node)
        dtype = getattr(value.ty, "dtype", None)
        if dtype is None or str(dtype.dtype) != tensor.dtype:
            raise call.fail(f"the result is {value.ty}; expected {tensor.dtype}")
        return value

    def _result(self, index: int) -> relax.Expr:
        tensor = self._graph.tensors[index]
        value = self._value(index, "the output")
        return self._context.expression(value, carrier_of(tensor.dtype))


def _check_dtype(tensor: Tensor, where: str) -> None:
    if tensor.dtype not in _DTYPES:
        raise UnsupportedOperatorError(
            f"{where}: {tensor}: tensors of {tensor.dtype} are not supported"
        )
