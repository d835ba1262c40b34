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
"""If.

Upstream
    https://github.com/apache/tvm/issues/17383, which was fixed in Relay's importer alone.
Versions
    Seen in 0.27.0.post1.
Trigger
    An If whose condition is known, or whose branches give different shapes; a branch whose
    operators are lowered to several, or fail if they run.
Symptom
    The branch that is not taken raises, or runs; results have no rank; ``requires statically known
    rank`` behind it.
Mechanism
    Both branches are always converted, and what their converters emit is emitted into the block
    around the If.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and the fix id ``onnx-if``.
"""

import onnx
from tvm import relax, tirx

from ...fixes.onnx_importer import IF
from ...support import switches
from .graph import GraphImporter
from .values import Extent, KnownValues, Value, extents_of

__all__ = ["convert_if"]


def convert_if(
    importer: GraphImporter,
    condition: relax.Expr,
    then_branch: onnx.GraphProto,
    else_branch: onnx.GraphProto,
) -> list[relax.Expr | Value]:
    """Convert an If, of whose branches only the taken one is converted if it is known.

    Otherwise each branch is a block of its own, so that what it emits runs if it is taken.  Of
    results of equal rank, dimensions that differ become symbols.
    """
    switches.note(IF)
    value = importer.known.of(condition)
    if value is not None:
        return importer.convert_branch(then_branch if value.elements.item() else else_branch)

    builder = importer.bb
    if condition.ty.ndim != 0:
        condition = builder.emit(relax.op.reshape(condition, []))
    branches = [_block(importer, graph) for graph in (then_branch, else_branch)]
    result = builder.emit(relax.If(condition, *branches))
    count = len(then_branch.output)
    if count == 1:
        return [_joined(importer, result, [branch.body.ty for branch in branches])]
    return [
        _joined(
            importer,
            builder.emit(relax.TupleGetItem(result, index)),
            [branch.body.ty.fields[index] for branch in branches],
        )
        for index in range(count)
    ]


def _block(importer: GraphImporter, graph: onnx.GraphProto) -> relax.SeqExpr:
    """A branch whose bindings are its own."""
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


def _joined(importer: GraphImporter, result: relax.Expr, types: list[relax.Type]) -> relax.Expr:
    """`result` with the dimensions that the `types` of both branches have in common."""
    if extents_of(result) is not None or not all(
        isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr) for ty in types
    ):
        return result
    shapes = [ty.shape.values for ty in types]
    if len(shapes[0]) != len(shapes[1]):
        return result
    shape = [_common(importer.known, *dims) for dims in zip(*shapes, strict=True)]
    return importer.bb.match_cast(result, relax.TensorType(shape, types[0].dtype))


def _common(known: KnownValues, a: tirx.Expr, b: tirx.Expr) -> Extent:
    return a if known.equal(a, b) else tirx.Var("extent", "int64")
