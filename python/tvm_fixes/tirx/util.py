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
"""Helpers for passes and schedules of PrimFuncs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard, TypeVar

import tvm
from tvm import te, tirx
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm_ffi import structural_walk

from ..support import switches
from ..target.cpu import is_cpu

Node = TypeVar("Node", bound=tvm.Object)

OPAQUE = 8
"""The pattern kind of kernels that TVM does not fuse."""


_BLOCK_PARTS = (
    *("iter_vars", "reads", "writes", "name_hint", "body", "init"),
    *("alloc_buffers", "match_buffers", "annotations"),
)


def prim_func_pass(
    name: str,
    fix_id: str,
    rewrite: Callable[[tirx.PrimFunc, tvm.target.Target], tirx.PrimFunc],
    *,
    any_target: bool = False,
    check: Callable[[tvm.IRModule], None] | None = None,
) -> tvm.transform.Pass:
    """Make a module pass over the PrimFuncs for a CPU: of a GPU's module, those of the host.

    Parameters
    ----------
    fix_id : str
        The fix that the pass implements; while it is off, the pass changes nothing.
    rewrite : callable
        Takes a PrimFunc and the target, and returns a new PrimFunc or the same one.
    any_target : bool
        Whether the pass also runs for targets that are not CPUs.
    check : callable, optional
        Raises an error for a module that the pass rejects.

    Returns
    -------
    tvm.transform.Pass
        A pass that returns the same module if nothing is rewritten.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        target = tvm.target.Target.current(allow_none=True)
        if not switches.enabled(fix_id) or target is None:
            return mod
        if check is not None:
            check(mod)
        rewritten = {}
        for variable, function in mod.functions_items():
            if not isinstance(function, tirx.PrimFunc):
                continue
            of_function = _target_of(function, target)
            if any_target or is_cpu(of_function):
                new = rewrite(function, of_function)
                if not new.same_as(function):
                    rewritten[variable] = new
        if not rewritten:
            return mod
        switches.note(fix_id)
        return tvm.IRModule({**dict(mod.functions_items()), **rewritten}, attrs=mod.attrs)

    return tvm.transform.module_pass(run, opt_level=0, name=name)


def _target_of(function: tirx.PrimFunc, target: tvm.target.Target) -> tvm.target.Target:
    """The target that compiles a function: the host's for one that computes shapes."""
    if not (function.attrs and function.attrs.get("tirx.is_host_func")):
        return target
    return target if is_cpu(target) else target.host or tvm.target.Target("llvm")


def contains(
    node: tvm.Object,
    kind: type[Node] | tuple[type[Node], ...],
    predicate: Callable[[Node], bool] = lambda _: True,
) -> bool:
    """Whether `node` contains a node of a kind, or of one of several, that meets `predicate`."""
    found: list[bool] = []
    structural_walk(node, (kind, lambda inner: found.append(predicate(inner))))
    return any(found)


def values_of(extents: Iterable[tirx.Expr]) -> tuple[int, ...] | None:
    """The values of extents; None if one is symbolic."""
    known = list(extents)
    is_static = all(isinstance(extent, tirx.IntImm) for extent in known)
    return tuple(extent.value for extent in known) if is_static else None


def count_of(extents: Iterable[tirx.Expr]) -> tirx.Expr:
    """The product of extents as an int64."""
    count: tirx.Expr = tirx.const(1, "int64")
    for extent in extents:
        count = count * extent.astype("int64")
    return Analyzer().simplify(count)


def with_parts(block: SBlock, **parts: Any) -> SBlock:
    """A block with the named parts replaced."""
    return SBlock(**{name: getattr(block, name) for name in _BLOCK_PARTS} | parts)


def extern(
    name: str,
    operands: Sequence[te.Tensor],
    shape: Sequence[tirx.Expr],
    dtype: str,
    body: Callable[[Sequence[tirx.Buffer], Sequence[tirx.Buffer]], tirx.Stmt],
) -> te.Tensor:
    """A tensor that `body` computes from the operands' buffers into the result's buffer.

    Like those of ``te.compute``, and unlike those of ``te.extern``, the buffers have no layout:
    kernels fuse only if their buffers agree in that.
    """
    return te.extern(
        [shape],
        operands,
        body,
        dtype=[dtype],
        in_buffers=[
            tirx.decl_buffer(operand.shape, operand.dtype, operand.op.name, layout=None)
            for operand in operands
        ],
        out_buffers=[tirx.decl_buffer(shape, dtype, name, layout=None)],
        name=name,
    )


