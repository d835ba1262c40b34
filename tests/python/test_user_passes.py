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
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
from tvm import relax

import tvm_fixes
from helpers import stories
from helpers.grids import few, from_tier, is_full
from helpers.planted_faults import graph, swap_operands
from helpers.preparation import prepare_forks
from tvm_fixes.errors import CompileError, PassError, UsageError, VerifyError
from tvm_fixes.lowering import places, stages, stock_rest
from tvm_fixes.search.bisection import bisect
from tvm_fixes.search.problem import Kind, Problem
from tvm_fixes.search.trial import Settings
from tvm_fixes.user_passes import phases_with, read
from tvm_fixes_cli import main

PAGE = Path(__file__).parents[2] / "docs" / "passes.md"
LLVM = tvm.target.Target("llvm")

MODULE = """\
import tvm
from tvm import relax


def of_key(table):
    return table["key"]


@tvm.transform.module_pass(opt_level=3)
def Nothing(mod, context):
    return mod


@tvm.transform.module_pass(opt_level=0)
class Raises:
    def transform_module(self, mod, context):
        of_key({})


@tvm.transform.module_pass(opt_level=0)
def Undefines(mod, context):
    x, y = (relax.Var(name, relax.TensorType((2, 3), "float32")) for name in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.abs(y)))
    mod["main"] = builder.get()["main"].with_attr("num_input", 1)
    return mod


group = tvm.transform.Sequential([Nothing, relax.transform.FoldConstant()])
number = 3


def make():
    return Nothing


def rewrite(mod, context):
    return mod


def make_nothing():
    raise KeyError("key")
"""


