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
"""The importer: TVM's, with corrections between the graph and TVM's converters."""

import warnings
from functools import partial
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend import onnx as tvm_onnx
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter as TVMGraphImporter
from tvm.relax.frontend.onnx.onnx_frontend import onnx_input

from ... import switches
from .constants import fold_operands
from .convolution import (
    CONV_AUTO_PAD,
    CONV_TRANSPOSE_OUTPUT_SHAPE,
    pad_conv,
    pad_conv_transpose,
)
from .inputs import UNNAMED_DIMS, Dim, input_shapes
from .node import Converter, Correction, Node, constant_value
from .pad import PAD, convert_pad
from .prelu import PRELU, convert_prelu
from .resize import RESIZE, convert_resize
from .sums import DTYPE, sum_convolution, sum_gemm, sum_matmul

__all__ = ["ONNXGraphImporter", "from_onnx"]

_CORRECTIONS: dict[str, list[tuple[str, Correction]]] = {
    "Conv": [(CONV_AUTO_PAD, pad_conv), (DTYPE, sum_convolution)],
    "ConvTranspose": [(CONV_TRANSPOSE_OUTPUT_SHAPE, pad_conv_transpose), (DTYPE, sum_convolution)],
    "Gemm": [(DTYPE, sum_gemm)],
    "MatMul": [(DTYPE, sum_matmul)],
    "PRelu": [(PRELU, convert_prelu)],
    "Pad": [(PAD, convert_pad)],
    "Resize": [(RESIZE, convert_resize)],
    "Upsample": [(RESIZE, convert_resize)],
}
"""The corrections of each operator, by the fix they belong to, in the order a node passes them."""

_FIXES = {UNNAMED_DIMS, *(fix for passed in _CORRECTIONS.values() for fix, _ in passed)}

_OLDEST_IR_VERSION = 3


class ONNXGraphImporter(TVMGraphImporter):
    """TVM's importer with corrections, each of which is in force unless it is switched off.

    TVM looks a converter up in a module-level function; the method that calls the converter,
    ``_convert_operator``, is what a subclass can override, and it sees the branches of ``If``.
    """

    _shape: dict[str, list[Any]]

    def _parse_graph_input(self, graph: onnx.GraphProto) -> None:
        is_named = any(isinstance(dim, str) for dims in self._shape.values() for dim in dims)
        if is_named or switches.enabled(UNNAMED_DIMS):
            self._shape = input_shapes(graph, self._shape)
        super()._parse_graph_input(graph)

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        super()._construct_nodes(self._fold(graph))

    def _convert_subgraph(self, bb: relax.BlockBuilder, graph: onnx.GraphProto) -> relax.Expr:
        folded = self._fold(graph)
        if folded is not graph:
            folded.initializer.extend(graph.initializer)
        return super()._convert_subgraph(bb, folded)

    def _fold(self, graph: onnx.GraphProto) -> onnx.GraphProto:
        if not switches.enabled(PAD):
            return graph
        folded = fold_operands(graph, {"Pad"}, self.opset, self._constant)
        if folded is not graph:
            switches.note(PAD)
        return folded

    def _constant(self, name: str) -> np.ndarray | None:
        value = self._nodes.get(name)
        return None if value is None else constant_value(value, self._params)

    def _convert_operator(
        self, op_name: str, inputs: list[relax.Expr], attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        corrections = [c for fix, c in _CORRECTIONS.get(op_name, []) if switches.enabled(fix)]
        if not corrections:
            return super()._convert_operator(op_name, inputs, attrs, opset)
        convert: Converter = self._convert_as_tvm
        for correction in reversed(corrections):
            convert = partial(correction, convert=convert)
        node = Node(op_name, tuple(inputs), attrs, opset, self.bb, self._params)
        return self.bb.normalize(convert(node))

    def _convert_as_tvm(self, node: Node) -> relax.Expr:
        return super()._convert_operator(
            node.operator, onnx_input(node.operands), dict(node.attributes), node.opset
        )


def from_onnx(
    model: onnx.ModelProto,
    shape_dict: dict[str, list[Dim]] | None = None,
    dtype_dict: str | dict[str, str] | None = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> tvm.IRModule:
    """Import an ONNX model; ``tvm.relax.frontend.onnx.from_onnx``, corrected.

    Convolutions, transposed convolutions, MatMul, Gemm, PRelu, Pad, Resize and Upsample mean what
    they mean in ONNX Runtime, and unnamed dims of an input are symbols of their own, one an axis.
    What is switched off, and every other operator, is TVM's.

    Parameters
    ----------
    model : onnx.ModelProto
        The model, of IR version 3 (ONNX 1.1) or newer.
    shape_dict : dict of str to list, optional
        Shapes of inputs, by name; they go before those in the model.  A dim that is a string is a
        symbol, the same one wherever a dim has this name, or an expression of symbols.
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
        If an attribute or operand of a node has a value that can't be imported; the message names
        the node, what it is and the value.
    """
    if not any(map(switches.enabled, _FIXES)):
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
