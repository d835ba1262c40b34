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
"""Probes of growing constants, and of lifted weights."""

import math
import re

import numpy as np
import tvm
from tvm import relax

from ..fixes.weights import (
    BROADCAST_FREE_MATMUL,
    FOLD_CONSTANT,
    LIFT_TRANSFORM_PARAMS,
    LIFTED_PARAMS,
)
from ..lowering import pipeline
from ..relax import transform
from ..relax.analysis import bindings
from ..relax.constants.provenance import constants_of
from ..relax.ir import relax_functions
from ._run import lower
from .probe import Probe, register


def _constant_elements(mod: tvm.IRModule) -> int:
    return sum(math.prod(tensor.shape) for tensor in constants_of(mod))


def _largest_result(mod: tvm.IRModule) -> int:
    """The number of elements of the largest value in the module."""
    types = [
        binding.var.ty
        for function in relax_functions(mod).values()
        for binding in bindings(function)
    ]
    shapes = [list(ty.shape) for ty in types if isinstance(ty, relax.TensorType)]
    return max(math.prod(map(int, shape)) for shape in shapes)


def _module(
    x: tuple[int, ...], weight: tuple[int, ...], wide: tuple[int, ...], op: str
) -> tvm.IRModule:
    """A module of ``op(x, broadcast_to(weight))`` with a constant weight."""
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType(x, "float32"))
    values = np.random.default_rng(0).standard_normal(weight, "float32")
    with builder.function("main", [data]):
        with builder.dataflow():
            repeated = builder.emit(relax.op.broadcast_to(relax.const(values), wide))
            out = builder.emit_output(getattr(relax.op, op)(data, repeated))
        builder.emit_func_output(out)
    return builder.get()


def _matmul_with_repeated_weight(relax_pipeline: tvm.transform.Pass) -> None:
    mod = lower(_module((16, 7, 64), (64, 96), (16, 64, 96), "matmul"), relax_pipeline)
    largest = max(_largest_result(mod), _constant_elements(mod))
    assert largest <= 16 * 7 * 96, f"the weight takes {largest} elements instead of {64 * 96}"


register(
    BROADCAST_FREE_MATMUL,
    Probe(
        stock=lambda: _matmul_with_repeated_weight(relax.get_pipeline("zero")),
        fixed=lambda: _matmul_with_repeated_weight(pipeline()),
        symptom=re.compile("AssertionError: the weight takes 98304 elements instead of 6144"),
    ),
)


def _add_repeated(relax_pipeline: tvm.transform.Pass) -> None:
    mod = lower(_module((256, 64, 64), (64, 64), (256, 64, 64), "add"), relax_pipeline)
    constants = _constant_elements(mod)
    assert constants <= 64 * 64, f"the constants have {constants} elements instead of {64 * 64}"


register(
    FOLD_CONSTANT,
    Probe(
        stock=lambda: _add_repeated(relax.get_pipeline("zero")),
        fixed=lambda: _add_repeated(pipeline()),
        symptom=re.compile("AssertionError: the constants have 1048576 elements instead of 4096"),
    ),
)


def _call_lifted_function(lift: tvm.transform.Pass) -> None:
    """``caller`` calls ``main``, which lifts the transpose of its weight."""
    builder = relax.BlockBuilder()
    matrix = relax.TensorType((2, 2), "float32")
    x, w = relax.Var("x", matrix), relax.Var("w", matrix)
    with builder.function("main", [x, w], attrs={"num_input": 1}):
        with builder.dataflow():
            transposed = builder.emit(relax.op.permute_dims(w))
            out = builder.emit_output(relax.op.matmul(x, transposed))
        main = builder.emit_func_output(out)
    x, w = relax.Var("x", matrix), relax.Var("w", matrix)
    with builder.function("caller", [x, w]):
        builder.emit_func_output(builder.emit(relax.Call(main, [x, w])))
    vm = relax.VirtualMachine(relax.build(lift(builder.get()), "llvm"), tvm.cpu())
    values = np.array([[1, 2], [3, 4]], "float32"), np.array([[0, 10], [0, 0]], "float32")
    got = vm["caller"](*map(tvm.runtime.tensor, values)).numpy()
    difference = np.abs(got - values[0] @ values[1].T).max()
    assert difference == 0, f"the caller is wrong by {difference:g}"


register(
    LIFT_TRANSFORM_PARAMS,
    Probe(
        stock=lambda: _call_lifted_function(relax.transform.LiftTransformParams()),
        fixed=lambda: _call_lifted_function(transform.LiftTransformParams()),
        symptom=re.compile("AssertionError: the caller is wrong by 40"),
    ),
)


def _bundle_lifted_weights(bundle: tvm.transform.Pass) -> None:
    builder = relax.BlockBuilder()
    x, w = (relax.Var(name, relax.TensorType((2, 2), "float32")) for name in "xw")
    with builder.function("main", [x, w], attrs={"num_input": 1}):
        with builder.dataflow():
            transposed = builder.emit(relax.op.permute_dims(w))
            out = builder.emit_output(relax.op.matmul(x, transposed))
        builder.emit_func_output(out)
    mod = bundle(transform.LiftTransformParams()(builder.get()))
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    value = tvm.runtime.tensor(np.array([[1, 2], [3, 4]], "float32"))
    got = vm["main"](value, vm["main_transform_params"]([value])).numpy()
    np.testing.assert_array_equal(got, [[5, 11], [11, 25]])


register(
    LIFTED_PARAMS,
    Probe(
        stock=lambda: _bundle_lifted_weights(relax.transform.BundleModelParams()),
        fixed=lambda: _bundle_lifted_weights(transform.BundleModelParams()),
        symptom=re.compile("TypeError"),
    ),
)
