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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend import onnx as tvm_onnx
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter as TVMGraphImporter
from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map, onnx_input

from ... import switches
from .boxes import BOXES, convert_nms, convert_roi_align
from .broadcast import BROADCASTING, EXPAND, broadcast_batches, convert_broadcasting
from .check import check_model
from .control_flow import IF, convert_if
from .convolution import (
    CONV_AUTO_PAD,
    CONV_TRANSPOSE_OUTPUT_SHAPE,
    pad_conv,
    pad_conv_transpose,
)
from .elementwise import (
    ELEMENTWISE,
    convert_bit_shift,
    convert_cast,
    convert_dropout,
    convert_is_inf,
    convert_mish,
    convert_mod,
    convert_pow,
    convert_softplus,
    convert_space_to_depth,
)
from .evaluate import evaluate
from .expand import convert_constant_of_shape, convert_expand, convert_tile
from .external import Read, with_external, without_external
from .functions import FUNCTIONS, expand_functions
from .generators import convert_eye_like, convert_range
from .indices import FIX_ID as INDICES
from .indices import INDEXED, convert_indexed
from .inputs import UNNAMED_DIMS, Dim, input_shapes
from .loops import LOOPS, convert_loop, convert_scan, has_branches
from .node import Converter, Correction, Node
from .norms import (
    NORMS,
    convert_batch_norm,
    convert_group_norm,
    convert_layer_norm,
    convert_lp_norm,
    convert_lrn,
    convert_mean_variance_norm,
)
from .pad import PAD, convert_pad
from .pooling import POOLING, convert_lp_pool, convert_max_unpool, convert_pool
from .prelu import PRELU, convert_prelu
from .quantized import (
    QUANTIZED,
    convert_conv_integer,
    convert_qlinear_conv,
    convert_qlinear_matmul,
)
from .rectifiers import (
    ACTIVATIONS,
    convert_clip,
    convert_elu,
    convert_hardmax,
    convert_shrink,
    convert_sign,
    convert_thresholded_relu,
)
from .recurrent import RECURRENT, convert_recurrent
from .reductions import REDUCED, REDUCTIONS, convert_reduction
from .reshape import (
    RESHAPE,
    convert_flatten,
    convert_reshape,
    convert_shape,
    convert_squeeze,
    convert_unsqueeze,
)
from .resize import RESIZE, convert_resize
from .selection import (
    PARAMETERS,
    convert_cum_sum,
    convert_one_hot,
    convert_reverse_sequence,
    convert_top_k,
)
from .slice import SLICE, convert_slice, convert_split
from .sums import DTYPE, sum_convolution, sum_gemm, sum_matmul
from .values import SHAPE_VALUES, KnownValues, Value

__all__ = ["ONNXGraphImporter", "from_onnx"]