@pytest.fixture(scope="module", autouse=True)
def prepared():
    prepare_forks()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MODULE)
    model = graph("float[4,8] x, float[4,8] y", "float[4,8] r", "d = Sub (y, x) r = Relu (d)")
    onnx.save(model, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(*given):
    """The passes on a CPU with those given, in order."""
    found = places(LLVM, phases=phases_with(read(given)))
    return [place.stage.path(place.step) for place in found]


@pytest.mark.parametrize(
    "place, before, after",
    [
        ("", None, "DynamicToStatic"),
        ("@after=Legalize", "Legalize/FuseTIR", "UpdateInPlace"),
        ("@before=Legalize", "CheckIndices", "Legalize/SortByKeys"),
        ("@after=FuseOps", "Legalize/FuseOps", "Legalize/FuseTIR"),
        ("@before=Legalize/FuseOps", "Legalize/FoldConstant", "Legalize/FuseOps"),
        ("@after=ChooseLayout", "ChooseLayout", "Layout"),
        # One name in several places.
        ("@before=SpreadSourceNodes", "Legalize/DispatchSortScan", "Legalize/SpreadSourceNodes"),
        ("@after=SpreadSourceNodes", "Legalize/SpreadSourceNodes", "Legalize/ReadTupleFields"),
        ("@after=SplitDataflow", "SplitDataflow", "CheckIndices"),
        # TVM's name, and a pass of a GPU.
        ("@after=ApplyDefaultSchedule", "Lower/AllocateEmptyConstants", None),
    ],
)
def test_places(folder, place, before, after):
    found = names(f"mine.py:Nothing{place}")
    at = next(at for at, name in enumerate(found) if name.endswith("Nothing"))
    assert before == (found[at - 1] if at else None)
    assert after in (None, found[at + 1])
    assert found[:at] + found[at + 1 :] == names()


def test_passes_of_one_place_keep_their_order(folder):
    for side in ("before", "after"):
        for anchor in ("FuseOps", "Legalize"):
            given = [f"mine.py:{name}@{side}={anchor}" for name in ("Nothing", "Raises", "group")]
            found = [name.rpartition("/")[2] for name in names(*given)]
            at = found.index("Nothing")
            assert found[at : at + 3] == ["Nothing", "Raises", "group"]


@pytest.mark.parametrize(
    "given, error, message",
    [
        ("mine.py:Nothing@after=Legalise", UsageError, "no pass 'Legalise'.*did you mean Legalize"),
        ("mine.py:Nothing@behind=Legalize", UsageError, "before=NAME or after=NAME, got 'behind"),
        ("mine.py:nothing", UsageError, "no 'nothing' in mine.py; did you mean Nothing"),
        (
            "mine.py:X",
            UsageError,
            "no 'X' in mine.py; passes in it: Nothing, Raises, Undefines",
        ),
        ("mine.py", UsageError, "expected package.module:MyPass"),
        ("missing.py:X", UsageError, "missing.py: no such file"),
        ("missing:X", UsageError, "missing: no such module"),
        ("mine.py:number", UsageError, "expected a pass, got int"),
        ("mine.py:rewrite", UsageError, "decorate a function of a module with @tvm.transform"),
        ("mine.py:make_nothing", CompileError, r"cannot make the pass: .*key.*mine.py:\d+\)"),
    ],
)
def test_what_cannot_be_read(folder, given, error, message):
    with pytest.raises(error, match=message):
        read([given])


@pytest.mark.parametrize("named", ["Nothing", "make", "group"])
def test_what_may_be_named(folder, named):
    for given in (f"mine.py:{named}@after=FuseOps", f"mine:{named}@after=FuseOps"):
        model = tvm_fixes.compile("model.onnx", passes=[given])
        assert model.report.equal
        assert model.report.user_passes == {given: False}
        assert model.report.options["passes"] == [given]


def test_an_object_may_be_given():
    model = graph("float[4] x, float[4] y", "float[4] r", "r = Sub (x, y)")
    passes = [(swap_operands, "after=DynamicToStatic")]
    compiled = tvm_fixes.compile(model, passes=passes)
    assert compiled.report.equal is False
    assert compiled.report.user_passes == {"ModulePass@after=DynamicToStatic": True}
    x, y = np.arange(8, dtype="float32").reshape(2, 4)
    np.testing.assert_array_equal(compiled.run(x, y), y - x)
    mod = tvm_fixes.frontend.onnx.from_onnx(model)
    lowered = relax.build(mod, "llvm", relax_pipeline=tvm_fixes.pipeline(passes=passes))
    machine = relax.VirtualMachine(lowered, tvm.cpu())
    result = machine["main"](*map(tvm.runtime.tensor, (x, y)))
    np.testing.assert_array_equal(result.numpy(), y - x)


@pytest.mark.parametrize("place", ["", "@after=FuseOps", "@after=CheckLowered"])
def test_the_line_of_an_error(folder, place):
    with pytest.raises(PassError, match=r"^pass Raises \(mine.py:Raises.*KeyError.*\(mine.py:6\)$"):
        tvm_fixes.compile("model.onnx", passes=[f"mine.py:Raises{place}"], compare=False)


def test_a_pass_that_breaks_the_module_is_named(folder):
    with pytest.raises(VerifyError, match=r"(?s)`y` is not defined.*by the pass Undefines"):
        tvm_fixes.compile("model.onnx", passes=["mine.py:Undefines"], compare=False)


def test_all_of_tvm_s_passes_are_left_after_a_user_s(folder):
    phases = phases_with(read(["mine.py:Nothing@before=AnnotateTIROpPattern"]))
    within = [place for place in places(LLVM, phases=phases) if place.stage.name == "Legalize"]
    executed = [place.step.name for place in within].index("Nothing") + 1
    every = [str(stage.info.name) for stage in stages()]
    rest = stock_rest(LLVM, every[every.index("Legalize") :], executed, phases)
    assert rest[0].info.name == "AnnotateTIROpPattern"


# "@before=Legalize" is another place for what the first case does.
@few(1)
@pytest.mark.parametrize(
    "place", ["", "@after=Legalize/SplitDataflow", *["@before=Legalize"] * is_full()]
)
def test_bisect_names_a_user_s_pass(folder, place):
    given = f"swap.py:swap_operands{place}"
    (folder / "swap.py").write_text("from helpers.planted_faults import swap_operands\n")
    if place == "@after=Legalize/SplitDataflow":  # there, the operators are kernels
        given = f"swap.py:wrong{place}"
        (folder / "swap.py").write_text(
            "from helpers.planted_faults import wrong_schedule as wrong\n"
        )
    passes = ["mine.py:Nothing", given, "mine.py:group@after=FuseTIR"]
    found = bisect("model.onnx", over=["passes"], settings=Settings(passes=passes))
    [culprit] = found.culprits
    assert len(culprit.names) == 1 and given in culprit.names[0]
    assert f"without {given}, the model does not show the problem" in culprit.what
    assert culprit.diff.startswith("--- before")


def test_bisect_names_a_user_s_pass_that_raises(folder):
    settings = Settings(passes=["mine.py:Nothing", "mine.py:Raises@after=FuseOps"])
    found = bisect("model.onnx", Problem(Kind.FAILS), over=["passes"], settings=settings)
    assert found.culprits[0].names == ["Raises"]


@few(2)
@pytest.mark.parametrize(
    "command", [["compile"], ["compare"], ["bisect", "--fails"], ["opt"], ["profile"]]
)
def test_the_traceback(folder, command, capfd):
    given = ["model.onnx", "--pass", "mine.py:Raises@after=Legalize"]
    main([*command, *given])
    assert "Traceback" not in capfd.readouterr().err
    main([*command, *given, "--traceback"])
    shown = capfd.readouterr().err
    assert shown.count("Traceback (most recent call last):") == 1
    assert 'mine.py", line 17, in transform_module\n    of_key({})\n' in shown
    assert 'mine.py", line 6, in of_key\n    return table["key"]\nKeyError' in shown


@from_tier("ci")
def test_reduce_writes_the_pass(folder, capfd):
    (folder / "swap.py").write_text("from helpers.planted_faults import swap_operands\n")
    given = ["model.onnx", "-q", "--pass", "swap.py:swap_operands"]
    assert main(["reduce", *given, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["operators"] == ["Sub"]
    script = (folder / "reduced/reproduce.py").read_text()
    assert f"passes=['{folder.resolve() / 'swap.py'}:swap_operands']" in script
    assert main(["reduce", *given, "--json"]) == 0  # the search is the same
    assert json.loads(capfd.readouterr().out)["trials"] == 0
    assert main(["reduce", *given, "--stock"]) == 2
    assert "no places for passes of yours" in capfd.readouterr().err


def test_the_dump_and_the_times_show_the_pass(folder, capfd):
    (folder / "swap.py").write_text("from helpers.planted_faults import swap_operands\n")
    given = ["--pass", "swap.py:swap_operands", "--dump-ir", "dump", "--time-passes", "--json"]
    main(["compile", "model.onnx", "--no-compare", "-q", "-o", "out", *given])
    document = json.loads(capfd.readouterr().out)
    assert "SwapOperands" in [one["name"] for one in document["passes"]]
    assert (folder / "dump" / "001-SwapOperands.diff").exists()
    assert main(["profile", "out", "-q", "--pass", "mine.py:Nothing"]) == 2
    assert "give the model, not an artifact" in capfd.readouterr().err


def test_opt(folder, capfd):
    given = ["--pass", "mine.py:Nothing@after=FuseOps"]
    assert main(["opt", "--print-pipeline", "--target", "llvm", "--json", *given]) == 0
    rows = json.loads(capfd.readouterr().out)
    [row] = [row for row in rows if row["whose"] == "yours"]
    assert row["pass"] == "Legalize/Nothing"
    assert main(["opt", "model.onnx", "--json", *given]) == 0
    assert json.loads(capfd.readouterr().out)["passes"][0]["name"] == "pipeline"
    assert main(["opt", "model.onnx", "--json", "--passes", "mine.py:Nothing,LegalizeOps"]) == 0
    passes = json.loads(capfd.readouterr().out)["passes"]
    assert [one["name"] for one in passes] == ["mine.py:Nothing", "LegalizeOps"]
    assert main(["opt", "model.onnx", "--passes", "LegalizeOps", *given]) == 2
    assert "name it at its place: mine.py:Nothing" in capfd.readouterr().err
    assert main(["opt", "model.onnx", "--passes", "mine.py:Nothing@after=FuseOps"]) == 2
    assert "its place is that in the list" in capfd.readouterr().err


@from_tier("ci")
def test_the_story_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    [mine] = [one for one in stories.programs(PAGE) if one.startswith("# my_pass.py\n")]
    [model] = [one for one in stories.programs(PAGE) if "sensor.onnx" in one]
    (tmp_path / "my_pass.py").write_text(mine)
    exec(model, {})
    [(_, commands)] = stories.stories(PAGE).items()
    assert len(commands) == 2
    stories.check(commands, monkeypatch, capsys)
    right = mine.replace("not ends_with_constant(inner)", "inner is None or inner.op != ADD")
    (tmp_path / "my_pass.py").write_text(right)
    assert tvm_fixes.compile("sensor.onnx", passes=["my_pass.py:MergeAdds"]).report.equal


if __name__ == "__main__":
    tvm.testing.main()
