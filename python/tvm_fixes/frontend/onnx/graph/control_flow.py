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
"""

from collections.abc import Callable, Sequence
from typing import cast

import onnx
import tvm
from tvm import relax, tirx

from ....fixes.onnx_importer import IF
from ....support import switches
from ..values.known import Extent, KnownValues, Value, extents_of
from .conditions import Condition
from .interface import GraphWalk

__all__ = [
    "convert_both",
    "convert_if",
    "convert_rest",
    "with_dataflow",
]


_MAX_DEPTH = 4
"""The maximum number of nested branches in which the nodes that follow an If are converted twice.

Without a limit, the size of the module would double with each If in a sequence.
"""


def convert_if(
    walk: GraphWalk,
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
    value = walk.known.of(condition)
    holds = None if meaning is None else meaning.verdict(walk.known)
    if value is not None:
        holds = bool(value.elements.item())
    if holds is not None:
        return walk.convert_branch(then_branch if holds else else_branch)

    branches = [_branch_block(walk, graph) for graph in (then_branch, else_branch)]
    return _joined(walk, condition, branches, len(then_branch.output))


def convert_both(
    walk: GraphWalk,
    condition: relax.Expr,
    then_branch: onnx.GraphProto,
    else_branch: onnx.GraphProto,
) -> list[relax.Expr]:
    """Convert an If as TVM does: the bindings of both branches run before it."""
    sides = []
    for graph in (then_branch, else_branch):
        outputs = walk.convert_branch(graph, as_tensors=True)
        body = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
        sides.append(relax.SeqExpr(blocks=[], body=body))
    result = walk.builder.emit(relax.If(condition, *sides))
    count = len(then_branch.output)
    if count == 1:
        return [result]
    return [walk.builder.emit(relax.TupleGetItem(result, index)) for index in range(count)]


def convert_rest(
    walk: GraphWalk,
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
    results = [walk.operand(name) for name in node.output]
    if all(getattr(getattr(result, "ty", None), "ndim", 0) >= 0 for result in results):
        return False
    if walk.known.depth >= _MAX_DEPTH:
        return False
    made = {name for each in (node, *following) for name in each.output}
    names = [name for name in dict.fromkeys(outputs) if name in made]
    sides: list[relax.SeqExpr] = []
    errors: list[Exception | None] = []
    for graph, holds in zip(branches, (True, False), strict=True):

        def convert(graph: onnx.GraphProto = graph, holds: bool = holds) -> list[relax.Expr]:
            if meaning is not None:
                meaning.assume(walk.known, holds)
            own = dict(zip(node.output, walk.convert_branch(graph), strict=True))
            with walk.bound(own):
                walk.convert_nodes(following, outputs)
                return [walk.as_tensor(walk.operand(name)) for name in names]

        try:
            sides.append(_block(walk, convert))
            errors.append(None)
        except (RuntimeError, ValueError) as error:
            errors.append(error)
    if not sides:
        raise cast(Exception, errors[0])
    if len(sides) == 2:
        joined = _joined(walk, condition, sides, len(names))
        walk.bind(dict(zip(names, joined, strict=True)))
        return True
    taken = errors.index(None)
    _require(walk.builder, condition, taken == 0)
    if meaning is not None:
        meaning.assume(walk.known, taken == 0)
    own = walk.convert_branch(branches[taken])
    walk.bind(dict(zip(node.output, own, strict=True)))
    return False


def _require(builder: relax.BlockBuilder, condition: relax.Expr, holds: bool) -> None:
    """Emit a check that `condition`, a bool tensor of one element, is `holds`."""
    if not holds:
        condition = builder.emit(relax.op.logical_not(condition))
    number = builder.emit(relax.op.reshape(relax.op.astype(condition, "int64"), [1]))
    builder.match_cast(builder.emit(relax.op.tensor_to_shape(number)), relax.ShapeType([1]))


def _joined(
    walk: GraphWalk,
    condition: relax.Expr,
    branches: Sequence[relax.SeqExpr],
    count: int,
) -> list[relax.Expr]:
    """Emit an If; return its `count` results."""
    builder = walk.builder
    if condition.ty.ndim != 0:
        condition = builder.emit(relax.op.reshape(condition, []))
    result = builder.emit(relax.If(condition, *branches))
    if count == 1:
        return [_cast_to_common_shape(walk, result, [branch.body.ty for branch in branches])]
    return [
        _cast_to_common_shape(
            walk,
            builder.emit(relax.TupleGetItem(result, index)),
            [branch.body.ty.fields[index] for branch in branches],
        )
        for index in range(count)
    ]


def _branch_block(walk: GraphWalk, graph: onnx.GraphProto) -> relax.SeqExpr:
    """Convert a branch into a block of its own."""
    return _block(walk, lambda: walk.convert_branch(graph, as_tensors=True))


def _block(walk: GraphWalk, convert: Callable[[], list[relax.Expr]]) -> relax.SeqExpr:
    """A block of what `convert` emits, with the results that it returns."""
    builder = walk.builder
    builder.begin_scope()
    builder._begin_binding_block()
    try:
        with walk.known.scope():
            outputs = convert()
        body = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
        body = builder.normalize(body) if isinstance(body, relax.Var) else builder.emit(body)
    finally:
        block = builder._end_block()
        builder.end_scope()
    return builder.normalize(relax.SeqExpr([block], body))


def _cast_to_common_shape(
    walk: GraphWalk, result: relax.Expr, types: list[relax.Type]
) -> relax.Expr:
    """Cast `result` to the dims that the `types` of both branches have in common."""
    if extents_of(result) is not None or not all(
        isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr) for ty in types
    ):
        return result
    shapes = [ty.shape.values for ty in types]
    if len(shapes[0]) != len(shapes[1]):
        return result
    shape = [_common_extent(walk.known, *dims) for dims in zip(*shapes, strict=True)]
    return walk.builder.match_cast(result, relax.TensorType(shape, types[0].dtype))


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
