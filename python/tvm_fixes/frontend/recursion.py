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
"""Loops as recursive functions, because Relax has no loop.

A loop of n iterations calls itself twice, with half of the iterations each, so the recursion is
log n deep.  One nested call per iteration would exhaust the process stack, which the virtual
machine uses, after a few thousand iterations.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tvm
import tvm_ffi
from tvm import relax, tirx

from ..attributes import LOOP
from .extents import Extent, extents_of

__all__ = ["LoopTypeError", "Step", "call_of", "scan"]

Step: TypeAlias = Callable[
    [relax.BlockBuilder, Extent, list[relax.Expr], list[relax.Expr]],
    tuple[list[relax.Expr], list[relax.Expr]],
]
"""Emits an iteration.  The arguments are the builder, the iteration number, the carried tensors and
the invariant tensors.  Returns the carried tensors of the next iteration, of the same types, and
the results of this iteration."""

_MAX_UNROLLED_ITERATIONS = 8
"""Shorter loops are unrolled: they build as fast and run faster."""


def scan(
    builder: relax.BlockBuilder,
    name: str,
    count: Extent,
    carried: Sequence[relax.Expr],
    invariant: Sequence[relax.Expr],
    step: Step,
    *,
    backwards: bool = False,
    conditional: bool = False,
) -> tuple[list[relax.Expr], list[relax.Expr]]:
    """Emit a loop of `count` iterations.

    Parameters
    ----------
    builder : relax.BlockBuilder
        The builder that the loop is emitted into, and that its functions are added to.
    name : str
        The prefix of the functions' names.
    count : int or tirx.Expr
        The number of iterations; may be 0.
    carried : sequence of relax.Expr
        The tensors that the first iteration gets; their shapes must be known.
    invariant : sequence of relax.Expr
        Tensors of known shapes, and shape expressions, that every iteration reads.
    step : callable
        See :data:`Step`.  The emitted code may refer only to the operands of the step.
    backwards : bool
        Count down: the first iteration is ``count - 1``, and its result is the last one.
    conditional : bool
        The first carried tensor is a boolean scalar: whether to run the next iteration.  Then
        iterations must not return results, because their number is unknown.

    Returns
    -------
    tuple of two lists of relax.Expr
        The carried tensors after the last iteration, and the results of all iterations, stacked on
        a new axis 0 by iteration number.

    Raises
    ------
    LoopTypeError
        If an iteration changes the type of a carried tensor, or the shape of a result depends on
        the iteration.
    """
    if isinstance(count, int) and 0 < count <= _MAX_UNROLLED_ITERATIONS and not conditional:
        return _unrolled(builder, count, list(carried), list(invariant), step, backwards)
    loop = _Loop(builder, name, list(carried), list(invariant), step, backwards, conditional)
    return loop.emit(count)


def _unrolled(
    builder: relax.BlockBuilder,
    count: int,
    carried: list[relax.Expr],
    invariant: list[relax.Expr],
    step: Step,
    backwards: bool,
) -> tuple[list[relax.Expr], list[relax.Expr]]:
    iterations = []
    for index in reversed(range(count)) if backwards else range(count):
        carried, results = step(builder, index, carried, invariant)
        iterations.append(results)
    if backwards:
        iterations.reverse()
    stacked = [
        builder.emit(relax.op.stack(list(results), 0)) for results in zip(*iterations, strict=True)
    ]
    return carried, stacked


def call_of(
    builder: relax.BlockBuilder,
    name: str,
    operands: Sequence[relax.Expr],
    body: Callable[[list[relax.Expr]], list[relax.Expr]],
) -> relax.Call:
    """Build a function that returns a tuple of tensors, and return a call of it.

    Parameters
    ----------
    builder : relax.BlockBuilder
        The builder that the function is added to.
    name : str
        The prefix of its name.
    operands : sequence of relax.Expr
        Tensors of known shapes, and shape expressions.
    body : callable
        Emits the function.  It gets the function's parameters for the operands, and may refer only
        to them.
    """
    own = _Parameters([], list(operands))
    builder.begin_scope(own.all)
    builder._begin_binding_block()
    try:
        value = builder.emit(relax.Tuple(body(own.invariant)))
    finally:
        block = builder._end_block()
        builder.end_scope()
    sequence = builder.normalize(relax.SeqExpr([block], value))
    function = builder.add_func(relax.Function(own.all, sequence, value.ty), name)
    # The parameters are those of a loop of one iteration.
    numbers = relax.ShapeExpr([0, 1, *_dims(operands)])
    return relax.Call(function, [numbers, *_tensors(operands)])


class LoopTypeError(ValueError):
    """An iteration returns a tensor of a type that loops do not support.

    Attributes
    ----------
    position : int
        The index of the tensor in the carried tensors followed by the results.
    ty, expected : relax.Type, str
        The type of the tensor, and a description of the expected one.
    """

    def __init__(self, position: int, ty: relax.Type, expected: str) -> None:
        super().__init__(f"tensor {position} after an iteration has type {ty}; expected {expected}")
        self.position, self.ty, self.expected = position, ty, expected


class _Parameters:
    """The parameters of a function of a loop.

    Attributes
    ----------
    first, count : tirx.Var
        The lowest iteration number, and the number of iterations.
    symbols : list of tirx.Var
        The function's own symbol for each of :func:`_dims`.
    carried, invariant : list of relax.Expr
        The function's parameters for tensors, and shape expressions of its symbols.
    """

    def __init__(self, carried: list[relax.Expr], invariant: list[relax.Expr]) -> None:
        self.first, self.count = tirx.Var("first", "int64"), tirx.Var("count", "int64")
        dims = _dims([*carried, *invariant])
        self.symbols = [
            tirx.Var(dim.name if isinstance(dim, tirx.Var) else "dim", "int64") for dim in dims
        ]
        variables: list[relax.Expr] = []
        for tensor in [*carried, *invariant]:
            shape = [
                self.symbols[_index(dims, extent)] if isinstance(extent, tirx.Expr) else extent
                for extent in _extents(tensor)
            ]
            if isinstance(tensor, relax.ShapeExpr):
                variables.append(relax.ShapeExpr(shape))
                continue
            ty = relax.TensorType(shape, tensor.ty.dtype)
            variables.append(relax.Var(f"tensor{len(variables)}", ty))
        self.carried, self.invariant = variables[: len(carried)], variables[len(carried) :]
        self._numbers = relax.Var("numbers", self.numbers(self.first, self.count).ty)

    @property
    def all(self) -> list[relax.Var]:
        return [self._numbers, *_tensors([*self.carried, *self.invariant])]

    def numbers(self, first: Extent, count: Extent) -> relax.ShapeExpr:
        """The shape argument for `count` iterations that start at `first`."""
        return relax.ShapeExpr([first, count, *self.symbols])


class _Loop:
    """Builds the functions of a loop: one iteration, several iterations, and the loop itself."""

    def __init__(
        self,
        builder: relax.BlockBuilder,
        name: str,
        carried: list[relax.Expr],
        invariant: list[relax.Expr],
        step: Step,
        backwards: bool,
        conditional: bool,
    ) -> None:
        self._builder = builder
        self._conditional = conditional
        self._name = name
        self._carried, self._invariant = carried, invariant
        self._step = step
        self._backwards = backwards

    def emit(self, count: Extent) -> tuple[list[relax.Expr], list[relax.Expr]]:
        builder = self._builder
        iteration = self._function(self._one_iteration)
        numbers = iteration.params[0].ty.values[:2]
        for position, ty in enumerate(iteration.ret_ty.fields):
            if not isinstance(getattr(ty, "shape", None), relax.ShapeExpr):
                raise LoopTypeError(position, ty, "a tensor of known shape")
            rows = relax.ShapeType(ty.shape.values[position >= len(self._carried) :])
            if any(v.same_as(n) for v in relax.analysis.tir_vars_in_type(rows) for n in numbers):
                raise LoopTypeError(position, ty, "the same shape in each iteration")
        one = builder.add_func(iteration, f"{self._name}_iteration")
        loop = self._declare(one)
        many = builder.add_func(
            self._function(lambda own: self._several_iterations(own, loop)),
            f"{self._name}_iterations",
        )
        whole = self._function(lambda own: self._dispatch(own, one, many))
        builder.update_func(loop, whole)
        numbers = relax.ShapeExpr([0, count, *_dims([*self._carried, *self._invariant])])
        return self._call(loop, numbers, self._carried, self._invariant)

    def _function(self, body: Callable[[_Parameters], relax.Expr]) -> relax.Function:
        """Build a function of the loop while its caller is still under construction."""
        builder = self._builder
        own = _Parameters(self._carried, self._invariant)
        builder.begin_scope(own.all)
        # Not a dataflow block, because a step may contain an If.
        builder._begin_binding_block()
        try:
            value = builder.emit(body(own))
        finally:
            block = builder._end_block()
            builder.end_scope()
        sequence = builder.normalize(relax.SeqExpr([block], value))
        return relax.Function(own.all, sequence, value.ty)

    def _call(
        self,
        function: tvm.ir.GlobalVar,
        numbers: relax.Expr,
        carried: Sequence[relax.Expr],
        invariant: Sequence[relax.Expr],
    ) -> tuple[list[relax.Expr], list[relax.Expr]]:
        """Emit a call of `function`; return its carried tensors and its results."""
        result = self._builder.emit(
            relax.Call(function, [numbers, *_tensors([*carried, *invariant])])
        )
        fields = [
            self._builder.emit(relax.TupleGetItem(result, index))
            for index in range(len(result.ty.fields))
        ]
        return fields[: len(carried)], fields[len(carried) :]

    def _one_iteration(self, own: _Parameters) -> relax.Expr:
        """Emit the body of one iteration; results get the leading extent ``count``, which is 1."""
        carried, given = self._step(self._builder, own.first, own.carried, own.invariant)
        carried = [
            self._of_type(position, tensor, own.carried[position].ty)
            for position, tensor in enumerate(carried)
        ]
        results = []
        for position, tensor in enumerate(given, len(carried)):
            if extents_of(tensor) is None:
                raise LoopTypeError(position, tensor.ty, "a tensor of known shape")
            row = self._builder.emit(relax.op.expand_dims(tensor, 0))
            ty = relax.TensorType([own.count, *tensor.ty.shape.values], tensor.ty.dtype)
            results.append(self._builder.match_cast(row, ty))
        return relax.Tuple([*carried, *results])

    def _of_type(self, position: int, tensor: relax.Expr, ty: relax.TensorType) -> relax.Expr:
        """Cast a carried tensor to `ty`; a match_cast checks unknown extents at run time."""
        if tvm_ffi.structural_equal(tensor.ty, ty):
            return tensor
        extents, wanted = extents_of(tensor), [*map(_static, ty.shape.values)]
        if (
            not isinstance(tensor.ty, relax.TensorType)
            or tensor.ty.dtype != ty.dtype
            or tensor.ty.ndim not in (-1, len(wanted))
            or any(
                isinstance(a, int) and isinstance(b, int) and a != b
                for a, b in zip(extents or [], wanted, strict=False)
            )
        ):
            raise LoopTypeError(position, tensor.ty, f"{ty}, its type before the iteration")
        return self._builder.match_cast(tensor, ty)

    def _declare(self, one: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
        """Declare the loop without a body; it returns the type that an iteration returns."""
        builder = self._builder
        own = _Parameters(self._carried, self._invariant)
        builder.begin_scope(own.all)
        result = builder.normalize(relax.Call(one, own.all)).ty
        builder.end_scope()
        empty = relax.Function.create_empty(own.all, result, True)
        # A unique attribute: the builder merges equal functions.
        empty = empty.with_attr(LOOP, builder.get_unique_name(self._name))
        return builder.add_func(empty, self._name)

    def _several_iterations(self, own: _Parameters, loop: tvm.ir.GlobalVar) -> relax.Expr:
        """Emit two calls of the loop, each with half of the iterations."""
        half = tirx.floordiv(own.count, 2)
        low = own.numbers(own.first, half)
        high = own.numbers(own.first + half, own.count - half)
        order = (high, low) if self._backwards else (low, high)
        carried: list[relax.Expr] = list(own.carried)
        parts = []
        for numbers in order:
            carried, given = self._call(loop, numbers, carried, own.invariant)
            parts.append(given)
        if self._backwards:
            parts.reverse()
        results = [
            self._builder.emit(relax.op.concat(list(given), 0))
            for given in zip(*parts, strict=True)
        ]
        return relax.Tuple([*carried, *results])

    def _dispatch(
        self, own: _Parameters, one: tvm.ir.GlobalVar, many: tvm.ir.GlobalVar
    ) -> relax.Expr:
        count = self._builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([own.count])))
        count = self._builder.emit(relax.op.reshape(count, []))

        def fewer_than(bound: int) -> relax.Expr:
            return self._builder.emit(relax.op.less(count, relax.const(bound, "int64")))

        def branch(emitted: Callable[[], relax.Expr]) -> relax.SeqExpr:
            self._builder.begin_scope()
            self._builder._begin_binding_block()
            value = self._builder.emit(emitted())
            block = self._builder._end_block()
            self._builder.end_scope()
            return self._builder.normalize(relax.SeqExpr([block], value))

        def none() -> relax.Expr:
            types = self._builder.normalize(relax.Call(one, own.all)).ty.fields
            results = [relax.op.zeros(ty.shape, ty.dtype) for ty in types[len(own.carried) :]]
            return relax.Tuple([*own.carried, *map(self._builder.emit, results)])

        is_done, is_single = fewer_than(1), fewer_than(2)
        if self._conditional:
            stopped = self._builder.emit(relax.op.logical_not(own.carried[0]))
            is_done = self._builder.emit(relax.op.logical_or(is_done, stopped))

        def some() -> relax.Expr:
            iteration = branch(lambda: relax.Call(one, own.all))
            return relax.If(is_single, iteration, branch(lambda: relax.Call(many, own.all)))

        result = self._builder.emit(relax.If(is_done, branch(none), branch(some)))
        # TVM forgets shapes with symbols that an If returns; operators in outer loops need them.
        fields = []
        for index, ty in enumerate(self._builder.normalize(relax.Call(one, own.all)).ty.fields):
            field = self._builder.emit(relax.TupleGetItem(result, index))
            is_known = extents_of(field) is not None
            fields.append(field if is_known else self._builder.match_cast(field, ty))
        return relax.Tuple(fields)


def _static(dim: tirx.Expr) -> Extent:
    return int(dim) if isinstance(dim, tirx.IntImm) else dim


def _tensors(operands: Sequence[relax.Expr]) -> list[relax.Expr]:
    """The operands that are tensors; a loop passes shapes in its argument ``numbers``."""
    return [operand for operand in operands if not isinstance(operand, relax.ShapeExpr)]


def _extents(operand: relax.Expr) -> list[Extent]:
    """The extents of a tensor of known shape, or of a shape expression."""
    if isinstance(operand, relax.ShapeExpr):
        return [*map(_static, operand.values)]
    extents = extents_of(operand)
    assert extents is not None
    return extents


def _dims(tensors: Sequence[relax.Expr]) -> list[tirx.Expr]:
    """The distinct symbolic dims of the tensors."""
    dims: list[tirx.Expr] = []
    for tensor in tensors:
        for extent in _extents(tensor):
            if isinstance(extent, tirx.Expr) and _index(dims, extent) < 0:
                dims.append(extent)
    return dims


def _index(dims: list[tirx.Expr], dim: tirx.Expr) -> int:
    """The position of `dim` in `dims`, or -1."""
    return next((i for i, had in enumerate(dims) if tvm_ffi.structural_equal(had, dim)), -1)
