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
"""The walk over the nodes of an exported program."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import tvm
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.utils import _pytree as pytree
from tvm import relax
from tvm.ir import PrimType

from ...errors import OpNotImplemented
from ...fixes.torch_importer import DECOMPOSITIONS, DYNAMIC_SHAPES
from ...support import switches
from .call import Context, known_operators
from .graph.decompositions import name_of
from .graph.inputs import Inputs, create_inputs, known_weights
from .graph.nested_graphs import has_branches, nodes_of
from .ops.types import NUMBERS
from .values.guarded_extents import check_guards

__all__ = ["ExportedProgramImporter"]


class ExportedProgramImporter:
    """Imports an exported program whose operators have converters.

    Parameters
    ----------
    custom : mapping of str to callable
        The caller's converters by operator, called with a node and TVM's importer.
    """

    def __init__(self, custom: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self.context = Context(custom or {})
        self._guarded: ExportedProgram | None = None

    @property
    def operators(self) -> frozenset[str]:
        """The operators with a converter."""
        return known_operators().union(self.context.custom)

    def check_guards_of(self, program: ExportedProgram) -> None:
        """Let the function check the conditions under which PyTorch recorded `program`."""
        self._guarded = program if switches.enabled(DYNAMIC_SHAPES) else None

    def import_program(
        self,
        program: ExportedProgram,
        *,
        keep_params_as_input: bool = False,
        unwrap_unit_return_tuple: bool = False,
        no_bind_return_tuple: bool = False,
    ) -> tvm.IRModule:
        """Import a program as the function ``main``; see :func:`from_exported_program`."""
        context, module = self.context, program.graph_module
        context.known = known_weights(program, keep_params=keep_params_as_input)
        context.range_constraints = program.range_constraints
        inputs = create_inputs(context, program)
        context.bound = {inputs.weights[name]: value for name, value in context.known.items()}
        builder = context.importer.block_builder = relax.BlockBuilder()
        self._check_operators(module)
        # An assertion has an effect, even one in a branch; neither may stand in a dataflow block.
        is_pure = not context.importer._has_assert_async(module)
        is_dataflow = is_pure and not has_branches(module)
        attributes = _limits(inputs)
        if keep_params_as_input:
            attributes["num_input"] = len(inputs.tensors)
        parameters = list(inputs.variables.values())
        with builder.function("main", parameters, attributes, pure=is_pure):
            with builder.dataflow() if is_dataflow else nullcontext():
                results = self._converted(program, inputs)
                is_one = unwrap_unit_return_tuple and len(results) == 1
                result = results[0] if is_one else results
                if is_dataflow and no_bind_return_tuple:
                    result = [builder.emit_output(value) for value in result]
                elif is_dataflow:
                    result = builder.emit_output(result)
                elif no_bind_return_tuple:
                    result = list(result)
            builder.emit_func_output(result)
        return self._with_weights(builder.get(), program, keep_params=keep_params_as_input)

    def outputs(self, values: Sequence[relax.Expr]) -> tuple[relax.Expr, ...]:
        """The outputs of the function for those of the program."""
        return tuple(values)

    def _converted(self, program: ExportedProgram, inputs: Inputs) -> tuple[relax.Expr, ...]:
        """Convert the nodes, and return the outputs that the caller of the program gets."""
        context, values = self.context, inputs.variables | inputs.plain
        for node in program.graph.find_nodes(op="placeholder"):
            if node.name in values:
                context.env[node] = values[node.name]
        if any(node.op == "call_function" for node in program.graph.nodes):
            self._check_inputs(inputs)
        results = context.convert_nodes(program.graph_module, program.graph.nodes)
        if switches.enabled(DYNAMIC_SHAPES):
            results = pytree.tree_map(self._output, results)
        outputs = self.outputs(context.importer._flatten_output_args(results))
        specs = program.graph_signature.output_specs
        if len(specs) != len(outputs):
            return outputs
        # The values of buffers that the program writes to stand first.
        kinds = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        pairs = zip(outputs, specs, strict=True)
        return tuple(value for value, spec in pairs if spec.kind in kinds) or outputs

    def _output(self, value: Any) -> Any:
        """Convert a number to a tensor of rank 0, and a string to Relax's."""
        if isinstance(value, str):
            return tvm.ir.StringImm(value)
        if isinstance(value, bool | int | float):
            switches.note(DYNAMIC_SHAPES)
            # PyTorch's dtype for a number of each type, with a float's whole precision.
            dtype = {bool: "bool", int: "int64", float: "float64"}[type(value)]
            return self.context.builder.emit(relax.const(value, dtype))
        if isinstance(value, relax.Expr) and isinstance(value.ty, PrimType):
            switches.note(DYNAMIC_SHAPES)
            return self.context.scalar_tensor(value, str(value.ty.dtype))
        return value

    def _check_inputs(self, inputs: Inputs) -> None:
        """Check the sizes of inputs, before the first operator.

        Inputs whose sizes are multiples are cast, so that their readers see these sizes.
        """
        env = self.context.env
        if self._guarded is not None:
            check_guards(self.context, self._guarded)
        for variable, ty in reversed(inputs.unchecked):
            checked = self.context.builder.match_cast(variable, ty)
            reads = [node for node, value in env.items() if variable.same_as(value)]
            env.update(dict.fromkeys(reads, checked))

    def _check_operators(self, module: fx.GraphModule) -> None:
        """Check that each operator has a converter.

        Raises
        ------
        tvm.error.OpNotImplemented
            If an operator has none; the message names each such operator and its first node.
        """
        known, first = self.operators, dict[Any, str]()
        is_sized = switches.enabled(DYNAMIC_SHAPES)
        for node in nodes_of(module):
            is_size = is_sized and isinstance(node.meta.get("val"), NUMBERS)
            if node.op == "call_function" and node.target.__name__ not in known and not is_size:
                first.setdefault(node.target, node.name)
        # `tvm_fixes.source` reads this variable by name, here and in TVM's function.
        missing_func_types = [target.__name__ for target in first]
        if not missing_func_types:
            return
        if not switches.enabled(DECOMPOSITIONS):
            raise AssertionError(f"Unsupported function types {missing_func_types}")
        listed = ", ".join(f"{name_of(t)} at node {name!r}" for t, name in first.items())
        raise OpNotImplemented(f"unsupported operator {listed}")

    def _with_weights(
        self, mod: tvm.IRModule, program: ExportedProgram, *, keep_params: bool
    ) -> tvm.IRModule:
        """Bind weights to constants; parameters that stay inputs become an attribute."""
        context = self.context
        binding = {name: context.tensor(value) for name, value in context.known.items()}
        mod = relax.transform.BindParams("main", binding)(mod)
        if keep_params:
            tensors = [context.tensor(value) for _, value in program.named_parameters()]
            mod["main"] = mod["main"].with_attr("params", tensors)
        return mod


def _limits(inputs: Inputs) -> dict[str, Any]:
    """The attributes of a function for the limits of symbols."""
    lower = {name: least for name, (least, _) in inputs.ranges.items()}
    upper = {name: most for name, (_, most) in inputs.ranges.items() if most is not None}
    limits = {"tir_var_lower_bound": lower, "tir_var_upper_bound": upper}
    return {name: values for name, values in limits.items() if values}
