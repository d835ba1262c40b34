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
"""The statements of random PyTorch programs."""

from collections.abc import Callable

import numpy as np
import torch

from .torch_source import FLOATS, INTEGERS, Program, Variable

NUMBERS = FLOATS + INTEGERS
ANY = (*NUMBERS, "b8")

_SMOOTH = (
    "torch.abs({}) torch.acos({}) torch.asin({}) torch.atan({}) torch.cos({}) torch.cosh({}) "
    "torch.erf({}) torch.exp({}) torch.expm1({}) torch.log({}) torch.log1p({}) torch.log2({}) "
    "torch.log10({}) torch.neg({}) torch.reciprocal({}) torch.rsqrt({}) torch.sigmoid({}) "
    "torch.sin({}) torch.sinh({}) torch.sqrt({}) torch.square({}) torch.tan({}) torch.tanh({}) "
    "torch.asinh({}) torch.atanh({}) torch.exp2({}) torch.nan_to_num({}) torch.sinc({}) "
    "F.relu({}) F.relu6({}) F.gelu({}) F.gelu({},approximate='tanh') F.silu({}) F.mish({}) "
    "F.elu({}) F.celu({},1.5) F.selu({}) F.leaky_relu({},0.1) F.softplus({}) F.softplus({},2,3) "
    "F.hardtanh({}) F.hardswish({}) F.hardsigmoid({}) F.logsigmoid({}) F.softsign({}) "
    "F.tanhshrink({}) F.softshrink({}) F.threshold({},0.1,20) {}.clamp(-1,0.5) {}.clamp(min=0) "
    "{}.clone() {}.contiguous()"
).split()
_EXACT = {"torch.abs({})", "torch.neg({})", "F.relu({})", "{}.clone()", "{}.contiguous()"}
_JUMPING = (
    "torch.floor({}) torch.ceil({}) torch.round({}) torch.trunc({}) torch.frac({}) torch.sign({}) "
    "torch.isnan({}) torch.isinf({}) torch.isfinite({}) {}.bool() torch.logical_not({}) "
    "F.hardshrink({}) torch.heaviside({},{}) torch.signbit({})"
).split()


_RECIPROCAL = ("torch.reciprocal({})", "torch.rsqrt({})")


def _has_open_zeros(v: Variable) -> bool:
    """Whether `v` contains zeros of unspecified sign; the order of a sum decides its sign."""
    is_input = v.name.startswith("x")
    return not is_input and bool((v.tensor == 0).any())


def unary(p: Program) -> None:
    if p.chance(0.2):
        v = p.pick(FLOATS, exact=True)
        if v is not None:
            p.let(p.choose(_JUMPING).replace("{}", v.name), [v], exact=True)
        return
    v = p.pick(FLOATS if p.chance(0.85) else ANY)
    if v is not None:
        form = p.choose(_SMOOTH)
        if form in _RECIPROCAL and _has_open_zeros(v):
            return
        p.let(form.replace("{}", v.name), [v], exact=form in _EXACT)


def other_for(p: Program, v: Variable) -> tuple[str, list[Variable]]:
    """A second operand: a variable that broadcasts with `v`, a number, or a new parameter."""
    fit = []
    for other in p.variables:
        try:
            np.broadcast_shapes(other.shape, v.shape)
        except ValueError:
            continue
        fit.append(other)
    if fit and p.chance(0.55):
        other = p.choose(fit)
        return other.name, [other]
    if p.chance(0.5):
        return str(p.choose((2, -3, 1, 0.5, -1.5, True))), []
    shape = [e if p.chance(0.5) and not p.dynamic else 1 for e in v.shape][p.below(v.rank + 1) :]
    dtype = v.dtype if p.chance(0.6) else p.choose(ANY)
    return p.weight(dtype, shape, "exact" if v.exact else "normal"), []


