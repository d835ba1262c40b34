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
"""Import of an exported traced module, with the parameters and results of ``from_fx``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import tvm
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from tvm import relax, tirx
from tvm.sym import Analyzer

from ....errors import OpAttributeInvalid
from ..importer import ExportedProgramImporter
from ..stock import dtype_name
from .traced_inputs import Dim
from .traced_modules import CONVERTED, TRACED, Constant, Exported, Leaf, Sizes, Tree

__all__ = ["CustomConverters", "Results", "TracedImporter", "as_traced"]

CustomConverters: TypeAlias = Mapping[type[nn.Module] | str, Callable[..., relax.Expr]]

_BOUNDS = "tir_var_lower_bound", "tir_var_upper_bound"


@dataclass(frozen=True)
class Results:
    """The options of ``from_fx`` about results.

    Attributes
    ----------
    unwrap : bool
        Return a single output itself, not a tuple of one.
    bind : bool
        Bind a tuple of outputs to a variable.
    """

    unwrap: bool
    bind: bool


class TracedImporter(ExportedProgramImporter):
    """Imports an exported traced module, whose outputs have a structure.

    A converter of the caller is called with the node of the traced module, whose arguments are
    nodes of the exported program, and for a function also with TVM's importer.
    """

    def __init__(self, exported: Exported, custom: CustomConverters, results: Results) -> None:
        self._exported, self._custom, self._results = exported, custom, results
        self._updates = 0
        super().__init__({CONVERTED: self._converted_call})
        self.context.copies = True

    @property
    def binds_each(self) -> bool:
        """Whether the function returns a tuple whose elements are bound one by one."""
        returned = self._exported.returned
        if self._results.bind or not isinstance(returned, tuple):
            return False
        return len(returned) != 1 or not self._results.unwrap

    def count_updates(self, count: int) -> None:
        """Return the last `count` outputs of the program after the module's own results."""
        self._updates = count

    def _converted_call(self, node: fx.Node, importer: Any) -> relax.Expr:
        tensors, key = node.args
        call = self._exported.calls[key]
        args, kwargs = call.arguments(tensors)
        with node.graph.inserting_before(node):
            made = node.graph.create_node(
                call.node.op, call.node.target, args, kwargs, name=call.node.name
            )
        made.meta["val"] = node.meta["val"][0]
        try:
            result = self._call_converter(made, call.node, importer)
        finally:
            node.graph.erase_node(made)
        return result if isinstance(result.ty, relax.TupleType) else relax.Tuple([result])

    def _call_converter(self, made: fx.Node, traced: fx.Node, importer: Any) -> relax.Expr:
        if traced.op == "call_function":
            result = self._custom[traced.target.__name__](made, importer)
        elif traced.op == "call_method":
            result = self._custom[traced.target](made)
        else:
            module = traced.graph.owning_module.get_submodule(traced.target)
            result = self._custom[type(module)](made)
        if isinstance(result, relax.Call):
            result = self.context.builder.emit(result)
        return result

    def outputs(self, values: Sequence[relax.Expr]) -> tuple[relax.Expr, ...]:
        """Return the results of the function: one, or those that are bound one by one."""
        returned, count = self._exported.returned, len(values) - self._updates
        parts = returned if isinstance(returned, tuple) else (returned,)
        results = [self._result(part, values) for part in parts]
        results += values[count:]
        is_one = not isinstance(returned, tuple) or self._results.unwrap
        if len(results) == 1 and is_one:
            return (results[0],)
        return tuple(results) if self.binds_each else (relax.Tuple(results),)

    def _result(self, part: Tree, outputs: Sequence[relax.Expr]) -> relax.Expr:
        if isinstance(part, Leaf):
            return outputs[part.place]
        if isinstance(part, Sizes):
            return relax.ShapeExpr(self.context.symbols.shape(part.extents))
        if isinstance(part, Constant):
            return _constant(part.value)
        return relax.Tuple([self._result(each, outputs) for each in part])


def _constant(value: Any) -> relax.Expr:
    """A number as TVM's importer returns it; None and strings as for exported programs."""
    if value is None:
        return relax.op.null_value()
    if isinstance(value, str):
        return tvm.ir.StringImm(value)
    if isinstance(value, bool):
        return relax.const(value, "bool")
    if isinstance(value, float):
        return relax.const(value, "float64")
    return relax.const(value, "int32" if -(2**31) <= value < 2**31 else "int64")


