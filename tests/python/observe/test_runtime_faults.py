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
from functools import partial

import numpy as np
import onnx
import pytest
import tvm.testing
from onnx import parser

import tvm_fixes
from helpers.grids import few
from tvm_fixes.compiler.reference import run_model
from tvm_fixes.observe.runtime_faults import runtime_faults
from tvm_fixes.runtime.input_buffers import InputBuffers, ResultBuffers
from tvm_fixes_cli import main

_OTHER = (
    "after a run with other inputs, CompiledModel.run does not return what the virtual machine "
    "computes"
)
_LATER = "a later run of CompiledModel.run overwrites the result"
_WRONG = "CompiledModel.run does not return what the virtual machine computes"


def _model():
    return parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]>
        model (float[2, 4] x, float[2, 4] z) => (float[2, 4] y) { a = Tanh(x) y = Sub(a, z) }"""
    )


def _share_results(self):
    return list(self._arrays)


_filled = InputBuffers.filled


def _keep_first(self, values):
    return _filled(self, [self._copied[0][1], *values[1:]])


_FAULTS = [
    (ResultBuffers, "copies", _share_results, _LATER),
    (InputBuffers, "filled", _keep_first, _OTHER),
    (InputBuffers, "filled", lambda self, values: _filled(self, values[::-1]), _WRONG),
]


@few(1)
@pytest.mark.parametrize("owner, name, wrong, sentence", _FAULTS)
def test_fault_of_the_runtime(monkeypatch, tmp_path, capfd, owner, name, wrong, sentence):
    onnx.save(_model(), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "model.onnx", "-q"]) == 0
    assert "runtime" not in capfd.readouterr().out
    monkeypatch.setattr(owner, name, wrong)
    assert main(["compare", "model.onnx", "-q"]) == 1
    out = " ".join(capfd.readouterr().out.split())
    assert f"runtime y: {sentence}" in out
    assert main(["compare", "model.onnx", "-q", "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["runtime"] == {"y": sentence}


def test_updated_inputs():
    torch = pytest.importorskip("torch")

    class Caches(torch.nn.Module):
        def forward(self, x, keys, values):
            keys.copy_(keys + x)
            values.copy_(values * x)
            return keys.tanh() + values

    inputs = [torch.randn(4, 8) for _ in range(3)]
    program = torch.export.export(Caches(), tuple(inputs))
    model = tvm_fixes.compile(program, compare=False)
    names, arrays = ["y", "keys", "values"], [value.numpy() for value in inputs]
    before = [array.copy() for array in arrays]
    run = partial(run_model, model)
    assert runtime_faults(names, model, run, arrays) == {}
    np.testing.assert_array_equal(arrays, before)

    def swapped(values):
        y, keys, new = run(values)
        return [y, new, keys]

    found = runtime_faults(names, model, swapped, arrays)
    assert found == {"keys": _WRONG, "values": _WRONG}


def test_rejected_inputs_and_variance():
    model = tvm_fixes.compile(_model(), compare=False)
    inputs = [np.random.default_rng(0).standard_normal((2, 4)).astype("float32")] * 2
    runs = []

    def reject(values):
        runs.append(values)
        if not np.array_equal(values[0], inputs[0]):
            raise tvm_fixes.errors.InputError("an index is out of bounds")
        return run_model(model, values)

    assert runtime_faults(["y"], model, reject, inputs) == {}
    assert len(runs) == 2

    def vary(values):
        runs.append(values)
        return [array + len(runs) for array in run_model(model, values)]

    assert runtime_faults(["y"], model, vary, inputs) == {}
    assert runtime_faults(["y"], model, partial(run_model, model), inputs) == {}


if __name__ == "__main__":
    tvm.testing.main()
