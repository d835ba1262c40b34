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
"""Probes of the verifier: ill-formed modules that TVM's check accepts, and two that crash it."""

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type,no-untyped-def"

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
import tvm.te
import tvm.topi
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from .. import compiler
from ..errors import VerifyError
from ..fixes.verifier import (
    ATTRIBUTES,
    CALL_TIR,
    FUNCTIONS,
    OPERATORS,
    PRIM_FUNC,
    RUNTIME_CHECKS,
    TYPES,
    VERIFIER,
)
from ..lowering import pipeline as tvm_fixes_pipeline
from ..verifier import verify
from .probe import Probe, register

ModuleMaker = Callable[[], tvm.IRModule]
"""Makes an ill-formed module."""


def _register(
    fix_id: str, makers: Sequence[ModuleMaker], symptom: str = "AssertionError: accepted"
) -> None:
    """Register a probe that runs TVM's check and ours on ill-formed modules."""

    def stock() -> None:
        accepted = [make.__name__ for make in makers if relax.analysis.check_well_formed(make())]
        assert not accepted, f"accepted: {', '.join(accepted)}"

    def fixed() -> None:
        accepted = [
            make.__name__
            for make in makers
            if not any(found.severity == "error" for found in verify(make()))
        ]
        assert not accepted, f"accepted: {', '.join(accepted)}"

    register(fix_id, Probe(stock, fixed, re.compile(symptom)))


def _tensor(*shape: object, dtype: str = "float32") -> relax.TensorType:
    return relax.TensorType(shape, dtype)


def _var(name: str, *shape: object, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, _tensor(*shape, dtype=dtype))


def _with_type(expr: relax.Expr, ty: tvm.ir.Type) -> relax.Expr:
    """Set the type of a new expression; TVM does not check it."""
    tvm_ffi.get_global_func("relax.UpdateType")(expr, ty)
    return expr


def _main(
    params: Sequence[relax.Var],
    values: Sequence[tuple[relax.Var, relax.Expr] | relax.Binding],
    result: relax.Expr,
    ret: tvm.ir.Type | None = None,
) -> tvm.IRModule:
    """A module of one function that binds `values` without normalization, and returns `result`."""
    bindings = [
        value if isinstance(value, relax.Binding) else relax.VarBinding(*value) for value in values
    ]
    body = relax.SeqExpr([relax.BindingBlock(bindings)], result)
    _with_type(body, result.ty)
    function = relax.Function(params, body, ret or result.ty)
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def _call(name: str, *args: relax.Expr, attrs: tvm.ir.Attrs | None, ty: tvm.ir.Type) -> relax.Call:
    return _with_type(relax.Call(tvm.ir.Op.get(name), list(args), attrs), ty)


# Calls of PrimFuncs.


def callee_is_a_relax_function() -> tvm.IRModule:
    """The result is uninitialized memory."""

    @I.ir_module(check_well_formed=False)
    class Module:
        @R.function(private=True)
        def first(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")) -> R.Tensor(
            (4,), "float32"
        ):
            return a

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            y = R.call_tir(cls.first, (x,), out_ty=R.Tensor((4,), "float32"))
            return y

    return Module


def overwritten_input_is_used() -> tvm.IRModule:
    """The sum reads the input after the call has overwritten it."""

    @I.ir_module(check_well_formed=False)
    class Module:
        @T.prim_func(private=True)
        def increment(A: T.Buffer((4,), "float32")):
            for i in range(4):
                A[i] = A[i] + T.float32(1)

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            a = R.add(x, x)
            b = R.call_tir_inplace(cls.increment, (a,), [0], out_ty=R.Tensor((4,), "float32"))
            c = R.add(a, b)
            return c

    return Module


def _relu(batch: int) -> tvm.tirx.PrimFunc:
    data = tvm.te.placeholder((batch, 8, 4, 4), "float32")
    return tvm.te.create_prim_func([data, tvm.topi.nn.relu(data)]).without_attr("global_symbol")


