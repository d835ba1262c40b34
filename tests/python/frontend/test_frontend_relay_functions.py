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
"""The translation of functions, closures, branches, references and data types to Relax."""

import numpy as np
import pytest
import tvm.testing
from tvm import relax

from helpers.grids import few
from helpers.relax_modules import cpu
from helpers.relay_interpreter import Interpreter
from tvm_fixes import relay
from tvm_fixes.errors import RelayError, UnsupportedOperatorError, UsageError
from tvm_fixes.frontend.relay import from_relay

LIST = "type List[A] { Cons(A, List[A]), Nil }\n"

X = np.array([[1, -2, 3]], "float32")
RELU = np.maximum(X, 0)
T = "Tensor[(1, 3), float32]"


def translate(text, params=None):
    return from_relay(relay.parse(text), params)


def run(mod, *inputs):
    """The result of "main" as nested lists of arrays."""
    machine = relax.VirtualMachine(relax.build(mod, cpu()), tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(value) for value in inputs])

    def arrays(value):
        return value.numpy() if hasattr(value, "numpy") else [arrays(part) for part in value]

    return arrays(result)


def count(mod, operator):
    return str(mod).count(f"R.{operator}(")


@few(6)
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("%x", X),
        ("2f", np.float32(2)),
        ("(%x, (nn.relu(%x), %x))", [X, [RELU, X]]),
        ("()", []),
        ("((%x, nn.relu(%x)).1,).0", RELU),
        ("let %y = nn.relu(%x); add(%y, %y)", 2 * RELU),
        ("let %f = fn (%y) { add(%y, %x) }; %f(%f(%x))", 3 * X),
        ("let %f = fn (%g, %y) { %g(%g(%y)) }; %f(fn (%z) { add(%z, %z) }, %x)", 4 * X),
        ("(fn (%y) { fn (%z) { add(%y, %z) } })(%x)(nn.relu(%x))", X + RELU),
        ("let %g = fn (%p) { %p.0 }; %g((%x, 1))", X),
        ("if (True) { nn.relu(%x) } else { %x }", RELU),
        ("let %r = ref(%x); let %u = ref_write(%r, nn.relu(%x)); ref_read(%r)", RELU),
        ("match ((%x, nn.relu(%x))) { (_, %y) => %y }", RELU),
        ("@g(@g(%x))", 4 * X),
        ("@pair(%x).1", RELU),
        ("(@id(%x), @id(1f))", [X, np.float32(1)]),
        ("@sum(Cons(%x, Cons(%x, Cons(%x, Nil))))", 3 * X),
        ("@map(fn (%y) { nn.relu(%y) }, Cons(%x, Nil))", RELU),
    ],
)
def test_expressions(body, expected):
    text = f"""
    def @g(%x: {T}) {{ add(%x, %x) }}
    def @id[A](%a: A) -> A {{ %a }}
    def @pair(%x: {T}) {{ (%x, nn.relu(%x)) }}
    def @sum(%l: List[{T}]) -> {T} {{
      match (%l) {{ Cons(%h, Nil) => %h, Cons(%h, %t) => add(%h, @sum(%t)) }}
    }}
    def @map(%f: fn ({T}) -> {T}, %l: List[{T}]) {{ match (%l) {{ Cons(%h, _) => %f(%h) }} }}
    def @main(%x: {T}) {{ {body} }}
    """

    def check(actual, wanted):
        if isinstance(wanted, list):
            assert len(actual) == len(wanted)
            for one, other in zip(actual, wanted, strict=True):
                check(one, other)
        else:
            np.testing.assert_array_equal(actual, wanted)

    check(run(translate(LIST + text), X), expected)


@pytest.mark.parametrize("taken", [True, False])
def test_a_condition_known_at_run_time(taken):
    mod = translate(
        f"def @main(%x: {T}, %c: bool) {{ if (%c) {{ (nn.relu(%x), %x) }} else {{ (%x, %x) }} }}"
    )
    first, second = run(mod, X, np.array(taken))
    np.testing.assert_array_equal(first, RELU if taken else X)
    np.testing.assert_array_equal(second, X)


