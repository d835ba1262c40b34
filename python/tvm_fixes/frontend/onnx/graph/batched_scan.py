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
"""The body of a Scan without a recurrence, for all rows at once.

skl2onnx writes the distances of nearest neighbors and of Gaussian processes as a Scan over the
training data, whose state never changes.
"""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["batched_body"]

_ELEMENTWISE = frozenset(
    "Abs Add And Cast Cos Div Equal Erf Exp Greater Identity Less Log Max Min Mul Neg Not Or "
    "Pow Reciprocal Relu Sigmoid Sign Sin Sqrt Sub Tanh Where Xor".split()
)

_REDUCTIONS = frozenset(
    "ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare".split()
)

_AXES_AS_OPERAND = 13
"""The first opset whose Unsqueeze has its axes as an operand."""


def batched_body(
    body: onnx.GraphProto, states: int, ranks: Mapping[str, int], opset: int
) -> onnx.GraphProto | None:
    """The body of a Scan with a leading axis of all iterations, or None if it has a recurrence.

    The scan inputs and outputs of the result have the leading axis; the states do not.

    Parameters
    ----------
    body : onnx.GraphProto
    states : int
        The number of states.
    ranks : mapping of str to int
        The ranks of the inputs of the body and of the values that it reads from outside.
    opset : int
    """
    rewriting = _Rewriting(body, states, ranks, opset)
    return rewriting.graph() if rewriting.is_possible() else None


class _Rewriting:
    """A body that is being rewritten.

    Attributes
    ----------
    ranks : dict of str to int
        The ranks of values in one iteration.
    varying : set of str
        The values that differ between iterations.
    """

    def __init__(
        self, body: onnx.GraphProto, states: int, ranks: Mapping[str, int], opset: int
    ) -> None:
        self._body, self._states, self._opset = body, states, opset
        self._arrays = {tensor.name: tensor for tensor in body.initializer}
        self._ranks = dict(ranks) | {name: len(t.dims) for name, t in self._arrays.items()}
        self._varying = {value.name for value in body.input[states:]}
        self._nodes: list[onnx.NodeProto] = []
        self._added: list[onnx.TensorProto] = []

    def is_possible(self) -> bool:
        """Rewrite the nodes; return whether each can be computed for all iterations at once."""
        return all(map(self._rewrite, self._body.node)) and self._has_no_recurrence()

    def graph(self) -> onnx.GraphProto:
        """The rewritten body."""
        found = onnx.GraphProto()
        found.CopyFrom(self._body)
        del found.node[:]
        found.node.extend(self._nodes)
        found.initializer.extend(self._added)
        return found

    def _has_no_recurrence(self) -> bool:
        """Whether states stay what they are, and all other outputs vary."""
        origins = {value.name: value.name for value in self._body.input}
        for node in self._body.node:
            if node.op_type == "Identity" and node.input[0] in origins:
                origins[node.output[0]] = origins[node.input[0]]
        outputs = [output.name for output in self._body.output]
        before = [value.name for value in self._body.input[: self._states]]
        after = [origins.get(name) for name in outputs[: self._states]]
        return before == after and self._varying.issuperset(outputs[self._states :])

    def _rewrite(self, node: onnx.NodeProto) -> bool:
        if node.domain not in ("", "ai.onnx") or len(node.output) != 1:
            return False
        if node.op_type == "Constant":
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            if value is None:
                return False
            self._nodes.append(node)
            self._arrays[node.output[0]] = value
            self._ranks[node.output[0]] = len(value.dims)
            return True
        names = list(filter(None, node.input))
        if not all(name in self._ranks for name in names):
            return False
        if node.op_type in _ELEMENTWISE:
            return self._elementwise(node, names)
        return node.op_type in _REDUCTIONS and self._reduction(node)

    def _elementwise(self, node: onnx.NodeProto, names: list[str]) -> bool:
        rank = max(self._ranks[name] for name in names)
        varying = self._varying.intersection(names)
        aligned = onnx.NodeProto()
        aligned.CopyFrom(node)
        for place, name in enumerate(node.input):
            if name in varying and self._ranks[name] < rank:
                aligned.input[place] = self._expanded(name, rank - self._ranks[name])
        self._add(aligned, rank, is_varying=bool(varying))
        return True

    def _expanded(self, name: str, count: int) -> str:
        """A varying value with axes of extent 1 after that of the iterations."""
        axes = list(range(1, count + 1))
        if self._opset < _AXES_AS_OPERAND:
            result = self._new_name(name)
            self._nodes.append(helper.make_node("Unsqueeze", [name], [result], result, axes=axes))
        else:
            operand = self._integers(axes)  # which takes a name, too
            result = self._new_name(name)
            self._nodes.append(helper.make_node("Unsqueeze", [name, operand], [result], result))
        return result

    def _reduction(self, node: onnx.NodeProto) -> bool:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        axes = attributes.pop("axes", None)
        is_kept = bool(attributes.pop("keepdims", 1))
        if attributes:  # noop_with_empty_axes
            return False
        data, rank = node.input[0], self._ranks[node.input[0]]
        operand = node.input[1] if len(node.input) > 1 else ""
        if operand:
            if operand not in self._arrays:
                return False
            axes = numpy_helper.to_array(self._arrays[operand]).ravel().tolist()
        axes = [axis % rank for axis in axes or range(rank)] if rank else []
        shifted = onnx.NodeProto()
        shifted.CopyFrom(node)
        is_varying = data in self._varying
        if is_varying and not axes:
            return False  # a scalar; no axes mean all
        if is_varying:
            own = [axis + 1 for axis in axes]
            if operand or self._takes_operand(node.op_type):
                del shifted.input[1:]
                shifted.input.append(self._integers(own))
            else:
                kept = [a for a in node.attribute if a.name != "axes"]
                del shifted.attribute[:]
                shifted.attribute.extend([*kept, helper.make_attribute("axes", own)])
        self._add(shifted, rank if is_kept else rank - len(set(axes)), is_varying=is_varying)
        return True

    def _takes_operand(self, operator: str) -> bool:
        """Whether a reduction has its axes as an operand."""
        return self._opset >= (_AXES_AS_OPERAND if operator == "ReduceSum" else 18)

    def _add(self, node: onnx.NodeProto, rank: int, *, is_varying: bool) -> None:
        self._nodes.append(node)
        self._ranks[node.output[0]] = rank
        if is_varying:
            self._varying.add(node.output[0])

    def _integers(self, values: list[int]) -> str:
        """The name of a new initializer."""
        name = self._new_name("axes")
        self._added.append(numpy_helper.from_array(np.array(values, "int64"), name))
        return name

    def _new_name(self, base: str) -> str:
        used = {*self._ranks, *(name for node in self._body.node for name in node.output)}
        number = len(self._added) + len(self._nodes)
        while (name := f"{base}_{number}") in used:
            number += 1
        return name
