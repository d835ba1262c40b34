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
"""Analyses of Relax modules: bindings, operator calls and layout transforms."""

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain

import tvm
from tvm import relax

from .ir import relax_functions, variables

_TRANSFORMS = frozenset({"relax.permute_dims", "relax.layout_transform", "relax.nn.pixel_shuffle"})


def bindings(function: relax.Function) -> Iterator[relax.Binding]:
    """Walk over the bindings of a function, including those of branches and local functions.

    Parameters
    ----------
    function : relax.Function
        A normalized function.

    Yields
    ------
    relax.Binding
        In program order; bindings nested in the value of a binding come before that binding.
    """
    yield from _bindings_in(function)


def has_dtype(function: relax.Function, dtypes: Collection[str]) -> bool:
    """Whether a parameter or a bound variable of a function is a tensor of one of `dtypes`."""
    names = chain(function.params, (binding.var for binding in bindings(function)))
    return any(str(getattr(var.ty, "dtype", "")) in dtypes for var in names)


def results(function: relax.Function) -> list[relax.Var]:
    """The variables that a function returns, and those that its branches and local functions do."""
    returned: list[relax.Var] = []

    def look(expr: relax.Expr) -> None:
        if isinstance(expr, relax.SeqExpr):
            returned.extend(variables(expr.body))

    relax.analysis.post_order_visit(function, look)
    return returned


def dataflow_bindings(function: relax.Function) -> list[relax.Binding]:
    """The bindings in dataflow blocks, including those of branches and local functions."""
    in_dataflow: list[relax.Binding] = []

    def look(expr: relax.Expr) -> None:
        if isinstance(expr, relax.SeqExpr):
            for block in expr.blocks:
                in_dataflow.extend(block.bindings if isinstance(block, relax.DataflowBlock) else ())

    relax.analysis.post_order_visit(function, look)
    return in_dataflow


def reads(function: relax.Function) -> Counter[relax.Var]:
    """Count the uses of each variable as an operand or a result."""
    counts = Counter(results(function))
    for binding in bindings(function):
        counts.update(variables(binding.value))
    return counts


def operator_calls(mod: tvm.IRModule) -> Iterator[tuple[str, relax.VarBinding]]:
    """Walk over the calls of operators in a normalized module.

    Yields
    ------
    str, relax.VarBinding
        The name of the function, and the binding whose value is the call.
    """
    for variable, function in relax_functions(mod).items():
        for binding in bindings(function):
            call = getattr(binding, "value", None)
            if isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.Op):
                yield str(variable.name_hint), binding


def is_matmul(binding: relax.Binding) -> bool:
    """Whether a binding is a matrix product; the shapes of its first operand and result are known.

    Known extents may be symbolic.
    """
    call = binding.value
    return (
        isinstance(binding, relax.VarBinding)
        and isinstance(call, relax.Call)
        and isinstance(call.op, tvm.ir.Op)
        and call.op.name == "relax.matmul"
        and isinstance(binding.var.ty.shape, relax.ShapeExpr)
        and isinstance(call.args[0].ty.shape, relax.ShapeExpr)
    )


def weights_of(function: relax.Function) -> list[relax.Var]:
    """The parameters after the first ``num_input`` ones, which are inputs."""
    return list(function.params)[int(function.attrs["num_input"]) :]


def has_known_shapes(ty: tvm.ir.Type) -> bool:
    """Whether each tensor in a value of type `ty` has a known, possibly symbolic, shape."""
    if isinstance(ty, relax.TupleType):
        return all(map(has_known_shapes, ty.fields))
    return not isinstance(ty, relax.TensorType) or isinstance(ty.shape, relax.ShapeExpr)


def activation_transforms(mod: tvm.IRModule) -> list[relax.VarBinding]:
    """Find the calls that move the data of an activation.

    Such a call is a ``permute_dims``, ``layout_transform`` or ``pixel_shuffle`` of a value that
    depends on an input; this includes the transforms at the model's inputs and outputs.  A
    transform of a value that depends only on constants does not count, since it runs once, at
    compile time: see :func:`constant_transforms`.

    To judge a layout conversion, compare the number of transforms before and after it: some of the
    model's own transforms are necessary in any layout.

    Parameters
    ----------
    mod : tvm.IRModule
        A module of normalized Relax functions, before its operators are lowered to kernels.

    Returns
    -------
    list of relax.VarBinding
        The bindings of these calls, in program order.

    Notes
    -----
    In a function with ``num_input``, the parameters after the inputs are the model's weights and
    count as constants.  Composite functions get no special treatment: their transforms count as
    transforms of activations, whatever the arguments are.
    """
    return [binding for binding, is_constant in _transforms(mod) if not is_constant]


def constant_transforms(mod: tvm.IRModule) -> list[relax.VarBinding]:
    """Find the calls that move the data of a weight, which :func:`activation_transforms` omits.

    Parameters
    ----------
    mod : tvm.IRModule
        As for :func:`activation_transforms`.  If the weights are constants, ``FoldConstant``
        leaves no such call.

    Returns
    -------
    list of relax.VarBinding
        The bindings of these calls, in program order.
    """
    return [binding for binding, is_constant in _transforms(mod) if is_constant]


def _transforms(mod: tvm.IRModule) -> Iterator[tuple[relax.VarBinding, bool]]:
    """Yield each transform, and whether its operand is constant."""
    for function in relax_functions(mod).values():
        yield from _transforms_in(function)


def _transforms_in(function: relax.Function) -> Iterator[tuple[relax.VarBinding, bool]]:
    attrs = function.attrs
    constants = set(weights_of(function) if attrs and "num_input" in attrs else [])
    for binding in bindings(function):
        # Symbolic dims are free variables too: a value of symbolic shape is not constant.
        is_constant = all(var in constants for var in relax.analysis.free_vars(binding.value))
        if is_constant:
            constants.add(binding.var)
        if isinstance(binding, relax.VarBinding) and _is_transform(binding.value):
            yield binding, is_constant


def _bindings_in(expr: relax.Expr) -> Iterator[relax.Binding]:
    if isinstance(expr, relax.SeqExpr):
        for binding in (binding for block in expr.blocks for binding in block.bindings):
            yield from _bindings_in(binding.value)
            yield binding
    elif isinstance(expr, relax.If):
        yield from _bindings_in(expr.true_branch)
        yield from _bindings_in(expr.false_branch)
    elif isinstance(expr, relax.Function):
        yield from _bindings_in(expr.body)


def _is_transform(expr: relax.Expr) -> bool:
    return (
        isinstance(expr, relax.Call)
        and isinstance(expr.op, tvm.ir.Op)
        and expr.op.name in _TRANSFORMS
    )
