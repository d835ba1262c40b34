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
"""Products and constants that each iteration of a Loop computes again.

TensorFlow's layers over time carry their weights, and multiply one row of the input by a weight in
each iteration::

    body (i, cond, t, h, weight, …) {
        row = Gather (rows, t)
        part = MatMul (row, weight)
        …
        weight_after = Identity (weight)
    }

One product of all rows reads the weight once, and a weight that no iteration changes is a constant.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import onnx
from onnx import helper

from ..values.known import Element
from .loop_counts import counts_up
from .order import outer_names

__all__ = ["RowProduct", "unchanged", "with_row_products", "without_inputs"]


def unchanged(body: onnx.GraphProto) -> list[int]:
    """The carried tensors that a body returns as they are, by their places."""
    source = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}

    def original(name: str) -> str:
        while name in source:
            name = source[name]
        return name

    pairs = zip(body.input[2:], body.output[1:], strict=False)
    return [
        place for place, (given, after) in enumerate(pairs) if original(after.name) == given.name
    ]


def without_inputs(body: onnx.GraphProto, places: Collection[int]) -> onnx.GraphProto:
    """The body, which reads some of the carried tensors from outside instead."""
    result = onnx.GraphProto()
    result.CopyFrom(body)
    for place in sorted(places, reverse=True):
        del result.input[2 + place]
        del result.output[1 + place]
    return result


@dataclass(frozen=True)
class RowProduct:
    """A product of all rows of a tensor; each iteration of the loop reads one row.

    Attributes
    ----------
    name : str
        Its name in the body.
    rows, weight : str
        The operands, from outside the body.
    """

    name: str
    rows: str
    weight: str


def with_row_products(
    body: onnx.GraphProto,
    initial: Callable[[str], Element | None],
    is_product: Callable[[str, str], bool],
) -> tuple[onnx.GraphProto, list[RowProduct]]:
    """The body, which reads rows of products instead of multiplying rows.

    Parameters
    ----------
    body : onnx.GraphProto
        The body of a Loop that runs once for each row.
    initial : callable
        As for :func:`~.loop_counts.iterations_left`.
    is_product : callable
        Whether the rows of a tensor from outside may be multiplied by another one at once.
    """
    outside = set(outer_names(body))
    producers = {name: node for node in body.node for name in node.output}
    products: list[RowProduct] = []
    nodes = []
    for node in body.node:
        gather = producers.get(node.input[0]) if node.op_type == "MatMul" else None
        if gather is not None and gather.op_type == "Gather" and _reads_first_axis(gather):
            (rows, index), weight = gather.input, node.input[1]
            if (
                {rows, weight} <= outside
                and counts_up(body, index, initial)
                and is_product(rows, weight)
            ):
                product = RowProduct(f"{node.output[0]} of all rows", rows, weight)
                products.append(product)
                node = helper.make_node(
                    "Gather", [product.name, index], node.output, name=gather.name, axis=0
                )
        nodes.append(node)
    if not products:
        return body, []
    result = onnx.GraphProto()
    result.CopyFrom(body)
    del result.node[:]
    result.node.extend(nodes)
    return result, products


def _reads_first_axis(gather: onnx.NodeProto) -> bool:
    return all(attribute.i == 0 for attribute in gather.attribute if attribute.name == "axis")
