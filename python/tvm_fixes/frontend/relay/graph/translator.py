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
"""Translates the functions of a Relay module into a Relax module, expression by expression."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.ir import GlobalVar

from .... import relay
from ....attributes import RELAY_NAME
from ....errors import CompileError, RelayError, summarize
from ....relax.source_nodes import SourceNode
from ..call import Call, Context
from ..values.types import is_first_order, relax_type, type_of
from ..values.values import (
    Adt,
    Closure,
    Reference,
    Scope,
    Value,
    constant_value,
    contradicts,
    from_relax,
    refine,
    to_relax,
)
from .recursion import check_depth, depth_param, recursive_functions

MAX_DEPTH = 100
"""The maximum nesting depth of inlined calls, branches and matches."""


class NotComputableError(RelayError):
    """A step that must be known before the program runs; partial evaluation may find it."""


class Translator:
    """Translates one module.

    Parameters
    ----------
    mod : relay.IRModule
        A module with inferred types.
    params : mapping of str to numpy.ndarray
        Parameters of "main" that become constants.
    """

    def __init__(self, mod: relay.IRModule, params: Mapping[str, np.ndarray[Any, Any]]):
        self.mod = mod
        self.params = params
        self.builder = relax.BlockBuilder()
        self._names: dict[str, GlobalVar] = {}
        self._queue: list[str] = []
        self._depth = 0
        self._recursive = recursive_functions(mod)
        self._open_calls: tirx.Expr = tirx.const(0, "int64")
        self._references: list[Reference] = []

    def run(self) -> Any:
        """Translate "main" and the functions that it calls."""
        self._request("main")
        while self._queue:
            name = self._queue.pop()
            function = self._function(name, self.mod[name])
            self.builder.update_func(self._names[name], function)
        return self.builder.finalize()

    def _request(self, name: str) -> GlobalVar:
        """Return the Relax name of a function, which is translated later."""
        if name not in self._names:
            function = self.mod[name]
            params = [
                relax.Var(var.name, relax_type(type_of(var), var.name))
                for var in function.params
                if name != "main" or var.name not in self.params
            ]
            if name in self._recursive:
                params.append(depth_param())
            result = relax_type(type_of(function.body), symbolic=False)
            empty = relax.Function.create_empty(params, result, is_pure=True)
            # The builder merges equal functions, and all functions without a body are equal.
            attr = "global_symbol" if name == "main" else RELAY_NAME
            empty = empty.with_attr(attr, name)
            self._names[name] = self.builder.add_func(empty, name)
            self._queue.append(name)
        return self._names[name]

    def _function(self, name: str, function: relay.Function) -> relax.Function:
        """Translate a function of the module."""
        scope = Scope()
        params = []
        for var in function.params:
            if name == "main" and var.name in self.params:
                value = self.params[var.name]
                scope.values[var] = relax.const(value, value.dtype.name)
            else:
                params.append(relax.Var(var.name, relax_type(type_of(var), var.name)))
        free = iter(params)
        if name in self._recursive:
            params = [*params, depth_param()]
        builder = self.builder
        builder.begin_scope(params)
        builder._begin_binding_block()
        try:
            self._open_calls = tirx.const(0, "int64")
            if name in self._recursive:
                [depth] = params[-1].ty.values
                check_depth(builder, depth)
                self._open_calls = depth + 1
            for var in function.params:
                if var not in scope.values:
                    scope.values[var] = from_relax(builder, next(free), type_of(var))
            result = self._as_relax(self.evaluate(function.body, scope), function.body)
            if not isinstance(result, relax.Var):
                result = builder.emit(result)
        finally:
            block = builder._end_block()
            builder.end_scope()
        body = builder.normalize(relax.SeqExpr([block], result))
        attrs = {"global_symbol": name} if name == "main" else None
        translated = relax.Function(params, body, is_pure=True)
        return translated.with_attrs(attrs) if attrs else translated

    def evaluate(self, expr: relay.Expr, scope: Scope) -> Value:
        """Return the value of an expression; operands first, without recursion into them."""
        stack = [expr]
        while stack:
            current = stack[-1]
            if scope.owner(current) is not None:
                stack.pop()
                continue
            operands = _operands(current)
            missing = next((e for e in operands if scope.owner(e) is None), None)
            if missing is not None:
                stack.append(missing)
                continue
            if isinstance(current, relay.Let):
                value = scope.find(current.value)
                scope.values[current.var] = refine(self.builder, value, type_of(current.var))
                if scope.owner(current.body) is None:
                    stack.append(current.body)
                    continue
                scope.values[current] = scope.find(current.body)
            else:
                # In graph normal form, a closure's body may hold what depends on nothing in it.
                target = scope.outermost(operands) if self._is_pure(current) else scope
                target.values[current] = self._finish(current, scope)
            stack.pop()
        return scope.find(expr)

    def _is_pure(self, expr: relay.Expr) -> bool:
        """Whether an expression has the same value wherever it is evaluated."""
        if isinstance(expr, relay.Call) and self._references:
            return isinstance(expr.op, relay.Op | relay.Constructor)
        return isinstance(expr, _VISIBLE_OUTSIDE)

    def _finish(self, expr: relay.Expr, scope: Scope) -> Value:
        """Return the value of an expression whose operands have values."""
        handler = _HANDLERS.get(type(expr))
        if handler is None:
            raise RelayError(f"{type(expr).__name__} at {expr.span} cannot be translated")
        return handler(self, expr, scope)

    def _var(self, var: relay.Var, scope: Scope) -> Value:
        raise RelayError(f"variable %{var.name} at {var.span} is not bound")

    def _constant(self, constant: relay.Constant, scope: Scope) -> Value:
        return relax.const(constant.numpy(), str(constant.data.dtype))

    def _tuple(self, expr: relay.Tuple, scope: Scope) -> Value:
        return tuple(scope.find(part) for part in expr.fields)

    def _tuple_get_item(self, expr: relay.TupleGetItem, scope: Scope) -> Value:
        return scope.find(expr.tuple)[expr.index]

    def _closure(self, function: relay.Function, scope: Scope) -> Value:
        return Closure(function, scope)

    def _name(self, expr: relay.Expr, scope: Scope) -> Value:
        return expr

    def _ref_create(self, expr: relay.RefCreate, scope: Scope) -> Value:
        reference = Reference(scope.find(expr.value), type_of(expr.value))
        self._references.append(reference)
        return reference

    def _ref_read(self, expr: relay.RefRead, scope: Scope) -> Value:
        return scope.find(expr.ref).value

    def _ref_write(self, expr: relay.RefWrite, scope: Scope) -> Value:
        scope.find(expr.ref).value = scope.find(expr.value)
        return ()

    def _call(self, call: relay.Call, scope: Scope) -> Value:
        inputs = [scope.find(arg) for arg in call.args]
        callee = scope.find(call.op)
        if isinstance(callee, relay.Op):
            return self._call_op(callee, call, inputs)
        if isinstance(callee, relay.Constructor):
            return Adt(callee, tuple(inputs))
        if isinstance(callee, relay.GlobalVar):
            return self._call_global(callee, call, inputs)
        return self._inline(callee, call, inputs)

    def _call_op(self, op: relay.Op, call: relay.Call, inputs: list[Value]) -> Value:
        if relay.operators()[op.name].effect == "annotation":
            return inputs[0]
        converted = Call(
            operator=op.name,
            operands=tuple(inputs),
            attributes=relay.complete_attrs(call),
            version=0,
            source=SourceNode(str(call.span), op.name),
            context=Context(self.builder),
            input_types=tuple(type_of(arg) for arg in call.args),
            type=type_of(call),
            call=call,
        )
        try:
            result = converted.convert()
        except CompileError:
            raise
        except Exception as error:
            # TVM rejects some operands, and its message does not name the call.
            raise converted.fail(summarize(error)) from error
        if contradicts(result, type_of(call)):
            parts = result if isinstance(result, tuple) else (result,)
            got = ", ".join(str(part.ty) for part in parts if isinstance(part, relax.Expr))
            raise converted.fail(f"the converter returns {got}; expected {type_of(call)}")
        return refine(self.builder, result, type_of(call))

    def _call_global(self, name: relay.GlobalVar, call: relay.Call, inputs: list[Value]) -> Value:
        function = self.mod[name.name]
        # The types of a polymorphic function are those of its calls.
        types = [type_of(e) for e in (*call.args, call, *function.params, function.body)]
        if not all(map(is_first_order, types)):
            return self._inline(Closure(function, Scope()), call, inputs)
        arguments = []
        for value, arg, param in zip(inputs, call.args, function.params, strict=True):
            value = refine(self.builder, value, type_of(param))
            arguments.append(self._as_relax(value, arg))
        if name.name in self._recursive:
            arguments.append(relax.ShapeExpr([self._open_calls]))
        result = self.builder.emit(relax.Call(self._request(name.name), arguments))
        return from_relax(self.builder, result, type_of(call))

    def _inline(self, closure: Closure, call: relay.Call, inputs: Sequence[Value]) -> Value:
        scope = Scope(closure.scope)
        for var, value in zip(closure.function.params, inputs, strict=True):
            scope.values[var] = refine(self.builder, value, type_of(var))
        return self._nested(closure.function.body, scope, call)

    def _nested(self, body: relay.Expr, scope: Scope, origin: relay.Expr) -> Value:
        """Evaluate a body in its own scope."""
        if self._depth >= MAX_DEPTH:
            raise NotComputableError(
                f"calls, branches and matches nest deeper than {MAX_DEPTH} at {origin.span}"
            )
        self._depth += 1
        try:
            return self.evaluate(body, scope)
        finally:
            self._depth -= 1

    def _if(self, expr: relay.If, scope: Scope) -> Value:
        condition = scope.find(expr.cond)
        known = constant_value(condition)
        if known is not None:
            taken = expr.true_branch if known.item() else expr.false_branch
            return self._nested(taken, Scope(scope), expr)
        references = list(self._references)
        before = [reference.value for reference in references]
        branches = []
        for body in (expr.true_branch, expr.false_branch):
            block, value = self._branch(body, scope)
            branches.append((block, value, [reference.value for reference in references], body))
            for reference, old in zip(references, before, strict=True):
                reference.value = old
            self._references = list(references)
        written = [
            i
            for i, old in enumerate(before)
            if any(after[i] is not old for _, _, after, _ in branches)
        ]
        parts = [
            self._sequence(block, (value, *(after[i] for i in written)) if written else value, body)
            for block, value, after, body in branches
        ]
        joined = self.builder.emit(relax.If(condition, *parts))
        if not written:
            return from_relax(self.builder, joined, type_of(expr))
        # The branches return what they write, next to their value.
        types = relay.TupleType([type_of(expr), *(references[i].type for i in written)])
        result, *after = from_relax(self.builder, joined, types)
        for i, value in zip(written, after, strict=True):
            references[i].value = value
        return result

    def _branch(self, body: relay.Expr, scope: Scope) -> tuple[relax.BindingBlock, Value]:
        """Translate a branch into a block of its own, and return its value, too."""
        builder = self.builder
        builder.begin_scope()
        builder._begin_binding_block()
        try:
            value = self._nested(body, Scope(scope, is_block=True), body)
        finally:
            block = builder._end_block()
            builder.end_scope()
        return block, value

    def _sequence(self, block: relax.BindingBlock, value: Value, body: relay.Expr) -> relax.SeqExpr:
        """Return a block with its result, which a block of its own binds."""
        builder = self.builder
        builder.begin_scope()
        builder._begin_binding_block()
        try:
            result = builder.emit(self._as_relax(value, body))
        finally:
            last = builder._end_block()
            builder.end_scope()
        return builder.normalize(relax.SeqExpr([block, last], result))

    def _match(self, expr: relay.Match, scope: Scope) -> Value:
        data = scope.find(expr.data)
        for clause in expr.clauses:
            inner = Scope(scope)
            if _matches(clause.lhs, data, inner):
                return self._nested(clause.rhs, inner, expr)
        raise RelayError(f"no clause of the match at {expr.span} fits")

    def _as_relax(self, value: Value, expr: relay.Expr) -> relax.Expr:
        result = to_relax(value)
        if result is None:
            raise NotComputableError(
                f"the value at {expr.span} must be a tensor or a tuple of tensors here, "
                f"but it has type {type_of(expr)}"
            )
        return result


def _operands(expr: relay.Expr) -> Sequence[relay.Expr]:
    """The parts of an expression that are evaluated before it, in order."""
    if isinstance(expr, relay.Call):
        return [expr.op, *expr.args]
    if isinstance(expr, relay.Tuple):
        return expr.fields
    names = _OPERAND_FIELDS.get(type(expr), ())
    return [getattr(expr, name) for name in names]


_OPERAND_FIELDS: dict[type, tuple[str, ...]] = {
    relay.TupleGetItem: ("tuple",),
    relay.Let: ("value",),
    relay.If: ("cond",),
    relay.Match: ("data",),
    relay.RefCreate: ("value",),
    relay.RefRead: ("ref",),
    relay.RefWrite: ("ref", "value"),
}

_VISIBLE_OUTSIDE = (
    relay.Call,
    relay.Constant,
    relay.Constructor,
    relay.GlobalVar,
    relay.Op,
    relay.Tuple,
    relay.TupleGetItem,
)

_HANDLERS: dict[type, Callable[[Translator, Any, Scope], Value]] = {
    relay.Var: Translator._var,
    relay.Constant: Translator._constant,
    relay.Tuple: Translator._tuple,
    relay.TupleGetItem: Translator._tuple_get_item,
    relay.Function: Translator._closure,
    relay.GlobalVar: Translator._name,
    relay.Op: Translator._name,
    relay.Constructor: Translator._name,
    relay.Call: Translator._call,
    relay.If: Translator._if,
    relay.Match: Translator._match,
    relay.RefCreate: Translator._ref_create,
    relay.RefRead: Translator._ref_read,
    relay.RefWrite: Translator._ref_write,
}


def _matches(pattern: relay.Pattern, value: Value, scope: Scope) -> bool:
    """Whether a pattern fits a value; binds its variables."""
    if isinstance(pattern, relay.PatternVar):
        scope.values[pattern.var] = value
        return True
    if isinstance(pattern, relay.PatternWildcard):
        return True
    if isinstance(pattern, relay.PatternTuple):
        parts = value
    else:
        if isinstance(value, relay.Constructor):
            value = Adt(value, ())
        if value.constructor.name != pattern.constructor.name:
            return False
        parts = value.fields
    return all(
        _matches(one, part, scope) for one, part in zip(pattern.patterns, parts, strict=True)
    )
