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
"""ONNX operators over values that are known while a model is imported; see ``values.py``."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from onnx import helper, numpy_helper
from tvm import relax, tirx

from ..dtypes import dtype_of
from .values import MOST_ELEMENTS, Element, Extent, KnownValues, Value, is_small

__all__ = ["evaluate"]


class _UnknownError(Exception):
    """An element of a result is not known: the operator is left to run."""


@dataclass(frozen=True)
class _Operation:
    """A node whose operands are values where they are known and tensors where not.

    An operand that is left out is None.
    """

    operands: Sequence[Value | relax.Expr | None]
    attributes: dict[str, Any]
    opset: int
    known: KnownValues

    def has(self, index: int) -> bool:
        """Whether an operand is given."""
        return index < len(self.operands) and self.operands[index] is not None

    def value(self, index: int) -> Value:
        """The value of an operand that is given."""
        operand = self.operands[index]
        value = operand if isinstance(operand, Value) else self.known.of(operand)
        if value is None:
            raise _UnknownError
        return value

    def numbers(self, index: int) -> list[int]:
        """The elements of an operand of integers that must be static."""
        elements = self.value(index).extents()
        if not all(isinstance(element, int) for element in elements):
            raise _UnknownError
        return elements

    def values(self) -> list[Value]:
        """The values of all operands."""
        return [self.value(index) for index in range(len(self.operands))]

    def extents(self) -> list[Extent]:
        """The shape of the first operand."""
        [tensor] = self.operands
        if isinstance(tensor, Value):
            return list(tensor.shape)
        extents = None if tensor is None else self.known.extents(tensor)
        if extents is None:
            raise _UnknownError
        return extents

    def result(self, elements: Iterable[Element], shape: Sequence[int], dtype: str) -> Value:
        value = self.known.value(elements, shape, dtype)
        if value is None:
            raise _UnknownError
        return value

    def moved(self, elements: np.ndarray | Element) -> Value:
        """The first operand with its `elements` in other places."""
        if not isinstance(elements, np.ndarray):  # NumPy takes a single element out of its array
            elements = _filled([elements], ())
        if not is_small(elements):
            raise _UnknownError
        return Value(elements, self.value(0).dtype)

    def axis(self, default: int = 0) -> int:
        """The attribute axis as a position in the first operand."""
        [axis] = positions([self.attributes.get("axis", default)], self.value(0).elements.ndim)
        return axis


_Evaluator: TypeAlias = Callable[[_Operation], Value | list[Value]]


def evaluate(
    operator: str,
    operands: Sequence[Value | relax.Expr | None],
    attributes: dict[str, Any],
    opset: int,
    known: KnownValues,
) -> list[Value] | None:
    """The values of the outputs of a node.

    Parameters
    ----------
    operator : str
        Its type.
    operands : sequence
        Values, tensors, and None for those that are left out.
    attributes : dict
        By name, as TVM's converters get them.
    opset : int
        The version of the default operator set.

    Returns
    -------
    list of Value or None
        None if an element of an output can't be known, or the node is invalid.
    """
    evaluator = _EVALUATORS.get(operator)
    if evaluator is None:
        return None
    try:
        outputs = evaluator(_Operation(operands, attributes, opset, known))
    except (
        _UnknownError,
        IndexError,
        KeyError,
        OverflowError,
        ValueError,
    ):  # an invalid node is its converter's to refuse
        return None
    return outputs if isinstance(outputs, list) else [outputs]


def positions(axes: Iterable[int], rank: int) -> list[int]:
    """Axes, of which negative ones count from the end, as positions.

    Raises
    ------
    ValueError
        If an axis is not one of `rank`.
    """
    axes = list(axes)
    if not all(-rank <= axis < rank for axis in axes):
        raise ValueError(f"axes are {axes}; expected them from {-rank} to {rank - 1}")
    return [axis % rank for axis in axes]


def _filled(elements: Iterable[Element], shape: Sequence[int]) -> np.ndarray:
    """An array of `elements`; NumPy itself would ask an expression for its elements."""
    array = np.empty(shape, object)
    for index, element in enumerate(elements):
        array.flat[index] = element
    return array


def _constant(operation: _Operation) -> Value:
    attributes = operation.attributes
    for name, dtype in (("int", "int64"), ("float", "float32")):
        if f"value_{name}" in attributes:
            return operation.result([attributes[f"value_{name}"]], (), dtype)
        if f"value_{name}s" in attributes:
            numbers = attributes[f"value_{name}s"]
            return operation.result(numbers, (len(numbers),), dtype)
    raise _UnknownError


def _shape(operation: _Operation) -> Value:
    extents = operation.extents()
    # Slicing clamps as the attributes do (ONNX operator specification, Shape).
    extents = extents[operation.attributes.get("start", 0) : operation.attributes.get("end")]
    return operation.result(extents, (len(extents),), "int64")


def _size(operation: _Operation) -> Value:
    count: Element = 1
    for extent in operation.extents():
        count = count * extent
    return operation.result([count], (), "int64")


def _gather(operation: _Operation) -> Value:
    elements, axis = operation.value(0).elements, operation.axis()
    return operation.moved(np.take(elements, _indices(operation, elements.shape[axis]), axis))


def _indices(operation: _Operation, extent: int) -> np.ndarray:
    """The second operand as indices, of which negative ones count from the end."""
    indices = np.array(operation.numbers(1), "int64").reshape(operation.value(1).shape)
    if np.any((indices < -extent) | (indices >= extent)):
        raise IndexError
    return indices % max(extent, 1)


def _gather_elements(operation: _Operation) -> Value:
    elements, axis = operation.value(0).elements, operation.axis()
    indices = _indices(operation, elements.shape[axis])
    return operation.moved(np.take_along_axis(elements, indices, axis))


def _gather_nd(operation: _Operation) -> Value:
    elements, indices = operation.value(0).elements, operation.value(1)
    batch, depth = operation.attributes.get("batch_dims", 0), indices.shape[-1]
    places = np.array(operation.numbers(1), "int64").reshape(indices.shape)
    result = np.empty(indices.shape[:-1] + elements.shape[batch + depth :], object)
    for place in np.ndindex(*indices.shape[:-1]):
        # An index that is out of bounds raises.
        result[place] = elements[place[:batch] + tuple(places[place])]
    return operation.moved(result)


def _scatter_nd(operation: _Operation) -> Value:
    if operation.attributes.get("reduction", b"none") != b"none":
        raise _UnknownError
    elements, indices = operation.value(0).elements.copy(), operation.value(1)
    updates = operation.value(2).elements
    places = np.array(operation.numbers(1), "int64").reshape(indices.shape)
    taken = np.zeros(elements.shape, "int64")
    for place in np.ndindex(*indices.shape[:-1]):
        elements[tuple(places[place])] = updates[place]
        taken[tuple(places[place])] += 1
    if np.any(taken > 1):  # which one is last is not defined
        raise _UnknownError
    return operation.moved(elements)


def _scatter_elements(operation: _Operation) -> Value:
    if operation.attributes.get("reduction", b"none") != b"none":
        raise _UnknownError
    elements, axis = operation.value(0).elements.copy(), operation.axis()
    updates = operation.value(2).elements
    taken = np.zeros(elements.shape, "int64")
    for place, index in np.ndenumerate(_indices(operation, elements.shape[axis])):
        target = (*place[:axis], index, *place[axis + 1 :])
        elements[target] = updates[place]
        taken[target] += 1
    if np.any(taken > 1):  # which one is last is not defined
        raise _UnknownError
    return operation.moved(elements)


def _concat(operation: _Operation) -> Value:
    arrays = [value.elements for value in operation.values()]
    return operation.moved(np.concatenate(arrays, operation.attributes.get("axis", 1)))


def _given_axes(operation: _Operation) -> list[int] | None:
    """The axes of a Squeeze or Unsqueeze, an attribute before opset 13."""
    if operation.opset < 13:
        axes = operation.attributes.get("axes")
        return None if axes is None else list(axes)
    return operation.numbers(1) if operation.has(1) else None


def _unsqueeze(operation: _Operation) -> Value:
    elements = operation.value(0).elements
    axes = _given_axes(operation)
    if axes is None:
        raise ValueError("no axes")
    places = positions(axes, elements.ndim + len(axes))
    return operation.moved(np.expand_dims(elements, tuple(places)))


def _squeeze(operation: _Operation) -> Value:
    elements = operation.value(0).elements
    axes = _given_axes(operation)
    chosen = None if axes is None else tuple(positions(axes, elements.ndim))
    return operation.moved(np.squeeze(elements, chosen))


def _reshape(operation: _Operation) -> Value:
    elements = operation.value(0).elements
    shape = operation.numbers(1) if operation.opset >= 5 else list(operation.attributes["shape"])
    if not operation.attributes.get("allowzero", 0):
        shape = [elements.shape[axis] if n == 0 else n for axis, n in enumerate(shape)]
    return operation.moved(elements.reshape(shape))


def _flatten(operation: _Operation) -> Value:
    elements = operation.value(0).elements
    axis = operation.attributes.get("axis", 1)
    axis = axis + elements.ndim if axis < 0 else axis
    if not 0 <= axis <= elements.ndim:
        raise ValueError(axis)
    return operation.moved(elements.reshape(math.prod(elements.shape[:axis]), -1))


def _transpose(operation: _Operation) -> Value:
    return operation.moved(operation.value(0).elements.transpose(operation.attributes.get("perm")))


def _slice(operation: _Operation) -> Value:
    elements = operation.value(0).elements
    if operation.opset < 10:
        starts, ends = operation.attributes["starts"], operation.attributes["ends"]
        axes, steps = operation.attributes.get("axes"), None
    else:
        starts, ends = operation.numbers(1), operation.numbers(2)
        axes = operation.numbers(3) if operation.has(3) else None
        steps = operation.numbers(4) if operation.has(4) else None
    axes = positions(range(len(starts)) if axes is None else axes, elements.ndim)
    steps = [1] * len(starts) if steps is None else steps
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        kept = _sliced(elements.shape[axis], start, end, step)
        elements = np.take(elements, np.array(kept, "int64"), axis)
    return operation.moved(elements)


def _sliced(extent: int, start: int, end: int, step: int) -> range:
    """The indices that a Slice takes of an axis (ONNX operator specification, Slice)."""
    start, end = (bound + extent if bound < 0 else bound for bound in (start, end))
    if step < 0:
        return range(min(max(start, 0), extent - 1), min(max(end, -1), extent - 1), step)
    return range(min(max(start, 0), extent), min(max(end, 0), extent), step)


def _split(operation: _Operation) -> list[Value]:
    elements, axis = operation.value(0).elements, operation.axis()
    extent, attributes = elements.shape[axis], operation.attributes
    if operation.opset >= 13 and operation.has(1):
        counts = operation.numbers(1)
    elif operation.opset < 13 and "split" in attributes:
        counts = list(attributes["split"])
    else:
        parts = attributes.get("num_outputs", attributes["tvm_custom"]["num_outputs"])
        most = -(-extent // parts)
        counts = [most] * (parts - 1) + [extent - most * (parts - 1)]
    if min(counts) < 0 or sum(counts) != extent:
        raise ValueError(counts)
    return [operation.moved(part) for part in np.split(elements, np.cumsum(counts)[:-1], axis)]


def _expand(operation: _Operation) -> Value:
    elements = operation.value(0).elements
    shape = np.broadcast_shapes(elements.shape, tuple(operation.numbers(1)))
    return operation.moved(np.broadcast_to(elements, shape))


def _tile(operation: _Operation) -> Value:
    elements, repeats = operation.value(0).elements, operation.numbers(1)
    if len(repeats) != elements.ndim or elements.size * math.prod(repeats) > MOST_ELEMENTS:
        raise _UnknownError
    return operation.moved(np.tile(elements, repeats))


def _range(operation: _Operation) -> Value:
    start, limit, delta = (value.elements.item() for value in operation.values())
    length = operation.known.simplify(limit - start)
    if not isinstance(length, int) or not isinstance(delta, int):
        raise _UnknownError
    count = len(range(0, length, delta))
    if count > MOST_ELEMENTS:
        raise _UnknownError
    elements = [start + index * delta for index in range(count)]
    return operation.result(elements, (count,), operation.value(0).dtype)


def _constant_of_shape(operation: _Operation) -> Value:
    shape = operation.numbers(0)
    if math.prod(shape) > MOST_ELEMENTS or min(shape, default=0) < 0:
        raise _UnknownError
    fill = np.zeros(1, "float32")
    if "value" in operation.attributes:
        fill = numpy_helper.to_array(operation.attributes["value"])
    if fill.dtype.kind not in "biuf":
        raise _UnknownError
    return operation.result([fill.item()] * math.prod(shape), shape, str(fill.dtype))


def _non_zero(operation: _Operation) -> Value:
    elements = operation.value(0).elements
    if elements.ndim == 0:
        raise _UnknownError
    is_zero = [operation.known.equal(element, 0) for element in elements.flat]
    if None in is_zero:
        raise _UnknownError
    found = np.argwhere(~np.array(is_zero, bool).reshape(elements.shape)).T
    return operation.result(found.ravel().tolist(), found.shape, "int64")


def _top_k(operation: _Operation) -> list[Value]:
    values, axis = operation.value(0), operation.axis(-1)
    array = values.array()
    if array is None or operation.opset < 10 or array.dtype.kind not in "iu":
        raise _UnknownError
    [k] = operation.numbers(1)
    if not 0 <= k <= array.shape[axis]:
        raise ValueError(k)
    # Of equal elements the one of the lower index comes first (ONNX operator specification).
    key = -array.astype(object) if operation.attributes.get("largest", 1) else array
    order = np.argsort(key, axis, kind="stable").take(range(k), axis)
    if not operation.attributes.get("sorted", 1) and k > 1:
        raise _UnknownError
    indices = operation.result(order.ravel().tolist(), order.shape, "int64")
    return [operation.moved(np.take_along_axis(values.elements, order, axis)), indices]


def _index_of_extreme(find: Callable[..., np.ndarray]) -> _Evaluator:
    """The evaluator of ArgMax or ArgMin."""

    def evaluator(operation: _Operation) -> Value:
        array, axis = operation.value(0).array(), operation.axis()
        if array is None or array.dtype.kind not in "iu":
            raise _UnknownError
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
    axes_are_operand: int,
) -> _Evaluator:
    """The evaluator of a reduction of integers.

    Parameters
    ----------
    identity : int, optional
        The result of no elements.
    axes_are_operand : int
        The first opset where axes are no attribute.
    """

    def evaluator(operation: _Operation) -> Value:
        value, attributes = operation.value(0), operation.attributes
        if not np.issubdtype(value.dtype, np.integer):  # floats depend on the order
            raise _UnknownError
        rank = value.elements.ndim
        if operation.opset < axes_are_operand:
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


def _cum_sum(operation: _Operation) -> Value:
    value = operation.value(0)
    if not np.issubdtype(value.dtype, np.integer):
        raise _UnknownError
    [axis] = positions(operation.numbers(1), value.elements.ndim)
    elements = np.moveaxis(value.elements, axis, -1)
    backwards = slice(None, None, -1 if operation.attributes.get("reverse", 0) else 1)
    sums = np.empty(elements.shape, object)
    for place in np.ndindex(*elements.shape[:-1]):
        total: Element = 0
        row: list[Element] = []
        for element in elements[place][backwards]:
            row.append(total if operation.attributes.get("exclusive", 0) else total + element)
            total = total + element
        sums[place] = _filled(row[backwards], (len(row),))
    sums = np.moveaxis(sums, -1, axis)
    return operation.result(sums.flat, value.shape, value.dtype)


def _elementwise(
    compute: Callable[..., Element | None], dtype: str | None = None
) -> Callable[[_Operation], Value]:
    """The evaluator of an operator on elements, that broadcasts.

    Parameters
    ----------
    compute : callable
        Gives an element of the result, or None if it is not known.
    dtype : str, optional
        That of the result, unless it is that of the operands.
    """

    def evaluator(operation: _Operation) -> Value:
        values = operation.values()
        arrays = np.broadcast_arrays(*(value.elements for value in values))
        elements = [
            compute(operation.known, *row)
            for row in zip(*(array.flat for array in arrays), strict=True)
        ]
        if any(element is None for element in elements):
            raise _UnknownError
        return operation.result(elements, arrays[0].shape, dtype or values[0].dtype)

    return evaluator


def _divide(known: KnownValues, a: Element, b: Element) -> Element | None:
    """The quotient, truncated toward zero if it is of integers."""
    if not isinstance(b, tirx.Expr) and b == 0:
        return None
    if isinstance(a, float) and isinstance(b, float):
        return a / b
    if not isinstance(a, tirx.Expr) and not isinstance(b, tirx.Expr):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if known.less(a, 0) is False and known.less(0, b):
        return tirx.floordiv(a, b)
    return None


def _modulo(operation: _Operation) -> Value:
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
    return reduce(lambda a, b: _least(known, a, b), elements)


def _least(known: KnownValues, a: Element, b: Element) -> Element:
    less = known.less(a, b)
    if less is not None:
        return a if less else b
    return tirx.min(_expression(a), _expression(b))


def _maximum(known: KnownValues, *elements: Element) -> Element | None:
    if any(element != element for element in elements if isinstance(element, float)):
        return None
    return reduce(lambda a, b: _most(known, a, b), elements)


def _most(known: KnownValues, a: Element, b: Element) -> Element:
    less = known.less(a, b)
    if less is not None:
        return b if less else a
    return tirx.max(_expression(a), _expression(b))


def _expression(element: Element) -> tirx.Expr:
    return element if isinstance(element, tirx.Expr) else tirx.const(element, "int64")


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


def _where(operation: _Operation) -> Value:
    values = operation.values()
    condition, a, b = np.broadcast_arrays(*(value.elements for value in values))
    elements = [x if c else y for c, x, y in zip(condition.flat, a.flat, b.flat, strict=True)]
    return operation.result(elements, condition.shape, values[1].dtype)


def _cast(operation: _Operation) -> Value:
    value = operation.value(0)
    dtype = str(helper.tensor_dtype_to_np_dtype(operation.attributes["to"]))
    return _converted(operation, value, dtype)


def _converted(operation: _Operation, value: Value, dtype: str) -> Value:
    def convert(element: Element) -> Element:
        if dtype == "bool":
            is_zero = operation.known.equal(element, 0)
            if is_zero is None:
                raise _UnknownError
            return not is_zero
        if isinstance(element, tirx.Expr):
            return element
        return float(element) if dtype.startswith(("float", "bfloat")) else int(element)

    return operation.result(map(convert, value.elements.flat), value.shape, dtype)


def _cast_like(operation: _Operation) -> Value:
    like = operation.operands[1]
    dtype = like.dtype if isinstance(like, Value) else dtype_of(like)
    if dtype == "unknown":
        raise _UnknownError
    return _converted(operation, operation.value(0), dtype)


_EVALUATORS: dict[str, _Evaluator] = {
    "Abs": _elementwise(_absolute),
    "Add": _elementwise(lambda known, a, b: a + b),
    "And": _elementwise(lambda known, a, b: a and b),
    "ArgMax": _index_of_extreme(np.argmax),
    "ArgMin": _index_of_extreme(np.argmin),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Ceil": _elementwise(lambda known, a: float(math.ceil(a))),
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "CumSum": _cum_sum,
    "Div": _elementwise(_divide),
    "Equal": _elementwise(lambda known, a, b: known.equal(a, b), "bool"),
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": _elementwise(lambda known, a: float(math.floor(a))),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Greater": _elementwise(lambda known, a, b: known.less(b, a), "bool"),
    "GreaterOrEqual": _elementwise(lambda known, a, b: _less_or_equal(known, b, a), "bool"),
    "Identity": lambda operation: operation.value(0),
    "Less": _elementwise(lambda known, a, b: known.less(a, b), "bool"),
    "LessOrEqual": _elementwise(_less_or_equal, "bool"),
    "Max": _elementwise(_maximum),
    "Min": _elementwise(_minimum),
    "Mod": _modulo,
    "Mul": _elementwise(lambda known, a, b: a * b),
    "Neg": _elementwise(lambda known, a: -a),
    "NonZero": _non_zero,
    "Not": _elementwise(lambda known, a: not a),
    "Or": _elementwise(lambda known, a, b: a or b),
    "Range": _range,
    "ReduceMax": _reduction(_most, None, 18),
    "ReduceMin": _reduction(_least, None, 18),
    "ReduceProd": _reduction(lambda known, a, b: a * b, 1, 18),
    "ReduceSum": _reduction(lambda known, a, b: a + b, 0, 13),
    "Reshape": _reshape,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Shape": _shape,
    "Sign": _elementwise(_sign),
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": _elementwise(lambda known, a, b: a - b),
    "Tile": _tile,
    "TopK": _top_k,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    "Xor": _elementwise(lambda known, a, b: a != b, "bool"),
}
