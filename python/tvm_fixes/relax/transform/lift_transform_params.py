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
"""LiftTransformParams: lift computations on weights, with checks and a budget of bytes.

Trigger
    An output that depends only on weights; a shared transform, and an expression that occurs twice
    in one function and not in another; a function that calls the lifted one; ``num_input`` beyond
    the parameters; weights that are dequantized, upcast or repeated.
Mechanism
    ``LiftTransformParams`` looks for values that are needed at run time among the bindings, not in
    the result; it counts occurrences of a computation, not the functions that have it; it does not
    look at callers; it lifts as much as it can.
How to remove
    When TVM's pass limits the growth of weights and rewrites callers, use it; delete this file,
    ``lift/plan.py``, their tests and the fix id ``lift-transform-params``.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from ...attributes import LIFTED
from ...errors import UsageError
from ...fixes.weights import LIFT_TRANSFORM_PARAMS as FIX_ID
from ...support import logs, switches
from ..analysis import bindings, weights_of
from ..constants.growth import MAX_GROWTH, WEIGHTS_ALLOWANCE, check_growth
from ..guard import uninstrumented
from ..ir import with_body, with_functions
from ..lift.callers import SUFFIX, callers_of, rewrite_callers
from ..lift.plan import LiftPlan
from .fold_constant import rebind
from .refresh_types import RefreshTypes

NAME = "LiftTransformParams"
SHARED_NAME = SUFFIX


def LiftTransformParams(
    shared_transform: bool | Sequence[str] = False,
    *,
    max_growth: float = MAX_GROWTH,
    allowance: int = WEIGHTS_ALLOWANCE,
) -> tvm.transform.Pass:
    """Move computations that depend only on weights to a transform function.

    TVM's pass of this name, with checks and a budget.  The first ``num_input`` parameters of a
    function (an attribute) are inputs, the others are weights.  Before::

        def main(x, w):                          # num_input = 1
            transposed = R.permute_dims(w)
            return R.matmul(x, transposed)

    and after::

        def main_transform_params(model_params): # a tuple: (w,)
            return (R.permute_dims(model_params[0]),)

        def main(x, transposed):
            return R.matmul(x, transposed)

    **The meaning of main's parameters changes**: instead of ``main(x, w)``, call
    ``main(x, *main_transform_params([w]))``.  :func:`tvm_fixes.lift` returns an object that keeps
    the original signature.

    Parameters
    ----------
    shared_transform : bool or sequence of str
        False: a function ``NAME_transform_params`` for each function with ``num_input``.  True, or
        the names of functions: one ``transform_params`` for all of them, with the computations that
        all of them have.  Their weights match by position; names may differ, but a name that has
        another position in another function is an error.
    max_growth : float
        The maximum ratio of prepared weights to the weights they replace, in bytes.  A larger value
        is computed on each run of the function: quantized weights stay quantized.  ``math.inf``
        lifts everything that TVM's pass lifts.  The size estimate assumes 256 for a symbolic dim.
    allowance : int
        The number of bytes that all prepared weights together may take beyond that limit, by
        default 64 KiB: small weights are prepared even if they double in size.

    Returns
    -------
    tvm.transform.Pass
        A module pass.  A lifted function gets the attribute ``lift_transform_params``, with the
        name of its transform function (``transform``), and the ``names`` and ``types`` of its
        original parameters in order, the first ``num_input`` of which are inputs.  Such a function
        is not lifted again.  The attribute ``params``, from which ``relax.frontend.detach_params``
        takes weights, moves to the transform function.

    Raises
    ------
    UsageError
        If `max_growth` or `allowance` is negative, or `shared_transform` is neither a bool nor
        names, or empty.
        When the pass runs: if a name is not a Relax function with ``num_input``, or is reserved for
        transforms; if ``num_input`` is not an integer or out of range; if functions with a shared
        transform differ in number or types of weights, have them in another order, or have a
        ``match_cast``; if another function uses a lifted one other than in a call, or calls it with
        another number of arguments; if a local function computes with weights; if a function with
        the name of the transform exists and does not return the weights.

    Warns
    -----
    UserWarning
        If no function has ``num_input``; if a computation that depends only on weights is outside
        dataflow blocks, where nothing is lifted; if a function with weights is skipped because it
        is named ``…transform_params``.

    Notes
    -----
    If a result depends only on weights, it is prepared as a whole, and ``main`` returns the
    prepared value.  In functions of the module that call a lifted one, a call of the transform is
    inserted before: this is correct, but the weights are prepared on each call.  If the weights are
    one tuple, as ``BundleModelParams`` makes them, its fields are the weights, and the transform
    takes the original tuple.
    """
    shared = _check_shared(shared_transform)
    check_growth(max_growth)
    if allowance < 0:
        raise UsageError(f"allowance must be >= 0 bytes, got {allowance}")

    def run(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        if not switches.enabled(FIX_ID):
            return relax.transform.LiftTransformParams(shared)(mod)
        # Below level 1, TVM would skip the passes that its pass runs internally.
        inner = uninstrumented(context, opt_level=max(context.opt_level, 1))
        with inner:
            return _lift(mod, shared, max_growth, allowance)

    return tvm.transform.module_pass(run, opt_level=1, name=NAME)


def _check_shared(shared: Any) -> bool | list[str]:
    if isinstance(shared, bool):
        return shared
    is_names = isinstance(shared, Sequence) and not isinstance(shared, str)
    if not is_names or not all(isinstance(name, str) for name in shared):
        raise UsageError(f"shared_transform: expected a bool or names of functions, got {shared!r}")
    if not shared:
        raise UsageError("shared_transform: expected names of functions, got an empty list")
    if len(set(shared)) != len(shared):
        raise UsageError(f"shared_transform: duplicate name in {list(shared)}")
    return list(shared)


def _lift(
    mod: tvm.IRModule, shared: bool | list[str], max_growth: float, allowance: int
) -> tvm.IRModule:
    targets = _targets(mod, shared)
    if not targets:
        return mod
    callers = callers_of(mod, targets)
    transforms = {
        var: SHARED_NAME if shared else f"{var.name_hint}_{SUFFIX}" for var, _ in targets.items()
    }
    _check_transforms(mod, targets, transforms, callers)
    originals = targets
    targets = {var: unbundle(var, function, mod) for var, function in targets.items()}
    if shared:
        _check_agreement(targets)
    groups = [list(targets)] if shared else [[var] for var in targets]
    rewritten: dict[tvm.ir.GlobalVar, relax.Function] = {}
    for group in groups:
        plan = LiftPlan([targets[var] for var in group], max_growth, allowance)
        rewritten |= {var: plan.rewrite(number) for number, var in enumerate(group)}
    switches.note(FIX_ID)
    for var in rewritten:
        logs.debug(NAME, f"{var.name_hint}: {transforms[var]} prepares its weights")

    # Without names, TVM's pass lifts every function with `num_input` that is not a transform.
    hidden = {
        var: function
        for var, function in mod.functions_items()
        if _has_num_input(function)
        and not (shared or var in rewritten or var.name_hint.endswith(SUFFIX))
    }
    shown = {var: function.without_attr("num_input") for var, function in hidden.items()}
    names = [str(var.name_hint) for var in rewritten] if shared else False
    lifted = relax.transform.LiftTransformParams(names)(with_functions(mod, rewritten | shown))
    lifted = with_functions(lifted, hidden)
    changed: dict[tvm.ir.GlobalVar, relax.Function] = {}
    for var, original in originals.items():
        transform = lifted.get_global_var(transforms[var])
        changed[var] = lifted[var].with_attr(LIFTED, _record(original, transforms[var]))
        if "params" in original.attrs:
            changed[var] = changed[var].without_attr("params")
            prepares = changed.get(transform, lifted[transform])
            changed[transform] = prepares.with_attr("params", original.attrs["params"])
    lifted = RefreshTypes()(with_functions(lifted, changed))
    return rewrite_callers(lifted, {str(var.name_hint): transforms[var] for var in targets})


def _has_num_input(function: Any) -> bool:
    return isinstance(function, relax.Function) and "num_input" in (function.attrs or {})


def _targets(mod: tvm.IRModule, shared: bool | list[str]) -> dict[tvm.ir.GlobalVar, relax.Function]:
    """The functions to lift, in the order of `shared` if it lists names, else sorted by name."""
    by_name = {str(var.name_hint): var for var in mod.get_global_vars()}
    if isinstance(shared, list):
        for name in shared:
            _check_named(mod, by_name, name)
        names = shared
    else:
        names = sorted(name for name, var in by_name.items() if _has_num_input(mod[var]))
        if not names:
            warnings.warn(
                f"{NAME}: nothing is lifted: no function has the attribute num_input", stacklevel=2
            )
    targets = {}
    for name in names:
        function = mod[by_name[name]]
        num_input = _num_input(name, function)
        if name.endswith(SUFFIX) and not isinstance(shared, list):
            weights = function.params[num_input:]
            is_transform = len(weights) == 1 and isinstance(weights[0].ty, relax.TupleType)
            if weights and not is_transform:
                warnings.warn(
                    f"{NAME}: {name} is not lifted: the suffix …{SUFFIX} is reserved for functions "
                    "that prepare weights; rename it",
                    stacklevel=2,
                )
        elif LIFTED not in function.attrs:
            _check_function(name, function)
            # The attribute may be an IntImm, which TVM's pass does not read.
            targets[by_name[name]] = function.with_attr("num_input", num_input)
    return targets


def _check_named(mod: tvm.IRModule, by_name: dict[str, tvm.ir.GlobalVar], name: str) -> None:
    if name not in by_name:
        raise UsageError(
            f"shared_transform: no function is named {name!r}; the module has: {', '.join(by_name)}"
        )
    if not isinstance(mod[by_name[name]], relax.Function):
        raise UsageError(f"shared_transform: {name!r} is not a Relax function")
    if not _has_num_input(mod[by_name[name]]):
        raise UsageError(f"shared_transform: {name!r} has no attribute num_input")
    if name.endswith(SUFFIX):
        raise UsageError(
            f"shared_transform: cannot lift {name!r}: the suffix …{SUFFIX} is reserved for "
            "functions that prepare weights; rename it"
        )


def _num_input(name: str, function: relax.Function) -> int:
    value = function.attrs["num_input"]
    if isinstance(value, tirx.IntImm):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name}: num_input: expected an integer, got {value!r}")
    if not 0 <= value <= len(function.params):
        raise UsageError(
            f"{name}: num_input: expected 0 to {len(function.params)}, the number of parameters, "
            f"got {value}"
        )
    return value


def _check_function(name: str, function: relax.Function) -> None:
    """Reject local functions that use weights; warn of computations outside dataflow blocks."""
    of_weights = set(weights_of(function))
    outside = []
    for block in function.body.blocks:
        for binding in block.bindings:
            reads = relax.analysis.free_vars(binding.value)
            if not reads or any(var not in of_weights for var in reads):
                continue
            if isinstance(binding.value, relax.Function):
                raise UsageError(
                    f"{name}: the local function {binding.var.name!r} computes with weights; "
                    "run relax.transform.LambdaLift first"
                )
            of_weights.add(binding.var)
            if not isinstance(block, relax.DataflowBlock) and isinstance(binding.value, relax.Call):
                outside.append(str(binding.var.name))
    if outside:
        warnings.warn(
            f"{NAME}: {name}: computations on weights outside dataflow blocks are not lifted: "
            f"{', '.join(outside)}; run relax.transform.ConvertToDataflow first",
            stacklevel=2,
        )


def _check_transforms(
    mod: tvm.IRModule,
    targets: dict[tvm.ir.GlobalVar, relax.Function],
    transforms: dict[tvm.ir.GlobalVar, str],
    callers: dict[tvm.ir.GlobalVar, str],
) -> None:
    """Check existing functions with the name of a transform: TVM's pass chains them."""
    by_name = {str(var.name_hint): var for var in mod.get_global_vars()}
    for var, name in transforms.items():
        if name not in by_name:
            continue
        weights = relax.TupleType([param.ty for param in weights_of(targets[var])])
        earlier = mod[by_name[name]]
        returns = earlier.ret_ty if isinstance(earlier, relax.Function) else None
        if not tvm_ffi.structural_equal(returns, weights, map_free_vars=True):
            raise UsageError(
                f"{var.name_hint}: the module has a function {name} that does not return the "
                f"weights of {var.name_hint}: expected {weights}, got {returns}; rename it"
            )
        if var in callers:
            raise UsageError(
                f"{callers[var]} calls {var.name_hint}, whose weights {name} already prepares; "
                f"lift {var.name_hint} only once, with this pass"
            )


