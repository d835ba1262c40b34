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
"""Functions that call themselves: lifted to the module, and nested log n deep."""

import time

import numpy as np
import pytest
import tvm.testing
import tvm_ffi
from tvm import relax

from helpers.growth import assert_linear
from helpers.relax_modules import cpu, run
from helpers.relay_interpreter import Interpreter, same
from tvm_fixes import pipeline, relay
from tvm_fixes.frontend.relay import from_relay

transform = relay.transform
LOWER = transform.Sequential(
    [
        transform.InferType(),
        transform.LiftRecursion(),
        transform.InferType(),
        transform.FlattenRecursion(),
        transform.InferType(),
    ]
)
V = "Tensor[(2), float32]"

# Bodies of main; each takes a number of iterations and %x.
LOOPS = {
    "takes values from outside": f"""
        let %scale = tanh(%x);
        let %loop = fn (%i: int32, %s: {V}) {{
          if (less(%i, %n)) {{ %loop(add(%i, 1), add(multiply(%s, %scale), %x)) }}
          else {{ (%i, %s) }}
        }};
        %loop(0, %x)""",
    "takes functions from outside": f"""
        let %cond = fn (%i: int32) {{ less(%i, %n) }};
        let %body = fn (%s: {V}) {{ tanh(add(%s, %x)) }};
        let %loop = fn (%i: int32, %s: {V}) {{
          if (%cond(%i)) {{ %loop(add(%i, 1), %body(%s)) }} else {{ (%i, %s) }}
        }};
        let %r = %loop(0, %x);
        %r.1""",
    "ends in two ways": f"""
        let %loop = fn (%i: int32, %s: {V}) -> {V} {{
          let %m = multiply(%i, %i);
          if (less(%i, %n)) {{
            let %t = sum(%s);
            if (less(%t, 20f)) {{ %loop(add(%i, 1), multiply(%s, 1.5f)) }} else {{ negative(%s) }}
          }} else {{ add(%s, cast(%m, dtype="float32")) }}
        }};
        %loop(0, %x)""",
    "within a loop": f"""
        let %outer = fn (%i: int32, %s: {V}) -> {V} {{
          let %inner = fn (%j: int32, %t: {V}) -> {V} {{
            if (less(%j, %i)) {{ %inner(add(%j, 1), add(%t, %s)) }} else {{ %t }}
          }};
          if (less(%i, %n)) {{ %outer(add(%i, 1), tanh(%inner(0, %x))) }} else {{ %s }}
        }};
        %outer(0, %x)""",
    "grows": """
        let %loop = fn (%i: int32, %s: Tensor[(?), float32]) -> Tensor[(?), float32] {
          if (less(%i, %n)) {
            %loop(add(%i, 1), concatenate((%s, add(%x, cast(%i, dtype="float32")))))
          } else { %s }
        };
        %loop(0, %x)""",
    "carries a tuple": f"""
        let %loop = fn (%s: (int32, {V})) {{
          if (less(%s.0, %n)) {{ %loop((add(%s.0, 1), tanh(%s.1))) }} else {{ %s }}
        }};
        %loop((0, %x))""",
    "does not call itself last": f"""
        let %loop = fn (%i: int32) -> {V} {{
          if (less(%i, %n)) {{ add(%loop(add(%i, 1)), %x) }} else {{ %x }}
        }};
        %loop(0)""",
    "calls another loop": """
        let %loop = fn (%i: int32) -> int32 { if (less(%i, %n)) { %loop(add(%i, 2)) } else { %i } };
        let %next = fn (%i: int32) -> int32 {
          if (less(%i, %n)) { %next(add(%i, 3)) } else { %loop(%i) }
        };
        (%loop(0), %next(0))""",
    "computes before it decides": f"""
        let %loop = fn (%i: int32, %s: {V}) -> {V} {{
          let %more = less(%i, %n);
          %0 = add(%i, 1);
          if (%more) {{ %loop(%0, add(%s, cast(%0, dtype="float32"))) }}
          else {{ multiply(%s, cast(%0, dtype="float32")) }}
        }};
        %1 = %loop(0, %x);
        add(%1, %1)""",
}
X = np.array([1, -0.5], "float32")


