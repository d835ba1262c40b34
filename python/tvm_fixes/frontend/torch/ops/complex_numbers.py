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
"""Complex numbers within a program, as pairs of real tensors.

Relax has no complex dtype.  A complex tensor is a :class:`Pair`; inputs and outputs are real.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree
from tvm import relax

from ....errors import OpAttributeInvalid, OpNotImplemented
from ....fixes.torch_importer import DECOMPOSITIONS
from ....support import switches
from ...convert import EVERY
from ...dtypes import dtype_of
from ..call import Call, converts
from ..stock import STOCK
from ..values.operands import operand_of

__all__ = ["Pair", "converts_complex", "is_complex", "pair_of"]

# Operators that apply separately to the real and the imaginary part.
_LINEAR = frozenset(
    (
        *("alias.default", "as_strided.default", "cat.default", "clone.default"),
        *("constant_pad_nd.default", "contiguous.default", "cumsum.default", "detach.default"),
        *("diagonal.default", "expand.default", "flip.default", "gather.default", "getitem"),
        *("index.Tensor", "index_select.default", "lift_fresh_copy.default", "mean.dim"),
        *("mean.default", "neg.default", "permute.default", "repeat.default", "reshape.default"),
        *("roll.default", "select.int", "slice.Tensor", "split.Tensor", "sum.default"),
        *("split_with_sizes.default", "squeeze.dims", "stack.default", "sum.dim_IntList"),
        *("transpose.int", "tril.default", "triu.default", "unbind.int", "unsqueeze.default"),
        *("view.default", "where.self"),
    )
)
_PRODUCTS = ("bmm.default", "matmul.default", "mm.default")
_SAME = ("_assert_tensor_metadata.default", "resolve_conj.default", "resolve_neg.default")
_CONJUGATES = ("_conj.default", "_conj_physical.default", "conj_physical.default")


@dataclass(frozen=True)
class Pair:
    """A complex tensor; without imaginary part, it is real."""

    real: relax.Expr
    imaginary: relax.Expr | None


def is_complex(argument: Any) -> bool:
    """Whether an argument is a complex number or tensor, or a node with a complex result."""
    if isinstance(argument, complex):
        return True
    value = argument.meta.get("val") if isinstance(argument, fx.Node) else argument
    leaves = pytree.tree_leaves(value)
    return any(isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in leaves)


def _real_like(value: Any) -> Any:
    """Return PyTorch's example of a part of a complex tensor."""
    if isinstance(value, torch.Tensor) and value.is_complex():
        return torch.empty_like(value, dtype=value.dtype.to_real())
    return value


def _has_complex(call: Call) -> bool:
    return any(
        map(is_complex, (call.node, *pytree.tree_leaves((call.node.args, call.node.kwargs))))
    )


def converts_complex(*operators: str) -> Callable[[Callable[[Call], Any]], Any]:
    """Register a converter for complex numbers (and for real ones if TVM has no converter)."""

    def register(convert: Callable[[Call], Any]) -> Callable[[Call], Any]:
        @converts(*operators, place="complex", fix=DECOMPOSITIONS)
        def convert_if_complex(call: Call) -> Any:
            if call.operator in STOCK and not _has_complex(call):
                return call.proceed()
            switches.note(DECOMPOSITIONS)
            return convert(call)

        return convert

    return register


@converts(EVERY, place="parts", fix=DECOMPOSITIONS)
def convert_parts(call: Call) -> Any:
    """Apply a linear operator to both parts of complex numbers.

    Raises
    ------
    tvm.error.OpNotImplemented
        If the operator is not linear.
    """
    if not _has_complex(call):
        return call.proceed()
    switches.note(DECOMPOSITIONS)
    if call.operator in _LINEAR:
        return _by_parts(call)
    if call.operator in _PRODUCTS:
        return _product_of_matrices(call)
    raise OpNotImplemented(
        f"{call.where}: an operand or the result is complex; "
        "expected real numbers, or an operator with a converter for complex numbers"
    )


def pair_of(call: Call, argument: Any, dtype: str | None = None) -> Pair:
    """Return the parts of an argument: a complex or real tensor, or a number."""
    value = call.context.env[argument] if isinstance(argument, fx.Node) else argument
    if isinstance(value, Pair):
        return value
    if isinstance(value, complex):
        assert dtype is not None
        return Pair(relax.const(value.real, dtype), relax.const(value.imag, dtype))
    if is_complex(argument):
        return _separated(call, value)
    dtype = dtype or dtype_of(value)
    return Pair(operand_of(call, value, dtype), None)


