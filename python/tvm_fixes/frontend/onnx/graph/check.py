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
"""Checks of the ONNX rules that the importer relies on."""

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from onnx import defs

from ....errors import OpNotImplemented

__all__ = [
    "check_inputs",
    "check_model",
    "check_size",
    "describe_node",
    "is_known_domain",
    "nodes_in",
    "place_of",
]

_DEFAULT_DOMAINS = ("", "ai.onnx")
# ONNX Runtime's own operators, some of which TVM converts; trees and other classical models; new
# functions of ONNX.
_KNOWN_DOMAINS = frozenset({"com.microsoft", "ai.onnx.ml", "ai.onnx.preview"})

_MAX_NODES = 200_000
_MAX_OUTPUTS = 4096
_MAX_NESTING = 64

_KINDS = onnx.AttributeProto.AttributeType

_ELEMENT_TYPES = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}

_UNSUPPORTED_TYPES = ("COMPLEX", "FLOAT6")
"""Prefixes of the names of element types that kernels cannot compute with."""

_UNBOUNDED = 2**31 - 1
"""The maximum number of operands in the schema of a variadic operator."""


def check_model(model: onnx.ModelProto) -> None:
    """Check the ONNX rules that the importer relies on.

    ``onnx.checker`` checks them too, but it rejects models that every runtime accepts, and it
    cannot load models of more than 2 GiB.

    Parameters
    ----------
    model : onnx.ModelProto
        The elements of its initializers may be stored in files.

    Raises
    ------
    ValueError
        If a rule is violated; the message names the node, value or function.
    tvm.error.OpNotImplemented
        If the domain of a node is unknown.
    """
    _check_texts(model)
    versions = _check_opsets(model)
    functions = {(f.domain, f.name): f for f in model.functions}
    for graph, depth in _graphs(model.graph, 0):
        if depth > _MAX_NESTING:
            raise ValueError(f"graphs are nested more than {_MAX_NESTING} levels deep")
        _check_graph(graph, functions, versions)
    for function in model.functions:
        for node in function.node:
            _check_domain(node, functions)
    sizes: dict[tuple[str, str], int] = {}
    for key in functions:
        if _expanded_size(key, functions, sizes, []) > _MAX_NODES:
            raise ValueError(
                f"function {_full_name(*key)} expands to more than {_MAX_NODES} nodes, including "
                "the functions that it calls"
            )
    nodes = sum(sizes.get((node.domain, node.op_type), 1) for node in nodes_in(model.graph.node))
    if nodes > _MAX_NODES:
        raise ValueError(
            f"{nodes} nodes, including those of functions; expected at most {_MAX_NODES}"
        )
    values = {value.name for value in (*model.graph.input, *model.graph.initializer)}
    values.update(name for node in model.graph.node for name in node.output)
    for output in model.graph.output:
        if output.name not in values:
            raise ValueError(f"output {output.name!r} of the graph: no node produces it")


def _check_texts(model: onnx.ModelProto) -> None:
    """Reject strings that are not UTF-8, which protobuf returns as bytes."""
    pending: list[tuple[str, Message]] = [("", model)]
    while pending:
        path, message = pending.pop()
        for name in _text_fields(message.DESCRIPTOR):
            value = getattr(message, name)
            held = {f"{path}{name}": value}
            if isinstance(value, Message):
                held = held if message.HasField(name) else {}
            elif not isinstance(value, str | bytes):
                held = {f"{path}{name}[{index}]": one for index, one in enumerate(value)}
            for where, one in held.items():
                if isinstance(one, Message):
                    pending.append((f"{where}.", one))
                elif isinstance(one, bytes):
                    raise ValueError(f"{where}: expected text in UTF-8, got {one[:80]!r}")


@functools.cache
def _text_fields(descriptor: Descriptor) -> list[str]:
    """The names of the fields that are strings, or messages that may contain strings."""
    kinds = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)
    return [field.name for field in descriptor.fields if field.type in kinds]


def describe_node(node: onnx.NodeProto) -> str:
    """Describe a node for messages: ``Relu at node 'n'``, or its outputs if it has no name."""
    return f"{_full_name(node.domain, node.op_type)} at {place_of(node)}"


def place_of(node: onnx.NodeProto) -> str:
    """Where a node is: ``node 'n'``, or its outputs if it has no name."""
    place = f"node {node.name!r}"
    if not node.name:
        plural = "s" if len(node.output) > 1 else ""
        place = f"the node with output{plural} {', '.join(map(repr, node.output))}"
    if len(place) > 200:
        place = f"{place[:199]}…"
    return place


