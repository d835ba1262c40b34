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
"""Reports of the verifier as text, as JSON and as an error."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm.te
import tvm.testing
import tvm.topi
import tvm_ffi
from tvm import relax

import tvm_fixes
from tvm_fixes import CompileError, Diagnostics, VerifyError, verify
from tvm_fixes.probes.verifier import overwritten_input_is_used
from tvm_fixes.source.module_file import read_module
from tvm_fixes.support.isolate import OutcomeKind, run_forked
from tvm_fixes.verifier import render

pytestmark = pytest.mark.native

ROOT = Path(__file__).parents[3]


def relu(batch):
    data = tvm.te.placeholder((batch, 64, 56, 56), "float32", name="A")
    return tvm.te.create_prim_func([data, tvm.topi.nn.relu(data)]).without_attr("global_symbol")


def replaced_callee():
    """The output of conv2d has one row, but the replaced PrimFunc expects 64."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 64, 56, 56), "float32"))
    w = relax.Var("w", relax.TensorType((64, 64, 3, 3), "float32"))
    with builder.function("main", [x, w]):
        c = builder.emit(relax.op.nn.conv2d(x, w, padding=1), "c")
        var = builder.add_func(relu(1), "relu")
        builder.emit_func_output(builder.emit(relax.call_tir(var, (c,), c.ty), "r"))
    mod = builder.get()
    mod[var] = relu(64)
    return mod


def wrong_result(bindings, unprintable=False):
    """A function of `bindings` bindings, the last with a wrong type."""
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    values, last = [], x
    for i in range(bindings):
        var = relax.Var(f"v{i}", relax.TensorType((4 + (i == bindings - 1),), "float32"))
        call = relax.op.add(last, last)
        tvm_ffi.get_global_func("relax.UpdateType")(call, x.ty)
        values.append(relax.VarBinding(var, call))
        last = var
    if unprintable:
        values.append(relax.VarBinding(relax.Var("untyped"), x))
    body = relax.SeqExpr([relax.BindingBlock(values)], last)
    tvm_ffi.get_global_func("relax.UpdateType")(body, last.ty)
    function = relax.Function([x], body, last.ty)
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


ORIGIN = """\
error[call_tir.arg]: main: argument 0 of `relu`: dim 0: 1 != 64
  path: functions["main"].body.blocks[0].bindings[1].value.args[1].fields[0]
    23 |  r = R.call_tir(cls.relu, (c,), out_ty=R.Tensor((1, 64, 56, 56), dtype="float32"))
       |                            ^
  note: `relu` takes `A`: R.Tensor((64, 64, 56, 56), "float32"), \
got R.Tensor((1, 64, 56, 56), "float32")
  note: `c` is the result of relax.nn.conv2d (body.blocks[0].bindings[0])
  hint: regenerate `relu` for these shapes, or fix the caller
error[call_tir.out]: main: result 0 of `relu`: dim 0: 1 != 64
  path: functions["main"].body.blocks[0].bindings[1].value.ty_args[0]
    23 |  r = R.call_tir(cls.relu, (c,), out_ty=R.Tensor((1, 64, 56, 56), dtype="float32"))
       |                                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  note: `relu` takes `compute`: R.Tensor((64, 64, 56, 56), "float32"), \
got R.Tensor((1, 64, 56, 56), "float32")
  hint: regenerate `relu` for these shapes, or fix the caller
2 errors"""