def binary(p: Program) -> None:
    v = p.pick(ANY)
    if v is None:
        return
    other, more = other_for(p, v)
    operator = p.choose(("+", "-", "*", "*", "/", "**", "max", "min", "atan2", "lerp", "addcmul"))
    if operator in "+-*":
        pair = (v.name, other) if p.chance(0.7) else (other, v.name)
        p.let(f"{pair[0]} {operator} {pair[1]}", [v, *more], exact=True)
    elif operator == "/":
        if not all(w.exact for w in more):
            # Rounding decides whether a sum is zero.
            p.let(f"{v.name} / ({other}.abs() + 0.25)", [v, *more])
        elif not any(map(_has_open_zeros, more)):
            p.let(f"{v.name} / {other}", [v, *more])
    elif operator == "**":
        exponents = (2, 3, 0.5, 1.5, *(() if _has_open_zeros(v) else (-1,)))
        p.let(f"{v.name} ** {p.choose(exponents)}", [v])
    elif operator in ("max", "min"):
        p.let(f"torch.{operator}imum({v.name}, {other})", [v, *more], exact=True)
    elif operator == "atan2":
        p.let(f"torch.atan2({v.name}, {other})", [v, *more])
    elif operator == "lerp":
        p.let(f"torch.lerp({v.name}, {other}, 0.3)", [v, *more])
    else:
        p.let(f"torch.addcmul({v.name}, {other}, {v.name}, value=2)", [v, *more])


def divide(p: Program) -> None:
    """Rounding divisions of exact operands by nonzero numbers."""
    v = p.pick(NUMBERS, exact=True)
    if v is None:
        return
    by = str(p.choose((2, -3, 3.0, 0.5)))
    fit = [w for w in p.variables if w.exact and w.shape == v.shape and w.dtype in NUMBERS]
    more: list[Variable] = []
    if fit and p.chance(0.5):
        more = [p.choose(fit)]
        # Signed overflow is undefined, for example the absolute value of the smallest integer.
        by = f"({more[0].name}.clamp(-100, 100).abs() + 1)"
    form = p.choose(
        (
            "{} // {}",
            "{} % {}",
            "torch.fmod({}, {})",
            "torch.remainder({}, {})",
            "torch.div({}, {}, rounding_mode='trunc')",
            "torch.div({}, {}, rounding_mode='floor')",
        )
    )
    p.let(form.format(v.name, by), [v, *more], exact=True)


def compare(p: Program) -> None:
    v = p.pick(ANY, exact=True)
    if v is None:
        return
    other, more = other_for(p, v)
    if all(w.exact for w in more):
        operator = p.choose(("<", "<=", ">", ">=", "==", "!="))
        p.let(f"{v.name} {operator} {other}", [v, *more])


def mask(p: Program) -> None:
    v = p.pick(ANY)
    m = p.pick(("b8",))
    if v is None or m is None:
        return
    other, more = other_for(p, v)
    form = p.choose(
        (
            "torch.where({m}, {v}, {o})",
            "{v}.masked_fill({m}, 2)",
            "{m} & ~{m}.flip(0)",
            "{m} | {m}.logical_not()",
            "torch.where({m}, {v}, 0.5)",
            "{m}.any()",
            "{m}.all(-1)",
            "{m}.sum(-1)",
            "{v} * {m}",
        )
    )
    p.let(form.format(m=m.name, v=v.name, o=other), [v, *more], exact=True)


def cast(p: Program) -> None:
    v = p.pick(ANY)
    if v is None:
        return
    to, source = p.choose(ANY), v.name
    if to not in FLOATS and v.dtype in FLOATS:
        low = 0 if to in ("u8", "b8") else -100
        float64 = v.tensor.double()
        if not v.exact:
            return
        if p.has_special_values:
            # PyTorch does not define the integer that a NaN or an infinity is cast to.
            source = f"torch.nan_to_num({v.name}, 0, 9, -9).clamp({low}, 100)"
        elif not bool(((float64 >= low) & (float64 <= 100)).all()):
            return
    p.let(f"{source}.to({to})", [v], exact=True)


def axis(p: Program, v: Variable) -> int:
    return p.below(2 * v.rank) - v.rank