def test_recursion_is_a_loop():
    text = f"""
    def @loop(%n: int32, %x: {T}) -> {T} {{
      if (less(0, %n)) {{ @loop(subtract(%n, 1), add(%x, %x)) }} else {{ %x }}
    }}
    def @main(%n: int32, %x: {T}) {{ @loop(%n, %x) }}
    """
    np.testing.assert_array_equal(run(translate(text), np.array(3, "int32"), X), 8 * X)


@pytest.mark.parametrize(
    "body",
    [
        "let %u = if (%c) { ref_write(%r, nn.relu(%x)) } else { () }; ref_read(%r)",
        """
        let %s = ref(tanh(%x));
        let %u = if (%c) { ref_write(%r, nn.relu(%x)) } else { ref_write(%s, ref_read(%r)) };
        (ref_read(%r), ref_read(%s))""",
        """
        let %k = if (%c) { let %w = ref_write(%r, exp(%x)); 3f } else { 4f };
        (%k, ref_read(%r))""",
        """
        let %u = if (%c) {
          if (less(sum(%x), 0f)) { ref_write(%r, exp(%x)) } else { ref_write(%r, nn.relu(%x)) }
        } else { () };
        ref_read(%r)""",
        "let %f = fn () { ref_write(%r, exp(ref_read(%r))) }; let %u = %f(); ref_read(%r)",
        """
        let %f = fn () {
          let %a = add(ref_read(%r), %x);
          let %w = ref_write(%r, %a);
          %a
        };
        let %g = fn () { %f() };
        let %a = %g();
        let %b = %g();
        (%a, %b, ref_read(%r))""",
        """
        let %f = fn (%i: int32) -> int32 {
          if (less(%i, 3)) {
            let %w = ref_write(%r, add(ref_read(%r), %x));
            %f(add(%i, 1))
          } else { %i }
        };
        let %n = %f(0);
        ref_read(%r)""",
    ],
)
def test_references(body):
    """The value that a branch or a function writes is read after it."""
    mod = relay.parse(f"def @main(%c: bool, %x: {T}) {{ let %r = ref(%x); {body} }}")
    for taken in (True, False):
        expected = Interpreter(mod).run(np.array(taken), X)
        actual = run(from_relay(mod), np.array(taken), X)
        if not isinstance(expected, tuple):
            expected, actual = [expected], [actual]
        for one, other in zip(actual, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_long_lists_and_loops_over_lists():
    """Partial evaluation makes these plain calls."""
    elements = "".join(f"let %l{i + 1} = Cons(multiply(%x, {i}f), %l{i});\n" for i in range(150))
    text = f"""
    def @sum(%l: List[{T}], %s: {T}) -> {T} {{
      match (%l) {{ Cons(%h, %t) => @sum(%t, add(%s, %h)), Nil => %s }}
    }}
    def @main(%x: {T}) {{
      let %build = fn (%i: int32, %l: List[{T}]) -> List[{T}] {{
        if (less(%i, 5)) {{ %build(add(%i, 1), Cons(%x, %l)) }} else {{ %l }}
      }};
      let %l0 = Nil;
      {elements}
      add(@sum(%l150, %x), @sum(%build(0, Nil), %x))
    }}"""
    np.testing.assert_array_equal(run(translate(LIST + text), X), X * (sum(range(150)) + 7))


def test_a_list_that_is_known_at_run_time():
    text = f"""
    def @main(%c: bool, %x: {T}) {{
      match? (if (%c) {{ Cons(%x, Nil) }} else {{ Nil }}) {{ Cons(%h, _) => %h, Nil => %x }}
    }}"""
    with pytest.raises(RelayError, match=r"4:\d+ must be a tensor .* it has type List"):
        translate(LIST + text)


def test_dimensions_known_at_run_time():
    mod = translate("def @main(%x: Tensor[(?, 3), float32]) { nn.relu(%x) }")
    for rows in (1, 4):
        value = np.random.default_rng(0).normal(size=(rows, 3)).astype("float32")
        np.testing.assert_array_equal(run(mod, value), np.maximum(value, 0))


@pytest.mark.parametrize(
    "body",
    (
        "concatenate((%x, %y), axis=0)",
        "stack((%x, %y), axis=1)",
        "let %z: Tensor[(2, 3), float32] = %x; nn.batch_flatten(%z)",
        "let %z = @f(%x); where(less(%z, 0.5f), %z, %x)",
    ),
)
def test_extents_that_only_relay_knows(body):
    """What is ? in one operand is known from another, an annotation or a function's type."""
    mod = relay.parse(
        f"""
        def @f(%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {{ tanh(%x) }}
        def @main(%x: Tensor[(?, ?), float32], %y: Tensor[(2, 3), float32]) {{ {body} }}
        """
    )
    x, y = np.random.default_rng(0).normal(size=(2, 2, 3)).astype("float32")
    expected = Interpreter(mod).run(x, y)
    np.testing.assert_allclose(run(from_relay(mod), x, y), expected, rtol=1e-5)
    with pytest.raises(Exception, match=r"match_cast|mismatch"):
        run(from_relay(mod), x[:, :2], y)


def test_params_become_constants():
    text = f"def @main(%a: {T}, %w.0: {T}, %b: {T}) {{ add(add(%a, %w.0), %b) }}"
    mod = translate(text, {"w.0": 10 * X})
    assert [var.name for var in mod["main"].params] == ["a", "b"]
    np.testing.assert_array_equal(run(mod, X, RELU), 11 * X + RELU)
    assert [var.name for var in translate(text)["main"].params] == ["a", "w.0", "b"]


def test_params_whose_names_text_changes():
    text = f"def @main(%v0.weight: {T}, %v_param_1: {T}) {{ add(%v0.weight, %v_param_1) }}"
    mod = translate(text, {"0.weight": X, "_param_1": RELU})
    np.testing.assert_array_equal(run(mod), X + RELU)
    with pytest.raises(UsageError, match="does not have: weight"):
        translate(text, {"weight": X})


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int64", "uint8", "bool"])
def test_params_keep_their_dtype(dtype):
    """NumPy's default dtypes are others than Relax's."""
    value = np.array([[0, 1, 1]], dtype)
    mod = translate(
        f"def @main(%w: Tensor[(1, 3), {dtype}]) {{ reshape(%w, newshape=[3]) }}", {"w": value}
    )
    result = run(mod)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, value[0])


