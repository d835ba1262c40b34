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
"""The import of a model as a function."""

import warnings
from contextlib import nullcontext
from typing import Any

import onnx
import tvm
from tvm import relax, tirx
from tvm.relax.frontend import onnx as tvm_onnx

from ....fixes.onnx_importer import FUNCTIONS, IF, LOOPS, SHAPE_VALUES, UNNAMED_DIMS
from ....relax.source_nodes import spread
from ....support import switches
from ....support.serial import in_turn
from ..call import CONVERTERS
from ..ops.narrow import narrow_inputs, to_narrow
from ..stock import is_empty_optional
from ..values.declared_ranks import declared_ranks
from ..values.known import extents_of
from ..values.unified import with_values
from .arguments import Arguments, elements_of
from .check import check_model
from .control_flow import with_dataflow
from .converted import converts_loops, has_converter
from .external import Read, with_external, without_external
from .functions import expand_functions
from .inputs import Dim
from .liveness import live_nodes, without_strings
from .loops import has_branches
from .node_errors import unsupported
from .order import in_order
from .sparse import with_dense_tensors
from .walk import Walk

__all__ = ["from_onnx", "import_model"]

_FIXES = {FUNCTIONS, IF, LOOPS, SHAPE_VALUES, UNNAMED_DIMS}
"""The fixes of the importer itself."""

_MIN_IR_VERSION = 3