def view(p: Program) -> None:
    v = p.pick(ANY, ranks=range(1, 6))
    if v is None:
        return
    n, a, b = v.name, axis(p, v), axis(p, v)
    extent = v.shape[a]
    start = p.below(extent + 1)
    order = [int(i) for i in p.rng.permutation(v.rank)]
    form = p.choose(
        (
            f"{n}.permute({order})",
            f"{n}.transpose({a}, {b})",
            f"{n}.flatten()",
            f"{n}.reshape(-1)",
            f"{n}.reshape({n}.shape[0], -1)",
            f"{n}.unsqueeze({a})",
            f"{n}.squeeze({a})",
            f"{n}.squeeze()",
            f"{n}.select({a}, {p.below(max(extent, 1))})",
            f"{n}.narrow({a}, {start}, {p.below(extent - start + 1)})",
            f"{n}.movedim({a}, {b})",
            f"{n}.flip({a})",
            f"{n}.roll({p.below(5) - 2}, {a})",
            f"{n}.chunk(2, {a})[0]",
            f"{n}.split({1 + p.below(3)}, {a})[-1]",
            f"{n}.unbind({a})[0]",
            f"{n}.diagonal(0, {a}, {b})",
            f"{n}.unfold({a}, {1 + p.below(2)}, {1 + p.below(2)})",
            f"{n}.expand(2, *{n}.shape)",
            f"{n}.repeat({', '.join(str(1 + p.below(2)) for _ in v.shape)})",
            f"{n}.repeat_interleave(2, {a})",
            f"{n}.tile(2)",
            f"{n}.tril({p.below(3) - 1})",
            f"{n}.triu({p.below(3) - 1})",
            f"torch.cat([{n}, {n}], {a})",
            f"torch.stack([{n}, {n}], {a})",
            f"{n}.mT",
            f"{n}.unflatten({a}, (-1, 1))",
            f"F.pad({n}, ({p.below(3)}, {p.below(3)}))",
            f"F.pad({n}, ({p.below(3) - 1}, {p.below(3)}), value=2)",
            f"{n}{_subscript(p, v)}",
            f"{n}{_subscript(p, v)}",
        )
    )
    p.let(form, [v], exact=True)


def _subscript(p: Program, v: Variable) -> str:
    """A subscript of slices, integers, None and an ellipsis."""
    parts = []
    for extent in v.shape[: 1 + p.below(v.rank)]:
        bounds = [
            str(int(i)) if p.chance(0.5) else "" for i in p.rng.integers(-extent - 1, extent + 2, 2)
        ]
        step = f":{1 + p.below(3)}" if p.chance(0.3) else ""
        kinds = (
            f"{bounds[0]}:{bounds[1]}{step}",
            ":",
            str(p.below(2 * extent + 1) - extent),
            "None",
        )
        parts.append(kinds[int(p.rng.choice(4, p=(0.4, 0.3, 0.2, 0.1)))])
    if p.chance(0.3):
        parts.insert(0 if p.chance(0.5) else len(parts), "...")
    return f"[{', '.join(parts)}]"


def _index(p: Program, extent: int, shape: tuple[int, ...]) -> str:
    low = -extent if p.chance(0.5) else 0
    return f"torch.tensor({p.rng.integers(low, extent, shape).tolist()})"


def _places(p: Program, v: Variable) -> str:
    """A subscript of index tensors, not necessarily adjacent, and slices."""
    shape = (1 + p.below(4),)
    parts = []
    for extent in v.shape:
        kind = p.below(3)
        if kind == 0:
            parts.append(_index(p, extent, shape))
        else:
            parts.append(":" if kind == 1 else f"{p.below(extent)}:")
    if not any("tensor" in part for part in parts):
        parts[p.below(len(parts))] = _index(p, v.shape[0], shape)
    return f"[{', '.join(parts)}]"


