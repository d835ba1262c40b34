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
"""LowerElementaryFunctions: expands exp, log, sin, erf and others, to vectorize them.

Trigger
    ``exp``, ``log``, ``erf``, ``tanh``, ``sigmoid``, ``sin``, ``cos``, ``atan``, ``atan2``, ``pow``
    or a remainder of floats with 32 bits or fewer, on a CPU; gelu, silu, softplus, elu and softmax
    use them. ``round``. ``atanh``, and ``tanh`` of float64; ``acos``,
    ``sinh`` and others of float16, also on a GPU.
Mechanism
    ``tanh`` is lowered to ``(1 - e) / (1 + e)`` with ``e = exp(-2 x)``, whose numerator cancels.
    The other functions become a call of the C library for each element, and LLVM does not vectorize
    a loop with a call.  TVM does not vectorize ``isnan``, nor
    ``nearbyint``, which ``R.round`` becomes.
How to remove
    When TVM passes the tests of this file, delete it, the package
    :mod:`tvm_fixes.tirx.elementary`, their tests, the line in :mod:`tvm_fixes.pipeline` and
    the fix id ``elementary-functions``.
"""

import functools
from collections.abc import Callable, Sequence

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm_ffi import WalkResult, structural_map, structural_walk

from ...fixes.elements import ELEMENTARY_FUNCTIONS as FIX_ID
from ...target.cpu import is_cpu
from ..elementary import FUNCTIONS, IS_OUTSIDE
from ..elementary.expressions import int32, let
from ..library_functions import with_library_functions, with_wide_functions
from ..loop_nest import sequence, substitute
from ..util import contains, is_if_then_else, prim_func_pass, scalarized, widened_bfloat16

_DTYPES = ("float32", "float16", "bfloat16")
_INFINITY_BITS = 0x7F800000
_WIDENED = tuple(
    f"tirx.{name}" for name in ("ceil", "floor", "nearbyint", "round", "rsqrt", "sqrt", "trunc")
)
# The nodes that may be elementary functions.
_APPLICATIONS = (tvm.ir.Call, tirx.Mod)
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def LowerElementaryFunctions() -> tvm.transform.Pass:
    """Expand the elementary functions of a CPU's kernels to polynomials; widen those of a GPU's.

    Before::

        y[i] = T.tanh(x[i])

    and after, in one expression::

        a = T.fabs(x[i])
        small = x[i] * (1 + x[i] * x[i] * (...))
        large = 1 - 2 / (exp(2 * a) + 1)
        y[i] = T.Select(a < 0.625, small, T.Select(x[i] < 0, -large, large))

    The error is less than 0.6 units in the last place of float32 for ``atan`` and ``atan2``, 1 for
    ``log``, 1.1 for ``exp``, 1.6 for ``sin`` and ``cos``, 2 for ``tanh``, 3 for ``sigmoid`` and 4
    for ``erf``; a remainder is exact.  For ``sin`` and ``cos`` of magnitudes above 2^20, and
    remainders with quotients above 2^28, the C library is called: of a vector with such a number,
    for each element.  ``pow`` is expanded if the exponent is 2 or 3, as in PyTorch.
    NaN, infinities and signed zeros are handled.  float16 and bfloat16 are computed in float32;
    float64 is not expanded.  For a GPU, nothing is expanded: the functions that CUDA lacks for
    float16 and bfloat16 are computed in float32.

    Returns
    -------
    tvm.transform.Pass
        A module pass over the PrimFuncs.
    """

    return prim_func_pass("LowerElementaryFunctions", FIX_ID, _lower, any_target=True)


def is_elementary_function(node: tvm.ir.Call | tirx.Mod) -> bool:
    """Whether a call or a remainder expands to dozens of operations, unlike a square or cube."""
    if isinstance(node, tirx.Mod):
        return str(node.ty) in _DTYPES
    return _function_of(node) is not None and _small_power(node) is None


