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
"""tvm_fixes.opt, and passes by name."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

import tvm_fixes
from helpers.unused_binding import module
from tvm_fixes import passes
from tvm_fixes.errors import CompileError, UsageError, VerifyError

Module = module()


class TestPasses:
    def test_all_have_a_summary_and_a_unique_name(self):
        known = passes.known_passes()
        assert len({str(one) for one in known}) == len(known)
        assert all(one.summary for one in known)
        own = [one.name for one in known if one.package == "tvm_fixes"]
        assert set(tvm_fixes.transform.__all__) | {"pipeline", "Legalize", "Lower"} == set(own)

    def test_tvm_s_are_found(self):
        names = {one.full_name for one in passes.known_passes()}
        assert {"relax.LegalizeOps", "tirx.VectorizeLoop", "s_tir.LowerOpaqueBlock"} <= names
        assert names.isdisjoint(
            {"relax.FunctionPass", "tirx.PrimFuncPass", "tirx.UnrollLoopConfig"}
        )

    @pytest.mark.parametrize(
        "text, name",
        [
            ("FoldConstant", "FoldConstant"),
            ("relax.FoldConstant", "FoldConstant"),
            ("tirx.ConvertSSA", "tirx.ConvertSSA"),
            ("NarrowDataType(32)", "tirx.NarrowDataType"),
            ("BindTarget", "tirx.BindTarget"),
            ("pipeline(layout=NHWC)", "tvm_fixes"),
            ("ConvertLayout({'relax.nn.conv2d': ['NHWC', 'OHWI']})", "ConvertLayout"),
        ],
    )
    def test_make(self, text, name):
        assert passes.make(text, tvm.target.Target("llvm")).info.name == name

    @pytest.mark.parametrize(
        "text, message",
        [
            ("Legalise", "unknown pass 'Legalise'; did you mean Legalize?"),
            ("legalizeops", "unknown pass 'legalizeops'; did you mean LegalizeOps?"),
            ("zzz", "unknown pass 'zzz'; `tvm-fixes opt --list` shows all"),
            ("ConvertSSA", "expected one of tirx.ConvertSSA, s_tir.ConvertSSA"),
            ("NarrowDataType", "missing a required argument: 'target_bits'"),
            ("pipeline(layout=", "expected NAME(argument=value, …)"),
            ("pipeline(layout=f(1))", "expected NAME(argument=value, …)"),
            ("pipeline(layout=abc)", "unknown layout 'abc'"),
            ("pipeline(nonsense=1)", "unexpected keyword argument 'nonsense'"),
        ],
    )
    def test_wrong(self, text, message):
        with pytest.raises(UsageError) as raised:
            passes.make(text)
        assert message in str(raised.value)

    def test_split(self):
        assert passes.split("A, B(x=1,y=[2,3]),C,") == ["A", "B(x=1,y=[2,3])", "C"]


class TestOpt:
    def test_in_order(self):
        changed = []
        result = tvm_fixes.opt(
            Module,
            "DeadCodeElimination,Normalize,LegalizeOps",
            on_change=lambda change: changed.append(change.name),
        )
        expected = relax.transform.DeadCodeElimination()(Module)
        with tvm.target.Target("llvm"):
            expected = relax.transform.LegalizeOps()(expected)
        tvm.ir.assert_structural_equal(result.module, expected)
        assert [run.name for run in result.runs] == [
            "DeadCodeElimination",
            "Normalize",
            "LegalizeOps",
        ]
        assert [bool(run.changes) for run in result.runs] == [True, False, True]
        assert changed == ["DeadCodeElimination", "LegalizeOps"]

    def test_the_pipeline_s_result_runs(self):
        result = tvm_fixes.opt(Module, ["pipeline"], target="llvm")
        executable = relax.build(result.module, "llvm", relax_pipeline=None)
        x = np.array([[-1, 2, -3], [4, -5, 6]], "float32")
        out = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x))
        np.testing.assert_array_equal(out.numpy(), np.maximum(x, 0))

    def test_a_pass_that_breaks_the_module(self):
        @tvm.transform.module_pass(opt_level=0, name="Breaks")
        def breaks(mod, _context):
            function = mod["main"]
            wrong = relax.TensorType((2, 4), "float32")
            return tvm.IRModule({"main": relax.Function(function.params, function.body, wrong)})

        with pytest.raises(VerifyError, match="introduced by the pass Breaks") as raised:
            tvm_fixes.opt(Module, ["Normalize", breaks])
        assert raised.value.stage == "Breaks"
        assert tvm_fixes.opt(Module, [breaks], verify=False).runs[0].name == "Breaks"

    def test_a_pass_that_fails(self):
        @tvm.transform.module_pass(opt_level=0, name="Fails")
        def fails(mod, _context):
            raise KeyError("x")

        with pytest.raises(CompileError, match="pass Fails: KeyError: ") as raised:
            tvm_fixes.opt(Module, ["Normalize", fails])
        assert raised.value.stage == "Fails"

    def test_nothing_runs_if_a_name_is_wrong(self):
        def never(_change):
            raise AssertionError("a pass ran")

        with pytest.raises(UsageError, match="unknown pass 'Lgalize'; did you mean Legalize"):
            tvm_fixes.opt(Module, "DeadCodeElimination,Lgalize", on_change=never)


if __name__ == "__main__":
    tvm.testing.main()