def _separated(call: Call, value: relax.Expr) -> Pair:
    """Return the parts from the last axis of a tensor."""
    places = (relax.const(i, "int64") for i in range(2))
    return Pair(*(call.emit(relax.op.take(value, i, value.ty.ndim - 1)) for i in places))


def _operands(call: Call) -> tuple[Pair, Pair]:
    dtype = call.dtype
    first, second = (pair_of(call, argument, dtype) for argument in call.node.args[:2])
    return first, second


def _of_shape(call: Call, sizes: torch.Size, x: relax.Expr) -> relax.Expr:
    shape = relax.ShapeExpr(call.symbols.shape(sizes))
    return call.emit(relax.op.broadcast_to(x, shape))


@contextmanager
def _reading(call: Call, values: Mapping[fx.Node, relax.Expr]) -> Iterator[None]:
    """Let a converter of real tensors read `values` instead of complex arguments."""
    nodes = {call.node, *values}
    metas = {each: each.meta["val"] for each in nodes}
    for each, value in metas.items():
        each.meta["val"] = pytree.tree_map(_real_like, value)
    try:
        with call.context.reading(values):
            yield
    finally:
        for each, value in metas.items():
            each.meta["val"] = value


def _by_parts(call: Call) -> Pair:
    pairs = {n: pair_of(call, n) for n in call.node.all_input_nodes if is_complex(n)}
    for other in set(call.node.all_input_nodes) - set(pairs):
        value = other.meta.get("val")
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            raise OpNotImplemented(
                f"{call.where}: operand {other.name!r} is {value.dtype}; "
                "expected complex numbers like the other operands"
            )
    results = []
    for part in ("real", "imaginary"):
        with _reading(call, {n: getattr(pair, part) for n, pair in pairs.items()}):
            results.append(_emitted(call, call.renewed().proceed()))
    return Pair(*results)


def _emitted(call: Call, value: relax.Expr) -> relax.Expr:
    is_bound = isinstance(value, relax.Var)
    return value if is_bound else call.emit(value)


def _product_of_matrices(call: Call) -> Pair:
    lhs, rhs = (pair_of(call, argument) for argument in call.node.args)

    def product(x: relax.Expr, y: relax.Expr) -> relax.Expr:
        with _reading(call, dict(zip(call.node.args, (x, y), strict=True))):
            return _emitted(call, call.renewed().proceed())

    return _multiplied(call, lhs, rhs, product)


def _multiplied(call: Call, lhs: Pair, rhs: Pair, product: Callable[..., relax.Expr]) -> Pair:
    emit = call.emit
    real = product(lhs.real, rhs.real)
    if lhs.imaginary is None or rhs.imaginary is None:
        if rhs.imaginary is not None:
            return Pair(real, product(lhs.real, rhs.imaginary))
        return Pair(real, None if lhs.imaginary is None else product(lhs.imaginary, rhs.real))
    opposite = product(lhs.imaginary, rhs.imaginary)
    crossed = product(lhs.real, rhs.imaginary), product(lhs.imaginary, rhs.real)
    return Pair(emit(relax.op.subtract(real, opposite)), emit(relax.op.add(*crossed)))


@converts_complex("mul.Tensor")
def convert_complex_product(call: Call) -> Pair:
    """Convert a product."""
    emit = call.emit
    lhs, rhs = _operands(call)
    return _multiplied(call, lhs, rhs, lambda x, y: emit(relax.op.multiply(x, y)))


@converts_complex("div.Tensor")
def convert_complex_quotient(call: Call) -> Pair:
    """Convert a quotient."""
    emit = call.emit
    lhs, rhs = _operands(call)
    if rhs.imaginary is not None:
        squares = (emit(relax.op.multiply(x, x)) for x in (rhs.real, rhs.imaginary))
        divisor = emit(relax.op.add(*squares))
        opposite = Pair(rhs.real, emit(relax.op.negative(rhs.imaginary)))
        lhs = _multiplied(call, lhs, opposite, lambda x, y: emit(relax.op.multiply(x, y)))
    else:
        divisor = rhs.real
    assert lhs.imaginary is not None
    return Pair(*(emit(relax.op.divide(x, divisor)) for x in (lhs.real, lhs.imaginary)))


