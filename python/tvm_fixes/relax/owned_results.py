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
"""The memory of the results of a lowered function."""

from collections import Counter
from collections.abc import Mapping

import tvm
from tvm import relax, tirx

from .analysis import bindings
from .ir import variables

_ALLOC_TENSOR = tvm.ir.Op.get("relax.vm.alloc_tensor")
# Prefixes of the functions of TVM that do not keep their arguments, and one that returns a view.
_KEEPS_NOTHING = ("vm.builtin.", "relax.run.")
_VIEW = "vm.builtin.reshape"

_Values = Mapping[relax.Var, relax.Expr]


def owned_results(mod: tvm.IRModule, name: str) -> tuple[int, ...]:
    """The results of a function of the virtual machine whose memory a caller may keep and change.

    Parameters
    ----------
    mod : tvm.IRModule
        A module whose memory is planned.
    name : str
        The name of the function.

    Returns
    -------
    tuple of int
        The indices of tensors with storage of their own: no parameter, constant or other result
        shares it, and no callee keeps it.  A result that a branch or another function returns is
        left out.
    """
    function = mod[name]
    values = _values(function)
    every = list(bindings(function))
    tensors_in = Counter(_storage_of(binding.value) for binding in every)
    kept = {
        _origin(variable, values)
        for binding in every
        if isinstance(binding.value, relax.Call)
        and (may_keep(binding.value.op, mod) or _is_other_operator(binding.value.op))
        for operand in binding.value.args
        for variable in variables(operand)
    }
    owned: dict[relax.Expr, int] = {}
    for index, field in enumerate(_fields(function.body.body, values)):
        origin = _origin(field, values)
        storage = _storage_of(values.get(origin))
        if storage is not None and tensors_in[storage] == 1 and origin not in kept:
            owned.setdefault(origin, index)
    return tuple(owned.values())


def results_in_parameters(mod: tvm.IRModule, name: str) -> dict[int, int]:
    """The results of a function of the virtual machine that are in the memory of a parameter.

    Each has the index of the parameter, of which it may be a view.
    """
    function = mod[name]
    values, params = _values(function), list(function.params)
    origins = [_origin(field, values) for field in _fields(function.body.body, values)]
    return {index: params.index(var) for index, var in enumerate(origins) if var in params}


def _values(function: relax.Function) -> _Values:
    return {
        binding.var: binding.value
        for block in function.body.blocks
        for binding in block.bindings
        if isinstance(binding, relax.VarBinding | relax.MatchCast)
    }


def _fields(result: relax.Expr, values: _Values) -> list[relax.Expr]:
    """The results of a function that returns a tensor or a tuple."""
    while isinstance(result, relax.Var) and isinstance(values.get(result), relax.Var | relax.Tuple):
        result = values[result]
    return list(result.fields) if isinstance(result, relax.Tuple) else [result]


def _origin(expr: relax.Expr, values: _Values) -> relax.Expr:
    """The first name of a tensor that a variable is another name or a view of."""
    while isinstance(expr, relax.Var):
        value = values.get(expr)
        if isinstance(value, relax.Call) and isinstance(value.op, relax.ExternFunc):
            value = value.args[0] if str(value.op.global_symbol) == _VIEW else None
        if not isinstance(value, relax.Var):
            break
        expr = value
    return expr


def _storage_of(value: relax.Expr | None) -> relax.Expr | None:
    """The storage of a tensor that is allocated; None for another value."""
    if not isinstance(value, relax.Call) or value.op != _ALLOC_TENSOR:
        return None
    return value.args[0]


def may_keep(callee: relax.Expr, mod: tvm.IRModule) -> bool:
    """Whether a callee with effects may keep an operand."""
    if isinstance(callee, relax.ExternFunc):
        return not str(callee.global_symbol).startswith(_KEEPS_NOTHING)
    if isinstance(callee, tvm.ir.GlobalVar):
        return not isinstance(mod.functions.get(callee), tirx.PrimFunc)
    return isinstance(callee, relax.Var) or "closure" in str(getattr(callee, "name", ""))


def _is_other_operator(callee: relax.Expr) -> bool:
    """Whether a callee is an operator, but not an instruction of the virtual machine."""
    return isinstance(callee, tvm.ir.Op) and not str(callee.name).startswith("relax.vm.")