def loop(body: str) -> relay.IRModule:
    return relay.parse(f"def @main(%n: int32, %x: {V}) {{ {body} }}")


@pytest.mark.parametrize("name", LOOPS)
def test_loops_compute_the_same(name: str) -> None:
    mod = loop(LOOPS[name])
    lowered = LOWER(mod)
    machine = relax.VirtualMachine(
        relax.build(from_relay(mod), cpu(), relax_pipeline=pipeline()), tvm.cpu()
    )
    for count in (0, 1, 2, 5, 9):
        inputs = [np.array(count, "int32"), X]
        expected = Interpreter(mod).run(*inputs)
        assert same(Interpreter(lowered).run(*inputs), expected)
        result = machine["main"](*map(tvm.runtime.tensor, inputs))
        results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for actual, reference in zip(results, expected, strict=True):
            np.testing.assert_allclose(actual.numpy(), reference, rtol=1e-5)


def test_structure() -> None:
    before = loop(
        f"""
        let %f = fn (%i: int32, %s: {V}) -> {V} {{
          if (less(%i, %n)) {{ %f(add(%i, 1), tanh(%s)) }} else {{ negative(%s) }}
        }};
        %f(0, %x)"""
    )
    state = f"(bool, int32, {V}, int32)"
    expected = relay.parse(
        f"""
        def @main(%n: int32, %x: {V}) {{ @f(0, %x, %n) }}
        def @f(%i: int32, %s: {V}, %n: int32) -> {V} {{
          let %state: {state} = @f_loop(0, %i, %s, %n);
          let %i1: int32 = %state.1;
          let %s1: {V} = %state.2;
          let %n1: int32 = %state.3;
          negative(%s1)
        }}
        def @f_step(%i: int32, %s: {V}, %n: int32) -> {state} {{
          if (less(%i, %n)) {{ (False, add(%i, 1), tanh(%s), %n) }} else {{ (True, %i, %s, %n) }}
        }}
        def @f_steps(%k: int32, %i: int32, %s: {V}, %n: int32, flattened=1) -> {state} {{
          if (equal(%k, 0)) {{ @f_step(%i, %s, %n) }} else {{
            %0 = subtract(%k, 1);
            let %half: {state} = @f_steps(%0, %i, %s, %n);
            if (%half.0) {{ %half }} else {{ @f_steps(%0, %half.1, %half.2, %half.3) }}
          }}
        }}
        """
        f"""
        def @f_loop(%k: int32, %i: int32, %s: {V}, %n: int32, flattened=1) -> {state} {{
          let %state: {state} = @f_steps(%k, %i, %s, %n);
          if (%state.0) {{ %state }} else {{
            @f_loop(add(%k, 1), %state.1, %state.2, %state.3)
          }}
        }}"""
    )
    after = LOWER(before)
    assert set(after.functions) == set(expected.functions)
    for name, function in expected.functions.items():
        assert tvm_ffi.structural_equal(after[name], function, map_free_vars=True), name
    again = LOWER(after)
    assert set(again.functions) == set(after.functions)


def test_a_loop_of_many_iterations() -> None:
    mod = loop(
        f"""
        let %f = fn (%i: int32, %s: {V}) -> {V} {{
          if (less(%i, %n)) {{ %f(add(%i, 1), add(%s, 1f)) }} else {{ %s }}
        }};
        %f(0, %x)"""
    )
    result = run(from_relay(mod), np.array(50_000, "int32"), X, pipeline=pipeline())
    np.testing.assert_array_equal(result, X + 50_000)


def test_functions_of_equal_types_are_not_merged() -> None:
    mod = relay.parse(
        f"""
        def @f(%x: {V}) -> {V} {{ add(%x, 1f) }}
        def @g(%x: {V}) -> {V} {{ multiply(%x, 5f) }}
        def @main(%x: {V}) {{ (@f(%x), @g(%x)) }}"""
    )
    first, second = run(from_relay(mod), X, pipeline=pipeline())
    np.testing.assert_array_equal(first, X + 1)
    np.testing.assert_array_equal(second, X * 5)


