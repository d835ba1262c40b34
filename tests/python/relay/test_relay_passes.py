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
"""Normal forms, inlining, dead code and partial evaluation: equal results, depth and time."""

import time

import numpy as np
import pytest
import tvm.testing
import tvm_ffi

from helpers.grids import few, is_full
from helpers.growth import assert_linear
from helpers.relay_interpreter import PRELUDE, PROGRAMS, assert_same_results, program
from tvm_fixes import relay
from tvm_fixes.relay import transform

pytestmark = pytest.mark.native

PASSES = {
    "anf": [transform.ToANormalForm()],
    "graph": [transform.ToGraphNormalForm()],
    "anf, graph": [transform.ToANormalForm(), transform.ToGraphNormalForm()],
    "fold": [transform.InferType(), transform.FoldConstant()],
    "if": [transform.SimplifyIf()],
    "inline": [transform.Inline()],
    "dead code": [transform.DeadCodeElimination(), transform.RemoveUnusedFunctions()],
    "partial": [transform.PartialEvaluate(), transform.RemoveUnusedFunctions()],
    "all": [
        transform.PartialEvaluate(),
        transform.ToGraphNormalForm(),
        transform.Inline(),
        transform.DynamicToStatic(),
        transform.ToANormalForm(),
        transform.DeadCodeElimination(),
    ],
}


@pytest.mark.parametrize("passes", PASSES)
def test_results_are_kept(passes):
    for name in PROGRAMS:
        before = program(name)
        after = transform.Sequential(PASSES[passes])(before)
        assert_same_results(before, after)
        transform.InferType()(after)


def nodes(expr):
    found = []
    stack, seen = [expr], set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        found.append(node)
        for name in (
            "op",
            "args",
            "fields",
            "tuple",
            "value",
            "body",
            "cond",
            "true_branch",
            "false_branch",
            "data",
            "ref",
        ):
            part = getattr(node, name, None)
            if isinstance(part, relay.Expr):
                stack.append(part)
            elif part is not None and name in ("args", "fields"):
                stack.extend(part)
        stack.extend(clause.rhs for clause in getattr(node, "clauses", []))
    return found


ATOMS = (relay.Var, relay.Constant, relay.GlobalVar, relay.Op, relay.Constructor)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_normal_form_has_only_atoms_as_operands(name):
    mod = transform.ToANormalForm()(program(name))
    for node in nodes(mod["main"].body):
        if isinstance(node, relay.Call):
            assert all(isinstance(arg, ATOMS) for arg in [node.op, *node.args])
        if isinstance(node, relay.Tuple):
            assert all(isinstance(field, ATOMS) for field in node.fields)
        if isinstance(node, relay.Let):
            assert not isinstance(node.value, relay.Let)


KNOWN = ["match", "map", "foldl and update", "closure", "function as a result", "known condition"]


@pytest.mark.parametrize("name", KNOWN)
def test_known_structure_disappears(name):
    mod = transform.PartialEvaluate()(program(name))
    kinds = (relay.Match, relay.Function, relay.Constructor, relay.GlobalVar, relay.If)
    assert not [node for node in nodes(mod["main"].body) if isinstance(node, kinds)]


def test_tensor_array_of_known_length():
    text = """
type Element { tensor0(Tensor[(), float32]), tensor1(Tensor[(?), float32]), }
def @unstack(%i: int32, %up: int32, %t: Tensor[(?, ?), float32]) -> List[Element] {
  if (equal(%i, %up)) { Nil } else {
    Cons(tensor1(take(%t, %i, axis=0)), @unstack(%i + 1, %up, %t)) }
}
def @main(%x: Tensor[(3, 2), float32], %start: Tensor[(2), float32]) {
  let %l = @unstack(0, take(shape_of(%x, dtype="int32"), 0), %x);
  let %m = @update(%l, 1, tensor1(nn.relu(%start)));
  @foldl(fn (%a: Tensor[(?), float32], %e: Element) -> Tensor[(?), float32] {
    match (%e) { tensor1(%v) => add(%a, %v), _ => %a } }, %start, %m)
}
"""
    mod = transform.PartialEvaluate()(relay.parse(PRELUDE + text))
    mod = transform.InferType()(transform.RemoveUnusedFunctions()(mod))
    uses = [name for name, _ in relay.operator_uses(mod)]
    assert sorted(uses) == ["add", "add", "add", "nn.relu", "take", "take"]
    assert set(mod.functions) == {"main"}
    assert str(mod["main"].body.checked_type) == "Tensor[(2,), float32]"


def same_text(mod, text):
    return tvm_ffi.structural_equal(mod, relay.parse(text))


def test_inline():
    text = """
def @once(%a: int32) -> int32 { add(%a, %a) }
def @twice[A](%b: A, Inline=1) -> A { let %k: A = %b; %k }
def @rec(%n: int32, Inline=1) -> int32 { if (%n < 1) { 0 } else { @rec(%n - 1) } }
def @extern(%n: int32, Compiler="dnnl") -> int32 { %n }
def @main(%x: int32) { (@twice(@once(%x)), @twice(1f), @rec(%x), @extern(%x)) }
"""
    mod = transform.Inline()(relay.parse(text))
    assert set(mod.functions) == {"main", "rec", "extern"}
    typed = transform.InferType()(mod)
    assert str(typed["main"].body.checked_type) == "(int32, float32, int32, int32)"


