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

Upstream
    https://github.com/apache/tvm/issues/17383, which was fixed only in Relay's importer.
Versions
    Seen in 0.27.0.post1.
Trigger
    An If whose condition is known, or whose branches return different shapes; a branch with an
    operator that is lowered to several operators, or that fails if it runs.
Symptom
    The branch that is not taken raises, or runs. The results have no rank, so that a later operator
    fails with ``requires statically known rank``.
Mechanism
    The converter always converts both branches, and emits their bindings into the block around the
    If.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and the fix id ``onnx-if``.
"""

from typing import Any

import onnx
import tvm
from tvm import relax, tirx

from ...fixes.onnx_importer import IF
from ...support import switches
from .graph import GraphImporter
from .values import Extent, KnownValues, Value, extents_of

__all__ = ["GraphWithIf", "convert_if", "with_dataflow"]


class GraphWithIf:
    """A graph with an additional If node, which is not converted."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.node = [*graph.node, onnx.NodeProto(op_type="If")]

    def __getattr__(self, field: str) -> Any:
        return getattr(self.graph, field)


def convert_if(
    importer: GraphImporter,
    condition: relax.Expr,
    then_branch: onnx.GraphProto,
    else_branch: onnx.GraphProto,
) -> list[relax.Expr | Value]:
    """Convert an If; if its condition is known, convert only the branch that is taken.

    Otherwise each branch gets a block of its own, so that its bindings run only if it is taken.  If
    the results of both branches have the same rank, dims that differ become symbols.
    """
    switches.note(IF)
    value = importer.known.of(condition)
    if value is not None:
        return importer.convert_branch(then_branch if value.elements.item() else else_branch)

    builder = importer.bb
    if condition.ty.ndim != 0:
        condition = builder.emit(relax.op.reshape(condition, []))
    branches = [_branch_block(importer, graph) for graph in (then_branch, else_branch)]
    result = builder.emit(relax.If(condition, *branches))
    count = len(then_branch.output)
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
    builder = importer.bb
    builder.begin_scope()
    builder._begin_binding_block()
    try:
        with importer.known.scope():
            outputs = importer.convert_branch(graph, as_tensors=True)
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
    function with an If stays unchanged: FuseOps does not find the variables of blocks in branches.
    """
    converted = relax.transform.ConvertToDataflow(min_size=1)(mod)
    for variable, function in mod.functions.items():
        if isinstance(function, relax.Function) and not _has_if(function):
            mod.update_func(variable, converted[variable.name_hint])
    return mod