class TestText:
    def test_the_case_of_the_origin(self):
        diagnostics = verify(replaced_callee())
        assert diagnostics.text() == ORIGIN
        assert str(diagnostics[0]) == ORIGIN.splitlines()[0]

    def test_the_line_is_that_of_the_script(self):
        mod = replaced_callee()
        number = int(re.search(r"^ +(\d+) \|", verify(mod).text(), re.MULTILINE)[1])
        assert "r = R.call_tir(cls.relu, (c,)" in mod.script().splitlines()[number - 1]

    def test_a_parameter(self):
        x = relax.Var("x", relax.TensorType((-4,), "float32"))
        body = relax.BlockBuilder().normalize(relax.SeqExpr([], x))
        function = relax.Function([x], body, x.ty).with_attr("global_symbol", "main")
        lines = verify(tvm.IRModule({"main": function})).text().splitlines()
        assert lines[2].endswith(
            'def main(x: R.Tensor((-4,), dtype="float32")) -> R.Tensor((-4,), dtype="float32"):'
        )
        assert lines[3].count("^") == len('R.Tensor((-4,), dtype="float32")')

    def test_a_valid_module(self):
        diagnostics = verify(tvm.IRModule())
        assert diagnostics == [] and diagnostics.text() == "no errors"
        diagnostics.raise_if_errors()

    def test_a_large_function_is_not_printed(self, monkeypatch):
        monkeypatch.setattr(relax.Function, "script", None)
        monkeypatch.setattr(tvm.IRModule, "script", None)
        line = '       |  v1999: R.Tensor((5,), dtype="float32") = R.add(v1998, v1998)'
        assert line in verify(wrong_result(2000)).text().splitlines()

    def test_in_a_module_of_many_functions_the_function_is_printed(self, monkeypatch):
        mod = wrong_result(2)
        for i in range(30):
            mod[f"f{i}"] = wrong_result(0)["main"].with_attr("global_symbol", f"f{i}")
        monkeypatch.setattr(tvm.IRModule, "script", None)
        assert 'v1: R.Tensor((5,), dtype="float32") = R.add(v0, v0)' in verify(mod).text()

    def test_a_function_that_crashes_the_printer_is_not_printed(self, monkeypatch):
        mod = wrong_result(2, unprintable=True)
        for kind in (relax.VarBinding, relax.Function, tvm.IRModule):
            monkeypatch.setattr(kind, "script", None)
        diagnostics = verify(mod)
        assert {"type.missing", "type.binding"} <= {diagnostic.rule for diagnostic in diagnostics}
        assert '  path: functions["main"].body.blocks[0].bindings[1].var' in diagnostics.text()

    def test_ir_that_crashes_the_printer(self, monkeypatch):
        """No rule is about a store to what is no buffer; the function is printed without it."""
        mod = overwritten_input_is_used()
        store = mod["increment"].body.body
        fields = {"value": store.value, "indices": store.indices, "span": None}
        crash = tvm.ir.make_node("tirx.BufferStore", buffer=store.indices[0], **fields)
        broken = tvm_ffi.structural_map(
            mod["increment"], (type(store), lambda node: crash if node.same_as(store) else node)
        )
        mod[mod.get_global_var("increment")] = broken
        outcome = run_forked(mod.script, timeout=60)
        assert outcome.kind is OutcomeKind.SIGNAL, "TVM prints it: another IR is wanted here"
        text = verify(mod).text()
        assert 'c: R.Tensor((4,), dtype="float32") = R.add(a, b)' in text

    def test_findings_in_functions_beside_it_are(self):
        mod = wrong_result(2, unprintable=True)
        mod["other"] = wrong_result(2)["main"].with_attr("global_symbol", "other")
        assert 'v1: R.Tensor((5,), dtype="float32") = R.add(v0, v0)' in verify(mod).text()

    def test_a_long_line_is_cut_around_the_carets(self):
        code = "a" * 80 + "b" * 10 + "c" * 80
        line, begin, end = render._clip(code, 80, 90)
        assert len(line) == render._MAX_WIDTH
        assert line[begin:end] == "b" * 10
        assert line[0] == line[-1] == "…"
        assert render._clip("short", 1, 2) == ("short", 1, 2)
        line, begin, end = render._clip(code, 0, 170)
        assert (begin, end) == (0, render._MAX_WIDTH) and line.endswith("…")


class TestJson:
    def test_document(self):
        document = json.loads(verify(replaced_callee()).json())
        assert (document["version"], document["errors"], document["warnings"]) == (1, 2, 0)
        first, second = document["diagnostics"]
        assert first == {
            "severity": "error",
            "rule": "call_tir.arg",
            "function": "main",
            "path": 'functions["main"].body.blocks[0].bindings[1].value.args[1].fields[0]',
            "message": "argument 0 of `relu`: dim 0: 1 != 64",
            "notes": [
                {
                    "message": '`relu` takes `A`: R.Tensor((64, 64, 56, 56), "float32"), '
                    'got R.Tensor((1, 64, 56, 56), "float32")',
                    "path": None,
                },
                {
                    "message": "`c` is the result of relax.nn.conv2d",
                    "path": 'functions["main"].body.blocks[0].bindings[0]',
                },
            ],
            "hint": "regenerate `relu` for these shapes, or fix the caller",
        }
        assert second.keys() == first.keys()