def test_copies_that_would_explode_are_bounded():
    lines = ["def @f0(%x: int32, Inline=1) -> int32 { add(%x, 1) }"]
    for i in range(1, 40):
        body = f"@f{i - 1}(@f{i - 1}(%x))"
        lines.append(f"def @f{i}(%x: int32, Inline=1) -> int32 {{ {body} }}")
    lines.append("def @main(%x: int32) { @f39(@f39(%x)) }")
    mod = relay.parse("\n".join(lines))
    inlined = transform.Inline()(mod)
    assert "main" in inlined.functions
    # Partial evaluation has a bound as well.
    assert "main" in transform.PartialEvaluate()(mod).functions


def test_dead_code_keeps_writes():
    text = """
def @main(%x: int32) {
  let %r = ref(%x); let %a = add(%x, 1); let %b = multiply(%a, 2);
  let %w = ref_write(%r, 3); let %s = ref_read(%r); ref_read(%r) }
"""
    expected = """
def @main(%x: int32) { let %r = ref(%x); let %w = ref_write(%r, 3); ref_read(%r) }
"""
    assert same_text(transform.DeadCodeElimination()(relay.parse(text)), expected)


def test_remove_unused_functions():
    mod = program("foldl and update")
    left = transform.RemoveUnusedFunctions()(mod)
    assert set(left.functions) == {"main", "foldl", "update", "hd", "tl"}
    assert set(transform.RemoveUnusedFunctions(["map"])(mod).functions) == {"map"}


def test_graph_form_shares_and_keeps_loops():
    text = "def @main(%x: int32) { let %a = add(%x, 1); let %b = %a; multiply(%a, %b) }"
    body = transform.ToGraphNormalForm()(relay.parse(text))["main"].body
    assert body.args[0].same_as(body.args[1]) and body.args[0].op.name == "add"
    loop = transform.ToGraphNormalForm()(program("loop"))
    assert isinstance(loop["main"].body, relay.Let)


def chain(count):
    x = relay.Var("x", relay.TensorType([2], "float32"))
    value = x
    for _ in range(count):
        value = relay.Call("add", [value, value])
    return relay.IRModule({"main": relay.Function([x], value)})


def lets(count):
    x = relay.Var("x", relay.TensorType([2], "float32"))
    variables = [x] + [relay.Var("v") for _ in range(count)]
    body = variables[-1]
    for i in reversed(range(count)):
        value = relay.Call("add", [variables[i], variables[i]])
        body = relay.Let(variables[i + 1], value, body)
    return relay.IRModule({"main": relay.Function([x], body)})


def dynamic(count):
    x = relay.Var("x", relay.TensorType([1, 2], "float32"))
    value = x
    for _ in range(count // 3):
        value = relay.Call("dyn.reshape", [value, relay.Call("shape_of", [x], {"dtype": "int64"})])
        value = relay.Call("nn.relu", [value])
    return relay.IRModule({"main": relay.Function([x], value)})


def functions(count):
    lines = ["def @f0(%x: int32) -> int32 { add(%x, 1) }"]
    for i in range(1, count // 5):
        lines.append(f"def @f{i}(%x: int32) -> int32 {{ add(@f{i - 1}(%x), 1) }}")
    lines.append(f"def @main(%x: int32) {{ @f{count // 5 - 1}(%x) }}")
    return relay.parse("\n".join(lines))


def fold(count):
    mod = relay.parse(PRELUDE + "def @main(%x: int32, %l: List[int32]) { %l }")
    cons, nil = mod.type_definitions["List"].constructors
    x, p, q = mod["main"].params[0], relay.Var("p"), relay.Var("q")
    data = relay.Call(nil, [])
    for _ in range(count // 10):
        data = relay.Call(cons, [x, data])
    adder = relay.Function([p, q], relay.Call("add", [p, q]))
    body = relay.Call(relay.GlobalVar("foldl"), [adder, x, data])
    main = relay.Function([x], body)
    return relay.IRModule({**dict(mod.functions), "main": main}, mod.type_definitions)


SIMPLE = ["anf", "graph", "fold", "dead code", "partial"]


@few(4)
@pytest.mark.parametrize("name", SIMPLE)
@pytest.mark.parametrize("make", [chain, lets])
def test_deep_programs(make, name):
    deep = 100000 if is_full() else 40000
    after = transform.Sequential(PASSES[name])(make(deep if make is chain else 10000))
    assert "main" in after.functions


@pytest.mark.parametrize(
    "make, name",
    [(lets, name) for name in SIMPLE]
    + [(chain, "anf"), (dynamic, "all"), (functions, "inline"), (fold, "partial")],
)
def test_time_grows_linearly(make, name):
    seconds = {}
    for times in (1, 2, 4, 8) if is_full() else (1, 2, 4):
        mod = make(1000 * times)
        start = time.process_time()
        transform.Sequential(PASSES[name])(mod)
        seconds[times] = time.process_time() - start
    assert_linear(seconds, factor=4, slack=0.2)


def test_long_list():
    mod = transform.PartialEvaluate()(fold(100000))
    assert {name for name, _ in relay.operator_uses(transform.RemoveUnusedFunctions()(mod))} == {
        "add"
    }


def test_loops_that_never_end_stay_calls():
    text = "def @f(%n: int32) -> int32 { @f(%n + 1) } def @main() { @f(0) }"
    mod = transform.PartialEvaluate()(relay.parse(text))
    calls = [n for n in nodes(mod["main"].body) if isinstance(n, relay.Call)]
    assert [call.op.name for call in calls] == ["f"]
    assert calls[0].args[0].numpy() == np.int32(100000)


if __name__ == "__main__":
    tvm.testing.main()
