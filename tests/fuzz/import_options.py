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
"""The campaign ``import-options``: the options of the importers, with our pipeline and TVM's.

A case is an ONNX graph or a PyTorch program of another campaign, imported with random options.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import torch
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx as from_onnx_of_tvm
from tvm.relax.frontend.torch import from_exported_program as from_exported_program_of_tvm

import tvm_fixes
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.support.isolate import OutcomeKind, run_forked

from . import onnx_dims, onnx_models, onnx_old_opsets, torch_programs
from .onnx_graphs import Graph
from .targets import TARGETS, TVM, Compiled, compiled

_TORCH_EACH = 6
_DIMS_EACH = 5
_OLD_EACH = 7

Importer = Callable[..., tvm.IRModule]
"""An importer, from a model and options to a module."""

_READ = {
    "Add": (0, 1),
    "Conv": (1, 2),
    "Div": (0, 1),
    "Gemm": (0, 1, 2),
    "MatMul": (0, 1),
    "Mul": (0, 1),
    "PRelu": (1,),
    "Sub": (0, 1),
    "Where": (1, 2),
}
"""The operands that a function reads from its arguments, whatever values the file has."""

_NAMES = ("{}", "{}.weight", "onnx::{}", "1{}", "lv_{}", "{}/in:0")


@dataclass
class Options:
    """How a case is imported.

    Attributes
    ----------
    target : str
        See :mod:`.targets`.
    keywords : dict
        The arguments of the importer.
    renamed : dict of str to str
        Other names of the inputs and initializers of a graph.
    lists_initializers : bool
        Whether the inputs of the graph include its initializers.
    other_parameters : set of str
        The initializers whose values in the file are not those of the call.
    is_one_size : bool
        Whether the function accepts only the sizes of the first inputs.
    """

    target: str
    keywords: dict[str, Any]
    renamed: dict[str, str] = field(default_factory=dict)
    lists_initializers: bool = False
    other_parameters: set[str] = field(default_factory=set)
    is_one_size: bool = False

    @property
    def keeps(self) -> bool:
        """Whether parameters are arguments of the function."""
        return any(name.startswith("keep_params") and on for name, on in self.keywords.items())


def run_case(seed: int) -> str | None:
    """Import and compare the model of `seed`; see :class:`tests.fuzz.campaign.Campaign`."""
    if seed % _TORCH_EACH == _TORCH_EACH - 1:
        return _run_torch(seed)
    graph = _graph(seed)
    if not graph.nodes:
        return None
    model = graph.model()
    cases = onnx_models.cases_of(graph, seed)
    options = options_of(model, cases[0], seed)
    if options.is_one_size:
        cases = cases[:1]
    variant = renamed(model, options)

    def check(importer: Importer, target: str) -> str | None:
        def build() -> onnx_models.Run:
            return _build(model, variant, replace(options, target=target), importer)

        return onnx_models.check(model, cases, target, make=build)

    return _judged(options, check, _verified(from_onnx), from_onnx_of_tvm)


def _graph(seed: int) -> Graph:
    if seed % _OLD_EACH == _OLD_EACH - 1:
        return onnx_old_opsets.make_graph(seed)
    makes = onnx_dims if seed % _DIMS_EACH == _DIMS_EACH - 1 else onnx_models
    return makes.make_graph(seed)


def _verified(from_source: Importer) -> Importer:
    def imported(source: Any, **keywords: Any) -> tvm.IRModule:
        mod = from_source(source, **keywords)
        tvm_fixes.verify(mod).raise_if_errors()
        return mod

    return imported


def _judged(
    options: Options,
    check: Callable[[Importer, str], str | None],
    ours: Importer,
    stock: Importer,
) -> str | None:
    """Return the result of `check`; a fault of TVM's pipeline counts as a rejection.

    It is one if our pipeline is right, and TVM's import fails as well with TVM's pipeline.
    """
    try:
        return check(ours, options.target)
    except AssertionError as error:
        message = str(error)
    if options.target == TVM and check(ours, "llvm") is None:
        outcome = run_forked(lambda: check(stock, TVM), timeout=60)
        if outcome.kind is not OutcomeKind.VALUE or outcome.value is not None:
            return f"TVM's pipeline: {message}"
    raise AssertionError(f"{message}; {options}")


def options_of(model: onnx.ModelProto, inputs: dict[str, np.ndarray], seed: int) -> Options:
    """Random options for a graph."""
    rng = np.random.default_rng([9, seed])
    target = TVM if rng.random() < 0.6 else str(rng.choice(TARGETS))
    keywords: dict[str, Any] = {}
    if rng.random() < 0.6:
        keywords["keep_params_in_input"] = bool(rng.random() < 0.8)
    if rng.random() < 0.4:
        keywords["sanitize_input_names"] = bool(rng.random() < 0.5)
    if rng.random() < 0.3:
        keywords["opset"] = next(v.version for v in model.opset_import if not v.domain)
    options = Options(target, keywords, lists_initializers=bool(rng.random() < 0.3))
    if rng.random() < 0.5:
        names = [value.name for value in (*model.graph.input, *model.graph.initializer)]
        options.renamed = {name: str(rng.choice(_NAMES)).format(name) for name in names}
    if rng.random() < 0.3:
        keywords["dtype_dict"] = {
            options.renamed.get(name, name): array.dtype.name
            for name, array in inputs.items()
            if rng.random() < 0.5
        }
    kind = rng.choice(("none", "none", "sizes", "names"))
    if kind == "sizes":
        options.is_one_size = True
        keywords["shape_dict"] = {
            options.renamed.get(name, name): list(array.shape) for name, array in inputs.items()
        }
    elif kind == "names":
        keywords["shape_dict"] = {
            options.renamed.get(value.name, value.name): [
                dim.dim_param or dim.dim_value if rng.random() < 0.7 else _unnamed(rng)
                for dim in value.type.tensor_type.shape.dim
            ]
            for value in model.graph.input
            if rng.random() < 0.7
        }
    if options.keeps and rng.random() < 0.5:
        options.other_parameters = _read_from_arguments(model)
    return options


def _unnamed(rng: np.random.Generator) -> str | int | None:
    return ("?", "", None, -1)[int(rng.integers(4))]


def _read_from_arguments(model: onnx.ModelProto) -> set[str]:
    read = {
        (name, index in _READ.get(node.op_type, ()))
        for node in model.graph.node
        for index, name in enumerate(node.input)
    }
    floats = {t.name for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    return {name for name in floats if (name, True) in read and (name, False) not in read}


def renamed(model: onnx.ModelProto, options: Options) -> onnx.ModelProto:
    """`model` with other names, inputs and values of initializers, according to `options`."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph, names = model.graph, options.renamed
    for tensor in graph.initializer:
        if tensor.name in options.other_parameters:
            other = np.roll(onnx.numpy_helper.to_array(tensor).ravel(), 1).reshape(tensor.dims) + 1
            tensor.CopyFrom(onnx.numpy_helper.from_array(other, tensor.name))
    if options.lists_initializers:
        listed = [
            onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims)
            for t in graph.initializer
        ]
        inputs = [*listed, *graph.input]
        del graph.input[:]
        graph.input.extend(inputs)
    for value in (*graph.input, *graph.initializer):
        value.name = names.get(value.name, value.name)
    for output in graph.output:
        assert output.name not in names, "an output is an input"
    _rename_operands(graph, names)
    return model