def index(p: Program) -> None:
    v = p.pick(ANY, ranks=range(1, 5), nonempty=True)
    if v is None:
        return
    n, a = v.name, axis(p, v)
    extent = v.shape[a]
    shape = [1 + p.below(e) for e in v.shape]
    elements = p.rng.integers(0, extent, shape).tolist()
    form = p.choose(
        (
            f"{n}{_places(p, v)}",
            f"{n}{_places(p, v)}",
            f"{n}.index_select({a}, torch.tensor({p.rng.integers(0, extent, 3).tolist()}))",
            f"{n}.gather({a}, torch.tensor({elements}))",
            f"torch.take({n}, {_index(p, v.tensor.numel(), (2, 3))})",
            f"torch.take_along_dim({n}, torch.tensor({elements}), {a})",
            f"{n}.index_fill({a}, torch.tensor([{p.below(extent)}]), 3)",
            f"{n}.topk({1 + p.below(extent)}, {a})[0]" if v.exact else "",
            f"{n}.sort({a}, stable=True)[{p.below(2)}]" if v.exact else "",
            f"{n}.argsort({a}, stable=True)" if v.exact else "",
        )
    )
    if form:
        p.let(form, [v], exact=True)


def scatter(p: Program) -> None:
    v = p.pick(NUMBERS, ranks=range(1, 4), nonempty=True)
    if v is None:
        return
    n, a = v.name, p.below(v.rank)
    shape = [1 + p.below(e) for e in v.shape]
    lines = p.rng.random(shape)
    # Without a reduction, the order of duplicate indices is undefined.
    once = np.argsort(lines, axis=a).tolist()
    often = (lines * v.shape[a]).astype("int64").tolist()
    kind = "exact" if v.exact else "normal"
    updates = p.weight(v.dtype, shape, kind)
    lane = list(v.shape)
    lane[a] = 2
    rows = p.weight(v.dtype, lane, kind)
    places = p.rng.integers(0, v.shape[a], 2).tolist()
    distinct = p.rng.permutation(v.shape[a])[:2].tolist()
    reduction = p.choose(("'sum'", "'amin'")) + ", include_self=False"
    form = p.choose(
        (
            f"{n}.scatter({a}, torch.tensor({once}), {updates})",
            f"{n}.scatter({a}, torch.tensor({once}), 7)",
            f"{n}.scatter_add({a}, torch.tensor({often}), {updates})",
            f"{n}.scatter_reduce({a}, torch.tensor({often}), {updates}, 'amax')",
            f"{n}.scatter_reduce({a}, torch.tensor({often}), {updates}, {reduction})",
            f"{n}.index_add({a}, torch.tensor({places}), {rows})",
            f"{n}.index_copy({a}, torch.tensor({distinct}), {rows})" if len(distinct) == 2 else "",
            f"torch.select_scatter({n}, {n}.select({a}, 0) + 1, {a}, -1)",
            f"torch.slice_scatter({n}, {n}.narrow({a}, 0, 1) * 2, {a}, 0, 1)",
        )
    )
    if form:
        p.let(form, [v], exact=True)


def update(p: Program) -> None:
    """Change a new or existing tensor in place, also through a view."""
    v = p.pick(ANY, ranks=range(1, 5), nonempty=True)
    # torch.export and PyTorch differ on updates of elements that share memory.
    if v is None or 0 in v.tensor.stride():
        return
    if p.chance(p.clones_before_updates):
        p.let(f"{v.name}.clone()", [v], exact=True)
        v = p.variables[-1]
    n, a = v.name, axis(p, v)
    other, more = other_for(p, v)
    # PyTorch does not define the integer that a NaN is cast to.
    if not v.tensor.is_floating_point() and any(not torch.isfinite(o.tensor).all() for o in more):
        return
    if v.dtype not in FLOATS and p.has_special_values and any(o.dtype in FLOATS for o in more):
        return
    m = p.pick(("b8",))
    target = p.choose(
        (n, f"{n}.transpose(0, {a})", f"{n}{_subscript(p, v)}", f"{n}.select({a}, 0)")
    )
    form = p.choose(
        (
            f"{target}.add_({other})",
            f"{target}.mul_({other})",
            f"{target}.sub_(1)",
            f"{target}.copy_({other})",
            f"{target}.zero_()",
            f"{target}.fill_(3)",
            f"{n}{_subscript(p, v)} = {other}",
            f"{n}{_subscript(p, v)} += 2",
            f"{n}{_places(p, v)} = 5",
            f"{n}{_places(p, v)} *= 2",
            f"{n}.masked_fill_({m.name}, 4)" if m else f"{n}.neg_()",
            f"{n}[{m.name}] = 6" if m else f"{n}.abs_()",
            f"{n}.index_fill_({a}, torch.tensor([0]), 2)",
            f"{n}.clamp_(-1, 2)",
            f"{n}.diagonal().add_(1)",
        )
    )
    p.update(form, v, [v, *more])


