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
"""The changes that passes make, and their directory."""

import json
import os
from itertools import pairwise

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

import tvm_fixes
from helpers.models import conv_net
from helpers.unused_binding import module
from tvm_fixes.errors import ArtifactError, UsageError
from tvm_fixes.observe.changes import Change, WatchChanges, changed_constants, text_of, unified_diff
from tvm_fixes.observe.dump_ir import DumpIR
from tvm_fixes.relax.constants.evaluate import evaluate

Module = module()


def changes_of(mod: tvm.IRModule, *passes: tvm.transform.Pass) -> list[Change]:
    changes = []
    with tvm.transform.PassContext(instruments=[WatchChanges(changes.append, mod)]):
        for one in passes:
            mod = one(mod)
    return changes


@tvm.transform.module_pass(opt_level=0, name="Double")
def double_constants(mod, _context):
    """Changes only the value of a constant."""
    mod["main"] = relax.Function([], relax.const(np.full(3, 2, "float32")), mod["main"].ret_ty)
    return mod


class TestWatchChanges:
    def test_only_passes_that_change_something(self):
        transform = relax.transform
        passes = (transform.Normalize(), transform.DeadCodeElimination(), transform.LegalizeOps())
        changes = changes_of(Module, *passes)
        assert [change.name for change in changes] == ["DeadCodeElimination", "LegalizeOps"]
        first, second = changes
        assert first.before == text_of(Module)
        assert first.after == second.before
        removed = [line for line in first.diff.splitlines() if line.startswith("-  ")]
        assert len(removed) == 1 and "unused" in removed[0] and "R.add(x, x)" in removed[0]

    def test_a_sequence_is_not_reported_again(self):
        passes = [relax.transform.DeadCodeElimination(), relax.transform.LegalizeOps()]
        inner = tvm.transform.Sequential(passes, name="Inner")
        changes = changes_of(Module, tvm.transform.Sequential([inner], name="Outer"))
        names = [change.name for change in changes]
        assert names == ["Outer/Inner/DeadCodeElimination", "Outer/Inner/LegalizeOps"]

    def test_a_change_before_a_nested_pass_is_of_the_outer_one(self):
        @tvm.transform.module_pass(opt_level=0, name="Outer")
        def outer(mod, _context):
            mod["main"] = relax.transform.DeadCodeElimination()(tvm.IRModule(dict(mod.functions)))[
                "main"
            ]
            return relax.transform.LegalizeOps()(mod)

        names = [change.name for change in changes_of(Module.clone(), outer)]
        assert "before LegalizeOps" not in names
        assert names[-1] == "Outer/LegalizeOps"

    def test_a_constant(self):
        constant = relax.const(np.ones(3, "float32"))
        mod = tvm.IRModule({"main": relax.Function([], constant, constant.ty)})
        [change] = changes_of(mod, double_constants)
        assert change.name == "Double"
        assert change.before == change.after
        text = "constant (3,): 3 of 3 values changed, largest change 1 at [0]"
        assert change.diff == f"# {text}\n"
        assert changes_of(mod, relax.transform.Normalize()) == []

    def test_the_values_of_constants(self):
        def module(*arrays):
            fields = relax.Tuple([relax.const(array) for array in arrays])
            return tvm.IRModule({"main": relax.Function([], fields, None)})

        old = np.arange(64 * 64, dtype="float32").reshape(64, 64)
        new = old.copy()
        new[3, 7] += 0.5
        [line] = changed_constants(module(old, old[0]), module(new, old[0].copy()))
        assert line == (
            "constant (64, 64): 1 of 4,096 values changed, largest change 0.5 at [3, 7]"
        )
        new[5, 0] = np.nan
        [line] = changed_constants(module(old), module(new))
        assert "2 of 4,096 values changed, largest change from 320 to nan at [5, 0]" in line
        assert changed_constants(module(old), module(old[0])) == ()

    def test_folding_is_not_watched(self):
        """Building the kernels that compute a constant runs passes on another module."""
        function = relax.Function([], relax.const(np.ones(3, "float32")), None)
        var = relax.Var("y", relax.TensorType((3,), "float32"))
        binding = relax.VarBinding(var, relax.op.nn.relu(function.body))
        changes = []
        with tvm.transform.PassContext(instruments=[WatchChanges(changes.append)]):
            found = evaluate([binding], [var], tvm.IRModule())
        np.testing.assert_array_equal(found[var].numpy(), np.ones(3, "float32"))
        assert changes == []

    def test_after_an_unwatched_pass_that_raises(self):
        @tvm.transform.module_pass(opt_level=0, name="Fails")
        def fails(mod, _context):
            raise ValueError("no")

        @tvm.transform.module_pass(opt_level=0, name="Outer")
        def outer(mod, _context):
            with pytest.raises(ValueError, match="no"):
                fails(tvm.IRModule())
            mod["main"] = relax.transform.DeadCodeElimination()(mod)["main"]
            return mod

        names = [change.name for change in changes_of(Module.clone(), outer)]
        assert names == ["Outer"]

    def test_after_a_pass_that_raises(self):
        @tvm.transform.module_pass(opt_level=0, name="Fails")
        def fails(mod, _context):
            raise ValueError("no")

        changes = []
        with tvm.transform.PassContext(instruments=[WatchChanges(changes.append, Module)]):
            with pytest.raises(ValueError, match="no"):
                tvm.transform.Sequential([fails], name="Outer")(Module)
            relax.transform.DeadCodeElimination()(Module)
        assert changes[0].name.endswith("DeadCodeElimination")