def test_shared_nodes_are_computed_once():
    mod = translate(f"def @main(%x: {T}) {{ %0 = nn.relu(%x); add(%0, %0) }}")
    assert count(mod, "nn.relu") == 1
    text = (
        f"def @main(%x: {T}) {{ %0 = nn.relu(%x); let %f = fn () {{ add(%0, %0) }}; (%f(), %0) }}"
    )
    assert count(translate(text), "nn.relu") == 1


def test_unsupported_operators_are_listed():
    text = f"def @main(%x: {T}) {{ (foo(%x),\n nn.relu(%x), bar.baz(%x)) }}"
    with pytest.raises(UnsupportedOperatorError) as error:
        translate(text)
    assert "foo at 1:" in str(error.value)
    assert "bar.baz at 2:15" in str(error.value)
    assert "relu" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "params", "error", "problem"),
    [
        ("def @f() { 1 }", {}, UsageError, 'no function "main"'),
        (
            "def @main(%x: int32) { %x }",
            {"y": X},
            UsageError,
            "parameters that main does not have: y",
        ),
        (
            "def @main(%x: Tensor[(?, 2), float32]) { %x }",
            {"x": np.zeros((3, 2), "float64")},
            UsageError,
            r"parameter .x.: expected .*\(\?, 2\), float32\], got .*\(3, 2\), float64\]",
        ),
        (
            "def @main(%x: Tensor[(?, 2), float32]) { %x }",
            {"x": np.zeros((2, 3), "float32")},
            UsageError,
            r"parameter .x.: expected .*\(\?, 2\), float32\], got .*\(2, 3\), float32\]",
        ),
        ("def @main() { fn (%x: int32) { %x } }", {}, RelayError, "type fn"),
        (
            "def @main() { match? (1) { } }",
            {},
            RelayError,
            "1:5: the type of an expression cannot be inferred",
        ),
    ],
)
def test_errors(text, params, error, problem):
    with pytest.raises(error, match=problem):
        translate(text, params)


def test_a_long_chain():
    text = "".join(f"%{i} = nn.relu(%{i - 1});\n" for i in range(1, 2000))
    mod = translate(f"def @main(%x: {T}) {{ %0 = %x; {text} %1999 }}")
    assert count(mod, "nn.relu") == 1999


if __name__ == "__main__":
    tvm.testing.main()