def _check_agreement(targets: dict[tvm.ir.GlobalVar, relax.Function]) -> None:
    """Reject functions that cannot share a transform."""
    (first_var, first), *others = targets.items()
    expected = weights_of(first)
    positions = {str(param.name): index for index, param in enumerate(expected)}
    for var, function in targets.items():
        for binding in bindings(function):
            if isinstance(binding, relax.MatchCast):
                raise UsageError(
                    f"{var.name_hint}: {binding.var.name!r}: functions with match_cast cannot "
                    "share a transform; pass shared_transform=False"
                )
    for var, function in others:
        both = f"{first_var.name_hint} and {var.name_hint} cannot share a transform"
        weights = weights_of(function)
        if len(weights) != len(expected):
            raise UsageError(f"{both}: they have {len(expected)} and {len(weights)} weights")
        for index, (param, other) in enumerate(zip(expected, weights, strict=True)):
            if not tvm_ffi.structural_equal(param.ty, other.ty, map_free_vars=True):
                raise UsageError(
                    f"{both}: weight {index} is {param.name!r} of type {param.ty} and "
                    f"{other.name!r} of type {other.ty}"
                )
            position = positions.get(str(other.name), index)
            if position != index:
                raise UsageError(
                    f"{both}: they order their weights differently: {other.name!r} is weight "
                    f"{position} in the former and weight {index} in the latter"
                )


