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
"""Import of exported PyTorch programs into Relax."""

from collections.abc import Callable, Container
from itertools import chain
from typing import Any

import torch
import tvm
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from tvm import relax
from tvm.relax.frontend.torch.base_fx_graph_translator import BaseFXGraphImporter

from ...fixes.torch_importer import (
    ACTIVATIONS,
    ATTENTION,
    DECOMPOSITIONS,
    DYNAMIC_SHAPES,
    INDEXING,
    INSTANCE_NORM,
    INTERPOLATE,
    LINEAR,
    LOOPS,
    MUTATIONS,
    PRELU,
    QUANTIZED,
    RANDOM,
)
from ...relax.source_nodes import spread
from ...relax.updates import with_updates
from ...support import switches
from ...support.serial import in_turn
from .graph import decompositions
from .graph.inputs import forget_derived_ranges
from .graph.mutations import check_buffers, check_windows, returning_updates
from .graph.recurrent_shapes import RECURRENT, recurrent_shapes
from .graph.whole_operators import WHOLE, is_convertible
from .importer import ExportedProgramImporter
from .ops.interpolation import INTERPOLATIONS
from .ops.linear_algebra import pure_checks
from .ops.quantized.converters import KEPT
from .ops.quantized.parameters import rules_for
from .ops.random_numbers import check_recurrent_dropout
from .rules import RULES

__all__ = ["core_rules", "decomposed", "from_exported_program"]


def _has_sparse_tensor(program: ExportedProgram) -> bool:
    values = chain(program.state_dict.values(), program.constants.values())
    return any(isinstance(v, torch.Tensor) and v.layout != torch.strided for v in values)


