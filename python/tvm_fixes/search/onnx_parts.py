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
"""Parts of ONNX models."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import onnx
from onnx import helper, numpy_helper, printer

from ..frontend.onnx.graph.liveness import names_read
from ..source.base import import_extra
from ..source.onnx import is_split_among_threads
from ..support.isolate import OutcomeKind, run_forked
from .parts import Candidate, Parts, Text, describe

Arrays = Mapping[str, np.ndarray]
Evaluate = Callable[[onnx.ModelProto, Arrays], Sequence[object] | None]
"""Computes the outputs of a model; None if that is not possible."""

# A small vector of integers that is computed from inputs is usually a shape or a list of axes,
# which the importer must know.
_MAX_SHAPE = 16


def by_onnx_runtime(model: onnx.ModelProto, inputs: Arrays) -> Sequence[object] | None:
    """The outputs in ONNX Runtime without optimization, which runs in a forked child."""
    onnxruntime = import_extra("onnxruntime", "the reduction of an ONNX model")

    def run() -> list[object]:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        # As in the comparison of `compile`.
        if is_split_among_threads(model):
            options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return list(session.run(None, dict(inputs)))

    outcome = run_forked(run, timeout=None)
    return outcome.value if outcome.kind is OutcomeKind.VALUE else None  # type: ignore[return-value]


class OnnxParts(Parts):
    """The nodes of an ONNX model.

    Parameters
    ----------
    model : onnx.ModelProto
        The model, with its weights.
    inputs : mapping of str to numpy.ndarray
    evaluate : callable
        Computes the values at a cut.
    """

    def __init__(
        self, model: onnx.ModelProto, inputs: Arrays, evaluate: Evaluate = by_onnx_runtime
    ) -> None:
        self._model, self._inputs, self._evaluate = model, dict(inputs), evaluate
        self._nodes = list(model.graph.node)
        self._initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self._declared = {value.name: value for value in model.graph.input}
        self._defined = {name for node in self._nodes for name in node.output if name}
        self._variable = self._depend_on_inputs()
        self._types = _types_of(model)
        self.operators = [node.op_type for node in self._nodes]

    def _depend_on_inputs(self) -> set[str]:
        """The values that are not constant."""
        variable = set(self._inputs)
        for node in self._nodes:
            if not variable.isdisjoint(names_read(node)) or node.op_type.startswith("Random"):
                variable.update(filter(None, node.output))
        return variable

    def cut(self, kept: Sequence[int]) -> "OnnxCandidate | None":
        nodes = [self._nodes[place] for place in kept]
        if not nodes:
            return None
        made = {name for node in nodes for name in node.output if name}
        read = set().union(*map(names_read, nodes)) - made
        others = [node for place, node in enumerate(self._nodes) if place not in set(kept)]
        wanted = set().union(*map(names_read, others))
        wanted |= {output.name for output in self._model.graph.output}
        outputs = [name for node in nodes for name in node.output if name in made & wanted]
        outputs = outputs or [name for name in nodes[-1].output if name]
        frozen = sorted(read & self._defined)
        # The reference may not be able to compute the outputs: the problem may be a crash of both.
        values = self._values([*frozen, *(name for name in outputs if name not in self._types)])
        if values is None:
            return None
        types = {name: _element(values[name]) for name in outputs if name in values} | self._types
        inputs = {name: self._inputs[name] for name in self._inputs if name in read}
        constants = [tensor for name, tensor in self._initializers.items() if name in read]
        declared = [self._declared[name] for name in inputs]
        for name in frozen:
            array = values[name]
            is_shape = array.dtype == np.int64 and array.ndim <= 1 and array.size <= _MAX_SHAPE
            if is_shape or name not in self._variable:
                constants.append(numpy_helper.from_array(array, name))
            else:
                inputs[name] = array
                declared.append(_described(name, array))
        graph = helper.make_graph(
            nodes,
            "reduced",
            declared,
            [helper.make_tensor_value_info(name, types[name], None) for name in outputs],
            constants,
        )
        return OnnxCandidate(f"operators {describe(kept)}", inputs, _around(self._model, graph))

    def _values(self, names: Sequence[str]) -> dict[str, np.ndarray] | None:
        """Values in a run of the whole model; None if one is not a tensor of numbers."""
        if not names:
            return {}
        graph = onnx.GraphProto()
        graph.CopyFrom(self._model.graph)
        del graph.output[:]
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names))
        model = _around(self._model, _needed(graph))
        inputs = {value.name: self._inputs[value.name] for value in model.graph.input}
        values = self._evaluate(model, inputs)
        if values is None:
            return None
        arrays = {
            name: array
            for name, array in zip(dict.fromkeys(names), values, strict=True)
            if isinstance(array, np.ndarray | np.generic) and array.dtype.kind != "O"
        }
        return {n: np.asarray(a) for n, a in arrays.items()} if set(names) <= set(arrays) else None


@dataclass(frozen=True)
class OnnxCandidate(Candidate):
    """A part of an ONNX model.

    Attributes
    ----------
    proto : onnx.ModelProto
    """

    proto: onnx.ModelProto = field(default_factory=onnx.ModelProto)

    @property
    def operators(self) -> list[str]:
        return [node.op_type for node in self.proto.graph.node]

    def model(self) -> onnx.ModelProto:
        return self.proto

    def save(self, folder: Path) -> Path:
        path = folder / "model.onnx"
        onnx.save(self.proto, path)
        return path

    def text(self) -> Text:
        renamed, names = _with_short_names(self.proto)
        bare = _around(renamed, renamed.graph)
        # The text form of initializers cannot express special values; the script adds them.
        del bare.graph.initializer[:]
        quotes = '"""'
        model = [
            "model = onnx.parser.parse_model(",
            *f"    {quotes}{printer.to_text(bare)}{quotes}".splitlines(),
            ")",
        ]
        constants = {names[name]: array for name, array in self.constants().items()}
        if constants:
            model += [
                "for name, array in constants.items():",
                "    model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))",
            ]
        return Text(
            name="ONNX Runtime",
            imports=("onnx", "onnx.parser"),
            reference_imports=("onnxruntime",),
            stock_imports=("from tvm.relax.frontend.onnx import from_onnx",),
            model=model,
            stock=["mod = from_onnx(model, keep_params_in_input=False)"],
            reference=[
                "session = onnxruntime.InferenceSession(model.SerializeToString())",
                "",
                "",
                "def reference():",
                "    return session.run(None, inputs)",
                "",
                "",
                "expected = reference()",
            ],
            inputs={names[name]: array for name, array in self.inputs.items()},
            constants=constants,
            drawn={names[name]: one for name, one in self.drawn.items()},
        )

    def simpler(self) -> "Iterator[OnnxCandidate]":
        """With one of the outputs."""
        outputs = list(self.proto.graph.output)
        for output in outputs if len(outputs) > 1 else []:
            graph = onnx.GraphProto()
            graph.CopyFrom(self.proto.graph)
            del graph.output[:]
            graph.output.append(output)
            model = _around(self.proto, _needed(graph))
            inputs = {value.name: self.inputs[value.name] for value in model.graph.input}
            yield replace(
                self, label=f"{self.label}; output {output.name}", proto=model, inputs=inputs
            )

    def constants(self) -> dict[str, np.ndarray]:
        return {
            tensor.name: numpy_helper.to_array(tensor) for tensor in self.proto.graph.initializer
        }

    def values(self) -> list[str]:
        """Not constant integers, which determine shapes."""
        integers = {n for n, array in self.constants().items() if array.dtype.kind in "iub"}
        return [name for name in super().values() if name not in integers]

    def _with_constants(self, new: Arrays) -> Self:
        graph = onnx.GraphProto()
        graph.CopyFrom(self.proto.graph)
        for tensor in graph.initializer:
            if tensor.name in new:
                tensor.CopyFrom(numpy_helper.from_array(new[tensor.name], tensor.name))
        return replace(self, proto=_around(self.proto, graph))