@in_turn
def from_onnx(
    model: onnx.ModelProto,
    shape_dict: dict[str, list[Dim]] | None = None,
    dtype_dict: str | dict[str, str] | None = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> tvm.IRModule:
    """Import an ONNX model: ``tvm.relax.frontend.onnx.from_onnx`` with corrections.

    Convolutions, transposed convolutions, MatMul, Gemm, PRelu, Pad, Resize, Upsample, and operators
    that slice, split, reshape, expand or select behave as in ONNX Runtime.  Each unnamed dim of an
    input becomes a symbol.  RNN, GRU, LSTM, Loop and Scan are supported; a loop of more than a few
    iterations becomes a recursive function. Quantized operators are supported too, and so are
    those of the domain com.microsoft that ONNX Runtime's optimizer and model builder write, and
    trees and other classical models of the domain ai.onnx.ml. TVM's converters handle all other
    operators, and those whose fixes are disabled.  Nodes may have any order.

    Parameters
    ----------
    model : onnx.ModelProto
        The model, of IR version 3 (ONNX 1.1) or newer.
    shape_dict : dict of str to list, optional
        Shapes of inputs, by name; they override those in the model.  A string dim names a
        symbol, which all dims of this name share, or is an expression of symbols.
    dtype_dict : str or dict of str to str, optional
        Dtypes of inputs, by name; they override those in the model.
    opset : int, optional
        The version of the default operator set, instead of the model's.
    keep_params_in_input : bool
        Make the initializers inputs of ``main``, after the model's own inputs, instead of
        constants; the function's attribute ``params`` then holds their values.
    sanitize_input_names : bool
        Change the names of inputs to valid identifiers.

    Returns
    -------
    tvm.IRModule
        The model as the function ``main``.

    Raises
    ------
    ValueError
        If the model's IR version is too old, or the model violates a rule of ONNX: two values with
        the same name, an unknown opset or element type, a missing operand or attribute.
    tvm.error.OpNotImplemented
        If the model has operators without a converter; the message names them.
    tvm.error.OpAttributeInvalid
        If an attribute or operand of a node has a value that can't be imported; the message names
        the node, the attribute or operand, and the value.
    """
    return import_model(
        model, shape_dict, dtype_dict, opset, keep_params_in_input, sanitize_input_names
    )


def import_model(
    model: onnx.ModelProto,
    shape_dict: dict[str, list[Dim]] | None = None,
    dtype_dict: str | dict[str, str] | None = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
    *,
    read: Read | None = None,
) -> tvm.IRModule:
    """Import as :func:`from_onnx` does; `read` may supply the elements of initializers.

    Parameters
    ----------
    read : callable, optional
        Returns the tensor of an initializer, which may be stored in a file; by default a copy of
        the elements in the model.
    """
    if not any(map(switches.enabled, _FIXES | CONVERTERS.fixes())):
        if read is not None:
            model = with_external(model, read)
        return tvm_onnx.from_onnx(
            model, shape_dict, dtype_dict, opset, keep_params_in_input, sanitize_input_names
        )
    if model.ir_version < _MIN_IR_VERSION:
        raise ValueError(
            f"ONNX IR version {model.ir_version} is not supported; expected {_MIN_IR_VERSION} "
            "(ONNX 1.1) or newer"
        )
    model = with_dense_tensors(model)
    check_model(model)
    model = in_order(model)
    try:
        onnx.checker.check_model(without_external(model))
    except Exception as error:  # a model that the checker rejects may be importable
        warnings.warn(str(error), stacklevel=2)
    versions = {imported.domain: imported.version for imported in model.opset_import}
    model_opset = versions.get("", versions.get("ai.onnx", 1))
    if opset is not None and opset < model_opset:
        warnings.warn(
            f"the model has opset {model_opset} and is read as opset {opset}: "
            "operators may be misinterpreted",
            stacklevel=2,
        )
    if switches.enabled(FUNCTIONS):
        model = expand_functions(model, has_converter)
    dtypes = dtype_dict if isinstance(dtype_dict, dict) else {}
    arguments = Arguments(shape_dict or {}, dtypes, sanitize_input_names)
    return _import_graph(
        model.graph,
        model_opset if opset is None else opset,
        arguments,
        keep_params_in_input,
        read or elements_of,
    )


def _import_graph(
    graph: onnx.GraphProto, opset: int, arguments: Arguments, keeps_parameters: bool, read: Read
) -> tvm.IRModule:
    """A module with the graph as the function ``main``."""
    params: dict[str, tuple[relax.Var, tvm.runtime.Tensor]] = {}
    walk = Walk(opset, params, read)
    if keeps_parameters:
        parameters = arguments.parameters(graph, walk.array)
        params.update((variable.name, (variable, array)) for variable, array in parameters.values())
        walk.bind({name: variable for name, (variable, _) in parameters.items()})
    else:
        walk.bind(
            {tensor.name: relax.const(walk.array(tensor)) for tensor in without_strings(graph)}
        )
    inputs = arguments.inputs(graph)
    walk.bind(inputs)
    dims = (dim for variable in inputs.values() for dim in extents_of(variable) or ())
    walk.known.add_inputs(dim for dim in dims if isinstance(dim, tirx.Var))
    unsupported_nodes = [node for node in live_nodes(graph) if not has_converter(node)]
    if unsupported_nodes:
        raise unsupported(unsupported_nodes)
    attributes: dict[str, Any] = {"num_input": len(inputs)}
    if params:
        attributes["params"] = [array for _, array in params.values()]
    variables = [*inputs.values(), *(variable for variable, _ in params.values())]
    has_if = any(node.op_type == "If" for node in graph.node)
    # A dataflow block cannot contain an If, which unrolled loops may have in their bodies.
    is_dataflow = not has_if and not (converts_loops() and has_branches(graph))
    builder = walk.builder
    with builder.function("main", params=variables):
        with builder.dataflow() if is_dataflow else nullcontext():
            result = _convert_graph(walk, graph)
            if is_dataflow:
                result = builder.emit_output(result)
        builder.emit_func_output(result)
    mod = builder.get()
    mod["main"] = mod["main"].with_attrs(attributes)
    if walk.known.unified:
        mod = with_values(mod, dict(walk.known.unified))
    if not switches.enabled(SHAPE_VALUES):
        return mod
    spread(mod)
    mod = relax.transform.DeadCodeElimination(["main"])(mod)
    return mod if is_dataflow else with_dataflow(mod)


def _convert_graph(walk: Walk, graph: onnx.GraphProto) -> relax.Expr:
    """Convert the main graph; return its outputs, as a tuple if there are several."""
    for name, dtype in narrow_inputs(graph).items():
        narrow = to_narrow(walk.builder, walk.operand(name), dtype)
        walk.bind({name: walk.builder.emit(narrow)})
        walk.narrow[name] = dtype
    if switches.enabled(SHAPE_VALUES):
        walk.ranks = declared_ranks(graph)
    names = [output.name for output in graph.output]
    walk.convert_nodes(live_nodes(graph), names)
    outputs = [walk.tensor(name) for name in names]
    for name, output in zip(names, outputs, strict=True):
        if is_empty_optional(output):
            raise ValueError(f"output {name!r} is an empty optional; expected an element")
    return outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