def test_a_local_function_with_match_is_not_lifted() -> None:
    text = """
        type List[A] { Cons(A, List[A]), Nil, }
        def @main(%x: int32) {
          let %f = fn (%l: List[int32]) -> int32 {
            match? (%l) { Cons(%h, %t) => add(%h, %f(%t)), Nil => 0 }
          };
          %f(Cons(%x, Cons(2, Nil)))
        }"""
    mod = LOWER(relay.parse(text))
    assert list(mod.functions) == ["main"]
    result = run(from_relay(relay.parse(text)), np.array(5, "int32"), pipeline=pipeline())
    assert result == 7


@pytest.mark.parametrize(
    "text",
    [
        """
        def @even(%n: int32) -> bool { if (equal(%n, 0)) { True } else { @odd(subtract(%n, 1)) } }
        def @odd(%n: int32) -> bool { if (equal(%n, 0)) { False } else { @even(subtract(%n, 1)) } }
        def @main(%n: int32) { equal(@even(%n), True) }
        """,
        """
        def @even(%n: int32) -> bool {
          if (equal(%n, 0)) { True } else { logical_not(@even(subtract(%n, 1))) }
        }
        def @main(%n: int32) { @even(%n) }
        """,
    ],
    ids=["two functions", "not last"],
)
def test_calls_that_nest_too_deeply_are_an_error(text: str) -> None:
    """The virtual machine has no check; the process would crash."""
    mod = from_relay(relay.parse(text))
    for count in (0, 7, 800):
        assert run(mod, np.array(count, "int32"), pipeline=pipeline()) == (count % 2 == 0)
    with pytest.raises(RuntimeError, match="match_cast"):
        run(mod, np.array(20_000, "int32"), pipeline=pipeline())


def test_branches_that_nest_deeply() -> None:
    n, scalar = relay.Var("n", relay.TensorType([], "int32")), relay.TensorType([], "int32")
    again = relay.Call(relay.GlobalVar("f"), [n])
    condition = relay.Call("less", [n, relay.Constant(np.int32(0))])
    body = again
    for _ in range(50_000):
        body = relay.If(condition, body, n)
    main = relay.Function([n], body, scalar)
    mod = transform.InferType()(relay.IRModule({"f": main, "main": main}))
    assert set(transform.FlattenRecursion()(mod).functions) == {"f", "main"}


def test_a_loop_without_a_name() -> None:
    scalar = relay.TensorType([], "int32")
    n, i, name = relay.Var("n", scalar), relay.Var("i", scalar), relay.Var("")
    again = relay.Call(name, [relay.Call("add", [i, relay.Constant(np.int32(1))])])
    body = relay.If(relay.Call("less", [i, n]), again, i)
    start = relay.Call(name, [relay.Constant(np.int32(0))])
    whole = relay.Let(name, relay.Function([i], body, scalar), start)
    mod = relay.IRModule({"main": relay.Function([n], whole)})
    assert {"loop", "loop_step"} <= set(LOWER(mod).functions)
    assert run(from_relay(mod), np.array(5, "int32"), pipeline=pipeline()) == 5


def test_time_grows_linearly() -> None:
    seconds = {}
    for count in (10, 20, 40, 80):
        loops = "".join(
            f"let %f{i} = fn (%i: int32) -> int32"
            f" {{ if (less(%i, %n)) {{ %f{i}(add(%i, 1)) }} else {{ %i }} }};\n"
            f"let %y{i} = %f{i}({f'%y{i - 1}' if i else '0'});\n"
            for i in range(count)
        )
        mod = loop(f"{loops} %y{count - 1}")
        start = time.process_time()
        LOWER(mod)
        seconds[count] = time.process_time() - start
    assert_linear(seconds, factor=4, slack=0.02)


if __name__ == "__main__":
    tvm.testing.main()