def unbundle(
    global_var: tvm.ir.GlobalVar,
    function: relax.Function,
    mod: tvm.IRModule,
    names: Sequence[str] = (),
) -> relax.Function:
    """Replace the weight tuple of a function by one parameter per field, if it has one.

    The parameters get `names` if there is one for each field; else the names of the variables that
    the fields are bound to.
    """
    weights = weights_of(function)
    if len(weights) != 1 or not isinstance(weights[0].ty, relax.TupleType):
        return function
    whole = weights[0]
    taken = [
        binding
        for binding in bindings(function)
        if isinstance(binding.value, relax.TupleGetItem)
        and binding.value.tuple_value.same_as(whole)
    ]
    types = list(whole.ty.fields)
    if len(names) != len(types):
        by_index = {binding.value.index: str(binding.var.name) for binding in reversed(taken)}
        names = [by_index.get(index, f"{whole.name}_{index}") for index in range(len(types))]
    fields = [relax.Var(name, ty) for name, ty in zip(names, types, strict=True)]
    values: dict[relax.Var, relax.Expr] = {b.var: fields[b.value.index] for b in taken}
    values[whole] = relax.BlockBuilder().normalize(relax.Tuple(fields))
    opened = with_body(function, function.body, [*function.params, *fields])
    return rebind(with_functions(mod, {global_var: opened}), {global_var: values})[global_var]


def _record(function: relax.Function, transform: str) -> dict[str, Any]:
    return {
        "transform": transform,
        "num_input": int(function.attrs["num_input"]),
        "names": [str(param.name) for param in function.params],
        "types": [type_text(param.ty) for param in function.params],
    }


def type_text(ty: tvm.ir.Type) -> str:
    """The TVMScript text of a type on one line."""
    if isinstance(ty, relax.TupleType):
        return f"R.Tuple({', '.join(map(type_text, ty.fields))})"
    lines = str(ty.script(show_meta=False)).splitlines()
    return " ".join(line.strip() for line in lines if line and not line.startswith("#"))
