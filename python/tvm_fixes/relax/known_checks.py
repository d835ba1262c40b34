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
"""Instructions of the virtual machine that a function does not need.

VMShapeLower checks the shapes of all results, including those that the function allocated with
these shapes.  An instruction takes about 0.1 µs; a model of one kernel has as many checks as
allocations.
"""

from collections.abc import Iterator, Sequence

from tvm import relax, tirx

from .analysis import reads
from .ir import operator_name, typed, variables, with_body

_MATCH_SHAPE, _MAKE_SHAPE = "vm.builtin.match_shape", "vm.builtin.make_shape"
_KILL = "relax.vm.kill_object"
_STORAGE, _TENSOR = "relax.vm.alloc_storage", "relax.vm.alloc_tensor"

# What match_shape compares an extent with, by what make_shape takes it from: a number, or a place
# in the heap of shapes.
_EQUAL = {0: 0, 3: 1}


def without_known_checks(function: relax.Function) -> relax.Function:
    """The function without checks that always hold, and without what only they read.

    Before::

        shape = R.call_packed("vm.builtin.make_shape", heap, 1, 1, 0)
        tensor = R.vm.alloc_tensor(storage, 0, shape, R.dtype("float32"))
        R.vm.kill_object(storage)
        cls.kernel(x, tensor)
        R.call_packed("vm.builtin.match_shape", tensor, heap, 1, 3, 0, "…")
        return tensor

    and after::

        shape = R.call_packed("vm.builtin.make_shape", heap, 1, 1, 0)
        tensor = R.vm.alloc_tensor(storage, 0, shape, R.dtype("float32"))
        cls.kernel(x, tensor)
        return tensor

    Parameters
    ----------
    function : relax.Function
        A function after VMShapeLower, whose memory is planned.

    Returns
    -------
    relax.Function
        The function itself if it has no such instruction.
    """
    if not isinstance(function.body, relax.SeqExpr):
        return function
    known = _Known(function.body)
    dropped = {binding.var for binding in known.bindings if known.is_needless(binding)}
    dropped |= known.last_kills(dropped)
    if not dropped:
        return function
    function = _without(function, dropped)
    # In reverse, a tuple is unread when its last field is.
    unread = reads(function)
    dropped = set()
    for binding in reversed(list(_bindings(function.body))):
        is_part = isinstance(binding.value, relax.Tuple | relax.TupleGetItem)
        if is_part and not unread[binding.var]:
            dropped.add(binding.var)
            unread.subtract(variables(binding.value))
    return _without(function, dropped) if dropped else function


class _Known:
    """The values of a function's body, without those of its branches.

    Attributes
    ----------
    bindings : list of Binding
    """

    def __init__(self, body: relax.SeqExpr):
        self.bindings = list(_bindings(body))
        self._values = {binding.var: binding.value for binding in self.bindings}
        self._returned = set(self._leaves(body.body))
        self._tensors: dict[relax.Var, list[relax.Var]] = {}
        for binding in self.bindings:
            if operator_name(binding.value) == _TENSOR:
                self._tensors.setdefault(binding.value.args[0], []).append(binding.var)

    def is_needless(self, binding: relax.Binding) -> bool:
        """Whether a binding checks a known shape, or frees memory that the results keep."""
        call = binding.value
        if _callee(call) == _MATCH_SHAPE:
            return self._always_matches(call)
        if (
            operator_name(call) != _KILL
            or operator_name(self._values.get(call.args[0])) != _STORAGE
        ):
            return False
        return set(self._tensors.get(call.args[0], [])) <= self._returned

    def last_kills(self, dropped: set[relax.Var]) -> set[relax.Var]:
        """The variables of bindings that free objects just before the function returns."""
        kills = set()
        for binding in reversed(self.bindings):
            if operator_name(binding.value) == _KILL:
                kills.add(binding.var)
            elif binding.var not in dropped and not isinstance(
                binding.value, relax.Tuple | relax.TupleGetItem
            ):
                break
        return kills

    def _always_matches(self, check: relax.Call) -> bool:
        """Whether a tensor was allocated with the shape that is checked."""
        tensor = self._values.get(self._alias(check.args[0]))
        if tensor is None or operator_name(tensor) != _TENSOR:
            return False
        heap, *rest = check.args[1:]
        pairs = _pairs(rest)
        shape = tensor.args[2]
        if isinstance(shape, relax.ShapeExpr):
            extents = list(shape.values)
            return len(extents) == len(pairs) and all(
                kind == 0 and isinstance(extent, tirx.IntImm) and int(extent) == number
                for (kind, number), extent in zip(pairs, extents, strict=True)
            )
        made = self._values.get(shape)
        if made is None or _callee(made) != _MAKE_SHAPE or not made.args[0].same_as(heap):
            return False
        return [(_EQUAL.get(kind), number) for kind, number in pairs] == _pairs(made.args[1:])

    def _alias(self, expr: relax.Expr) -> relax.Expr:
        """The variable or value that an expression of variables, tuples and fields stands for."""
        while True:
            if isinstance(expr, relax.TupleGetItem):
                whole = self._alias(expr.tuple_value)
                if not isinstance(whole, relax.Tuple):
                    return expr
                expr = whole.fields[expr.index]
                continue
            value = self._values.get(expr) if isinstance(expr, relax.Var) else None
            if not isinstance(value, relax.Var | relax.Tuple | relax.TupleGetItem):
                return expr
            expr = value

    def _leaves(self, expr: relax.Expr) -> Iterator[relax.Expr]:
        """The values in a result."""
        expr = self._alias(expr)
        if isinstance(expr, relax.Tuple):
            for field in expr.fields:
                yield from self._leaves(field)
        else:
            yield expr


def _bindings(body: relax.SeqExpr) -> Iterator[relax.Binding]:
    for block in body.blocks:
        yield from block.bindings


def _callee(expr: relax.Expr) -> str:
    """The name of the packed function that a value calls; otherwise empty."""
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, relax.ExternFunc):
        return ""
    return str(expr.op.global_symbol)


def _pairs(arguments: Sequence[relax.Expr]) -> list[tuple[int, int]]:
    """The pairs of numbers behind their count, for each axis of a shape."""
    count, *numbers = [int(number) for number in arguments if isinstance(number, tirx.IntImm)]
    return list(zip(numbers[: 2 * count : 2], numbers[1 : 2 * count : 2], strict=True))


def _without(function: relax.Function, dropped: set[relax.Var]) -> relax.Function:
    """The function without the bindings of these variables, which nothing reads."""
    blocks = [
        type(block)([binding for binding in block.bindings if binding.var not in dropped])
        for block in function.body.blocks
    ]
    body = relax.SeqExpr(blocks, function.body.body, function.body.span)
    return with_body(function, typed(body, function.body.ty))
