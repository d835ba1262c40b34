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
"""tvm_fixes.observe.pass_times, and ``compile --time-passes``."""

import json
import time

import onnx
import pytest
import tvm.testing

import tvm_fixes
from helpers.models import onnx_conv
from tvm_fixes.observe.pass_times import PassTimes
from tvm_fixes.support.instruments import watched_by
from tvm_fixes_cli import main


def sleeping(name, *inner, seconds=0.02):
    """A pass that sleeps, and then runs others."""

    def run(mod, _context):
        time.sleep(seconds)
        for one in inner:
            mod = one(mod)
        return mod

    return tvm.transform.module_pass(run, opt_level=0, name=name)


def measured(*passes):
    times = PassTimes()
    with watched_by(times):
        for one in passes:
            one(tvm.IRModule())
    return {each.name: each for each in times.found()}


def test_the_time_of_inner_passes_is_not_the_pass_s_own():
    inner = sleeping("Inner", seconds=0.05)
    found = measured(sleeping("Outer", inner, inner), sleeping("Inner", seconds=0.05))
    assert list(found) == ["Inner", "Outer"]
    assert (found["Inner"].calls, found["Outer"].calls) == (3, 1)
    assert found["Inner"].seconds == found["Inner"].own_seconds >= 0.15
    assert found["Outer"].seconds >= 0.12
    assert found["Outer"].seconds - found["Outer"].own_seconds >= 0.1


def test_a_pass_in_one_of_its_name_is_the_same():
    found = measured(sleeping("Same", sleeping("Same", sleeping("Same"))))
    assert found["Same"].calls == 1
    assert found["Same"].own_seconds == found["Same"].seconds >= 0.06


def test_a_pass_that_raises_is_not_counted():
    def fail(_mod, _context):
        raise ValueError("no")

    failing = tvm.transform.module_pass(fail, opt_level=0, name="Failing")

    def survive(mod, _context):
        with pytest.raises(ValueError, match="no"):
            failing(mod)
        return mod

    found = measured(
        tvm.transform.module_pass(survive, opt_level=0, name="Surviving"), sleeping("After")
    )
    assert {name: each.calls for name, each in found.items()} == {"After": 1, "Surviving": 1}
    assert found["After"].own_seconds >= 0.02


def test_compile_time_passes(tmp_path, capfd):
    onnx.save(onnx_conv(), tmp_path / "model.onnx")
    command = ["compile", str(tmp_path / "model.onnx"), "--no-compare", "-q", "--time-passes"]
    assert main([*command, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    found = {each["name"]: each for each in document["passes"]}
    assert {"Legalize", "LegalizeOps", "GuardLongLoops", "tirx.MakePackedAPI"} <= set(found)
    assert found["SplitDataflow"]["calls"] == 2
    assert found["Legalize"]["seconds"] > found["FuseOps"]["seconds"] > 0
    own = [each["own_seconds"] for each in document["passes"]]
    assert own == sorted(own, reverse=True)
    # The time of all passes is that of the steps that run them.
    steps = sum(s for name, s in document["seconds"].items() if name in found or name == "build")
    assert 0 < sum(own) <= steps + 0.1
    assert main(command) == 0
    text = capfd.readouterr().out
    assert "own time" in text and "faster passes not shown" in text


def test_the_report_can_be_read_again():
    model = tvm_fixes.compile(onnx_conv(), compare=False, time_passes=True)
    assert model.report.passes
    assert type(model.report).from_dict(model.report.to_dict()) == model.report
    assert not tvm_fixes.compile(onnx_conv(), compare=False).report.passes


if __name__ == "__main__":
    tvm.testing.main()
