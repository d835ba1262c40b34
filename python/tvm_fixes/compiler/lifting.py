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
"""Compilation of a module with weights to a library that prepares the weights once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from .. import target as targets
from ..errors import UnsupportedOperatorError, UsageError
from ..lowering import pipeline
from ..relax.analysis import weights_of
from ..relax.constants.growth import MAX_GROWTH, WEIGHTS_ALLOWANCE
from ..relax.ir import with_body, with_functions
from ..relax.transform import LazyGetInput, LazySetOutput, LiftTransformParams
from ..runtime.lifted_manifest import LiftedManifest, WeightSpec
from ..runtime.lifted_module import LiftedModule
from ..runtime.manifest import Signature, describe_function
from ..support.serial import in_turn
from .linking import Memory, link


@in_turn
def lift(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    function: str = "main",
    target: str | Mapping[str, object] | tvm.target.Target = "native",
    max_growth: float = MAX_GROWTH,
    allowance: int = WEIGHTS_ALLOWANCE,
    lazy: bool = False,
    check_weights: bool = True,
) -> LiftedModule:
    """Compile a module so that computations that depend only on weights run once.

    Parameters
    ----------
    mod : tvm.IRModule
        A module of high-level operators.
    params : mapping of str to array, sequence of arrays, or dict of `detach_params`, optional
        The weights: by name, in the order of the parameters, or as returned by
        ``relax.frontend.detach_params``.  Arrays are NumPy's, PyTorch's or TVM's; a weight that is
        a tuple is a list of arrays.  By default, the function's attribute ``params``.  If that is
        missing too, pass the weights to :meth:`LiftedModule.run`.
    function : str
        The name of the function.  The parameters after the first ``num_input`` (an attribute) are
        weights.  Without the attribute, the weights are the parameters that `params` names, which
        must be the last ones.
    target : str, mapping or tvm.target.Target
        As for :func:`tvm_fixes.compile`.
    max_growth : float
    allowance : int
        As for :func:`~tvm_fixes.relax.transform.LiftTransformParams`.
    lazy : bool
        Prepare the weights one by one.  Each is read from `params`, a mapping that may load it on
        demand, and released afterwards.
    check_weights : bool
        Compare the contents of the weights in each call (see :meth:`LiftedModule.run`), and prepare
        weights again that were changed in place.  Otherwise, the weights passed to `lift` are
        prepared only once.

    Returns
    -------
    model : LiftedModule
        The library; its parameters are those of the function in `mod`.

    Raises
    ------
    UsageError
        If the function does not exist or its weights are unknown, and as
        :func:`~tvm_fixes.relax.transform.LiftTransformParams`.
    InputError
        If a weight is missing or unknown, or if its shape or dtype differs from its parameter's.
    UnsupportedOperatorError
        If an input is not a tensor, or a weight is neither a tensor nor a tuple of tensors.

    Warns
    -----
    UserWarning
        If the prepared weights are more than 1.2 times as large as the weights.

    Notes
    -----
    The weights stay in memory in addition to the prepared weights.
    """
    main = _function(mod, function, params)
    mod = _extract(_replace_function(mod, function, main), function)
    weights = _weights_by_name(main, function, params)
    specs, signature = _describe(main)
    resolved = targets.resolve(target, kinds=["llvm"])
    lifted = LiftTransformParams(max_growth=max_growth, allowance=allowance)(mod)
    transform = f"{function}_transform_params"
    if lazy:
        lifted = _lazy(lifted, transform)
    with resolved:
        lowered = pipeline(max_growth=max_growth)(lifted)
    executable = relax.build(lowered, resolved, relax_pipeline=None)
    memory = Memory.of(lowered, function, len(signature.outputs))
    linked = link(executable, resolved, signature, (), memory=memory)
    model = replace(linked.manifest, function=function)
    manifest = LiftedManifest(model, transform, lazy, specs)
    return LiftedModule(
        linked.directory,
        manifest,
        owner=linked.owner,
        weights=weights,
        check_weights=check_weights,
    )


def _function(mod: tvm.IRModule, name: str, params: Any) -> relax.Function:
    """The function, with the attribute ``num_input``."""
    names = [str(var.name_hint) for var in mod.get_global_vars()]
    if name not in names or not isinstance(mod[name], relax.Function):
        raise UsageError(f"no Relax function {name!r}; functions: {', '.join(names)}")
    function = mod[name]
    if "num_input" in (function.attrs or {}):
        return function
    if not isinstance(params, Mapping):
        raise UsageError(
            f"{name}: unknown which parameters are weights; set the attribute num_input or pass "
            "params by name"
        )
    number = len(function.params) - len(params)
    last = [str(param.name) for param in function.params[max(number, 0) :]]
    if set(last) != set(params):
        raise UsageError(
            f"{name}: expected the weights to be the last parameters ({', '.join(last)}), got "
            f"{', '.join(map(str, params))}; set the attribute num_input"
        )
    return function.with_attr("num_input", number)


def _extract(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """A module of the function and its callees; only the function keeps ``num_input``."""
    start = mod.get_global_var(name)
    found, pending = {start: mod[name]}, [start]
    while pending:
        for var in relax.analysis.all_global_vars(mod[pending.pop()]):
            if var not in found:
                callee = mod[var]
                is_relax = isinstance(callee, relax.Function)
                found[var] = callee.without_attr("num_input") if is_relax else callee
                pending += [var] if is_relax else []
    return tvm.IRModule(found, mod.attrs, mod.global_infos)


def _replace_function(mod: tvm.IRModule, name: str, function: relax.Function) -> tvm.IRModule:
    return with_functions(mod, {mod.get_global_var(name): function})


def _weights_by_name(function: relax.Function, name: str, params: Any) -> Mapping[str, Any] | None:
    every = [str(param.name) for param in function.params]
    twice = next((one for one in every if every.count(one) > 1), None)
    if twice is not None:
        raise UsageError(f"{name}: two parameters are named {twice!r}; rename one")
    names = [str(param.name) for param in weights_of(function)]
    if params is None:
        params = function.attrs["params"] if "params" in function.attrs else None
        params = None if params is None else list(params)
    # detach_params returns a list of weights per function.
    if isinstance(params, Mapping) and name not in names and list(params) == [name]:
        params = params[name]
    if params is None or isinstance(params, Mapping):
        return params
    if isinstance(params, str) or not isinstance(params, Sequence):
        raise UsageError(
            f"{name}: params: expected weights by name or in order, got {type(params).__name__}"
        )
    if len(params) != len(names):
        raise UsageError(
            f"{name}: expected {len(names)} weights ({', '.join(names)}), got {len(params)}"
        )
    return dict(zip(names, params, strict=True))


def _describe(function: relax.Function) -> tuple[tuple[WeightSpec, ...], Signature]:
    """Describe the weights, and the inputs and outputs, of the function."""
    number = int(function.attrs["num_input"])
    flat = list(function.params)[:number]
    counts = []
    for param in weights_of(function):
        is_tuple = isinstance(param.ty, relax.TupleType)
        types = list(param.ty.fields) if is_tuple else [param.ty]
        counts.append((str(param.name), is_tuple, len(types)))
        names = [f"{param.name}.{i}" for i in range(len(types))] if is_tuple else [param.name]
        flat += [relax.Var(name, ty) for name, ty in zip(names, types, strict=True)]
    for param in flat:
        if not isinstance(param.ty, relax.TensorType):
            raise UnsupportedOperatorError(
                f"parameter {param.name!r}: expected a tensor (or a tuple of tensors for a "
                f"weight), got {param.ty}"
            )
    described = describe_function(with_body(function, function.body, flat))
    if described.updates:
        raise UsageError(
            f"a model with lifted weights cannot update its inputs; got {list(described.updates)}"
        )
    rest = iter(described.inputs[number:])
    specs = tuple(
        WeightSpec(name, tuple(next(rest) for _ in range(count)), is_tuple)
        for name, is_tuple, count in counts
    )
    return specs, described._replace(inputs=described.inputs[:number])


def _lazy(mod: tvm.IRModule, transform: str) -> tvm.IRModule:
    """Make the transform get its weights, and set its results, by callbacks."""
    var = mod.get_global_var(transform)
    # In a module of its own: the passes must not see the other functions.
    extracted = tvm.IRModule({var: mod[var]})
    extracted = LazySetOutput()(LazyGetInput()(extracted))
    return _replace_function(mod, transform, extracted[transform])
