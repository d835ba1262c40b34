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
"""Small faults planted in ONNX models, each of a kind that a compiler makes."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tvm_fixes.source.onnx import OnnxSource

Model = onnx.ModelProto
Change = Callable[[Model, onnx.NodeProto, np.random.Generator], bool]


@dataclass(frozen=True)
class Fault:
    """A model with one fault.

    Attributes
    ----------
    kind : str
        The kind of the fault.
    node : str
        The first result of the node at fault.
    model : onnx.ModelProto
    """

    kind: str
    node: str
    model: Model


def faults(model: Model, seed: int = 0, per_kind: int = 3) -> Iterator[Fault]:
    """Plant each kind of fault in up to `per_kind` nodes of a model."""
    shaped = _with_shapes(model)
    for kind, change in KINDS.items():
        rng = np.random.default_rng([seed, sum(map(ord, kind))])
        planted = 0
        for place in rng.permutation(len(model.graph.node)):
            if planted == per_kind:
                break
            faulty = copy.deepcopy(shaped)
            node = faulty.graph.node[place]
            name = node.output[0]
            if change(faulty, node, rng):
                planted += 1
                yield Fault(kind, name, faulty)


def _with_shapes(model: Model) -> Model:
    """The model with the types of all values, as a run has them: exporters write wrong shapes."""
    shaped, tried = copy.deepcopy(model), copy.deepcopy(model)
    del shaped.graph.value_info[:], tried.graph.value_info[:]
    known = {value.name for value in model.graph.output}
    names = [
        name for node in model.graph.node for name in node.output if name and name not in known
    ]
    tried.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    source = OnnxSource(tried, "tried")
    results = source.reference()[1](source.example_inputs(np.random.default_rng(0)))
    for name, value in zip(names, results[-len(names) :], strict=True):
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        shaped.graph.value_info.append(helper.make_tensor_value_info(name, kind, value.shape))
    return shaped


def _attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    return next((each for each in node.attribute if each.name == name), None)


def _constant(model: Model, name: str) -> np.ndarray | None:
    """The value of an initializer or of a Constant, as a copy."""
    for tensor in model.graph.initializer:
        if tensor.name == name:
            return numpy_helper.to_array(tensor).copy()
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] == name:
            return numpy_helper.to_array(node.attribute[0].t).copy()
    return None


def _replace_input(model: Model, node: onnx.NodeProto, index: int, value: np.ndarray) -> bool:
    name = f"{node.input[index]}_faulty"
    model.graph.initializer.append(numpy_helper.from_array(value, name))
    node.input[index] = name
    return True


def _shape(model: Model, name: str) -> list[int] | None:
    for value in (*model.graph.value_info, *model.graph.output, *model.graph.input):
        if value.name == name and value.type.tensor_type.HasField("shape"):
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            is_float = value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
            return shape if is_float and all(shape) else None
    return None


def _through(model: Model, node: onnx.NodeProto, *nodes: onnx.NodeProto) -> bool:
    """Insert nodes after the first result of `node`: from ``"in"`` to ``"out"``."""
    name = node.output[0]
    inner = f"{name}_right"
    node.output[0] = inner
    place = next(i for i, each in enumerate(model.graph.node) if each.output[0] == inner)
    known = {"in": inner, "out": name}
    for offset, new in enumerate(nodes):
        for names in (new.input, new.output):
            names[:] = [known.get(each, each) for each in names]
        model.graph.node.insert(place + 1 + offset, new)
    return True


def _swap_operands(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
    if node.op_type not in ("Sub", "Div", "Concat", "MatMul", "Pow"):
        return False
    first, second = (_shape(model, name) for name in node.input[:2])
    if first is None or first != second or (node.op_type == "MatMul" and first[-1] != first[-2]):
        return False
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return True


def _epsilon(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
    attribute = _attribute(node, "epsilon")
    if attribute is not None:
        attribute.f *= float(rng.choice([0.1, 2, 10]))
        return True
    value = _constant(model, node.input[1]) if node.op_type == "Add" else None
    if value is None or value.size > 1 or not 0 < value < 1e-3:
        return False
    return _replace_input(model, node, 1, value * value.dtype.type(rng.choice([0.1, 2, 10])))


def _missing_bias(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
    index = {"Conv": 2, "Gemm": 2, "ConvTranspose": 2, "Add": 1}.get(node.op_type, 9)
    bias = _constant(model, node.input[index]) if index < len(node.input) else None
    if bias is None or bias.ndim != 1:
        return False
    bias[rng.integers(bias.size)] = 0
    return _replace_input(model, node, index, bias)


def _weight(change: Callable[[float], float]) -> Change:
    def plant(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
        index = {"Conv": 1, "Gemm": 1, "MatMul": 1, "LSTM": 2, "GRU": 2, "ConvTranspose": 1}.get(
            node.op_type, 9
        )
        weight = _constant(model, node.input[index]) if index < len(node.input) else None
        if weight is None or weight.dtype != np.float32:
            return False
        flat = weight.reshape(-1)
        place = rng.integers(flat.size)
        flat[place] = change(flat[place])
        return _replace_input(model, node, index, weight)

    return plant


def _lost_term(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
    """The last term of a sum of products is missing."""
    axis = {"Conv": 1, "MatMul": -2}.get(node.op_type)
    weight = _constant(model, node.input[1]) if axis is not None else None
    if weight is None or axis is None or weight.ndim < 2 or weight.shape[axis] < 2:
        return False
    np.moveaxis(weight, axis, 0)[-1] = 0
    return _replace_input(model, node, 1, weight)


def _element(factor: float, *, whole_row: bool) -> Change:
    """The last element, or those at the end of the last axis, are off."""

    def plant(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
        shape = _shape(model, node.output[0])
        if shape is None or not shape or np.prod(shape) < 8:
            return False
        mask = np.ones(shape, "float32")
        mask[(..., -1) if whole_row else (-1,) * len(shape)] = factor
        name = f"{node.output[0]}_mask"
        model.graph.initializer.append(numpy_helper.from_array(mask, name))
        return _through(model, node, helper.make_node("Mul", ["in", name], ["out"]))

    return plant


def _pads(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
    attribute = _attribute(node, "pads")
    if attribute is None or node.op_type not in ("Conv", "MaxPool", "AveragePool"):
        return False
    pads = list(attribute.ints)
    rank = len(pads) // 2
    axis = int(rng.integers(rank))
    if not pads[axis]:
        return False
    pads[axis] -= 1
    pads[rank + axis] += 1
    attribute.ints[:] = pads
    return True


def _activation(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
    defaults = {"LeakyRelu": 0.01, "Elu": 1.0, "HardSigmoid": 0.2, "ThresholdedRelu": 1.0}
    if node.op_type == "Clip":
        value = _constant(model, node.input[2]) if len(node.input) > 2 else None
        return value is not None and _replace_input(model, node, 2, value * np.float32(1.01))
    if node.op_type not in defaults:
        return False
    attribute = _attribute(node, "alpha")
    value = defaults[node.op_type] if attribute is None else attribute.f
    if attribute is not None:
        node.attribute.remove(attribute)
    node.attribute.append(helper.make_attribute("alpha", value * 1.01))
    return True


def _constant_operand(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
    """A constant such as the scale of attention, rounded to three digits."""
    if node.op_type not in ("Mul", "Div", "Add", "Sub", "Pow"):
        return False
    for index, name in enumerate(node.input):
        value = _constant(model, name)
        if value is not None and value.size == 1 and value.dtype == np.float32 and value:
            wrong = np.float32(f"{float(value):.2e}") if rng.integers(2) else value
            wrong = wrong if wrong != value else value * np.float32(1.001)
            return _replace_input(model, node, index, np.asarray(wrong).reshape(value.shape))
    return False


def _approximation(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
    """A function is replaced by a similar one."""
    if node.op_type == "Erf":
        # The approximation of Gelu with tanh.
        model.graph.initializer.append(numpy_helper.from_array(np.float32(1.12838), "two_by_pi"))
        model.graph.initializer.append(numpy_helper.from_array(np.float32(0.1009), "cubic"))
        node.op_type = "Tanh"
        data = node.input[0]
        place = next(i for i, each in enumerate(model.graph.node) if each == node)
        new = [
            helper.make_node("Mul", [data, data], ["f2"]),
            helper.make_node("Mul", ["f2", data], ["f3"]),
            helper.make_node("Mul", ["f3", "cubic"], ["f4"]),
            helper.make_node("Mul", [data, "two_by_pi"], ["f5"]),
            helper.make_node("Add", ["f4", "f5"], ["f6"]),
        ]
        node.input[0] = "f6"
        for offset, each in enumerate(new):
            model.graph.node.insert(place + offset, each)
        return True
    if node.op_type == "Sigmoid":
        node.op_type = "HardSigmoid"
        return True
    return False


def _removed(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
    """A step is missing."""
    if node.op_type not in ("Relu", "Clip", "HardSwish", "LeakyRelu", "Dropout", "Tanh"):
        return False
    node.op_type = "Identity"
    del node.input[1:], node.attribute[:]
    return True


def _narrow(kind: int) -> Change:
    """A result is rounded to 16 bits."""

    def plant(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
        shape = _shape(model, node.output[0])
        if shape is None or node.op_type in ("Constant", "Identity"):
            return False
        name = f"{node.output[0]}_narrow"
        return _through(
            model,
            node,
            helper.make_node("Cast", ["in"], [name], to=kind),
            helper.make_node("Cast", [name], ["out"], to=onnx.TensorProto.FLOAT),
        )

    return plant


def _zero_point(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or len(node.input) < 3:
        return False
    value = _constant(model, node.input[2])
    if value is None or value.dtype.itemsize > 1:
        return False
    step = -1 if np.any(value == np.iinfo(value.dtype).max) else 1
    flat = value.reshape(-1)
    flat[rng.integers(flat.size)] += step
    return _replace_input(model, node, 2, value)


def _scale(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return False
    value = _constant(model, node.input[1])
    if value is None:
        return False
    flat = value.reshape(-1)
    flat[rng.integers(flat.size)] *= 1.01
    return _replace_input(model, node, 1, value)


def _rounding_mode(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
    """Quantization that truncates: half a step less, then rounded."""
    if node.op_type != "QuantizeLinear" or _shape(model, node.input[0]) is None:
        return False
    scale = _constant(model, node.input[1])
    if scale is None or scale.size > 1:
        return False
    name = f"{node.output[0]}_half"
    half = numpy_helper.from_array(np.float32(0.5) * scale.astype("float32"), name)
    model.graph.initializer.append(half)
    place = next(i for i, each in enumerate(model.graph.node) if each == node)
    moved = f"{node.output[0]}_moved"
    model.graph.node.insert(place, helper.make_node("Sub", [node.input[0], name], [moved]))
    model.graph.node[place + 1].input[0] = moved
    return True


def _count(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
    """A mean that divides by n - 1, or that counts the padding."""
    if node.op_type == "AveragePool":
        attribute = _attribute(node, "count_include_pad")
        value = 1 - (attribute.i if attribute is not None else 0)
        if attribute is not None:
            node.attribute.remove(attribute)
        node.attribute.append(helper.make_attribute("count_include_pad", value))
        pads = _attribute(node, "pads")
        return pads is not None and any(pads.ints)
    if node.op_type not in ("ReduceMean", "GlobalAveragePool"):
        return False
    before, after = (_shape(model, name) for name in (node.input[0], node.output[0]))
    if before is None or after is None:
        return False
    terms = np.prod(before) / np.prod(after)
    if terms < 2:
        return False
    name = f"{node.output[0]}_count"
    factor = numpy_helper.from_array(np.float32(terms / (terms - 1)), name)
    model.graph.initializer.append(factor)
    return _through(model, node, helper.make_node("Mul", ["in", name], ["out"]))


def _attribute_mode(model: Model, node: onnx.NodeProto, rng: np.random.Generator) -> bool:
    """Another mode of a Resize, or another axis of a Softmax."""
    if node.op_type == "Resize":
        mode = _attribute(node, "coordinate_transformation_mode")
        if mode is None:
            return False
        mode.s = b"half_pixel" if mode.s != b"half_pixel" else b"asymmetric"
        return True
    shape = _shape(model, node.output[0]) if node.op_type == "Softmax" else None
    if shape is None or len(shape) < 2 or shape[-2] < 2:
        return False
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("axis", -2))
    return True


KINDS: dict[str, Change] = {
    "operands swapped": _swap_operands,
    "epsilon of a norm": _epsilon,
    "bias of one channel missing": _missing_bias,
    "one weight with the wrong sign": _weight(lambda weight: -weight),
    "one weight 10% larger": _weight(lambda weight: 1.1 * weight),
    "last term of a sum missing": _lost_term,
    "last element 0": _element(0.0, whole_row=False),
    "last element 1% larger": _element(1.01, whole_row=False),
    "end of a row 1% larger": _element(1.01, whole_row=True),
    "pads off by one": _pads,
    "constant of an activation": _activation,
    "constant rounded": _constant_operand,
    "function approximated": _approximation,
    "step missing": _removed,
    "result rounded to bfloat16": _narrow(onnx.TensorProto.BFLOAT16),
    "result rounded to float16": _narrow(onnx.TensorProto.FLOAT16),
    "zero point off by one": _zero_point,
    "scale 1% larger": _scale,
    "quantization rounds down": _rounding_mode,
    "count of a mean": _count,
    "wrong mode or axis": _attribute_mode,
}
"""The kinds of faults: each changes a node, if it can have that fault."""