def _rename_operands(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Rename what the nodes of a graph, and of graphs in them, read."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                hidden = {x.name for x in (*attribute.g.input, *attribute.g.initializer)}
                own = {old: new for old, new in names.items() if old not in hidden}
                _rename_operands(attribute.g, own)
                for output in attribute.g.output:
                    output.name = own.get(output.name, output.name)


def _build(
    model: onnx.ModelProto,
    variant: onnx.ModelProto,
    options: Options,
    importer: Importer,
) -> onnx_models.Run:
    """Build `variant`; the result takes the inputs of `model` by name."""
    mod = importer(variant, **options.keywords)
    parameters: list[np.ndarray] = []
    if options.keeps:
        mod, params = relax.frontend.detach_params(mod)
        given = params.get("main", [])  # a graph may have no initializers
        parameters = [
            onnx.numpy_helper.to_array(tensor)
            if tensor.name in options.other_parameters
            else kept.numpy()
            for tensor, kept in zip(model.graph.initializer, given, strict=True)
        ]
    run = compiled(mod, options.target)
    names = [value.name for value in model.graph.input]
    return lambda inputs: run([*(inputs[name] for name in names), *parameters])


def _run_torch(seed: int) -> str | None:
    program, results = torch_programs.make_program(seed)
    if not results:
        return None
    options = torch_options_of(seed)

    def check(importer: Importer, target: str) -> str | None:
        def build(exported: torch.export.ExportedProgram) -> Compiled:
            return _build_torch(exported, replace(options, target=target), importer)

        return torch_programs.check(program, results, target, seed, build)

    return _judged(options, check, _verified(from_exported_program), from_exported_program_of_tvm)


def torch_options_of(seed: int) -> Options:
    """Random options for a PyTorch program."""
    rng = np.random.default_rng([9, seed])
    target = TVM if rng.random() < 0.6 else str(rng.choice(TARGETS))
    names = ("keep_params_as_input", "unwrap_unit_return_tuple", "no_bind_return_tuple")
    keywords = {name: bool(rng.random() < 0.6) for name in names if rng.random() < 0.7}
    return Options(target, keywords)


def _build_torch(
    program: torch.export.ExportedProgram,
    options: Options,
    importer: Importer,
) -> Compiled:
    mod = importer(program, **options.keywords)
    parameters: list[np.ndarray] = []
    if options.keeps:
        mod, params = relax.frontend.detach_params(mod)
        parameters = [tensor.numpy() for tensor in params.get("main", [])]
    run = compiled(mod, options.target)
    return lambda inputs: run([*inputs, *parameters])