_CORRECTIONS: dict[str, list[tuple[str, Correction]]] = {
    "AveragePool": [(POOLING, convert_pool)],
    "BatchNormalization": [(NORMS, convert_batch_norm)],
    "BitShift": [(ELEMENTWISE, convert_bit_shift)],
    "Cast": [(ELEMENTWISE, convert_cast)],
    "CastLike": [(ELEMENTWISE, convert_cast)],
    "Celu": [(ACTIVATIONS, convert_elu)],
    "Clip": [(ACTIVATIONS, convert_clip)],
    "ConstantOfShape": [(EXPAND, convert_constant_of_shape)],
    "Conv": [(CONV_AUTO_PAD, pad_conv), (DTYPE, sum_convolution)],
    "ConvInteger": [(QUANTIZED, convert_conv_integer)],
    "ConvTranspose": [(CONV_TRANSPOSE_OUTPUT_SHAPE, pad_conv_transpose), (DTYPE, sum_convolution)],
    "CumSum": [(PARAMETERS, convert_cum_sum)],
    "Dropout": [(ELEMENTWISE, convert_dropout)],
    "Elu": [(ACTIVATIONS, convert_elu)],
    "Expand": [(EXPAND, convert_expand)],
    "EyeLike": [(PARAMETERS, convert_eye_like)],
    "Flatten": [(RESHAPE, convert_flatten)],
    "Gemm": [(DTYPE, sum_gemm)],
    "GroupNormalization": [(NORMS, convert_group_norm)],
    "Hardmax": [(ACTIVATIONS, convert_hardmax)],
    "IsInf": [(ELEMENTWISE, convert_is_inf)],
    "LRN": [(NORMS, convert_lrn)],
    "LayerNormalization": [(NORMS, convert_layer_norm)],
    "LpNormalization": [(NORMS, convert_lp_norm)],
    "LpPool": [(POOLING, convert_lp_pool)],
    "MatMul": [(EXPAND, broadcast_batches), (DTYPE, sum_matmul)],
    "MaxPool": [(POOLING, convert_pool)],
    "MaxUnpool": [(POOLING, convert_max_unpool)],
    "MeanVarianceNormalization": [(NORMS, convert_mean_variance_norm)],
    "Mish": [(ELEMENTWISE, convert_mish)],
    "Mod": [(ELEMENTWISE, convert_mod)],
    "NonMaxSuppression": [(BOXES, convert_nms)],
    "OneHot": [(PARAMETERS, convert_one_hot)],
    "Pad": [(PAD, convert_pad)],
    "Pow": [(ELEMENTWISE, convert_pow)],
    "PRelu": [(PRELU, convert_prelu)],
    "QLinearConv": [(QUANTIZED, convert_qlinear_conv)],
    "QLinearMatMul": [(QUANTIZED, convert_qlinear_matmul)],
    "Range": [(PARAMETERS, convert_range)],
    "Reshape": [(RESHAPE, convert_reshape)],
    "GRU": [(RECURRENT, convert_recurrent)],
    "LSTM": [(RECURRENT, convert_recurrent)],
    "RNN": [(RECURRENT, convert_recurrent)],
    "Resize": [(RESIZE, convert_resize)],
    "ReverseSequence": [(PARAMETERS, convert_reverse_sequence)],
    "RoiAlign": [(BOXES, convert_roi_align)],
    "Selu": [(ACTIVATIONS, convert_elu)],
    "Shape": [(RESHAPE, convert_shape)],
    "Shrink": [(ACTIVATIONS, convert_shrink)],
    "Sign": [(ACTIVATIONS, convert_sign)],
    "Slice": [(SLICE, convert_slice)],
    "Softplus": [(ELEMENTWISE, convert_softplus)],
    "SpaceToDepth": [(ELEMENTWISE, convert_space_to_depth)],
    "Split": [(SLICE, convert_split)],
    "Squeeze": [(RESHAPE, convert_squeeze)],
    "ThresholdedRelu": [(ACTIVATIONS, convert_thresholded_relu)],
    "Tile": [(EXPAND, convert_tile)],
    "TopK": [(PARAMETERS, convert_top_k)],
    "Unsqueeze": [(RESHAPE, convert_unsqueeze)],
    "Upsample": [(RESIZE, convert_resize)],
    **{operator: [(INDICES, convert_indexed)] for operator in INDEXED},
    **{operator: [(REDUCTIONS, convert_reduction)] for operator in REDUCED},
}
"""The corrections of each operator, by the fix they belong to, in the order a node passes them."""

_FIXES = {
    FUNCTIONS,
    IF,
    LOOPS,
    SHAPE_VALUES,
    UNNAMED_DIMS,
    *(fix for passed in _CORRECTIONS.values() for fix, _ in passed),
}

_SHAPE_OPERANDS = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Resize": 3}
"""The operands that TVM's converters take as shapes, or otherwise as constants alone."""

_CONVERTERS = _get_convert_map().keys()
"""The operators that TVM has a converter of."""

_ONE_OUTPUT = {
    "ConcatFromSequence",
    "Optional",
    "OptionalGetElement",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SplitToSequence",
}
"""The operators whose output may be a sequence, which is a tuple in Relax."""

_LOOPS = frozenset({"Loop", "Scan"})
"""The operators that are converted with the graph around them."""

_OLDEST_IR_VERSION = 3


