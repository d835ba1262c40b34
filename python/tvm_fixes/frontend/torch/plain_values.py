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
"""Inputs and outputs of a program that are not tensors: see ``signature``."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
import tvm
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.utils import _pytree as pytree
from tvm import relax, tirx
from tvm.ir import PrimType

from ...errors import OpNotImplemented
from ...fixes.torch_importer import DYNAMIC_SHAPES as FIX_ID
from ...support import switches
from .corrections import Corrections
from .signature import constant_inputs
from .symbols import Symbols

__all__ = ["PlainValues"]


class PlainValues(Corrections):
    """The importer's inputs and outputs that are numbers, strings or None."""

    _symbols: Symbols

    def __init__(self) -> None:
        # By the names of their placeholders.
        self._plain_inputs: dict[str, Any] = {}
        super().__init__()

    def create_input_vars(self, exported_program: ExportedProgram) -> Any:
        """Create the inputs: a shape of one extent for each dynamic int, none for a constant."""
        if not switches.enabled(FIX_ID):
            return super().create_input_vars(exported_program)
        program = exported_program
        constants = constant_inputs(program)
        self._plain_inputs = dict(constants)
        specs = program.graph_signature.input_specs
        numbers = {
            node.name: node.meta["val"]
            for node in program.graph.find_nodes(op="placeholder")
            if isinstance(node.meta.get("val"), torch.SymInt)
        }
        if not constants and not numbers:
            return super().create_input_vars(program)
        switches.note(FIX_ID)
        of_tensors = copy.copy(program)
        of_tensors._graph_signature = ExportGraphSignature(
            [s for s in specs if s.arg.name not in constants and s.arg.name not in numbers],
            program.graph_signature.output_specs,
        )
        parameters, tensors, ranges = super().create_input_vars(of_tensors)
        for name, variable in (parameters | tensors).items():
            value = next(n for n in program.graph.nodes if n.name == name).meta.get("val")
            if isinstance(value, torch.Tensor):
                for size, extent in zip(value.shape, variable.ty.shape, strict=True):
                    self._symbols.bind(size, extent)
        inputs: dict[str, relax.Var] = {}
        for name in (spec.arg.name for spec in specs):
            if name in tensors:
                inputs[name] = tensors[name]
            elif name in numbers:
                inputs[name] = self._number_input(name, numbers[name])
        return parameters, inputs, ranges

    def _number_input(self, name: str, value: torch.SymInt) -> relax.Var:
        """The parameter for a dynamic int: TVM binds the symbols of a shape, not of a tensor."""
        if not self._symbols.knows(value):
            self._symbols.bind(value, tirx.Var(str(value.node.expr), "int64"))
        if not self._symbols.knows(value):
            raise OpNotImplemented(
                f"input {name!r} is the number {value}, and no size of the inputs determines its "
                "symbols; make it an int of its own"
            )
        extent = self._symbols.convert(value)
        self._plain_inputs[name] = extent
        return relax.Var(name, relax.ShapeType([extent]))

    def _translate_fx_graph(
        self,
        graph_module: fx.GraphModule,
        nodes: Iterable[fx.Node],
        inputs_vars: dict[str, Any],
        custom_ops: set[str] | None = None,
    ) -> Any:
        if not self._is_in_branch:
            inputs_vars = {**inputs_vars, **self._plain_inputs}
        return super()._translate_fx_graph(graph_module, nodes, inputs_vars, custom_ops)

    def _flatten_output_args(self, output_args: Any) -> tuple[relax.Expr, ...]:
        """Convert outputs that are numbers to tensors of rank 0, and strings to Relax strings."""
        if switches.enabled(FIX_ID):
            output_args = pytree.tree_map(self._output_of, output_args)
        return super()._flatten_output_args(output_args)

    def _output_of(self, value: Any) -> Any:
        if isinstance(value, str):
            return tvm.ir.StringImm(value)
        if isinstance(value, bool | int | float):
            switches.note(FIX_ID)
            # PyTorch's dtype for a number of each type, with a float's whole precision.
            dtype = {bool: "bool", int: "int64", float: "float64"}[type(value)]
            return self.block_builder.emit(relax.const(value, dtype))
        if isinstance(value, relax.Expr) and isinstance(value.ty, PrimType):
            switches.note(FIX_ID)
            return self._prim_value_to_scalar_tensor(value, str(value.ty.dtype))
        return value
