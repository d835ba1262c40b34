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
"""The inputs of an exported program, and what is known of their sizes."""

import copy
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind
from tvm import relax, tirx

from ....errors import OpNotImplemented
from ....fixes.torch_importer import DYNAMIC_SHAPES
from ....support import switches
from ...extents import MAX_EXTENT
from ..call import Context
from ..ops.complex_numbers import is_complex
from ..values.symbols import Symbols
from .signature import constant_inputs

__all__ = ["Inputs", "create_inputs", "forget_derived_ranges", "known_weights"]


@dataclass
class Inputs:
    """The inputs of the function.

    Attributes
    ----------
    weights : dict of str to relax.Var
        The parameters, buffers and constants.
    tensors : dict of str to relax.Var
        The inputs of the program, by the names of their placeholders.
    ranges : dict of str to tuple
        The limits of symbols.
    plain : dict of str to object
        The inputs that are numbers, strings or None.
    unchecked : list of (relax.Var, relax.TensorType)
        The inputs that need a cast to the type that sizes such as 2*s require.
    """

    weights: dict[str, relax.Var]
    tensors: dict[str, relax.Var]
    ranges: dict[str, tuple[int, int | None]]
    plain: dict[str, Any] = field(default_factory=dict)
    unchecked: list[tuple[relax.Var, relax.TensorType]] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, relax.Var]:
        """The parameters of the function: the inputs of the program, then the weights."""
        return self.tensors | self.weights


def create_inputs(context: Context, program: ExportedProgram) -> Inputs:
    """Create the inputs like TVM, and bind the program's symbols to their variables.

    Raises
    ------
    tvm.error.OpNotImplemented
        If an input or an output of the program is complex, or the sizes of the inputs do not
        determine a symbol; the message names it.
    """
    symbols = context.symbols
    if switches.enabled(DYNAMIC_SHAPES):
        context.importer.multiples = _bind_multiples(symbols, program)
    inputs = _inputs_of(context, program)
    variables = inputs.weights | inputs.tensors
    for name, (lower, upper) in inputs.ranges.items():
        # PyTorch may derive a bound that no int64 can hold.
        inputs.ranges[name] = (lower, None if upper is None or upper > MAX_EXTENT else upper)
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if node.name in variables and isinstance(value, torch.Tensor):
            variable = variables[node.name]
            _bind(symbols, value.shape, variable.ty.shape)
            # The cast checks that the symbols of the sizes are integers.
            extents = symbols.shape(value.shape)
            if not all(map(symbols.equal, extents, variable.ty.shape)):
                ty = relax.TensorType(extents, variable.ty.dtype)
                inputs.unchecked.append((variable, ty))
    for symbol, limits in program.range_constraints.items():
        symbols.restrict(symbol, limits.lower, limits.upper)
    _check_real(inputs, program)
    return inputs


def known_weights(program: ExportedProgram, *, keep_params: bool) -> dict[str, torch.Tensor]:
    """The values of the weights that become constants, by the names of their nodes."""
    kinds = {InputKind.BUFFER, InputKind.CONSTANT_TENSOR}
    if not keep_params:
        kinds.add(InputKind.PARAMETER)
    values = program.state_dict | program.constants
    return {
        spec.arg.name: values[spec.target].detach()
        for spec in program.graph_signature.input_specs
        if spec.kind in kinds and isinstance(values.get(spec.target), torch.Tensor)
    }


def forget_derived_ranges(program: torch.export.ExportedProgram) -> None:
    """Remove the ranges of derived dims, so that PyTorch 2.13 can decompose a loaded program.

    ``torch.export.load`` stores the ranges of dims such as ``length + 1`` among those of symbols,
    and ``run_decompositions`` accepts only those of symbols ("expected sympy.Symbol").
    """
    for node in program.graph.find_nodes(op="placeholder"):
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is None or mode.shape_env is None:
            continue
        ranges = mode.shape_env.var_to_range
        for expression in [e for e in ranges if not isinstance(e, sympy.Symbol)]:
            del ranges[expression]


def _bind(symbols: Symbols, sizes: torch.Size, extents: Any) -> None:
    for size, extent in zip(sizes, extents, strict=True):
        symbols.bind(size, extent)


