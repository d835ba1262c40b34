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
"""Evaluators of operators that create, select, move or join the elements of values."""

import math

import numpy as np
from onnx import numpy_helper

from ...extents import slice_range
from .known import MAX_ELEMENTS, Element, Value
from .operation import Evaluator, Operation, UnknownError, positions

__all__ = ["EVALUATORS"]


def _constant(operation: Operation) -> Value:
    attributes = operation.attributes
    for name, dtype in (("int", "int64"), ("float", "float32")):
        if f"value_{name}" in attributes:
            return operation.result([attributes[f"value_{name}"]], (), dtype)
        if f"value_{name}s" in attributes:
            numbers = attributes[f"value_{name}s"]
            return operation.result(numbers, (len(numbers),), dtype)
    raise UnknownError


def _shape(operation: Operation) -> Value:
    extents = operation.extents()
    # Slicing clamps as the attributes do (ONNX operator specification, Shape).
    extents = extents[operation.attributes.get("start", 0) : operation.attributes.get("end")]
    return operation.result(extents, (len(extents),), "int64")


def _size(operation: Operation) -> Value:
    count: Element = 1
    for extent in operation.extents():
        count = count * extent
    return operation.result([count], (), "int64")


def _gather(operation: Operation) -> Value:
    elements, axis = operation.value(0).elements, operation.axis()
    return operation.moved(np.take(elements, _indices(operation, elements.shape[axis]), axis))


def _indices(operation: Operation, extent: int) -> np.ndarray:
    """The second operand as nonnegative indices; negative ones count from the end of the axis."""
    indices = np.array(operation.numbers(1), "int64").reshape(operation.value(1).shape)
    if np.any((indices < -extent) | (indices >= extent)):
        raise IndexError
    return indices % max(extent, 1)


def _gather_elements(operation: Operation) -> Value:
    elements, axis = operation.value(0).elements, operation.axis()
    indices = _indices(operation, elements.shape[axis])
    return operation.moved(np.take_along_axis(elements, indices, axis))


def _gather_nd(operation: Operation) -> Value:
    elements, indices = operation.value(0).elements, operation.value(1)
    batch, depth = operation.attributes.get("batch_dims", 0), indices.shape[-1]
    places = np.array(operation.numbers(1), "int64").reshape(indices.shape)
    result = np.empty(indices.shape[:-1] + elements.shape[batch + depth :], object)
    for place in np.ndindex(*indices.shape[:-1]):
        # NumPy raises IndexError for an index that is out of bounds.
        result[place] = elements[place[:batch] + tuple(places[place])]
    return operation.moved(result)


def _scatter_nd(operation: Operation) -> Value:
    if operation.attributes.get("reduction", b"none") != b"none":
        raise UnknownError
    elements, indices = operation.value(0).elements.copy(), operation.value(1)
    updates = operation.value(2).elements
    places = np.array(operation.numbers(1), "int64").reshape(indices.shape)
    write_counts = np.zeros(elements.shape, "int64")
    for place in np.ndindex(*indices.shape[:-1]):
        elements[tuple(places[place])] = updates[place]
        write_counts[tuple(places[place])] += 1
    if np.any(write_counts > 1):  # the order of duplicates is undefined
        raise UnknownError
    return operation.moved(elements)


def _scatter_elements(operation: Operation) -> Value:
    if operation.attributes.get("reduction", b"none") != b"none":
        raise UnknownError
    elements, axis = operation.value(0).elements.copy(), operation.axis()
    updates = operation.value(2).elements
    write_counts = np.zeros(elements.shape, "int64")
    for place, index in np.ndenumerate(_indices(operation, elements.shape[axis])):
        target = (*place[:axis], index, *place[axis + 1 :])
        elements[target] = updates[place]
        write_counts[target] += 1
    if np.any(write_counts > 1):  # the order of duplicates is undefined
        raise UnknownError
    return operation.moved(elements)


def _concat(operation: Operation) -> Value:
    arrays = [value.elements for value in operation.values()]
    return operation.moved(np.concatenate(arrays, operation.attributes.get("axis", 1)))


def _given_axes(operation: Operation) -> list[int] | None:
    """The axes of a Squeeze or Unsqueeze, an attribute before opset 13; None if omitted."""
    if operation.opset < 13:
        axes = operation.attributes.get("axes")
        return None if axes is None else list(axes)
    return operation.numbers(1) if operation.has(1) else None


def _unsqueeze(operation: Operation) -> Value:
    elements = operation.value(0).elements
    axes = _given_axes(operation)
    if axes is None:
        raise ValueError("no axes")
    places = positions(axes, elements.ndim + len(axes))
    return operation.moved(np.expand_dims(elements, tuple(places)))


def _squeeze(operation: Operation) -> Value:
    elements = operation.value(0).elements
    axes = _given_axes(operation)
    chosen = None if axes is None else tuple(positions(axes, elements.ndim))
    return operation.moved(np.squeeze(elements, chosen))