def _with_short_names(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, str]]:
    """The model with names that the text form of ONNX can express, and the new names."""
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    names: dict[str, str] = {}

    def short(name: str) -> str:
        if not name:
            return name
        if name not in names:
            is_plain = name.isidentifier() and name.isascii() and len(name) <= 20
            names[name] = name if is_plain else f"v{len(names)}"
            while list(names.values()).count(names[name]) > 1:
                names[name] += "_"
        return names[name]

    def rename(graph: onnx.GraphProto) -> None:
        for value in (*graph.input, *graph.initializer, *graph.output, *graph.value_info):
            value.name = short(value.name)
        for node in graph.node:
            node.ClearField("name")
            node.ClearField("doc_string")
            node.input[:] = map(short, node.input)
            node.output[:] = map(short, node.output)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    rename(attribute.g)
                for inner in attribute.graphs:
                    rename(inner)

    rename(graph)
    return _around(model, graph), names


def _element(array: np.ndarray) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def _described(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _element(array), array.shape)


def _types_of(model: onnx.ModelProto) -> dict[str, int]:
    """The element types of tensors by name, as far as they can be inferred."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # it is not precise about its exceptions
        graph = model.graph
    values = {v.name: v.type.tensor_type.elem_type for v in (*graph.value_info, *graph.output)}
    return {name: element for name, element in values.items() if element}


def _around(model: onnx.ModelProto, graph: onnx.GraphProto) -> onnx.ModelProto:
    """A model with another graph."""
    return helper.make_model(
        graph,
        ir_version=model.ir_version,
        opset_imports=model.opset_import,
        functions=model.functions,
    )


def _needed(graph: onnx.GraphProto) -> onnx.GraphProto:
    """The graph without nodes, inputs and initializers that its outputs do not need."""
    needed = {output.name for output in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if not needed.isdisjoint(node.output):
            nodes.append(node)
            needed |= names_read(node)
    initializers = {tensor.name for tensor in graph.initializer}
    return helper.make_graph(
        nodes[::-1],
        graph.name,
        [value for value in graph.input if value.name in needed - initializers],
        graph.output,
        [tensor for tensor in graph.initializer if tensor.name in needed],
    )
