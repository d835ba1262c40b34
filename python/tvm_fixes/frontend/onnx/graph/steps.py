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
"""The steps from a node to its outputs, and the reason for the place of each."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import onnx
import tvm_ffi
from tvm import relax, tirx

from ....errors import OpNotImplemented
from ....fixes.onnx_importer import IF as IF_FIX
from ....fixes.onnx_importer import LOOPS, QUANTIZED, SHAPE_VALUES
from ....relax.source_nodes import SourceNode, mark
from ....support import switches
from ..call import Call, float_defaults, operator_of
from ..ops.narrow import carried, narrow_result
from ..values.evaluate import evaluate
from .attributes import attributes_of
from .check import check_size
from .conditions import condition_of
from .control_flow import convert_both, convert_if
from .converted import has_converter
from .interface import GraphWalk
from .loops import convert_loop, convert_scan
from .node_errors import name_of, naming, unsupported
from .parameters import constant_operands

__all__ = ["STEPS", "convert_node"]

_SEQUENCES = frozenset(
    {
        "ConcatFromSequence",
        "Optional",
        "OptionalGetElement",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SplitToSequence",
    }
)
"""The operators with one output that may be a sequence, which is a tuple in Relax."""


@dataclass(frozen=True)
class _Node:
    """A node on its way through the steps.

    Attributes
    ----------
    proto : onnx.NodeProto
    walk : GraphWalk
    source : SourceNode
        The name of the node, and its operator; see :func:`~..call.operator_of`.
    attributes : mapping
    operands : tuple
        Relax expressions and values; None for an operand that is omitted.
    """

    proto: onnx.NodeProto
    walk: GraphWalk
    source: SourceNode
    attributes: Mapping[str, Any]
    operands: tuple[Any, ...] = ()

    @property
    def operator(self) -> str:
        return self.source.operator


_Rest = Callable[[_Node], Iterable[Any]]


class Step(NamedTuple):
    """A step, which may change a node, pass it to the rest of the steps, and change the outputs."""

    apply: Callable[[_Node, _Rest], Iterable[Any]]
    reason: str
    """Why it stands in its place."""
    fix: str | None = None
    """The fix that it belongs to."""


def convert_node(walk: GraphWalk, proto: onnx.NodeProto) -> list[Any]:
    """Convert a node; return its outputs as Relax expressions or values."""
    convert: _Rest = _with_converter
    for step in reversed(STEPS):
        if step.fix is None or switches.enabled(step.fix):
            convert = partial(step.apply, rest=convert)
    return list(convert(_Node(proto, walk, SourceNode(name_of(proto), operator_of(proto)), {})))


def _naming_errors(node: _Node, rest: _Rest) -> list[Any]:
    with naming(node.proto, partial(_dtype_of, node.walk)):
        return list(rest(node))


def _dtype_of(walk: GraphWalk, name: str) -> str | None:
    """The dtype of a value that is a tensor."""
    ty = getattr(walk.operand(name), "ty", None) if walk.is_bound(name) else None
    return str(ty.dtype) if isinstance(ty, relax.TensorType) else None


def _checking_sizes(node: _Node, rest: _Rest) -> list[Any]:
    """Check the sizes of the outputs; a symbolic dim counts as 1."""
    outputs = list(rest(node))
    for output in outputs:
        ty = getattr(output, "ty", None)
        if isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr):
            dims = [int(dim) for dim in ty.shape.values if isinstance(dim, tirx.IntImm)]
            check_size(dims, tvm_ffi.dtype(str(ty.dtype)).bits)
    return outputs


def _reading(node: _Node, rest: _Rest) -> Iterable[Any]:
    """Read the attributes, and look up the operands."""
    proto, walk = node.proto, node.walk
    defaults = {} if proto.domain else float_defaults(proto.op_type, walk.opset)
    attributes = defaults | attributes_of(proto)
    undefined = [name for name in proto.input if name and not walk.is_bound(name)]
    if undefined:
        raise ValueError(f"{proto.op_type} {node.source.name!r}: undefined operands {undefined}")
    operands = (walk.operand(name) if name else None for name in proto.input)
    return rest(replace(node, attributes=attributes, operands=tuple(operands)))


def _carrying_narrow(node: _Node, rest: _Rest) -> Iterable[Any]:
    """Record which outputs are narrow, and carry the elements of attributes in 8 bits."""
    narrow = node.walk.narrow
    operands = [narrow.get(name) for name in node.proto.input]
    result = narrow_result(node.operator, node.attributes, operands)
    narrow.update(dict.fromkeys(node.proto.output, result))
    attributes = {
        name: carried(value) if isinstance(value, onnx.TensorProto) else value
        for name, value in node.attributes.items()
    }
    return rest(replace(node, attributes=attributes))


def _marking(node: _Node, rest: _Rest) -> list[Any]:
    """Check the number of outputs, and mark them as results of the node."""
    proto, walk = node.proto, node.walk
    walk.conditions.update(condition_of(proto, node.operands, walk.known, walk.conditions))
    with switches.at(node.source):
        outputs = list(rest(node))
    if len(outputs) < len(proto.output):
        raise OpNotImplemented(
            f"{proto.op_type} {node.source.name!r}: {len(proto.output)} outputs are used; "
            f"expected at most {len(outputs)}"
        )
    for output in outputs:
        mark(output, node.source)
    return outputs


def _evaluating(node: _Node, rest: _Rest) -> Iterable[Any]:
    """Evaluate a node if all elements are known."""
    proto, known = node.proto, node.walk.known
    if proto.op_type in ("Cast", "CastLike") and node.walk.narrow.get(proto.output[0]):
        return rest(node)  # an evaluated cast would not keep only the lowest bits
    values = evaluate(
        node.operator,
        node.operands,
        dict(node.attributes),
        node.walk.opset,
        known,
        len(proto.output),
    )
    if values is None:
        return rest(node)
    switches.note(SHAPE_VALUES)
    if not (known.read_parameters(node.operands) and all(value.is_static for value in values)):
        return values
    # The parameters of a call may differ from those of the file.
    emit = node.walk.builder.emit
    variables = [x if isinstance(x, relax.Var) else emit(x) for x in rest(node)]
    for variable, value in zip(variables, values, strict=False):
        known.remember(variable, value, is_parameter=True)
    return variables


def _converting_graphs(node: _Node, rest: _Rest) -> Iterable[Any]:
    """Convert a node with branches or a loop body."""
    walk, attributes = node.walk, node.attributes
    match node.proto.op_type:
        case "Loop" if switches.enabled(LOOPS):
            return convert_loop(walk, node.source.name, node.operands, attributes["body"])
        case "Scan" if switches.enabled(LOOPS):
            return convert_scan(walk, node.source.name, node.operands, attributes)
        case "If":
            condition = walk.tensor(node.proto.input[0])
            branches = attributes["then_branch"], attributes["else_branch"]
            if not switches.enabled(IF_FIX):
                return convert_both(walk, condition, *branches)
            meaning = walk.conditions.get(node.proto.input[0])
            return convert_if(walk, condition, meaning, *branches)
    return rest(node)


def _giving_shapes(node: _Node, rest: _Rest) -> Iterable[Any]:
    """Cast outputs of unknown shape and known rank to a shape with a new symbol per dim."""
    builder = node.walk.builder
    for output in rest(node):
        ty = getattr(output, "ty", None)
        if not isinstance(ty, relax.TensorType) or ty.ndim < 1 or ty.shape is not None:
            yield output
            continue
        switches.note(SHAPE_VALUES)
        dims = [tirx.Var(f"dim_{axis}", "int64") for axis in range(ty.ndim)]
        variable = output if isinstance(output, relax.Var) else builder.emit(output)
        yield builder.match_cast(variable, relax.TensorType(dims, ty.dtype))


def _making_tensors(node: _Node, rest: _Rest) -> Iterable[Any]:
    operands = (node.walk.tensor(name) if name else None for name in node.proto.input)
    return rest(replace(node, operands=tuple(operands)))


def _refining(node: _Node, rest: _Rest) -> Iterable[Any]:
    """Give operands the extents that are known by now, and the values that must be constants."""
    walk = node.walk
    operands = [x if x is None else walk.known.refined(walk.builder, x) for x in node.operands]
    constants = constant_operands(node.operator, operands, walk.known)
    return rest(replace(node, operands=tuple(constants)))


STEPS = (
    Step(_naming_errors, "First: the errors of all steps name the node."),
    Step(_checking_sizes, "Outputs of every step below are checked."),
    Step(_reading, "The steps below need the attributes and operands."),
    Step(_carrying_narrow, "Before the first step that reads elements of attributes.", QUANTIZED),
    Step(_marking, "Outside all that makes outputs or notes the use of a fix."),
    Step(_evaluating, "A known result needs no operator and no tensors.", SHAPE_VALUES),
    Step(_converting_graphs, "A loop unrolls by values, which are not yet tensors."),
    Step(_giving_shapes, "Outputs of converters may lack a shape.", SHAPE_VALUES),
    Step(_making_tensors, "Converters take tensors."),
    Step(_refining, "Last: only tensors have a type that can be refined.", SHAPE_VALUES),
)
"""The steps, outermost first; the last converts a node with the converters of its operator."""


def _with_converter(node: _Node) -> Iterator[Any]:
    """Convert a node with the converters of its operator; its outputs are expressions."""
    proto, walk = node.proto, node.walk
    if not has_converter(proto):
        raise unsupported([proto])  # in a branch
    call = Call(
        node.operator,
        node.operands,
        node.attributes,
        walk.opset,
        node.source,
        walk.context,
        outputs=len(proto.output),
        rank=walk.ranks.get(proto.output[0]),
        narrow=tuple(map(walk.narrow.get, proto.input)),
    )
    builder = walk.builder
    result = call.convert()
    if isinstance(result, relax.Expr):
        result = builder.normalize(result)
    if proto.op_type in _SEQUENCES:
        yield result
    elif isinstance(result, relax.Tuple):
        yield from result.fields
    elif isinstance(result.ty, relax.TupleType):
        result = builder.emit(result)
        for index in range(len(result.ty.fields)):
            yield builder.emit(relax.TupleGetItem(result, index))
    elif isinstance(result.ty, relax.ShapeType) and switches.enabled(SHAPE_VALUES):
        # the shape of a tensor of unknown rank
        yield builder.emit(relax.op.shape_to_tensor(builder.emit(result)))
    else:
        yield result
