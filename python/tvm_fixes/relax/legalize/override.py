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
"""Registration of lowerings that replace TVM's::

@legalizes("relax.nn.softmax")
def _legalize(builder: BlockBuilder, call: relax.Call, stock: Legalize) -> relax.Expr:
    if not switches.enabled(FIX_ID):
        return stock(builder, call)
    ...
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import tvm
from tvm import relax, tirx

from ...support import switches
from ...target.resolution import is_supported
from ..ir import leaves, tensor_of
from .targets import target_of, vdevice_of

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
"""A function that LegalizeOps calls to lower an operator."""

Lowering = Callable[..., relax.Expr]
"""A :data:`Legalize` with more arguments."""

# Above TVM's own registrations, which have level 10.
_LEVEL = 11


def legalizes(*operators: str, **options: Any) -> Callable[[Lowering], Lowering]:
    """Replace the lowering of operators for the supported targets, and where none is known.

    Other backends keep TVM's lowering: their passes and code generators expect its kernels.

    Parameters
    ----------
    *operators : str
        The names of the operators.
    **options
        More keyword arguments of the decorated function.

    Returns
    -------
    callable
        Registers a :data:`Legalize` with an additional keyword argument ``stock``: the previously
        registered function, to which it passes the calls that it does not lower itself.  Where
        there was none, ``stock`` returns the call.
    """

    def register(legalize: Lowering) -> Lowering:
        for operator in operators:
            _override(operator, partial(legalize, **options))
        return legalize

    return register


def _override(operator: str, legalize: Lowering) -> None:
    stock = tvm.ir.Op.get(operator).get_attr("FLegalize") or (lambda _, call: call)

    def lower(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        target = target_of(call)
        if not is_supported(target):
            return stock(builder, call)
        with switches.at(call.span):
            if vdevice_of(call.ty) is None:
                return legalize(builder, call, stock=stock)
            own = _with_target(builder, target, lambda: legalize(builder, call, stock=stock))
            return stock(builder, call) if own is None else own

    tvm.ir.register_op_attr(operator, "FLegalize", lower, level=_LEVEL)


def _with_target(
    builder: relax.BlockBuilder, target: tvm.target.Target, lower: Callable[[], relax.Expr]
) -> relax.Expr | None:
    """The result of `lower`, whose emitted calls have kernels for `target`.

    LegalizeOps does the same, but only for the kernel of the returned call.

    Returns
    -------
    relax.Expr or None
        None if a kernel reads a scalar constant, which may be on another device; TVM's kernels
        contain it.
    """
    known = set(builder.get().get_global_vars())
    if builder.current_block_is_dataflow():
        builder._begin_dataflow_block()
    else:
        builder._begin_binding_block()
    try:
        result = lower()
    finally:
        block = builder._end_block()
    for variable, function in builder.get().functions_items():
        if variable not in known and _is_without_target(function):
            builder.update_func(variable, function.with_attr("target", target))
    values = [*(getattr(binding, "value", None) for binding in block.bindings), result]
    calls = [value for value in values if isinstance(value, relax.Call)]
    if any(_is_scalar(leaf) for call in calls for arg in call.args for leaf in leaves(arg)):
        return None
    for binding in block.bindings:
        value = getattr(binding, "value", None)
        if isinstance(value, relax.Call) and isinstance(binding, relax.VarBinding):
            binding = relax.VarBinding(binding.var, _call_for(builder, value, target))
        builder.emit_normalized(binding)
    return result


def _is_scalar(expr: relax.Expr) -> bool:
    tensor = tensor_of(expr)
    return tensor is not None and not tensor.shape


def _is_without_target(function: tvm.ir.BaseFunc) -> bool:
    return isinstance(function, tirx.PrimFunc) and "target" not in (function.attrs or {})


def _call_for(
    builder: relax.BlockBuilder, call: relax.Call, target: tvm.target.Target
) -> relax.Call:
    """The same call of a kernel with the attribute `target`; `call` if it calls no kernel."""
    callee = call.args[0] if call.args else None
    if not isinstance(callee, tvm.ir.GlobalVar):
        return call
    kernel = builder.get()[callee]
    if not _is_without_target(kernel):
        return call
    name = f"{callee.name_hint}_{target.kind.name}"
    placed = builder.add_func(kernel.with_attr("target", target), name)
    return relax.Call(
        call.op, [placed, *call.args[1:]], call.attrs, call.ty_args, call.span, call.ty
    )
