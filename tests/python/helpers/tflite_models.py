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
"""TFLite files that tests make, and their outputs in LiteRT."""

import importlib.util
from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
import pytest

from helpers.relax_modules import run
from tvm_fixes import pipeline
from tvm_fixes.frontend.tflite import from_tflite
from tvm_fixes.frontend.tflite.file.schema import BUILTINS, ENUMS, TABLES, UNIONS

HAS_LITERT = importlib.util.find_spec("ai_edge_litert") is not None

needs_litert = pytest.mark.skipif(not HAS_LITERT, reason="ai-edge-litert is not installed")

_SCALARS = {
    "bool": "Bool",
    "byte": "Int8",
    "ubyte": "Uint8",
    "short": "Int16",
    "ushort": "Uint16",
    "int": "Int32",
    "uint": "Uint32",
    "long": "Int64",
    "ulong": "Uint64",
    "float": "Float32",
}

_DTYPES = {
    "bool": "uint8",
    "ubyte": "uint8",
    "byte": "int8",
    "ushort": "uint16",
    "int": "int32",
    "long": "int64",
    "float": "float32",
}


def write_file(model: dict[str, Any]) -> bytes:
    """The bytes of a file of the fields of a model."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(_table(builder, "Model", model), b"TFL3")
    return bytes(builder.Output())


def _table(builder: flatbuffers.Builder, table: str, values: dict[str, Any]) -> int:
    slots, number = [], 0
    known = set()
    for text in TABLES.get(table, "").split():
        name, _, kind = text.partition(":")
        kind = kind.partition("=")[0]
        value = values.get(name)
        known.add(name)
        if kind.startswith("|"):
            if value is not None:
                chosen = 1 + UNIONS[kind[1:]].index(value[0])
                slots.append((number, "ubyte", chosen))
                slots.append((number + 1, "", _table(builder, *value)))
            number += 1
        elif value is not None:
            slots.append((number, *_slot(builder, kind, value)))
        number += 1
    assert set(values) <= known, set(values) - known
    builder.StartObject(number)
    for slot, kind, value in slots:
        if kind:
            # A value that no default equals, so that it is written.
            getattr(builder, f"Prepend{_SCALARS[kind]}Slot")(slot, value, None)
        else:
            builder.PrependUOffsetTRelativeSlot(slot, value, 0)
    return builder.EndObject()


def _slot(builder: flatbuffers.Builder, kind: str, value: Any) -> tuple[str, Any]:
    if kind in _SCALARS:
        return kind, value
    if kind in ENUMS:
        return "byte", ENUMS[kind].index(value)
    if kind == "string":
        return "", builder.CreateString(value)
    inner = kind[1:-1]
    if inner in _DTYPES:
        return "", builder.CreateNumpyVector(np.asarray(value, _DTYPES[inner]).reshape(-1))
    if not kind.startswith("["):
        return "", _table(builder, kind, value)
    # One object that occurs several times is written once.
    written = {
        key: _table(builder, inner, one) for key, one in {id(one): one for one in value}.items()
    }
    offsets = [written[id(one)] for one in value]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return "", builder.EndVector()


class Graph:
    """A model with one subgraph, under construction."""

    def __init__(self) -> None:
        self.buffers: list[dict[str, Any]] = [{}]
        self.codes: list[dict[str, Any]] = []
        self.tensors: list[dict[str, Any]] = []
        self.operators: list[dict[str, Any]] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        scale: Any = None,
        zero: Any = 0,
        axis: int = 0,
        data: np.ndarray | None = None,
        **fields: Any,
    ) -> int:
        """Add a tensor; -1 is a dim of any size."""
        buffer = 0
        if data is not None:
            buffer = len(self.buffers)
            self.buffers.append({"data": np.frombuffer(data.tobytes(), "uint8")})
        if -1 in shape:
            fields["shape_signature"] = list(shape)
        if scale is not None:
            scale, zero = np.atleast_1d(scale), np.atleast_1d(zero)
            fields["quantization"] = {
                "scale": scale,
                "zero_point": np.broadcast_to(zero, scale.shape),
                "quantized_dimension": axis,
            }
        self.tensors.append(
            {
                "shape": [max(dim, 1) for dim in shape],
                "type": dtype,
                "buffer": buffer,
                "name": f"t{len(self.tensors)}",
                **fields,
            }
        )
        return len(self.tensors) - 1

    def input(self, shape: Sequence[int], dtype: str = "float32", **fields: Any) -> int:
        """Add an input."""
        self.inputs.append(self.tensor(shape, dtype, **fields))
        return self.inputs[-1]

    def constant(self, data: Any, dtype: str | None = None, **fields: Any) -> int:
        """Add a constant."""
        array = np.asarray(data, dtype)
        return self.tensor(array.shape, array.dtype.name, data=array, **fields)

    def add(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: int | Sequence[int],
        options: tuple[str, dict[str, Any]] | None = None,
        *,
        is_output: bool = True,
        version: int = 1,
        **fields: Any,
    ) -> int:
        """Add an operator, whose results are outputs of the model; return the first."""
        outputs = [outputs] if isinstance(outputs, int) else list(outputs)
        code: dict[str, Any] = {"version": version}
        if name in BUILTINS:
            number = BUILTINS.index(name)
            code.update(builtin_code=number, deprecated_builtin_code=min(number, 127))
        else:
            custom = BUILTINS.index("CUSTOM")
            code.update(builtin_code=custom, deprecated_builtin_code=custom, custom_code=name)
        self.codes.append(code)
        operator = {"opcode_index": len(self.codes) - 1, "inputs": list(inputs), "outputs": outputs}
        if options is not None:
            operator["builtin_options"] = options
        self.operators.append({**operator, **fields})
        self.outputs += outputs if is_output else []
        return outputs[0]

    def model(self, **fields: Any) -> dict[str, Any]:
        """The fields of the model."""
        graph = {
            "tensors": self.tensors,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "operators": self.operators,
            "name": "main",
        }
        return {
            "version": 3,
            "operator_codes": self.codes,
            "subgraphs": [graph],
            "buffers": self.buffers,
            **fields,
        }

    def file(self, **fields: Any) -> bytes:
        """The bytes of the model's file."""
        return write_file(self.model(**fields))