def core_rules(known: Container[str], whole: Container[str] = ()) -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions into core ATen operators, without those of better converters.

    Parameters
    ----------
    known, whole : container of str
        As for :func:`decomposed`.
    """
    rules = torch.export.default_decompositions()
    for overload in [rule for rule in rules if rule.__name__ in whole and rule.__name__ in known]:
        rules.pop(overload)
    kept: dict[str, list[torch._ops.OpOverload]] = {
        ATTENTION: [torch.ops.aten.scaled_dot_product_attention.default],
        LINEAR: [
            torch.ops.aten.linear.default,
            torch.ops.aten.matmul.default,
            torch.ops.aten.bilinear.default,
        ],
        PRELU: [torch.ops.aten.prelu.default],
        ACTIVATIONS: [torch.ops.aten.celu.default, torch.ops.aten.selu.default],
        INSTANCE_NORM: [torch.ops.aten.instance_norm.default],
        LOOPS: list(RECURRENT),
        INDEXING: [
            *(torch.ops.aten.index_add.default, torch.ops.aten.index_copy.default),
            torch.ops.aten.select_scatter.default,  # PyTorch's promotes the dtype of the slice.
        ],
        # PyTorch rejects its own decompositions: one writes to a tensor of 16-bit floats, the other
        # reads the number of an index of rank 0.
        DECOMPOSITIONS: [torch.ops.aten.renorm.default, torch.ops.aten.take.default],
        INTERPOLATE: [getattr(torch.ops.aten, name).vec for name in INTERPOLATIONS],
    }
    for fix_id, overloads in kept.items():
        if switches.enabled(fix_id):
            for overload in overloads:
                rules.pop(overload, None)
    return rules


def _decompose(
    program: ExportedProgram, known: Container[str], whole: Container[str]
) -> ExportedProgram:
    """Decompose `program` into core ATen operators and those with a `known` converter."""
    rules = core_rules(known, whole)
    if switches.enabled(QUANTIZED):
        targets = decompositions.operators_of(program)
        for target in targets:
            if str(target) in KEPT:
                rules.pop(target, None)
        rules.update(rules_for(targets))
    if switches.enabled(MUTATIONS):
        check_windows(program)
    if switches.enabled(RANDOM):
        check_recurrent_dropout(program)
    if switches.enabled(DYNAMIC_SHAPES):
        forget_derived_ranges(program)
    if not switches.enabled(DECOMPOSITIONS):
        return program.run_decompositions(rules)
    # PyTorch's reads elements at computed places.
    rules[torch.ops.aten.roll.default] = RULES[torch.ops.aten.roll.default]
    with pure_checks():
        program = program.run_decompositions(rules)
        return decompositions.decompose_further(program, known, rules)


def decomposed(
    program: ExportedProgram, known: Container[str], whole: Container[str] = ()
) -> ExportedProgram:
    """The program that is imported.

    Parameters
    ----------
    program : torch.export.ExportedProgram
    known : container of str
        The names of the operators with a converter.
    whole : container of str
        The names of operators to keep that PyTorch decomposes into core ATen operators.
    """
    if _has_sparse_tensor(program):
        return program
    with recurrent_shapes():
        return _decompose(program, known, whole)


@in_turn
def from_exported_program(
    exported_program: ExportedProgram,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: (
        dict[str, Callable[[fx.Node, BaseFXGraphImporter], relax.Var]] | None
    ) = None,
    run_ep_decomposition: bool = True,
    return_updates: bool = False,
) -> tvm.IRModule:
    """Import a program: ``tvm.relax.frontend.torch.from_exported_program`` with corrections.

    Convolutions and transposed convolutions in 1-D to 3-D, ``linear``, ``mm``, ``bmm``, ``matmul``,
    ``addmm`` and ``baddbmm`` keep the dtype of their operands; float16 and bfloat16 are summed in
    float32 and rounded once (:func:`accumulation_dtype`).  All modes of interpolation, batch norms
    and tiles by symbolic numbers compute what PyTorch computes; a PReLU becomes one operator.
    Dtypes are promoted as in PyTorch, and sizes are those that ``torch.export`` recorded.  Programs
    quantized with PT2E and torchao keep their integers.  If all fixes ``torch-*`` are disabled,
    this is TVM's function.

    Parameters
    ----------
    exported_program : torch.export.ExportedProgram
        The program, as ``torch.export.export`` returns it.
    keep_params_as_input : bool
        Make the parameters inputs of ``main``, after the program's own, instead of constants;
        the function's attribute ``params`` holds their values.
    unwrap_unit_return_tuple : bool
        Return a single output itself, not a tuple of one.
    no_bind_return_tuple : bool
        Return a tuple of outputs without binding it to a variable.
    custom_convert_map : dict of str to callable, optional
        Converters by the name of the ATen overload (``"linear.default"``), called with the node
        and the importer.  They take precedence over all others.
    run_ep_decomposition : bool
        Decompose the program into core ATen operators first (except programs with sparse
        tensors).  Otherwise, decompose only the operators that have no converter, or one that does
        not compute all that PyTorch does; if there are any, or if the program writes to tensors,
        the program also becomes functional.
    return_updates : bool
        Return the final values of inputs that the program writes to, after its outputs; the
        function's attribute ``updates`` maps the names of these inputs to the indices of the
        outputs.  Otherwise, these values are lost, as in TVM.

    Returns
    -------
    tvm.IRModule
        The program as the function ``main``.

    Raises
    ------
    tvm.error.OpNotImplemented
        If an operator has no converter; the message names each such operator and a node.  Also if
        an output depends on a buffer that the program writes to; the message names it.  Also if a
        converter returns a value whose dtype, rank or extents differ from PyTorch's; the message
        names the node and both types.
    tvm.error.OpAttributeInvalid
        If an attribute of an operator can't be imported; the message names it and its value.
    """
    importer = ExportedProgramImporter(custom_convert_map)
    importer.check_guards_of(exported_program)
    known = importer.operators
    if run_ep_decomposition:
        exported_program = decomposed(exported_program, known)
    elif switches.enabled(DECOMPOSITIONS):
        whole = {*WHOLE, *(custom_convert_map or ())}
        if not is_convertible(exported_program, known, whole):
            exported_program = decomposed(exported_program, known, whole)
    updates: dict[str, int] = {}
    if switches.enabled(MUTATIONS):
        check_buffers(exported_program)
    if return_updates and switches.enabled(MUTATIONS):
        exported_program, updates = returning_updates(exported_program)
    mod = importer.import_program(
        exported_program,
        keep_params_as_input=keep_params_as_input,
        unwrap_unit_return_tuple=unwrap_unit_return_tuple,
        # TVM takes the fields of a tensor that is not in a tuple.
        no_bind_return_tuple=no_bind_return_tuple
        and not (unwrap_unit_return_tuple and _has_one_output(exported_program)),
    )
    spread(mod)
    if not updates:
        return mod
    switches.note(MUTATIONS)
    return with_updates(mod, updates)


def _has_one_output(program: ExportedProgram) -> bool:
    kinds = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
    return sum(spec.kind in kinds for spec in program.graph_signature.output_specs) == 1
