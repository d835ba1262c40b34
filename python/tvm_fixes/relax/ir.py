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
"""Helpers for normalized Relax functions: leaves of values, and copies with replaced parts."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import tvm
from tvm import relax, tirx
from tvm_ffi import structural_map

from ..support.tensors import nbytes_of

_Expr = TypeVar("_Expr", bound=relax.Expr)

_CALL_TIR = tvm.ir.Op.get("relax.call_tir")


def tensor_of(expr: relax.Expr) -> tvm.runtime.Tensor | None:
    """The tensor that a constant holds; None for anything else."""
    is_tensor = isinstance(expr, tvm.ir.GenericConst) and isinstance(expr.value, tvm.runtime.Tensor)
    return expr.value if is_tensor else None


def is_kernel_call(expr: relax.Expr) -> bool:
    """Whether a value is a call of ``R.call_tir``."""
    return isinstance(expr, relax.Call) and expr.op.same_as(_CALL_TIR)


def operator_name(expr: relax.Expr | None) -> str:
    """The name of the operator that a value calls, such as ``relax.add``; otherwise empty."""
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.Op):
        return ""
    return str(expr.op.name)


def relax_functions(mod: tvm.IRModule) -> dict[tvm.ir.GlobalVar, relax.Function]:
    """The Relax functions of a module, which may also have PrimFuncs."""
    functions = mod.functions_items()
    return {var: each for var, each in functions if isinstance(each, relax.Function)}


def is_primitive(function: tvm.ir.BaseFunc) -> bool:
    """Whether this is a Relax function that FuseOps made, which becomes one kernel."""
    attrs = function.attrs
    return isinstance(function, relax.Function) and bool(attrs) and bool(attrs.get("Primitive", 0))


def static_bytes(ty: tvm.ir.Type) -> int | None:
    """The size of a tensor in bytes; None if an extent or the dtype is unknown, or for a tuple."""
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    extents = list(ty.shape.values)
    if ty.dtype is None or not all(isinstance(dim, tirx.IntImm) for dim in extents):
        return None
    return nbytes_of(list(map(int, extents)), str(ty.dtype))


def nn_call(call: relax.Call, *operands: relax.Expr, **changed: Any) -> relax.Call:
    """A call of the same operator of ``relax.op.nn`` with other operands and attributes.

    Parameters
    ----------
    call : relax.Call
        For example a convolution or a pooling.
    *operands : relax.Expr
        All operands.
    **changed
        The attributes that differ, by the names of the operator's parameters.
    """
    operator = getattr(relax.op.nn, str(call.op.name).rpartition(".")[2])
    names = [name for name in inspect.signature(operator).parameters if hasattr(call.attrs, name)]
    attributes = {name: getattr(call.attrs, name) for name in names} | changed
    # An empty layout of the output stands for that of the data.
    kept = {name: None if str(value) == "" else value for name, value in attributes.items()}
    return operator(*operands, **kept)


def permuted_axes(permute: relax.Call) -> list[int]:
    """For each axis of the result of a ``permute_dims``, the axis of its operand."""
    rank, axes = int(permute.args[0].ty.ndim), permute.attrs.axes
    return list(range(rank))[::-1] if axes is None else [int(axis) % rank for axis in axes]


def leaves(expr: relax.Expr) -> Iterator[relax.Expr]:
    """Yield the leaves of a value: all nodes except calls, tuples and tuple fields."""
    if isinstance(expr, relax.Call):
        yield from leaves(expr.op)
        for arg in expr.args:
            yield from leaves(arg)
    elif isinstance(expr, relax.Tuple):
        for field in expr.fields:
            yield from leaves(field)
    elif isinstance(expr, relax.TupleGetItem):
        yield from leaves(expr.tuple_value)
    else:
        yield expr


def variables(expr: relax.Expr) -> list[relax.Var]:
    """The variables that a value reads."""
    return [leaf for leaf in leaves(expr) if isinstance(leaf, relax.Var)]


def map_leaves(expr: relax.Expr, replace: Callable[[relax.Expr], relax.Expr]) -> relax.Expr:
    """Replace the leaves of a value, except callees; return the value itself if none changes.

    New nodes have no type yet.
    """
    if isinstance(expr, relax.Tuple):
        fields = [map_leaves(field, replace) for field in expr.fields]
        return expr if _are_same(fields, expr.fields) else relax.Tuple(fields)
    if isinstance(expr, relax.TupleGetItem):
        whole = map_leaves(expr.tuple_value, replace)
        return expr if whole.same_as(expr.tuple_value) else relax.TupleGetItem(whole, expr.index)
    if isinstance(expr, relax.Call):
        args = [map_leaves(arg, replace) for arg in expr.args]
        if _are_same(args, expr.args):
            return expr
        return relax.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span)
    return replace(expr)


def _are_same(new: Sequence[relax.Expr], old: Sequence[relax.Expr]) -> bool:
    return all(one.same_as(other) for one, other in zip(new, old, strict=True))


def dim_text(dim: tirx.Expr) -> str:
    """A dim in Python's syntax, without the dtypes of TVMScript, such as ``(h - 1) // 2 + 1``."""
    plain = re.sub(r"T\.int(?:32|64)\((-?\d+)\)", r"\1", str(dim))
    return re.sub(r"T\.(min|max)\(", r"\1(", plain)