@converts_complex("add.Tensor", "sub.Tensor")
def convert_complex_sum(call: Call) -> Pair:
    """Convert a sum or a difference."""
    emit = call.emit
    dtype = call.dtype
    op = relax.op.add if call.operator.startswith("add") else relax.op.subtract
    if call.attributes.get("alpha", 1) != 1:
        raise OpAttributeInvalid(
            f"{call.where}: attribute alpha is {call.attributes['alpha']}; "
            "expected 1 for complex numbers"
        )
    lhs, rhs = _operands(call)
    zero = relax.const(0, dtype)
    real = emit(op(lhs.real, rhs.real))
    parts = (zero if x is None else x for x in (lhs.imaginary, rhs.imaginary))
    return Pair(real, _of_shape(call, call.recorded.shape, emit(op(*parts))))


@converts_complex("_to_copy.default")
def convert_complex_cast(call: Call) -> Any:
    """Convert a cast from or to complex numbers."""
    dtype = call.dtype
    source = pair_of(call, call.node.args[0])
    if not is_complex(call.node):
        return call.astype(source.real, dtype)
    real = call.astype(source.real, dtype)
    if source.imaginary is None:
        zeros = call.emit(relax.op.zeros_like(real))
        return Pair(real, zeros)
    return Pair(real, call.astype(source.imaginary, dtype))


@converts_complex(*_CONJUGATES)
def convert_conjugate(call: Call) -> Any:
    """Convert a conjugate."""
    pair = pair_of(call, call.node.args[0])
    if pair.imaginary is None:
        return pair.real
    return Pair(pair.real, call.emit(relax.op.negative(pair.imaginary)))


@converts_complex("view_as_real.default")
def convert_view_as_real(call: Call) -> relax.Expr:
    """Convert to a real tensor whose last axis holds the parts."""
    pair = pair_of(call, call.node.args[0])
    sizes = call.recorded.shape[:-1]
    parts = [_of_shape(call, sizes, x) for x in (pair.real, pair.imaginary)]
    return call.emit(relax.op.stack(parts, axis=-1))


@converts_complex("abs.default")
def convert_magnitude(call: Call) -> relax.Expr:
    """Convert a magnitude."""
    pair, emit = pair_of(call, call.node.args[0]), call.emit
    parts = [emit(relax.op.abs(x)) for x in (pair.real, pair.imaginary)]
    large, small = emit(relax.op.maximum(*parts)), emit(relax.op.minimum(*parts))
    one = relax.const(1, dtype_of(large))
    # Without the division, squares of large numbers would be infinite.
    ratio = emit(relax.op.divide(small, large))
    length = emit(relax.op.sqrt(emit(relax.op.add(emit(relax.op.square(ratio)), one))))
    product = emit(relax.op.multiply(large, length))
    # 0 / 0 and the ratio of infinities are NaN.
    is_plain = emit(relax.op.not_equal(large, small))
    twice = emit(relax.op.multiply(large, relax.const(2**0.5, dtype_of(large))))
    return emit(relax.op.where(is_plain, product, twice))


@converts_complex("angle.default")
def convert_angle(call: Call) -> relax.Expr:
    """Convert an angle; that of a negative real number is pi."""
    pair, emit = pair_of(call, call.node.args[0]), call.emit
    if pair.imaginary is not None:
        return emit(relax.op.atan2(pair.imaginary, pair.real))
    dtype = call.dtype
    x, zero = call.astype(pair.real, dtype), relax.const(0, dtype)
    is_negative = emit(relax.op.less(x, zero))
    angle = emit(relax.op.where(is_negative, relax.const(math.pi, dtype), zero))
    return emit(relax.op.where(emit(relax.op.isnan(x)), x, angle))


def _from_polar(call: Call, magnitude: relax.Expr, angle: relax.Expr) -> Pair:
    emit = call.emit
    directions = (emit(relax.op.cos(angle)), emit(relax.op.sin(angle)))
    return Pair(*(emit(relax.op.multiply(magnitude, x)) for x in directions))


@converts_complex("polar.default")
def convert_polar(call: Call) -> Pair:
    """Convert a magnitude and an angle to a complex number."""
    return _from_polar(call, *call.operands)


@converts_complex("exp.default")
def convert_complex_exponential(call: Call) -> Pair:
    """Convert an exponential."""
    pair = pair_of(call, call.node.args[0])
    return _from_polar(call, call.emit(relax.op.exp(pair.real)), pair.imaginary)


@converts_complex("complex.default")
def convert_complex(call: Call) -> Pair:
    """Convert two real tensors to a complex one."""
    return Pair(*call.operands)


@converts_complex("view_as_complex.default")
def convert_view_as_complex(call: Call) -> Pair:
    """Convert a real tensor whose last axis holds the parts."""
    return _separated(call, *call.operands)


@converts_complex(*_SAME)
def convert_same(call: Call) -> Any:
    """Return the operand."""
    return call.operands[0]