def corrected_operators() -> frozenset[str]:
    """The operators of which something is corrected, or that TVM has no converter for."""
    return frozenset({*_CORRECTIONS, *_LOOPS})


def _corrections(operator: str) -> list[Correction]:
    """Those of an operator that are in force."""
    passed = list(_CORRECTIONS.get(operator, []))
    if operator in BROADCASTING:
        passed.insert(0, (EXPAND, convert_broadcasting))
    return [correction for fix, correction in passed if switches.enabled(fix)]


def _name_of(node: onnx.NodeProto) -> str:
    """The name of a node for messages; of one without, that of what it puts out."""
    return node.name or next(filter(None, node.output), "")


def _has_if(function: relax.Function) -> bool:
    return any(
        isinstance(binding.value, relax.If)
        for block in function.body.blocks
        for binding in block.bindings
        if isinstance(binding, relax.VarBinding)
    )


def _with_dataflow(mod: tvm.IRModule) -> tvm.IRModule:
    """The functions that have no If as dataflow blocks.

    TVM makes none where the graph has an If, which may be decided by now.  FuseOps does not find
    the variables of a block that is in a branch.
    """
    converted = relax.transform.ConvertToDataflow(min_size=1)(mod)
    for variable, function in mod.functions.items():
        if isinstance(function, relax.Function) and not _has_if(function):
            mod.update_func(variable, converted[variable.name_hint])
    return mod


def _converts_loops() -> bool:
    """Whether there are Loop and Scan, which only our own walk over the nodes converts."""
    return switches.enabled(LOOPS) and switches.enabled(SHAPE_VALUES)


