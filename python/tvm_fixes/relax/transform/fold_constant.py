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
"""FoldConstant: constant folding with a budget of bytes.

Mechanism
    ``FoldConstant`` computes every value that depends only on constants; its limit of 1024 elements
    applies only to operators without tensor operands.
How to remove
    When TVM's pass limits the growth of constants, use it in
    :mod:`tvm_fixes.pipeline`; delete this file, ``constants/fold_plan.py``,
    ``constants/evaluate.py``, ``read_transposed_weights.py``, ``src/relax/ir/rebind.cc``,
    their tests and the fix id ``fold-constant``.
"""

from collections.abc import Callable, Iterator

import tvm
from tvm import relax
from tvm_ffi import structural_map, structural_walk

from ... import _ffi
from ...fixes.weights import FOLD_CONSTANT as FIX_ID
from ...support import ambient, logs, switches
from ...support.declined import decline
from ..analysis import bindings
from ..constants.evaluate import evaluate
from ..constants.fold_plan import FoldPlan, Value
from ..constants.growth import MAX_GROWTH, check_growth
from ..constants.make import few_at_a_time, made_constant
from ..guard import uninstrumented
from ..ir import map_leaves, relax_functions, tensor_of, with_body, with_functions
from ..source_nodes import inherit, names_of

NAME = "FoldConstant"

# The approximate number of parts to fold values in if memory is limited.
_PARTS = 32


class Unfolded(str):
    """A value that is not folded: its function, variable, operator and both sizes."""