def callee_was_replaced() -> tvm.IRModule:
    """The type of the GlobalVar is that of the replaced function."""
    builder = relax.BlockBuilder()
    x, w = _var("x", 1, 8, 4, 4), _var("w", 8, 8, 1, 1)
    with builder.function("main", [x, w]):
        y = builder.emit(relax.op.nn.conv2d(x, w))
        relu = builder.add_func(_relu(1), "relu")
        builder.emit_func_output(builder.emit(relax.call_tir(relu, (y,), y.ty)))
    mod = builder.get()
    mod[relu] = _relu(64)
    return mod


def one_symbol_for_two_extents() -> tvm.IRModule:
    """Both buffers have n elements, but one argument has 4 and the other 5."""

    @I.ir_module(check_well_formed=False)
    class Module:
        @T.prim_func(private=True)
        def add(a: T.handle, b: T.handle, c: T.handle):
            n = T.int64()
            A = T.match_buffer(a, (n,), "float32")
            B = T.match_buffer(b, (n,), "float32")
            C = T.match_buffer(c, (n,), "float32")
            for i in range(n):
                C[i] = A[i] + B[i]

        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((5,), "float32")) -> R.Tensor(
            (4,), "float32"
        ):
            cls = Module
            z = R.call_tir(cls.add, (x, y), out_ty=R.Tensor((4,), "float32"))
            return z

    return Module


# The types of values.


def result_has_another_type() -> tvm.IRModule:
    """The function declares two rows, but returns four."""
    x = _var("x", 4)
    return _main([x], [], x, ret=_tensor(2))


def field_has_another_type() -> tvm.IRModule:
    x, y = _var("x", 4), _var("y", 8)
    pair = relax.Var("pair")
    item = _with_type(relax.TupleGetItem(pair, 0), y.ty)
    values = [(pair, relax.Tuple([x, x])), (y, item)]
    _with_type(pair, relax.TupleType([x.ty, x.ty]))
    return _main([x], values, y)


def tuple_has_another_type() -> tvm.IRModule:
    x = relax.Var("x")
    pair = _with_type(relax.Tuple([x]), relax.TupleType([_tensor(8)]))
    _with_type(x, _tensor(4))
    y = relax.Var("y", pair.ty)
    return _main([x], [(y, pair)], y)


def constant_has_another_type() -> tvm.IRModule:
    y = _var("y", 3)
    constant = tvm.ir.GenericConst(tvm.runtime.tensor(np.zeros(2, "float32")), y.ty)
    return _main([], [(y, constant)], y)


def shape_is_hidden_by_a_dtype() -> tvm.IRModule:
    """The dtype of x is unknown, but three rows are never four."""
    x = relax.Var("x", relax.TensorType((3,), None))
    y = _var("y", 4)
    return _main([x], [(y, _call("relax.nn.relu", x, attrs=None, ty=y.ty))], y)


def cast_never_succeeds() -> tvm.IRModule:
    x, y = _var("x", 4), _var("y", 5)
    return _main([x], [relax.MatchCast(y, x, y.ty)], y)


def extent_is_negative() -> tvm.IRModule:
    x = _var("x", -4)
    return _main([x], [], x)


def condition_is_not_boolean() -> tvm.IRModule:
    @I.ir_module(check_well_formed=False)
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((2,), "bool")) -> R.Tensor(
            (4,), "float32"
        ):
            if c:
                y = R.add(x, x)
            else:
                y = R.multiply(x, x)
            return y

    return Module


def branches_differ() -> tvm.IRModule:
    c, x, y, z = _var("c", dtype="bool"), _var("x", 4), _var("y", 8), _var("z", 4)
    branches = [_with_type(relax.SeqExpr([], branch), branch.ty) for branch in (x, y)]
    return _main([c, x, y], [(z, _with_type(relax.If(c, *branches), z.ty))], z)


def sequence_has_another_type() -> tvm.IRModule:
    """The result has four rows, but the type of the body has eight."""
    x = _var("x", 4)
    body = _with_type(relax.SeqExpr([], x), _tensor(8))
    function = relax.Function([x], body, body.ty)
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def shape_is_hidden_by_a_device() -> tvm.IRModule:
    """The device of x is unknown, but three rows are never four."""
    x = _var("x", 3)
    y = relax.Var("y", relax.TensorType((4,), "float32", relax.VDevice("llvm")))
    return _main([x], [(y, _call("relax.nn.relu", x, attrs=None, ty=y.ty))], y)


