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
"""Import of traced PyTorch modules into Relax.

Mechanism
    The importer has its own converters, which read the arguments that its tests use.
How to remove
    If TVM's importer passes the tests of this package, use it; delete this file, the files
    ``graph/traced_*.py``, their tests and the fix id ``torch-fx``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from torch import fx, nn
from tvm import relax
from tvm.relax.frontend.torch import from_fx as tvm_from_fx

from ...errors import OpAttributeInvalid
from ...fixes.torch_importer import FX as FIX_ID
from ...relax.source_nodes import spread
from ...support import switches
from ...support.serial import in_turn
from .exported_program import decomposed
from .graph.mutations import check_buffers, returning_updates, without_updates
from .graph.traced_functions import CustomConverters, Results, TracedImporter, as_traced
from .graph.traced_inputs import TracedInputs, is_number
from .graph.traced_modules import Tree, export_traced, forget
from .stock import dtype_name

__all__ = ["Traced", "from_fx", "import_traced"]


_AS_TRACED = Results(unwrap=False, bind=True)


@dataclass(frozen=True)
class Traced:
    """An imported traced module.

    Attributes
    ----------
    mod : tvm.IRModule
    returned : Tree
        What the module returns.
    updated : list of int
        The inputs that the module writes to, whose final values are the last outputs.
    """

    mod: tvm.IRModule
    returned: Tree
    updated: list[int]


def import_traced(
    model: fx.GraphModule,
    input_info: Sequence[tuple[Sequence[Any], Any]],
    *,
    keep_params_as_input: bool = False,
    results: Results = _AS_TRACED,
    custom_convert_map: CustomConverters | None = None,
    channels_last: bool = False,
    return_updates: bool = False,
) -> Traced:
    """Import a traced module; see :func:`from_fx`.

    With `return_updates`, the final values of the inputs that it writes to are the last outputs.
    """
    inputs = TracedInputs.of(model, input_info)
    taken = _used_inputs(model, len(input_info))
    used = TracedInputs(inputs.shapes[:taken], inputs.dtypes[:taken], inputs.device, inputs.hints)
    custom = custom_convert_map or {}
    exported = export_traced(model, used, custom=custom, channels_last=channels_last)
    try:
        importer = TracedImporter(exported, custom, results)
        importer.check_guards_of(exported.program)
        program = decomposed(exported.program, importer.operators)
        check_buffers(program)
        updates: dict[str, int] = {}
        if return_updates:
            program, updates = returning_updates(program)
        program = without_updates(program)
        importer.count_updates(len(updates))
        mod = importer.import_program(
            program,
            keep_params_as_input=keep_params_as_input,
            unwrap_unit_return_tuple=not importer.binds_each,
            no_bind_return_tuple=importer.binds_each,
        )
    finally:
        forget(exported.calls)
    names = program.graph_signature.user_inputs
    types = [dtype_name(str(dtype)) for dtype in inputs.dtypes]
    mod["main"] = as_traced(
        mod["main"],
        program,
        model,
        list(zip(inputs.shapes, types, strict=True)),
        keep_params_as_input=keep_params_as_input,
    )
    spread(mod)
    return Traced(mod, exported.returned, [names.index(name) for name in updates])


def _used_inputs(model: fx.GraphModule, count: int) -> int:
    """The number of inputs that the module has placeholders for.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If `count`, the length of ``input_info``, is too small.
    """
    placeholders = model.graph.find_nodes(op="placeholder")
    if any(str(node.target).startswith("*") for node in placeholders):
        return count
    names = [node.name for node in placeholders if not is_number(node)]
    required = [n.name for n in placeholders if not is_number(n) and not n.args]
    if count < len(required):
        raise OpAttributeInvalid(
            f"from_fx: input_info has {count} elements; expected {len(required)}, one for each of "
            f"{', '.join(required)}"
        )
    return min(count, len(names))


@in_turn
def from_fx(
    model: fx.GraphModule,
    input_info: Sequence[tuple[Sequence[Any], Any]],
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: dict[type[nn.Module] | str, Callable[..., relax.Expr]] | None = None,
    default_image_layout: str = "NCHW",
) -> tvm.IRModule:
    """Import a traced PyTorch module: ``tvm.relax.frontend.torch.from_fx``, corrected.

    ``torch.export`` exports the traced module for inputs of the given shapes and dtypes, and the
    program is imported as by :func:`from_exported_program`.  So any operator of PyTorch may occur
    in the module that may occur in an exported program, including functions that were not traced.
    As in TVM, dropout returns its operand, even in training mode.  If the fix ``torch-fx`` is
    disabled, this is TVM's function.

    Parameters
    ----------
    model : torch.fx.GraphModule
        The module, as ``torch.fx.symbolic_trace`` returns it.
    input_info : list of (shape, dtype)
        The shape and the dtype of each input; dims may be ``tvm.tirx.Var``.
    keep_params_as_input : bool
        Make the parameters inputs of ``main``, after the module's own and sorted by name, instead
        of constants; the function's attribute ``params`` holds their values.
    unwrap_unit_return_tuple : bool
        Return a single output itself, not a tuple of one.
    no_bind_return_tuple : bool
        Return a tuple of outputs without binding it to a variable.
    custom_convert_map : dict, optional
        Converters by the type of a module or the name of a method, called with the node, or by the
        name of a function, called with the node and the importer.  They take precedence over all
        others.  PyTorch must know the shapes of the results: give an operator of your own a
        ``torch.library.register_fake``.
    default_image_layout : str
        The layout of the data of interpolations: ``"NCHW"`` or ``"NHWC"``.

    Returns
    -------
    tvm.IRModule
        The module as the function ``main``, whose inputs are ``inp_0``, ``inp_1``, and so on.

    Raises
    ------
    tvm.error.OpNotImplemented
        If ``torch.export`` rejects the module, or an operator has no converter; the message names
        them and a node.
    tvm.error.OpAttributeInvalid
        If PyTorch rejects a call, or `input_info` does not fit the module; the message names the
        node, or the input.
    """
    if not switches.enabled(FIX_ID):
        return tvm_from_fx(
            model,
            input_info,
            keep_params_as_input=keep_params_as_input,
            unwrap_unit_return_tuple=unwrap_unit_return_tuple,
            no_bind_return_tuple=no_bind_return_tuple,
            custom_convert_map=custom_convert_map,
            default_image_layout=default_image_layout,
        )
    switches.note(FIX_ID)
    traced = import_traced(
        model,
        input_info,
        keep_params_as_input=keep_params_as_input,
        results=Results(unwrap_unit_return_tuple, not no_bind_return_tuple),
        custom_convert_map=custom_convert_map,
        channels_last=default_image_layout.endswith("C"),
    )
    return traced.mod