def applies_functions(value: tvm.Object) -> bool:
    """Whether a value applies elementary functions."""
    return contains(value, _APPLICATIONS, is_elementary_function)


def nests_functions(stored: tirx.BufferStore, reader: tvm.Object) -> bool:
    """Whether `reader` applies an elementary function to a stored result of another one.

    Compiling both in one expression takes minutes: TVM's code generator simplifies the value of
    each variable after substituting the values of the variables in it.
    """
    if not applies_functions(stored.value):
        return False

    def reads(argument: tirx.Expr) -> bool:
        return contains(
            argument, tvm.ir.TensorLoad, lambda load: load.source.same_as(stored.buffer)
        )

    def nests(node: tvm.ir.Call | tirx.Mod) -> bool:
        operands = [node.a, node.b] if isinstance(node, tirx.Mod) else node.args
        return is_elementary_function(node) and any(map(reads, operands))

    return contains(reader, _APPLICATIONS, nests)


def repeats_functions(stored: tirx.BufferStore, reader: tvm.Object) -> bool:
    """Whether `reader` compares a stored result of an elementary function, or reads it twice.

    Compiling these in one expression takes as long as for nested functions.
    """
    if not applies_functions(stored.value):
        return False
    reads: list[tvm.ir.TensorLoad] = []

    def look(load: tvm.ir.TensorLoad) -> None:
        if load.source.same_as(stored.buffer):
            reads.append(load)

    def compares(pair: tirx.LT) -> bool:
        count = len(reads)
        structural_walk(pair, (tvm.ir.TensorLoad, look))
        return len(reads) > count

    if contains(reader, _COMPARISONS, compares):
        return True
    structural_walk(reader, (tvm.ir.TensorLoad, look))
    return len(reads) > 1