def _reshape(operation: Operation) -> Value:
    elements = operation.value(0).elements
    shape = operation.numbers(1) if operation.opset >= 5 else list(operation.attributes["shape"])
    if not operation.attributes.get("allowzero", 0):
        shape = [elements.shape[axis] if n == 0 else n for axis, n in enumerate(shape)]
    return operation.moved(elements.reshape(shape))


def _flatten(operation: Operation) -> Value:
    elements = operation.value(0).elements
    axis = operation.attributes.get("axis", 1)
    axis = axis + elements.ndim if axis < 0 else axis
    if not 0 <= axis <= elements.ndim:
        raise ValueError(axis)
    return operation.moved(elements.reshape(math.prod(elements.shape[:axis]), -1))


def _transpose(operation: Operation) -> Value:
    return operation.moved(operation.value(0).elements.transpose(operation.attributes.get("perm")))


def _slice(operation: Operation) -> Value:
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
        first, count = slice_range(operation.known, elements.shape[axis], start, end, step)
        kept = [first + index * step for index in range(count)]
        elements = np.take(elements, np.array(kept, "int64"), axis)
    return operation.moved(elements)


def _split(operation: Operation) -> list[Value]:
    elements, axis = operation.value(0).elements, operation.axis()
    extent, attributes = elements.shape[axis], operation.attributes
    if operation.opset >= 13 and operation.has(1):
        counts = operation.numbers(1)
    elif operation.opset < 13 and "split" in attributes:
        counts = list(attributes["split"])
    else:
        parts = attributes.get("num_outputs", operation.outputs)
        largest = -(-extent // parts)
        counts = [largest] * (parts - 1) + [extent - largest * (parts - 1)]
    if min(counts) < 0 or sum(counts) != extent:
        raise ValueError(counts)
    return [operation.moved(part) for part in np.split(elements, np.cumsum(counts)[:-1], axis)]


def _expand(operation: Operation) -> Value:
    elements = operation.value(0).elements
    shape = np.broadcast_shapes(elements.shape, tuple(operation.numbers(1)))
    return operation.moved(np.broadcast_to(elements, shape))


def _tile(operation: Operation) -> Value:
    elements, repeats = operation.value(0).elements, operation.numbers(1)
    if len(repeats) != elements.ndim or elements.size * math.prod(repeats) > MAX_ELEMENTS:
        raise UnknownError
    return operation.moved(np.tile(elements, repeats))


def _range(operation: Operation) -> Value:
    start, limit, delta = (value.elements.item() for value in operation.values())
    length = operation.known.simplify(limit - start)
    if not isinstance(length, int) or not isinstance(delta, int):
        raise UnknownError
    count = len(range(0, length, delta))
    if count > MAX_ELEMENTS:
        raise UnknownError
    elements = [start + index * delta for index in range(count)]
    return operation.result(elements, (count,), operation.value(0).dtype)


def _constant_of_shape(operation: Operation) -> Value:
    shape = operation.numbers(0)
    if math.prod(shape) > MAX_ELEMENTS or min(shape, default=0) < 0:
        raise UnknownError
    fill = np.zeros(1, "float32")
    if "value" in operation.attributes:
        fill = numpy_helper.to_array(operation.attributes["value"])
    if fill.dtype.kind not in "biuf":
        raise UnknownError
    return operation.result([fill.item()] * math.prod(shape), shape, str(fill.dtype))


def _non_zero(operation: Operation) -> Value:
    elements = operation.value(0).elements
    if elements.ndim == 0:
        raise UnknownError
    is_zero = [operation.known.equal(element, 0) for element in elements.flat]
    if None in is_zero:
        raise UnknownError
    found = np.argwhere(~np.array(is_zero, bool).reshape(elements.shape)).T
    return operation.result(found.ravel().tolist(), found.shape, "int64")


def _top_k(operation: Operation) -> list[Value]:
    values, axis = operation.value(0), operation.axis(-1)
    array = values.array()
    if array is None or operation.opset < 10 or array.dtype.kind not in "iu":
        raise UnknownError
    [k] = operation.numbers(1)
    if not 0 <= k <= array.shape[axis]:
        raise ValueError(k)
    # Among equal elements the one with the lower index comes first (ONNX operator specification).
    key = -array.astype(object) if operation.attributes.get("largest", 1) else array
    order = np.argsort(key, axis, kind="stable").take(range(k), axis)
    if not operation.attributes.get("sorted", 1) and k > 1:
        raise UnknownError
    indices = operation.result(order.ravel().tolist(), order.shape, "int64")
    return [operation.moved(np.take_along_axis(values.elements, order, axis)), indices]


EVALUATORS: dict[str, Evaluator] = {
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Identity": lambda operation: operation.value(0),
    "NonZero": _non_zero,
    "Range": _range,
    "Reshape": _reshape,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "TopK": _top_k,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