class TestError:
    def test_all_errors_in_one(self):
        with pytest.raises(VerifyError) as caught:
            verify(replaced_callee()).raise_if_errors()
        assert str(caught.value) == caught.value.message == ORIGIN
        assert isinstance(caught.value, CompileError) and isinstance(caught.value, ValueError)

    def test_warnings_do_not_raise(self):
        warning = verify(replaced_callee())[0]
        object.__setattr__(warning, "severity", "warning")
        diagnostics = Diagnostics([warning], replaced_callee())
        diagnostics.raise_if_errors()
        assert (diagnostics.errors, diagnostics.warnings) == ([], [warning])
        assert diagnostics.text().endswith("\n1 warning")

    def test_a_single_one_in_a_pass_fits_the_context_of_tvm(self):
        @tvm.transform.module_pass(opt_level=0, name="Ours")
        def check(mod, _context):
            verify(mod).raise_if_errors()
            return mod

        with pytest.raises(VerifyError) as caught:
            check(overwritten_input_is_used())
        before, _, after = str(caught.value).partition("\n\nError in pass: Ours\n")
        assert before.startswith("error[call_tir_inplace.use]: main: `a` is used after")
        assert ".body.blocks[0].bindings[2].value\n" in after
        lines = after.splitlines()
        line = next(i for i, line in enumerate(lines) if line.lstrip().startswith("^"))
        assert lines[line - 1].endswith(" = R.add(a, b)")
        with pytest.raises(VerifyError) as caught:
            check(replaced_callee())
        assert "Error in pass" not in str(caught.value)

    def test_no_module(self):
        with pytest.raises(TypeError, match="expected an IRModule, got"):
            verify(replaced_callee()["main"])


class TestBuild:
    def test_rejects(self):
        with pytest.raises(VerifyError, match=r"call_tir\.arg"):
            tvm_fixes.build(replaced_callee(), "llvm")

    def test_switched_off(self, monkeypatch):
        monkeypatch.setenv("TVM_FIXES_DISABLE", "verifier")
        built = []
        monkeypatch.setattr(relax, "build", lambda *arguments, **options: built.append(options))
        tvm_fixes.build(replaced_callee(), "llvm", system_lib=False)
        assert built == [{"system_lib": False}]

    @pytest.mark.parametrize("target", ["llvm", {"kind": "llvm"}])
    def test_builds(self, target):
        x = relax.Var("x", relax.TensorType((4,), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            builder.emit_func_output(builder.emit(relax.op.add(x, x)))
        executable = tvm_fixes.build(builder.get(), target, relax_pipeline="tvm_fixes")
        vm = relax.VirtualMachine(executable, tvm.cpu())
        ones = tvm.runtime.tensor(np.ones(4, "float32"))
        assert (vm["main"](ones).numpy() == 2).all()


def rule_ids():
    """The ids in the sources: literals with the form of one, of a family that is known."""
    families = (
        "ir shape scope form purity global type if op call call_tir call_tir_inplace tir"
    ).split()
    pattern = re.compile(rf'"((?:{"|".join(families)})\.[a-z][a-z_-]*|purity)"')
    native = (ROOT / "src/relax/analysis/verifier").rglob("*.cc")
    sources = [*native, ROOT / "python/tvm_fixes/verifier/empty_reductions.py"]
    return {rule for path in sources for rule in pattern.findall(path.read_text())}


def test_every_rule_is_documented():
    pages = {path.name: path.read_text() for path in (ROOT / "docs/verifier").glob("*.md")}
    rows = re.findall(r"^\| \[.*?\]\((.*?)\) \| (`.*`) \|$", pages["README.md"], re.M)
    table = {rule: page for page, rules in rows for rule in re.findall("`(.*?)`", rules)}
    assert set(table) == rule_ids()
    for rule, page in table.items():
        assert f"| `{rule}` |" in pages[page], f"{page} does not list {rule}"


EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMPORTS = """\
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
"""


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs/verifier").glob("*.md")), ids=lambda p: p.stem
)
def test_the_examples_of_the_pages(page, tmp_path):
    for code, expected in EXAMPLE.findall(page.read_text()):
        script = tmp_path / "module.py"
        script.write_text(IMPORTS + code)
        assert verify(read_module(script)).text() == expected.rstrip("\n")
    assert page.stem == "README" or EXAMPLE.search(page.read_text())


if __name__ == "__main__":
    tvm.testing.main()
