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
"""Importer errors that name the node at fault."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import onnx

from ....errors import OpAttributeInvalid, OpNotImplemented
from .check import describe_node

__all__ = ["name_of", "naming", "unsupported"]

# The start of a message that already names its node, which may be nested in another node.
_NAMED = re.compile(r"(unsupported operator )?[\w.]+ (at node |at the node )?('|\"|with output)")

_MISSING = re.compile(r"not (yet )?(supported|implemented)|unsupported|only supports?\b", re.I)

# The form in which TVM prints an operator.
_OPERATOR = re.compile(r'ir\.Op\(span=.*?name="([\w.]+)".*?support_level=\d+\)')

# Numbers and dtypes as TVMScript writes them.
_SCRIPT = re.compile(r"\bT\.(?:int(?:32|64)\((-?\d+)\)|((?:bool|[a-z]+\d+)\b(?!\()))")

_MAX_NODES = 5
"""The maximum number of nodes of one operator that a message lists."""


def name_of(node: onnx.NodeProto) -> str:
    """The name of a node for messages; that of its first output if it has no name."""
    return node.name or next(filter(None, node.output), "")


@contextmanager
def naming(
    node: onnx.NodeProto, dtype_of: Callable[[str], str | None] = lambda _: None
) -> Iterator[None]:
    """Add the name of `node` to errors raised in the block that do not name a node.

    Parameters
    ----------
    node : onnx.NodeProto
    dtype_of : callable
        The dtype of a value by its name, if known.

    Raises
    ------
    tvm.error.OpNotImplemented
        For an error whose message reports a missing feature.
    tvm.error.OpAttributeInvalid
        For any other error.
    """
    try:
        yield
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        message, name = str(error), name_of(node)
        if _NAMED.match(message) or (node.op_type in message and repr(name) in message):
            raise
        message = _SCRIPT.sub(r"\1\2", _OPERATOR.sub(r"\1", message))
        if not message or not isinstance(error, (RuntimeError, ValueError)):
            # The text of a KeyError is only the key.
            message = f"{type(error).__name__}: {message}"
        message = _different_dtypes(node, dtype_of) or message
        is_missing = isinstance(error, NotImplementedError) or _MISSING.search(message)
        kind = OpNotImplemented if is_missing else OpAttributeInvalid
        raise kind(f"{node.op_type} {name!r}: {message}") from error


def _different_dtypes(node: onnx.NodeProto, dtype_of: Callable[[str], str | None]) -> str:
    """Which operands have different dtypes although the operator has one type for them."""
    try:
        formal = onnx.defs.get_schema(node.op_type, domain=node.domain).inputs
    except onnx.defs.SchemaError:
        return ""
    first: dict[str, tuple[int, str]] = {}
    for index, name in enumerate(node.input):
        dtype = dtype_of(name) if name else None
        parameter = formal[min(index, len(formal) - 1)] if formal else None
        if dtype is None or parameter is None or not parameter.is_homogeneous:
            continue
        other, expected = first.setdefault(parameter.type_str, (index, dtype))
        if dtype != expected:
            return (
                f"operands {other} and {index} are {expected} and {dtype}; expected one dtype: "
                "add a Cast to the model"
            )
    return ""


def unsupported(nodes: Iterable[onnx.NodeProto]) -> OpNotImplemented:
    """The error for `nodes` that have no converter."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        found.setdefault(node.op_type, []).append(describe_node(node))
    listed = []
    for operator, places in sorted(found.items()):
        listed += places[:_MAX_NODES]
        if len(places) > _MAX_NODES:
            listed.append(f"{len(places) - _MAX_NODES} more {operator}")
    return OpNotImplemented(f"unsupported operator {', '.join(listed)}")