@pytest.mark.parametrize("lines", [10, 30_000])
def test_the_diff_of_long_texts(lines):
    before = "".join(f"a{i}\n" for i in range(lines))
    after = "same\n" + "".join(f"b{i}\n" for i in range(lines))
    diff = list(unified_diff("same\n" + before + "end\n", after + "end\n", "old", "new"))
    assert diff[:2] == ["--- old\n", "+++ new\n"]
    assert sum(line.startswith("-a") for line in diff) == lines
    assert sum(line.startswith("+b") for line in diff) == lines


@pytest.fixture(scope="module")
def dumped(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dump") / "new" / "dump"
    tvm_fixes.compile(conv_net(), compare=False, dump_ir=directory)
    return directory


class TestDumpIR:
    def test_files(self, dumped):
        index = json.loads((dumped / "index.json").read_text())
        listed = [name for module in index["modules"] for name in module["files"]]
        assert sorted([*listed, "index.json"]) == sorted(os.listdir(dumped))
        passes = [module["pass"] for module in index["modules"]]
        assert passes[0] == "import"
        assert "Legalize/LegalizeOps" in passes
        assert "Lower/VMShapeLower" in passes
        assert "tirx.MakePackedAPI" in passes
        assert listed == sorted(listed, key=lambda name: (name[:3], name.endswith(".diff")))

    def test_nothing_is_written_twice(self, dumped):
        texts = [path.read_text() for path in sorted(dumped.glob("*.py"))]
        assert all(one != other for one, other in pairwise(texts))

    def test_a_diff_leads_from_each_module_to_the_next(self, dumped):
        files = sorted(dumped.glob("*.py"))
        for old, new in pairwise(files):
            diff = new.with_suffix(".diff")
            if not diff.exists():
                assert "before" in new.name or "Filter" in new.name
                continue
            removed = {line[1:] for line in diff.read_text().splitlines()[2:] if line[:1] == "-"}
            added = {line[1:] for line in diff.read_text().splitlines()[2:] if line[:1] == "+"}
            assert removed <= set(old.read_text().splitlines())
            assert added <= set(new.read_text().splitlines())

    def test_an_earlier_dump_is_replaced(self, tmp_path):
        with DumpIR(tmp_path).watching(Module):
            relax.transform.DeadCodeElimination()(Module)
        assert sorted(os.listdir(tmp_path)) == [
            "000-import.py",
            "001-DeadCodeElimination.diff",
            "001-DeadCodeElimination.py",
            "index.json",
        ]
        DumpIR(tmp_path)
        assert os.listdir(tmp_path) == ["index.json"]

    @pytest.mark.parametrize("others", [["notes.txt"], ["index.json", "notes.txt"], ["index.json"]])
    def test_other_files_are_kept(self, tmp_path, others):
        for name in others:
            (tmp_path / name).write_text("{}")
        with pytest.raises(UsageError, match="contains files that are not of an earlier dump"):
            DumpIR(tmp_path)
        assert sorted(os.listdir(tmp_path)) == others

    def test_a_file_is_no_directory(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError, match="cannot write: File exists"):
            DumpIR(tmp_path / "file")

    def test_a_full_disk(self, tmp_path, monkeypatch):
        dump = DumpIR(tmp_path)

        def write_text(path, text):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("tvm_fixes.observe.dump_ir.write_text", write_text)
        with pytest.raises(ArtifactError, match="cannot write: No space left on device"):
            with dump.watching(Module):
                pass


if __name__ == "__main__":
    tvm.testing.main()