def _lower(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    if not is_cpu(target):
        return with_wide_functions(function)
    function = structural_map(
        with_library_functions(function),
        [(tvm.ir.Call, _vectorizable), (tirx.Mod, _remainder_call)],
    )
    if not contains(function.body, tvm.ir.Call, lambda call: _function_of(call) is not None):
        return function
    function = _read_as_integers(_without_bfloat16(function, target))
    function = structural_map(function, (tirx.For, _lower_vectors))
    lowered = structural_map(function, (tvm.ir.Call, _lower_call))
    return structural_map(lowered, (tirx.For, _scalarized))


def _vectorizable(call: tvm.ir.Call) -> tirx.Expr:
    """A form of a call that LLVM vectorizes.

    ``round`` for ``nearbyint``, since both round half to even; a quotient for ``rsqrt``; a
    comparison of bits for ``isnan``; float32 for the instructions that many CPUs lack for float16.
    """
    name = call.op.name if isinstance(call.op, tvm.ir.Op) else None
    if name in _WIDENED and str(call.ty) == "float16":
        [operand] = call.args
        in_float32 = tvm.ir.Call(call.op, [operand.astype("float32")], ret_ty="float32")
        return _vectorizable(in_float32).astype("float16")
    if name == "tirx.nearbyint":
        return tirx.round(call.args[0])
    if name == "tirx.rsqrt" and str(call.ty) in ("float32", "float64"):
        return tirx.const(1, str(call.ty)) / tirx.sqrt(call.args[0])
    if name == "tirx.isnan" and str(call.args[0].ty) == "float32":
        bits = tirx.op.bitwise_and(tirx.reinterpret("int32", call.args[0]), int32(2**31 - 1))
        return bits > int32(_INFINITY_BITS)
    return call


def _scalarized(loop: tirx.For) -> tirx.For:
    """Turn a vectorized loop that stores bfloat16 into a scalar loop.

    TVM rounds to bfloat16 by an expression that repeats the value with the variables bound in it,
    and it does not vectorize that.
    """

    def repeats_variables(store: tirx.BufferStore) -> bool:
        value = store.value
        if _is_reinterpret(value):
            value = value.args[0]
        return str(value.ty) == "bfloat16" and contains(value, tirx.Let)

    return scalarized(loop, lambda body: contains(body, tirx.BufferStore, repeats_variables))


def _without_bfloat16(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    """Legalize bfloat16 computations to float32; later, TVM would miss those in a Let's value."""
    is_bound = "target" in function.attrs
    bound = function if is_bound else function.with_attr("target", target)
    legal = tirx.transform.BF16ComputeLegalize()(tvm.IRModule({"main": bound}))["main"]
    return legal if is_bound else legal.without_attr("target")


def _read_as_integers(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Read and store bfloat16 buffers as uint16, except parameters and parts of them.

    In the value of a Let, TVM misses that it has replaced a bfloat16 buffer by integers, and would
    convert the integers to floats.
    """
    kept = list(function.params)

    def keep(part: s_tir.MatchBufferRegion) -> None:
        if part.source.source in kept:
            kept.append(part.buffer)

    structural_walk(function.body, (s_tir.MatchBufferRegion, keep))
    integers: dict[tirx.Var, tirx.Var] = {}

    def look(buffer: tirx.Var) -> None:
        if str(buffer.dtype) == "bfloat16" and buffer not in kept:
            if buffer not in integers:
                integers[buffer] = tirx.decl_buffer(
                    buffer.shape, "uint16", buffer.name, scope=buffer.scope()
                )

    structural_walk(function.body, (tvm.ir.TensorLoad, lambda load: look(load.source)))
    structural_walk(function.body, (tirx.BufferStore, lambda store: look(store.buffer)))

    def load(old: tvm.ir.TensorLoad) -> tirx.Expr:
        if old.source not in integers:
            return old
        return tirx.reinterpret(str(old.ty), tirx.BufferLoad(integers[old.source], old.indices))

    def store(old: tirx.BufferStore) -> tirx.Stmt:
        if old.buffer not in integers:
            return old
        bits = tirx.reinterpret(str(old.value.ty).replace("bfloat16", "uint16"), old.value)
        return tirx.BufferStore(integers[old.buffer], bits, old.indices)

    def widen(old: tirx.Cast) -> tirx.Expr:
        is_widening = str(old.ty) == "float32" and str(old.value.ty) == "bfloat16"
        return widened_bfloat16(old.value) if is_widening else old

    function = structural_map(function, (tvm.ir.TensorLoad, load))
    function = structural_map(function, (tirx.BufferStore, store))
    function = structural_map(function, (tirx.Cast, widen))
    return structural_map(function, (tirx.Var, lambda var: integers.get(var, var)))


def _is_reinterpret(value: tirx.Expr) -> bool:
    return (
        isinstance(value, tvm.ir.Call)
        and isinstance(value.op, tvm.ir.Op)
        and value.op.name == "tirx.reinterpret"
    )


def _function_of(call: tvm.ir.Call) -> Callable[..., tirx.Expr] | None:
    if not isinstance(call.op, tvm.ir.Op) or str(call.ty) not in _DTYPES:
        return None
    return _small_power(call) or FUNCTIONS.get(call.op.name)


def _small_power(call: tvm.ir.Call) -> Callable[..., tirx.Expr] | None:
    """A power as products; None for other exponents and functions."""
    if call.op.name != "tirx.pow" or not isinstance(call.args[1], tirx.FloatImm):
        return None
    return _POWERS.get(call.args[1].value)


def _remainder_call(remainder: tirx.Mod) -> tirx.Expr:
    if str(remainder.ty) not in _DTYPES:
        return remainder
    return tirx.fmod(remainder.a, remainder.b)


def _lower_call(call: tvm.ir.Call) -> tirx.Expr:
    """Expand a call; for arguments that the expansion does not cover, call the C library."""
    inside = _lower_inside(call)
    is_outside = None if inside.same_as(call) else IS_OUTSIDE.get(call.op.name)
    if is_outside is None:
        return inside
    arguments = _wide_arguments(call)
    if call.op.name == "tirx.fmod":
        # TVM compiles the call only in this form.
        library = tirx.truncmod(*arguments)
    else:
        library = tvm.ir.Call(call.op, arguments, ret_ty="float32")
    return tirx.if_then_else(is_outside(*arguments), library.astype(str(call.ty)), inside)


def _lower_inside(call: tvm.ir.Call) -> tirx.Expr:
    """Expand a call, for the arguments that the expansion covers."""
    function = _function_of(call)
    if function is None:
        return call

    def bind(unbound: Sequence[tirx.Expr], bound: Sequence[tirx.Expr]) -> tirx.Expr:
        if not unbound:
            return function(*bound)
        first, *others = unbound
        if isinstance(first, tirx.FloatImm):
            return bind(others, [*bound, first])
        return let(first, lambda var: bind(others, [*bound, var]))

    return bind(_wide_arguments(call), []).astype(str(call.ty))


def _wide_arguments(call: tvm.ir.Call) -> list[tirx.Expr]:
    return [argument.astype("float32") for argument in call.args]


def _lower_vectors(loop: tirx.For) -> tirx.Stmt:
    """Expand the functions in a vectorized loop, and compute it one by one if that needs calls.

    TVM does not vectorize a choice between an expansion and a call.
    """
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(loop.body, tirx.BufferStore):
        return loop
    conditions = _conditions(loop.body.value)
    if not conditions:
        return loop
    is_outside = tirx.decl_buffer([1], "int32", "is_outside")
    zero = tirx.const(0, "int64")

    def collect(condition: tirx.Expr) -> tirx.Stmt:
        so_far = tirx.BufferLoad(is_outside, [zero])
        return tirx.BufferStore(
            is_outside, tirx.op.bitwise_or(so_far, condition.astype("int32")), [zero]
        )

    def serial(body: tirx.Stmt) -> tirx.For:
        lane = tirx.Var(loop.loop_var.name, loop.loop_var.ty)
        return tirx.For(
            lane,
            loop.min,
            loop.extent,
            tirx.ForKind.SERIAL,
            substitute(body, {loop.loop_var: lane}),
        )

    return tirx.SeqStmt(
        [
            tirx.AllocBuffer(is_outside),
            tirx.BufferStore(is_outside, tirx.const(0, "int32"), [zero]),
            serial(sequence(map(collect, conditions))),
            tirx.IfThenElse(
                tirx.BufferLoad(is_outside, [zero]) == tirx.const(0, "int32"),
                structural_map(loop, (tvm.ir.Call, _lower_inside)),
                serial(loop.body),
            ),
        ]
    )


def _conditions(value: tirx.Expr) -> list[tirx.Expr]:
    """When the expansions in a value are inaccurate; of a choice, those of the branch it takes."""
    found: list[tirx.Expr] = []

    def add(condition: tirx.Expr) -> None:
        if not any(tvm_ffi.structural_equal(condition, known) for known in found):
            found.append(condition)

    def look(call: tvm.ir.Call) -> WalkResult | None:
        if is_if_then_else(call):
            condition, *branches = call.args
            for inner in _conditions(condition):
                add(inner)
            sides = [_any(_conditions(branch)) for branch in branches]
            if any(side is not None for side in sides):
                false = tirx.const(False, "bool")
                sides = [false if side is None else side for side in sides]
                add(tirx.if_then_else(condition, *sides))
            return WalkResult.SKIP
        if isinstance(call.op, tvm.ir.Op) and call.op.name in IS_OUTSIDE and _function_of(call):
            add(IS_OUTSIDE[call.op.name](*_wide_arguments(call)))
        return None

    structural_walk(value, (tvm.ir.Call, look), order="pre")
    return found


def _any(conditions: Sequence[tirx.Expr]) -> tirx.Expr | None:
    return functools.reduce(tirx.any, conditions) if conditions else None


_POWERS: dict[float, Callable[[tirx.Expr, tirx.Expr], tirx.Expr]] = {
    2.0: lambda x, _: x * x,
    3.0: lambda x, _: x * x * x,
}