def _full_name(domain: str, name: str) -> str:
    return f"{domain}.{name}" if domain else name


def _check_opsets(model: onnx.ModelProto) -> dict[str, int]:
    """Check the imported opsets; return the version of each domain."""
    versions: dict[str, int] = {}
    for imported in model.opset_import:
        domain = "" if imported.domain in _DEFAULT_DOMAINS else imported.domain
        if versions.setdefault(domain, imported.version) != imported.version:
            raise ValueError(
                f"opset of domain {domain!r} is imported twice: {versions[domain]} and "
                f"{imported.version}"
            )
    opset, newest = versions.get("", 1), defs.onnx_opset_version()
    if not 1 <= opset <= newest:
        raise ValueError(f"opset {opset} is unknown; expected 1 to {newest}")
    return versions | {"": opset}


def _graphs(graph: onnx.GraphProto, depth: int) -> Iterator[tuple[onnx.GraphProto, int]]:
    """Yield the graph and the graphs nested in its nodes, each with its depth."""
    pending = [(graph, depth)]
    while pending:
        graph, depth = pending.pop()
        yield graph, depth
        for node in graph.node:
            for attribute in node.attribute:
                bodies = [attribute.g] if attribute.HasField("g") else []
                pending.extend((body, depth + 1) for body in (*bodies, *attribute.graphs))


def _check_graph(
    graph: onnx.GraphProto,
    functions: Mapping[tuple[str, str], onnx.FunctionProto],
    versions: Mapping[str, int],
) -> None:
    name = graph.name or "the graph"
    _check_unique((value.name for value in graph.input), f"input of {name}")
    _check_unique((tensor.name for tensor in graph.initializer), f"initializer of {name}")
    for value in graph.input:
        _check_input(value)
    for tensor in graph.initializer:
        _check_tensor(tensor, f"initializer {tensor.name!r}")
    defined = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        _check_domain(node, functions)
        _check_node(node, versions.get(node.domain))
        for output in filter(None, node.output):
            if output in defined:
                raise ValueError(
                    f"{describe_node(node)}: output {output!r} is also the name of another value"
                )
            defined.add(output)


def _check_unique(names: Iterable[str], what: str) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what}: {name!r} appears twice")
        seen.add(name)


def _check_input(value: onnx.ValueInfoProto) -> None:
    if value.type.WhichOneof("value") != "tensor_type":
        return  # a sequence, or an untyped input of a loop body or branch
    number = value.type.tensor_type.elem_type
    if number not in _ELEMENT_TYPES:
        raise ValueError(f"input {value.name!r}: element type {number} is unknown")
    name = onnx.TensorProto.DataType.Name(number)
    if name.startswith(_UNSUPPORTED_TYPES):
        raise ValueError(f"input {value.name!r}: element type is {name}; expected real numbers")
    if number == onnx.TensorProto.STRING:
        raise ValueError(
            f"input {value.name!r}: element type is STRING, but tensors hold no strings; encode "
            "them as numbers, and remove the operators that do so from the model"
        )
    dims = value.type.tensor_type.shape.dim
    extents = [dim.dim_value for dim in dims if dim.WhichOneof("value") == "dim_value"]
    try:
        check_size(extents, _bits(number))
    except ValueError as error:
        raise ValueError(f"input {value.name!r}: {error}") from None


def check_inputs(graph: onnx.GraphProto) -> None:
    """Reject inputs that are sequences; an optional tensor counts as given.

    Raises
    ------
    tvm.error.OpNotImplemented
        If an input is a sequence or an optional sequence.
    """
    for value in graph.input:
        kind = value.type
        if kind.WhichOneof("value") == "optional_type":
            kind = kind.optional_type.elem_type
        if kind.WhichOneof("value") == "sequence_type":
            raise OpNotImplemented(
                f"input {value.name!r}: expected a tensor, got a sequence, whose length is unknown"
            )


def check_size(extents: Sequence[int], bits: int) -> None:
    """Check that the size of a tensor in bytes fits an int64.

    Parameters
    ----------
    extents : sequence of int
    bits : int
        The width of an element.

    Raises
    ------
    ValueError
        If it does not fit.
    """
    if math.prod(extents) * bits // 8 >= 1 << 63:
        raise ValueError(f"extents {list(extents)}; expected a tensor of less than 2**63 bytes")


