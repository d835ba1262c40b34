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
"""Extent checks for operands that a kernel addresses by the extents of another operand.

See :mod:`.indices`.  Extents that provably differ are an error.  If they are not provably equal, a
CPU kernel compares them at run time; in any case, the operand is read only within its own extents.
"""

from collections.abc import Sequence

from tvm import relax, te, tirx
from tvm.sym import Analyzer

from ...support import ambient
from ...target.cpu import is_cpu
from ...tirx.util import OPAQUE, assertion_failure, checked_copy
from .indices import clamp_index, read
from .targets import target_of

Shape = Sequence[tirx.Expr]


def unproven_axes(
    operator: str, name: str, own: Shape, expected: Shape, repeats: bool
) -> list[int]:
    """The axes along which extents are not proven to be the expected ones.

    Parameters
    ----------
    operator, name : str
        The operator and its operand, for the error message.
    own, expected : sequence of tirx.Expr
        The extents of the operand, and the expected ones.
    repeats : bool
        Whether an extent of 1 is broadcast.

    Raises
    ------
    ValueError
        If extents provably differ.
    """
    analyzer, result = Analyzer(), []
    for axis, (extent, wanted) in enumerate(zip(own, expected, strict=True)):
        is_one = repeats and analyzer.can_prove_equal(extent, 1)
        if is_one or analyzer.can_prove_equal(extent, wanted):
            continue
        difference = analyzer.simplify(extent - wanted)
        is_known = isinstance(difference, tirx.IntImm) and difference.value != 0
        if is_known and not (repeats and not isinstance(extent, tirx.IntImm)):
            raise ValueError(
                f"{operator}: {name} has extent {_text(extent)} along axis {axis}; "
                f"expected {_text(wanted)}"
            )
        result.append(axis)
    return result


def _text(extent: tirx.Expr) -> str:
    return str(extent.value if isinstance(extent, tirx.IntImm) else extent)


def fit_extents(
    builder: relax.BlockBuilder,
    call: relax.Call,
    name: str,
    operand: relax.Expr,
    expected: Shape,
    repeats: bool = False,
) -> relax.Expr:
    """Return `operand` if its extents are provably `expected`; else a copy with these extents.

    With `repeats`, an extent that is provably 1 is kept for broadcasting.
    """
    operator = call.op.name.removeprefix("relax.")
    own = list(operand.ty.shape.values)
    if len(own) != len(expected):
        raise ValueError(f"{operator}: {name} has {len(own)} axes; expected {len(expected)}")
    axes = unproven_axes(operator, name, own, expected, repeats)
    if not axes or ambient.current().trusts_indices:
        return operand
    shape = [expected[axis] if axis in axes else extent for axis, extent in enumerate(own)]
    checked = check_extents(builder, call, name, operand, expected, axes, repeats)

    def fit(source: te.Tensor, shape: list[tirx.Expr]) -> te.Tensor:
        def element(*position: tirx.Var) -> tirx.Expr:
            places = [
                clamp_index(place, source.shape[axis]) if axis in axes else place
                for axis, place in enumerate(position)
            ]
            return read(source, places, axes)

        return te.compute(shape, element, name="fitted")

    result = builder.call_te(fit, checked, relax.ShapeExpr(shape), primfunc_name_hint="fitted")
    return builder.emit(result)


def check_extents(
    builder: relax.BlockBuilder,
    call: relax.Call,
    name: str,
    operand: relax.Expr,
    expected: Shape,
    axes: Sequence[int],
    repeats: bool = False,
) -> relax.Expr:
    """On a CPU, copy `operand` and check at run time that it has the `expected` extents."""
    if not is_cpu(target_of(call)) or not axes or ambient.current().trusts_indices:
        return operand
    operator = call.op.name.removeprefix("relax.")

    def check(source: te.Tensor, *wanted: tirx.Expr) -> te.Tensor:
        pairs = zip(axes, wanted, strict=True)
        checks = [_check(operator, name, source, axis, w, repeats) for axis, w in pairs]
        return checked_copy("check_extents", source, checks)

    return builder.emit(
        builder.call_te(
            check,
            operand,
            *(expected[axis] for axis in axes),
            primfunc_name_hint="check_extents",
            primfunc_attrs={"op_pattern": OPAQUE},
        )
    )


def _check(
    operator: str, name: str, source: te.Tensor, axis: int, wanted: tirx.Expr, repeats: bool
) -> tirx.Stmt:
    extent = source.shape[axis].astype("int64")
    wanted = wanted.astype("int64")
    differs = tirx.Not(extent.equal(wanted))
    if repeats:
        differs = tirx.all(differs, tirx.Not(extent.equal(tirx.const(1, "int64"))))
    message = f"{operator}: {name} has extent {{}} along axis {axis}; expected {{}}"
    return tirx.IfThenElse(differs, assertion_failure(message, extent, wanted), None)
