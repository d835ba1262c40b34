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
"""Tests that a pass keeps the results of a module."""

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from .attributes import LIFTED
from .errors import UsageError
from .observe.comparison import compare
from .relax.lift.callers import SUFFIX
from .support.tensors import arrays_of, duplicate, to_tvm


def assert_same_results(
    mod: tvm.IRModule,
    pass_: tvm.transform.Pass,
    inputs: Sequence[Any],
    *,
    function: str = "main",
    target: str = "llvm",
    relax_pipeline: str | tvm.transform.Pass = "default",
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Run a module before and after a pass, and compare the results.

    If the pass changes the signature of the function, the second run adapts its arguments: weights
    prepared by the transform of ``LiftTransformParams``, the tuple of ``BundleModelParams``, or
    callbacks for ``LazyGetInput`` and ``LazySetOutput``.  Bound parameters are omitted.

    Parameters
    ----------
    mod : tvm.IRModule
        The module before the pass.
    pass_ : tvm.transform.Pass
        Any pass, or a sequence of passes.
    inputs : sequence of array, or of a list of arrays for a tuple
        The arguments of the function in `mod`, weights among them.
    function : str
        The name of the function.
    target : str
        The target of both builds.
    relax_pipeline : str or tvm.transform.Pass
        The pipeline of both builds.
    rtol, atol : float, optional
        As for :func:`tvm_fixes.observe.comparison.compare`.

    Raises
    ------
    AssertionError
        If an output differs; the message names the pass and the first such output.
    UsageError
        If the number of `inputs` differs from that of the parameters, or if the signature after
        the pass is not supported.
    """
    before = mod[function]
    if len(inputs) != len(before.params):
        names = ", ".join(str(param.name) for param in before.params)
        raise UsageError(
            f"{function}: expected {len(before.params)} inputs ({names}), got {len(inputs)}"
        )
    values = [_to_tvm(value) for value in inputs]
    after = pass_(mod)
    name = pass_.info.name
    expected = arrays_of(_build(mod, target, relax_pipeline)[function](*values))
    vm = _build(after, target, relax_pipeline)
    got = arrays_of(_call_after(vm, mod, after, function, values))
    if len(got) != len(expected):
        raise AssertionError(
            f"{name}: {function}: expected {len(expected)} outputs, got {len(got)}"
        )
    for index, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        comparison = compare(f"output {index}", ours, theirs, rtol=rtol, atol=atol)
        if not comparison.equal:
            error = comparison.max_abs_error
            largest = "" if error is None else f", by up to {error:g}"
            raise AssertionError(
                f"{name}: {function}: output {index} of {len(expected)} differs: "
                f"{comparison.problem}{largest}"
            )


def _build(
    mod: tvm.IRModule, target: str, relax_pipeline: str | tvm.transform.Pass
) -> relax.VirtualMachine:
    return relax.VirtualMachine(relax.build(mod, target, relax_pipeline=relax_pipeline), tvm.cpu())


def _call_after(
    vm: relax.VirtualMachine,
    mod: tvm.IRModule,
    after: tvm.IRModule,
    name: str,
    values: list[Any],
) -> Any:
    """Call the function in `after` with arguments for the one in `mod`."""
    before, changed = mod[name], after[name]
    attrs = before.attrs or {}
    num_inputs = int(attrs["num_input"]) if "num_input" in attrs else len(before.params)
    inputs, weights = values[:num_inputs], values[num_inputs:]
    names = [str(param.name) for param in before.params]
    remaining = [str(param.name) for param in changed.params]
    # The pass bound some parameters.
    if len(set(names)) == len(names) > len(remaining) and set(remaining) <= set(names):
        unbound = [values[names.index(param_name)] for param_name in remaining]
        return _call(vm, changed, name, unbound, [])
    transform = _transform(mod, after, name)
    if transform is not None:
        is_tuple_of_weights = len(weights) == 1 and isinstance(
            before.params[-1].ty, relax.TupleType
        )
        flat = list(weights[0]) if is_tuple_of_weights else weights
        weights = list(_call(vm, after[transform], transform, [], flat))
    return _call(vm, changed, name, inputs, weights)


def _transform(mod: tvm.IRModule, after: tvm.IRModule, name: str) -> str | None:
    """The name of the function that prepares weights, if the pass made one."""
    attrs = after[name].attrs or {}
    old = {str(var.name_hint) for var in mod.get_global_vars()}
    new = {str(var.name_hint) for var in after.get_global_vars()} - old
    if LIFTED in attrs and LIFTED not in (mod[name].attrs or {}):
        return str(attrs[LIFTED]["transform"])
    return next((candidate for candidate in (f"{name}_{SUFFIX}", SUFFIX) if candidate in new), None)


def _call(
    vm: relax.VirtualMachine,
    function: relax.Function,
    name: str,
    inputs: list[Any],
    weights: list[Any],
) -> Any:
    """Call a function with weights as parameters, as a tuple or by callbacks."""
    results: dict[int, Any] = {}

    def store_result(index: int, value: Any) -> None:
        # Copy: the function reuses the memory.
        results[index] = duplicate(value)

    arguments, rest = list(inputs), list(function.params)[len(inputs) :]
    callbacks = [param for param in rest if isinstance(param.ty, relax.FuncType)]
    for param in callbacks:
        if isinstance(param.ty.ret, relax.TupleType):
            arguments.append(tvm.runtime.convert(store_result))
        else:
            arguments.append(tvm.runtime.convert(lambda index, _name: weights[index]))
    has_getter = any(not isinstance(param.ty.ret, relax.TupleType) for param in callbacks)
    rest = rest[len(callbacks) :]
    if not has_getter:
        arguments += _weight_arguments(name, rest, weights)
    elif rest:
        raise UsageError(f"{name}: unsupported signature ({_signature(function)})")
    result = vm[name](*arguments)
    return [results[index] for index in sorted(results)] if results else result


def _weight_arguments(name: str, params: list[relax.Var], weights: list[Any]) -> list[Any]:
    """The weights as arguments for `params`: one by one, or as a tuple."""
    if len(params) == 1 and isinstance(params[0].ty, relax.TupleType):
        fields = list(params[0].ty.fields)
        if len(fields) == len(weights):
            return [weights]
        # A tuple of one tuple.
        if len(fields) == 1 and isinstance(fields[0], relax.TupleType):
            return [[weights]]
    if len(params) != len(weights):
        raise UsageError(
            f"{name}: unsupported signature: expected {len(weights)} weights, got {len(params)} "
            f"({', '.join(str(param.name) for param in params)})"
        )
    return weights


def _signature(function: relax.Function) -> str:
    return ", ".join(str(param.name) for param in function.params)


def _to_tvm(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return list(map(_to_tvm, value))
    return value if isinstance(value, tvm.runtime.Tensor) else to_tvm(value)
