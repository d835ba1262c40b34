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
"""Arithmetic on the elements of values: elementwise operators, casts and reductions."""

import math
from collections.abc import Callable
from functools import reduce

import numpy as np
from onnx import helper
from tvm import tirx

from ...dtypes import dtype_of
from ...extents import maximum, minimum
from .known import Element, KnownValues, Value
from .operation import Evaluator, Operation, UnknownError, filled, positions

__all__ = ["EVALUATORS"]


def _elementwise(
    compute: Callable[..., Element | None], dtype: str | None = None
) -> Callable[[Operation], Value]:
    """Make the evaluator of an elementwise operator that broadcasts its operands.

    Parameters
    ----------
    compute : callable
        Returns an element of the result, or None if it is unknown.
    dtype : str, optional
        The dtype of the result; by default that of the first operand.
    """

    def evaluator(operation: Operation) -> Value:
        values = operation.values()
        arrays = np.broadcast_arrays(*(value.elements for value in values))
        elements = [
            compute(operation.known, *row)
            for row in zip(*(array.flat for array in arrays), strict=True)
        ]
        if any(element is None for element in elements):
            raise UnknownError
        return operation.result(elements, arrays[0].shape, dtype or values[0].dtype)

    return evaluator


def _divide(known: KnownValues, a: Element, b: Element) -> Element | None:
    """The quotient; that of integers is truncated toward zero."""
    if not isinstance(b, tirx.Expr) and b == 0:
        return None
    if isinstance(a, float) and isinstance(b, float):
        return a / b
    if not isinstance(a, tirx.Expr) and not isinstance(b, tirx.Expr):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if known.less(a, 0) is False and known.less(0, b):
        return tirx.floordiv(a, b)
    return None


def _modulo(operation: Operation) -> Value:
    truncates = operation.attributes.get("fmod", 0)

    def modulo(known: KnownValues, a: Element, b: Element) -> Element | None:
        if not isinstance(b, tirx.Expr) and b == 0:
            return None
        if isinstance(a, float):
            return math.fmod(a, b) if truncates else None
        if not isinstance(a, tirx.Expr) and not isinstance(b, tirx.Expr):
            return abs(a) % abs(b) * (-1 if a < 0 else 1) if truncates else a % b
        if known.less(a, 0) is False and known.less(0, b):
            return tirx.floormod(a, b)
        return None

    return _elementwise(modulo)(operation)


def _minimum(known: KnownValues, *elements: Element) -> Element | None:
    if any(element != element for element in elements if isinstance(element, float)):
        return None
    return minimum(known, *elements)


def _maximum(known: KnownValues, *elements: Element) -> Element | None:
    if any(element != element for element in elements if isinstance(element, float)):
        return None
    return maximum(known, *elements)


def _absolute(known: KnownValues, a: Element) -> Element | None:
    less = known.less(a, 0)
    return None if less is None else -a if less else a


def _sign(known: KnownValues, a: Element) -> Element | None:
    if isinstance(a, float):
        return None
    if known.less(0, a):
        return 1
    if known.less(a, 0):
        return -1
    return 0 if known.equal(a, 0) else None


def _less_or_equal(known: KnownValues, a: Element, b: Element) -> bool | None:
    if not isinstance(a, tirx.Expr) and not isinstance(b, tirx.Expr):
        return a <= b  # NaN is neither less nor greater
    greater = known.less(b, a)
    return None if greater is None else not greater


def _where(operation: Operation) -> Value:
    values = operation.values()
    condition, a, b = np.broadcast_arrays(*(value.elements for value in values))
    elements = [x if c else y for c, x, y in zip(condition.flat, a.flat, b.flat, strict=True)]
    return operation.result(elements, condition.shape, values[1].dtype)


def _cast(operation: Operation) -> Value:
    value = operation.value(0)
    dtype = str(helper.tensor_dtype_to_np_dtype(operation.attributes["to"]))
    return _converted(operation, value, dtype)


def _converted(operation: Operation, value: Value, dtype: str) -> Value:
    def convert(element: Element) -> Element:
        if dtype == "bool":
            is_zero = operation.known.equal(element, 0)
            if is_zero is None:
                raise UnknownError
            return not is_zero
        if isinstance(element, tirx.Expr):
            return element
        return float(element) if dtype.startswith(("float", "bfloat")) else int(element)

    return operation.result(map(convert, value.elements.flat), value.shape, dtype)


def _cast_like(operation: Operation) -> Value:
    like = operation.operands[1]
    dtype = like.dtype if isinstance(like, Value) else dtype_of(like)
    if dtype == "unknown":
        raise UnknownError
    return _converted(operation, operation.value(0), dtype)