class _SeenGraph:
    """A graph that seems to have an If."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.node = [*graph.node, onnx.NodeProto(op_type="If")]

    def __getattr__(self, field: str) -> Any:
        return getattr(self.graph, field)


class ONNXGraphImporter(TVMGraphImporter):
    """TVM's importer with corrections, each of which is in force unless it is switched off.

    Names of the graph stand for Relax expressions, or for values of which nobody has asked for
    the tensor yet.
    """

    _shape: dict[str, list[Any]]
    _nodes: dict[str, Any]
    known: KnownValues

    def __init__(self, *args: Any, read: Read | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.known = KnownValues(self._params)
        self._read = read

    def _parse_array(self, tensor_proto: onnx.TensorProto) -> tvm.runtime.Tensor:
        if self._read is not None:
            return self._read(tensor_proto)
        return super()._parse_array(tensor_proto)

    def from_onnx(self, graph: onnx.GraphProto, opset: int) -> tvm.IRModule:
        if _converts_loops() and has_branches(graph):
            # TVM makes the function one dataflow block, in which no If can be, unless it sees one
            # among the nodes of the graph itself; bodies that are written out have some too.
            graph = _SeenGraph(graph)
        mod = super().from_onnx(graph, opset)
        if not switches.enabled(SHAPE_VALUES):
            return mod
        mod = relax.transform.DeadCodeElimination(["main"])(mod)
        has_if = any(node.op_type == "If" for node in graph.node)
        return _with_dataflow(mod) if has_if else mod

    def _parse_graph_input(self, graph: onnx.GraphProto) -> None:
        is_named = any(isinstance(dim, str) for dims in self._shape.values() for dim in dims)
        if is_named or switches.enabled(UNNAMED_DIMS):
            self._shape = input_shapes(graph, self._shape)
        super()._parse_graph_input(graph)

    def _parse_attr(self, attributes: Iterable[onnx.AttributeProto]) -> dict[str, Any]:
        lists = (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS, onnx.AttributeProto.STRINGS)
        empty = {
            a.name: ()
            for a in attributes
            if a.type in lists and not (a.ints or a.floats or a.strings)
        }
        return super()._parse_attr([a for a in attributes if a.name not in empty]) | empty

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        converted = _LOOPS if _converts_loops() else frozenset()
        others = [
            node
            for node in graph.node
            if node.op_type not in converted and not _corrections(node.op_type)
        ]
        super()._check_for_unsupported_ops(onnx.GraphProto(node=others))

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        if not switches.enabled(SHAPE_VALUES):
            super()._construct_nodes(graph)
            return
        self._convert_nodes(graph.graph if isinstance(graph, _SeenGraph) else graph)
        for output in graph.output:
            self._tensor(output.name)

    def _convert_nodes(self, graph: onnx.GraphProto) -> None:
        """Convert the nodes of the main graph or of a branch, in its scope."""
        for node in graph.node:
            attributes = self._parse_attr(node.attribute)
            attributes["tvm_custom"] = {"name": _name_of(node), "num_outputs": len(node.output)}
            undefined = [name for name in node.input if name and name not in self._nodes]
            if undefined:
                raise ValueError(
                    f"{node.op_type} {_name_of(node)!r}: no value is named {undefined}"
                )
            outputs = (
                self._evaluated(node, attributes)
                or self._branched(node, attributes)
                or self._converted(node, attributes)
            )
            if len(outputs) < len(node.output):
                raise tvm.error.OpNotImplemented(
                    f"{node.op_type} {_name_of(node)!r}: {len(node.output)} outputs are used; "
                    f"expected at most {len(outputs)}"
                )
            self._nodes.update(
                (name, output) for name, output in zip(node.output, outputs, strict=False) if name
            )

    def _evaluated(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> list[Value] | None:
        """The outputs of a node whose elements are known."""
        operands = [self._nodes[name] if name else None for name in node.input]
        values = evaluate(node.op_type, operands, attributes, self.opset, self.known)
        if values is not None:
            switches.note(SHAPE_VALUES)
        return values

    def _branched(
        self, node: onnx.NodeProto, attributes: dict[str, Any]
    ) -> list[relax.Expr | Value] | None:
        """The outputs of a node that has branches or a body."""
        if node.op_type in _LOOPS and switches.enabled(LOOPS):
            operands = [self._nodes[name] if name else None for name in node.input]
            if node.op_type == "Loop":
                return convert_loop(self, _name_of(node), operands, attributes["body"])
            return convert_scan(self, _name_of(node), operands, attributes)
        if node.op_type != "If":
            return None
        if switches.enabled(IF):
            condition = self._tensor(node.input[0])
            return convert_if(self, condition, attributes["then_branch"], attributes["else_branch"])
        for name in self._nodes:
            self._tensor(name)
        super()._construct_nodes(onnx.GraphProto(node=[node]))
        return [self._nodes[name] for name in node.output]

    @contextmanager
    def bound(self, names: Mapping[str, Any]) -> Iterator[None]:
        """`names` stand for Relax expressions or values within; later ones are forgotten."""
        outer = self._nodes
        self._nodes = outer | dict(names)
        try:
            yield
        finally:
            self._nodes = outer

    def convert_branch(
        self,
        graph: onnx.GraphProto,
        inputs: Mapping[str, Any] | None = None,
        as_tensors: bool = False,
    ) -> list[Any]:
        """The outputs of a branch, whose names are its own, converted where the builder is."""
        own = {
            initializer.name: relax.const(self._parse_array(initializer))
            for initializer in graph.initializer
        }
        with self.bound(own | dict(inputs or {})):
            self._convert_nodes(graph)
            names = [output.name for output in graph.output]
            return [self._tensor(name) if as_tensors else self._nodes[name] for name in names]

    def operand(self, name: str) -> Any:
        """What a name stands for: a Relax expression, or a value."""
        return self._nodes[name]

    def as_tensor(self, operand: Any) -> relax.Expr:
        """A Relax expression itself, or that of a value."""
        if not isinstance(operand, Value):
            return operand
        tensor = operand.tensor(self.bb)
        if isinstance(tensor, relax.Var):
            self.known.remember(tensor, operand)
        return tensor

    def _converted(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> list[relax.Expr]:
        """The outputs of a node as Relax."""
        operands = [
            self.known.refined(self.bb, self._tensor(name)) if name else None for name in node.input
        ]
        if node.op_type not in _CONVERTERS and not _corrections(node.op_type):  # in a branch
            raise tvm.error.OpNotImplemented(
                f"The operator {node.op_type} of the node {_name_of(node)!r} is not supported"
            )
        result = self._convert_operator(node.op_type, operands, attributes, self.opset)
        if node.op_type in _ONE_OUTPUT:
            return [result]
        if isinstance(result, relax.Tuple):
            return list(result.fields)
        if isinstance(result.ty, relax.TupleType):
            result = self.bb.emit(result)
            count = len(result.ty.fields)
            return [self.bb.emit(relax.TupleGetItem(result, index)) for index in range(count)]
        if isinstance(result.ty, relax.ShapeType):  # of a tensor of unknown rank
            result = self.bb.emit(relax.op.shape_to_tensor(result))
        return [result]

    def _tensor(self, name: str) -> relax.Expr:
        """What a name stands for as a tensor."""
        self._nodes[name] = self.as_tensor(self._nodes[name])
        return self._nodes[name]

    def _convert_operator(
        self, op_name: str, inputs: list[relax.Expr], attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        convert: Converter = self._convert_as_tvm
        for correction in reversed(_corrections(op_name)):
            convert = partial(correction, convert=convert)
        result = convert(Node(op_name, tuple(inputs), attrs, opset, self.bb, self.known))
        return self.bb.normalize(result) if isinstance(result, relax.Expr) else result

    def _convert_as_tvm(self, node: Node) -> relax.Expr:
        operands = list(node.operands)
        index = _SHAPE_OPERANDS.get(node.operator)
        if switches.enabled(SHAPE_VALUES) and index is not None:
            value = node.value(index)
            if value is not None and not value.is_static:
                operands[index] = relax.ShapeExpr(value.extents())
        return super()._convert_operator(
            node.operator, onnx_input(operands), dict(node.attributes), node.opset
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

    Convolutions, transposed convolutions, MatMul, Gemm, PRelu, Pad, Resize, Upsample, and what
    slices, splits, reshapes, expands or selects mean what they mean in ONNX Runtime, and unnamed
    dims of an input are symbols of their own, one an axis.  RNN, GRU, LSTM, Loop and
    Scan are imported; what is repeated more than a few times is a function that calls itself.
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
        If the model's IR version is too old, or a rule of ONNX is broken: a name that two values
        have, an unknown opset or element type, a missing operand or attribute.
    tvm.error.OpNotImplemented
        If the model has operators without a converter; the message names them.
    tvm.error.OpAttributeInvalid
        If an attribute or operand of a node has a value that can't be imported; the message names
        the node, what it is and the value.
    """
    return import_model(
        model, shape_dict, dtype_dict, opset, keep_params_in_input, sanitize_input_names
    )


