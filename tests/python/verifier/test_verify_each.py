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
"""The verifier after each pass."""

import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_fixes
from tvm_fixes import VerifyEach, VerifyError

pytestmark = pytest.mark.native


@I.ir_module
class Right:
    @R.function
    def main(x: R.Tensor((4,), "float32"), w: R.Tensor((5,), "float32")) -> R.Tensor(
        (4,), "float32"
    ):
        y = R.nn.relu(x)
        z = R.add(y, x)
        return z


def wrong_main() -> relax.Function:
    """The same, but that y is made of w."""
    function = Right["main"]
    relu, add = function.body.blocks[0].bindings
    value = relax.BlockBuilder().normalize(relax.op.nn.relu(function.params[1]))
    block = relax.BindingBlock([relax.VarBinding(relu.var, value), add])
    body = relax.BlockBuilder().normalize(relax.SeqExpr([block], add.var))
    wrong = relax.Function(function.params, body, function.ret_ty)
    return wrong.with_attr("global_symbol", "main")


def put(mod, main):
    """Put `main` in its place, in the module itself."""
    mod[mod.get_global_var("main")] = main
    return mod


def wrong_module() -> tvm.IRModule:
    return put(Right.clone(), wrong_main())


def pass_to(main, name="Break"):
    """A pass that puts `main` in its place, in a new module."""

    @tvm.transform.module_pass(opt_level=0, name=name)
    def replace(mod, _context):
        return put(mod.clone(), main)

    return replace


@tvm.transform.module_pass(opt_level=0, name="BreakInPlace")
def break_in_place(mod, _context):
    return put(mod, wrong_main())


def run(*passes, mod=Right, name="Ours", **options):
    each = VerifyEach(**options)
    with tvm.transform.PassContext(instruments=[each]):
        tvm.transform.Sequential(list(passes), name=name)(mod.clone())
    return each.findings


TEXT = """\
error[type.binding]: main: `y` cannot hold its value: dim 0: 5 != 4
  path: functions["main"].body.blocks[0].bindings[0].var
     8 |  y: R.Tensor((4,), dtype="float32") = R.nn.relu(w)
       |  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  before: y: R.Tensor((4,), dtype="float32") = R.nn.relu(x)
  after:  y: R.Tensor((4,), dtype="float32") = R.nn.relu(w)
  introduced by the pass Break"""


def test_the_pass_that_is_at_fault_is_named():
    findings = run(
        relax.transform.CanonicalizeBindings(),
        pass_to(wrong_main()),
        relax.transform.DeadCodeElimination(),
        raise_on_error=False,
    )
    assert findings[0].text == str(findings[0]) == TEXT
    assert {found.pass_name for found in findings} == {"Break"}
    assert findings[0].diagnostic.rule == "type.binding"


def test_the_first_pass_with_an_error_raises():
    ran = []

    @tvm.transform.module_pass(opt_level=0, name="Later")
    def later(mod, _context):
        ran.append(mod)
        return mod

    with pytest.raises(VerifyError) as caught:
        run(pass_to(wrong_main()), later)
    assert str(caught.value).startswith(TEXT)
    assert ran == []


def test_earlier_errors_are_not_blamed_on_a_pass():
    findings = run(
        relax.transform.DeadCodeElimination(),
        mod=wrong_module(),
        raise_on_error=False,
    )
    assert findings
    assert {(found.pass_name, found.found_before) for found in findings} == {(None, "Ours")}
    assert "present before the pass Ours" in findings[0].text
    with pytest.raises(VerifyError, match="present before the pass Ours"):
        run(mod=wrong_module())


def test_a_pass_around_the_one_at_fault_is_not_blamed():
    inner = tvm.transform.Sequential([pass_to(wrong_main(), "Inner")], name="Middle")

    @tvm.transform.module_pass(opt_level=0, name="Outer")
    def outer(mod, _context):
        return inner(mod)

    findings = run(outer, raise_on_error=False)
    assert findings
    assert {found.pass_name for found in findings} == {"Inner"}


def test_an_outer_pass_is_blamed_for_what_it_does_itself():
    @tvm.transform.module_pass(opt_level=0, name="Outer")
    def outer(mod, _context):
        return put(relax.transform.DeadCodeElimination()(mod).clone(), wrong_main())

    assert {found.pass_name for found in run(outer, raise_on_error=False)} == {"Outer"}


def test_a_module_that_is_changed_in_place():
    findings = run(break_in_place, raise_on_error=False)
    assert findings
    assert {found.pass_name for found in findings} == {"BreakInPlace"}
    assert "before: y: R.Tensor((4,)" in findings[0].text


def test_unchanged_functions_are_not_verified_again(monkeypatch):
    verified = []
    real = tvm_fixes.verifier.verify_each.verify

    def counted(mod):
        verified.append(mod)
        return real(mod)

    monkeypatch.setattr("tvm_fixes.verifier.verify_each.verify", counted)
    unchanged = tvm.transform.module_pass(lambda mod, _context: mod, opt_level=0, name="Unchanged")
    run(unchanged, unchanged)
    assert len(verified) == 1
    verified.clear()
    run(unchanged, pass_to(Right["main"].with_attr("new", 1)), unchanged)
    assert len(verified) == 2


def test_a_pass_that_raises_leaves_the_next_one_its_own_module():
    @tvm.transform.module_pass(opt_level=0, name="Raises")
    def raises(_mod, _context):
        raise ValueError("no")

    @tvm.transform.module_pass(opt_level=0, name="Tries")
    def tries(mod, _context):
        with pytest.raises(ValueError, match="no"):
            raises(mod)
        return pass_to(wrong_main())(mod)

    findings = run(tries, raise_on_error=False)
    assert {found.pass_name for found in findings} == {"Break"}
    assert "before: y: R.Tensor((4,)" in findings[0].text


def test_a_context_begins_anew_and_keeps_no_module():
    each = VerifyEach(raise_on_error=False)
    module = wrong_module()
    for _ in range(2):
        with tvm.transform.PassContext(instruments=[each]):
            relax.transform.DeadCodeElimination()(module)
        assert [found.diagnostic.rule for found in each.findings].count("type.binding") == 1
    assert each._verified is None and each._running == []


def test_a_default_pipeline_is_clean():
    with tvm.transform.PassContext(instruments=[VerifyEach()]), tvm.target.Target("llvm"):
        relax.get_default_pipeline(tvm.target.Target("llvm"))(Right.clone())


if __name__ == "__main__":
    tvm.testing.main()
