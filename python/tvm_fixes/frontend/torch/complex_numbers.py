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
import tvm
from torch import fx
from torch.utils import _pytree as pytree
from tvm import relax

from ...errors import OpAttributeInvalid, OpNotImplemented
from ...fixes.torch_importer import DECOMPOSITIONS as FIX_ID
from ...fixes.torch_importer import DTYPE
from ...support import switches
from ...support.tensors import to_tvm
from ..dtypes import dtype_of
from .corrections import Converters, Corrections
from .promotion import Promotion
from .symbols import Symbols

__all__ = ["ComplexNumbers", "Pair", "is_complex"]

Convert = Callable[[fx.Node], Any]

_PARTS = {torch.complex32: "float16", torch.complex64: "float32", torch.complex128: "float64"}

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


class ComplexNumbers(Promotion):
    """The converters of operators on complex tensors."""

    _symbols: Symbols

    def complex_calls(self) -> Converters:
        """Return converters of ATen's operators, by the name of the overload."""
        return {
            "_to_copy.default": self._complex_cast,
            "abs.default": self._magnitude_call,
            "add.Tensor": self._complex_sum,
            "angle.default": self._angle_call,
            "complex.default": lambda node: Pair(*self.retrieve_args(node)),
            "div.Tensor": self._complex_quotient,
            "exp.default": self._complex_exponential,
            "mul.Tensor": self._complex_product,
            "polar.default": self._polar_call,
            "sub.Tensor": self._complex_sum,
            "view_as_complex.default": lambda node: self._separated(*self.retrieve_args(node)),
            "view_as_real.default": self._interleaved,
            **dict.fromkeys(_CONJUGATES, self._conjugate),
            **dict.fromkeys(_SAME, lambda node: self.env[node.args[0]]),
        }

    def pairing_converters(self, known: Converters, complex_calls: Converters) -> Converters:
        """Wrap `known` converters to call those of `complex_calls` on complex numbers."""
        names = {*known, *complex_calls}
        return {
            name: self._pairing(str(name), known.get(name), complex_calls.get(name))
            for name in names
        }

    def _pairing(self, name: str, known: Convert | None, of_complex: Convert | None) -> Convert:
        def convert(node: fx.Node) -> Any:
            if known is not None and not any(map(is_complex, (node, *_leaves(node)))):
                return known(node)
            switches.note(FIX_ID)
            if of_complex is not None:
                return of_complex(node)
            if known is not None and name in _LINEAR:
                return self._by_parts(node, known)
            if known is not None and name in _PRODUCTS:
                return self._product_of_matrices(node, known)
            raise OpNotImplemented(
                f"{node.target} {node.name!r}: an operand or the result is complex; "
                "expected real numbers, or an operator with a converter for complex numbers"
            )

        return convert

    @staticmethod
    def _convert_data_type(input_type: Any, env: Any = None) -> str:
        """Return the dtype in Relax; that of a complex tensor is the dtype of its parts."""
        if input_type in _PARTS:
            return _PARTS[input_type]
        return Corrections._convert_data_type(input_type, env)

    def _convert_pytorch_tensor_to_tvm(self, tensor_value: torch.Tensor) -> tvm.runtime.Tensor:
        if tensor_value.is_complex():
            tensor_value = torch.view_as_real(tensor_value.detach().resolve_conj())
        if not switches.enabled(DTYPE):
            return super()._convert_pytorch_tensor_to_tvm(tensor_value)
        if tensor_value.layout is not torch.strided:
            tensor_value = tensor_value.to_dense()
        # TVM's goes through NumPy, without bfloat16 and float8, if a tensor is not aligned.
        return to_tvm(tensor_value.cpu())

    def create_input_vars(self, exported_program: torch.export.ExportedProgram) -> Any:
        """Create the inputs; the last axis of a complex weight holds its two parts.

        Raises
        ------
        tvm.error.OpNotImplemented
            If an input or an output of the program is complex; the message names it.
        """
        created = super().create_input_vars(exported_program)
        weights, inputs, _ = created
        graph = exported_program.graph
        for node in graph.find_nodes(op="placeholder"):
            if is_complex(node) and node.name in inputs:
                raise _not_real("input", node)
            if is_complex(node) and node.name in weights:
                ty = weights[node.name].ty
                pairs = relax.TensorType([*ty.shape.values, 2], ty.dtype)
                weights[node.name] = relax.Var(node.name, pairs)
        for node in graph.output_node().all_input_nodes:
            if is_complex(node):
                raise _not_real("output", node)
        return created

    def _pair(self, argument: Any, dtype: str | None = None) -> Pair:
        """Return the parts of an argument: a complex or real tensor, or a number."""
        value = self.env[argument] if isinstance(argument, fx.Node) else argument
        if isinstance(value, Pair):
            return value
        if isinstance(value, complex):
            assert dtype is not None
            return Pair(relax.const(value.real, dtype), relax.const(value.imag, dtype))
        if is_complex(argument):
            return self._separated(value)
        dtype = dtype or dtype_of(value)
        return Pair(self._operand(argument, dtype), None)

    def _separated(self, value: relax.Expr) -> Pair:
        """Return the parts from the last axis of a tensor."""
        places = (relax.const(i, "int64") for i in range(2))
        return Pair(
            *(self.block_builder.emit(relax.op.take(value, i, value.ty.ndim - 1)) for i in places)
        )

    def _operands(self, node: fx.Node) -> tuple[Pair, Pair]:
        dtype = self._convert_data_type(node.meta["val"].dtype)
        first, second = (self._pair(argument, dtype) for argument in node.args[:2])
        return first, second

    def _of_shape(self, sizes: torch.Size, x: relax.Expr) -> relax.Expr:
        shape = relax.ShapeExpr(self._symbols.shape(sizes))
        return self.block_builder.emit(relax.op.broadcast_to(x, shape))

    @contextmanager
    def _reading(self, node: fx.Node, values: Mapping[fx.Node, relax.Expr]) -> Iterator[None]:
        """Let a converter of real tensors read `values` instead of complex arguments."""
        nodes = {node, *values}
        metas = {each: each.meta["val"] for each in nodes}
        kept = {each: self.env[each] for each in values}
        self.env.update(values)
        for each, value in metas.items():
            each.meta["val"] = pytree.tree_map(_real_like, value)
        try:
            yield
        finally:
            self.env.update(kept)
            for each, value in metas.items():
                each.meta["val"] = value

    def _by_parts(self, node: fx.Node, convert: Convert) -> Pair:
        pairs = {n: self._pair(n) for n in node.all_input_nodes if is_complex(n)}
        for other in set(node.all_input_nodes) - set(pairs):
            value = other.meta.get("val")
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                raise OpNotImplemented(
                    f"{node.target} {node.name!r}: operand {other.name!r} is {value.dtype}; "
                    "expected complex numbers like the other operands"
                )
        results = []
        for part in ("real", "imaginary"):
            with self._reading(node, {n: getattr(pair, part) for n, pair in pairs.items()}):
                results.append(self._emitted(convert(node)))
        return Pair(*results)

    def _emitted(self, value: relax.Expr) -> relax.Expr:
        is_bound = isinstance(value, relax.Var)
        return value if is_bound else self.block_builder.emit(value)

    def _product_of_matrices(self, node: fx.Node, convert: Convert) -> Pair:
        lhs, rhs = (self._pair(argument) for argument in node.args)

        def product(x: relax.Expr, y: relax.Expr) -> relax.Expr:
            with self._reading(node, dict(zip(node.args, (x, y), strict=True))):
                return self._emitted(convert(node))

        return self._multiplied(lhs, rhs, product)

    def _multiplied(self, lhs: Pair, rhs: Pair, product: Callable[..., relax.Expr]) -> Pair:
        emit = self.block_builder.emit
        real = product(lhs.real, rhs.real)
        if lhs.imaginary is None or rhs.imaginary is None:
            if rhs.imaginary is not None:
                return Pair(real, product(lhs.real, rhs.imaginary))
            return Pair(real, None if lhs.imaginary is None else product(lhs.imaginary, rhs.real))
        opposite = product(lhs.imaginary, rhs.imaginary)
        crossed = product(lhs.real, rhs.imaginary), product(lhs.imaginary, rhs.real)
        return Pair(emit(relax.op.subtract(real, opposite)), emit(relax.op.add(*crossed)))

    def _complex_product(self, node: fx.Node) -> Pair:
        emit = self.block_builder.emit
        lhs, rhs = self._operands(node)
        return self._multiplied(lhs, rhs, lambda x, y: emit(relax.op.multiply(x, y)))

    def _complex_quotient(self, node: fx.Node) -> Pair:
        emit = self.block_builder.emit
        lhs, rhs = self._operands(node)
        if rhs.imaginary is not None:
            squares = (emit(relax.op.multiply(x, x)) for x in (rhs.real, rhs.imaginary))
            divisor = emit(relax.op.add(*squares))
            opposite = Pair(rhs.real, emit(relax.op.negative(rhs.imaginary)))
            lhs = self._multiplied(lhs, opposite, lambda x, y: emit(relax.op.multiply(x, y)))
        else:
            divisor = rhs.real
        assert lhs.imaginary is not None
        return Pair(*(emit(relax.op.divide(x, divisor)) for x in (lhs.real, lhs.imaginary)))

    def _complex_sum(self, node: fx.Node) -> Pair:
        emit = self.block_builder.emit
        dtype = self._convert_data_type(node.meta["val"].dtype)
        op = relax.op.add if node.target.__name__.startswith("add") else relax.op.subtract
        if node.kwargs.get("alpha", 1) != 1:
            raise OpAttributeInvalid(
                f"{node.target} {node.name!r}: attribute alpha is {node.kwargs['alpha']}; "
                "expected 1 for complex numbers"
            )
        lhs, rhs = self._operands(node)
        zero = relax.const(0, dtype)
        real = emit(op(lhs.real, rhs.real))
        parts = (zero if x is None else x for x in (lhs.imaginary, rhs.imaginary))
        return Pair(real, self._of_shape(node.meta["val"].shape, emit(op(*parts))))

    def _complex_cast(self, node: fx.Node) -> Any:
        dtype = self._convert_data_type(node.meta["val"].dtype)
        source = self._pair(node.args[0])
        if not is_complex(node):
            return self._astype(source.real, dtype)
        real = self._astype(source.real, dtype)
        if source.imaginary is None:
            zeros = self.block_builder.emit(relax.op.zeros_like(real))
            return Pair(real, zeros)
        return Pair(real, self._astype(source.imaginary, dtype))

    def _conjugate(self, node: fx.Node) -> Any:
        pair = self._pair(node.args[0])
        if pair.imaginary is None:
            return pair.real
        return Pair(pair.real, self.block_builder.emit(relax.op.negative(pair.imaginary)))

    def _interleaved(self, node: fx.Node) -> relax.Expr:
        pair = self._pair(node.args[0])
        sizes = node.meta["val"].shape[:-1]
        parts = [self._of_shape(sizes, x) for x in (pair.real, pair.imaginary)]
        return self.block_builder.emit(relax.op.stack(parts, axis=-1))

    def _magnitude_call(self, node: fx.Node) -> relax.Expr:
        pair, emit = self._pair(node.args[0]), self.block_builder.emit
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

    def _angle_call(self, node: fx.Node) -> relax.Expr:
        pair, emit = self._pair(node.args[0]), self.block_builder.emit
        if pair.imaginary is not None:
            return emit(relax.op.atan2(pair.imaginary, pair.real))
        dtype = self._convert_data_type(node.meta["val"].dtype)
        x, zero = self._astype(pair.real, dtype), relax.const(0, dtype)
        is_negative = emit(relax.op.less(x, zero))
        angle = emit(relax.op.where(is_negative, relax.const(math.pi, dtype), zero))
        return emit(relax.op.where(emit(relax.op.isnan(x)), x, angle))

    def _from_polar(self, magnitude: relax.Expr, angle: relax.Expr) -> Pair:
        emit = self.block_builder.emit
        directions = (emit(relax.op.cos(angle)), emit(relax.op.sin(angle)))
        return Pair(*(emit(relax.op.multiply(magnitude, x)) for x in directions))

    def _polar_call(self, node: fx.Node) -> Pair:
        return self._from_polar(*self.retrieve_args(node))

    def _complex_exponential(self, node: fx.Node) -> Pair:
        pair = self._pair(node.args[0])
        return self._from_polar(self.block_builder.emit(relax.op.exp(pair.real)), pair.imaginary)


def _leaves(node: fx.Node) -> list[Any]:
    return pytree.tree_leaves((node.args, node.kwargs))


def _not_real(kind: str, node: fx.Node) -> Exception:
    return OpNotImplemented(
        f"{kind} {node.name!r} is {node.meta['val'].dtype}; expected real numbers: "
        f"use torch.view_as_{'complex' if kind == 'input' else 'real'} within the program"
    )