def litert_outputs(model: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of LiteRT's reference kernels, or of others if it has none for an operator."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    try:
        return _outputs(Interpreter, OpResolverType.BUILTIN_REF, model, inputs)
    except (RuntimeError, ValueError) as error:
        if "Didn't find op" not in str(error):
            raise
    return _outputs(Interpreter, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, model, inputs)


def _outputs(
    make: Any, kernels: Any, model: bytes, inputs: Sequence[np.ndarray]
) -> list[np.ndarray]:
    interpreter = make(model_content=model, experimental_op_resolver_type=kernels, num_threads=1)
    for details, value in zip(interpreter.get_input_details(), inputs, strict=True):
        if tuple(details["shape"]) != value.shape:
            interpreter.resize_tensor_input(details["index"], value.shape)
    interpreter.allocate_tensors()
    for details, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    return [
        interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()
    ]


class Case(Graph):
    """A model of operators without order, with inputs and expected outputs.

    Attributes
    ----------
    max_steps : int
        The maximum difference of integers of up to 16 bits.
    min_equal, min_equal_litert : float
        The part of them that must be equal to expected ones, and to LiteRT's.
    """

    max_steps, min_equal, min_equal_litert = 0, 1.0, 1.0

    def __init__(self) -> None:
        super().__init__()
        self.values: list[np.ndarray] = []
        self.expected: list[np.ndarray | None] = []

    def input(self, value: np.ndarray, **fields: Any) -> int:
        """Add an input with its value."""
        self.values.append(value)
        return super().input(value.shape, value.dtype.name, **fields)

    def quantized(self, value: np.ndarray, scale: float, zero: int = 0) -> int:
        """Add an input of integers that stand for real numbers."""
        return self.input(value, scale=scale, zero=zero)

    def add(
        self,
        name: str,
        inputs: Sequence[int],
        expected: Any,
        options: tuple[str, dict[str, Any]] | None = None,
        *,
        shape: Sequence[int] = (),
        version: int = 1,
        **quantization: Any,
    ) -> None:
        """Add an operator with its results; None leaves the comparison to LiteRT."""
        results = expected if isinstance(expected, list) else [expected]
        outputs = [
            self.tensor(shape, **quantization)
            if value is None
            else self.tensor(value.shape, value.dtype.name, **quantization)
            for value in results
        ]
        self.expected += results
        super().add(name, inputs, outputs, options, version=version)

    def check(self, rtol: float = 2e-5, atol: float = 2e-5) -> list[np.ndarray]:
        """Compare with the expected results, and with LiteRT; return the results."""
        data = self.file()
        mod = from_tflite(data)
        found = run(mod, *self.values, pipeline=pipeline())
        found = list(found) if isinstance(found, list | tuple) else [found]
        self._compare(found, self.expected, self.min_equal, rtol, atol)
        if HAS_LITERT:
            wanted = litert_outputs(data, self.values)
            self._compare(found, wanted, self.min_equal_litert, rtol, atol)
        return found

    def _compare(
        self,
        found: Sequence[np.ndarray],
        expected: Sequence[Any],
        min_equal: float,
        rtol: float,
        atol: float,
    ) -> None:
        names = [
            BUILTINS[self.codes[one["opcode_index"]]["builtin_code"]]
            for one in self.operators
            for _ in one["outputs"]
        ]
        assert len(found) == len(expected) == len(names)
        for name, value, wanted in zip(names, found, expected, strict=True):
            if wanted is None:
                continue
            assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape), name
            if value.dtype in ("int8", "uint8", "int16"):
                # Integers that are rounded: by another arithmetic, they are sometimes one step off.
                steps = np.abs(value.astype("int32") - wanted)
                assert steps.max() <= self.max_steps, (name, steps.max())
                assert np.mean(steps == 0) >= min_equal, (name, np.mean(steps == 0))
                continue
            np.testing.assert_allclose(value, wanted, rtol=rtol, atol=atol, err_msg=name)