def _index_of_extreme(find: Callable[..., np.ndarray]) -> Evaluator:
    """Make the evaluator of ArgMax or ArgMin."""

    def evaluator(operation: Operation) -> Value:
        array, axis = operation.value(0).array(), operation.axis()
        if array is None or array.dtype.kind not in "iu":
            raise UnknownError
        if operation.attributes.get("select_last_index", 0):
            found = array.shape[axis] - 1 - find(np.flip(array, axis), axis)
        else:
            found = find(array, axis)
        if operation.attributes.get("keepdims", 1):
            found = np.expand_dims(found, axis)
        return operation.result(found.ravel().tolist(), found.shape, "int64")

    return evaluator


def _reduction(
    combine: Callable[[KnownValues, Element, Element], Element],
    identity: int | None,
    axes_operand_opset: int,
) -> Evaluator:
    """Make the evaluator of a reduction of integers.

    Parameters
    ----------
    identity : int, optional
        The result for no elements.
    axes_operand_opset : int
        The first opset in which the axes are an operand instead of an attribute.
    """

    def evaluator(operation: Operation) -> Value:
        value, attributes = operation.value(0), operation.attributes
        if not np.issubdtype(value.dtype, np.integer):  # a sum of floats depends on the order
            raise UnknownError
        rank = value.elements.ndim
        if operation.opset < axes_operand_opset:
            axes = list(attributes.get("axes", []))
        else:
            axes = operation.numbers(1) if operation.has(1) else []
        if not axes and attributes.get("noop_with_empty_axes", 0):
            return value
        reduced = positions(axes or range(rank), rank)
        kept = [axis for axis in range(rank) if axis not in reduced]
        shape = [value.shape[axis] for axis in kept]
        count = math.prod(value.shape[axis] for axis in reduced)
        if count == 0 and identity is None:
            raise ValueError("no elements")
        rows = value.elements.transpose(kept + reduced).reshape(math.prod(shape), count)
        start = [] if identity is None else [identity]
        results = [
            reduce(lambda a, b: combine(operation.known, a, b), [*start, *row]) for row in rows
        ]
        if attributes.get("keepdims", 1):
            shape = [1 if axis in reduced else n for axis, n in enumerate(value.shape)]
        return operation.result(results, shape, value.dtype)

    return evaluator


def _cum_sum(operation: Operation) -> Value:
    value = operation.value(0)
    if not np.issubdtype(value.dtype, np.integer):
        raise UnknownError
    [axis] = positions(operation.numbers(1), value.elements.ndim)
    elements = np.moveaxis(value.elements, axis, -1)
    backwards = slice(None, None, -1 if operation.attributes.get("reverse", 0) else 1)
    sums = np.empty(elements.shape, object)
    for index in np.ndindex(*elements.shape[:-1]):
        total: Element = 0
        row: list[Element] = []
        for element in elements[index][backwards]:
            row.append(total if operation.attributes.get("exclusive", 0) else total + element)
            total = total + element
        sums[index] = filled(row[backwards], (len(row),))
    sums = np.moveaxis(sums, -1, axis)
    return operation.result(sums.flat, value.shape, value.dtype)


EVALUATORS: dict[str, Evaluator] = {
    "Abs": _elementwise(_absolute),
    "Add": _elementwise(lambda known, a, b: a + b),
    "And": _elementwise(lambda known, a, b: a and b),
    "ArgMax": _index_of_extreme(np.argmax),
    "ArgMin": _index_of_extreme(np.argmin),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Ceil": _elementwise(lambda known, a: float(math.ceil(a))),
    "CumSum": _cum_sum,
    "Div": _elementwise(_divide),
    "Equal": _elementwise(lambda known, a, b: known.equal(a, b), "bool"),
    "Floor": _elementwise(lambda known, a: float(math.floor(a))),
    "Greater": _elementwise(lambda known, a, b: known.less(b, a), "bool"),
    "GreaterOrEqual": _elementwise(lambda known, a, b: _less_or_equal(known, b, a), "bool"),
    "Less": _elementwise(lambda known, a, b: known.less(a, b), "bool"),
    "LessOrEqual": _elementwise(_less_or_equal, "bool"),
    "Max": _elementwise(_maximum),
    "Min": _elementwise(_minimum),
    "Mod": _modulo,
    "Mul": _elementwise(lambda known, a, b: a * b),
    "Neg": _elementwise(lambda known, a: -a),
    "Not": _elementwise(lambda known, a: not a),
    "Or": _elementwise(lambda known, a, b: a or b),
    "ReduceMax": _reduction(maximum, None, 18),
    "ReduceMin": _reduction(minimum, None, 18),
    "ReduceProd": _reduction(lambda known, a, b: a * b, 1, 18),
    "ReduceSum": _reduction(lambda known, a, b: a + b, 0, 13),
    "Sign": _elementwise(_sign),
    "Sub": _elementwise(lambda known, a, b: a - b),
    "Where": _where,
    "Xor": _elementwise(lambda known, a, b: a != b, "bool"),
}