def FoldConstant(max_growth: float = MAX_GROWTH) -> tvm.transform.Pass:
    """Fold values that depend only on constants, unless the constants would grow too much.

    TVM's pass of this name, with a budget.  Before::

        transposed = R.permute_dims(w)                                  # w, v: constants
        y = R.matmul(x, transposed)
        wide = R.broadcast_to(R.multiply(v, R.const(2)), R.shape([256, 64, 64]))
        z = R.add(y, wide)

    and after::

        y = R.matmul(x, w_transposed)                                   # constants as large as
        z = R.add(y, R.broadcast_to(v_doubled, R.shape([256, 64, 64])))   # w and v

    A folded value replaces the constants that it is computed from, unless something else reads
    them: a weight that is read both plain and transposed is not transposed at compile time, since
    the library would then hold it twice.  Equal computations count once.  If a value is not folded,
    its operands may be.

    Parameters
    ----------
    max_growth : float
        The maximum ratio of folded values to the constants they replace, in bytes: 1 allows no
        growth, ``math.inf`` folds everything.  A value of up to 8 KiB is always folded, unless an
        intermediate value takes more than 64 MiB, and more than 8 times or `max_growth` times the
        bytes of the constants.

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators in dataflow blocks and for kernel calls.

    Raises
    ------
    UsageError
        If `max_growth` is negative or not a number.

    Notes
    -----
    A value that is not folded is computed on each run of the model.  The pass logs it with its size
    at level ``DEBUG`` to Python's logger ``tvm_fixes.FoldConstant``, and records it as
    :class:`Unfolded`.  To fold, the pass builds the computation for the host and runs it once.
    """
    check_growth(max_growth)
    stock = relax.transform.FoldConstant()

    def run(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        if not switches.enabled(FIX_ID):
            return stock(mod)
        with uninstrumented(context):
            return fold(mod)

    def fold(mod: tvm.IRModule) -> tvm.IRModule:
        plan = FoldPlan(mod, max_growth)
        constants = _evaluate(plan, mod)
        if plan.unfolded:
            switches.note(FIX_ID)
        for value in plan.unfolded:
            logs.debug(NAME, str(value))
            decline("folded constant", names_of(value.binding.var), str(value))
            ambient.record(Unfolded(value))
        return _fold_rest(insert_constants(plan, constants, mod), plan, stock)

    return tvm.transform.module_pass(run, opt_level=stock.info.opt_level, name=NAME)


def _evaluate(plan: FoldPlan, mod: tvm.IRModule) -> dict[Value, tvm.ir.GenericConst]:
    """Compute the constants for the values to fold; a value that cannot be computed is kept."""
    constants: dict[Value, tvm.ir.GenericConst] = {}
    while True:
        folded = list(dict.fromkeys(v for v in plan.values.values() if v in plan.folded))
        left: set[Value] = set()
        for part in _parts([value for value in folded if value not in constants]):
            tensors = evaluate(plan.computation(part), [value.binding.var for value in part], mod)
            for value in part:
                tensor = tensors.pop(value.binding.var, None)
                if tensor is None:
                    left.add(value)
                else:
                    constants[value] = made_constant(tensor, value.constants, value.made_by)
        if not left:
            return {value: constants[value] for value in folded}
        plan.exclude(left)


def _parts(values: list[Value]) -> Iterator[list[Value]]:
    """The values in one list, or in parts if memory is limited."""
    if not few_at_a_time():
        if values:
            yield values
        return
    limit = sum(value.nbytes or 0 for value in values) // _PARTS
    part: list[Value] = []
    for value in values:
        part.append(value)
        if sum(value.nbytes or 0 for value in part) > limit:
            yield part
            part = []
    if part:
        yield part


def insert_constants(
    plan: FoldPlan, constants: dict[Value, tvm.ir.GenericConst], mod: tvm.IRModule
) -> tvm.IRModule:
    """Replace computations in the module by their constants."""
    values = {var: constants[value] for var, value in plan.values.items() if value in constants}
    return rebind_variables(mod, values)


def _fold_rest(mod: tvm.IRModule, plan: FoldPlan, stock: tvm.transform.Pass) -> tvm.IRModule:
    """Run TVM's pass, which also folds shapes, on all values except those that must not be folded.

    While it runs, the constants of these values are parameters, which hides them from it.
    """
    hidden: dict[tvm.ir.GlobalVar, dict[relax.Var, relax.Expr]] = {}
    calls: dict[tvm.ir.GlobalVar, dict[relax.Var, relax.Expr]] = {}
    opened: dict[tvm.ir.GlobalVar, relax.Function] = {}
    for global_var, function in relax_functions(mod).items():
        params: dict[relax.Var, relax.Expr] = {}
        calls[global_var] = {
            binding.var: _hide(binding.value, params)
            for binding in bindings(function)
            if plan.values.get(binding.var) in plan.kept and isinstance(binding.value, relax.Call)
        }
        if params:
            hidden[global_var] = params
            opened[global_var] = with_body(function, function.body, [*function.params, *params])
    if not hidden:
        return stock(mod)
    return rebind(stock(rebind(with_functions(mod, opened), calls)), hidden)


def _hide(call: relax.Call, params: dict[relax.Var, relax.Expr]) -> relax.Call:
    """The call with its constants replaced by parameters, which are added to `params`."""

    def hide(leaf: relax.Expr) -> relax.Expr:
        if tensor_of(leaf) is None:
            return leaf
        param = relax.Var(f"constant{len(params)}", leaf.ty)
        params[param] = leaf
        return param

    return relax.BlockBuilder().normalize(map_leaves(call, hide))


def rebind(
    mod: tvm.IRModule, values: dict[tvm.ir.GlobalVar, dict[relax.Var, relax.Expr]]
) -> tvm.IRModule:
    """Replace the values of variables, given by function, and remove the resulting dead code.

    If a new value is a SeqExpr, its bindings are inserted before the variable.  Parameters that get
    a value are removed from their function.  A variable of a dataflow block that a new value reads
    in another block becomes a result of its block.
    """
    rebind_function = _ffi.get("tvm_fixes.relax.Rebind")
    changed: dict[tvm.ir.GlobalVar, relax.Function] = {}
    for global_var, own in values.items():
        if own:
            function, new = _with_shared(mod[global_var], own)
            changed[global_var] = rebind_function(function, new, mod)
            inherit(function, changed[global_var], new)
    return with_functions(mod, changed)


def changed_calls(
    mod: tvm.IRModule, change: Callable[[relax.Call], relax.Expr | None]
) -> dict[tvm.ir.GlobalVar, dict[relax.Var, relax.Expr]]:
    """The new values of variables that are bound to calls, as :func:`rebind` takes them.

    Parameters
    ----------
    change : callable
        Returns the new value of a call, or None to keep it.
    """
    changed: dict[tvm.ir.GlobalVar, dict[relax.Var, relax.Expr]] = {}
    for variable, function in relax_functions(mod).items():
        for binding in bindings(function):
            call = binding.value
            is_call = isinstance(binding, relax.VarBinding) and isinstance(call, relax.Call)
            new = change(call) if is_call else None
            if new is not None:
                changed.setdefault(variable, {})[binding.var] = new
    return changed


def _with_shared(
    function: relax.Function, values: dict[relax.Var, relax.Expr]
) -> tuple[relax.Function, dict[relax.Var, relax.Expr]]:
    """Make the dataflow variables plain that `values` read in a block other than their own."""
    blocks: list[relax.DataflowBlock] = []
    structural_walk(function, (relax.DataflowBlock, blocks.append))
    if len(blocks) < 2:
        return function, values
    home = {binding.var: at for at, block in enumerate(blocks) for binding in block.bindings}
    plain: dict[relax.Var, relax.Var] = {}
    for target, value in values.items():

        def look(var: relax.DataflowVar, target: relax.Var = target) -> None:
            if var in home and home[var] != home.get(target):
                plain[var] = relax.Var(var.name, var.ty, var.span)

        structural_walk(value, (relax.DataflowVar, look))
    if not plain:
        return function, values

    def renamed(node: tvm.Object) -> tvm.Object:
        return structural_map(node, (relax.DataflowVar, lambda var: plain.get(var, var)))

    return renamed(function), {renamed(var): renamed(value) for var, value in values.items()}


def rebind_variables(mod: tvm.IRModule, values: dict[relax.Var, relax.Expr]) -> tvm.IRModule:
    """Like :func:`rebind`, but find the function of each bound variable."""
    by_function: dict[tvm.ir.GlobalVar, dict[relax.Var, relax.Expr]] = {}
    for global_var, function in relax_functions(mod).items():
        own = (binding.var for binding in bindings(function))
        by_function[global_var] = {var: values[var] for var in own if var in values}
    return rebind(mod, by_function)
