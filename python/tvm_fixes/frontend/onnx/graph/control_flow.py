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
"""The operator If.

Trigger
    An If whose condition is known, or whose branches return different shapes; a branch with an
    operator that is lowered to several operators, or that fails if it runs.
Mechanism
    The converter always converts both branches, and emits their bindings into the block around the
    If.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and the fix id ``onnx-if``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import onnx
import tvm
from tvm import relax, tirx

from ....fixes.onnx_importer import IF
from ....support import switches
from ..values.known import Extent, KnownValues, Value, extents_of
from .interface import GraphImporter

__all__ = [
    "Condition",
    "GraphWithIf",
    "condition_of",
    "convert_if",
    "convert_rest",
    "with_dataflow",
]


_MAX_DEPTH = 4
"""The maximum number of nested branches in which the nodes that follow an If are converted twice.

Without a limit, the size of the module would double with each If in a sequence.
"""


class GraphWithIf:
    """A graph with an additional If node, which is not converted."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.node = [*graph.node, onnx.NodeProto(op_type="If")]

    def __getattr__(self, field: str) -> Any:
        return getattr(self.graph, field)


@dataclass(frozen=True)
class Condition:
    """Whether two extents are equal, or whether they differ.

    Attributes
    ----------
    a, b : Extent
    is_equal : bool
    """

    a: Extent
    b: Extent
    is_equal: bool = True

    def verdict(self, known: KnownValues) -> bool | None:
        """Whether the condition holds; None if that is unknown."""
        equal = known.equal(self.a, self.b)
        return None if equal is None else equal == self.is_equal

    def assume(self, known: KnownValues, holds: bool) -> None:
        """Assume in `known` that the condition holds, or that it does not."""
        if holds == self.is_equal:
            known.assume_equal(self.a, self.b)
        else:
            known.assume_unequal(self.a, self.b)


_SAME_CONDITION = frozenset({"Cast", "Identity", "Not", "Reshape", "Squeeze", "Unsqueeze"})
"""The operators whose result is the condition that they read, or its negation."""


def condition_of(
    node: onnx.NodeProto,
    operands: Mapping[str, Any],
    known: KnownValues,
    conditions: Mapping[str, Condition],
) -> dict[str, Condition]:
    """The meaning of the result of a node by its name; empty if it compares no extents.

    Parameters
    ----------
    operands : mapping
        The Relax expressions and values that names are bound to.
    conditions : mapping
        The meanings of the results of earlier nodes.
    """
    if node.op_type == "Equal":
        found = [operands[name] for name in node.input]
        values = [x if isinstance(x, Value) else known.of(x) for x in found]
        extents = [v.extents() for v in values if v is not None and v.is_integer]
        if list(map(len, extents)) == [1, 1]:
            return {node.output[0]: Condition(extents[0][0], extents[1][0])}
    elif node.op_type in _SAME_CONDITION and node.input[0] in conditions:
        condition = conditions[node.input[0]]
        if node.op_type == "Not":
            condition = replace(condition, is_equal=not condition.is_equal)
        return {node.output[0]: condition}
    return {}


def convert_if(
    importer: GraphImporter,
    condition: relax.Expr,
    meaning: Condition | None,
    then_branch: onnx.GraphProto,
    else_branch: onnx.GraphProto,
) -> list[relax.Expr | Value]:
    """Convert an If; if its condition is known, convert only the branch that is taken.

    Otherwise each branch gets a block of its own, so that its bindings run only if it is taken.  If
    the results of both branches have the same rank, dims that differ become symbols.  If not, see
    :func:`convert_rest`.

    Parameters
    ----------
    meaning : Condition or None
        The extents that the condition compares, if it does.
    """
    switches.note(IF)
    value = importer.known.of(condition)
    holds = None if meaning is None else meaning.verdict(importer.known)
    if value is not None:
        holds = bool(value.elements.item())
    if holds is not None:
        return importer.convert_branch(then_branch if holds else else_branch)

    branches = [_branch_block(importer, graph) for graph in (then_branch, else_branch)]
    return _joined(importer, condition, branches, len(then_branch.output))