def unpack_tuple(var: relax.Var) -> tuple[list[relax.Binding], relax.Tuple]:
    """Bindings of the fields of a tuple, and a tuple of the bound variables."""
    bindings = []
    for index, ty in enumerate(var.ty.fields):
        field = relax.BlockBuilder().normalize(relax.TupleGetItem(var, index))
        bindings.append(relax.VarBinding(relax.Var(f"{var.name}_{index}", ty), field))
    fields = [binding.var for binding in bindings]
    return bindings, relax.BlockBuilder().normalize(relax.Tuple(fields))


def in_block(
    bb: relax.BlockBuilder, make: Callable[[Callable[[relax.Expr], relax.Var]], relax.Expr]
) -> relax.SeqExpr:
    """A dataflow block with the bindings that `make` emits, and its result.

    `make` takes a function that binds a value to a new variable.
    """
    bindings: list[relax.Binding] = []

    def emit(value: relax.Expr) -> relax.Var:
        value = bb.normalize(value)
        var = relax.DataflowVar(f"product{len(bindings)}", value.ty)
        bindings.append(relax.VarBinding(var, value))
        return var

    result = make(emit)
    if not isinstance(result, relax.Var):
        result = emit(result)
    return relax.SeqExpr([relax.DataflowBlock(bindings)], result)


def with_body(
    function: relax.Function, body: relax.Expr, params: Sequence[relax.Var] | None = None
) -> relax.Function:
    """The function with another body, and with other parameters if `params` is given."""
    return relax.Function(
        function.params if params is None else params,
        body,
        function.ret_ty,
        function.is_pure,
        function.attrs,
        function.span,
    )


def with_functions(
    mod: tvm.IRModule, functions: Mapping[tvm.ir.GlobalVar, tvm.ir.BaseFunc]
) -> tvm.IRModule:
    """The module with some of its functions replaced."""
    if not functions:
        return mod
    return tvm.IRModule({**dict(mod.functions_items()), **functions}, mod.attrs, mod.global_infos)


def renamed(
    bindings: Sequence[relax.Binding], names: Mapping[relax.Var, relax.Expr]
) -> list[relax.Binding]:
    """Bindings with other variables."""

    def rename(var: relax.Var) -> relax.Expr:
        return names.get(var, var)

    kinds = [(kind, rename) for kind in (relax.Var, relax.DataflowVar)]
    return [structural_map(binding, *kinds) for binding in bindings]


def typed(expr: _Expr, ty: tvm.ir.Type) -> _Expr:
    """Give a new expression its type."""
    relax.expr._update_type(expr, ty)
    return expr