def assertion_failure(message: str, *values: tirx.Expr) -> tirx.Stmt:
    """A statement that raises an ``AssertionError`` in a CPU kernel.

    `message` has a ``{}`` for each of `values`.
    """
    call = tirx.call_packed("relax.run.assert_op", tirx.const(False, "bool"), message, *values)
    return tirx.Evaluate(call)


def checked_copy(name: str, source: te.Tensor, checks: Sequence[tirx.Stmt]) -> te.Tensor:
    """A copy of `source`, made after `checks`, which may raise."""

    def body(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        index, zero = tirx.Var("i", "int64"), tirx.const(0, "int64")
        position = unravel(index, source.shape)
        copy = tirx.BufferStore(outs[0], tirx.BufferLoad(ins[0], position), position)
        loop = tirx.For(index, zero, count_of(source.shape), tirx.ForKind.SERIAL, copy)
        return tirx.SeqStmt([*checks, loop])

    return extern(name, [source], source.shape, str(source.dtype), body)


def scalarized(loop: tirx.For, is_needed: Callable[[tirx.Stmt], bool]) -> tirx.For:
    """Turn a vectorized loop into a scalar one if its body needs that; return others unchanged."""
    if loop.kind != tirx.ForKind.VECTORIZED or not is_needed(loop.body):
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)


def is_positive(extent: tirx.Expr) -> bool:
    """Whether an extent is provably positive."""
    return bool(Analyzer().can_prove(extent > 0))


def is_zero(extent: tirx.Expr) -> bool:
    """Whether an extent is the constant 0."""
    return isinstance(extent, tirx.IntImm) and extent.value == 0


def is_one(extent: tirx.Expr) -> bool:
    """Whether TVM proves that an extent is 1."""
    return bool(Analyzer().can_prove_equal(extent, 1))


def factor_of(whole: tirx.Expr, part: tirx.Expr) -> int | None:
    """The positive integer f such that ``part * f == whole``; None if TVM cannot prove one."""
    analyzer = Analyzer()
    factor = None if is_zero(part) else analyzer.simplify(tirx.floordiv(whole, part))
    if not isinstance(factor, tirx.IntImm) or factor.value < 1:
        return None
    return factor.value if analyzer.can_prove_equal(whole, part * factor) else None


def is_if_then_else(value: object) -> TypeGuard[tvm.ir.Call]:
    """Whether a value is a choice that computes only one of its branches."""
    return (
        isinstance(value, tvm.ir.Call)
        and isinstance(value.op, tvm.ir.Op)
        and value.op.name == "prim.if_then_else"
    )


def divides(divisor: int, extent: tirx.Expr) -> bool:
    """Whether TVM proves that an extent is a multiple of `divisor`."""
    return bool(Analyzer().can_prove_equal(tirx.floormod(extent, divisor), 0))


def broadcast_position(
    position: Sequence[tirx.Expr], extents: Sequence[tirx.Expr]
) -> list[tirx.Expr]:
    """The indices, in a tensor of shape `extents`, of the element that broadcasts to `position`.

    Axes of extent 1 are repeated, and so is the whole tensor along additional leading axes.
    """
    own = position[len(position) - len(extents) :]
    return [
        tirx.const(0, "int64") if is_one(extent) else index
        for index, extent in zip(own, extents, strict=True)
    ]


def item_bytes_of(buffer: tirx.Buffer) -> int:
    """The size of an element, or a lane of one, in whole bytes; 0 if several share a byte."""
    return int(tvm.DataType(str(buffer.dtype)).bits) // 8


def bytes_of(buffer: tirx.Buffer) -> int:
    """The size of a buffer in bytes; 0 if it is unknown."""
    count, lanes = count_of(buffer.shape), int(tvm.DataType(str(buffer.dtype)).lanes)
    return count.value * lanes * item_bytes_of(buffer) if isinstance(count, tirx.IntImm) else 0


def unravel(index: tirx.Expr, shape: Sequence[tirx.Expr]) -> list[tirx.Expr]:
    """The position in `shape` of the element at row-major index `index`."""
    position: list[tirx.Expr] = []
    for extent in reversed(shape[1:]):
        if is_zero(extent):
            extent = tirx.const(1, "int64")  # avoid dividing by 0: no element is accessed
        position.insert(0, tirx.floormod(index, extent))
        index = tirx.floordiv(index, extent)
    return [index, *position] if shape else []


def widened_bfloat16(value: tirx.Expr) -> tirx.Expr:
    """Widen a bfloat16 to float32 by its bits, which are the upper half of the float32."""
    bits = tirx.reinterpret("uint16", value).astype("uint32")
    return tirx.reinterpret("float32", bits << tirx.const(16, "uint32"))