def reduce(p: Program) -> None:
    v = p.pick(FLOATS if p.chance(0.7) else ANY, ranks=range(1, 5))
    if v is None:
        return
    n, a = v.name, axis(p, v)
    keep = p.choose(("", ", keepdim=True"))
    smooth = (
        f"{n}.sum({a}{keep})",
        f"{n}.sum()",
        f"{n}.mean({a}{keep})",
        f"{n}.mean()",
        f"{n}.var({a}{keep})",
        f"{n}.std({a}, correction=0)",
        f"{n}.prod({a}{keep})",
        f"{n}.logsumexp({a}{keep})",
        f"{n}.norm(dim={a})",
        f"{n}.norm(p=1, dim={a})",
        f"torch.linalg.vector_norm({n}, 3)",
        f"{n}.softmax({a})",
        f"{n}.log_softmax({a})",
        f"{n}.cumsum({a})",
        f"{n}.cumprod({a})",
        f"torch.logcumsumexp({n}, {a})",
    )
    choosing = (
        f"{n}.amax({a}{keep})",
        f"{n}.amin({a}{keep})",
        f"{n}.max({a}{keep})[0]",
        f"{n}.min({a}{keep})[0]",
        f"{n}.max()",
        f"{n}.cummax({a})[0]",
        f"{n}.aminmax(dim={a})[1]",
    )
    if p.chance(0.5):
        form = p.choose(smooth)
        p.let(form, [v], exact="sum" in form and "log" not in form)
    elif p.chance(0.6):
        p.let(p.choose(choosing), [v], exact=True)
    elif v.exact:
        jumping = (
            f"{n}.argmax({a}{keep})",
            f"{n}.argmin({a})",
            f"{n}.max({a})[1]",
            f"{n}.argmax()",
        )
        p.let(p.choose((*jumping, f"{n}.any({a})", f"{n}.all()", f"{n}.count_nonzero({a})")), [v])


def create(p: Program) -> None:
    v = p.pick(ANY, ranks=range(1, 5))
    if v is None:
        return
    n, size = v.name, f"{v.name}.shape[0]"
    dtype = p.choose(ANY)
    number = "i64" if dtype == "b8" else dtype
    start, step = p.below(5), int(p.choose((1, 2, -1)))
    form = p.choose(
        (
            f"torch.arange({size})",
            f"torch.arange({start}, {start + 7 * step}, {step}, dtype={number})",
            f"torch.zeros({size}, 3)",
            f"torch.full_like({n}, 2)",
            f"torch.ones_like({n}, dtype={dtype})",
            f"{n}.new_full((2, {size}), 1)",
            f"torch.eye(3, dtype={dtype})",
            f"torch.linspace(0, 1, {2 + p.below(5)})",
            f"torch.full((2, 3), 1.5, dtype={p.choose(FLOATS)})",
            f"torch.tensor([[1, 2], [3, 4]], dtype={dtype})",
            f"F.one_hot(torch.arange({size}) % 3, 4)",
        )
    )
    p.let(form, [], exact="linspace" not in form)


STATEMENTS: tuple[tuple[Callable[[Program], None], float], ...] = (
    (unary, 3),
    (binary, 4),
    (divide, 1),
    (compare, 1.2),
    (mask, 1.5),
    (cast, 1.2),
    (view, 5),
    (index, 2),
    (scatter, 1.5),
    (update, 3),
    (reduce, 2.5),
    (create, 1),
)
