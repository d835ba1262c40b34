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
"""Valid modules and their mutants, each with one change."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tvm
import tvm.te
import tvm.topi
import tvm_ffi
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.relax_modules import build, tensor
from helpers.verifying import copied, fields, put


def cnn() -> tvm.IRModule:
    def emit(bb: relax.BlockBuilder, x: relax.Var, w: relax.Var, b: relax.Var) -> relax.Expr:
        y = bb.emit(op.nn.relu(bb.emit(op.add(bb.emit(op.nn.conv2d(x, w, padding=1)), b))))
        return bb.emit(op.mean(bb.emit(op.nn.max_pool2d(y, 2, 2)), [2, 3]))

    types = {"x": tensor(2, 3, 6, 6), "w": tensor(4, 3, 3, 3), "b": tensor(1, 4, 1, 1)}
    return build(types, emit)


def attention() -> tvm.IRModule:
    def emit(bb: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
        scores = bb.emit(op.matmul(q, bb.emit(op.permute_dims(k, [0, 2, 1]))))
        weights = bb.emit(op.nn.softmax(bb.emit(op.divide(scores, relax.const(2.0))), -1))
        return bb.emit(op.matmul(weights, v))

    return build({name: tensor(2, 5, 4) for name in "qkv"}, emit)


def dynamic() -> tvm.IRModule:
    n = tirx.Var("n", "int64")

    def emit(bb: relax.BlockBuilder, x: relax.Var, w: relax.Var) -> relax.Expr:
        y = bb.emit(op.concat([x, x], axis=0))
        y = bb.emit(op.nn.relu(bb.emit(op.matmul(y, w))))
        return bb.emit(op.reshape(y, relax.ShapeExpr([n, 10])))

    return build({"x": tensor(n, 4), "w": tensor(4, 5)}, emit)


def tuples() -> tvm.IRModule:
    def emit(bb: relax.BlockBuilder, x: relax.Var, y: relax.Var) -> relax.Expr:
        parts = bb.emit(op.split(x, 2, axis=1))
        pair = bb.emit(relax.Tuple([parts, y]))
        first = bb.emit(relax.TupleGetItem(bb.emit(relax.TupleGetItem(pair, 0)), 1))
        other = bb.emit(relax.TupleGetItem(pair, 1))
        return bb.emit(relax.Tuple([bb.emit(op.add(first, other)), other]))

    return build({"x": tensor(3, 4), "y": tensor(3, 2)}, emit)


def gather() -> tvm.IRModule:
    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(op.take(x, relax.const([0, 4, 2], "int64"), axis=0))
        y = bb.emit(op.strided_slice(y, [1], [1], [3]))
        return bb.emit(op.nn.layer_norm(y, relax.const([1.0, 2.0]), relax.const([0.5, 1.0]), -1))

    return build({"x": tensor(5, 4)}, emit)


def casts() -> tvm.IRModule:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(ndim=2, dtype="float32")) -> R.Tensor(ndim=2, dtype="float32"):
            m = T.int64()
            y = R.match_cast(x, R.Tensor((m, 4), "float32"))
            z = R.add(y, y)
            w = R.concat((z, y), axis=1)
            return w

    return Module


def branches() -> tvm.IRModule:
    @I.ir_module
    class Module:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((3, 4), "float32")) -> R.Tensor(
            (3, 4), "float32"
        ):
            if c:
                y = R.add(x, x)
                z = R.nn.relu(y)
            else:
                z = R.multiply(x, x)
            return z

    return Module


def functions() -> tvm.IRModule:
    @I.ir_module
    class Module:
        @R.function(private=True)
        def double(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            y = R.add(x, x)
            return y

        @R.function
        def main(x: R.Tensor((3, 4), "float32"), y: R.Tensor((2, 4), "float32")) -> R.Tensor(
            (5, 4), "float32"
        ):
            cls = Module
            a = cls.double(x)
            b = cls.double(y)
            c = R.concat((a, b), axis=0)
            return c

    return Module


def local_function() -> tvm.IRModule:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((3, 4), "float32")) -> R.Tensor((3, 4), "float32"):
            @R.function
            def inner(y: R.Tensor((3, 4), "float32")) -> R.Tensor((3, 4), "float32"):
                z = R.multiply(y, y)
                return z

            a = inner(x)
            b = R.add(a, x)
            return b

    return Module


def scalars() -> tvm.IRModule:
    """A PrimFunc with a scalar parameter and two results."""

    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def scaled(a: T.handle, k: T.int64, b: T.handle, c: T.handle):
            n = T.int64()
            A = T.match_buffer(a, (n,), "float32")
            B = T.match_buffer(b, (n,), "float32")
            C = T.match_buffer(c, (n,), "float32")
            for i in range(n):
                B[i] = A[i] * T.Cast("float32", k)
                C[i] = A[i] + T.Cast("float32", k)

        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            cls = Module
            pair = R.call_tir(
                cls.scaled,
                (x, T.int64(3)),
                out_ty=[R.Tensor((n,), "float32"), R.Tensor((n,), "float32")],
            )
            first = pair[0]
            second = pair[1]
            z = R.subtract(first, second)
            return z

    return Module


def in_place() -> tvm.IRModule:
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def increment(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                A[i] = A[i] + B[i]

        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor(
            (4,), "float32"
        ):
            cls = Module
            a = R.add(x, y)
            b = R.call_tir_inplace(cls.increment, (a, y), [0], out_ty=R.Tensor((4,), "float32"))
            c = R.multiply(b, x)
            return c

    return Module


def legalized(make: Callable[[], tvm.IRModule]) -> Callable[[], tvm.IRModule]:
    return lambda: relax.transform.LegalizeOps()(make())


SUBJECTS: dict[str, Callable[[], tvm.IRModule]] = {
    "cnn": cnn,
    "attention": attention,
    "dynamic": dynamic,
    "tuples": tuples,
    "gather": gather,
    "casts": casts,
    "branches": branches,
    "functions": functions,
    "local_function": local_function,
    "scalars": scalars,
    "in_place": in_place,
    "cnn legalized": legalized(cnn),
    "dynamic legalized": legalized(dynamic),
    "attention legalized": legalized(attention),
}


@dataclass(frozen=True)
class Mutant:
    """One change of a subject.

    Attributes
    ----------
    kind : str
        The kind of change: a shape, a dtype, the order of two bindings.
    where : str
        The place and the change, in words.
    changes_types : bool
        Whether only a stated type is changed.
    apply : callable
        Changes a copy of the module in place.
    """

    kind: str
    where: str
    changes_types: bool
    apply: Callable[[], None]


def mutants(mod: tvm.IRModule) -> list[Mutant]:
    """All single changes of a module, in a deterministic order."""
    by_name = {var.name_hint: function for var, function in mod.functions_items()}
    found: list[Mutant] = []
    for name in sorted(by_name):
        if isinstance(by_name[name], relax.Function):
            found += _Mutants(mod, name).of_function(by_name[name], name)
    return found


def mutated(mod: tvm.IRModule, index: int) -> tuple[Mutant, tvm.IRModule]:
    """The mutant with an index, and the changed module."""
    copy = copied(mod)
    mutant = mutants(copy)[index]
    mutant.apply()
    return mutant, copy


class _Mutants:
    def __init__(self, mod: tvm.IRModule, name: str) -> None:
        self.mod = mod
        self.variables = _variables(mod, name)
        self.callees = sorted(mod.get_global_vars(), key=lambda var: str(var.name_hint))

    def of_function(self, function: relax.Function, where: str) -> Iterator[Mutant]:
        for param in function.params:
            yield from self._types(param, "ty", f"{where}, parameter {param.name}")
        yield from self._types(function, "ret_ty", f"{where}, result")
        yield from self._of_body(function.body, where)

    def _of_body(self, body: relax.SeqExpr, where: str) -> Iterator[Mutant]:
        for block in body.blocks:
            for binding in block.bindings:
                name = f"{where}, {binding.var.name}"
                yield from self._types(binding.var, "ty", f"{name}, variable")
                if isinstance(binding, relax.MatchCast):
                    yield from self._types(binding, "ty", f"{name}, cast")
                yield from self._of_value(binding.value, name)
            for i in range(len(block.bindings) - 1):
                order = list(block.bindings)
                order[i], order[i + 1] = order[i + 1], order[i]
                yield Mutant("order", f"{where}, {i}", False, _putting(block, "bindings", order))
        yield from self._types(body, "ty", f"{where}, sequence")
        yield from self._others(body, "body", body.body, f"{where}, returned")

    def _of_value(self, value: relax.Expr, where: str) -> Iterator[Mutant]:
        if isinstance(value, relax.Function):
            yield from self.of_function(value, where)
            return
        yield from self._types(value, "ty", f"{where}, value")
        if isinstance(value, relax.If):
            yield from self._others(value, "cond", value.cond, f"{where}, condition")
            yield from self._of_body(value.true_branch, f"{where}, true")
            yield from self._of_body(value.false_branch, f"{where}, false")
        elif isinstance(value, relax.Call):
            yield from self._of_call(value, where)
        elif isinstance(value, relax.Tuple):
            yield from self._list(value, "fields", where)
        elif isinstance(value, relax.TupleGetItem):
            for index in (value.index + 1, value.index - 1):
                apply = _putting(value, "index", index)
                yield Mutant("index", f"{where}, {index}", False, apply)
            yield from self._others(value, "tuple_value", value.tuple_value, where)

    def _of_call(self, call: relax.Call, where: str) -> Iterator[Mutant]:
        yield from self._list(call, "args", where)
        for i, arg in enumerate(call.args):
            place = f"{where}, argument {i}"
            if isinstance(arg, relax.Tuple):
                yield from self._types(arg, "ty", place)
                yield from self._list(arg, "fields", place)
            elif isinstance(arg, relax.ShapeExpr):
                yield from self._types(arg, "ty", place)
                for values in _other_extents(arg.values):
                    yield Mutant(
                        "extent", f"{place}, {values}", False, _putting(arg, "values", values)
                    )
            elif isinstance(arg, tvm.ir.GenericConst):
                yield from self._types(arg, "ty", place)
            elif isinstance(arg, tvm.ir.GlobalVar):
                for other in [*self.callees, tvm.ir.GlobalVar("absent")]:
                    if not other.same_as(arg):
                        args = [*call.args[:i], other, *call.args[i + 1 :]]
                        yield Mutant(
                            "callee",
                            f"{place}, {other.name_hint}",
                            False,
                            _putting(call, "args", args),
                        )
        for i, ty in enumerate(call.ty_args):
            for kind, other in _other_types(ty):
                ty_args = [*call.ty_args[:i], other, *call.ty_args[i + 1 :]]
                yield Mutant(
                    kind, f"{where}, result {other}", True, _putting(call, "ty_args", ty_args)
                )
        if isinstance(call.op, tvm.ir.Op):
            yield from self._attrs(call, where)
            for name in ("relax.add", "relax.nn.relu", "relax.nn.conv2d", "relax.concat"):
                if call.op.name != name and not call.op.name.startswith("relax.call"):
                    other = tvm.ir.Op.get(name)
                    yield Mutant("callee", f"{where}, {name}", False, _putting(call, "op", other))
        elif isinstance(call.op, tvm.ir.GlobalVar):
            for other in [*self.callees, tvm.ir.GlobalVar("absent")]:
                if not other.same_as(call.op) and other.name_hint != "main":
                    yield Mutant(
                        "callee", f"{where}, {other.name_hint}", False, _putting(call, "op", other)
                    )

    def _attrs(self, call: relax.Call, where: str) -> Iterator[Mutant]:
        strange = op.nn.softmax(relax.Var("x", tensor(2))).attrs
        if call.attrs is None:
            return
        for other, text in ((None, "none"), (strange, "softmax's")):
            if other is None or type(other) is not type(call.attrs):
                yield Mutant("attrs", f"{where}, {text}", False, _putting(call, "attrs", other))
        for one in fields(call.attrs):
            value = one.getter(call.attrs)
            is_list = isinstance(value, (tvm_ffi.Array, list, tuple)) and len(value) > 0
            if isinstance(value, int) and not isinstance(value, bool):
                changed: list[Any] = [value + 1, value - 1]
            elif is_list and isinstance(value[0], (int, tirx.IntImm)):
                changed = [[int(value[0]) + 1, *value[1:]], [int(value[0]) - 1, *value[1:]]]
            else:
                continue
            for new in changed:
                yield Mutant(
                    "attribute",
                    f"{where}, {one.name}: {new}",
                    False,
                    _changing_attrs(call, one.name, new),
                )

    def _types(self, node: Any, name: str, where: str) -> Iterator[Mutant]:
        for kind, other in _other_types(getattr(node, name)):
            yield Mutant(kind, f"{where}: {other}", True, _putting(node, name, other))

    def _others(self, node: Any, name: str, expr: relax.Expr, where: str) -> Iterator[Mutant]:
        """Mutants that replace a variable by another one."""
        if not isinstance(expr, relax.Var):
            return
        stranger = relax.Var("stranger", expr.ty)
        for other in [*self.variables, stranger]:
            if not other.same_as(expr):
                apply = _putting(node, name, other)
                yield Mutant("variable", f"{where}: {other.name}", False, apply)

    def _list(self, node: Any, name: str, where: str) -> Iterator[Mutant]:
        """Mutants with fewer or more elements, or other variables."""
        values = list(getattr(node, name))
        if not values:
            return
        yield Mutant("arity", f"{where}, less", False, _putting(node, name, values[:-1]))
        yield Mutant("arity", f"{where}, more", False, _putting(node, name, [*values, values[-1]]))
        for i, value in enumerate(values):
            if not isinstance(value, relax.Var):
                continue
            for other in [*self.variables, relax.Var("stranger", value.ty)]:
                if not other.same_as(value):
                    new = [*values[:i], other, *values[i + 1 :]]
                    yield Mutant(
                        "variable", f"{where}, {i}: {other.name}", False, _putting(node, name, new)
                    )


def _putting(node: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: put(node, name, value)


def _changing_attrs(call: relax.Call, name: str, value: Any) -> Callable[[], None]:
    def apply() -> None:
        attrs = tvm.ir.load_json(tvm.ir.save_json(call.attrs))
        put(attrs, name, value)
        put(call, "attrs", attrs)

    return apply


def _variables(mod: tvm.IRModule, name: str) -> list[relax.Var]:
    """The parameters and bound variables of a function, except those in branches."""
    function = mod[name]
    bound = [binding.var for block in function.body.blocks for binding in block.bindings]
    return [*function.params, *bound]


def _other_types(ty: tvm.ir.Type) -> Iterator[tuple[str, tvm.ir.Type]]:
    """Types with a single difference from `ty`, with descriptions."""
    if isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr):
        for extents in _other_extents(ty.shape.values):
            yield "shape", relax.TensorType(extents, ty.dtype, ty.vdevice)
        if ty.shape.values:
            yield "rank", relax.TensorType(ty.shape.values[:-1], ty.dtype, ty.vdevice)
        yield "rank", relax.TensorType([*ty.shape.values, 1], ty.dtype, ty.vdevice)
        for dtype in ("float16", "float64", "int32"):
            yield "dtype", relax.TensorType(ty.shape.values, dtype, ty.vdevice)
    elif isinstance(ty, relax.TensorType):
        yield "rank", relax.TensorType(dtype=ty.dtype, ndim=ty.ndim + 1)
        yield "dtype", relax.TensorType(dtype="float16", ndim=ty.ndim)
    elif isinstance(ty, relax.ShapeType) and ty.values is not None:
        for extents in _other_extents(ty.values):
            yield "shape", relax.ShapeType(extents)
    elif isinstance(ty, relax.TupleType) and len(ty.fields) > 0:
        yield "fields", relax.TupleType(ty.fields[:-1])
        yield "fields", relax.TupleType([*ty.fields, ty.fields[-1]])
        for i, part in enumerate(ty.fields):
            for kind, other in _other_types(part):
                yield kind, relax.TupleType([*ty.fields[:i], other, *ty.fields[i + 1 :]])


def _other_extents(extents: Any) -> Iterator[list[Any]]:
    for i, extent in enumerate(extents):
        for other in (extent + 1, extent * 2, -1 - extent):
            yield [*extents[:i], tvm.sym.Analyzer().simplify(other), *extents[i + 1 :]]