def as_traced(
    main: relax.Function,
    program: ExportedProgram,
    model: fx.GraphModule,
    inputs: Sequence[tuple[Sequence[Dim], str]],
    *,
    keep_params_as_input: bool,
) -> relax.Function:
    """Give ``main`` the parameters of TVM's ``from_fx``.

    They are ``inp_0``, ``inp_1``, ..., one for each of `inputs`, with the caller's symbolic dims,
    and if `keep_params_as_input`, all parameters of the module, sorted by name.
    """
    count = len(program.graph_signature.user_inputs)
    main, symbols = _with_dims(main, [shape for shape, _ in inputs[:count]])
    params = [
        relax.Var(f"inp_{index}", relax.TensorType(shape, dtype))
        for index, (shape, dtype) in enumerate(inputs)
    ]
    bound = dict(zip(main.params[:count], params, strict=False))
    attributes = {str(name): value for name, value in (main.attrs or {}).items()}
    for name in _BOUNDS:
        limits = {symbols.get(str(n), str(n)): int(v) for n, v in attributes.pop(name, {}).items()}
        # TVM sets none; an extent is never negative.
        if limits := {n: limit for n, limit in limits.items() if limit > 0}:
            attributes[name] = limits
    attributes.pop("params", None)
    attributes.pop("num_input", None)
    if keep_params_as_input:
        attributes["num_input"] = len(inputs)
        attributes["params"] = []
        variables: dict[str, relax.Var] = {}
        for name, parameter in sorted(model.named_parameters(), key=lambda item: item[0]):
            dtype = dtype_name(str(parameter.dtype))
            variables[name] = relax.Var(name, relax.TensorType(tuple(parameter.shape), dtype))
            attributes["params"].append(_to_tvm(parameter))
        params += variables.values()
        bound |= zip(main.params[count:], _parameters(program, model, variables), strict=True)
    body = main.bind_params(bound).body if bound else main.body
    found = relax.Function(params, body, main.ret_ty, main.is_pure)
    return found.with_attrs({"global_symbol": "main", **attributes})


def _with_dims(
    main: relax.Function, shapes: Sequence[Sequence[Dim]]
) -> tuple[relax.Function, dict[str, str]]:
    """Replace the symbols of ``torch.export`` by the caller's; also return their names."""
    found: dict[tirx.Var, tirx.Expr] = {}
    pairs = [
        (extent, dim)
        for param, shape in zip(main.params, shapes, strict=False)
        for extent, dim in zip(param.ty.shape, shape, strict=True)
        if not isinstance(dim, int)
    ]
    for extent, dim in pairs:
        if isinstance(extent, tirx.Var):
            found.setdefault(extent, dim)
    _check_determined([dim for _, dim in pairs])
    analyzer = Analyzer()
    for extent, dim in found.items():
        if not dim.same_as(extent):
            analyzer.bind(extent, dim)
    for extent, dim in pairs:
        if not analyzer.can_prove_equal(analyzer.simplify(extent), dim):
            raise OpAttributeInvalid(
                f"from_fx: an input has the dim {dim}, and the module requires that it is "
                f"{analyzer.simplify(extent)}; give this expression in input_info"
            )
    names = {v.name: dim.name for v, dim in found.items() if isinstance(dim, tirx.Var)}
    return (main.bind_symbolic_vars(found) if found else main), names


def _check_determined(dims: Sequence[tirx.Expr]) -> None:
    """Check that each variable of `dims` is one of them."""
    known = {dim for dim in dims if isinstance(dim, tirx.Var)}
    for dim in dims:
        for variable in tirx.analysis.undefined_vars(dim):
            if variable not in known:
                raise OpAttributeInvalid(
                    f"from_fx: an input has the dim {dim}, and no dim is {variable.name} itself; "
                    "give the dim a variable of its own"
                )


def _parameters(
    program: ExportedProgram, model: fx.GraphModule, variables: Mapping[str, relax.Var]
) -> list[relax.Var]:
    """The variables of the program's parameters; a tied parameter has one."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    specs = program.graph_signature.input_specs
    targets = [str(s.target) for s in specs if s.kind is InputKind.PARAMETER]
    parameters = (model.get_parameter(target.removeprefix(f"{TRACED}.")) for target in targets)
    return [variables[names[id(parameter)]] for parameter in parameters]


def _to_tvm(tensor: torch.Tensor) -> tvm.runtime.Tensor:
    """Copy `tensor` to a TVM tensor."""
    return tvm.runtime.from_dlpack(tensor.detach().cpu().contiguous().clone())