def _check_tensor(tensor: onnx.TensorProto, what: str) -> None:
    """Check that a tensor has a known type, and the number of bytes that its shape needs."""
    if tensor.data_type not in _ELEMENT_TYPES:
        raise ValueError(f"{what}: element type {tensor.data_type} is unknown")
    shape = list(tensor.dims)
    if any(dim < 0 for dim in shape):
        raise ValueError(f"{what}: shape {shape} has a negative extent")
    if tensor.data_type == onnx.TensorProto.STRING:
        return
    bits = _bits(tensor.data_type)
    expected = -(-math.prod(shape) * bits // 8)
    if tensor.HasField("raw_data"):
        given = len(tensor.raw_data)
    elif bits < 8 and tensor.data_location != onnx.TensorProto.EXTERNAL:
        given = len(tensor.int32_data)  # each element of this field holds one byte
    else:
        return
    if expected != given:
        raise ValueError(f"{what}: shape {shape} needs {expected} bytes, got {given}")


def _bits(number: int) -> int:
    name = onnx.TensorProto.DataType.Name(number)
    for suffix, bits in (("INT2", 2), ("INT4", 4), ("FLOAT4E2M1", 4)):
        if name.endswith(suffix):
            return bits
    return 8 * onnx.helper.tensor_dtype_to_np_dtype(number).itemsize


def is_known_domain(domain: str) -> bool:
    """Whether the importer has converters for operators of a domain."""
    return domain in (*_DEFAULT_DOMAINS, *_KNOWN_DOMAINS)


def _check_domain(
    node: onnx.NodeProto, functions: Mapping[tuple[str, str], onnx.FunctionProto]
) -> None:
    if not is_known_domain(node.domain) and (node.domain, node.op_type) not in functions:
        raise OpNotImplemented(f"unsupported operator {describe_node(node)}")


def _check_node(node: onnx.NodeProto, opset: int | None) -> None:
    """Check the attributes of a node, and the number of operands if its schema is known."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            _check_tensor(attribute.t, f"{describe_node(node)}: attribute {attribute.name!r}")
    _check_unique((a.name for a in node.attribute), f"attribute of {describe_node(node)}")
    if len(node.output) > _MAX_OUTPUTS:
        raise ValueError(
            f"{describe_node(node)}: {len(node.output)} outputs; expected at most {_MAX_OUTPUTS}"
        )
    if opset is None:
        return
    try:
        schema = defs.get_schema(node.op_type, opset, node.domain)
    except defs.SchemaError:
        return  # the importer reports unknown operators
    if not schema.min_input <= len(node.input) <= schema.max_input:
        low, high = schema.min_input, schema.max_input
        expected = f"at least {low}"
        if high < _UNBOUNDED:
            expected = f"{low} to {high}" if low < high else f"{low}"
        raise ValueError(f"{describe_node(node)}: {len(node.input)} operands; expected {expected}")
    given = {attribute.name: attribute for attribute in node.attribute}
    for name, declared in schema.attributes.items():
        if name not in given:
            if declared.required:
                raise ValueError(f"{describe_node(node)}: attribute {name!r} is missing")
            continue
        kind, wanted = given[name].type, int(declared.type.value)
        if kind not in (wanted, _KINDS.UNDEFINED) and not given[name].ref_attr_name:
            raise ValueError(
                f"{describe_node(node)}: attribute {name!r} is of kind {_name_of_kind(kind)}; "
                f"expected {_name_of_kind(wanted)}"
            )


def _name_of_kind(number: int) -> str:
    return _KINDS.Name(number) if number in _KINDS.values() else str(number)


def _expanded_size(
    key: tuple[str, str],
    functions: Mapping[tuple[str, str], onnx.FunctionProto],
    sizes: dict[tuple[str, str], int],
    callers: list[tuple[str, str]],
) -> int:
    """The number of nodes that a function call expands to."""
    if key in callers:
        cycle = " → ".join(_full_name(*caller) for caller in (*callers[callers.index(key) :], key))
        raise ValueError(f"functions call each other recursively: {cycle}")
    if len(callers) > _MAX_NESTING:
        raise ValueError(f"function calls are nested more than {_MAX_NESTING} levels deep")
    if key not in sizes:
        called = [(node.domain, node.op_type) for node in nodes_in(functions[key].node)]
        sizes[key] = sum(
            _expanded_size(other, functions, sizes, [*callers, key]) if other in functions else 1
            for other in called
        )
    return sizes[key]


def nodes_in(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield `nodes` and the nodes of the graphs nested in them, in order."""
    pending = list(nodes)[::-1]
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                pending.extend(reversed(body.node))
