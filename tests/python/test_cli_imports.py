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
"""``--import``: modules that register what a .pt2 file needs."""

import shutil
import sys

import onnx
import pytest
import torch
import tvm.testing

import tvm_fixes
from tvm_fixes import CompiledModel
from tvm_fixes.errors import CompileError, UntrustedError
from tvm_fixes.support.isolate import OutcomeKind, run_forked
from tvm_fixes_cli import main

PAIRS = """
import torch
from torch.utils import _pytree as pytree


class Pair:
    def __init__(self, first, second):
        self.parts = [first, second]


pytree.register_pytree_node(
    Pair,
    lambda pair: (pair.parts, None),
    lambda parts, _: Pair(parts[0].contiguous(), parts[1]),  # only of tensors
    serialized_type_name="{package}.pairs.Pair",
)


class Model(torch.nn.Module):
    def forward(self, x):
        return Pair(x + 1, x * 2)
"""

OPERATORS = """
import torch


@torch.library.custom_op("{package}::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


class Model(torch.nn.Module):
    def forward(self, x):
        return twice(x) + 1
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Two packages, and programs that need them, which no import in this process made."""
    folder = tmp_path_factory.mktemp("packages")
    sources = {"own_pairs": ("pairs", PAIRS), "own_operators": ("twice", OPERATORS)}
    for package, (module, source) in sources.items():
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()
        (folder / package / f"{module}.py").write_text(source.format(package=package))

    def export():
        sys.path.insert(0, str(folder))
        for package, (module, _) in sources.items():
            model = __import__(f"{package}.{module}", fromlist=["Model"]).Model()
            program = torch.export.export(model, (torch.ones(2, 3),))
            torch.export.save(program, folder / f"{package}.pt2")

    assert run_forked(export, timeout=60).kind is OutcomeKind.VALUE
    return folder


@pytest.fixture
def here(packages, tmp_path, monkeypatch):
    shutil.copytree(packages, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("here")
class TestTypes:
    def test_the_module_of_an_unregistered_type_is_named(self, capfd):
        assert main(["check", "own_pairs.pt2", "--trust"]) == 1
        assert capfd.readouterr().err == (
            "tvm-fixes: error: own_pairs.pt2: its inputs or outputs have the type "
            "own_pairs.pairs.Pair, which is not registered in PyTorch: add --import "
            "own_pairs.pairs (in Python: import own_pairs.pairs)\n"
        )

    def test_a_rejection_names_both_options(self):
        with pytest.raises(UntrustedError) as error:
            tvm_fixes.check("own_pairs.pt2")
        assert error.value.message.endswith(
            "If you trust its source, pass --trust --import own_pairs.pairs (trust=True after "
            "import own_pairs.pairs)"
        )
        assert "own_pairs" not in sys.modules

    def test_a_module_that_does_not_register_the_type(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "own_pairs.pairs", sys)
        with pytest.raises(CompileError, match="--import with a module that calls register_pytree"):
            tvm_fixes.check("own_pairs.pt2", trust=True)

    @pytest.mark.parametrize("module", ["own_pairs.pairs", "own_pairs/pairs.py"])
    def test_the_option_registers_it(self, module):
        words = ["own_pairs.pt2", "--trust", "--import", module, "-q", "-o", "out"]
        # A child, because a type stays registered.
        outcome = run_forked(lambda: main(["compile", *words]), timeout=120)
        assert outcome.value == 0, outcome.output
        # The type has no keys.
        names = [spec.name for spec in CompiledModel.load("out").manifest.outputs]
        assert names == ["output0", "output1"]


@pytest.mark.usefixtures("here")
def test_an_operator_that_is_not_registered(capfd):
    assert main(["check", "own_operators.pt2", "--trust"]) == 1
    assert "torch.ops.own_operators.twice.default is not registered in PyTorch: add --import" in (
        capfd.readouterr().err
    )
    words = ["own_operators.pt2", "--trust", "--import", "own_operators.twice", "--json"]
    outcome = run_forked(lambda: main(["check", *words]), timeout=60)
    assert '"name": "own_operators.twice.default"' in outcome.output


@pytest.mark.parametrize("command", ["compile", "check", "verify", "compare", "profile", "bisect"])
def test_a_module_that_does_not_exist(command, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes(onnx.ModelProto(ir_version=8).SerializeToString())
    assert main([command, "model.onnx", "--import", "no_such_module"]) == 2
    assert f"no_such_module: no such module in {tmp_path} or on the path" in capfd.readouterr().err
    assert main([command, "model.onnx", "--import", "no.py"]) == 2
    assert "no.py: no such file" in capfd.readouterr().err


def test_a_module_that_fails(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes(onnx.ModelProto(ir_version=8).SerializeToString())
    (tmp_path / "failing.py").write_text("1 / 0")
    assert main(["check", "model.onnx", "--import", "failing.py"]) == 1
    assert (
        "failing.py: cannot import: ZeroDivisionError: division by zero" in capfd.readouterr().err
    )


if __name__ == "__main__":
    tvm.testing.main()
