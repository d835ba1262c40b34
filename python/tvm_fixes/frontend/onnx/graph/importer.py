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
"""The importer: a subclass of TVM's that applies corrections around TVM's converters."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import onnx
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.frontend import onnx as tvm_onnx
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter as TVMGraphImporter

from ....errors import OpNotImplemented
from ....fixes.onnx_importer import FUNCTIONS, IF, LOOPS, QUANTIZED, SHAPE_VALUES, UNNAMED_DIMS
from ....relax.source_nodes import SourceNode, mark, spread
from ....support import switches
from ....support.serial import in_turn
from ..call import CONVERTERS, Call, Context, float_defaults, operator_of
from ..ops.narrow import (
    carried,
    carrier_of,
    check_output,
    narrow_dtype,
    narrow_inputs,
    narrow_result,
    to_narrow,
)
from ..stock import STOCK_OPERATORS, convert_stock
from ..values.declared_ranks import declared_ranks
from ..values.evaluate import evaluate
from ..values.known import KnownValues, Value, extents_of
from ..values.unified import with_values
from .check import check_inputs, check_model, check_size, is_known_domain
from .control_flow import (
    Condition,
    GraphWithIf,
    condition_of,
    convert_if,
    convert_rest,
    with_dataflow,
)
from .external import Read, with_external, without_external
from .functions import expand_functions
from .inputs import Dim, input_shapes
from .liveness import live_nodes, without_strings
from .loops import convert_loop, convert_scan, has_branches
from .node_errors import name_of, naming, unsupported
from .order import in_order
from .parameters import constant_operands, parameter_names
from .sparse import with_dense_tensors

__all__ = ["ONNXGraphImporter", "from_onnx"]

_FIXES = {FUNCTIONS, IF, LOOPS, SHAPE_VALUES, UNNAMED_DIMS}
"""The fixes of the importer itself."""

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
"""The operators with one output that may be a sequence, which is a tuple in Relax."""

_LOOPS = frozenset({"Loop", "Scan"})
"""The operators that contain a graph, so that only the importer can convert them."""

_MIN_IR_VERSION = 3


def corrected_operators() -> frozenset[str]:
    """The operators with a correction, and those that only this importer converts."""
    return CONVERTERS.operators() | _LOOPS


def has_converter(node: onnx.NodeProto) -> bool:
    """Whether a node can be imported, if its operands and attributes are supported."""
    if not is_known_domain(node.domain):
        return False
    # TVM converts If and Constant without an entry in its table of converters.
    converted = {*STOCK_OPERATORS, "If", "Constant", *(_LOOPS if _converts_loops() else ())}
    return node.op_type in converted or CONVERTERS.has(operator_of(node))


def _check_size(output: Any) -> None:
    """Check the size of a tensor; a symbolic dim counts as 1."""
    ty = getattr(output, "ty", None)
    if isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr):
        extents = [int(extent) for extent in ty.shape.values if isinstance(extent, tirx.IntImm)]
        check_size(extents, tvm_ffi.dtype(str(ty.dtype)).bits)


def _converts_loops() -> bool:
    """Whether this importer converts Loop and Scan, which needs its own walk over the nodes."""
    return switches.enabled(LOOPS) and switches.enabled(SHAPE_VALUES)


class ONNXGraphImporter(TVMGraphImporter):
    """TVM's importer with corrections; each applies unless its fix is disabled.

    A name of the graph is bound to a Relax expression, or to a value.  A value becomes a tensor
    when an operator first needs the tensor.
    """

    _shape: dict[str, list[Any]]
    _nodes: dict[str, Any]
    _dtype: Any
    known: KnownValues

    def __init__(self, *args: Any, read: Read | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.known = KnownValues(self._params)
        self._read = read
        self._narrow: dict[str, str | None] = {}
        self._ranks: dict[str, int] = {}
        self._conditions: dict[str, Condition] = {}

    def _parse_array(self, tensor_proto: onnx.TensorProto) -> tvm.runtime.Tensor:
        if switches.enabled(QUANTIZED):
            self._narrow[tensor_proto.name] = narrow_dtype(tensor_proto.data_type)
            tensor_proto = carried(tensor_proto)
        if self._read is not None:
            return self._read(tensor_proto)
        return super()._parse_array(tensor_proto)

    def from_onnx(self, graph: onnx.GraphProto, opset: int) -> tvm.IRModule:
        if _converts_loops() and has_branches(graph):
            # TVM makes the function one dataflow block, which cannot contain an If, unless the
            # main graph has an If node. The bodies of unrolled loops may contain one too.
            graph = GraphWithIf(graph)
        mod = super().from_onnx(graph, opset)
        if self.known.unified:
            mod = with_values(mod, dict(self.known.unified))
        if not switches.enabled(SHAPE_VALUES):
            return mod
        spread(mod)
        mod = relax.transform.DeadCodeElimination(["main"])(mod)
        has_if = any(node.op_type == "If" for node in graph.node)
        return with_dataflow(mod) if has_if else mod

    def _parse_graph_input(self, graph: onnx.GraphProto) -> None:
        is_named = any(isinstance(dim, str) for dims in self._shape.values() for dim in dims)
        if is_named or switches.enabled(UNNAMED_DIMS):
            self._shape = input_shapes(graph, self._shape)
        check_inputs(graph)
        narrow = narrow_inputs(graph)
        if narrow and not switches.enabled(QUANTIZED):
            raise OpNotImplemented(f"inputs of less than 8 bits: {', '.join(narrow)}")
        dtypes = self._dtype if isinstance(self._dtype, dict) else {}
        self._dtype = dtypes | {name: carrier_of(dtype) for name, dtype in narrow.items()}
        super()._parse_graph_input(graph)
        if switches.enabled(SHAPE_VALUES):
            # The inputs of a file of IR version 3 include its initializers.
            for tensor in graph.initializer:
                self._inputs.pop(tensor.name, None)
        dims = (dim for value in self._nodes.values() for dim in extents_of(value) or ())
        self.known.add_inputs(dim for dim in dims if isinstance(dim, tirx.Var))
        self._narrow.update(narrow)

    def _parse_attr(self, attributes: Iterable[onnx.AttributeProto]) -> dict[str, Any]:
        lists = (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS, onnx.AttributeProto.STRINGS)
        empty = {
            a.name: ()
            for a in attributes
            if a.type in lists and not (a.ints or a.floats or a.strings)
        }
        return super()._parse_attr([a for a in attributes if a.name not in empty]) | empty

    def _parse_graph_initializers(self, graph: onnx.GraphProto) -> None:
        numbers = without_strings(graph)
        if len(numbers) < len(graph.initializer):
            graph = onnx.GraphProto(initializer=numbers, input=graph.input)
        if not (self._keep_params_in_input and switches.enabled(SHAPE_VALUES)):
            super()._parse_graph_initializers(graph)
            return
        names = parameter_names(graph)
        for tensor in graph.initializer:
            array, name = self._parse_array(tensor), names[tensor.name]
            variable = self._new_var(name, array.shape, array.dtype)
            self._nodes[tensor.name], self._params[name] = variable, (variable, array)
            # TVM's converters look for the parameter of an operand by the operand's name.
            self._name_supply.fresh_name(name)

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        others = [node for node in live_nodes(graph) if not has_converter(node)]
        if others:
            raise unsupported(others)

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        for name, dtype in narrow_inputs(graph).items():
            self._nodes[name] = self.bb.emit(to_narrow(self.bb, self._nodes[name], dtype))
        if not switches.enabled(SHAPE_VALUES):
            super()._construct_nodes(graph)
            return
        whole = graph.graph if isinstance(graph, GraphWithIf) else graph
        self._ranks = declared_ranks(whole)
        names = [output.name for output in graph.output]
        self.convert_nodes(live_nodes(whole), names)
        for name in names:
            self._tensor(name)

    def convert_nodes(self, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> None:
        """Convert nodes into the current block; see :class:`~.graph.GraphImporter`."""
        for place, node in enumerate(nodes):
            with naming(node, self._dtype_of):
                results = self._convert_node(node)
                for result in results:
                    _check_size(result)
            self._nodes.update(
                (name, result) for name, result in zip(node.output, results, strict=False) if name
            )
            if switches.enabled(IF) and node.op_type == "If":
                bodies = {a.name: a.g for a in node.attribute if a.HasField("g")}
                branches = [bodies["then_branch"], bodies["else_branch"]]
                condition = self._tensor(node.input[0]), self._conditions.get(node.input[0])
                following = nodes[place + 1 :]
                if following and convert_rest(self, node, *condition, branches, following, outputs):
                    return

    def _dtype_of(self, name: str) -> str | None:
        """The dtype of a value that is a tensor."""
        value = self._nodes.get(name)
        ty = getattr(value, "ty", None)
        return str(ty.dtype) if isinstance(ty, relax.TensorType) else None

    def _convert_node(self, node: onnx.NodeProto) -> list[Any]:
        """Convert a node; return its outputs as Relax expressions or values."""
        defaults = {} if node.domain else float_defaults(node.op_type, self.opset)
        attributes = defaults | self._parse_attr(node.attribute)
        undefined = [name for name in node.input if name and name not in self._nodes]
        if undefined:
            raise ValueError(f"{node.op_type} {name_of(node)!r}: undefined operands {undefined}")
        if switches.enabled(QUANTIZED):
            attributes = self._carry(node, attributes)
        source = SourceNode(name_of(node), operator_of(node))
        self._conditions |= condition_of(node, self._nodes, self.known, self._conditions)
        with switches.at(source):
            outputs = (
                self._evaluate(node, attributes)
                or self._convert_with_graphs(node, attributes)
                or self._convert_by_operator(node, attributes)
            )
        if len(outputs) < len(node.output):
            raise OpNotImplemented(
                f"{node.op_type} {name_of(node)!r}: {len(node.output)} outputs are used; "
                f"expected at most {len(outputs)}"
            )
        for output in outputs:
            mark(output, source)
        return outputs

    def _carry(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> dict[str, Any]:
        """Record which outputs are narrow; return the attributes without narrow tensors."""
        operands = [self._narrow.get(name) for name in node.input]
        narrow = narrow_result(operator_of(node), attributes, operands)
        self._narrow.update(dict.fromkeys(node.output, narrow))
        return {
            name: carried(value) if isinstance(value, onnx.TensorProto) else value
            for name, value in attributes.items()
        }

    def _evaluate(
        self, node: onnx.NodeProto, attributes: dict[str, Any]
    ) -> list[relax.Expr | Value] | None:
        """The outputs of a node if all elements are known, else None."""
        if node.op_type in ("Cast", "CastLike") and self._narrow.get(node.output[0]):
            return None  # an evaluated cast would not keep only the lowest bits
        operands = [self._nodes[name] if name else None for name in node.input]
        values = evaluate(
            operator_of(node), operands, attributes, self.opset, self.known, len(node.output)
        )
        if values is None:
            return None
        switches.note(SHAPE_VALUES)
        if self.known.read_parameters(operands) and all(value.is_static for value in values):
            # The parameters of a call may differ from those of the file.
            outputs = self._convert_by_operator(node, attributes)
            variables = [x if isinstance(x, relax.Var) else self.bb.emit(x) for x in outputs]
            for variable, value in zip(variables, values, strict=False):
                self.known.remember(variable, value, is_parameter=True)
            return variables
        return values

    def _convert_with_graphs(
        self, node: onnx.NodeProto, attributes: dict[str, Any]
    ) -> list[relax.Expr | Value] | None:
        """Convert a node with branches or a loop body; return None for any other node."""
        if node.op_type in _LOOPS and switches.enabled(LOOPS):
            operands = [self._nodes[name] if name else None for name in node.input]
            if node.op_type == "Loop":
                return convert_loop(self, name_of(node), operands, attributes["body"])
            return convert_scan(self, name_of(node), operands, attributes)
        if node.op_type != "If":
            return None
        if switches.enabled(IF):
            condition = self._tensor(node.input[0])
            meaning = self._conditions.get(node.input[0])
            branches = attributes["then_branch"], attributes["else_branch"]
            return convert_if(self, condition, meaning, *branches)
        for name in self._nodes:
            self._tensor(name)
        super()._construct_nodes(onnx.GraphProto(node=[node]))
        return [self._nodes[name] for name in node.output]

    @contextmanager
    def bound(self, names: Mapping[str, Any]) -> Iterator[None]:
        """Bind `names` to Relax expressions or values; on exit, drop names bound since entry."""
        outer = self._nodes
        self._nodes = outer | dict(names)
        try:
            yield
        finally:
            self._nodes = outer

    def bind(self, names: Mapping[str, Any]) -> None:
        """Bind `names` to Relax expressions or values in the current scope."""
        self._nodes.update(names)

    def convert_branch(
        self,
        graph: onnx.GraphProto,
        inputs: Mapping[str, Any] | None = None,
        as_tensors: bool = False,
    ) -> list[Any]:
        """Convert a branch into the builder's current block, in its own scope of names."""
        own = {
            initializer.name: relax.const(self._parse_array(initializer))
            for initializer in graph.initializer
        }
        with self.bound(own | dict(inputs or {})):
            names = [output.name for output in graph.output]
            self.convert_nodes(live_nodes(graph), names)
            for name in names:
                check_output(name, self._narrow.get(name))
            return [self._tensor(name) if as_tensors else self._nodes[name] for name in names]

    def operand(self, name: str) -> Any:
        """The Relax expression or value that a name is bound to."""
        return self._nodes[name]

    def as_tensor(self, operand: Any) -> relax.Expr:
        """`operand` as a Relax expression; a value becomes a tensor."""
        if not isinstance(operand, Value):
            return operand
        tensor = operand.tensor(self.bb)
        if isinstance(tensor, relax.Var):
            self.known.remember(tensor, operand)
        return tensor

    def _convert_by_operator(
        self, node: onnx.NodeProto, attributes: dict[str, Any]
    ) -> list[relax.Expr]:
        """Convert a node with the converters; return its outputs as Relax expressions."""
        operands = [
            self.known.refined(self.bb, self._tensor(name)) if name else None for name in node.input
        ]
        operator = operator_of(node)
        operands = list(constant_operands(operator, operands, self.known))
        if operator not in STOCK_OPERATORS and not CONVERTERS.has(operator):
            raise unsupported([node])  # in a branch
        narrow = tuple(map(self._narrow.get, node.input))
        result = self._convert(
            Call(
                operator,
                tuple(operands),
                attributes,
                self.opset,
                SourceNode(name_of(node), operator),
                self._context,
                outputs=len(node.output),
                rank=self._ranks.get(node.output[0]),
                narrow=narrow,
            )
        )
        if node.op_type in _ONE_OUTPUT:
            return [result]
        if isinstance(result, relax.Tuple):
            return [self._with_shape(field) for field in result.fields]
        if isinstance(result.ty, relax.TupleType):
            result = self.bb.emit(result)
            return [
                self._with_shape(self.bb.emit(relax.TupleGetItem(result, index)))
                for index in range(len(result.ty.fields))
            ]
        if isinstance(result.ty, relax.ShapeType):  # the shape of a tensor of unknown rank
            result = self.bb.emit(relax.op.shape_to_tensor(result))
        return [self._with_shape(result)]

    def _with_shape(self, tensor: relax.Expr) -> relax.Expr:
        """Cast a tensor of unknown shape and known rank to a shape with a new symbol per dim.

        Many operators cannot be lowered if an operand has no shape.
        """
        ty = getattr(tensor, "ty", None)
        if not isinstance(ty, relax.TensorType) or ty.ndim < 1 or ty.shape is not None:
            return tensor
        if not switches.enabled(SHAPE_VALUES):
            return tensor
        switches.note(SHAPE_VALUES)
        dims = [tirx.Var(f"dim_{axis}", "int64") for axis in range(ty.ndim)]
        variable = tensor if isinstance(tensor, relax.Var) else self.bb.emit(tensor)
        return self.bb.match_cast(variable, relax.TensorType(dims, ty.dtype))

    def _tensor(self, name: str) -> relax.Expr:
        """The tensor that a name is bound to."""
        self._nodes[name] = self.as_tensor(self._nodes[name])
        return self._nodes[name]

    def _convert_operator(
        self, op_name: str, inputs: list[relax.Expr], attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        custom = attrs.pop("tvm_custom", {"name": op_name, "num_outputs": 1})
        source = SourceNode(custom["name"], op_name)
        call = Call(op_name, tuple(inputs), attrs, opset, source, self._context)
        return self._convert(replace(call, outputs=custom["num_outputs"]))

    def _convert(self, call: Call) -> relax.Expr:
        """Convert a call with the converters of its operator, then with TVM's."""
        result = call.convert()
        return self.bb.normalize(result) if isinstance(result, relax.Expr) else result

    @property
    def _context(self) -> Context:
        return Context(self.bb, self.known, self._convert_stock)

    def _convert_stock(self, call: Call) -> Any:
        return convert_stock(call, self._nodes, self._params)


@in_turn
def from_onnx(
    model: onnx.ModelProto,
    shape_dict: dict[str, list[Dim]] | None = None,
    dtype_dict: str | dict[str, str] | None = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> tvm.IRModule:
    """Import an ONNX model: ``tvm.relax.frontend.onnx.from_onnx`` with corrections.

    Convolutions, transposed convolutions, MatMul, Gemm, PRelu, Pad, Resize, Upsample, and operators
    that slice, split, reshape, expand or select behave as in ONNX Runtime.  Each unnamed dim of an
    input becomes a symbol.  RNN, GRU, LSTM, Loop and Scan are supported; a loop of more than a few
    iterations becomes a recursive function. Quantized operators are supported too, and so are
    those of the domain com.microsoft that ONNX Runtime's optimizer and model builder write, and
    trees and other classical models of the domain ai.onnx.ml. TVM's converters handle all other
    operators, and those whose fixes are disabled.  Nodes may have any order.

    Parameters
    ----------
    model : onnx.ModelProto
        The model, of IR version 3 (ONNX 1.1) or newer.
    shape_dict : dict of str to list, optional
        Shapes of inputs, by name; they override those in the model.  A string dim names a
        symbol, which all dims of this name share, or is an expression of symbols.
    dtype_dict : str or dict of str to str, optional
        Dtypes of inputs, by name; they override those in the model.
    opset : int, optional
        The version of the default operator set, instead of the model's.
    keep_params_in_input : bool
        Make the initializers inputs of ``main``, after the model's own inputs, instead of
        constants; the function's attribute ``params`` then holds their values.
    sanitize_input_names : bool
        Change the names of inputs to valid identifiers.

    Returns
    -------
    tvm.IRModule
        The model as the function ``main``.

    Raises
    ------
    ValueError
        If the model's IR version is too old, or the model violates a rule of ONNX: two values with
        the same name, an unknown opset or element type, a missing operand or attribute.
    tvm.error.OpNotImplemented
        If the model has operators without a converter; the message names them.
    tvm.error.OpAttributeInvalid
        If an attribute or operand of a node has a value that can't be imported; the message names
        the node, the attribute or operand, and the value.
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
    """Import as :func:`from_onnx` does; `read` may supply the elements of initializers.

    Parameters
    ----------
    read : callable, optional
        Returns the tensor of an initializer, which may be stored in a file; by default a copy of
        the elements in the model.
    """
    if not any(map(switches.enabled, _FIXES | CONVERTERS.fixes())):
        if read is not None:
            model = with_external(model, read)
        return tvm_onnx.from_onnx(
            model, shape_dict, dtype_dict, opset, keep_params_in_input, sanitize_input_names
        )
    if model.ir_version < _MIN_IR_VERSION:
        raise ValueError(
            f"ONNX IR version {model.ir_version} is not supported; expected {_MIN_IR_VERSION} "
            "(ONNX 1.1) or newer"
        )
    model = with_dense_tensors(model)
    check_model(model)
    model = in_order(model)
    try:
        onnx.checker.check_model(without_external(model))
    except Exception as error:  # a model that the checker rejects may be importable
        warnings.warn(str(error), stacklevel=2)
    versions = {imported.domain: imported.version for imported in model.opset_import}
    model_opset = versions.get("", versions.get("ai.onnx", 1))
    if opset is not None and opset < model_opset:
        warnings.warn(
            f"the model has opset {model_opset} and is read as opset {opset}: "
            "operators may be misinterpreted",
            stacklevel=2,
        )
    if switches.enabled(FUNCTIONS):
        ours = filter(CONVERTERS.has, CONVERTERS.operators())
        # TVM's converter of Attention is for the operator of ONNX Runtime's domain, not ONNX's.
        model = expand_functions(model, {*STOCK_OPERATORS, *ours, "If"} - {"Attention"})
    importer = ONNXGraphImporter(
        shape_dict,
        dtype_dict,
        keep_params_in_input=keep_params_in_input,
        sanitize=sanitize_input_names,
        read=read,
    )
    return importer.from_onnx(model.graph, model_opset if opset is None else opset)
