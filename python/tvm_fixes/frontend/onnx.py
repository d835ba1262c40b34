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
"""ONNX models as Relax.

Upstream
    https://github.com/apache/tvm/issues/19450 leaves the attribute for later.
Versions
    Seen in 0.27.0.post1.
Trigger
    A ConvTranspose with the attribute ``output_shape``.
Symptom
    The result has another shape and other numbers, silently.
Mechanism
    The converter takes ``pads`` or ``auto_pad`` and never reads ``output_shape``.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test and
    the fix id ``onnx-conv-transpose-output-shape``.
"""

import warnings
from typing import Any

import onnx
import tvm
from tvm import relax, tirx
from tvm.relax.frontend import onnx as tvm_onnx
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter as TVMGraphImporter

from .. import switches

__all__ = ["ONNXGraphImporter", "from_onnx"]

FIX_ID = "onnx-conv-transpose-output-shape"

_OLDEST_IR_VERSION = 3


def _invalid(attributes: dict[str, Any], reason: str) -> tvm.error.OpAttributeInvalid:
    node = attributes["tvm_custom"]["name"]
    value = list(attributes["output_shape"])
    return tvm.error.OpAttributeInvalid(
        f"ConvTranspose {node!r}: attribute output_shape is {value}; {reason}"
    )


def _static_extents(value: relax.Expr) -> list[int] | None:
    """The spatial dimensions of `value` in a channels-first layout, or None if one is unknown."""
    shape = value.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        return None
    extents = shape.values[2:]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    return [int(extent) for extent in extents]


def _pads_from_output_shape(
    data: relax.Expr, weight: relax.Expr, attributes: dict[str, Any]
) -> dict[str, Any]:
    """The attributes of a ConvTranspose with ``output_shape`` resolved to ``pads``.

    The total padding of an axis is what the transposed convolution has more than
    ``output_shape``; its odd element goes to the end for ``SAME_UPPER``, else to the beginning
    (ONNX operator specification, ConvTranspose).  Where it has less, the missing elements are
    output padding, as in ONNX Runtime.

    Parameters
    ----------
    data, weight : relax.Expr
        The operands, ``(N, C, *spatial)`` and ``(C, O / group, *kernel)``.
    attributes : dict
        The node's attributes, ``output_shape`` among them, as TVM's converters get them.

    Returns
    -------
    dict
        The attributes with ``pads`` and ``output_padding`` in place of ``output_shape`` and
        ``auto_pad``.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If ``output_shape`` has not one element for each spatial axis, a spatial dimension of an
        operand is not static, or no output padding below ``max(stride, dilation)`` reaches
        ``output_shape``.
    """
    rank = weight.ty.ndim - 2
    target = attributes["output_shape"]
    if len(target) != rank:
        raise _invalid(attributes, f"expected {rank} elements, one a spatial axis")
    extents, kernel = _static_extents(data), _static_extents(weight)
    if extents is None or kernel is None:
        raise _invalid(attributes, "expected operands with static spatial dimensions")
    strides = attributes.get("strides", [1] * rank)
    dilations = attributes.get("dilations", [1] * rank)
    output_padding = list(attributes.get("output_padding", [0] * rank))
    auto_pad = attributes.get("auto_pad", b"NOTSET")

    begin, end = [], []
    for axis in range(rank):
        full = (
            strides[axis] * (extents[axis] - 1)
            + dilations[axis] * (kernel[axis] - 1)
            + 1
            + output_padding[axis]
        )
        total = max(full - target[axis], 0)
        begin.append(total // 2 if auto_pad == b"SAME_UPPER" else total - total // 2)
        end.append(total - begin[axis])
        output_padding[axis] += max(target[axis] - full, 0)
        limit = max(strides[axis], dilations[axis])
        if output_padding[axis] >= limit:
            raise _invalid(
                attributes,
                f"on spatial axis {axis} it needs an output padding of {output_padding[axis]}, "
                f"expected less than max(stride, dilation) = {limit}",
            )
    resolved = {k: v for k, v in attributes.items() if k not in ("output_shape", "auto_pad")}
    return resolved | {"pads": begin + end, "output_padding": output_padding}


class ONNXGraphImporter(TVMGraphImporter):
    """TVM's importer with ``output_shape`` of ConvTranspose honoured.

    TVM looks a converter up in a module-level function; the method that calls the converter,
    ``_convert_operator``, is what a subclass can override, and it sees the branches of ``If``.
    """

    def _convert_operator(
        self, op_name: str, inputs: list[relax.Expr], attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        if op_name == "ConvTranspose" and "output_shape" in attrs:
            switches.note(FIX_ID)
            attrs = _pads_from_output_shape(inputs[0], inputs[1], attrs)
        return super()._convert_operator(op_name, inputs, attrs, opset)


def from_onnx(
    model: onnx.ModelProto,
    shape_dict: dict[str, list[Any]] | None = None,
    dtype_dict: str | dict[str, str] | None = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> tvm.IRModule:
    """Import an ONNX model; ``tvm.relax.frontend.onnx.from_onnx``, corrected.

    ``output_shape`` of ConvTranspose decides its padding.  While the fix
    ``onnx-conv-transpose-output-shape`` is switched off, this is TVM's function.

    Parameters
    ----------
    model : onnx.ModelProto
        The model, of IR version 3 (ONNX 1.1) or newer.
    shape_dict : dict of str to list, optional
        Shapes of inputs, by name; they go before those in the model.
    dtype_dict : str or dict of str to str, optional
        Dtypes of inputs, by name; they go before those in the model.
    opset : int, optional
        The version of the default operator set, instead of the model's.
    keep_params_in_input : bool
        Make the initializers inputs of ``main``, behind the model's own, instead of constants;
        their values are then the function's attribute ``params``.
    sanitize_input_names : bool
        Turn the names of inputs into identifiers.

    Returns
    -------
    tvm.IRModule
        The model as the function ``main``.

    Raises
    ------
    ValueError
        If the model's IR version is too old.
    tvm.error.OpNotImplemented
        If the model has operators without a converter; the message names them.
    tvm.error.OpAttributeInvalid
        If an attribute of a node has a value that can't be imported.
    """
    if not switches.enabled(FIX_ID):
        return tvm_onnx.from_onnx(
            model, shape_dict, dtype_dict, opset, keep_params_in_input, sanitize_input_names
        )
    if model.ir_version < _OLDEST_IR_VERSION:
        raise ValueError(
            f"ONNX IR version {model.ir_version} is not supported; expected {_OLDEST_IR_VERSION} "
            "(ONNX 1.1) or newer"
        )
    try:
        onnx.checker.check_model(model)
    except Exception as error:  # a model that the checker refuses may be importable
        warnings.warn(str(error), stacklevel=2)
    versions = {imported.domain: imported.version for imported in model.opset_import}
    model_opset = versions.get("", versions.get("ai.onnx", 1))
    if opset is not None and opset < model_opset:
        warnings.warn(
            f"opset {opset} was asked for and the model is of opset {model_opset}: "
            "it may be misread",
            stacklevel=2,
        )
    importer = ONNXGraphImporter(
        shape_dict,
        dtype_dict,
        keep_params_in_input=keep_params_in_input,
        sanitize=sanitize_input_names,
    )
    return importer.from_onnx(model.graph, model_opset if opset is None else opset)