def import_model(
    model: onnx.ModelProto,
    shape_dict: dict[str, list[Dim]] | None = None,
    dtype_dict: str | dict[str, str] | None = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
    *,
    read: Read | None = None,
) -> tvm.IRModule:
    """Import as :func:`from_onnx`, with initializers whose elements are not in the model.

    Parameters
    ----------
    read : callable, optional
        Makes the tensor of an initializer, whose elements may lie in a file; by default a copy of
        those in the model.
    """
    if not any(map(switches.enabled, _FIXES)):
        if read is not None:
            model = with_external(model, read)
        return tvm_onnx.from_onnx(
            model, shape_dict, dtype_dict, opset, keep_params_in_input, sanitize_input_names
        )
    if model.ir_version < _OLDEST_IR_VERSION:
        raise ValueError(
            f"ONNX IR version {model.ir_version} is not supported; expected {_OLDEST_IR_VERSION} "
            "(ONNX 1.1) or newer"
        )
    check_model(model)
    try:
        onnx.checker.check_model(without_external(model))
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
    if switches.enabled(FUNCTIONS):
        ours = filter(_corrections, _CORRECTIONS)
        # TVM's Attention is not that of ONNX but that of ONNX Runtime's own domain.
        model = expand_functions(model, {*_get_convert_map(), *ours, "If"} - {"Attention"})
    importer = ONNXGraphImporter(
        shape_dict,
        dtype_dict,
        keep_params_in_input=keep_params_in_input,
        sanitize=sanitize_input_names,
        read=read,
    )
    return importer.from_onnx(model.graph, model_opset if opset is None else opset)