# Functions of the module.


def callee_takes_another_type() -> tvm.IRModule:
    """The callee was replaced by a function with another signature."""

    @I.ir_module(check_well_formed=False)
    class Module:
        @R.function(private=True)
        def callee(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return x

        @R.function(private=True)
        def other(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            return x

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            y = cls.callee(x)
            return y

    mod: Any = Module
    mod[mod.get_global_var("callee")] = mod["other"]
    del mod["other"]
    return mod


def symbols_of_a_library_are_equal() -> tvm.IRModule:
    @I.ir_module(check_well_formed=False)
    class Module:
        @T.prim_func(private=True)
        def f(A: T.Buffer((4,), "float32")):
            A[0] = T.float32(0)

        @T.prim_func(private=True)
        def g(A: T.Buffer((4,), "float32")):
            A[0] = T.float32(1)

    mod: Any = Module
    return tvm.IRModule(
        {
            var: function.with_attr("global_symbol", "same")
            for var, function in mod.functions_items()
        }
    )


# Operators.


def index_is_out_of_range() -> tvm.IRModule:
    x, y = _var("x", 4), _var("y", 1)
    take = _with_type(relax.op.take(x, relax.const([9], "int64"), axis=0), y.ty)
    return _main([x], [(y, take)], y)


def gathered_index_is_out_of_range() -> tvm.IRModule:
    x, y = _var("x", 4), _var("y", 1)
    gather = relax.op.gather_elements(x, relax.const([9], "int64"), axis=0)
    return _main([x], [(y, _with_type(gather, y.ty))], y)


def scattered_index_is_out_of_range() -> tvm.IRModule:
    x, update, y = _var("x", 4), _var("update", 1), _var("y", 4)
    scatter = relax.op.scatter_elements(x, relax.const([9], "int64"), update, axis=0)
    return _main([x, update], [(y, _with_type(scatter, y.ty))], y)


def inner_extents_differ() -> tvm.IRModule:
    """A matrix product of n columns and n + 1 rows."""
    n = tvm.tirx.Var("n", "int64")
    x, w, y = _var("x", 3, n), _var("w", n + 1, 4), _var("y", 3, 4)
    return _main([x, w], [(y, _with_type(relax.op.matmul(x, w), y.ty))], y)


# Modules that crash TVM's check.


def attributes_are_missing() -> tvm.IRModule:
    x, y = _var("x", 4), _var("y", 8)
    pair = relax.Tuple([x, x])
    return _main([x], [(y, _call("relax.concat", pair, attrs=None, ty=y.ty))], y)


def attributes_are_of_another_operator() -> tvm.IRModule:
    x, w, y = _var("x", 1, 8, 4, 4), _var("w", 8, 8, 1, 1), _var("y", 1, 8, 4, 4)
    attrs = relax.op.nn.softmax(x).attrs
    return _main([x, w], [(y, _call("relax.nn.conv2d", x, w, attrs=attrs, ty=y.ty))], y)


# PrimFuncs.


def store_is_out_of_bounds() -> tvm.IRModule:
    @I.ir_module(check_well_formed=False)
    class Module:
        @T.prim_func(private=True)
        def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                B[i + 1] = A[i]

    return Module


def loop_is_longer_than_the_buffer() -> tvm.IRModule:
    @I.ir_module(check_well_formed=False)
    class Module:
        @T.prim_func(private=True)
        def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(8):
                B[i] = A[i]

    return Module


def domain_is_smaller_than_the_loop() -> tvm.IRModule:
    @I.ir_module(check_well_formed=False)
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                with T.sblock("copy"):
                    v = T.axis.spatial(4, i)
                    B[v] = A[v]

    return Module


_register(
    CALL_TIR,
    [
        callee_is_a_relax_function,
        overwritten_input_is_used,
        callee_was_replaced,
        one_symbol_for_two_extents,
    ],
)
_register(
    TYPES,
    [
        result_has_another_type,
        field_has_another_type,
        tuple_has_another_type,
        constant_has_another_type,
        shape_is_hidden_by_a_dtype,
        cast_never_succeeds,
        extent_is_negative,
        condition_is_not_boolean,
        branches_differ,
        sequence_has_another_type,
        shape_is_hidden_by_a_device,
    ],
)
_register(FUNCTIONS, [callee_takes_another_type, symbols_of_a_library_are_equal])
_register(
    OPERATORS,
    [
        index_is_out_of_range,
        gathered_index_is_out_of_range,
        scattered_index_is_out_of_range,
        inner_extents_differ,
    ],
)


def _check_rejected(build: Callable[[tvm.IRModule, str], object]) -> None:
    try:
        build(callee_is_a_relax_function(), "llvm")
    except VerifyError:
        return
    raise AssertionError("an ill-formed module was built")


register(
    VERIFIER,
    Probe(
        stock=lambda: _check_rejected(relax.build),
        fixed=lambda: _check_rejected(compiler.build),
        symptom=re.compile("AssertionError: an ill-formed module was built"),
    ),
)


def _reshape_of_fifteen() -> tuple[tvm.IRModule, list[tuple[int, ...]]]:
    n = tvm.tirx.Var("n", "int64")
    x, y = _var("x", 3, n), _var("y", 4, 3)
    reshape = _call("relax.reshape", x, relax.ShapeExpr([4, 3]), attrs=None, ty=y.ty)
    return _main([x], [(y, reshape)], y), [(3, 5)]


def _product_of_five_and_three() -> tuple[tvm.IRModule, list[tuple[int, ...]]]:
    k, j = (tvm.tirx.Var(name, "int64") for name in "kj")
    x, w, y = _var("x", 4, k), _var("w", j, 4), _var("y", 4, 4)
    return _main([x, w], [(y, _with_type(relax.op.matmul(x, w), y.ty))], y), [(4, 5), (3, 4)]


def _convolution_of_five_channels() -> tuple[tvm.IRModule, list[tuple[int, ...]]]:
    c, d = (tvm.tirx.Var(name, "int64") for name in "cd")
    x, w, y = _var("x", 1, c, 4, 4), _var("w", 2, d, 1, 1), _var("y", 1, 2, 4, 4)
    conv = _with_type(relax.op.nn.conv2d(x, w), y.ty)
    return _main([x, w], [(y, conv)], y), [(1, 5, 4, 4), (2, 3, 1, 1)]


def _run_unequal(pipeline: tvm.transform.Pass) -> None:
    """Run modules whose extents violate the requirements of an operator only at run time."""
    unnoticed = []
    for make in (_reshape_of_fifteen, _product_of_five_and_three, _convolution_of_five_channels):
        mod, shapes = make()
        executable = tvm.relax.build(mod, "llvm", relax_pipeline=pipeline)
        machine = relax.VirtualMachine(executable, tvm.cpu())
        try:
            machine["main"](*(tvm.runtime.tensor(np.zeros(s, "float32")) for s in shapes))
        except AssertionError as error:
            assert "expected" in str(error)
        else:
            unnoticed.append(make.__name__)
    if unnoticed:
        raise AssertionError(f"no error: {', '.join(unnoticed)}")


register(
    RUNTIME_CHECKS,
    Probe(
        stock=lambda: _run_unequal(relax.get_pipeline("default")),
        fixed=lambda: _run_unequal(tvm_fixes_pipeline(runtime_checks=True)),
        symptom=re.compile("AssertionError: no error: _reshape_of_fifteen|SIGSEGV"),
    ),
)
_register(
    ATTRIBUTES,
    [attributes_are_missing, attributes_are_of_another_operator],
    "SIGSEGV|AssertionError: accepted",
)
_register(
    PRIM_FUNC,
    [store_is_out_of_bounds, loop_is_longer_than_the_buffer, domain_is_smaller_than_the_loop],
)