def convert_rest(
    importer: GraphImporter,
    node: onnx.NodeProto,
    condition: relax.Expr,
    meaning: Condition | None,
    branches: Sequence[onnx.GraphProto],
    following: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
) -> bool:
    """Convert the nodes that follow an If whose branches return different ranks.

    PyTorch's exporter writes such an If for ``squeeze(1)``.  The nodes that follow are converted in
    both branches, in which the rank is known.  If they reject one of the ranks, the model checks at
    run time that the other branch is taken.

    Parameters
    ----------
    node : onnx.NodeProto
        The If, which is already converted.
    condition : Expr
    meaning : Condition or None
        The extents that the condition compares, if it does.
    branches : sequence of onnx.GraphProto
        The graphs for a condition that holds, and for one that does not.
    following : sequence of onnx.NodeProto
        The nodes that follow in the same graph.
    outputs : sequence of str
        The results of that graph.

    Returns
    -------
    bool
        Whether `following` is converted.
    """
    results = [importer.operand(name) for name in node.output]
    if all(getattr(getattr(result, "ty", None), "ndim", 0) >= 0 for result in results):
        return False
    if importer.known.depth >= _MAX_DEPTH:
        return False
    made = {name for each in (node, *following) for name in each.output}
    names = [name for name in dict.fromkeys(outputs) if name in made]
    sides: list[relax.SeqExpr] = []
    errors: list[Exception | None] = []
    for graph, holds in zip(branches, (True, False), strict=True):

        def convert(graph: onnx.GraphProto = graph, holds: bool = holds) -> list[relax.Expr]:
            if meaning is not None:
                meaning.assume(importer.known, holds)
            own = dict(zip(node.output, importer.convert_branch(graph), strict=True))
            with importer.bound(own):
                importer.convert_nodes(following, outputs)
                return [importer.as_tensor(importer.operand(name)) for name in names]

        try:
            sides.append(_block(importer, convert))
            errors.append(None)
        except (RuntimeError, ValueError) as error:
            errors.append(error)
    if not sides:
        raise cast(Exception, errors[0])
    if len(sides) == 2:
        joined = _joined(importer, condition, sides, len(names))
        importer.bind(dict(zip(names, joined, strict=True)))
        return True
    taken = errors.index(None)
    _require(importer.bb, condition, taken == 0)
    if meaning is not None:
        meaning.assume(importer.known, taken == 0)
    own = importer.convert_branch(branches[taken])
    importer.bind(dict(zip(node.output, own, strict=True)))
    return False


def _require(builder: relax.BlockBuilder, condition: relax.Expr, holds: bool) -> None:
    """Emit a check that `condition`, a bool tensor of one element, is `holds`."""
    if not holds:
        condition = builder.emit(relax.op.logical_not(condition))
    number = builder.emit(relax.op.reshape(relax.op.astype(condition, "int64"), [1]))
    builder.match_cast(builder.emit(relax.op.tensor_to_shape(number)), relax.ShapeType([1]))


def _joined(
    importer: GraphImporter,
    condition: relax.Expr,
    branches: Sequence[relax.SeqExpr],
    count: int,
) -> list[relax.Expr]:
    """Emit an If; return its `count` results."""
    builder = importer.bb
    if condition.ty.ndim != 0:
        condition = builder.emit(relax.op.reshape(condition, []))
    result = builder.emit(relax.If(condition, *branches))
    if count == 1:
        return [_cast_to_common_shape(importer, result, [branch.body.ty for branch in branches])]
    return [
        _cast_to_common_shape(
            importer,
            builder.emit(relax.TupleGetItem(result, index)),
            [branch.body.ty.fields[index] for branch in branches],
        )
        for index in range(count)
    ]


def _branch_block(importer: GraphImporter, graph: onnx.GraphProto) -> relax.SeqExpr:
    """Convert a branch into a block of its own."""
    return _block(importer, lambda: importer.convert_branch(graph, as_tensors=True))


def _block(importer: GraphImporter, convert: Callable[[], list[relax.Expr]]) -> relax.SeqExpr:
    """A block of what `convert` emits, with the results that it returns."""
    builder = importer.bb
    builder.begin_scope()
    builder._begin_binding_block()
    try:
        with importer.known.scope():
            outputs = convert()
        body = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
        body = builder.normalize(body) if isinstance(body, relax.Var) else builder.emit(body)
    finally:
        block = builder._end_block()
        builder.end_scope()
    return builder.normalize(relax.SeqExpr([block], body))


def _cast_to_common_shape(
    importer: GraphImporter, result: relax.Expr, types: list[relax.Type]
) -> relax.Expr:
    """Cast `result` to the dims that the `types` of both branches have in common."""
    if extents_of(result) is not None or not all(
        isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr) for ty in types
    ):
        return result
    shapes = [ty.shape.values for ty in types]
    if len(shapes[0]) != len(shapes[1]):
        return result
    shape = [_common_extent(importer.known, *dims) for dims in zip(*shapes, strict=True)]
    return importer.bb.match_cast(result, relax.TensorType(shape, types[0].dtype))


def _common_extent(known: KnownValues, a: tirx.Expr, b: tirx.Expr) -> Extent:
    return a if known.equal(a, b) else tirx.Var("extent", "int64")


def _has_if(function: relax.Function) -> bool:
    return any(
        isinstance(binding.value, relax.If)
        for block in function.body.blocks
        for binding in block.bindings
        if isinstance(binding, relax.VarBinding)
    )


def with_dataflow(mod: tvm.IRModule) -> tvm.IRModule:
    """Convert functions without an If to dataflow blocks.

    TVM makes no dataflow block if the graph has an If node, but the import may have resolved it. A
    function with an If stays unchanged: TVM's FuseOps does not find the variables of blocks in
    branches, and :mod:`tvm_fixes.relax.lifted_runs` needs no blocks.
    """
    converted = relax.transform.ConvertToDataflow(min_size=1)(mod)
    for variable, function in mod.functions.items():
        if isinstance(function, relax.Function) and not _has_if(function):
            mod.update_func(variable, converted[variable.name_hint])
    return mod