def _inputs_of(context: Context, program: ExportedProgram) -> Inputs:
    """Create a shape of one extent for each dynamic int, and nothing for a constant."""
    create = context.importer.create_input_vars
    if not switches.enabled(DYNAMIC_SHAPES):
        return Inputs(*create(program))
    constants = constant_inputs(program)
    values = {
        node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")
    }
    numbers = {name: v for name, v in values.items() if isinstance(v, torch.SymInt)}
    if not constants and not numbers:
        weights, tensors, ranges = create(program)
        return Inputs(weights, tensors, ranges, dict(constants))
    switches.note(DYNAMIC_SHAPES)
    specs = program.graph_signature.input_specs
    of_tensors = copy.copy(program)
    of_tensors._graph_signature = ExportGraphSignature(
        [s for s in specs if s.arg.name not in constants and s.arg.name not in numbers],
        program.graph_signature.output_specs,
    )
    weights, tensors, ranges = create(of_tensors)
    inputs = Inputs(weights, {}, ranges, dict(constants))
    for name, variable in (weights | tensors).items():
        value = values.get(name)
        if isinstance(value, torch.Tensor):
            _bind(context.symbols, value.shape, variable.ty.shape)
    for name in (spec.arg.name for spec in specs):
        if name in tensors:
            inputs.tensors[name] = tensors[name]
        elif name in numbers:
            extent = _number(context.symbols, name, numbers[name])
            inputs.plain[name] = extent
            inputs.tensors[name] = relax.Var(name, relax.ShapeType([extent]))
    return inputs


def _number(symbols: Symbols, name: str, value: torch.SymInt) -> Any:
    """The extent for a dynamic int: TVM binds the symbols of a shape, not of a tensor."""
    if not symbols.knows(value):
        symbols.bind(value, tirx.Var(str(value.node.expr), "int64"))
    if not symbols.knows(value):
        raise OpNotImplemented(
            f"input {name!r} is the number {value}, and no size of the inputs determines its "
            "symbols; make it an int of its own"
        )
    return symbols.convert(value)


def _check_real(inputs: Inputs, program: ExportedProgram) -> None:
    """Check that inputs and outputs are real, and give complex weights an axis for their parts."""
    graph = program.graph
    for node in graph.find_nodes(op="placeholder"):
        if is_complex(node) and node.name in inputs.tensors:
            raise _not_real("input", node)
        if is_complex(node) and node.name in inputs.weights:
            ty = inputs.weights[node.name].ty
            pairs = relax.TensorType([*ty.shape.values, 2], ty.dtype)
            inputs.weights[node.name] = relax.Var(node.name, pairs)
    for node in graph.output_node().all_input_nodes:
        if is_complex(node):
            raise _not_real("output", node)


def _not_real(kind: str, node: Any) -> Exception:
    return OpNotImplemented(
        f"{kind} {node.name!r} is {node.meta['val'].dtype}; expected real numbers: "
        f"use torch.view_as_{'complex' if kind == 'input' else 'real'} within the program"
    )


def _bind_multiples(symbols: Symbols, program: ExportedProgram) -> dict[sympy.Expr, tirx.Var]:
    """Give an input's size such as ``2*s`` a variable, if no input's size is ``s`` itself.

    Returns the variables.  The program checks at run time that the size is a multiple.

    Raises
    ------
    tvm.error.OpNotImplemented
        If the sizes of the inputs do not determine a symbol.
    """
    multiples: dict[sympy.Expr, tirx.Var] = {}
    placeholders = program.graph.find_nodes(op="placeholder")
    shapes = {
        node.name: [size.node.expr for size in value.shape if isinstance(size, torch.SymInt)]
        for node in placeholders
        if isinstance(value := node.meta.get("val"), torch.Tensor)
    }
    bound = {size for sizes in shapes.values() for size in sizes if size.is_Symbol}
    for node in placeholders:
        if isinstance(number := node.meta.get("val"), torch.SymInt):
            bound.update(number.node.expr.free_symbols)
    for name, sizes in shapes.items():
        for size in sizes:
            if size.free_symbols <= bound:
                continue
            [symbol, *others] = size.free_symbols - bound
            factor = size.coeff(symbol)
            rest = sympy.expand(size - factor * symbol)
            if others or not (factor.is_Integer and factor > 0 and rest.is_Integer):
                raise OpNotImplemented(
                    f"input {name!r}: a size is {size}, and no size of the inputs determines "
                    f"{symbol}; expected a size {symbol}, or a multiple of it plus a constant"
                )
            variable = tirx.Var(f"{name}_{size}", "int64")
            symbols.bind_multiple(symbol, variable, int(factor), int(rest))
            multiples[size] = variable
            bound.add(symbol)
    return multiples
