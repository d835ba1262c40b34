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
"""Expansion of model functions, and of operators with a function body in the ONNX schema.

Mechanism
    The importer looks a node up only by its operator type, and reads neither ``model.functions``
    nor the function bodies in ONNX's schemas.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import onnx
from onnx import defs, helper, inliner

from ....errors import OpNotImplemented
from ....fixes.onnx_importer import FUNCTIONS
from ....support import switches
from .check import nodes_in
from .external import with_initializers

__all__ = ["expand_functions"]

# The domains with schemas that have function bodies.
_DOMAINS = ("", "ai.onnx.preview")

# Initializers with more elements are not copied into the inliner.
_MAX_INLINED_ELEMENTS = 64


def expand_functions(
    model: onnx.ModelProto, is_converted: Callable[[onnx.NodeProto], bool]
) -> onnx.ModelProto:
    """Inline function calls, including those in branches and loop bodies.

    Parameters
    ----------
    model : onnx.ModelProto
        Is not modified.
    is_converted : callable
        Whether a node has a converter; such a node is kept.

    Returns
    -------
    onnx.ModelProto
        The expanded model; `model` itself if there is nothing to replace.

    Raises
    ------
    tvm.error.OpNotImplemented
        If a call can't be replaced, because its function is written for an opset that does not
        convert to the model's, or because its body depends on a type that can't be inferred.
    """
    opsets = {"": 1} | {imported.domain: imported.version for imported in model.opset_import}
    if not model.functions and not _operators_to_expand(model.graph, is_converted, opsets):
        return model
    switches.note(FUNCTIONS)
    expanded = _without_large_initializers(model)
    defaults = {
        (function.domain, function.name): function.attribute_proto for function in model.functions
    }
    _add_default_attributes(expanded.graph.node, defaults)
    for function in expanded.functions:
        _add_default_attributes(function.node, defaults)
    names = [f"{function.domain}.{function.name}" for function in model.functions]
    if names:
        with _report_inlining_errors(names):
            expanded = inliner.inline_local_functions(expanded, convert_version=True)
    # A body may itself call functions.
    while operators := _operators_to_expand(expanded.graph, is_converted, opsets):
        schemas = {
            (domain, name): defs.get_schema(name, opsets[domain], domain)
            for domain, name in operators
        }
        defaults = {
            function: [a.default_value for a in schema.attributes.values() if a.default_value.name]
            for function, schema in schemas.items()
        }
        _add_default_attributes(expanded.graph.node, defaults)
        # The inliner looks up the type of each operand, even of an omitted one, whose name is "".
        omitted = helper.make_tensor_value_info("", onnx.TensorProto.FLOAT, [])
        expanded.graph.value_info.append(omitted)
        with _report_inlining_errors([name for _, name in operators]):
            expanded = inliner.inline_selected_functions(
                expanded, operators, inline_schema_functions=True
            )
        typed = [value for value in expanded.graph.value_info if value.name]
        del expanded.graph.value_info[:]
        expanded.graph.value_info.extend(typed)
    del expanded.graph.initializer[:]
    expanded.graph.initializer.extend(model.graph.initializer)
    return expanded


def _without_large_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` with only the types of the large initializers, because inlining serializes the model.

    The small ones are kept: the type of a result may depend on their elements.
    """
    graph = model.graph
    light = with_initializers(
        model, [i for i in graph.initializer if math.prod(i.dims) <= _MAX_INLINED_ELEMENTS]
    )
    typed = {value.name for value in (*graph.input, *graph.value_info)}
    light.graph.value_info.extend(
        helper.make_tensor_value_info(i.name, i.data_type, i.dims)
        for i in graph.initializer
        if i.name not in typed
    )
    return light


def _add_default_attributes(
    nodes: Iterable[onnx.NodeProto],
    defaults: Mapping[tuple[str, str], Iterable[onnx.AttributeProto]],
) -> None:
    """Add the default attributes that calls of functions omit.

    The inliner would otherwise drop these attributes from the body.
    """
    for node in nodes:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                _add_default_attributes(body.node, defaults)
        given = {attribute.name for attribute in node.attribute}
        node.attribute.extend(
            default
            for default in defaults.get((node.domain, node.op_type), ())
            if default.name not in given
        )


@contextmanager
def _report_inlining_errors(functions: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # from the version converter, or from type inference
        raise OpNotImplemented(
            f"{', '.join(functions)}: cannot inline the body: {error}"
        ) from error


def _operators_to_expand(
    graph: onnx.GraphProto,
    is_converted: Callable[[onnx.NodeProto], bool],
    opsets: Mapping[str, int],
) -> list[tuple[str, str]]:
    """The domains and names of operators in `graph` that have a function body and no converter."""
    return sorted(
        {
            (node.domain, node.op_type)
            for node in nodes_in(graph.node)
            if node.domain in _DOMAINS
            and not is_converted(node)
            and _has_function_body(node.domain, node.op_type, opsets.get(node.domain, 1))
        }
    )


def _has_function_body(domain: str, operator: str, opset: int) -> bool:
    try:
        schema = defs.get_schema(operator, opset, domain)
    except defs.SchemaError:
        return False
    versions = (
        *schema.function_opset_versions,
        *schema.context_dependent_function_opset_versions,
    )
    # The versions are those of the default domain, which a body is written for.
    return any(domain or version <= opset for version in versions)
