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
"""Random Relay programs, translated, compiled and run, against their evaluation in NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from helpers.relax_modules import run
from helpers.relay_interpreter import Interpreter
from tvm_fixes import pipeline, relay
from tvm_fixes.errors import CompileError, UnsupportedOperatorError, summarize
from tvm_fixes.frontend.relay import from_relay

from .relay_blocks import DTYPES, Block, Entry, Program, literal, type_of
from .relay_families import FAMILIES, is_float
from .tolerance import difference

_MAX_CALLS = 10


def branches(block: Block) -> None:
    """One of two values of a type, selected by a computed condition."""
    x = block.pick(is_float)
    total = block.call("sum", [x], axis=None)
    condition = block.call("less", [total, literal(np.asarray(0.25, x.dtype))])
    sides = []
    for name in ("tanh", "negative"):
        inner = Block(block.rng, block.program, block.pool)
        inner.call(name, [x])
        sides.append((inner, inner.pool[-1]))
    results = [inner.bound(entry.expr) for inner, entry in sides]
    value = sides[0 if condition.value else 1][1].value
    block.add(Entry(relay.If(condition.expr, *results), value))


def closure(block: Block) -> None:
    """A function that captures a value, called twice."""
    x = block.pick(is_float)
    param = relay.Var(block.program.name(), type_of(x.value) if block.chance(0.5) else None)
    captured = block.constant((), x.dtype)
    inner = Block(block.rng, block.program)
    result = inner.call("add", [inner.call("tanh", [Entry(param, x.value)]), captured])
    function = relay.Function([param], inner.bound(result.expr))
    again = np.tanh(result.value) + captured.value
    name = relay.Var(block.program.name("f"))
    if block.chance(0.5):
        block.bindings.append((name, function))
        function = name
    first = block.add(Entry(relay.Call(function, [x.expr]), result.value))
    block.add(Entry(relay.Call(function, [first.expr]), np.asarray(again, x.dtype)))


def loop(block: Block) -> None:
    """A function that calls itself a few times."""
    x = block.pick(is_float)
    count = block.integer(0, 3)
    scalar = relay.TensorType([], "int32")
    name = relay.Var(block.program.name("loop"))
    i, s = relay.Var("i", scalar), relay.Var("s", type_of(x.value))
    one = literal(np.int32(1)).expr
    step = [relay.Call("add", [i, one]), relay.Call("nn.relu", [relay.Call("tanh", [s])])]
    more = relay.Call("less", [i, literal(np.int32(count)).expr])
    body = relay.If(more, relay.Call(name, step), s)
    block.bindings.append((name, relay.Function([i, s], body, type_of(x.value))))
    value = x.value
    for _ in range(count):
        value = np.maximum(np.tanh(value), 0)
    block.add(Entry(relay.Call(name, [literal(np.int32(0)).expr, x.expr]), value))


def global_function(block: Block) -> None:
    """A call of a function of the module."""
    x = block.pick(is_float)
    param = relay.Var("x", type_of(x.value))
    inner = Block(block.rng, block.program)
    result = inner.call("sigmoid", [Entry(param, x.value)])
    name = block.program.name("g")
    block.program.functions[name] = relay.Function([param], inner.bound(result.expr))
    block.add(Entry(relay.Call(relay.GlobalVar(name), [x.expr]), result.value))


STRUCTURES: tuple[Callable[[Block], None], ...] = (branches, closure, loop, global_function)


def make_program(seed: int) -> tuple[relay.IRModule, list[np.ndarray]]:
    """A module, and values for the parameters of its main."""
    rng = np.random.default_rng(seed)
    program = Program()
    block = Block(rng, program)
    for _ in range(block.integer(1, 3)):
        extents = [block.choice((1, 2, 3, 4, 5, 8)) for _ in range(block.integer(0, 4))]
        kind = block.choice(("normal", "exact", "positive"))
        block.input(extents, block.choice(DTYPES), kind)
    wanted = len(block.pool) + block.integer(2, _MAX_CALLS)
    for _ in range(60):
        if len(block.pool) >= wanted:
            break
        with block.attempt():
            block.choice(STRUCTURES if block.chance(0.08) else FAMILIES)(block)
    results = [block.pool[-1], *(block.pick() for _ in range(block.integer(0, 2)))]
    body = relay.Tuple([entry.expr for entry in results])
    main = relay.Function(program.params, block.bound(body))
    return relay.IRModule(program.functions | {"main": main}), program.inputs


def run_case(seed: int) -> str | None:
    """Check one random program, sometimes after a round trip through text or JSON.

    Returns
    -------
    str or None
        Why the program was rejected; None if all results are correct.

    Raises
    ------
    AssertionError
        If a result is wrong, or if a rejection does not name an operator.
    """
    mod, inputs = make_program(seed)
    if seed % 3 == 0:
        mod = relay.parse(mod.astext())
    elif seed % 3 == 1:
        mod = relay.load_json(relay.save_json(mod))
    expected = Interpreter(mod).run(*inputs)
    try:
        results = run(from_relay(mod), *inputs, pipeline=pipeline())
    except (CompileError, UnsupportedOperatorError) as error:
        return summarize(error)

    def truths() -> list[Any]:
        exact = Interpreter(mod, wide=True).run(*inputs)
        nudged = [x * (1 + 2.0**-23) if x.dtype.kind == "f" else x for x in inputs]
        return [exact, Interpreter(mod, wide=True).run(*nudged)]

    problem = difference(list(results), list(expected), truths, "float32")
    assert not problem, problem
    return None


def reproduce(seed: int) -> str:
    """The program of a seed as text."""
    mod, inputs = make_program(seed)
    return "\n".join([mod.astext(), *(repr(x) for x in inputs)])
