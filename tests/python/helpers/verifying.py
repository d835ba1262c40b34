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
"""Helpers that build malformed modules and check the verifier's findings."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm_ffi.access_path import AccessKind, AccessPath

from helpers.relax_modules import tensor
from tvm_fixes.verifier import Diagnostic, verify

Finding = tuple[str, str, str]
"""The rule, the place as :func:`place` writes it, and the message."""


def place(path: AccessPath) -> str:
    """A path as text: ``main.body.blocks[0].bindings[1].value``."""
    text = ""
    for step in path.to_steps()[1:]:
        if step.kind == AccessKind.MAP_ITEM:
            text += step.key.name_hint
        elif step.kind == AccessKind.ARRAY_ITEM:
            text += f"[{step.key}]"
        else:
            text += f".{step.key}"
    return text


def found(mod: tvm.IRModule, severity: str = "error") -> list[Finding]:
    """The findings of a severity, in order."""
    return [
        (one.rule, place(one.path), one.message) for one in verify(mod) if one.severity == severity
    ]


def assert_found(mod: tvm.IRModule, *errors: Finding, warnings: Sequence[Finding] = ()) -> None:
    """Assert that the findings are exactly these errors and warnings."""
    assert found(mod) == list(errors)
    assert found(mod, "warning") == list(warnings)


class Cases(list[Any]):
    """Cases of modules and their findings; an instance decorates functions that build modules.

    Examples
    --------
    ::

        case = Cases()

        @case(("type.return", "main.body.body", "the result: dim 0: 4 != 2"))
        def result_has_other_extents(): ...

        @pytest.mark.parametrize(*case.arguments)
        def test_findings(make, errors, warnings):
            assert_found(make(), *errors, warnings=warnings)
    """

    @property
    def arguments(self) -> tuple[str, list[Any]]:
        return "make, errors, warnings", self

    def __call__(
        self, *errors: Finding, warnings: Sequence[Finding] = ()
    ) -> Callable[[Callable[[], tvm.IRModule]], Callable[[], tvm.IRModule]]:
        def register(make: Callable[[], tvm.IRModule]) -> Callable[[], tvm.IRModule]:
            self.append(pytest.param(make, errors, warnings, id=make.__name__))
            return make

        return register


def only(mod: tvm.IRModule) -> Diagnostic:
    """The only finding."""
    (one,) = verify(mod)
    return one


def var(name: str, *shape: Any, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, tensor(*shape, dtype=dtype))


def typed(expr: relax.Expr, ty: tvm.ir.Type) -> relax.Expr:
    """Set the type of an expression; TVM does not check it."""
    put(expr, "ty", ty)
    return expr


def function(
    params: Sequence[relax.Var],
    bindings: Sequence[tuple[relax.Var, relax.Expr] | relax.Binding | relax.BindingBlock],
    result: relax.Expr,
    ret: tvm.ir.Type | None = None,
    *,
    is_pure: bool = True,
) -> relax.Function:
    """A function with bindings as given, without normalization or inference."""
    blocks: list[relax.BindingBlock] = []
    run: list[relax.Binding] = []
    for one in bindings:
        if isinstance(one, relax.BindingBlock):
            blocks += [relax.BindingBlock(run)] if run else []
            blocks, run = [*blocks, one], []
        else:
            run.append(one if isinstance(one, relax.Binding) else relax.VarBinding(*one))
    blocks += [relax.BindingBlock(run)] if run else []
    body = typed(relax.SeqExpr(blocks, result), result.ty)
    return relax.Function(params, body, ret or result.ty, is_pure)


def module(*args: Any, **kwargs: Any) -> tvm.IRModule:
    """A module whose ``main`` is :func:`function` of the same arguments."""
    return tvm.IRModule({"main": function(*args, **kwargs).with_attr("global_symbol", "main")})


def call(
    name: str, *args: relax.Expr, ty: tvm.ir.Type, attrs: tvm.ir.Attrs | None = None
) -> relax.Call:
    """A call of an operator with arbitrary arguments, attributes and type."""
    return typed(relax.Call(tvm.ir.Op.get(f"relax.{name}"), list(args), attrs), ty)


def copied(mod: tvm.IRModule) -> tvm.IRModule:
    """A deep copy, which may be changed in place."""
    return tvm.ir.load_json(tvm.ir.save_json(mod))


def fields(node: tvm_ffi.Object) -> Iterator[Any]:
    """The fields of a node, including those of its base classes."""
    info = type(node).__tvm_ffi_type_info__
    while info is not None:
        yield from info.fields
        info = info.parent_type_info


def field(node: tvm_ffi.Object, name: str) -> Any:
    return next(one for one in fields(node) if one.name == name)


def put(node: tvm_ffi.Object, name: str, value: Any) -> None:
    """Write a field of a node in place, which TVM's classes do not allow.

    Raises
    ------
    TypeError
        If the field is not of the value's class.
    """
    field(node, name).setter(node, value)


def erase(node: tvm_ffi.Object, name: str) -> None:
    """Set a reference field to null, even if its class forbids null."""
    one = field(node, name)
    assert one.size == ctypes.sizeof(ctypes.c_void_p), name
    getattr(node, name)  # the field is readable
    ctypes.c_void_p.from_address(node.__chandle__() + one.offset).value = None


def reachable(root: tvm_ffi.Object) -> list[tvm_ffi.Object]:
    """The nodes of a module, starting with itself, except operators and devices."""
    seen: dict[int, tvm_ffi.Object] = {}
    waiting: list[Any] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (tvm_ffi.Array, list, tuple)):
            waiting.extend(node)
            continue
        if isinstance(node, (tvm_ffi.Map, dict)):
            waiting.extend([*node.keys(), *node.values()])
            continue
        skipped = (tvm.ir.Op, tvm_ffi.Tensor, str, int, float)
        if not isinstance(node, tvm_ffi.Object) or isinstance(node, skipped):
            continue
        if node.__chandle__() in seen:
            continue
        seen[node.__chandle__()] = node
        for one in fields(node):
            if one.name not in ("span", "global_infos", "source_map"):
                waiting.append(one.getter(node) if hasattr(one, "getter") else None)
    return list(seen.values())
